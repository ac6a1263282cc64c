# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.collection import CollectionMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import run_end
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GPU, OTHER = builders.pool("gpu"), builders.pool("other")
GO_ON = "To go on, correct the cause and run the same command again."


def batches(*nodes):
    return [[{"node": node}] for node in nodes]


def left(*owners, known=()):
    """What is left of a run that gives every node to gpu. ``known``: the lists in the history."""
    nodes = [builders.node(f"n{number}", owner, labels={"hw": "gpu"}) for number, owner in enumerate(owners, 1)]
    record = {}
    if known:
        written = kinds.CONFIG_MAP.object(names.HISTORY, builders.NAMESPACE)
        written["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        entries = [history.entry_of(pools, (), Options(), "2026-01-01T00:00:00Z", "me") for pools in known]
        written["data"] = history.History(tuple(entries)).to_data()
        record = {(kinds.CONFIG_MAP.name, names.HISTORY): written}
    snapshot = builders.snapshot_of(nodes, [GPU], admission=Admission(objects=record))
    return CollectionMode().propose(snapshot, PlanRequest((GPU,), Options(max_nodes_lost="100%")))


def test_what_moved_and_what_stayed_is_named():
    first, second, _third = run_end.lines(batches("n1", "n2", "n3"), left("gpu", None, None), "site")
    assert first == "Done: 1 of 3 nodes (n1)."
    assert second == "As before: 2 nodes (n2, n3)."


def test_a_node_half_way_is_named():
    _first, second, _third = run_end.lines(batches("n1", "n2"), left("gpu", names.IN_TRANSIT), "site")
    assert second == "Half way: n2; the next run finishes this first."


def test_a_node_that_is_held_back_is_as_before():
    nodes = [builders.node("n1", "gpu", labels={"hw": "gpu"}), builders.node("n2", labels={"hw": "gpu"}, ready=False)]
    held = CollectionMode().propose(builders.snapshot_of(nodes, [GPU]), PlanRequest((GPU,)))
    first, second, _third = run_end.lines(batches("n1", "n2"), held, "site")
    assert (first, second) == ("Done: 1 of 2 nodes (n1).", "As before: 1 node (n2).")


def test_nodes_that_the_run_was_not_to_change_are_left_out():
    first, second, _third = run_end.lines(batches("n1"), left("gpu", None), "site")
    assert (first, second) == ("Done: 1 of 1 node (n1).", "No node is left.")


def test_a_run_without_nodes_says_so():
    first, _second = run_end.lines(batches(), left(None), "site")
    assert first == "The run had no node to change."


ROLLBACK = "To go back: ansible-playbook virtpools.kubevirt.rollback"


@pytest.mark.parametrize(
    ("run", "known", "way_back"),
    [
        ("site", [[OTHER]], ROLLBACK),
        ("site", [[OTHER], [GPU]], ROLLBACK),
        ("site", [[GPU]], "There is no earlier list to go back to."),
        ("site", [], "To go back: ansible-playbook virtpools.kubevirt.remove -e virtpools_remove=all"),
        ("remove", [[GPU]], "To bring the pools back, run the playbook site with their list."),
        ("rollback", [[GPU]], "To keep the newer list instead, run the playbook site with it."),
    ],
)
def test_the_last_line_has_the_commands(run, known, way_back):
    assert run_end.lines(batches("n1"), left(None, known=known), run)[-1] == f"{GO_ON} {way_back}"
