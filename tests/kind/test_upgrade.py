# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""An upgrade of KubeVirt under guests of a pool: they live on, and VMs start at every moment.

A feature gate adds an argument that the earlier version's launcher refuses, so each VM that got the wrong image would fail.
The tests run in order, on the same guests. When they end, the cluster has the version again that it had.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import playbooks
from guests import MIGRATION, GuestScenario
from kind_cluster.cluster import KindCluster
from kind_fixture import GPU, PATIENT, KindScenario, Object
from local_cluster.errors import ClusterError

pytestmark = pytest.mark.timeout(2400)
Report = Callable[..., None]
GUESTS = ("stays", "moves")
GATE = "VMStatsCollector"
"""Version 1.9 of virt-controller passes --vm-stats-collector with it, which no earlier virt-launcher knows."""
UPGRADE_SECONDS = 900
BETWEEN_STARTS = 15


@pytest.fixture(autouse=True)
def _as_it_was() -> None:
    """Let the guests live on from test to test, unlike in other files."""


def version(kind: KindCluster) -> str:
    """Return the version of KubeVirt once it is deployed, and what there is instead until then."""
    status = kind.get("kubevirt", "kubevirt").get("status", {})
    if status.get("phase") != "Deployed" or status["observedKubeVirtVersion"] != status["targetKubeVirtVersion"]:
        return ""
    return str(status["observedKubeVirtVersion"])


def install(kind: KindCluster, which: str) -> None:
    """Apply the manifest of an operator, as a user upgrades KubeVirt; see side_effect.yml of the scenario."""
    kind.kubectl("apply", "--server-side", "--force-conflicts", "-f", os.environ[f"VIRTPOOLS_KIND_{which}OPERATOR"])


@dataclass(frozen=True)
class Versions:
    """The version that is upgraded from and the one that is upgraded to, with pool gpu as each of them has it."""

    earlier: str
    later: str
    pool: dict[str, Object]
    stock: dict[str, str]
    """KubeVirt's own launcher image, by version."""


@pytest.fixture(scope="module")
def versions(scenario: KindScenario, guest_scenario: GuestScenario) -> Iterator[Versions]:
    """Put an earlier version of KubeVirt in place of the one that the cluster has."""
    kind, later, stock = scenario.kind, version(scenario.kind), scenario.stock_images()
    guest_scenario.play("remove", virtpools_remove="all").succeeded()
    spec = kind.get("kubevirt", "kubevirt")["spec"]
    kind.kubectl("delete", "kubevirt", "-n", "kubevirt", "kubevirt", "--timeout=300s")
    kind.kubectl("delete", "-f", os.environ["VIRTPOOLS_KIND_OPERATOR"], "--timeout=300s")
    try:
        install(kind, "EARLIER_")
        gates = spec["configuration"].setdefault("developerConfiguration", {}).setdefault("featureGates", [])
        gates.append(GATE)
        metadata = {"name": "kubevirt", "namespace": "kubevirt"}
        wanted = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "spec": spec}
        kind.wait(lambda: scenario.apply(wanted) is None, 60, "KubeVirt's kinds to be known", 2)
        kind.wait(lambda: version(kind), UPGRADE_SECONDS, "the earlier version of KubeVirt", 2)
        earlier = version(kind)
        images = {earlier: scenario.stock_images(), later: stock}
        pools = {
            each: {
                **GPU,
                "virtHandlerImage": scenario.push("virt-handler", f"{each}-gpu", base=names["virt-handler"]),
                "virtLauncherImage": scenario.push("virt-launcher", f"{each}-gpu", base=names["virt-launcher"]),
            }
            for each, names in images.items()
        }
        yield Versions(earlier, later, pools, {each: names["virt-launcher"] for each, names in images.items()})
    finally:
        install(kind, "")
        kind.wait(lambda: version(kind) == later, UPGRADE_SECONDS, "the later version of KubeVirt", 2)


class Starts:
    """Starts a VM of the pool every few seconds, writes down what became of it, and deletes it when it runs."""

    def __init__(self, scenario: KindScenario, machine: Object) -> None:
        self.running: dict[str, tuple[str, str]] = {}
        """The launcher image that KubeVirt gave to its pod, and the one that its pod got, by VM."""
        self.failed: dict[str, str] = {}
        self._begun: dict[str, float] = {}
        self._scenario = scenario
        # QEMU starts, and the guest does not: emulated CPUs of many would take all there is from those that live on.
        self._spec = {**machine["spec"]["template"]["spec"], "startStrategy": "Paused"}
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._start, self._follow)]

    def __enter__(self) -> Starts:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)

    def since(self, moment: float) -> set[str]:
        """Return the VMs that were begun after a moment and run, or failed."""
        return {name for name in {*self.running, *self.failed} if self._begun[name] > moment}

    def all_ran(self) -> None:
        """Start no more, and fail unless each VM ran."""
        self._stop()

        def done() -> bool:
            self._look()
            return self._begun.keys() <= {*self.running, *self.failed}

        self._scenario.kind.wait(done, 180, "VMs to run", 1)
        assert self.failed == {}

    def _start(self) -> None:
        while not self._stopped.wait(BETWEEN_STARTS):
            name = f"start-{int(time.time())}"
            instance = {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "metadata": {"name": name, "namespace": "default", "labels": {"workload": "gpu"}},
                "spec": self._spec,
            }
            # While KubeVirt replaces virt-api, nobody can create a VM.
            with contextlib.suppress(ClusterError):
                self._scenario.apply(instance)
                self._begun[name] = time.monotonic()

    def _follow(self) -> None:
        while not self._stopped.wait(1):
            with contextlib.suppress(ClusterError, json.JSONDecodeError):
                self._look()

    def _look(self) -> None:
        open_ = self._begun.keys() - self.running.keys() - self.failed.keys()
        phases = {
            each["metadata"]["name"]: each.get("status", {}).get("phase")
            for each in self._scenario.kind.get("vmi", namespace="default")["items"]
        }
        pods = {
            pod["metadata"]["annotations"]["kubevirt.io/domain"]: pod
            for pod in self._scenario.kind.get("pods", "-l", "kubevirt.io=virt-launcher", namespace="default")["items"]
        }
        ended = [name for name in open_ & pods.keys() if phases.get(name) in {"Running", "Failed"}]
        for name in ended:
            (compute,) = [each for each in pods[name]["spec"]["containers"] if each["name"] == "compute"]
            given = {each["name"]: each.get("value", "") for each in compute["env"]}.get("VIRTPOOLS_STOCK_IMAGE", "")
            if phases[name] == "Running":
                self.running[name] = (given, compute["image"])
            else:
                self.failed[name] = f"{compute['image']} {compute['args']}: {pods[name]['status']}"
        if ended:
            self._scenario.kind.kubectl("delete", "vmi", "-n", "default", *ended, "--wait=false")


@pytest.fixture
def starts(scenario: KindScenario, guest_scenario: GuestScenario) -> Iterator[Starts]:
    with Starts(scenario, guest_scenario.machine("start", "gpu")) as started:
        yield started


def upgrade(scenario: KindScenario, versions: Versions) -> playbooks.Run:
    """Run the playbook with the list for the later version."""
    pools = [versions.pool[versions.later]]
    return playbooks.run(
        "upgrade", scenario.writer.kubeconfig, pools, **PATIENT, virtpools_upgrade_to=versions.later
    ).succeeded()


def test_the_pool_is_prepared(
    scenario: KindScenario, guest_scenario: GuestScenario, versions: Versions, report: Report
) -> None:
    scenario.site([versions.pool[versions.earlier]]).succeeded()
    for name in GUESTS:
        guest_scenario.start(name, "gpu")
    with guest_scenario.unnoticed(*GUESTS) as silence:
        run = upgrade(scenario, versions)
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    for node in scenario.gpu_nodes:
        scenario.has_one_handler(node, versions.pool[versions.earlier]["virtHandlerImage"])


def test_kubevirt_is_upgraded(
    scenario: KindScenario, guest_scenario: GuestScenario, versions: Versions, starts: Starts, report: Report
) -> None:
    """Each VM starts with the image for the version that starts it, and a guest moves before handlers follow."""
    with guest_scenario.unnoticed(*GUESTS, silence=MIGRATION) as silence:
        begin = time.monotonic()
        install(scenario.kind, "")
        scenario.kind.wait(lambda: version(scenario.kind) == versions.later, UPGRADE_SECONDS, "the upgrade", 2)
        seconds, upgraded = time.monotonic() - begin, time.monotonic()
        report(upgrade=round(seconds), silence=round(silence(), 2))
        guest_scenario.migrate("moves")
        scenario.kind.wait(lambda: len(starts.since(upgraded)) >= 3, 180, "VMs that the later version starts")
        starts.all_ran()
        report(silence=round(silence(), 2), started=len(starts.running))
    assert set(starts.running.values()) == {
        (stock, versions.pool[each]["virtLauncherImage"]) for each, stock in versions.stock.items()
    }
    later = versions.pool[versions.later]["virtLauncherImage"]
    assert guest_scenario.launcher_image("moves") == guest_scenario.image_id("moves", later)
    for node in scenario.gpu_nodes:
        scenario.has_one_handler(node, versions.pool[versions.earlier]["virtHandlerImage"])


def test_the_pool_follows(
    scenario: KindScenario, guest_scenario: GuestScenario, versions: Versions, starts: Starts, report: Report
) -> None:
    later = versions.pool[versions.later]
    with guest_scenario.unnoticed(*GUESTS, silence=MIGRATION) as silence:
        run = upgrade(scenario, versions)
        starts.all_ran()
        report(seconds=round(run.seconds), silence=round(silence(), 2), started=len(starts.running))
    assert set(starts.running.values()) == {(versions.stock[versions.later], later["virtLauncherImage"])}
    for node in scenario.gpu_nodes:
        scenario.has_one_handler(node, later["virtHandlerImage"])


def test_guests_get_the_new_image_by_migration(
    scenario: KindScenario, guest_scenario: GuestScenario, versions: Versions, report: Report
) -> None:
    with guest_scenario.unnoticed(*GUESTS, silence=MIGRATION) as silence:
        guest_scenario.play("workload_update").succeeded()
        guest_scenario.restart_kubelets(*GUESTS)
        report(silence=round(silence(), 2))
    image = versions.pool[versions.later]["virtLauncherImage"]
    for name in GUESTS:
        assert guest_scenario.launcher_image(name) == guest_scenario.image_id(name, image)
    assert scenario.module("verification_info")["problems"] == {}
