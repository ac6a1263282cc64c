# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""KubeVirt under HCO, which reverts direct edits: everything goes through an annotation that others use, too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local_cluster import Fleet, Nodes
from scene import OWNER, Scene, pool

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
    return Scene(start_cluster(fleet, hco=True), KUBEVIRT)


def _annotate(scene: Scene, value: str | None) -> None:
    scene.patch(HCO, merge={"metadata": {"annotations": {ANNOTATION: value}}})


def _operations(scene: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(scene.get(*HCO.split("/"))["metadata"]["annotations"][ANNOTATION])
    return found


def _patches(scene: Scene) -> list[dict[str, str]]:
    found: list[dict[str, str]] = scene.kubevirt()["spec"]["customizeComponents"].get("patches", [])
    return found


def test_the_exclusion_goes_beside_what_others_keep_in_the_annotation(scene: Scene) -> None:
    _annotate(scene, json.dumps(SOMEBODYS))
    scene.cluster.wait(lambda: TEAM in _patches(scene), 30, "somebody's patch")
    scene.wait_until_settled()
    marker = scene.cluster.audit_marker()
    run = scene.site([GPU]).succeeded()
    assert (
        run.of("virtpools.kubevirt.primary_exclusion")[0].result["object"]
        == f"HyperConverged {HCO.replace('hyperconverged/', 'kubevirt/')}"
    )
    assert scene.writes(marker, "kubevirts.kubevirt.io") == []
    assert _operations(scene)[:2] == SOMEBODYS
    assert len(_operations(scene)) == 3
    assert TEAM in _patches(scene)
    assert any(OWNER in patch["patch"] for patch in _patches(scene))
    assert scene.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}
    assert scene.kubevirt()["spec"]["configuration"]["migrations"]["parallelMigrationsPerCluster"] == 3
    assert scene.info()["findings"] == []
    scene.settled([GPU])


@pytest.mark.thorough
def test_a_direct_edit_that_hco_reverts_does_not_take_the_exclusion_away(scene: Scene) -> None:
    scene.patch(f"kubevirt/{KUBEVIRT}", {"op": "remove", "path": "/spec/customizeComponents/patches"})
    scene.cluster.wait(lambda: any(OWNER in patch["patch"] for patch in _patches(scene)), 30, "HCO to revert that")
    scene.wait_until_settled()
    assert scene.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}
    scene.settled([GPU])


@pytest.mark.thorough
def test_somebody_who_drops_our_operation_loses_it_until_the_next_run(scene: Scene) -> None:
    _annotate(scene, json.dumps(SOMEBODYS))
    scene.cluster.wait(lambda: not any(OWNER in patch["patch"] for patch in _patches(scene)), 30, "HCO to act")
    scene.wait_until_settled()
    assert "exclusion_missing" in scene.findings()
    scene.site([GPU]).succeeded()
    assert _operations(scene)[:2] == SOMEBODYS
    scene.cluster.wait(lambda: scene.info()["findings"] == [], 60, "nothing to be wrong")


def test_feature_gates_go_through_hco(scene: Scene) -> None:
    gates = {"virtpools_feature_gates_present": ["Sidecar"]}
    marker = scene.cluster.audit_marker()
    scene.site([GPU], **gates).succeeded()
    assert scene.writes(marker, "kubevirts.kubevirt.io") == []
    assert len(scene.writes(marker, "hyperconvergeds.hco.kubevirt.io")) == 1

    def on() -> bool:
        return "Sidecar" in scene.kubevirt()["spec"]["configuration"]["developerConfiguration"]["featureGates"]

    scene.cluster.wait(on, 30, "the gate")
    assert _operations(scene)[:2] == SOMEBODYS
    scene.wait_until_settled()
    scene.settled([GPU], **gates)


def test_a_gate_that_hco_turns_off_is_refused(scene: Scene) -> None:
    said = scene.refused([GPU], virtpools_feature_gates_present=["ImageVolume"])
    assert "disables the feature gate ImageVolume, which cannot be taken back by appending" in said
    assert "use its own spec.featureGates" in said


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("[{", "is not valid JSON"),
        (json.dumps([{"op": "remove", "path": "/spec/nothing"}]), "does not reconcile"),
    ],
    ids=["not JSON", "not applicable"],
)
def test_an_annotation_that_stops_hco_is_refused(scene: Scene, annotation: str, message: str) -> None:
    """HCO's webhook lets none in, but an older one may be there, or the rendered object may have changed since."""
    scene.cluster.kubectl("delete", "validatingwebhookconfiguration", "validate-hco.kubevirt.io", "--ignore-not-found")
    before = scene.get(*HCO.split("/"))["metadata"]["annotations"].get(ANNOTATION)
    _annotate(scene, annotation)
    try:
        scene.cluster.wait(lambda: _condition(scene, "ReconcileComplete") == "False", 30, "HCO to stop")
        said = scene.refused([{**GPU, "imagePullSecrets": [{"name": "registry"}]}])
        assert "HyperConverged kubevirt/kubevirt-hyperconverged" in said
        assert message in said
    finally:
        _annotate(scene, before)
    scene.cluster.wait(lambda: _condition(scene, "ReconcileComplete") == "True", 60, "HCO to work again")


def _condition(scene: Scene, kind: str) -> str:
    conditions = scene.get(*HCO.split("/"))["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == kind)
