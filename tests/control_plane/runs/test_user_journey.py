# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The whole way of a user, from a stock cluster to pools and back, on each version of KubeVirt and Kubernetes.

make test goes it on the default versions, with KubeVirt in another namespace than kubevirt: nobody tells the playbooks
where it is. make test-matrix goes it on all versions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

import playbooks
from full_dump import differences, dump, handlers, ours
from local_cluster import Fleet, LocalCluster, Nodes, programs
from scenario import Object, Scenario, migration, pool
from watcher import Watcher

ALL = bool(os.environ.get("VIRTPOOLS_TEST_MATRIX"))
CASES = [(programs.KUBEVIRT, programs.KUBERNETES, "virt-system")]
if ALL:
    CASES = [(k, v, "kubevirt") for k in programs.KUBEVIRT_VERSIONS for v in programs.KUBERNETES_VERSIONS]
# Kubernetes 1.35 has mutating admission policies in v1beta1, behind a feature gate and an API that is off by default.
BETA = "--feature-gates=MutatingAdmissionPolicy=true --runtime-config=admissionregistration.k8s.io/v1beta1=true"
BETA_ONLY = ("v1.35.",)

DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"
VMS = "team-a"
FLEET = Fleet.from_groups(
    Nodes(prefix="gpu-", count=3, labels={"accelerator": "gpu"}, capacity={DEVICE: "4"}),
    Nodes(prefix="edge-", count=2, labels={"accelerator": "edge"}),
    Nodes(prefix="plain-", count=2),
)


def pools(version: str, tag: str = "") -> list[Object]:
    """Return pools with images for a version of KubeVirt."""
    image = "registry.example/{}:" + version + "-{}" + tag
    gpu, edge = (
        pool(
            name,
            name,
            virtHandlerImage=image.format("virt-handler", name),
            virtLauncherImage=image.format("virt-launcher", name),
            selector=selector,
        )
        for name, selector in (
            ("gpu", {"deviceNames": [DEVICE]}),
            ("edge", {"vmLabels": {"matchLabels": {"site": "edge"}}, "matchNodeSelector": True}),
        )
    )
    return [gpu, edge]


def vm(name: str, *, labels: Object | None = None, instancetype: str = "", **spec: Any) -> Object:
    """Return a running VM as its owner writes it."""
    devices = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}], **spec.pop("devices", {})}
    domain = {"devices": devices, **({} if instancetype else {"memory": {"guest": "64Mi"}})}
    volumes = [{"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:42"}}]
    matcher = {"instancetype": {"kind": "VirtualMachineInstancetype", "name": instancetype}} if instancetype else {}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": VMS},
        "spec": {
            "runStrategy": "Always",
            **matcher,
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": {"domain": domain, "volumes": volumes, **spec},
            },
        },
    }


GPUS = [{"name": "gpu0", "deviceName": DEVICE}]
INSTANCETYPE = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineInstancetype",
    "metadata": {"name": "training", "namespace": VMS},
    "spec": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}, "gpus": GPUS},
}
MACHINES = [
    vm("by-device", devices={"gpus": GPUS}),
    vm("by-instancetype", instancetype="training"),
    vm("by-label", labels={"site": "edge"}),
    vm("by-node", nodeSelector={"accelerator": "edge"}),
    vm("of-none"),
]
# The pool of each VM; none for KubeVirt's own launcher image.
POOL_OF = {"by-device": "gpu", "by-instancetype": "gpu", "by-label": "edge", "by-node": "edge", "of-none": ""}


class JourneyScenario(Scenario):
    """A cluster of one version, and what its user looks at."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self.version = cluster.options.kubevirt

    def play(self, playbook: str, *arguments: str, **variables: Any) -> playbooks.Run:
        quick = {"virtpools_node_timeout": 60, "virtpools_pull_timeout": 60, "virtpools_gate_timeout": 60}
        quick["virtpools_guard"] = None
        given = variables.pop("pools", None)
        return playbooks.run(playbook, self.writer.kubeconfig, given, *arguments, **{**quick, **variables}).succeeded()

    def start_vms(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": VMS}}
        for obj in (namespace, INSTANCETYPE, *MACHINES):
            self.apply(obj)
        self.cluster.wait(lambda: set(self.launchers()) == set(POOL_OF), 90, "all VMs to run", interval=0.5)

    def launchers(self) -> dict[str, tuple[str, str]]:
        """Return the node and the launcher image of each VM that runs."""
        running = {
            each["metadata"]["name"]: each["status"].get("nodeName")
            for each in self.get("vmis", "-n", VMS)["items"]
            if each.get("status", {}).get("phase") == "Running"
        }
        # The launchers that migrations left have ended.
        alive = "--field-selector=status.phase=Running"
        pods = self.get("pods", "-n", VMS, "-l", "kubevirt.io=virt-launcher", alive)["items"]
        return {
            name: (pod["spec"]["nodeName"], container["image"])
            for pod in pods
            for name in [pod["metadata"]["labels"]["vm.kubevirt.io/name"]]
            for container in pod["spec"]["containers"]
            if container["name"] == "compute" and pod["spec"].get("nodeName") == running.get(name, "nowhere")
        }

    def image(self, group: str, tag: str = "") -> str:
        """Return the launcher image of a pool, or KubeVirt's own."""
        if group:
            return f"registry.example/virt-launcher:{self.version}-{group}{tag}"
        return f"stock.example/kubevirt/virt-launcher:{self.version}"

    def explained(self) -> dict[str, tuple[str, str]]:
        """Return the pool and the launcher image that each VM gets at its next start, as explain says."""
        found = {}
        for name in POOL_OF:
            result = self.module("explanation_info", vm=f"{VMS}/{name}")
            assert not result.get("failed"), result
            (case,) = (each for each in result["cases"] if each["when"] == "next start")
            found[name] = (case["pool"], case["image"])
        return found

    def all_belong(self, tag: str = "") -> None:
        """Check node and image of every VM, without anything of the collection."""
        launchers = self.launchers()
        assert launchers
        for name, (node, image) in launchers.items():
            group = POOL_OF[name]
            assert image == self.image(group, tag), name
            assert node.startswith(f"{group or 'plain'}-"), (name, node)

    def migrate(self, name: str) -> None:
        before = self.launchers()[name]
        self.apply(migration(name, VMS))

        def succeeded() -> bool:
            status = self.get("vmim", name, "-n", VMS).get("status", {})
            assert status.get("phase") != "Failed", status
            return bool(status.get("phase") == "Succeeded")

        self.cluster.wait(succeeded, 90, f"{name} to move", interval=0.5)
        self.cluster.wait(lambda: self.launchers().get(name, before) != before, 30, f"{name} on another node")

    def stop_vms(self) -> None:
        self.cluster.kubectl("delete", "namespace", VMS, "--wait=true", "--timeout=300s")


@pytest.mark.parametrize(("kubevirt", "kubernetes", "namespace"), CASES, ids=lambda part: part)
@pytest.mark.timeout(1800)
def test_from_stock_to_pools_and_back(
    start_cluster: Callable[..., LocalCluster], kubevirt: str, kubernetes: str, namespace: str
) -> None:
    beta = BETA if kubernetes.startswith(BETA_ONLY) else ""
    cluster = start_cluster(FLEET, kubevirt=kubevirt, kubernetes=kubernetes, namespace=namespace, api_server=beta)
    assert json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"] == kubernetes
    scenario = JourneyScenario(cluster)
    assert scenario.kubevirt()["status"]["observedKubeVirtVersion"] == kubevirt
    scenario.wait_until_settled()
    before, handlers_before = dump(cluster), handlers(cluster)
    wanted = pools(kubevirt)
    with Watcher(cluster) as watcher:
        changes = scenario.play("site", pools=wanted).changes
        assert f"DaemonSet {namespace}/virt-handler-gpu: create" in changes
        with scenario.no_writes():
            assert scenario.play("site", pools=wanted).changed == 0
        assert scenario.owners() == {
            **dict.fromkeys(["gpu-00", "gpu-01", "gpu-02"], "gpu"),
            "edge-00": "edge",
            "edge-01": "edge",
        }

        scenario.start_vms()
        scenario.all_belong()
        scenario.migrate("by-label")
        scenario.all_belong()
        scenario.play("verify")

        # New images, canaries first; VMs that run keep theirs until somebody restarts or migrates them.
        waves = [{"name": "canary", "nodes": ["gpu-00", "edge-00"]}]
        newer = pools(kubevirt, tag="-2")
        rollout = scenario.play("rollout", pools=newer, virtpools_waves=waves, virtpools_canary_vm=True)
        new = {f"default/virt-canary-{each['name']}": each["virtLauncherImage"] for each in newer}
        first, second = rollout.results_of("virtpools.kubevirt.canary_vm")
        assert {(each["vm"], each["node"]) for each in first.result["vms"]} == {
            ("default/virt-canary-gpu", "gpu-00"),
            ("default/virt-canary-edge", "edge-00"),
        }
        for wave in (first, second):
            assert {each["vm"]: each["image"] for each in wave.result["vms"]} == new
        assert scenario.get("vm,vmi,pods", "-A", "-l", "virtpools.io/canary")["items"] == []
        images = {image for images in scenario.handlers().values() for image in images}
        assert images == {each["virtHandlerImage"] for each in newer} | {
            f"stock.example/kubevirt/virt-handler:{kubevirt}"
        }
        assert scenario.explained() == {
            name: (group or "primary", scenario.image(group, "-2")) for name, group in POOL_OF.items()
        }
        scenario.play("workload_update")
        # VMs with devices cannot be migrated: their owners restart them.
        scenario.cluster.kubectl("delete", "vmi", "-n", VMS, "by-device", "by-instancetype")
        scenario.cluster.wait(
            lambda: set(scenario.launchers()) == set(POOL_OF), 90, "all VMs to run again", interval=0.5
        )
        scenario.all_belong(tag="-2")
        scenario.play("verify")

        scenario.stop_vms()
        scenario.play("remove", virtpools_remove="all")
        scenario.wait_until_settled()
        watcher.stop()
    assert watcher.crowded == []
    assert watcher.without_ready_handler == []
    assert differences(before, dump(cluster)) == {}
    assert handlers(cluster) == handlers_before
    assert ours(cluster) == []
