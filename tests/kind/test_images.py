# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Images that a kubelet must pull: missing ones, private ones, with and without credentials."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kind_cluster.registry import HOST, Registry, pull_secret
from kind_fixture import GPU, OWNER, KindScenario, Watcher, l4

Report = Callable[..., None]


def test_an_image_that_cannot_be_pulled_moves_no_node(scenario: KindScenario, private: Registry) -> None:
    error = scenario.site([GPU, l4(handler="private.example/virt-handler:missing")]).refused()
    assert "private.example/virt-handler:missing" in error
    assert scenario.owners().get(scenario.l4_node) is None
    scenario.has_one_handler(scenario.l4_node, scenario.stock["virt-handler"])


def test_a_node_whose_handler_cannot_be_pulled_goes_back(
    scenario: KindScenario, private: Registry, report: Report
) -> None:
    """Without the pull beforehand, only the handler's own pod finds out."""
    node = scenario.l4_node
    missing = l4(handler="private.example/virt-handler:missing")
    with Watcher(scenario.kind) as watcher:  # type: ignore[arg-type]
        run = scenario.site([GPU, missing], virtpools_prepull=False)
    error = run.refused()
    assert "returned" in error or "back" in error, error
    assert watcher.crowded == []
    assert watcher.nodes[node].owners == ["primary", "in_transit", "l4", "in_transit", "primary"]
    scenario.has_one_handler(node, scenario.stock["virt-handler"])
    scenario.kind.wait(lambda: scenario.is_well(node), 300, f"the primary handler on {node} to be well")
    report(gap=round(watcher.gaps()[node], 1), error=error)


@pytest.mark.parametrize(
    ("what", "without", "said"),
    [
        ("virt-launcher", "/usr/bin/virt-tail", "lacks /usr/bin/virt-tail"),
        ("virt-launcher", "/usr/bin/virsh", "lacks virsh"),
        ("virt-launcher", "/usr/bin/qemu-system-x86_64", "lacks QEMU"),
        ("virt-launcher", "/etc/libvirt/qemu.conf", "lacks /etc/libvirt/qemu.conf"),
        ("virt-handler", "/usr/bin/virt-chroot", "lacks virt-chroot"),
        ("virt-handler", "/etc/passwd", "lacks qemu:107 in /etc/passwd"),
    ],
)
def test_an_image_that_lacks_something_moves_no_node(
    scenario: KindScenario, what: str, without: str, said: str, report: Report
) -> None:
    tag = without.rpartition("/")[2].replace("_", "-").replace(".", "-")
    images = {what.removeprefix("virt-"): scenario.push(what, f"without-{tag}", without=without)}
    error = scenario.site([GPU, l4(**images)]).refused()
    report(error=error)
    assert f"image {images[what.removeprefix('virt-')]} {said}. Build pool images on" in error
    assert scenario.owners().get(scenario.l4_node) is None
    scenario.has_one_handler(scenario.l4_node, scenario.stock["virt-handler"])


def test_an_image_without_a_shell_is_unchecked(scenario: KindScenario, report: Report) -> None:
    handler = scenario.push("virt-handler", "without-sh", without="/usr/bin/dash")
    run = scenario.site([GPU, l4(handler)]).succeeded()
    scenario.has_one_handler(scenario.l4_node, handler)
    found = {each["code"]: each["message"] for each in scenario.module("verification_info")["findings"]}
    report(seconds=round(run.seconds), finding=found["image_unchecked"])
    assert (
        f"whether {handler} (it has no /bin/sh) has all that KubeVirt needs was not checked" in found["image_unchecked"]
    )


@pytest.fixture
def secrets(scenario: KindScenario) -> None:
    for name, namespace in (("handlers", "kubevirt"), ("launchers", "kubevirt"), ("launchers", "default")):
        scenario.apply(pull_secret(name, namespace))


def test_private_images(scenario: KindScenario, secrets: None, report: Report) -> None:
    """The handler's pull secret brings both images; launcher pods need one of their own, as docs/launcher-images.md says.

    They are no copies of KubeVirt's own: the kubelet knows images by their content, and asks for the credentials again
    when a pod without them names the same content otherwise.
    """
    node = scenario.l4_node
    handler, launcher = (scenario.push(what, "private", HOST) for what in ("virt-handler", "virt-launcher"))
    pool = l4(handler, launcher, imagePullSecrets=[{"name": "handlers"}])
    refused = scenario.site([GPU, pool]).refused()
    assert "launcher pods would not start" in refused
    assert scenario.get("node", node)["metadata"]["labels"].get(OWNER) is None

    scenario.site([GPU, {**pool, "virtLauncherPullSecrets": [{"name": "launchers"}]}]).succeeded()
    scenario.has_one_handler(node, handler)
    scenario.kind.kubectl("delete", "namespace", "without", "--ignore-not-found")
    scenario.kind.kubectl("create", "namespace", "without")
    scenario.create_vm("with", "l4", "default")
    scenario.create_vm("without", "l4", "without")

    refusals = ("ErrImagePull", "ImagePullBackOff")

    def reason(name: str, namespace: str) -> str:
        status = (scenario.launcher(name, namespace) or {}).get("status", {})
        containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        # The launcher's image is that of its first init container, too, which then waits in place of compute.
        waiting = [str(each["state"].get("waiting", {}).get("reason", "")) for each in containers]
        pulling = next((each for each in waiting if each in refusals), "")
        runs = any(each["name"] == "compute" and "running" in each["state"] for each in containers)
        return "running" if runs else pulling

    scenario.kind.wait(
        lambda: reason("with", "default") == "running", 300, "the launcher pod with a pull secret to run"
    )
    scenario.kind.wait(
        lambda: reason("without", "without") in refusals, 300, "the launcher pod without one to be refused"
    )
    assert [each.image_id for each in scenario.running(node, "compute")] == [scenario.kind.image_id(node, launcher)]
    report(refused=refused, with_secret="running", without_secret=reason("without", "without"))
    scenario.kind.kubectl("delete", "namespace", "without", "--wait=false")
