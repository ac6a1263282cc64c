# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What the owners of virtual machines notice: nothing. Guests boot, and say themselves what becomes of them.

The tests run in order, on the same guests. All images but KubeVirt's own come from a registry with a password.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import guests
import playbooks
from guests import Probe
from kind_cluster import images
from kind_cluster.registry import KNOWN
from kind_fixture import GPU, KindScenario, Object, l4
from playbooks import Run

pytestmark = pytest.mark.timeout(1800)
Report = Callable[..., None]
LEAVE = {"virtpools_remove_vms": "leave"}
BOTH = ("pooled", "nobodys")
NOTICEABLE = 2.0
"""How many seconds a guest may be silent while a run touches nothing of its VM."""
MIGRATION = 60
"""How many seconds a guest may be silent while QEMU, which emulates its CPU on a busy machine, migrates it."""


class GuestScenario:
    """Two guests: ``pooled``, of pool gpu, and ``nobodys``, on the node that becomes one of pool l4."""

    def __init__(self, scenario: KindScenario, probe: Probe) -> None:
        """Push the image that guests have."""
        self.cluster = scenario
        self.probe = probe
        self._image = scenario.images.push(images.make_guest(), "guest:kernel", KNOWN)

    def start(self, name: str, workload: str) -> None:
        guests.create(self.cluster, name, self._image, workload)
        self.probe.await_answer(name, 300)

    def node(self, name: str) -> str:
        return str(self.cluster.kind.get("vmi", name, namespace="default")["status"]["nodeName"])

    def launcher_image(self, name: str) -> str:
        """Return the id of the image of a guest's launcher, by the container runtime of its node."""
        node, pods = self.node(name), f"virt-launcher-{name}-"
        (launcher,) = [each for each in self.cluster.running(node, "compute") if each.pod.startswith(pods)]
        return launcher.image_id

    def image_id(self, name: str, image: str) -> str:
        """Return the id of an image on a guest's node."""
        return self.cluster.kind.image_id(self.node(name), image)

    def play(self, playbook: str, **variables: Any) -> Run:
        patient = {"virtpools_node_timeout": 600, "virtpools_max_unavailable": "100%"}
        return playbooks.run(playbook, self.cluster.writer.kubeconfig, None, **{**patient, **variables})

    def restart_kubelets(self) -> None:
        for node in {self.node(name) for name in BOTH}:
            self.cluster.kind.on(node, "systemctl", "restart", "kubelet")
        time.sleep(30)  # a kubelet that ends a pod does so within seconds of its start

    @contextmanager
    def unnoticed(self, *names: str, silence: float = NOTICEABLE) -> Iterator[Callable[[], float]]:
        """Fail unless guests live through the block, and are never silent for longer. Yields what tells the longest silence."""
        before = {name: self.probe.await_answer(name) for name in names}
        yield lambda: max(self.probe.guest(name).silence(answer.at) for name, answer in before.items())
        for name, answer in before.items():
            after = self.probe.await_answer(name)
            assert (after.boot, after.machine) == (answer.boot, answer.machine), f"{name} started again"
            assert after.uptime > answer.uptime
            assert self.probe.guest(name).silence(answer.at) <= silence, name


@pytest.fixture(scope="module")
def guest_scenario(scenario: KindScenario) -> Iterator[GuestScenario]:
    with Probe(scenario.kind) as probe:
        yield GuestScenario(scenario, probe)
    scenario.kind.kubectl("delete", "vm", "-n", "default", "--all", "--ignore-not-found", "--timeout=120s")
    scenario.restore()


@pytest.fixture(autouse=True)
def _as_it_was() -> None:
    """Let the guests live on from test to test, unlike in other files."""


@pytest.fixture(scope="module")
def pools(scenario: KindScenario) -> list[Object]:
    """Return both pools, with images from the registry."""
    gpu = {
        **GPU,
        "virtHandlerImage": scenario.push("virt-handler", "gpu-2"),
        "virtLauncherImage": scenario.push("virt-launcher", "gpu-2"),
    }
    return [gpu, l4()]


def test_guests_boot_with_the_images_of_their_pools(scenario: KindScenario, guest_scenario: GuestScenario) -> None:
    others = [node for node in scenario.kind.nodes if node != scenario.l4_node]
    scenario.kind.kubectl("cordon", *others)
    try:
        guest_scenario.start("nobodys", "none")
    finally:
        scenario.kind.kubectl("uncordon", *others)
    guest_scenario.start("pooled", "gpu")
    assert guest_scenario.node("nobodys") == scenario.l4_node
    assert guest_scenario.node("pooled") in scenario.gpu_nodes
    for name, image in (("nobodys", scenario.stock["virt-launcher"]), ("pooled", GPU["virtLauncherImage"])):
        assert guest_scenario.launcher_image(name) == guest_scenario.image_id(name, image)


def test_a_pool_takes_the_node_of_a_guest(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: list[Object], report: Report
) -> None:
    with guest_scenario.unnoticed(*BOTH) as silence:
        run = scenario.site([GPU, pools[1]]).succeeded()
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    assert scenario.owners()[scenario.l4_node] == "l4"


def test_handlers_get_a_new_image_under_a_guest(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: list[Object], report: Report
) -> None:
    with guest_scenario.unnoticed(*BOTH) as silence:
        run = scenario.site(pools, virtpools_max_unavailable=1).succeeded()
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    for node in scenario.gpu_nodes:
        scenario.has_one_handler(node, pools[0]["virtHandlerImage"])


def test_a_handler_controls_a_guest_that_is_older(scenario: KindScenario, guest_scenario: GuestScenario) -> None:
    def subresource(what: str) -> None:
        path = f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/pooled/{what}"
        scenario.kind.kubectl("replace", "--raw", path, "-f", "-", stdin="{}")

    before = guest_scenario.probe.await_answer("pooled")
    subresource("pause")
    time.sleep(5)
    assert time.monotonic() - guest_scenario.probe.guest("pooled").answers[-1].at > 3, "it is not paused"
    subresource("unpause")
    assert guest_scenario.probe.await_answer("pooled").boot == before.boot


def test_workload_update_moves_guests_to_the_new_images(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: list[Object], report: Report
) -> None:
    """A live migration: a guest goes on, and is silent only while it moves. The guest of nobody leaves the pool's node."""
    assert scenario.module("verification_info")["verdicts"]["outdated"] == len(BOTH)
    node = guest_scenario.node("pooled")
    with guest_scenario.unnoticed(*BOTH, silence=MIGRATION):
        run = guest_scenario.play("workload_update").succeeded()
    report(seconds=round(run.seconds), **{name: round(guest_scenario.probe.guest(name).silence(), 2) for name in BOTH})
    assert guest_scenario.node("pooled") != node
    assert guest_scenario.node("nobodys") != scenario.l4_node
    for name, image in (("nobodys", scenario.stock["virt-launcher"]), ("pooled", pools[0]["virtLauncherImage"])):
        assert guest_scenario.launcher_image(name) == guest_scenario.image_id(name, image)
    assert scenario.module("verification_info")["verdicts"]["outdated"] == 0


def test_guests_outlive_their_kubelets_after_all_of_that(guest_scenario: GuestScenario) -> None:
    with guest_scenario.unnoticed(*BOTH):
        guest_scenario.restart_kubelets()


def test_and_after_a_rollback(scenario: KindScenario, guest_scenario: GuestScenario, report: Report) -> None:
    with guest_scenario.unnoticed(*BOTH) as silence:
        run = guest_scenario.play("rollback", **LEAVE).succeeded()
        guest_scenario.restart_kubelets()
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    for node in scenario.gpu_nodes:
        scenario.has_one_handler(node, GPU["virtHandlerImage"])


def test_and_after_everything_was_removed(
    scenario: KindScenario, guest_scenario: GuestScenario, report: Report
) -> None:
    with guest_scenario.unnoticed(*BOTH) as silence:
        run = guest_scenario.play("remove", virtpools_remove="all", **LEAVE).succeeded()
        guest_scenario.restart_kubelets()
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    assert scenario.owners() == {}
