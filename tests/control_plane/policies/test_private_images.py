# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Launcher images that need a pull secret, on nodes whose kubelets ask every pod for one. The tests run in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local_cluster import Fleet, Nodes
from scenario import OWNER, Object, Scenario, pool

pytestmark = pytest.mark.thorough  # make test-kind pulls from a registry with a password

NODE = "gpu-00"
IMAGE = "private.example/virt-launcher:v1.9.0-gpu"
REGISTRY = "agent.virtpools.io/registry"
GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage=IMAGE,
    selector={"vmLabels": {"matchLabels": {"workload": "gpu"}}},
    imagePullSecrets=[{"name": "registry"}],
)
WITH_SECRET = {**GPU, "virtLauncherPullSecrets": [{"name": "launchers"}]}


class PrivateImagesScenario(Scenario):
    """A cluster with Secrets, and VMs that only the pool takes."""

    def secret(self, namespace: str, name: str) -> None:
        self.cluster.kubectl("create", "secret", "generic", "-n", namespace, name, "--from-literal=a=b")

    def create_vm(self, namespace: str) -> None:
        kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
        metadata = {"name": "vm", "namespace": namespace, "labels": {"workload": "gpu"}}
        domain = {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}
        self.apply({**kind, "metadata": metadata, "spec": {"domain": domain}})

    def launcher(self, namespace: str) -> Object:
        return next(iter(self.get("pods", "-n", namespace, "-l", "kubevirt.io=virt-launcher")["items"]), {})


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> PrivateImagesScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}), Nodes(prefix="plain-", count=1)
    )
    scenario = PrivateImagesScenario(start_cluster(fleet))
    scenario.secret("kubevirt", "registry")
    scenario.cluster.kubectl("create", "namespace", "without")
    return scenario


def test_a_pool_whose_launchers_could_not_start_takes_no_node(scenario: PrivateImagesScenario) -> None:
    error = scenario.site([GPU]).refused()
    assert "launcher pods would not start on 2 of 2" in error
    assert "only those of its virtLauncherPullSecrets (none)" in error
    assert f"{NODE}: image {IMAGE} cannot be pulled: ImagePullBackOff" in error
    assert scenario.owners() == {}
    assert IMAGE not in scenario.cluster.kubectl("get", "mutatingadmissionpolicies", "-o", "json")
    # The handler's own pull secret was enough to bring the image.
    images = [name for each in scenario.get("node", NODE)["status"]["images"] for name in each["names"]]
    assert IMAGE in images


def test_a_missing_pull_secret_is_found_before_a_node_moves(scenario: PrivateImagesScenario) -> None:
    error = scenario.site([WITH_SECRET]).refused()
    assert "virtLauncherPullSecrets (launchers)" in error
    assert scenario.owners() == {}


def test_vms_start_with_the_pull_secret_of_their_namespace(scenario: PrivateImagesScenario) -> None:
    for namespace in ("kubevirt", "default"):
        scenario.secret(namespace, "launchers")
    scenario.site([WITH_SECRET]).succeeded()
    assert scenario.owners() == {NODE: "gpu", "gpu-01": "gpu"}
    for namespace in ("default", "without"):
        scenario.create_vm(namespace)
    scenario.cluster.wait(
        lambda: scenario.launcher("default").get("status", {}).get("phase") == "Running", 60, "the VM to run"
    )
    pod = scenario.launcher("default")
    assert pod["spec"]["imagePullSecrets"] == [{"name": "launchers"}]
    assert {each["image"] for each in pod["spec"]["containers"]} == {IMAGE}
    assert pod["metadata"]["annotations"][OWNER] == "gpu"
    # A pull secret that is not there does no harm, and no good.
    scenario.cluster.wait(
        lambda: "ImagePullBackOff" in json.dumps(scenario.launcher("without")), 60, "the other VM to wait"
    )
    scenario.settled([WITH_SECRET])


def test_nodes_with_credentials_of_their_own_need_no_pull_secret(scenario: PrivateImagesScenario) -> None:
    new = {**GPU, "virtHandlerImage": f"{GPU['virtHandlerImage']}-2"}
    assert "launcher pods would not start on 2 of 2" in scenario.site([new]).refused()
    for name in (NODE, "gpu-01"):
        scenario.cluster.set_node_annotation(name, REGISTRY, "trusted")
    scenario.site([new]).succeeded()
    assert scenario.handlers()[NODE] == [new["virtHandlerImage"]]
    scenario.cluster.wait(
        lambda: scenario.launcher("without").get("status", {}).get("phase") == "Running", 60, "the other VM to run"
    )
