# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""KubeVirt under HCO, which reverts direct edits: all changes go through an annotation that others use, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from full_dump import differences, dump, ours

import playbooks
from local_cluster import Fleet, Nodes
from scene import OUR_REQUIREMENT, OWNER, Object, Scene, pool
from watcher import Watcher

HCO = "hyperconverged/kubevirt-hyperconverged"
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


@pytest.fixture(scope="module")
def scene(start_cluster: Any) -> Scene:
    fleet = Fleet.of(Nodes(prefix="gpu-", count=2, labels={"accelerator": "a100"}), Nodes(prefix="node-", count=2))
    scene = Scene(start_cluster(fleet, hco=True), KUBEVIRT)
    _annotate(scene, json.dumps(SOMEBODYS))
    scene.cluster.wait(lambda: TEAM in _patches(scene), 30, "somebody's patch")
    scene.wait_until_settled()
    return scene


@pytest.fixture(scope="module")
def before(scene: Scene) -> dict[str, Object]:
    """Return the cluster as it was before it had pools."""
    return dump(scene.cluster)


def _annotate(scene: Scene, value: str | None) -> None:
    scene.patch(HCO, merge={"metadata": {"annotations": {ANNOTATION: value}}})


def _operations(scene: Scene) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = json.loads(scene.get(*HCO.split("/"))["metadata"]["annotations"][ANNOTATION])
    return operations


def _patches(scene: Scene) -> list[dict[str, str]]:
    patches: list[dict[str, str]] = scene.kubevirt()["spec"]["customizeComponents"].get("patches", [])
    return patches


def _placement(scene: Scene) -> Object:
    """Return what HCO renders as the placement of workloads."""
    placement: Object = scene.kubevirt()["spec"].get("workloads", {}).get("nodePlacement", {})
    return placement


def _required(*requirements: Object) -> Object:
    """Return an affinity with one required term."""
    terms = [{"matchExpressions": list(requirements)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _place(scene: Scene, placement: Object | None) -> None:
    """Say where workloads run, as the user of HCO does."""
    scene.patch(HCO, merge={"spec": {"deployment": {"nodePlacements": placement and {"workload": placement}}}})


def test_the_exclusion_goes_beside_what_others_keep_in_the_annotation(scene: Scene, before: dict[str, Object]) -> None:
    marker = scene.cluster.audit_marker()
    run = scene.site([GPU]).succeeded()
    assert (
        run.results_of("virtpools.kubevirt.primary_exclusion")[0].result["object"]
        == f"HyperConverged {HCO.replace('hyperconverged/', 'kubevirt/')}"
    )
    assert scene.writes(marker, "kubevirts.kubevirt.io") == []
    assert _operations(scene)[:2] == SOMEBODYS
    assert len(_operations(scene)) == 3
    assert _patches(scene) == [TEAM]
    assert _placement(scene) == {"affinity": _required(OUR_REQUIREMENT)}
    assert scene.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}
    assert scene.kubevirt()["spec"]["configuration"]["migrations"]["parallelMigrationsPerCluster"] == 3
    assert scene.info()["findings"] == []
    scene.settled([GPU])


LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
ELSEWHERE = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-01"]}
TOLERATION = {"key": "reserved", "operator": "Exists"}


def test_terms_that_the_user_adds_later_do_not_bring_the_primary_back(scene: Scene) -> None:
    with Watcher(scene.cluster) as watcher:
        _place(scene, {"affinity": _required(LINUX)})
        outdated = scene.findings()["exclusion_outdated"]
        assert outdated.startswith(
            "HyperConverged kubevirt/kubevirt-hyperconverged has changed since the exclusion was"
        )
        assert "the primary virt-handler follows the former one until then; run site." in outdated
        verified = playbooks.run("verify", scene.writer.kubeconfig).refused()
        assert "exclusion_outdated" in verified
        scene.site([GPU]).succeeded()
        scene.wait_until_settled()
        assert _placement(scene) == {"affinity": _required(LINUX, OUR_REQUIREMENT)}
        watcher.stop()
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])
    assert scene.findings() == {}


def test_a_placement_that_the_user_narrows_then_takes_away_neither_stops_hco_nor_doubles_handlers(scene: Scene) -> None:
    with Watcher(scene.cluster) as watcher:
        _place(scene, {"affinity": _required(LINUX, ELSEWHERE), "tolerations": [TOLERATION]})
        scene.cluster.wait(lambda: "tolerations" in _placement(scene), 30, "HCO to act")
        assert _placement(scene) == {"affinity": _required(LINUX, OUR_REQUIREMENT), "tolerations": [TOLERATION]}
        assert "exclusion_outdated" in scene.findings()
        _place(scene, None)
        scene.cluster.wait(lambda: "tolerations" not in _placement(scene), 30, "HCO to act")
        assert _placement(scene) == {"affinity": _required(LINUX, OUR_REQUIREMENT)}
        assert _condition(scene, "ReconcileComplete") == "True"
        assert "exclusion_outdated" in scene.findings()
        scene.wait_until_settled()
        watcher.stop()
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])


@pytest.mark.thorough
def test_a_direct_edit_that_hco_reverts_does_not_take_the_exclusion_away(scene: Scene) -> None:
    scene.patch(f"kubevirt/{KUBEVIRT}", {"op": "remove", "path": "/spec/workloads"})
    scene.cluster.wait(lambda: OWNER in str(_placement(scene)), 30, "HCO to revert that")
    scene.wait_until_settled()
    assert scene.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}
    scene.settled([GPU])


@pytest.mark.thorough
def test_somebody_who_drops_our_operation_loses_it_until_the_next_run(scene: Scene) -> None:
    _annotate(scene, json.dumps(SOMEBODYS))
    scene.cluster.wait(lambda: OWNER not in str(_placement(scene)), 30, "HCO to act")
    scene.wait_until_settled()
    assert "exclusion_missing" in scene.findings()
    scene.site([GPU]).succeeded()
    assert _operations(scene)[:2] == SOMEBODYS
    scene.cluster.wait(lambda: scene.info()["findings"] == [], 60, "nothing to be wrong")


def test_feature_gates_go_through_hco(scene: Scene) -> None:
    """The same run drops the terms of the placement that its user took away."""
    gates = {"virtpools_feature_gates_present": ["Sidecar"]}
    marker = scene.cluster.audit_marker()
    scene.site([GPU], **gates).succeeded()
    assert scene.writes(marker, "kubevirts.kubevirt.io") == []
    assert len(scene.writes(marker, "hyperconvergeds.hco.kubevirt.io")) == 2
    assert _placement(scene) == {"affinity": _required(OUR_REQUIREMENT)}

    def on() -> bool:
        return "Sidecar" in scene.kubevirt()["spec"]["configuration"]["developerConfiguration"]["featureGates"]

    scene.cluster.wait(on, 30, "the gate")
    assert _operations(scene)[:2] == SOMEBODYS
    scene.wait_until_settled()
    scene.settled([GPU], **gates)


def test_a_gate_that_hco_turns_off_is_refused(scene: Scene) -> None:
    said = scene.refused([GPU], virtpools_feature_gates_present=["ImageVolume"])
    assert "disables the feature gate ImageVolume, which an append cannot undo" in said
    assert "use HyperConverged's own spec.featureGates" in said


def test_after_remove_hco_and_kubevirt_are_as_they_were(scene: Scene, before: dict[str, Object]) -> None:
    """All but the feature gate, which no pool needs and which its user takes back."""
    quick = {"virtpools_node_timeout": 30, "virtpools_settle_timeout": 60, "virtpools_remove": "all"}
    playbooks.run("remove", scene.writer.kubeconfig, **quick).succeeded()
    assert _operations(scene)[:2] == SOMEBODYS
    assert OWNER not in str(_operations(scene))
    _annotate(scene, json.dumps(SOMEBODYS))
    scene.cluster.wait(lambda: "Sidecar" not in str(scene.kubevirt()["spec"]), 30, "HCO to take the gate back")
    scene.wait_until_settled()
    assert differences(before, dump(scene.cluster)) == {}
    assert ours(scene.cluster) == []


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("[{", "is not valid JSON"),
        (json.dumps([{"op": "remove", "path": "/spec/nothing"}]), "does not reconcile"),
    ],
    ids=["not JSON", "not applicable"],
)
def test_an_annotation_that_stops_hco_is_refused(scene: Scene, annotation: str, message: str) -> None:
    """HCO's webhook refuses such an annotation, but it may be older, or the rendered object may have changed since."""
    scene.cluster.kubectl("delete", "validatingwebhookconfiguration", "validate-hco.kubevirt.io", "--ignore-not-found")
    former = scene.get(*HCO.split("/"))["metadata"]["annotations"].get(ANNOTATION)
    _annotate(scene, annotation)
    try:
        scene.cluster.wait(lambda: _condition(scene, "ReconcileComplete") == "False", 30, "HCO to stop")
        said = scene.refused([{**GPU, "imagePullSecrets": [{"name": "registry"}]}])
        assert "HyperConverged kubevirt/kubevirt-hyperconverged" in said
        assert message in said
    finally:
        _annotate(scene, former)
    scene.cluster.wait(lambda: _condition(scene, "ReconcileComplete") == "True", 60, "HCO to work again")


def _condition(scene: Scene, kind: str) -> str:
    conditions = scene.get(*HCO.split("/"))["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == kind)
