# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""KubeVirt under HCO, which reverts direct edits: all changes go through an annotation that others use, too."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import playbooks
from full_dump import differences, dump, ours
from local_cluster import ClusterError, Fleet, Nodes
from local_cluster.kubevirt import CONTROL_PLANE_NODE
from scenario import OUR_REQUIREMENT, OWNER, TWO_HANDLERS, Object, Scenario, pool
from watcher import Watcher

HCO = "hyperconverged/kubevirt-hyperconverged"
HCO_V1BETA1 = "hyperconvergeds.v1beta1.hco.kubevirt.io/kubevirt-hyperconverged"
KUBEVIRT = "kubevirt-kubevirt-hyperconverged"
ANNOTATION = "kubevirt.kubevirt.io/jsonpatch"
GPU = pool("gpu", "a100")
TEAM = {
    "resourceType": "DaemonSet",
    "resourceName": "virt-handler",
    "type": "strategic",
    "patch": '{"spec":{"template":{"metadata":{"annotations":{"team":"storage"}}}}}',
}
SOMEBODYS = [
    {"op": "add", "path": "/spec/customizeComponents/patches", "value": [TEAM]},
    {"op": "add", "path": "/spec/configuration/migrations", "value": {"parallelMigrationsPerCluster": 3}},
]


WRITTEN = f"{json.dumps(SOMEBODYS, indent=2)}\n"
SIDECAR = {"op": "add", "path": "/spec/configuration/developerConfiguration/featureGates/-", "value": "Sidecar"}


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "a100"}), Nodes(prefix="node-", count=2)
    )
    scenario = Scenario(start_cluster(fleet, hco=True), KUBEVIRT)
    _annotate(scenario, WRITTEN)
    scenario.cluster.wait(lambda: TEAM in _patches(scenario), 30, "somebody's patch")
    scenario.wait_until_settled()
    return scenario


@pytest.fixture(scope="module")
def before(scenario: Scenario) -> dict[str, Object]:
    """Return the cluster as it was before it had pools."""
    return dump(scenario.cluster)


def _annotate(scenario: Scenario, value: str | None) -> None:
    scenario.patch(HCO, merge={"metadata": {"annotations": {ANNOTATION: value}}})


def _operations(scenario: Scenario) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = json.loads(scenario.get(*HCO.split("/"))["metadata"]["annotations"][ANNOTATION])
    return operations


def _patches(scenario: Scenario) -> list[dict[str, str]]:
    patches: list[dict[str, str]] = scenario.kubevirt()["spec"]["customizeComponents"].get("patches", [])
    return patches


def _placement(scenario: Scenario) -> Object:
    """Return what HCO renders as the placement of workloads."""
    placement: Object = scenario.kubevirt()["spec"].get("workloads", {}).get("nodePlacement", {})
    return placement


def _required(*requirements: Object) -> Object:
    """Return an affinity with one required term."""
    terms = [{"matchExpressions": list(requirements)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _place(scenario: Scenario, placement: Object | None) -> None:
    """Say where workloads run, as the user of HCO does."""
    scenario.patch(HCO, merge={"spec": {"deployment": {"nodePlacements": placement and {"workload": placement}}}})


def test_the_exclusion_keeps_what_others_have_in_the_annotation(scenario: Scenario, before: dict[str, Object]) -> None:
    marker = scenario.cluster.audit_marker()
    run = scenario.site([GPU]).succeeded()
    assert (
        run.results_of("virtpools.kubevirt.primary_exclusion")[0].result["object"]
        == f"HyperConverged {HCO.replace('hyperconverged/', 'kubevirt/')}"
    )
    assert scenario.writes(marker, "kubevirts.kubevirt.io") == []
    assert _operations(scenario)[:2] == SOMEBODYS
    assert len(_operations(scenario)) == 3
    assert _patches(scenario) == [TEAM]
    assert _placement(scenario) == {"affinity": _required(OUR_REQUIREMENT)}
    assert scenario.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}
    assert scenario.kubevirt()["spec"]["configuration"]["migrations"]["parallelMigrationsPerCluster"] == 3
    assert scenario.info()["findings"] == []
    scenario.settled([GPU])


@pytest.mark.thorough  # a rare event, and two runs more
def test_a_second_control_plane_node_may_join_during_a_run(scenario: Scenario) -> None:
    """HCO then renders no replicas any more, so KubeVirt is at another generation in the middle of the run (seen)."""
    second = Fleet.from_groups(dataclasses.replace(CONTROL_PLANE_NODE, name="control-plane-1"))
    assert scenario.kubevirt()["spec"]["infra"] == {"replicas": 1}
    newer = {**GPU, "virtHandlerImage": f"{GPU['virtHandlerImage']}-2"}
    with Watcher(scenario.cluster) as watcher:
        scenario.knob("gpu-00", "never-ready")
        running = scenario.start([newer], virtpools_max_unavailable=1, virtpools_node_timeout=120)
        try:
            images = [newer["virtHandlerImage"]]
            scenario.cluster.wait(lambda: scenario.handlers()["gpu-00"] == images, 60, "a new handler")
            generation = scenario.kubevirt()["metadata"]["generation"]
            scenario.cluster.add_nodes(second)
            scenario.cluster.wait(lambda: "infra" not in scenario.kubevirt()["spec"], 30, "HCO to act")
            assert scenario.kubevirt()["metadata"]["generation"] == generation + 1
            assert not running.ended()
            scenario.knob("gpu-00", None)
            running.wait().succeeded()
            scenario.settled([newer])
        finally:
            scenario.knob("gpu-00", None)
            scenario.cluster.kubectl("delete", "node", "control-plane-1", "--ignore-not-found")
        scenario.site([GPU]).succeeded()
        watcher.stop()
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])
    assert _placement(scenario) == {"affinity": _required(OUR_REQUIREMENT)}
    assert scenario.kubevirt()["spec"]["infra"] == {"replicas": 1}
    scenario.wait_until_settled()
    scenario.settled([GPU])


@pytest.mark.thorough  # the agent plays the conversion; users write in the other version below as well
def test_writes_by_v1beta1_keep_our_operation(scenario: Scenario) -> None:
    """HCO stores v1. What users write in the other version appears there, and a missing list gets its default (seen)."""
    before = scenario.get(*HCO.split("/"))

    def write(methods: list[str] | None) -> Object:
        strategy = {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}
        scenario.patch(HCO_V1BETA1, merge={"spec": {**strategy, "featureGates": {"downwardMetrics": methods == []}}})
        hyperconverged = scenario.get(*HCO.split("/"))
        assert hyperconverged["metadata"]["annotations"] == before["metadata"]["annotations"]
        written: Object = hyperconverged["spec"]
        return written

    changed = write([])
    assert changed["virtualization"]["workloadUpdateStrategy"]["workloadUpdateMethods"] == []
    assert changed["featureGates"] == [{"name": "downwardMetrics"}]
    scenario.cluster.wait(
        lambda: "workloadUpdateMethods" not in scenario.kubevirt()["spec"]["workloadUpdateStrategy"], 30, "HCO to act"
    )
    scenario.wait_until_settled()
    assert scenario.findings() == {}
    scenario.settled([GPU])
    assert write(None) == before["spec"]
    scenario.wait_until_settled()


@pytest.mark.thorough
def test_a_direct_edit_that_hco_reverts_keeps_the_exclusion(scenario: Scenario) -> None:
    scenario.patch(f"kubevirt/{KUBEVIRT}", {"op": "remove", "path": "/spec/workloads"})
    scenario.cluster.wait(lambda: OWNER in str(_placement(scenario)), 30, "HCO to revert that")
    scenario.wait_until_settled()
    assert scenario.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}
    scenario.settled([GPU])


@pytest.mark.thorough
def test_an_operation_that_others_drop_returns_with_the_next_run(scenario: Scenario) -> None:
    _annotate(scenario, json.dumps(SOMEBODYS))
    scenario.cluster.wait(lambda: OWNER not in str(_placement(scenario)), 30, "HCO to act")
    scenario.wait_until_settled()
    assert "exclusion_missing" in scenario.findings()
    scenario.site([GPU]).succeeded()
    assert _operations(scenario)[:2] == SOMEBODYS
    scenario.cluster.wait(lambda: scenario.info()["findings"] == [], 60, "nothing to be wrong")
    # Without the guard, virt-handler came back to pool nodes. The agent notes that; a later test compares the whole cluster.
    for node in scenario.owners():
        scenario.cluster.kubectl("annotate", "node", node, f"{TWO_HANDLERS}-")


LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
ELSEWHERE = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-01"]}
TOLERATION = {"key": "reserved", "operator": "Exists"}


def test_later_terms_of_the_user_do_not_bring_the_primary_back(scenario: Scenario) -> None:
    with Watcher(scenario.cluster) as watcher:
        placement = {"affinity": _required(LINUX)}
        scenario.patch(HCO_V1BETA1, merge={"spec": {"workloads": {"nodePlacement": placement}}})
        placements = scenario.get(*HCO.split("/"))["spec"]["deployment"]["nodePlacements"]
        assert placements == {"workload": placement}
        outdated = scenario.findings()["exclusion_outdated"]
        assert outdated.startswith(
            "HyperConverged kubevirt/kubevirt-hyperconverged has changed since the exclusion was"
        )
        assert "the primary virt-handler follows the former one until then; run site." in outdated
        assert "exclusion_outdated" in scenario.module("verification_info")["failing"]
        scenario.site([GPU]).succeeded()
        scenario.wait_until_settled()
        assert _placement(scenario) == {"affinity": _required(LINUX, OUR_REQUIREMENT)}
        watcher.stop()
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])
    assert scenario.findings() == {}


def test_a_placement_narrowed_then_removed_doubles_no_handlers(
    scenario: Scenario,
) -> None:
    with Watcher(scenario.cluster) as watcher:
        _place(scenario, {"affinity": _required(LINUX, ELSEWHERE), "tolerations": [TOLERATION]})
        scenario.cluster.wait(lambda: "tolerations" in _placement(scenario), 30, "HCO to act")
        assert _placement(scenario) == {"affinity": _required(LINUX, OUR_REQUIREMENT), "tolerations": [TOLERATION]}
        assert "exclusion_outdated" in scenario.findings()
        _place(scenario, None)
        scenario.cluster.wait(lambda: "tolerations" not in _placement(scenario), 30, "HCO to act")
        assert _placement(scenario) == {"affinity": _required(LINUX, OUR_REQUIREMENT)}
        assert _condition(scenario, "ReconcileComplete") == "True"
        assert "exclusion_outdated" in scenario.findings()
        scenario.wait_until_settled()
        watcher.stop()
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])


GUARDED = {"virtpools_guard": True}


def test_a_patch_that_replaces_ours_does_no_harm(scenario: Scenario) -> None:
    """HCO's documented way to set a patch. HCO accepts it, and the guard keeps virt-handler off pool nodes (seen on the real one).

    The first run here also drops the terms of the placement that its user took away.
    """
    scenario.site([GPU], **GUARDED).succeeded()
    assert _placement(scenario) == {"affinity": _required(OUR_REQUIREMENT)}
    with Watcher(scenario.cluster) as watcher:
        _annotate(scenario, json.dumps(SOMEBODYS))
        scenario.cluster.wait(
            lambda: _condition(scenario, "Degraded") == "True", 60, "the guard to refuse virt-operator"
        )
        assert _condition(scenario, "Upgradeable") == "False"
        assert _condition(scenario, "TaintedConfiguration") == "True"
        assert "exclusion_overwritten" in scenario.module("verification_info")["failing"]
        plan = scenario.module("plan_info", pools=[GPU], guard=True)
        assert plan["findings"][0]["code"] == "exclusion_overwritten"
        assert plan["errors"] == []
        scenario.site([GPU], **GUARDED).succeeded()
        scenario.wait_until_settled()
        watcher.stop()
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])
    assert _operations(scenario)[:2] == SOMEBODYS
    assert OWNER in str(_operations(scenario)[2])
    assert scenario.findings() == {}


@pytest.mark.thorough  # unit tests have it in every kind of run
def test_an_operation_that_builds_on_ours_is_reported(scenario: Scenario) -> None:
    former = json.dumps(_operations(scenario))
    theirs = {"op": "add", "path": "/spec/workloads/nodePlacement/tolerations", "value": [TOLERATION]}
    _annotate(scenario, json.dumps([*_operations(scenario), theirs]))
    scenario.cluster.wait(lambda: "tolerations" in _placement(scenario), 30, "HCO to apply it")
    scenario.wait_until_settled()
    assert "exclusion_edit_impossible" in scenario.module("verification_info")["failing"]
    said = scenario.refused([GPU])
    assert "Operation 3 in the annotation" in said
    assert "builds on operation 2" in said
    assert "set tolerations in spec.deployment.nodePlacements.workload" in said
    _annotate(scenario, former)
    scenario.cluster.wait(lambda: "tolerations" not in _placement(scenario), 30, "HCO to act")
    scenario.wait_until_settled()


def test_feature_gates_go_through_hco(scenario: Scenario) -> None:
    gates = {**GUARDED, "virtpools_feature_gates_present": ["Sidecar"]}
    marker = scenario.cluster.audit_marker()
    scenario.site([GPU], **gates).succeeded()
    assert scenario.writes(marker, "kubevirts.kubevirt.io") == []
    assert len(scenario.writes(marker, "hyperconvergeds.hco.kubevirt.io")) == 1
    assert _placement(scenario) == {"affinity": _required(OUR_REQUIREMENT)}

    def on() -> bool:
        return "Sidecar" in scenario.kubevirt()["spec"]["configuration"]["developerConfiguration"]["featureGates"]

    scenario.cluster.wait(on, 30, "the gate")
    assert _operations(scenario)[:2] == SOMEBODYS
    scenario.wait_until_settled()
    scenario.settled([GPU], **gates)


@pytest.mark.thorough  # unit tests refuse it in the plan
def test_a_gate_that_hco_turns_off_is_refused(scenario: Scenario) -> None:
    said = scenario.refused([GPU], virtpools_feature_gates_present=["ImageVolume"])
    assert "disables the feature gate ImageVolume, which an append cannot undo" in said
    assert "HCO has no switch for it in spec.featureGates" in said
    gates = json.dumps({"spec": {"featureGates": [{"name": "ImageVolume"}]}})
    tried = ("patch", "-n", scenario.namespace, *HCO.split("/"), "--type=merge", "--dry-run=server", "-p", gates)
    with pytest.raises(ClusterError, match="the ImageVolume featureGate is unknown and ignored"):
        scenario.cluster.kubectl(*tried, "--warnings-as-errors")


def test_after_remove_hco_and_kubevirt_are_as_they_were(scenario: Scenario, before: dict[str, Object]) -> None:
    """The text of the annotation included. Somebody has replaced it, so that only the guard keeps the exclusion by then."""
    _annotate(scenario, WRITTEN.rstrip("]\n") + f", {json.dumps(SIDECAR)}\n]\n")
    scenario.cluster.wait(lambda: _condition(scenario, "Degraded") == "True", 60, "the guard to refuse virt-operator")
    quick = {"virtpools_node_timeout": 30, "virtpools_settle_timeout": 60, "virtpools_remove": "all"}
    quick["virtpools_feature_gates_absent"] = ["Sidecar"]
    playbooks.run("remove", scenario.writer.kubeconfig, **quick).succeeded()
    assert _operations(scenario)[:2] == SOMEBODYS
    assert OWNER not in str(_operations(scenario))
    scenario.cluster.wait(lambda: "Sidecar" not in str(scenario.kubevirt()["spec"]), 30, "HCO to take the gate back")
    scenario.wait_until_settled()
    assert scenario.get(*HCO.split("/"))["metadata"]["annotations"][ANNOTATION] == WRITTEN
    assert differences(before, dump(scenario.cluster)) == {}
    assert ours(scenario.cluster) == []


@pytest.mark.thorough  # the agent plays an HCO that stops; unit tests refuse such annotations and such an HCO
@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("[{", "is not valid JSON"),
        (json.dumps([{"op": "remove", "path": "/spec/nothing"}]), "does not reconcile"),
    ],
    ids=["not JSON", "not applicable"],
)
def test_an_annotation_that_stops_hco_is_refused(scenario: Scenario, annotation: str, message: str) -> None:
    """HCO's webhook refuses such an annotation, but it may be older, or the rendered object may have changed since."""
    scenario.cluster.kubectl(
        "delete", "validatingwebhookconfiguration", "validate-hco.kubevirt.io", "--ignore-not-found"
    )
    former = scenario.get(*HCO.split("/"))["metadata"]["annotations"].get(ANNOTATION)
    _annotate(scenario, annotation)
    try:
        scenario.cluster.wait(lambda: _condition(scenario, "ReconcileComplete") == "False", 30, "HCO to stop")
        said = scenario.refused([{**GPU, "imagePullSecrets": [{"name": "registry"}]}])
        assert "HyperConverged kubevirt/kubevirt-hyperconverged" in said
        assert message in said
    finally:
        _annotate(scenario, former)
    scenario.cluster.wait(lambda: _condition(scenario, "ReconcileComplete") == "True", 60, "HCO to work again")


def _condition(scenario: Scenario, kind: str) -> str:
    conditions = scenario.get(*HCO.split("/"))["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == kind)
