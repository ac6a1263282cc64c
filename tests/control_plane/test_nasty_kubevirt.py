# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A KubeVirt that is not as fresh as in a demo: patched, placed, degraded, upgraded. One cluster, in this order."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import run as play
from scene import NAMESPACE, OUR_REQUIREMENT, Scene, pool

GPU = pool("gpu", "a100")
STOCK = {key: value for key, value in pool("stock", "l40s").items() if key != "virtHandlerImage"} | {
    "virtLauncherImage": "registry.example/virt-launcher:v1.9.0-stock",
    "selector": {"vmLabels": {"matchLabels": {"workload": "stock"}}},
}
BOTH = [GPU, STOCK]
OWNERS = {"a100-00": "gpu", "a100-01": "gpu", "l40s-00": "stock"}


@pytest.fixture(scope="module")
def scene(start_cluster: Any) -> Scene:
    fleet = Fleet.of(
        Nodes(prefix="a100-", count=2, labels={"accelerator": "a100", "zone": "a"}),
        Nodes(prefix="l40s-", count=1, labels={"accelerator": "l40s", "zone": "a"}),
        Nodes(prefix="node-", count=3, labels={"zone": "b"}),
    )
    return Scene(start_cluster(fleet))


def _patch(kind: str, body: Any) -> dict[str, str]:
    return {"resourceType": "DaemonSet", "resourceName": "virt-handler", "type": kind, "patch": json.dumps(body)}


def _template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def _required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _customize(scene: Scene, *patches: dict[str, str]) -> None:
    scene.patch("kubevirt/kubevirt", merge={"spec": {"customizeComponents": {"patches": list(patches)}}})


ZONES = [{"key": "zone", "operator": "Exists"}]
HARMLESS = [
    _patch("strategic", {"spec": {"template": {"metadata": {"annotations": {"team": "storage"}}}}}),
    _patch("json", [{"op": "add", "path": "/spec/template/spec/priorityClassName", "value": "system-node-critical"}]),
]


# Refused before anything is written ---------------------------------------------------------------------------------


def test_missing_permissions_are_listed_together(scene: Scene) -> None:
    nobody = scene.cluster.kubeconfig_for("nobody")
    said = play("site", nobody, BOTH).refused()
    assert "system:serviceaccount:virtpools-system:nobody lacks" in said
    for right in ("list nodes", "list daemonsets", "list kubevirts"):
        assert right in said
    assert "ClusterRole virtpools-reader" in said
    assert len(said.splitlines()) == 1

    reader = scene.cluster.kubeconfig_for("only-reader", ["virtpools-reader"])
    play("plan", reader, BOTH).succeeded()
    marker = scene.cluster.audit_marker()
    said = play("site", reader, BOTH).refused()
    assert "patch nodes" in said
    assert "update kubevirts" in said
    assert scene.cluster.writes(marker, "system:serviceaccount:virtpools-system:only-reader") == []


def test_a_foreign_patch_of_the_primarys_affinity_is_refused(scene: Scene) -> None:
    _customize(scene, HARMLESS[0], _patch("strategic", _template(affinity=_required(ZONES))))
    scene.wait_until_settled()
    said = scene.refused(BOTH)
    assert "KubeVirt kubevirt/kubevirt: spec.customizeComponents.patches[1] changes the required node affinity" in said
    assert "move its terms to spec.workloads.nodePlacement and remove the patch" in said


def test_a_degraded_kubevirt_is_refused(scene: Scene) -> None:
    _customize(scene, _patch("json", [{"op": "remove", "path": "/spec/template/spec/nothing"}]))
    scene.cluster.wait(lambda: "kubevirt_degraded" in scene.findings(), 30, "KubeVirt to be degraded")
    said = scene.refused(BOTH)
    assert "KubeVirt kubevirt/kubevirt is degraded: " in said
    assert "repair that first" in said
    scene.patch("kubevirt/kubevirt", {"op": "remove", "path": "/spec/customizeComponents/patches"})
    scene.wait_until_settled()


def test_a_dead_node_would_block_the_exclusion_for_ever(scene: Scene) -> None:
    scene.cluster.set_kubelet("node-02", up=False)
    try:
        said = scene.refused(BOTH)
        assert "KubeVirt's rollout of it would wait for ever for 1 node(s) that are not Ready (node-02)" in said
        # It is so: the same kind of change by hand. KubeVirt even calls itself available.
        _customize(scene, HARMLESS[0])
        time.sleep(12)
        assert scene.get("daemonset", "virt-handler")["status"].get("updatedNumberScheduled", 0) == 0
    finally:
        scene.cluster.set_kubelet("node-02", up=True)
    scene.wait_until_settled()


def test_fields_for_pools_of_kubevirt_itself_are_left_to_it(scene: Scene) -> None:
    items = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/virtHandlerPools"
    field = {"op": "add", "path": path, "value": {"type": "array", "items": items}}
    scene.patch("crd/kubevirts.kubevirt.io", field)

    def stored() -> bool:
        scene.patch("kubevirt/kubevirt", merge={"spec": {"virtHandlerPools": [{"name": "theirs"}]}})
        return "virtHandlerPools" in scene.kubevirt()["spec"]

    scene.cluster.wait(stored, 30, "the new schema")
    scene.wait_until_settled()
    said = scene.refused(BOTH)
    assert "KubeVirt kubevirt/kubevirt has pools of its own in spec.virtHandlerPools" in said
    assert "empty that field" in said
    scene.patch("kubevirt/kubevirt", {"op": "remove", "path": "/spec/virtHandlerPools"})
    scene.wait_until_settled()


# Lived with ---------------------------------------------------------------------------------------------------------


def test_harmless_foreign_patches_stay_as_they_are(scene: Scene) -> None:
    _customize(scene, *HARMLESS)
    scene.wait_until_settled()
    scene.site(BOTH).succeeded()
    patches = scene.kubevirt()["spec"]["customizeComponents"]["patches"]
    assert patches[:2] == HARMLESS
    assert len(patches) == 3
    assert scene.owners() == OWNERS
    templates = [
        scene.get("daemonset", name)["spec"]["template"] for name in ("virt-handler-gpu", "virt-handler-stock")
    ]
    for template in templates:
        assert template["metadata"]["annotations"]["team"] == "storage"
        assert template["spec"]["priorityClassName"] == "system-node-critical"
        assert "affinity" not in template["spec"]
    assert scene.info()["findings"] == []
    scene.settled(BOTH)


def test_another_runs_lease_is_waited_for_and_named(scene: Scene) -> None:
    changed = [{**GPU, "imagePullSecrets": [{"name": "registry"}]}, STOCK]
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    spec = {"holderIdentity": "run-of-somebody", "leaseDurationSeconds": 30, "acquireTime": now, "renewTime": now}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "virtpools", "namespace": NAMESPACE},
    }
    scene.apply({**lease, "spec": spec})
    said = scene.refused(changed, virtpools_lease_timeout=3)
    assert "run-of-somebody" in said
    scene.cluster.kubectl("delete", "lease", "-n", NAMESPACE, "virtpools")
    scene.settled(BOTH)


@pytest.mark.thorough
def test_placement_terms_that_come_later_take_the_exclusion_in(scene: Scene) -> None:
    """ORed to the patch they would defeat it: the requirement goes into each of them, and the patch away."""
    other = [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]
    placement = {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": _required(ZONES, other),
    }
    scene.patch("kubevirt/kubevirt", merge={"spec": {"workloads": {"nodePlacement": placement}}})
    scene.wait_until_settled()
    assert "exclusion_missing" in scene.findings()
    scene.site(BOTH).succeeded()
    spec = scene.kubevirt()["spec"]
    expected = _required([*ZONES, OUR_REQUIREMENT], [*other, OUR_REQUIREMENT])
    assert spec["workloads"]["nodePlacement"] == {**placement, "affinity": expected}
    assert spec["customizeComponents"]["patches"] == HARMLESS
    template = scene.get("daemonset", "virt-handler-gpu")["spec"]["template"]["spec"]
    assert template["nodeSelector"]["kubernetes.io/os"] == "linux"
    assert {"key": "dedicated", "operator": "Exists"} in template["tolerations"]
    assert template["affinity"] == _required(ZONES, other)
    scene.cluster.wait(lambda: scene.info()["findings"] == [], 30, "nothing to be wrong")
    assert scene.owners() == OWNERS
    scene.settled(BOTH)


@pytest.mark.thorough
def test_an_upgrade_that_begins_half_way_stops_the_run_and_the_next_one_follows_it(scene: Scene) -> None:
    changed = [{**GPU, "imagePullSecrets": [{"name": "registry"}]}, STOCK]
    running = scene.start(changed, virtpools_max_unavailable=1)
    secret = "jsonpath={.spec.template.spec.imagePullSecrets}"
    get = ("get", "daemonset", "-n", NAMESPACE, "virt-handler-gpu", "-o", secret)
    scene.cluster.wait(lambda: "registry" in scene.cluster.kubectl(*get), 60, "the run to begin", interval=0.05)
    scene.cluster.kubectl(
        "set",
        "image",
        "-n",
        NAMESPACE,
        "deploy/virt-operator",
        "virt-operator=stock.example/kubevirt/virt-operator:v1.9.1",
    )
    said = running.wait().refused()
    # Where KubeVirt is quicker than the run, the images are what stops it.
    upgrading = "is being upgraded from v1.9.0 to v1.9.1; wait until that is done, then run again."
    assert upgrading in said or "is of another version than KubeVirt v1.9.1" in said
    scene.cluster.wait(lambda: scene.kubevirt()["status"]["observedKubeVirtVersion"] == "v1.9.1", 90, "the upgrade")
    scene.wait_until_settled()

    assert (
        "virtHandlerImage registry.example/virt-handler:v1.9.0-gpu is of another version than KubeVirt v1.9.1"
        in scene.refused(BOTH)
    )
    run = scene.site(BOTH, virtpools_allow_skew=True, virtpools_max_unavailable=1).succeeded()
    assert "Node l40s-00: replace the handler of stock" in run.changes
    assert all(len({move["to"] for move in batch}) == len(batch) for batch in run.plan["batches"]), "one by one"
    assert scene.handlers()["l40s-00"] == ["stock.example/kubevirt/virt-handler:v1.9.1"]
    assert scene.handlers()["a100-00"] == [GPU["virtHandlerImage"]]
    scene.settled(BOTH, virtpools_allow_skew=True)
    newer = [
        {**GPU, "virtHandlerImage": "registry.example/virt-handler:v1.9.1-gpu"},
        {**STOCK, "virtLauncherImage": "registry.example/virt-launcher:v1.9.1-stock"},
    ]
    scene.site(newer).succeeded()
    assert scene.handlers()["a100-01"] == ["registry.example/virt-handler:v1.9.1-gpu"]
    assert scene.info()["findings"] == []


def test_of_two_kubevirts_one_must_be_chosen(scene: Scene) -> None:
    scene.cluster.kubectl("create", "namespace", "other")
    second = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "second", "namespace": "other"}}
    scene.apply({**second, "spec": {}})
    said = scene.refused(BOTH)
    assert "kubevirt/kubevirt" in said
    assert "other/second" in said
    assert "kubevirt_namespace" in said
    # Chosen, but KubeVirt itself refuses to work beside another.
    said = scene.refused(BOTH, virtpools_kubevirt_namespace=NAMESPACE, virtpools_allow_skew=True)
    assert "KubeVirt kubevirt/kubevirt is degraded: There is an existing KubeVirt deployment" in said


def test_a_cluster_without_kubevirt(plain_cluster: LocalCluster) -> None:
    said = Scene(plain_cluster).refused(BOTH)
    assert "has no KubeVirt: it does not serve kubevirt.io/v1; install KubeVirt first." in said
