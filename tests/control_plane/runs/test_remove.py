# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Pools are removed and leave nothing behind, despite VMs, KubeVirt and a power failure. The tests run in order."""

from __future__ import annotations

import time
from typing import Any

import pytest

import playbooks
from full_dump import differences, dump, handlers, ours
from local_cluster import Fleet, Nodes
from playbooks import Run, RunningPlaybook
from scenario import Object, pool
from vm_scenario import VMS, VmScenario
from watcher import Watcher

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


class RemovalScenario(VmScenario):
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


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> RemovalScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, annotations=QUICK),
        Nodes(name="rt", labels={"accelerator": "rt"}, annotations=QUICK),
        Nodes(prefix="plain-", count=2, annotations=QUICK),
    )
    scenario = RemovalScenario(start_cluster(fleet))
    scenario.wait_until_settled()
    scenario.remember()
    scenario.site(POOLS).succeeded()
    return scenario


def remaining(run: Run) -> list[str]:
    """Return what a removal ends with."""
    (vms,) = run.results_of("virtpools.kubevirt.workload_update")
    return list(vms.result["remaining"])


def test_a_removal_is_refused_while_vms_of_the_pool_run(scenario: RemovalScenario) -> None:
    pod = scenario.start_vm("guest")
    assert pod["spec"]["nodeName"].startswith("gpu-")
    with scenario.no_writes():
        error = scenario.remove().refused()
    assert error.startswith("1 VM runs with the launcher image of pool gpu or on its nodes (default/guest)")


def test_one_of_two_pools_is_removed_as_planned(scenario: RemovalScenario) -> None:
    before = dump(scenario.cluster)
    with scenario.no_writes():
        foretold = scenario.remove("rt", "--check", "--diff").succeeded()
    run = scenario.remove("rt", virtpools_expected_plan=foretold.plan["digest"]).succeeded()
    assert run.changes == foretold.changes == foretold.plan["changes"]
    assert run.changes == ["Node rt: rt -> primary", UPDATED, "DaemonSet kubevirt/virt-handler-rt: delete"]
    assert remaining(run) == ["Every VM has the launcher image that it would get now."]
    changed = differences(before, dump(scenario.cluster))
    policy = "mutatingadmissionpolicies.admissionregistration.k8s.io /virtpools-launcher"
    history = "configmaps kubevirt/virtpools-history"  # the list that is left
    assert set(changed) == {"nodes /rt", "daemonsets.apps kubevirt/virt-handler-rt", policy, history}
    assert scenario.owners() == {"gpu-00": "gpu", "gpu-01": "gpu"}


@pytest.mark.thorough  # unit tests stop a removal at every write; test_remove_everything compares
def test_everything_is_removed_despite_a_kill_and_running_vms(scenario: RemovalScenario) -> None:
    guest = scenario.start_vm("guest")
    foretold = scenario.remove("all", "--check", virtpools_remove_vms="leave").succeeded()
    assert foretold.changes == foretold.plan["changes"]
    assert EXCLUSION in foretold.changes
    approved = {"virtpools_expected_plan": foretold.plan["digest"], "virtpools_remove_vms": "leave"}
    with Watcher(scenario.cluster) as watcher:
        marker = scenario.cluster.audit_marker()
        cut = scenario.start_removal(**approved)
        while len(scenario.writes(marker, "nodes")) < 2:
            assert not cut.ended(), cut.wait()
            time.sleep(0.05)
        cut.kill_all()
        assert scenario.owners()
        rest = scenario.remove(**approved).succeeded()
    assert scenario.ending_vms() == {}
    assert remaining(rest)[1] == f"  {GPU['virtLauncherImage']}: 1 VM ({VMS}/guest)"
    last = foretold.changes.index(EXCLUSION)
    assert rest.changes[-len(foretold.changes[last:]) :] == foretold.changes[last:]
    assert watcher.crowded == []
    assert scenario.running("guest")["metadata"]["uid"] == guest["metadata"]["uid"], "its guest lives on in its pod"
    with scenario.no_writes():
        again = scenario.remove(virtpools_remove_vms="refuse").succeeded()
    assert (again.changed, again.plan["text"][-2]) == (0, "No change: nothing is left of these pools.")
    scenario.stop_vms()
    scenario.wait_until_settled()
    # The label by which its VM could stay there; where none ran, there is none.
    node = guest["spec"]["nodeName"]
    assert set(scenario.left_behind()) == {f"nodes /{node}"}
    scenario.cluster.kubectl("label", "node", node, "until.virtpools.io/gpu-")
    assert scenario.left_behind() == {}


@pytest.mark.thorough
def test_vms_are_migrated_first_when_asked(scenario: RemovalScenario) -> None:
    scenario.site(POOLS).succeeded()
    scenario.start_vm("guest")
    scenario.remove(virtpools_remove_vms="migrate").succeeded()
    pod = scenario.running("guest")
    assert pod["spec"]["nodeName"].startswith("plain-")
    assert "v1.9.0-gpu" not in str(pod["spec"])
    scenario.cluster.kubectl("delete", "vmim", "-n", VMS, "--all")
    scenario.stop_vms()
    scenario.wait_until_settled()
    assert scenario.left_behind() == {}


@pytest.mark.thorough  # unit tests wait for VMs in every kind of run
def test_nodes_go_back_when_their_vms_have_ended_when_asked(scenario: RemovalScenario) -> None:
    scenario.site(POOLS).succeeded()
    node = scenario.start_vm("guest")["spec"]["nodeName"]
    marker = scenario.cluster.audit_marker()
    removal = scenario.start_removal(virtpools_remove_vms="wait")
    while not any("virtpools-launcher" in write for write in scenario.writes(marker)):
        assert not removal.ended(), removal.wait()
        time.sleep(0.1)
    time.sleep(5)
    assert not removal.ended(), removal.wait()
    assert scenario.owners()[node] == "gpu"
    scenario.stop_vms()
    removal.wait().succeeded()
    scenario.wait_until_settled()
    assert scenario.left_behind() == {}


@pytest.mark.thorough
def test_a_degraded_kubevirt_keeps_only_the_exclusion(scenario: RemovalScenario) -> None:
    scenario.site(POOLS).succeeded()
    scenario.patch(
        "kubevirt/kubevirt", {"op": "add", "path": "/spec/customizeComponents/patches/-", "value": UNAPPLIABLE}
    )
    scenario.cluster.wait(lambda: "kubevirt_degraded" in scenario.findings(), 30, "KubeVirt to be degraded")
    error = scenario.remove().refused()
    assert "is degraded" in error
    assert scenario.owners() == {}
    assert [ds["metadata"]["name"] for ds in scenario.get("daemonsets")["items"]] == ["virt-handler"]
    patches = scenario.kubevirt()["spec"]["customizeComponents"]["patches"]
    others = [{"op": "remove", "path": f"/spec/customizeComponents/patches/{patches.index(UNAPPLIABLE)}"}]
    scenario.patch("kubevirt/kubevirt", *others)
    scenario.wait_until_settled()
    assert scenario.remove().succeeded().changes[0] == EXCLUSION
    scenario.wait_until_settled()
    assert scenario.left_behind() == {}


def test_what_outlives_kubevirt_is_deleted(scenario: RemovalScenario) -> None:
    if not scenario.owners():  # as the tests before leave it in make test-thorough
        scenario.site(POOLS).succeeded()
    scenario.cluster.kubectl("delete", "kubevirt", "-n", "kubevirt", "kubevirt")
    run = scenario.remove().succeeded()
    assert "DaemonSet kubevirt/virt-handler-gpu: delete" in run.changes
    assert "Node gpu-00: forget its owner gpu" in run.changes
    now = dump(scenario.cluster)
    created = [key for key in differences(scenario.before, now) if key in now]
    assert [key for key in created if "virtpools" in key or "virt-handler-" in key] == []
    assert scenario.owners() == {}
