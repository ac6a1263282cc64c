# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Guests of a pool while something goes wrong: images that do not work, nodes that are drained or reboot, other versions of QEMU.

The tests run in order, on the same guest.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from guests import MIGRATION, GuestScenario
from kind_cluster import images
from kind_fixture import GPU, KindScenario, Object

pytestmark = pytest.mark.timeout(1800)
Report = Callable[..., None]
GUEST = "pooled"


@pytest.fixture(autouse=True)
def _as_it_was() -> None:
    """Let the guest live on from test to test, unlike in other files."""


@pytest.fixture(scope="module")
def pools(scenario: KindScenario) -> dict[str, Object]:
    """Return the pool with images that work, that do not, and that have another QEMU."""
    works = {
        "virtHandlerImage": scenario.push("virt-handler", "works"),
        "virtLauncherImage": scenario.push("virt-launcher", "works"),
    }
    said = "echo 'no licence for this GPU' >&2; exit 3"
    handler = scenario.push("virt-handler", "dies", scripts={"/usr/bin/virt-handler": said})
    launcher = scenario.push("virt-launcher", "dies", scripts={"/usr/bin/virt-launcher": said})
    newer = scenario.push("virt-launcher", "newer", base=images.NEWER_QEMU)
    return {
        "works": {**GPU, **works},
        "handler dies": {**GPU, **works, "virtHandlerImage": handler},
        "launcher dies": {**GPU, **works, "virtLauncherImage": launcher},
        "newer QEMU": {**GPU, **works, "virtLauncherImage": newer},
    }


def other_node(scenario: KindScenario, node: str) -> str:
    (other,) = set(scenario.gpu_nodes) - {node}
    return other


def test_a_guest_boots(scenario: KindScenario, guest_scenario: GuestScenario, pools: dict[str, Object]) -> None:
    scenario.site([pools["works"]]).succeeded()
    guest_scenario.start(GUEST, "gpu")
    assert guest_scenario.node(GUEST) in scenario.gpu_nodes
    (gpu,) = (each for each in scenario.module("verification_info")["pools"] if each["name"] == "gpu")
    assert gpu["launcher_contents"].startswith("QEMU 10."), gpu
    assert guest_scenario.probe.await_answer(GUEST).machine.startswith("pc-q35-10.")


def test_a_handler_image_that_dies_goes_back(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: dict[str, Object], report: Report
) -> None:
    with guest_scenario.unnoticed(GUEST) as silence:
        error = scenario.site([pools["handler dies"]], virtpools_max_unavailable=1).refused()
        report(error=error, silence=round(silence(), 2))
    assert "ended with exit code 3 and said 'no licence for this GPU'" in error
    for node in scenario.gpu_nodes:
        scenario.kind.wait(lambda node=node: scenario.is_well(node), 300, f"the handler on {node} to be well")
        scenario.has_one_handler(node, pools["works"]["virtHandlerImage"])


def test_a_canary_vm_keeps_a_launcher_that_dies_from_the_guests(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: dict[str, Object], report: Report
) -> None:
    with guest_scenario.unnoticed(GUEST) as silence:
        error = scenario.site(
            [pools["launcher dies"]],
            virtpools_canary_vm=True,
            virtpools_gate_timeout=180,
            virtpools_on_failure="rollback_all",
        ).refused()
        report(error=error, silence=round(silence(), 2))
    assert "Canary VM default/virt-canary-gpu of pool gpu has not passed" in error
    assert "ended with exit code 3 and said 'no licence for this GPU'" in error
    assert "kubectl get events -n default --field-selector involvedObject.name=virt-canary-gpu" in error
    assert scenario.kind.get("vm", namespace="default")["items"][0]["metadata"]["name"] == GUEST
    assert scenario.module("verification_info")["problems"] == {}
    for node in scenario.gpu_nodes:
        scenario.has_one_handler(node, pools["works"]["virtHandlerImage"])


def test_a_canary_vm_of_an_image_that_works(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: dict[str, Object], report: Report
) -> None:
    again = scenario.push("virt-launcher", "works-2")
    with guest_scenario.unnoticed(GUEST) as silence:
        run = scenario.site([{**pools["works"], "virtLauncherImage": again}], virtpools_canary_vm=True).succeeded()
        report(seconds=round(run.seconds), silence=round(silence(), 2))
    scenario.site([pools["works"]]).succeeded()


def test_the_guests_node_is_drained(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: dict[str, Object], report: Report
) -> None:
    """KubeVirt's own evacuation: the guest moves, and keeps its pool's image."""
    node = guest_scenario.node(GUEST)
    try:
        with guest_scenario.unnoticed(GUEST, silence=MIGRATION) as silence:
            options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=300s")
            scenario.kind.kubectl("drain", node, "--pod-selector=kubevirt.io=virt-launcher", *options)
            scenario.kind.wait(lambda: guest_scenario.node(GUEST) != node, 300, "the guest to leave the node")
            report(silence=round(silence(), 2))
    finally:
        scenario.kind.kubectl("uncordon", node)
    assert guest_scenario.node(GUEST) == other_node(scenario, node)
    image = guest_scenario.image_id(GUEST, pools["works"]["virtLauncherImage"])
    assert guest_scenario.launcher_image(GUEST) == image
    assert scenario.module("verification_info")["problems"] == {}


def test_qemu_refuses_a_migration(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: dict[str, Object], report: Report
) -> None:
    """Another major version of QEMU does not take the guest. It goes on where it is, and the run says why it stays."""
    scenario.site([pools["newer QEMU"]]).succeeded()
    image, node = guest_scenario.launcher_image(GUEST), guest_scenario.node(GUEST)
    with guest_scenario.unnoticed(GUEST, silence=MIGRATION) as silence:
        error = guest_scenario.play("workload_update").refused()
        report(error=error, silence=round(silence(), 2))
    assert f"default/{GUEST}" in error
    assert (guest_scenario.launcher_image(GUEST), guest_scenario.node(GUEST)) == (image, node)


def test_a_new_start_gets_the_new_qemu_and_its_machine_type(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: dict[str, Object], report: Report
) -> None:
    """The former QEMU lacks the machine type that the guest now has: workload_update does not try to move it back."""
    boot = guest_scenario.probe.await_answer(GUEST).boot
    scenario.kind.kubectl("delete", "vmi", "-n", "default", GUEST, "--timeout=120s")
    started = guest_scenario.probe.await_answer(GUEST, 300)
    assert started.boot != boot
    assert not started.machine.startswith("pc-q35-10.")

    scenario.site([pools["works"]]).succeeded()
    with guest_scenario.unnoticed(GUEST):
        run = guest_scenario.play("workload_update")
    (update,) = run.results_of("virtpools.kubevirt.workload_update")[-1].result["restarts"]
    report(machine=started.machine, rc=run.rc, update=update)
    assert update["how"] == "restart"
    assert update["reason"].endswith(f"has its machine type {started.machine}")


def test_a_node_reboots_and_the_vm_is_started_again(
    scenario: KindScenario, guest_scenario: GuestScenario, pools: dict[str, Object], report: Report
) -> None:
    before, node = guest_scenario.probe.await_answer(GUEST), guest_scenario.node(GUEST)
    scenario.kind.reboot(node)

    def again() -> bool:
        return guest_scenario.probe.await_answer(GUEST, 600).boot != before.boot

    scenario.kind.wait(again, 600, "the guest to boot again", 1)
    assert guest_scenario.node(GUEST) in scenario.gpu_nodes
    image = guest_scenario.image_id(GUEST, pools["works"]["virtLauncherImage"])
    assert guest_scenario.launcher_image(GUEST) == image
    report(
        node=node,
        then=guest_scenario.node(GUEST),
        silence=round(guest_scenario.probe.guest(GUEST).silence(before.at), 1),
    )
