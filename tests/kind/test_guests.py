# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What the owners of virtual machines notice: nothing. Guests boot, and say themselves what becomes of them.

The tests run in order, on the same guests. All images but KubeVirt's own come from a registry with a password.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from guests import MIGRATION, GuestScenario
from kind_fixture import GPU, KindScenario, Object, l4

pytestmark = pytest.mark.timeout(1800)
Report = Callable[..., None]
LEAVE = {"virtpools_remove_vms": "leave"}
BOTH = ("pooled", "nobodys")
"""A guest of pool gpu, and one on the node that becomes one of pool l4."""


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


def test_a_handler_controls_a_guest_that_is_older(guest_scenario: GuestScenario) -> None:
    before = guest_scenario.probe.await_answer("pooled")
    guest_scenario.ask("pooled", "pause")
    time.sleep(5)
    assert time.monotonic() - guest_scenario.probe.guest("pooled").answers[-1].at > 3, "it is not paused"
    guest_scenario.ask("pooled", "unpause")
    assert guest_scenario.probe.await_answer("pooled").boot == before.boot
    assert before.boot in guest_scenario.type("pooled", "echo this is $boot", f"this is {before.boot}")


def test_and_restarts_it_when_asked(scenario: KindScenario, guest_scenario: GuestScenario) -> None:
    """KubeVirt's soft reboot: the guest shuts down, and QEMU, in the same launcher pod, starts it again."""
    before, pod = guest_scenario.probe.await_answer("pooled"), guest_scenario.launcher_uid("pooled")
    guest_scenario.ask("pooled", "softreboot")

    def again() -> bool:
        return guest_scenario.probe.await_answer("pooled").boot != before.boot

    scenario.kind.wait(again, 180, "the guest to restart", 1)
    assert guest_scenario.launcher_uid("pooled") == pod


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
        guest_scenario.restart_kubelets(*BOTH)


def test_and_after_a_rollback(scenario: KindScenario, guest_scenario: GuestScenario, report: Report) -> None:
    with guest_scenario.unnoticed(*BOTH) as silence:
        run = guest_scenario.play("rollback", **LEAVE).succeeded()
        guest_scenario.restart_kubelets(*BOTH)
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    for node in scenario.gpu_nodes:
        scenario.has_one_handler(node, GPU["virtHandlerImage"])


def test_and_after_everything_was_removed(
    scenario: KindScenario, guest_scenario: GuestScenario, report: Report
) -> None:
    with guest_scenario.unnoticed(*BOTH) as silence:
        run = guest_scenario.play("remove", virtpools_remove="all", **LEAVE).succeeded()
        guest_scenario.restart_kubelets(*BOTH)
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    assert scenario.owners() == {}
