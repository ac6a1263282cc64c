# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Every way to a launcher pod, at every moment of an upgrade of KubeVirt, with and without preparation.

No launcher runs here. A VM counts as failed when virt-launcher of its pod's image does not know what the real virt-controller passes
to it. The table is in benchmarks/test-runs.md.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

import playbooks
from local_cluster import ClusterError, Fleet, Nodes, kubevirt, programs
from passed_arguments import Passed
from scenario import NAMESPACE, Object, Scenario, gpu_pool, migration

if TYPE_CHECKING:
    from collections.abc import Iterable

UPGRADES = [
    # virt-controller of 1.8 passes --hypervisor, whatever the configuration.
    ("v1.7.0", programs.EARLIER, ()),
    (programs.EARLIER, programs.KUBEVIRT, ("VMStatsCollector",)),
]
MOMENTS = ("before", "virt-handler is being replaced", "the new virt-controller leads", "the pools have followed")
WAYS = ("start", "restart", "migration", "eviction")
VMS = 2
"""For each way, at each moment."""
PLAIN_NODE = "node-00"
MIGRATIONS = "virtualmachineinstancemigrations.kubevirt.io"

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]


def gpu(version: str) -> Object:
    """Return the pool with images of this version."""
    return gpu_pool(version, vmLabels={"matchLabels": {"class": "gpu"}})


def vm(name: str) -> Object:
    """Return a virtual machine of the pool that always runs, and migrates when it is evicted."""
    disk = {"name": "root", "containerDisk": {"image": "registry.example/disks/os:1"}}
    spec = {
        "domain": {"memory": {"guest": "128Mi"}, "devices": {}},
        "volumes": [disk],
        "evictionStrategy": "LiveMigrate",
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": {"class": "gpu"}}, "spec": spec}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runStrategy": "Always", "template": template},
    }


def named(way: str, moment: str) -> list[str]:
    return [f"{way}-{MOMENTS.index(moment)}-{number}" for number in range(VMS)]


class MomentsScenario(Scenario):
    """A cluster whose KubeVirt is upgraded, and whose VMs get new launcher pods meanwhile."""

    def create(self, objects: Iterable[Object]) -> None:
        self.apply({"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def pods(self) -> dict[str, Object]:
        """Return all launcher pods by uid."""
        listed = self.get("pods", "-l", "kubevirt.io=virt-launcher")["items"]
        return {pod["metadata"]["uid"]: pod for pod in listed}

    def running(self) -> set[str]:
        return {vmi["metadata"]["name"] for vmi in self.get("vmi")["items"] if vmi["status"].get("phase") == "Running"}

    def act(self, moment: str) -> None:
        """Have KubeVirt create launcher pods in every way."""
        pods = {_vm_of(pod): pod["metadata"]["name"] for pod in self.pods().values()}
        self.create(map(vm, named("start", moment)))
        self.cluster.kubectl("delete", "vmi", "-n", NAMESPACE, "--wait=false", *named("restart", moment))
        self.create(migration(name, NAMESPACE) for name in named("migration", moment))
        for name in named("eviction", moment):
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pods[name], "namespace": NAMESPACE},
            }
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pods[name]}/eviction"
            # virt-api refuses the eviction, and migrates the VM instead.
            with contextlib.suppress(ClusterError):
                self.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    def failures(self, moment: str) -> dict[str, str]:
        """Return for each way how many of its VMs would fail at this moment."""
        known = self.pods().keys()
        self.act(moment)
        wanted = {name for way in WAYS for name in named(way, moment)}

        def new() -> dict[str, list[Passed]]:
            found: dict[str, list[Passed]] = {}
            for uid, pod in self.pods().items():
                if uid not in known:
                    found.setdefault(_vm_of(pod), []).append(Passed.of(pod))
            return found

        self.cluster.wait(lambda: wanted <= new().keys(), 60, f"launcher pods while {moment}")
        passed = new()
        self.cluster.wait(self.migrated, 60, "the migrations to end")
        self.cluster.kubectl("delete", MIGRATIONS, "--all", "-n", NAMESPACE)
        return {
            way: f"{sum(any(each.refused for each in passed[name]) for name in named(way, moment))} of {VMS}"
            for way in WAYS
        }

    def migrated(self) -> bool:
        phases = [(each.get("status") or {}).get("phase") for each in self.get(MIGRATIONS)["items"]]
        return all(phase in ("Succeeded", "Failed") for phase in phases)

    def begin_upgrade(self, version: str) -> None:
        """Let virt-operator replace virt-handler; the new one does not get Ready for the time being."""
        self.knob(PLAIN_NODE, "never-ready/virt-handler")
        manifest = programs.manifest(self.cluster.add_kubevirt(version), NAMESPACE, kubevirt.IMAGES)
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
        new = [f"{kubevirt.IMAGES}/virt-handler:{version}"]
        self.cluster.wait(lambda: self.handlers().get(PLAIN_NODE) == new, 120, "the new virt-handler")

    def finish_upgrade(self, version: str) -> None:
        self.knob(PLAIN_NODE, None)
        self.cluster.wait(lambda: self.kubevirt()["status"]["observedKubeVirtVersion"] == version, 120, "the upgrade")
        self.wait_until_settled()


def _vm_of(pod: Object) -> str:
    return str(pod["metadata"]["annotations"]["kubevirt.io/domain"])


@pytest.mark.parametrize("prepared", [False, True], ids=["as it is", "prepared"])
@pytest.mark.parametrize(("before", "after", "gates"), UPGRADES)
def test_launcher_pods(start_cluster: Any, before: str, after: str, gates: tuple[str, ...], prepared: bool) -> None:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=2, labels={"accelerator": "a100"}), Nodes(prefix="node-", count=1)
    )
    scenario = MomentsScenario(start_cluster(fleet, kubevirt=before))

    def upgrade() -> None:
        variables = {"virtpools_upgrade_to": after, "virtpools_max_unavailable": "100%"}
        playbooks.run("upgrade", scenario.writer.kubeconfig, [gpu(after)], **variables).succeeded()

    scenario.site([gpu(before)]).succeeded()
    there = [name for moment in MOMENTS for way in WAYS[1:] for name in named(way, moment)]
    scenario.create(map(vm, there))
    scenario.cluster.wait(lambda: set(there) <= scenario.running(), 60, "VMs to run")
    if prepared:
        upgrade()
    if gates:
        # The old version ignores it.
        on = {"spec": {"configuration": {"developerConfiguration": {"featureGates": list(gates)}}}}
        scenario.patch("kubevirt/kubevirt", merge=on)
        scenario.wait_until_settled()
    counts = {MOMENTS[0]: scenario.failures(MOMENTS[0])}
    scenario.begin_upgrade(after)
    counts[MOMENTS[1]] = scenario.failures(MOMENTS[1])
    scenario.finish_upgrade(after)
    counts[MOMENTS[2]] = scenario.failures(MOMENTS[2])
    upgrade()
    counts[MOMENTS[3]] = scenario.failures(MOMENTS[3])
    print(json.dumps({"from": before, "to": after, "prepared": prepared, "failed": counts}))
    none, every = (dict.fromkeys(WAYS, f"{number} of {VMS}") for number in (0, VMS))
    assert counts == {moment: every if moment == MOMENTS[2] and not prepared else none for moment in MOMENTS}
