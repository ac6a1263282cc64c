# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole rollouts that fail in their second wave, and go back as far as they are told to."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import (
    ALL,
    FIRST,
    GPU,
    NEXT_GPU,
    RT,
    Stage,
    handlers,
    outcome,
    stock,
    told,
)

WAVES = [{"nodes": ["n1"]}, {"nodes": ["n2", "n3"]}]


class Rollout:
    def __init__(self, stage):
        self._stage = stage
        self.begin(stock())

    def begin(self, objects):
        self.cuts = []
        self.world, self.disturbance = self._stage.on(copy.deepcopy(list(objects)), cuts=self.cuts)

    def run(self, pools, on_failure="stop", **variables):
        given = {"virtpools_pools": pools, "virtpools_waves": WAVES, "virtpools_on_failure": on_failure, **variables}
        self._stage.run("rollout", given)

    def fails(self, pools, on_failure, **variables):
        """Run it, with a new handler that does not start on a node of the second wave; what it says."""
        usual = self.world.behaviour
        known = {pod["metadata"].get("annotations", {}).get(names.TEMPLATE_ANNOTATION) for pod in self.world.pods("n2")}

        def behaviour(pod):
            template = pod["metadata"].get("annotations", {}).get(names.TEMPLATE_ANNOTATION)
            new = pod["spec"]["nodeName"] == "n2" and template not in {None, *known}
            return Behaviour(broken="ImagePullBackOff") if new else usual(pod)

        self.world.behaviour = behaviour
        with pytest.raises(TaskFailed) as caught:
            self.run(pools, on_failure, **variables)
        assert self.world.doubled == []
        self.world.behaviour = usual
        return str(caught.value)

    def outcome(self):
        """What a user could see, but for the history: the first run leaves it empty."""
        return {key: value for key, value in outcome(self.world).items() if names.HISTORY not in key}


@pytest.fixture
def rollout(run, monkeypatch):
    return Rollout(Stage(run, monkeypatch))


@pytest.fixture
def running(rollout, run, monkeypatch):
    """The pools are there."""
    stage = Stage(run, monkeypatch)
    world, _none = stage.on(stock())
    stage.run(FIRST.role, FIRST.variables)
    rollout.begin(world.objects.values())
    return rollout


def test_all_of_a_first_list_goes_back(rollout):
    before = rollout.outcome()
    told = rollout.fails([GPU, RT], "rollback_all")
    assert told.startswith("Wave 2 (n2, n3) failed, and all nodes went back to: no pools. 1 of 2 nodes failed")
    assert {key: value for key, value in rollout.outcome().items() if "leases" not in key} == before


def test_a_wave_of_a_first_list_goes_back(rollout):
    told = rollout.fails([GPU, RT], "rollback_wave")
    assert told.startswith("Wave 2 (n2, n3) failed, and its nodes went back to: no pools.")
    primary = ["virt-handler"]
    assert handlers(rollout.world) == {"n1": ["virt-handler-gpu"], "n2": primary, "n3": primary, "n4": primary}


def test_all_goes_back_to_the_list_before(running):
    before = running.outcome()
    assert "all nodes went back to: " in running.fails([NEXT_GPU, RT], "rollback_all")
    assert running.outcome() == before


def test_a_wave_goes_back_to_the_list_before_and_others_stay_new(running):
    (before,) = running.world.pods("n1")
    running.fails([NEXT_GPU, RT], "rollback_wave")
    template = names.TEMPLATE_ANNOTATION
    (first,), (second,) = running.world.pods("n1"), running.world.pods("n2")
    assert second["metadata"]["annotations"][template] == before["metadata"]["annotations"][template]
    assert first["metadata"]["annotations"][template] != before["metadata"]["annotations"][template]


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
def test_the_same_command_succeeds_once_the_reason_is_gone(running, on_failure):
    running.fails([NEXT_GPU, RT], on_failure)
    running.run([NEXT_GPU, RT], on_failure)
    wanted = running.outcome()
    running.begin(stock())
    running.run([NEXT_GPU, RT])
    assert wanted == running.outcome()
    running.world.writes.clear()
    running.run([NEXT_GPU, RT], on_failure)
    assert running.world.writes == []


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
def test_cut_off_anywhere_the_same_command_still_succeeds(running, on_failure):
    start = list(running.world.objects.values())
    running.fails([NEXT_GPU, RT], on_failure)
    steps = list(zip(running.disturbance.writes, running.cuts, strict=True))
    running.begin(start)
    running.run([NEXT_GPU, RT])
    wanted = running.outcome()
    assert len(steps) > 20
    for write, cut in steps if ALL else steps[::3]:
        running.begin(cut)
        with told(f"The power fails after {write}"):
            running.run([NEXT_GPU, RT], on_failure)
            assert running.outcome() == wanted
            assert running.world.doubled == []
