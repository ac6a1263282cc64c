# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Outdated VMs that KubeVirt would update by itself: refused, corrected, then updated by us. The tests run in order."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, Nodes, kubevirt, programs
from scenario import NAMESPACE, Scenario, migration, pool

DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"
MIGRATIONS = "virtualmachineinstancemigrations.kubevirt.io"
OUTDATED_LABEL = "kubevirt.io/outdatedLauncherImage"
VMS = "default"
GUESTS = ("guest-a", "guest-b")
REST_SECONDS = 8  # KubeVirt's updater starts again about every 5 s


def image(version: int) -> str:
    return f"registry.example/virt-launcher:v1.9.0-a100-{version}"


def a100(version: int) -> dict[str, Any]:
    """Return the pool with this version of its launcher image."""
    selector = {"deviceNames": [DEVICE], "vmLabels": {"matchLabels": {"workload": "gpu"}}}
    return pool("a100", "a100", virtLauncherImage=image(version), selector=selector)


def instance(name: str, *, cpus: int = 1, pooled: bool = True, device: bool = False) -> dict[str, Any]:
    """Return a VM; one with a device cannot be migrated."""
    devices: dict[str, Any] = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    if device:
        devices["gpus"] = [{"name": "gpu", "deviceName": DEVICE}]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": VMS, "labels": {"workload": "gpu"} if pooled else {}},
        "spec": {
            "domain": {"devices": devices, "resources": {"requests": {"cpu": str(cpus), "memory": "64Mi"}}},
            "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41"}}],
        },
    }


class WorkloadUpdateScenario(Scenario):
    """A pool with VMs, and what KubeVirt does with them."""

    def vmi(self, name: str) -> dict[str, Any]:
        return self.get("virtualmachineinstance", name, "-n", VMS)

    def start_vms(self, *vms: dict[str, Any]) -> None:
        for vm in vms:
            self.apply(vm)
        names = [vm["metadata"]["name"] for vm in vms]
        self.cluster.wait(
            lambda: all(self.vmi(name).get("status", {}).get("phase") == "Running" for name in names),
            30,
            "the VMs to run",
        )

    def images(self, name: str) -> set[str]:
        """Return the launcher images of the pod in which a VM runs."""
        uid = self.vmi(name)["metadata"]["uid"]
        pods = self.get("pods", "-n", VMS, "-l", f"kubevirt.io/created-by={uid}")["items"]
        (spec,) = [pod["spec"] for pod in pods if pod["status"]["phase"] == "Running"]
        containers = [*spec["containers"], *spec.get("initContainers", ())]
        return {each["image"] for each in containers if each["name"] in ("compute", "guest-console-log")}

    def update_by(self, *methods: str) -> None:
        """Have KubeVirt update outdated VMs by these methods."""
        self.patch("kubevirt/kubevirt", merge={"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}})
        self.wait_until_settled()

    def migrations(self, since: int) -> int:
        """Return how many migrations anybody has created since the marker."""
        return sum((write.resource, write.verb) == (MIGRATIONS, "create") for write in self.cluster.writes(since))

    def moving(self) -> bool:
        migrations = self.get(MIGRATIONS, "-n", VMS)["items"]
        return any(each.get("status", {}).get("phase") not in ("Succeeded", "Failed") for each in migrations)

    def migration(self, name: str) -> dict[str, Any]:
        """Return the status of a migration."""
        return dict(self.get(MIGRATIONS, name, "-n", VMS).get("status", {}))

    def rests(self) -> bool:
        """Wait for migrations in progress, and return whether no VM begins to move for a while after them."""
        self.cluster.wait(lambda: not self.moving(), 30, "migrations to end")
        marker = self.cluster.audit_marker()
        time.sleep(REST_SECONDS)
        return self.migrations(marker) == 0

    def noted(self, image: str) -> str:
        """Return what the API server stores when virt-controller notes this launcher image."""
        noted = json.dumps({"status": {"launcherContainerImageVersion": image}})
        as_controller = ("--as", f"system:serviceaccount:{NAMESPACE}:kubevirt-controller", "--dry-run=server")
        patch = ("patch", "vmi", "guest-a", "-n", VMS, "--type=merge", "-p", noted, *as_controller)
        path = "jsonpath={.status.launcherContainerImageVersion}"
        return self.cluster.kubectl(*patch, "-o", path)

    def corrected(self) -> bool:
        """Return whether KubeVirt sees its own image in the pool's VMs; it looks again when a running VM changes.

        It notes an image only once it has seen a running VM's pod.
        """
        seen = [self.vmi(name) for name in ("plain", *GUESTS)]
        images = {vmi["status"].get("launcherContainerImageVersion") for vmi in seen}
        return (
            len(images) == 1
            and None not in images
            and not any(OUTDATED_LABEL in vmi["metadata"]["labels"] for vmi in seen)
        )


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> WorkloadUpdateScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=3, labels={"accelerator": "a100"}, capacity={DEVICE: 2}),
        Nodes(prefix="node-", count=2),
    )
    scenario = WorkloadUpdateScenario(start_cluster(fleet))
    scenario.site([a100(1)]).succeeded()
    scenario.start_vms(
        *(instance(name) for name in GUESTS), instance("plain", pooled=False), instance("pinned", device=True)
    )
    return scenario


def test_a_setting_by_which_vms_would_never_rest_is_refused(scenario: WorkloadUpdateScenario) -> None:
    assert scenario.images("guest-a") == {image(1)}
    marker = scenario.cluster.audit_marker()
    scenario.update_by("LiveMigrate")
    error = scenario.refused([a100(1)])
    assert "has LiveMigrate in spec.workloadUpdateStrategy.workloadUpdateMethods" in error
    assert "would migrate these VMs again and again" in error
    scenario.cluster.wait(lambda: scenario.migrations(marker) >= 3 * len(GUESTS), 60, "VMs that never rest", interval=1)
    found = scenario.module("workload_update")
    assert "would migrate these VMs again and again" in found["msg"]
    for resting in ("plain", "pinned"):
        assert "migrationState" not in scenario.vmi(resting)["status"]


def test_with_the_policy_pool_vms_rest(scenario: WorkloadUpdateScenario) -> None:
    run = scenario.site([a100(1)], virtpools_outdated="correct").succeeded()
    assert "MutatingAdmissionPolicy virtpools-outdated: create" in run.changes
    scenario.cluster.wait(scenario.corrected, 60, "KubeVirt to see its own image in the pool's VMs", interval=1)
    assert scenario.rests()
    assert scenario.images("plain").isdisjoint({image(1)})
    assert [scenario.images(name) for name in GUESTS] == [{image(1)}] * len(GUESTS)
    with scenario.no_writes():
        assert (
            scenario.module("run_part", part="launcher_policy", pools=[a100(1)], outdated="correct")["changed"] is False
        )


def test_a_new_image_is_found_and_carried_out_once(scenario: WorkloadUpdateScenario) -> None:
    scenario.site([a100(2)], virtpools_outdated="correct").succeeded()
    predicted = scenario.module("workload_update", check=True)
    assert [each["name"] for each in predicted["restarts"]] == ["pinned"]
    assert "cannot be migrated" in predicted["restarts"][0]["reason"]
    run = playbooks.run("workload_update", scenario.writer.kubeconfig).succeeded()
    (done,) = run.results_of("virtpools.kubevirt.workload_update")
    assert done.result["counts"]["restart"] == 1
    assert {each["result"] for each in done.result["vms"]} <= {"done"}
    scenario.cluster.wait(scenario.corrected, 60, "KubeVirt to see its own image in the pool's VMs", interval=1)
    assert scenario.rests()
    for name in GUESTS:
        assert scenario.images(name) == {image(2)}
        assert scenario.vmi(name)["status"]["nodeName"].startswith("a100-")
    with scenario.no_writes():
        again = scenario.module("workload_update")
    assert (again["changed"], again["counts"]["outdated"], again["counts"]["restart"]) == (False, 1, 1)


@pytest.mark.thorough  # unit tests read each version
def test_each_version_sees_its_own_image_in_a_prepared_upgrade(scenario: WorkloadUpdateScenario) -> None:
    images = {
        f"virt{what.title()}Image": f"registry.example/virt-{what}:v1.10.0-a100" for what in ("handler", "launcher")
    }
    later = {**a100(2), **images}
    done = scenario.module("upgrade_preparation", version="v1.10.0", pools=[later], outdated="correct")
    assert "MutatingAdmissionPolicy virtpools-outdated: update" in done.get("changes", ()), done
    assert "upgrade_outdated_policy_stale" not in str(done["findings"])
    stock = f"{kubevirt.IMAGES}/virt-launcher:"
    scenario.cluster.wait(
        lambda: scenario.noted(later["virtLauncherImage"]) == f"{stock}v1.10.0", 60, "the API server to know the policy"
    )
    assert scenario.noted(image(2)) == f"{stock}{programs.KUBEVIRT}"
    assert scenario.noted(image(1)) == image(1)
    digest = f"@sha256:{64 * '0'}"  # as admission may append it
    assert scenario.noted(image(2) + digest) == f"{stock}{programs.KUBEVIRT}"
    assert scenario.noted(image(1) + digest) == image(1) + digest
    assert scenario.corrected()
    assert scenario.rests()
    back = scenario.module("upgrade_preparation", version=programs.KUBEVIRT, pools=[a100(2)], outdated="correct")
    assert "MutatingAdmissionPolicy virtpools-outdated: update" in back.get("changes", ()), back


@pytest.mark.thorough  # unit tests stop at the limit
def test_failures_stop_at_the_limit_and_leave_the_vm_where_it_is(scenario: WorkloadUpdateScenario) -> None:
    scenario.update_by()
    scenario.start_vms(*(instance(f"big-{number}", cpus=40) for number in range(3)))
    scenario.site([a100(3)]).succeeded()
    before = scenario.vmi("big-0")["status"]["nodeName"]
    limits = {"virtpools_update_batch": 1, "virtpools_update_timeout": 45}
    run = playbooks.run("workload_update", scenario.writer.kubeconfig, **limits)
    error = run.refused()
    assert error.startswith("1 of 5 updates failed, and 4 were not begun. VM default/big-0: ")
    assert "was cancelled: it is Scheduling, and the scheduler reports: 0/6 nodes are available" in error
    (waits,) = [line for line in run.stderr.splitlines() if line.startswith("Waiting for migrations: ")]
    assert re.match(
        r"Waiting for migrations: default/big-0 \(3\d s of at most 45 s\): it is Scheduling, and the scheduler reports: ",
        waits,
    ), waits
    found = run.results_of("virtpools.kubevirt.workload_update")[0].result
    assert {each["name"]: each["result"] for each in found["vms"]} == {
        "big-0": "failed", "big-1": "not_started", "big-2": "not_started",
        "guest-a": "not_started", "guest-b": "not_started",
    }  # fmt: skip
    scenario.cluster.wait(lambda: not scenario.moving(), 30, "the migration to be cancelled")
    assert scenario.vmi("big-0")["status"]["nodeName"] == before
    assert scenario.images("big-0") == {image(2)}
    scenario.cluster.kubectl("delete", "-n", VMS, "virtualmachineinstance", "big-0", "big-1", "big-2")


@pytest.mark.thorough  # unit tests wait for others
def test_a_migration_that_waits_for_others_says_so(scenario: WorkloadUpdateScenario) -> None:
    """KubeVirt runs no more migrations at once, and one of somebody's never ends."""
    limit = {"migrations": {"parallelMigrationsPerCluster": 1}}
    scenario.patch("kubevirt/kubevirt", merge={"spec": {"configuration": limit}})
    scenario.wait_until_settled()
    scenario.cluster.kubectl("annotate", "vmi", "plain", "-n", VMS, "agent.virtpools.io/migration=hang")
    scenario.apply(migration("plain", VMS, "somebodys"))
    scenario.cluster.wait(
        lambda: scenario.migration("somebodys").get("phase") == "Running", 60, "a migration that hangs"
    )
    limits = {"virtpools_update_batch": 1, "virtpools_update_timeout": 5}
    error = playbooks.run("workload_update", scenario.writer.kubeconfig, **limits).refused()
    assert "did not end within 5 s and was cancelled: it is Pending, and it has no target pod while 1 other " in error
    assert "migration runs (KubeVirt's limits: spec.configuration.migrations)" in error
    scenario.cluster.kubectl("delete", MIGRATIONS, "somebodys", "-n", VMS)
    found = scenario.module("workload_update")
    assert {each["name"]: each["result"] for each in found["vms"]} == dict.fromkeys(GUESTS, "done")
    assert "virtpools" not in [lease["metadata"]["name"] for lease in scenario.get("leases")["items"]]
