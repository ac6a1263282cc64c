# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Operator mode under HCO: the list, the gate and the touch go through an annotation that others use, too.

One cluster for each build; the tests run in order. What builds do, and HCO itself, are played by the agent.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from full_dump import differences, ours
from local_cluster import Fleet, Nodes
from operator_mode_scenario import B, C, OperatorModeScenario
from scenario import Object
from watcher import Watcher

# make test goes through operator mode without HCO, and through HCO without operator mode.
pytestmark = pytest.mark.thorough

HCO = "hyperconverged/kubevirt-hyperconverged"
KUBEVIRT = "kubevirt-kubevirt-hyperconverged"
ANNOTATION = "kubevirt.kubevirt.io/jsonpatch"
GATES = "/spec/configuration/developerConfiguration/featureGates"
# Somebody else appends to the list that gets the build's gate.
SOMEBODYS = {"op": "add", "path": f"{GATES}/-", "value": "Sidecar"}
GATE_OF = {B.name: "VirtHandlerPools", C.name: "WorkerPools"}
FLEET = Fleet.from_groups(
    Nodes(name="gpu-00", labels={"accelerator": "gpu"}),
    Nodes(name="edge-00", labels={"accelerator": "edge"}),
    Nodes(name="plain-00"),
)
POOLED = {"gpu-00": ["virt-handler-gpu"], "edge-00": ["virt-handler-edge"], "plain-00": ["virt-handler"]}


class HcoScenario(OperatorModeScenario):
    """A cluster of one build under HCO."""

    def annotate(self) -> None:
        """Write the annotation as somebody else has it."""
        self.patch(HCO, merge={"metadata": {"annotations": {ANNOTATION: json.dumps([SOMEBODYS])}}})

    def operations(self) -> list[Object]:
        """Return what the annotation has."""
        found: list[Object] = json.loads(self.get(*HCO.split("/"))["metadata"]["annotations"][ANNOTATION])
        return found

    def list_operations(self, pools: list[Object]) -> list[Object]:
        """Return the operations that bring the list of a build that has one in the KubeVirt object."""
        if self.build.name != B.name:
            return []
        entries = [{key: value for key, value in pool.items() if key != "unmatched"} for pool in pools]
        return [{"op": "add", "path": f"/spec/{B.name}", "value": entries}]

    def gate_operation(self) -> Object:
        return {"op": "add", "path": f"{GATES}/-", "value": GATE_OF[self.build.name]}

    def writes_of(self, marker: int) -> tuple[int, int]:
        """Return how often the user has written the HyperConverged since a marker, and the KubeVirt object."""
        counts = [len(self.writes(marker, f"{kind}.kubevirt.io")) for kind in ("hyperconvergeds.hco", "kubevirts")]
        return counts[0], counts[1]


@pytest.fixture(scope="module", params=[B, C], ids=lambda build: str(build.name))
def scenario(request: pytest.FixtureRequest, start_cluster: Any) -> HcoScenario:
    scenario = HcoScenario(request.param, start_cluster(FLEET, build=request.param.name, hco=True), KUBEVIRT)
    scenario.annotate()
    scenario.cluster.wait(lambda: "Sidecar" in str(scenario.kubevirt()["spec"]), 30, "somebody's gate")
    scenario.wait_until_settled()
    return scenario


@pytest.fixture(scope="module", autouse=True)
def before(scenario: HcoScenario) -> dict[str, Object]:
    """Return the cluster as it was before it had pools."""
    return scenario.state()


def test_list_and_gate_keep_what_others_have_in_the_annotation(scenario: HcoScenario) -> None:
    marker = scenario.cluster.audit_marker()
    with Watcher(scenario.cluster) as watcher:
        scenario.play("site", scenario.pools()).succeeded()
        watcher.stop()
    assert (watcher.handlers, watcher.without_ready_handler) == (POOLED, [])
    assert scenario.writes_of(marker) == (1, 0)
    assert scenario.operations() == [SOMEBODYS, *scenario.list_operations(scenario.pools()), scenario.gate_operation()]
    scenario.again(scenario.pools())
    scenario.play("verify").succeeded()


def test_a_direct_edit_that_hco_reverts_keeps_the_pools(scenario: HcoScenario) -> None:
    kubevirt = scenario.kubevirt()
    gates = list(kubevirt["spec"]["configuration"]["developerConfiguration"]["featureGates"])
    gates.remove(GATE_OF[scenario.build.name])
    without = {"configuration": {"developerConfiguration": {"featureGates": gates}}, B.name: None}
    scenario.patch(f"kubevirt/{KUBEVIRT}", merge={"spec": without})
    scenario.cluster.wait(lambda: scenario.kubevirt()["spec"] == kubevirt["spec"], 30, "HCO to revert that")
    assert scenario.kubevirt()["metadata"]["generation"] > kubevirt["metadata"]["generation"] + 1, "it was there"
    scenario.wait_until_settled()
    scenario.play("verify").succeeded()
    scenario.again(scenario.pools())


def test_another_list_replaces_the_first_in_the_annotation(scenario: HcoScenario) -> None:
    newer = [scenario.pool("gpu", "-2")]
    marker = scenario.cluster.audit_marker()
    with Watcher(scenario.cluster) as watcher:
        scenario.play("site", newer, virtpools_prune=True).succeeded()
        watcher.stop()
    assert (watcher.handlers, watcher.without_ready_handler) == ({**POOLED, "edge-00": ["virt-handler"]}, [])
    assert watcher.images["gpu-00"] == [newer[0]["virtHandlerImage"]]
    # Objects are written directly; the touch that follows them goes through HCO, on and off again.
    assert scenario.writes_of(marker) == ((1, 0) if scenario.build.name == B.name else (2, 0))
    assert scenario.operations() == [SOMEBODYS, scenario.gate_operation(), *scenario.list_operations(newer)]
    scenario.again(newer, virtpools_prune=True)


def test_after_remove_hco_and_kubevirt_are_as_they_were(scenario: HcoScenario, before: dict[str, Object]) -> None:
    scenario.play("remove", virtpools_remove="all").succeeded()
    assert scenario.operations() == [SOMEBODYS]
    scenario.annotate()  # the same in its own layout
    scenario.cluster.wait(
        lambda: GATE_OF[scenario.build.name] not in str(scenario.kubevirt()["spec"]), 30, "HCO to take the gate back"
    )
    scenario.wait_until_settled()
    assert scenario.names() == ["virt-handler"]
    assert differences(before, scenario.state()) == {}
    assert ours(scenario.cluster) == []
