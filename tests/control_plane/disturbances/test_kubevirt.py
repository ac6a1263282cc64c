# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A KubeVirt that has been in use: patched, placed, degraded. One cluster; the tests run in order."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster import ClusterError, Fleet, Nodes
from playbooks import run as play
from scenario import NAMESPACE, OUR_REQUIREMENT, Scenario, pool

GPU = pool("gpu", "a100")
STOCK = {key: value for key, value in pool("stock", "l40s").items() if key != "virtHandlerImage"} | {
    "virtLauncherImage": "registry.example/virt-launcher:v1.9.0-stock",
    "selector": {"vmLabels": {"matchLabels": {"workload": "stock"}}},
}
BOTH = [GPU, STOCK]
OWNERS = {"a100-00": "gpu", "a100-01": "gpu", "l40s-00": "stock"}


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=2, labels={"accelerator": "a100", "zone": "a"}),
        Nodes(prefix="l40s-", count=1, labels={"accelerator": "l40s", "zone": "a"}),
        Nodes(prefix="node-", count=3, labels={"zone": "b"}),
    )
    return Scenario(start_cluster(fleet))


def _patch(kind: str, body: Any) -> dict[str, str]:
    return {"resourceType": "DaemonSet", "resourceName": "virt-handler", "type": kind, "patch": json.dumps(body)}


def _template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def _required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _customize(scenario: Scenario, *patches: dict[str, str]) -> None:
    scenario.patch("kubevirt/kubevirt", merge={"spec": {"customizeComponents": {"patches": list(patches)}}})


WEBHOOKS = ("validatingwebhookconfiguration", "virt-operator-validator")
ZONES = [{"key": "zone", "operator": "Exists"}]
HARMLESS = [
    _patch("strategic", {"spec": {"template": {"metadata": {"annotations": {"team": "storage"}}}}}),
    _patch("json", [{"op": "add", "path": "/spec/template/spec/priorityClassName", "value": "system-node-critical"}]),
]


# Refused before anything is written ---------------------------------------------------------------------------------


def test_missing_permissions_are_listed_together(scenario: Scenario) -> None:
    nobody = scenario.cluster.kubeconfig_for("nobody")
    said = play("site", nobody, BOTH).refused()
    assert "system:serviceaccount:virtpools-system:nobody lacks" in said
    # KubeVirt lets everyone list KubeVirt objects.
    for right in ("list nodes", "list daemonsets", "list virtualmachineinstances"):
        assert right in said
    assert "list kubevirts" not in said
    assert "ClusterRole virtpools-reader" in said
    assert len(said.splitlines()) == 1


@pytest.mark.thorough  # test_idempotence has a reader that plans and may not run
def test_a_reader_plans_and_is_told_what_a_run_needs(scenario: Scenario) -> None:
    reader = scenario.cluster.kubeconfig_for("only-reader", ["virtpools-reader"])
    play("plan", reader, BOTH).succeeded()
    marker = scenario.cluster.audit_marker()
    said = play("site", reader, BOTH).refused()
    assert "patch nodes" in said
    assert "update kubevirts" in said
    assert scenario.cluster.writes(marker, "system:serviceaccount:virtpools-system:only-reader") == []


@pytest.mark.thorough  # unit tests judge patches; virt-operator applies some below
def test_a_foreign_patch_of_the_primarys_affinity_is_refused(scenario: Scenario) -> None:
    _customize(scenario, HARMLESS[0], _patch("strategic", _template(affinity=_required(ZONES))))
    scenario.wait_until_settled()
    said = scenario.refused(BOTH)
    assert "KubeVirt kubevirt/kubevirt: spec.customizeComponents.patches[1] changes the required node affinity" in said
    assert "move its terms to spec.workloads.nodePlacement of the KubeVirt object and remove the patch" in said


def test_a_degraded_kubevirt_is_refused(scenario: Scenario) -> None:
    _customize(scenario, _patch("json", [{"op": "remove", "path": "/spec/template/spec/nothing"}]))
    scenario.cluster.wait(lambda: "kubevirt_degraded" in scenario.findings(), 30, "KubeVirt to be degraded")
    said = scenario.refused(BOTH)
    assert "KubeVirt kubevirt/kubevirt is degraded: " in said
    assert "repair that first" in said
    scenario.patch("kubevirt/kubevirt", {"op": "remove", "path": "/spec/customizeComponents/patches"})
    scenario.wait_until_settled()


def test_a_dead_node_would_block_the_exclusion_for_ever(scenario: Scenario) -> None:
    scenario.cluster.set_kubelet("node-02", up=False)
    try:
        said = scenario.refused(BOTH)
        assert "KubeVirt's rollout of it would wait forever for 1 node that is not Ready (node-02)" in said
        # A change of the same kind by hand shows that it is true. KubeVirt even calls itself available.
        generation = scenario.get("daemonset", "virt-handler")["metadata"]["generation"]
        _customize(scenario, HARMLESS[0])

        def begun() -> bool:
            observed = scenario.get("daemonset", "virt-handler")["status"]["observedGeneration"]
            return bool(observed > generation)

        scenario.cluster.wait(begun, 60, "the rollout to begin", interval=0.5)
        time.sleep(12)
        assert scenario.get("daemonset", "virt-handler")["status"].get("updatedNumberScheduled", 0) == 0
    finally:
        scenario.cluster.set_kubelet("node-02", up=True)
    scenario.wait_until_settled()


@contextlib.contextmanager
def _operator_paused(scenario: Scenario) -> Iterator[None]:
    """Let virt-operator do nothing for a moment. Without its webhook, KubeVirt objects can be changed meanwhile."""
    pid = next(
        int(process.parent.name)
        for process in Path("/proc").glob("[0-9]*/cmdline")
        if process.read_bytes().startswith(f"{scenario.cluster.dir}/kubevirt/v1.9.0/virt-operator".encode())
    )
    os.kill(pid, signal.SIGSTOP)
    try:
        scenario.cluster.kubectl("delete", *WEBHOOKS)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.thorough
def test_a_nonsensical_list_of_kubevirts_own_pools_is_left_alone(scenario: Scenario) -> None:
    """Only builds of KubeVirt that the tests do not have know such a field; virt-operator v1.9.0 would refuse it."""
    items = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/virtHandlerPools"
    field = {"op": "add", "path": path, "value": {"type": "array", "items": items}}

    def stored() -> bool:
        scenario.patch("kubevirt/kubevirt", merge={"spec": {"virtHandlerPools": [{"name": "theirs"}]}})
        return "virtHandlerPools" in scenario.kubevirt()["spec"]

    with _operator_paused(scenario):
        scenario.patch("crd/kubevirts.kubevirt.io", field)
        scenario.cluster.wait(stored, 30, "the new schema")
        said = scenario.refused(BOTH, virtpools_mode="collection")
        left = scenario.kubevirt()["spec"]["virtHandlerPools"]
        scenario.patch("kubevirt/kubevirt", {"op": "remove", "path": "/spec/virtHandlerPools"})
    assert "In spec.virtHandlerPools of the KubeVirt object: Pool theirs: nodeSelector is missing" in said
    assert left == [{"name": "theirs"}]
    scenario.cluster.wait(lambda: scenario.cluster.kubectl("get", *WEBHOOKS, "--ignore-not-found"), 60, "virt-operator")
    scenario.wait_until_settled()


# Accepted -----------------------------------------------------------------------------------------------------------


def test_harmless_foreign_patches_stay_as_they_are(scenario: Scenario) -> None:
    _customize(scenario, *HARMLESS)
    scenario.wait_until_settled()
    scenario.site(BOTH).succeeded()
    patches = scenario.kubevirt()["spec"]["customizeComponents"]["patches"]
    assert patches[:2] == HARMLESS
    assert len(patches) == 3
    assert scenario.owners() == OWNERS
    templates = [
        scenario.get("daemonset", name)["spec"]["template"] for name in ("virt-handler-gpu", "virt-handler-stock")
    ]
    for template in templates:
        assert template["metadata"]["annotations"]["team"] == "storage"
        assert template["spec"]["priorityClassName"] == "system-node-critical"
        assert "affinity" not in template["spec"]
    assert scenario.info()["findings"] == []
    scenario.settled(BOTH)


@pytest.mark.thorough  # test_interruption has a Lease of a living run, unit tests name its holder
def test_another_runs_lease_is_waited_for_and_named(scenario: Scenario) -> None:
    changed = [{**GPU, "imagePullSecrets": [{"name": "registry"}]}, STOCK]
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    spec = {"holderIdentity": "run-of-somebody", "leaseDurationSeconds": 30, "acquireTime": now, "renewTime": now}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "virtpools", "namespace": NAMESPACE},
    }
    scenario.apply({**lease, "spec": spec})
    said = scenario.refused(changed, virtpools_lease_timeout=3)
    assert "run-of-somebody" in said
    scenario.cluster.kubectl("delete", "lease", "-n", NAMESPACE, "virtpools")
    scenario.settled(BOTH)


@pytest.mark.thorough
def test_placement_terms_that_come_later_take_the_exclusion_in(scenario: Scenario) -> None:
    """The terms are ORed with the patch and would defeat it: each gets the requirement, and the patch is removed."""
    other = [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]
    placement = {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": _required(ZONES, other),
    }
    scenario.patch("kubevirt/kubevirt", merge={"spec": {"workloads": {"nodePlacement": placement}}})
    scenario.wait_until_settled()
    assert "exclusion_missing" in scenario.findings()
    scenario.site(BOTH).succeeded()
    spec = scenario.kubevirt()["spec"]
    expected = _required([*ZONES, OUR_REQUIREMENT], [*other, OUR_REQUIREMENT])
    assert spec["workloads"]["nodePlacement"] == {**placement, "affinity": expected}
    assert spec["customizeComponents"]["patches"] == HARMLESS
    template = scenario.get("daemonset", "virt-handler-gpu")["spec"]["template"]["spec"]
    assert template["nodeSelector"]["kubernetes.io/os"] == "linux"
    assert {"key": "dedicated", "operator": "Exists"} in template["tolerations"]
    assert template["affinity"] == _required(ZONES, other)
    scenario.cluster.wait(lambda: scenario.info()["findings"] == [], 30, "nothing to be wrong")
    assert scenario.owners() == OWNERS
    scenario.settled(BOTH)


def test_of_two_kubevirts_one_must_be_chosen(scenario: Scenario) -> None:
    scenario.cluster.kubectl("create", "namespace", "other")
    second = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "second", "namespace": "other"}}

    def created() -> bool:
        """Create it at a moment when the webhook that refuses a second one is not there."""
        scenario.cluster.kubectl("delete", *WEBHOOKS, "--ignore-not-found")
        with contextlib.suppress(ClusterError):
            scenario.apply({**second, "spec": {}})
        return bool(scenario.cluster.kubectl("get", "kubevirt", "-n", "other", "second", "--ignore-not-found"))

    scenario.cluster.wait(created, 30, "a second KubeVirt")
    said = scenario.refused(BOTH)
    assert "kubevirt/kubevirt" in said
    assert "other/second" in said
    assert "kubevirt_namespace" in said
    # One was chosen, but KubeVirt itself refuses to work beside another. It notices when something wakes it.
    scenario.patch("kubevirt/kubevirt", merge={"metadata": {"annotations": {"touched": "yes"}}})
    synchronized = "jsonpath={.status.conditions[?(@.type=='Synchronized')].status}"
    get = ("get", "kubevirt", "-n", NAMESPACE, "kubevirt", "-o", synchronized)
    scenario.cluster.wait(lambda: scenario.cluster.kubectl(*get) == "False", 60, "KubeVirt to see the other one")
    said = scenario.refused(BOTH, virtpools_kubevirt_namespace=NAMESPACE)
    assert "KubeVirt kubevirt/kubevirt is ignored by its operator: There is an active KubeVirt deployment." in said
    assert "Delete the other KubeVirt object of the cluster" in said
