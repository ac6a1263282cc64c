# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""VMs leave nodes before the handlers do; a migration needs the handlers of both nodes. The tests run in order."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster import Fleet, Nodes
from scenario import OWNER, Object, Scenario, pool

DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"
MIGRATIONS = "virtualmachineinstancemigrations.kubevirt.io"
VMS = "default"
GUESTS = ("guest-a", "guest-b", "guest-c")
A100 = pool("a100", "a100")
NEWER = {**A100, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-newer"}


def instance(name: str, *, device: bool = False) -> Object:
    """Return a VM; one with a device cannot be migrated."""
    devices: dict[str, Any] = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    if device:
        devices["gpus"] = [{"name": "gpu", "deviceName": DEVICE}]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": VMS},
        "spec": {
            "domain": {"devices": devices, "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}},
            "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41"}}],
        },
    }


class DrainScenario(Scenario):
    """VMs on nodes that get a pool."""

    def where(self) -> dict[str, str]:
        """Return the node of every running VM."""
        listed = self.get("virtualmachineinstances", "-n", VMS)["items"]
        statuses = {each["metadata"]["name"]: each.get("status", {}) for each in listed}
        return {name: status["nodeName"] for name, status in statuses.items() if status.get("phase") == "Running"}

    def cordoned(self) -> list[str]:
        nodes = self.get("nodes")["items"]
        return [node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")]


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> DrainScenario:
    """Start a cluster whose VMs are all on the nodes that the pool will get."""
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=2, labels={"accelerator": "a100"}, capacity={DEVICE: 2}),
        Nodes(prefix="node-", count=3),
    )
    scenario = DrainScenario(start_cluster(fleet))
    plain = [name for name in (node["metadata"]["name"] for node in scenario.get("nodes")["items"]) if "node-" in name]
    scenario.cluster.kubectl("cordon", *plain)
    for name in GUESTS:
        scenario.apply(instance(name))
    scenario.apply(instance("pinned", device=True))
    scenario.cluster.wait(lambda: len(scenario.where()) == len(GUESTS) + 1, 40, "the VMs to run")
    scenario.cluster.kubectl("uncordon", *plain[1:])
    return scenario


def test_a_batch_whose_vms_cannot_leave_is_not_touched(scenario: DrainScenario) -> None:
    before = scenario.where()
    node = before["pinned"]
    assert {each[:5] for each in before.values()} == {"a100-"}
    error = scenario.site([A100], virtpools_drain="migrate", virtpools_on_non_migratable="fail").refused()
    assert f"because VMs on its nodes cannot be migrated: VM default/pinned on {node}, since" in error
    assert node not in scenario.owners()
    assert A100["virtHandlerImage"] not in scenario.handlers()[node]
    assert scenario.where()["pinned"] == node


def test_vms_are_migrated_off_a_node_before_its_handler_goes(scenario: DrainScenario) -> None:
    cordoned, before = scenario.cordoned(), scenario.where()
    scenario.site([A100], virtpools_drain="migrate").succeeded()
    now = scenario.where()
    assert now.keys() == before.keys()
    assert now["pinned"] == before["pinned"]
    assert sorted(scenario.owners()) == [
        node["metadata"]["name"] for node in scenario.get("nodes", "-l", OWNER)["items"]
    ]
    assert set(scenario.owners().values()) == {"a100"}
    migrations = scenario.get(MIGRATIONS, "-n", VMS)["items"]
    assert {each["status"]["phase"] for each in migrations} == {"Succeeded"}, "both handlers lasted"
    assert {each["spec"]["vmiName"] for each in migrations} == set(GUESTS)
    assert scenario.cordoned() == cordoned
    scenario.settled([A100], virtpools_drain="migrate")


def test_handlers_are_replaced_when_vms_have_ended(scenario: DrainScenario) -> None:
    scenario.module("pool_daemonsets", pools=[NEWER])
    node = scenario.where()["pinned"]
    asked = {"pools": [NEWER], "nodes": [node], "drain": "wait"}
    found = scenario.module("pool_nodes", migration_timeout=2, **asked)
    assert "VMs on its nodes did not end within 2 s: " in found["msg"]
    assert f"VM default/pinned on {node}" in found["msg"]
    assert scenario.handlers()[node] == [A100["virtHandlerImage"]]
    scenario.cluster.kubectl("delete", "virtualmachineinstances", "--all", "-n", VMS, "--wait=false")
    found = scenario.module("pool_nodes", migration_timeout=30, **asked)
    assert [each["result"] for each in found["nodes"]] == ["done"], found
    assert scenario.handlers()[node] == [NEWER["virtHandlerImage"]]
    assert scenario.where() == {}
