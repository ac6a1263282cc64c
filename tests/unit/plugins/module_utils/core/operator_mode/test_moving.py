# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to go before pools of the other mode come. Whole moves are in tests/unit/runs/test_moving.py."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import findings, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import moving
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator_mode import OperatorModeWorld

B = BUILDS["virtHandlerPools"]
RAW = {"nodeSelector": {"hw": "gpu"}, "virtHandlerImage": builders.GPU_IMAGE}
ENTRY = {"name": "gpu", **RAW, "selector": {"deviceNames": ["x/y"]}}
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def operator(*terms):
    """A cluster with a pool of one node, as build B made it; ``terms``: the required ones of its user's placement."""
    nodes = [builders.node("n1", labels={"hw": "gpu", "zone": "a"}), builders.node("n2", labels={"zone": "a"})]
    of_kubevirt = fake_operator_mode.kubevirt(entries=[ENTRY], field=B.field, gates=[B.gate])
    if terms:
        of_kubevirt["spec"]["workloads"] = {"nodePlacement": {"affinity": builders.affinity(*terms)}}
    world = OperatorModeWorld("B", of_kubevirt, fake_operator_mode.primary(desired=1), *nodes)
    stock = fake_operator_mode.primary(desired=1)
    stock["spec"] = world._primary_spec(of_kubevirt, {"gpu": RAW})
    pool = world._daemonset("gpu", RAW, of_kubevirt)
    pods = [builders.handler_pod("n1", "virt-handler-gpu"), builders.handler_pod("n2", "virt-handler")]
    return builders.build_snapshot(of_kubevirt, daemonsets=[stock, pool], nodes=nodes, pods=pods)


def collection():
    return builders.snapshot_of([builders.node("n1", owner="gpu")], [builders.pool()])


@pytest.mark.parametrize("build", [None, B])
def test_nothing_moves_without_pools_or_within_one_mode(build):
    assert moving.departure(build, builders.fresh_snapshot([builders.node()])) is None
    assert moving.departure(build, operator() if build else collection()) is None


class TestFromNative:
    def test_the_cluster_afterwards_has_no_trace_of_the_pools(self):
        found = moving.departure(None, operator())
        assert (found.mode, found.pools, found.plan.errors) == ("operator", ("gpu",), ())
        assert B.field not in found.after.kubevirt["spec"]
        assert list(found.after.daemonsets) == []
        assert "affinity" not in found.after.primary["spec"]["template"]["spec"]
        assert {pod.daemonset for pods in found.after.handlers.values() for pod in pods} == {names.HANDLER}

    def test_the_users_placement_stays(self):
        after = moving.departure(None, operator(TERM)).after
        assert after.primary["spec"]["template"]["spec"]["affinity"] == builders.affinity(TERM)

    def test_the_second_part_has_the_digest_of_a_first_plan(self):
        after = moving.departure(None, operator()).after
        clean = builders.build_snapshot(
            fake_operator_mode.kubevirt(gates=[B.gate]),
            daemonsets=[fake_operator_mode.primary()],
            nodes=[builders.node("n1", labels={"hw": "gpu", "zone": "a"}), builders.node("n2", labels={"zone": "a"})],
        )
        pools = [builders.pool()]
        assert plan.make_plan(after, pools, Options()).digest == plan.make_plan(clean, pools, Options()).digest


class TestFromComposed:
    def test_the_cluster_afterwards_has_no_trace_of_the_pools(self):
        found = moving.departure(B, collection())
        assert (found.mode, found.pools) == ("collection", ("gpu",))
        assert {node.owner for node in found.after.nodes.values()} == {names.PRIMARY}
        assert not exclusion.exclusion_requested(found.after.kubevirt)
        assert not exclusion.has_exclusion(found.after.primary)
        assert not found.after.pools

    def test_an_exclusion_that_an_interrupted_run_left_goes_too(self):
        left = builders.snapshot_of([builders.node("n1")], [])
        found = moving.departure(B, left)
        (said,) = [each.message for each in found.findings(()) if each.code == "moving"]
        assert "first it ends their removal" in said


def test_findings_on_kubevirt_in_the_first_part_are_not_repeated():
    found = moving.departure(None, operator())
    passing = findings.error("kubevirt_not_available", "It is not available.")
    lasting = findings.error("version_skew", "Another version.")
    codes = [each.code for each in found.findings((passing, lasting, lasting))]
    assert "kubevirt_not_available" not in codes
    assert codes.count("version_skew") == 1
    assert codes.count("moving") == 1
