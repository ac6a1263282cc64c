# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.collection import CollectionMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import outcome
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.outcome import Extent, RunOutcome
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.waves import WaveSpec
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GPU = builders.pool("gpu")
WAVES = (WaveSpec(nodes=("n1",)), WaveSpec())


def proposal(*owners, stop=None):
    """A plan that gives every node to gpu, n1 first."""
    nodes = [builders.node(f"n{number}", owner, labels={"hw": "gpu"}) for number, owner in enumerate(owners, 1)]
    return proposal_of(*nodes, stop=stop)


def proposal_of(*nodes, stop=None, pods=None):
    snapshot = builders.snapshot_of([*nodes, builders.node("stays")], [GPU], pods=pods)
    options = Options(max_nodes_lost="100%", waves=WAVES)
    return CollectionMode().propose(snapshot, PlanRequest((GPU,), options, stop_after_wave=stop))


def batches(*nodes):
    return [[{"node": node}] for node in nodes]


class TestCompleted:
    def test_counts_the_nodes_of_the_plan(self):
        found = RunOutcome.of_completed("site", proposal(None, None))
        assert (found.changed, found.failed, found.nodes, found.done, found.later) == (True, False, 2, 2, ())
        assert found.summary == "completed, with 2 nodes changed"

    def test_of_a_plan_without_changes(self):
        found = RunOutcome.of_completed("site", proposal("gpu", "gpu"))
        assert (found.changed, found.nodes, found.summary) == (False, 0, "no change")

    def test_names_the_nodes_that_it_leaves_for_later(self):
        found = RunOutcome.of_completed("site", proposal(None, None, None, stop=1))
        assert (found.nodes, found.done, found.later) == (3, 1, ("n2", "n3"))
        assert found.stop.startswith("The rollout stops after wave 1 of 2")
        assert found.summary == "stopped as asked, with 1 of 3 nodes changed"


class TestFailed:
    def test_counts_what_was_done_and_what_is_half_way(self):
        found = RunOutcome.of_failed("site", batches("n1", "n2", "n3"), proposal("gpu", names.IN_TRANSIT, None))
        assert (found.changed, found.failed, found.nodes, found.done) == (True, True, 3, 1)
        assert found.summary == "failed, with 1 of 3 nodes changed, and 1 half way"

    @pytest.mark.parametrize(("owner", "former"), [(names.IN_TRANSIT, "primary"), ("gpu", "primary"), ("gpu", "gpu")])
    def test_a_node_half_way_that_is_not_ready_is_not_done(self, owner, former):
        left = proposal_of(builders.node("n1", owner, former, {"hw": "gpu"}, ready=False))
        found = Extent.of_failed(batches("n1"), left)
        assert (found.done, found.unchanged, found.unfinished) == (set(), set(), {"n1"})

    @pytest.mark.parametrize("reason", [{"ready": False}, {"taints": [{"key": "repair", "effect": "NoSchedule"}]}])
    def test_a_node_that_is_held_back_is_as_before(self, reason):
        left = proposal_of(builders.node("n1", labels={"hw": "gpu"}, **reason))
        found = Extent.of_failed(batches("n1"), left)
        assert (found.done, found.unchanged, found.unfinished) == (set(), {"n1"}, set())

    def test_a_node_whose_replacement_is_held_back_is_as_before(self):
        old = [builders.handler_pod("n1", "virt-handler-gpu", template="old"), builders.handler_pod("stays")]
        left = proposal_of(builders.node("n1", "gpu", labels={"hw": "gpu"}, ready=False), pods=old)
        assert Extent.of_failed(batches("n1"), left).unchanged == {"n1"}

    def test_a_dead_node_that_was_proven_is_done(self):
        left = proposal_of(builders.node("n1", "gpu", labels={"hw": "gpu"}, ready=False))
        assert Extent.of_failed(batches("n1"), left).done == {"n1"}

    def test_a_node_that_no_longer_exists_is_none_of_those_left(self):
        found = Extent.of_failed(batches("n1", "n2"), proposal(None))
        assert (found.unchanged, found.unfinished) == ({"n1"}, set())

    def test_says_that_nothing_was_changed(self):
        found = RunOutcome.of_failed("site", batches("n1"), proposal(None))
        assert (found.changed, found.summary) == (False, "failed, with 0 of 1 node changed")


class TestRead:
    PAUSED = RunOutcome.of_completed("site", proposal(None, None, stop=1))

    def test_gets_what_was_published(self):
        assert outcome.read(self.PAUSED.publish("west"), "west") == self.PAUSED

    def test_of_another_host_or_of_nothing_is_none(self):
        assert outcome.read(self.PAUSED.publish("west"), "east") is None
        assert outcome.read(None, "west") is None
        assert outcome.read({"west": {"failed": True, "summary": "refused, with nothing changed"}}, "west") is None

    @pytest.mark.parametrize("wrong", ["text", 1, ["a"], {"west": "x"}, {"west": {"run": "site"}}], ids=str)
    def test_of_something_else_is_refused(self, wrong):
        with pytest.raises(InputErrors, match="virtpools_result is not what a run publishes"):
            outcome.read(wrong, "west")

    def test_a_pause_is_one_of_a_run_that_brings_a_list(self):
        assert outcome.read_pause(self.PAUSED.publish("west"), "west") == self.PAUSED
        for other in (
            RunOutcome.of_completed("rollback", proposal(None, None, stop=1)),
            RunOutcome.of_completed("site", proposal(None, None)),
            RunOutcome.of_failed("site", batches("n1"), proposal(None, stop=1)),
        ):
            assert outcome.read_pause(other.publish("west"), "west") is None
