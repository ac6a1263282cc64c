# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster once virt-operator has taken its pools down. Whole moves are in tests/unit/runs/test_moving.py."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.mode import OperatorMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
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


class TestTakedown:
    def test_the_cluster_afterwards_has_no_trace_of_the_pools(self):
        found = OperatorMode(B).takedown(operator(), PlanRequest())
        assert (found.mode, found.pools, found.proposal.errors) == ("operator", ("gpu",), ())
        assert B.field not in found.after.kubevirt["spec"]
        assert list(found.after.daemonsets) == []
        assert "affinity" not in found.after.primary["spec"]["template"]["spec"]
        assert {pod.daemonset for pods in found.after.handlers.values() for pod in pods} == {names.HANDLER}

    def test_the_users_placement_stays(self):
        after = OperatorMode(B).takedown(operator(TERM), PlanRequest()).after
        assert after.primary["spec"]["template"]["spec"]["affinity"] == builders.affinity(TERM)

    def test_the_second_part_has_the_digest_of_a_first_plan(self):
        after = OperatorMode(B).takedown(operator(), PlanRequest()).after
        clean = builders.build_snapshot(
            fake_operator_mode.kubevirt(gates=[B.gate]),
            daemonsets=[fake_operator_mode.primary()],
            nodes=[builders.node("n1", labels={"hw": "gpu", "zone": "a"}), builders.node("n2", labels={"zone": "a"})],
        )
        pools = [builders.pool()]
        assert plan.make_plan(after, pools, Options()).digest == plan.make_plan(clean, pools, Options()).digest
