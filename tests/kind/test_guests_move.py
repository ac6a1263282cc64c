# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Guests that pools select in every way, that go from pool to pool, that cannot move, and that get disks while they run.

The tests run in order, on the same guests. All images but KubeVirt's own come from a registry with a password.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

import playbooks
from guests import MIGRATION, GuestScenario
from kind_cluster import multus
from kind_cluster.images import FORGETFUL
from kind_fixture import GPU, PATIENT, KindScenario, Object, l4

pytestmark = pytest.mark.timeout(1800)
Report = Callable[..., None]
LEAVE = {"virtpools_remove_vms": "leave"}
SELECTING, TYPED, EQUIPPED, FIXED, TRAVELLER = "selecting", "typed", "equipped", "fixed", "traveller"
CONNECTED = "connected"
DEVICE = "vendor.example/accelerator"


@pytest.fixture(autouse=True)
def _as_it_was() -> None:
    """Let the guests live on from test to test, unlike in other files."""


@pytest.fixture(scope="module")
def images(scenario: KindScenario) -> dict[str, Object]:
    """Return the images of both pools."""
    return {
        name: {
            "virtHandlerImage": scenario.push("virt-handler", f"of-{name}"),
            "virtLauncherImage": scenario.push("virt-launcher", f"of-{name}"),
        }
        for name in ("gpu", "l4")
    }


@pytest.fixture(scope="module")
def pools(images: dict[str, Object]) -> Callable[..., list[Object]]:
    """Return a function that makes both pools; ``taker`` takes the traveller as well."""

    def made(taker: str = "") -> list[Object]:
        def takes(name: str) -> list[str]:
            return [name, TRAVELLER] if name == taker else [name]

        def selector(name: str) -> Object:
            workloads = {"key": "workload", "operator": "In", "values": takes(name)}
            return {"matchNodeSelector": True, "vmLabels": {"matchExpressions": [workloads]}}

        return [{**pool, **images[pool["name"]], "selector": selector(pool["name"])} for pool in (GPU, l4())]

    return made


def runs_in_its_pool(guests: GuestScenario, name: str, image: str, nodes: list[str]) -> bool:
    """Ask the container runtime of the guest's node, and the guest for a sign of life."""
    assert guests.node(name) in nodes, name
    assert guests.launcher_image(name) == guests.image_id(name, image), name
    assert guests.probe.await_answer(name)
    return True


def test_vms_find_their_pool_by_selector_and_by_instancetype(
    scenario: KindScenario,
    guest_scenario: GuestScenario,
    pools: Callable[..., list[Object]],
    images: dict[str, Object],
) -> None:
    scenario.site(pools()).succeeded()
    kind = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype"}
    shape = {"cpu": {"guest": 1}, "memory": {"guest": "128Mi"}, "nodeSelector": {"accelerator": "nvidia-l4"}}
    scenario.apply({**kind, "metadata": {"name": "with-l4", "namespace": "default"}, "spec": shape})
    typed = guest_scenario.machine(TYPED, "none")
    typed["spec"]["instancetype"] = {"kind": "VirtualMachineInstancetype", "name": "with-l4"}
    del typed["spec"]["template"]["spec"]["domain"]["resources"]
    selecting = guest_scenario.machine(SELECTING, "none")
    selecting["spec"]["template"]["spec"]["nodeSelector"] = {"accelerator": "nvidia-a100"}
    guest_scenario.start(TYPED, "none", typed)
    guest_scenario.start(SELECTING, "none", selecting)
    assert runs_in_its_pool(guest_scenario, TYPED, images["l4"]["virtLauncherImage"], [scenario.l4_node])
    assert runs_in_its_pool(guest_scenario, SELECTING, images["gpu"]["virtLauncherImage"], scenario.gpu_nodes)
    scenario.kind.kubectl("delete", "vm", "-n", "default", TYPED, SELECTING, "--timeout=120s")


def test_a_vm_finds_its_pool_by_a_device(
    scenario: KindScenario,
    guest_scenario: GuestScenario,
    pools: Callable[..., list[Object]],
    images: dict[str, Object],
) -> None:
    """A device that the nodes only count: the guest does not see it, which QEMU here could not give to it."""
    for node in scenario.gpu_nodes:
        amount = json.dumps([{"op": "add", "path": f"/status/capacity/{DEVICE.replace('/', '~1')}", "value": "1"}])
        scenario.kind.kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", amount)
    gpu, *others = pools()
    scenario.site([{**gpu, "selector": {"deviceNames": [DEVICE]}}, *others]).succeeded()
    machine = guest_scenario.machine(EQUIPPED, "none")
    resources = machine["spec"]["template"]["spec"]["domain"]["resources"]
    resources["requests"][DEVICE] = "1"
    resources["limits"] = {DEVICE: "1"}
    guest_scenario.start(EQUIPPED, "none", machine)
    assert runs_in_its_pool(guest_scenario, EQUIPPED, images["gpu"]["virtLauncherImage"], scenario.gpu_nodes)
    assert scenario.module("verification_info")["problems"] == {}
    scenario.kind.kubectl("delete", "vm", "-n", "default", EQUIPPED, "--timeout=120s")


def test_a_guest_goes_from_pool_to_pool_and_back(
    scenario: KindScenario,
    guest_scenario: GuestScenario,
    pools: Callable[..., list[Object]],
    images: dict[str, Object],
    report: Report,
) -> None:
    """Each time another pool selects it, and a live migration brings it there. It is the same boot all the way."""
    guest_scenario.start(TRAVELLER, TRAVELLER)
    ways = {
        "gpu": (images["gpu"]["virtLauncherImage"], scenario.gpu_nodes),
        "l4": (images["l4"]["virtLauncherImage"], [scenario.l4_node]),
        "": (scenario.stock["virt-launcher"], scenario.other_nodes),
    }
    assert runs_in_its_pool(guest_scenario, TRAVELLER, *ways[""])
    for taker, there in ways.items():
        with guest_scenario.unnoticed(TRAVELLER, silence=MIGRATION) as silence:
            scenario.site(pools(taker), **LEAVE).succeeded()
            guest_scenario.play("workload_update").succeeded()
            report(taker=taker, silence=round(silence(), 2))
        assert runs_in_its_pool(guest_scenario, TRAVELLER, *there)
        assert scenario.module("verification_info")["problems"] == {}


def test_a_guest_that_its_user_paused_migrates_and_is_paused(
    scenario: KindScenario,
    guest_scenario: GuestScenario,
    pools: Callable[..., list[Object]],
    images: dict[str, Object],
) -> None:
    """A restart would lose its memory."""
    before = guest_scenario.probe.await_answer(TRAVELLER)
    guest_scenario.ask(TRAVELLER, "pause")
    time.sleep(2)  # until answers that were under way have come
    paused = time.monotonic()
    scenario.site(pools("gpu"), **LEAVE).succeeded()
    guest_scenario.play("workload_update").succeeded()
    assert guest_scenario.node(TRAVELLER) in scenario.gpu_nodes
    assert guest_scenario.probe.guest(TRAVELLER).answers[-1].at < paused, "it is not paused"
    guest_scenario.ask(TRAVELLER, "unpause")
    assert runs_in_its_pool(guest_scenario, TRAVELLER, images["gpu"]["virtLauncherImage"], scenario.gpu_nodes)
    after = guest_scenario.probe.await_answer(TRAVELLER)
    assert (after.boot, after.machine) == (before.boot, before.machine), guest_scenario.started_again(TRAVELLER)
    scenario.site(pools(), **LEAVE).succeeded()
    guest_scenario.play("workload_update").succeeded()


def test_a_disk_is_plugged_into_a_running_guest_of_a_pool(
    scenario: KindScenario, guest_scenario: GuestScenario, images: dict[str, Object], report: Report
) -> None:
    """The pod that attaches it has KubeVirt's own launcher image, whatever the pool's is."""
    guest_scenario.start(FIXED, "gpu")
    node = guest_scenario.node(FIXED)
    scenario.kind.on(
        node, "sh", "-c", "mkdir -p /var/disk && truncate -s 16M /var/disk/disk.img && chown -R 107 /var/disk"
    )
    for each in volume("extra", "/var/disk"):
        scenario.apply(each)
    claim = {"persistentVolumeClaim": {"claimName": "extra", "hotpluggable": True}}
    with guest_scenario.unnoticed(FIXED) as silence:
        disk = {"name": "extra", "disk": {"disk": {"bus": "virtio"}}, "volumeSource": claim}
        guest_scenario.ask(FIXED, "addvolume", disk, of="virtualmachines")

        def status() -> str:
            volumes = scenario.kind.get("vmi", FIXED, namespace="default")["status"].get("volumeStatus", [])
            return str(next((each["phase"] for each in volumes if each["name"] == "extra"), ""))

        scenario.kind.wait(lambda: status() == "Ready", 180, "the disk to be attached")
        assert "vda" in guest_scenario.type(FIXED, "grep vd /proc/partitions; echo listed", "\nlisted")
        (attaching,) = [each for each in scenario.kind.containers(node) if each.pod.startswith("hp-volume-")]
        report(silence=round(silence(), 2), attaching=attaching.image)
    assert attaching.image_id == scenario.kind.image_id(node, scenario.stock["virt-launcher"])


def test_a_network_is_plugged_into_a_running_guest_of_a_pool(
    scenario: KindScenario, guest_scenario: GuestScenario, images: dict[str, Object], report: Report
) -> None:
    """KubeVirt asks for a live migration, by which it comes: to a pod of the pool, like every other."""
    guest_scenario.start(CONNECTED, "gpu")
    node = guest_scenario.node(CONNECTED)
    assert "eth1" not in guest_scenario.type(CONNECTED, "ls /sys/class/net; echo listed", "\nlisted")
    with multus.installed(scenario.kind):
        scenario.apply(multus.bridge("second"))
        spec = "/spec/template/spec"
        interface = {"name": "second", "bridge": {}}
        network = {"name": "second", "multus": {"networkName": "second"}}
        plug = [
            {"op": "add", "path": f"{spec}/domain/devices/interfaces/-", "value": interface},
            {"op": "add", "path": f"{spec}/networks/-", "value": network},
        ]
        with guest_scenario.unnoticed(CONNECTED, silence=MIGRATION) as silence:
            scenario.kind.kubectl("patch", "vm", "-n", "default", CONNECTED, "--type=json", "-p", json.dumps(plug))
            scenario.kind.wait(lambda: must_migrate(scenario, CONNECTED), 120, "KubeVirt to ask for a migration")
            guest_scenario.migrate(CONNECTED)
            assert guest_scenario.node(CONNECTED) != node

            def names() -> str:
                return guest_scenario.type(CONNECTED, "ls /sys/class/net; echo listed", "\nlisted")

            scenario.kind.wait(lambda: "eth1" in names(), 120, "the guest to see it", 5)
            report(silence=round(silence(), 2))
        assert runs_in_its_pool(guest_scenario, CONNECTED, images["gpu"]["virtLauncherImage"], scenario.gpu_nodes)
        assert scenario.module("verification_info")["problems"] == {}
        scenario.kind.kubectl("delete", "vm", "-n", "default", CONNECTED, "--timeout=120s")


def must_migrate(scenario: KindScenario, name: str) -> bool:
    """Say whether KubeVirt asks for a live migration of a guest."""
    conditions = scenario.kind.get("vmi", name, namespace="default")["status"]["conditions"]
    return any(each["type"] == "MigrationRequired" and each["status"] == "True" for each in conditions)


def volume(name: str, path: str, size: str = "16Mi") -> list[dict[str, Any]]:
    """A volume in a folder of a node, and a claim that gets it."""
    storage = {"storage": size}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeMode": "Filesystem"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {**common, "capacity": storage, "hostPath": {"path": path}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {**common, "resources": {"requests": storage}, "volumeName": name},
        },
    ]


def rights_of_cdi() -> tuple[Object, ...]:
    """Return the right to read CDI's configuration, which CDI gives to everybody. Without it, virt-api does not find out that there
    is no CDI, and refuses a memory dump."""
    rbac, name = "rbac.authorization.k8s.io", "cdi.kubevirt.io:config-reader"
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    everybody = {"apiGroup": rbac, "kind": "Group", "name": "system:authenticated"}
    return (
        {**role, "rules": [{"apiGroups": ["cdi.kubevirt.io"], "resources": ["cdiconfigs"], "verbs": ["get"]}]},
        {
            **role,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [everybody],
        },
    )


def test_the_memory_of_a_guest_of_a_pool_is_dumped(
    scenario: KindScenario, guest_scenario: GuestScenario, report: Report
) -> None:
    """KubeVirt attaches a volume for it, and the pool's QEMU writes it."""
    node = guest_scenario.node(FIXED)
    scenario.kind.on(node, "sh", "-c", "mkdir -p /var/dump && chown 107 /var/dump")
    for each in (*rights_of_cdi(), *volume("dump", "/var/dump", "512Mi")):
        scenario.apply(each)
    with guest_scenario.unnoticed(FIXED, silence=MIGRATION) as silence:
        guest_scenario.ask(FIXED, "memorydump", {"claimName": "dump"}, of="virtualmachines")

        def phase() -> str:
            status = scenario.kind.get("vm", FIXED, namespace="default")["status"]
            return str(status.get("memoryDumpRequest", {}).get("phase"))

        scenario.kind.wait(lambda: phase() in {"Completed", "Failed"}, 180, "the memory dump")
        assert phase() == "Completed"
        report(silence=round(silence(), 2))
    assert scenario.kind.on(node, "find", "/var/dump", "-size", "+32M").strip()
    guest_scenario.ask(FIXED, "removememorydump", of="virtualmachines")


def test_a_guest_of_a_pool_has_a_snapshot(
    scenario: KindScenario, guest_scenario: GuestScenario, report: Report
) -> None:
    """Of its description, for its disks are in images: KubeVirt freezes and thaws it through the pool's handler."""
    snapshot = {
        "apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineSnapshot",
        "metadata": {"name": "before", "namespace": "default"},
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": TRAVELLER}},
    }
    with guest_scenario.unnoticed(TRAVELLER) as silence:
        scenario.apply(snapshot)

        def ready() -> bool:
            found = scenario.kind.get("virtualmachinesnapshot", "before", namespace="default")
            return bool(found.get("status", {}).get("readyToUse"))

        scenario.kind.wait(ready, 180, "the snapshot")
        report(silence=round(silence(), 2))


def test_a_guest_that_cannot_migrate_stays_and_is_named(
    scenario: KindScenario,
    guest_scenario: GuestScenario,
    pools: Callable[..., list[Object]],
    report: Report,
) -> None:
    """No other node can have its disk."""
    newer, *others = pools()
    newer["virtLauncherImage"] = scenario.push("virt-launcher", "of-gpu-2")
    node = guest_scenario.node(FIXED)
    with guest_scenario.unnoticed(FIXED, TRAVELLER) as silence:
        scenario.site([newer, *others]).succeeded()
        run = guest_scenario.play("workload_update").succeeded()
        (update,) = run.results_of("virtpools.kubevirt.workload_update")[-1].result["restarts"]
        report(update=update, silence=round(silence(), 2))
    assert (update["how"], guest_scenario.node(FIXED)) == ("restart", node)
    assert "extra" in update["reason"]


def test_a_guest_that_its_handler_has_forgotten_is_not_lost(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: Callable[..., list[Object]], report: Report
) -> None:
    """On a busy node, a handler may delete its record of a VM at the end of a migration. Here it always does so."""
    gpu, *others = pools("gpu")
    forgetful = scenario.push("virt-handler", "forgetful", base=FORGETFUL)
    scenario.site([{**gpu, "virtHandlerImage": forgetful}, *others], **LEAVE).succeeded()
    with guest_scenario.unnoticed(TRAVELLER, silence=MIGRATION):
        guest_scenario.play("workload_update").succeeded()
        scenario.kind.wait(lambda: not guest_scenario.is_recorded(TRAVELLER), 180, "its handler to forget it")
    with guest_scenario.unnoticed(TRAVELLER) as silence:
        run = scenario.site([gpu, *others], **LEAVE).succeeded()
        assert "Handlers were made to record 1 VM again" in run.stdout
        guest_scenario.restart_kubelets(TRAVELLER)
        report(silence=round(silence(), 2))
    assert guest_scenario.is_recorded(TRAVELLER)
    assert scenario.module("verification_info")["problems"] == {}


def in_the_gpu_pool(scenario: KindScenario, guests: GuestScenario, pools: Callable[..., list[Object]]) -> None:
    """Bring the traveller into pool gpu."""
    scenario.site(pools("gpu"), **LEAVE).succeeded()
    guests.play("workload_update").succeeded()
    assert guests.node(TRAVELLER) in scenario.gpu_nodes


def test_a_removal_migrates_guests_which_outlive_their_kubelets(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: Callable[..., list[Object]], report: Report
) -> None:
    scenario.kind.kubectl("delete", "vm", "-n", "default", FIXED, "--ignore-not-found", "--timeout=120s")
    in_the_gpu_pool(scenario, guest_scenario, pools)
    with guest_scenario.unnoticed(TRAVELLER, silence=MIGRATION) as silence:
        run = guest_scenario.play("remove", virtpools_remove="all", virtpools_remove_vms="migrate").succeeded()
        guest_scenario.restart_kubelets(TRAVELLER)
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    assert scenario.owners() == {}


def test_a_removal_waits_for_the_owner_of_a_guest(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: Callable[..., list[Object]], report: Report
) -> None:
    """The owner restarts the machine when it suits him: it starts on a node that has no pool, with KubeVirt's own image."""
    in_the_gpu_pool(scenario, guest_scenario, pools)
    image = pools()[0]["virtLauncherImage"]
    with guest_scenario.unnoticed(TRAVELLER):
        options = {**PATIENT, "virtpools_remove": "all", "virtpools_remove_vms": "wait"}
        running = playbooks.start("remove", scenario.writer.kubeconfig, None, **options)

        def begun() -> bool:
            return image not in scenario.kind.kubectl("get", "mutatingadmissionpolicies", "-o", "json")

        scenario.kind.wait(begun, 300, "the removal to let new VMs start elsewhere")
        guest_scenario.restart_kubelets(TRAVELLER)
    assert scenario.owners()[guest_scenario.node(TRAVELLER)] == "gpu"
    boot = guest_scenario.probe.await_answer(TRAVELLER).boot
    scenario.kind.kubectl("delete", "vmi", "-n", "default", TRAVELLER, "--timeout=120s")
    assert guest_scenario.probe.await_answer(TRAVELLER, 300).boot != boot
    # Maybe on a node that had the pool: those without VMs go back at once.
    assert guest_scenario.node(TRAVELLER) not in scenario.owners()
    with guest_scenario.unnoticed(TRAVELLER):
        run = running.wait(900).succeeded()
        guest_scenario.restart_kubelets(TRAVELLER)
        report(seconds=round(run.seconds))
    assert runs_in_its_pool(guest_scenario, TRAVELLER, scenario.stock["virt-launcher"], scenario.kind.nodes)
    assert scenario.owners() == {}
