# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Pools are removed and leave nothing behind, despite VMs, KubeVirt and a power failure. The tests run in order."""

from __future__ import annotations

import time
from typing import Any

import pytest
from full_dump import differences, dump, handlers, ours

import playbooks
from local_cluster import Fleet, Nodes
from playbooks import Run, RunningPlaybook
from scenario import Object, Scenario, pool
from watcher import Watcher

VMS = "default"
GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage="registry.example/virt-launcher:v1.9.0-gpu",
    selector={"vmLabels": {"matchLabels": {"class": "gpu"}}},
)
RT = pool("rt", "rt", unmatched="keep_off")
POOLS = [GPU, RT]
QUICK = {"agent.virtpools.io/start-seconds": "0.3", "agent.virtpools.io/stop-seconds": "0.3"}
EXCLUSION = "KubeVirt kubevirt/kubevirt: let the primary virt-handler run on every node again (spec.customizeComponents.patches)"
UPDATED = "MutatingAdmissionPolicy virtpools-launcher: update"
UNAPPLIABLE = {
    "resourceName": "virt-handler",
    "resourceType": "DaemonSet",
    "type": "json",
    "patch": '[{"op": "remove", "path": "/spec/template/spec/nothing"}]',
}


class Story(Scenario):
    """A cluster with VMs, and how it was before it had pools."""

    def remember(self) -> None:
        self.before = dump(self.cluster)
        self.handlers_before = handlers(self.cluster)

    def left_behind(self) -> Object:
        """Return everything that differs from the state before the first run."""
        left: Object = differences(self.before, dump(self.cluster))
        if handlers(self.cluster) != self.handlers_before:
            left["handlers"] = handlers(self.cluster)
        return {**left, **dict.fromkeys(ours(self.cluster), "left")}

    def start_removal(self, removed: Any = "all", *arguments: str, **variables: Any) -> RunningPlaybook:
        quick = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 30, "virtpools_settle_timeout": 60}
        given = {**quick, "virtpools_remove": removed, **variables}
        return playbooks.start("remove", self.writer.kubeconfig, None, *arguments, **given)

    def remove(self, removed: Any = "all", *arguments: str, **variables: Any) -> Run:
        return self.start_removal(removed, *arguments, **variables).wait()

    def start_vm(self, name: str) -> Object:
        devices = {
            "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
            "interfaces": [{"name": "n", "masquerade": {}}],
        }
        spec = {
            "domain": {"devices": devices, "resources": {"requests": {"memory": "64Mi"}}},
            "networks": [{"name": "n", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41"}}],
        }
        metadata = {"name": name, "namespace": VMS, "labels": {"class": "gpu"}}
        kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
        # KubeVirt refuses every change of an instance by its owner, even one that changes nothing.
        if not self.get("vmi", "-n", VMS, f"--field-selector=metadata.name={name}")["items"]:
            self.apply({**kind, "metadata": metadata, "spec": spec})
        return self.cluster.wait(lambda: self.running(name), 60, f"{name} to run", interval=0.3)

    def running(self, name: str) -> Object:
        """Return the pod of a running VM, else nothing."""
        vmi = self.get("vmi", name, "-n", VMS)
        pods = self.get("pods", "-n", VMS, "-l", f"vm.kubevirt.io/name={name}")["items"]
        live = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return live[-1] if live and vmi.get("status", {}).get("phase") == "Running" else {}

    def stop_vms(self) -> None:
        self.cluster.kubectl("delete", "vmi", "-n", VMS, "--all", "--ignore-not-found")
        self.cluster.wait(lambda: not self.get("pods,vmi", "-n", VMS)["items"], 60, "the VMs to end")


@pytest.fixture(scope="module")
def story(start_cluster: Any) -> Story:
    fleet = Fleet.of(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, annotations=QUICK),
        Nodes(name="rt", labels={"accelerator": "rt"}, annotations=QUICK),
        Nodes(prefix="plain-", count=2, annotations=QUICK),
    )
    story = Story(start_cluster(fleet))
    story.wait_until_settled()
    story.remember()
    story.site(POOLS).succeeded()
    return story


def test_a_removal_is_refused_while_vms_of_the_pool_run(story: Story) -> None:
    pod = story.start_vm("guest")
    assert pod["spec"]["nodeName"].startswith("gpu-")
    with story.no_writes():
        error = story.remove().refused()
    assert error.startswith("1 VM(s) run with the launcher image of pool gpu or on its nodes (default/guest)")


def test_one_of_two_pools_is_removed_as_planned(story: Story) -> None:
    before = dump(story.cluster)
    with story.no_writes():
        foretold = story.remove("rt", "--check", "--diff").succeeded()
    run = story.remove("rt", virtpools_expected_plan=foretold.plan["digest"]).succeeded()
    assert run.changes == foretold.changes == foretold.plan["changes"]
    assert run.changes == ["Node rt: rt -> primary", UPDATED, "DaemonSet kubevirt/virt-handler-rt: delete"]
    changed = differences(before, dump(story.cluster))
    policy = "mutatingadmissionpolicies.admissionregistration.k8s.io /virtpools-launcher"
    assert set(changed) == {"nodes /rt", "daemonsets.apps kubevirt/virt-handler-rt", policy}
    assert story.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}


def test_all_is_removed_as_planned_despite_a_kill_and_running_vms(story: Story) -> None:
    guest = story.start_vm("guest")
    foretold = story.remove("all", "--check", virtpools_remove_vms="leave").succeeded()
    assert foretold.changes == foretold.plan["changes"]
    assert EXCLUSION in foretold.changes
    approved = {"virtpools_expected_plan": foretold.plan["digest"], "virtpools_remove_vms": "leave"}
    with Watcher(story.cluster) as watcher:
        marker = story.cluster.audit_marker()
        cut = story.start_removal(**approved)
        while len(story.writes(marker, "nodes")) < 2:
            assert not cut.ended(), cut.wait()
            time.sleep(0.05)
        cut.kill_all()
        assert story.owners()
        rest = story.remove(**approved).succeeded()
    last = foretold.changes.index(EXCLUSION)
    assert rest.changes[-len(foretold.changes[last:]) :] == foretold.changes[last:]
    assert watcher.crowded == []
    assert story.running("guest")["metadata"]["uid"] == guest["metadata"]["uid"], "its guest lives on in its pod"
    with story.no_writes():
        again = story.remove(virtpools_remove_vms="refuse").succeeded()
    assert (again.changed, again.plan["text"][-2]) == (0, "No change: nothing of these pools is left.")
    story.stop_vms()
    story.wait_until_settled()
    assert story.left_behind() == {}


@pytest.mark.thorough
def test_vms_are_migrated_first_when_asked(story: Story) -> None:
    story.site(POOLS).succeeded()
    story.start_vm("guest")
    story.remove(virtpools_remove_vms="migrate").succeeded()
    pod = story.running("guest")
    assert pod["spec"]["nodeName"].startswith("plain-")
    assert "v1.9.0-gpu" not in str(pod["spec"])
    story.cluster.kubectl("delete", "vmim", "-n", VMS, "--all")
    story.stop_vms()
    story.wait_until_settled()
    assert story.left_behind() == {}


def test_nodes_go_back_when_their_vms_have_ended_when_asked(story: Story) -> None:
    story.site(POOLS).succeeded()
    node = story.start_vm("guest")["spec"]["nodeName"]
    marker = story.cluster.audit_marker()
    removal = story.start_removal(virtpools_remove_vms="wait")
    while not any("virtpools-launcher" in write for write in story.writes(marker)):
        assert not removal.ended(), removal.wait()
        time.sleep(0.1)
    time.sleep(5)
    assert not removal.ended(), removal.wait()
    assert story.owners()[node] == "gpu"
    story.stop_vms()
    removal.wait().succeeded()
    story.wait_until_settled()
    assert story.left_behind() == {}


@pytest.mark.thorough
def test_a_degraded_kubevirt_keeps_only_the_exclusion(story: Story) -> None:
    story.site(POOLS).succeeded()
    story.patch("kubevirt/kubevirt", {"op": "add", "path": "/spec/customizeComponents/patches/-", "value": UNAPPLIABLE})
    story.cluster.wait(lambda: "kubevirt_degraded" in story.findings(), 30, "KubeVirt to be degraded")
    error = story.remove().refused()
    assert "is degraded" in error
    assert story.owners() == {}
    assert [ds["metadata"]["name"] for ds in story.get("daemonsets")["items"]] == ["virt-handler"]
    patches = story.kubevirt()["spec"]["customizeComponents"]["patches"]
    others = [{"op": "remove", "path": f"/spec/customizeComponents/patches/{patches.index(UNAPPLIABLE)}"}]
    story.patch("kubevirt/kubevirt", *others)
    story.wait_until_settled()
    assert story.remove().succeeded().changes[0] == EXCLUSION
    story.wait_until_settled()
    assert story.left_behind() == {}


def test_what_outlives_kubevirt_is_deleted(story: Story) -> None:
    story.site(POOLS).succeeded()
    story.cluster.kubectl("delete", "kubevirt", "-n", "kubevirt", "kubevirt")
    run = story.remove().succeeded()
    assert "DaemonSet kubevirt/virt-handler-gpu: delete" in run.changes
    assert "Node gpu-00: forget its owner gpu" in run.changes
    now = dump(story.cluster)
    created = [key for key in differences(story.before, now) if key in now]
    assert [key for key in created if "virtpools" in key or "virt-handler-" in key] == []
    assert story.owners() == {}
