# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""kubevirt-aie-webhook as the back end: a real API server calls it, its owner has rules of his own, and it may be down.

One cluster; the tests run in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import playbooks
from aie_webhook import CONFIG, SEED, TRACE, AieWebhook, service_name
from local_cluster import Fleet, Nodes
from local_cluster.kubevirt import IMAGES
from scenario import NAMESPACE, Object, Scenario, pool
from webhooks import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.thorough  # a back end that few clusters have; unit tests merge its rules

DEVICE, THEIR_DEVICE = "nvidia.com/GA100_A100_PCIE_40GB", "vendor.example/accelerator"
STOCK = f"{IMAGES}/virt-launcher:v1.9.0"
THEIRS = f"""\
# The owner's own.
- name: accelerated
  image: registry.example/accelerated:1
  selector:
    deviceNames: [{THEIR_DEVICE}]
"""
BACKEND = {"virtpools_launcher_backend": "aie_webhook"}


def gpu(tag: str = "v1.9.0-gpu") -> Object:
    """Return the pool with a launcher image of this tag."""
    launcher = f"registry.example/virt-launcher:{tag}"
    selector = {"deviceNames": [DEVICE]}
    # The webhook cannot keep other VMs off the pool's nodes.
    return pool("gpu", "a100", virtLauncherImage=launcher, selector=selector, unmatched="allow")


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=1, labels={"accelerator": "a100"}, capacity={DEVICE: 10}),
        Nodes(prefix="node-", count=1, capacity={THEIR_DEVICE: 10}),
    )
    return Scenario(start_cluster(fleet))


@pytest.fixture(scope="module")
def webhook(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AieWebhook]:
    with serve(tmp_path_factory.mktemp("webhook"), service_name(NAMESPACE)) as webhooks:
        yield AieWebhook(scenario, webhooks)


def start(scenario: Scenario, name: str, device: str | None = None) -> tuple[str, str | None]:
    """Start a VM; return its launcher image, and what the webhook left in its pod."""
    devices = {"gpus": [{"name": "gpu", "deviceName": device}]} if device else {}
    domain = {"memory": {"guest": "128Mi"}, "devices": devices}
    metadata = {"name": name, "namespace": NAMESPACE}
    scenario.apply(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": metadata,
            "spec": {"domain": domain, "terminationGracePeriodSeconds": 0},
        }
    )

    def pods() -> list[Object]:
        items: list[Object] = scenario.get("pods", "-l", "kubevirt.io=virt-launcher")["items"]
        return [pod for pod in items if pod["metadata"]["annotations"]["kubevirt.io/domain"] == name]

    scenario.cluster.wait(pods, 60, f"a launcher pod of {name}")
    (pod,) = pods()
    (image,) = [each["image"] for each in pod["spec"]["containers"] if each["name"] == "compute"]
    return image, pod["metadata"]["annotations"].get(TRACE)


def permit(scenario: Scenario) -> None:
    """Let VMs ask for the devices."""
    devices = [
        {"pciVendorSelector": f"10DE:20F{number}", "resourceName": name, "externalResourceProvider": True}
        for number, name in enumerate((DEVICE, THEIR_DEVICE))
    ]
    scenario.patch(
        "kubevirt/kubevirt", merge={"spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": devices}}}}
    )
    scenario.wait_until_settled()


def test_vms_of_a_pool_get_its_image_from_the_webhook(scenario: Scenario, webhook: AieWebhook) -> None:
    permit(scenario)
    scenario.site([gpu()], **BACKEND).succeeded()
    image = gpu()["virtLauncherImage"]
    assert start(scenario, "trains", DEVICE) == (image, image)
    assert start(scenario, "serves") == (STOCK, None)
    scenario.settled([gpu()], **BACKEND)
    assert scenario.module("verification_info")["problems"] == {}


def test_rules_of_its_owner_stay(scenario: Scenario, webhook: AieWebhook) -> None:
    webhook.edit(webhook.text + THEIRS)
    kept = webhook.text
    scenario.settled([gpu()], **BACKEND)
    scenario.site([gpu("v1.9.0-gpu.2")], **BACKEND).succeeded()
    assert webhook.text == kept.replace("v1.9.0-gpu", "v1.9.0-gpu.2")
    assert start(scenario, "accelerated", THEIR_DEVICE)[0] == "registry.example/accelerated:1"
    assert start(scenario, "trains-too", DEVICE)[0] == gpu("v1.9.0-gpu.2")["virtLauncherImage"]


def test_no_rules_for_a_webhook_that_is_down(scenario: Scenario, webhook: AieWebhook) -> None:
    webhook.scale(0)
    text = webhook.text
    error = scenario.refused([gpu("v1.9.0-gpu.3")], **BACKEND)
    assert f"Deployment {NAMESPACE}/kubevirt-aie-webhook has no ready pod" in error
    assert webhook.text == text
    verified = playbooks.run("verify", scenario.writer.kubeconfig).refused()
    assert "aie_webhook_down" in verified


def test_its_text_is_as_it_was_when_pools_go(scenario: Scenario, webhook: AieWebhook) -> None:
    """Also while it is down."""
    scenario.cluster.kubectl("delete", "vmi", "-n", NAMESPACE, "--all", "--timeout=60s")
    options = {"virtpools_remove": "all", "virtpools_settle_timeout": 120}
    playbooks.run("remove", scenario.writer.kubeconfig, None, **options).succeeded()
    assert webhook.text == SEED + THEIRS
    annotations = scenario.get("configmap", CONFIG)["metadata"].get("annotations", {})
    assert [key for key in annotations if "virtpools" in key] == []
    assert scenario.owners() == {}
