# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A VM gets the image and nodes that its explanation predicts before it starts. One cluster; the tests run in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import playbooks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.prediction import predict
from local_cluster import Fleet, Nodes
from playbooks import Account
from scenario import Scenario, pool

# test_user_journey compares what is explained with what VMs get; test_prediction predicts pods, unit tests explain them.
pytestmark = pytest.mark.thorough

A100 = "nvidia.com/GA100_A100_PCIE_40GB"
IMAGE = "registry.example/virt-launcher:v1.9.0-a100"
VMS = "default"
INSTANCETYPES = "instancetype.kubevirt.io/v1beta1"

POOLS = [
    pool("a100", "a100", virtLauncherImage=IMAGE, selector={"deviceNames": [A100]}),
    pool("fast", "fast", selector={"vmLabels": {"matchLabels": {"class": "fast"}}}),
]
DUMPED = (
    "kubevirts.kubevirt.io,nodes,namespaces,daemonsets,pods,controllerrevisions,virtualmachines.kubevirt.io,"
    "virtualmachineinstances.kubevirt.io,mutatingadmissionpolicies,mutatingadmissionpolicybindings"
)

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gpu": {"domain": {"devices": {"gpus": [{"name": "g", "deviceName": A100}]}}},
    "model": {"domain": {"cpu": {"model": "Haswell"}}},
    "limits": {"domain": {"resources": {"limits": {"memory": "128Mi"}}}},
    "arm": {"architecture": "arm64"},
    "placed": {
        "nodeSelector": {"accelerator": "fast"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "accelerator", "operator": "Exists"}]}]
                }
            }
        },
        "tolerations": [{"key": "any", "operator": "Exists"}],
    },
}


def template(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return the template of a VM that can start."""
    domain = spec.pop("domain", {})
    devices = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}], **domain.get("devices", {})}
    disk = {"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41"}}
    memory = {} if "resources" in domain else {"memory": {"guest": "64Mi"}}
    return {
        "metadata": {"labels": labels or {}},
        "spec": {"domain": {**memory, **domain, "devices": devices}, "volumes": [disk], **spec},
    }


def vm(name: str, of: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": VMS},
        "spec": {"runStrategy": "Halted", "template": of, **spec},
    }


def instancetype(device: str) -> dict[str, Any]:
    spec = {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}, "gpus": [{"name": "g", "deviceName": device}]}
    kind = "VirtualMachineClusterInstancetype"
    return {"apiVersion": INSTANCETYPES, "kind": kind, "metadata": {"name": "a100.small"}, "spec": spec}


class ExplainScenario(Scenario):
    """Pools, VMs, and a reader who asks about them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reader = Account.make(self.cluster, "reader")
        template = self.get("daemonset", "virt-handler")["spec"]["template"]
        self.stock: str = template["spec"]["initContainers"][0]["image"]

    def explain(self, **arguments: Any) -> dict[str, Any]:
        """Return what the module answers a user who may only read."""
        result = self.module("explanation_info", kubeconfig=str(self.reader.kubeconfig), **arguments)
        assert not result.get("failed"), result
        return result

    def vm(self, what: str, name: str) -> dict[str, Any]:
        return self.get(what, name, "-n", VMS)

    def run_vm(self, name: str) -> dict[str, Any]:
        """Start a VM, and return the launcher pod that it gets."""
        self.patch(f"virtualmachine/{name}", merge={"spec": {"runStrategy": "Always"}})
        return self.launcher_pod(name)

    def patch(self, what: str, *patch: Any, merge: Any = None) -> None:
        if what.startswith("virtualmachine/"):
            self.cluster.kubectl("patch", "-n", VMS, *what.split("/"), "--type=merge", "-p", json.dumps(merge))
        else:
            super().patch(what, *patch, merge=merge)

    def launcher_pod(self, vmi: str) -> dict[str, Any]:
        def live_pods() -> list[dict[str, Any]]:
            pods = self.get("pods", "-n", VMS, "-l", f"vm.kubevirt.io/name={vmi}")["items"]
            return [pod for pod in pods if pod["status"].get("phase") != "Succeeded"]

        return self.cluster.wait(live_pods, 30, f"the launcher pod of {vmi}")[0]

    def wait_until_running(self, *names: str) -> None:
        def phases() -> bool:
            items = self.get("virtualmachineinstances.kubevirt.io", "-n", VMS)["items"]
            running = {i["metadata"]["name"] for i in items if i.get("status", {}).get("phase") == "Running"}
            return set(names) <= running

        self.cluster.wait(phases, 40, f"{names} to run")


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> ExplainScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=2, labels={"accelerator": "a100"}, capacity={A100: 4}),
        Nodes(prefix="fast-", count=1, labels={"accelerator": "fast"}),
        Nodes(prefix="node-", count=2),
        Nodes(prefix="arm-", count=1, arch="arm64"),
    )
    scenario = ExplainScenario(start_cluster(fleet))
    scenario.site(POOLS).succeeded()
    scenario.apply(instancetype(A100))
    return scenario


def test_a_halted_vm_gets_what_its_explanation_says(scenario: ExplainScenario) -> None:
    reference = {"instancetype": {"name": "a100.small"}}
    scenario.apply(vm("train", {"metadata": {}, "spec": {"domain": {"devices": {}}}}, **reference))
    run = playbooks.run("explain", scenario.reader.kubeconfig, virtpools_vm=f"{VMS}/train").succeeded()
    (explained,) = [task.result for task in run.results_of("virtpools.kubevirt.explanation_info")]
    assert (explained["pool"], explained["image"]) == ("a100", IMAGE)
    assert explained["state"].startswith("is not running")
    (case,) = explained["cases"]
    assert (case["when"], case["nodes"]["names"]) == ("next start", ["a100-00", "a100-01"])
    assert [(each["pool"], each["state"]) for each in case["pools"]] == [("a100", "wins"), ("fast", "no match")]

    pod = LauncherPod.from_object(scenario.run_vm("train"), {})
    assert set(pod.launcher_images.values()) == {explained["image"]}
    scenario.wait_until_running("train")
    again = scenario.explain(vm=f"{VMS}/train")
    assert again["state"].startswith("Running on node a100-")
    (now,) = again["pods"]
    assert (now["verdict"], now["owner"], now["pool"]) == ("correct", "a100", "a100")
    assert set(now["images"].values()) == {IMAGE}
    assert [each["pool"] for each in again["cases"]] == ["a100", "a100"]
    assert "not possible; KubeVirt reports" in again["notes"]["live migration"]


def test_the_revision_applies_and_not_the_changed_instancetype(scenario: ExplainScenario) -> None:
    scenario.apply(instancetype("nvidia.com/other"))
    pinned = scenario.explain(vm=f"{VMS}/train")
    assert [(each["when"], each["pool"]) for each in pinned["cases"]] == [("now", "a100"), ("next start", "a100")]
    scenario.apply(
        vm("new", {"metadata": {}, "spec": {"domain": {"devices": {}}}}, instancetype={"name": "a100.small"})
    )
    assert scenario.explain(vm=f"{VMS}/new")["pool"] == "primary"
    scenario.apply(instancetype(A100))


def test_the_pods_requests_are_predicted_for_every_kind_of_vm(scenario: ExplainScenario) -> None:
    expected = {}
    for name, spec in KINDS.items():
        made = vm(f"kind-{name}", template({"kind": name}, **spec), runStrategy="Always")
        expected[name] = predict(made["spec"]["template"], VMS, name=f"kind-{name}")
        scenario.apply(made)
    for name, found in expected.items():
        real = LauncherPod.from_object(scenario.launcher_pod(f"kind-{name}"))
        assert found.attributes.devices <= real.attributes.devices, name
        assert not [
            device for device in real.attributes.devices - found.attributes.devices if "kubevirt.io" not in device
        ], name
        added = set(real.attributes.node_selector.items()) - set(found.attributes.node_selector.items())
        assert found.attributes.node_selector.items() <= real.attributes.node_selector.items(), name
        assert all(key.startswith("machine-type.node.kubevirt.io/") for key, _value in added), name
        assert found.attributes.labels.items() <= real.attributes.labels.items(), name
        assert found.placement.terms == real.placement.without_owner().terms, name
    scenario.wait_until_running("kind-plain")
    migratable = scenario.explain(vm=f"{VMS}/kind-plain")
    assert migratable["cases"][-1]["pool"] == "primary"
    (other,) = {"node-00", "node-01"} - {migratable["pods"][0]["node"]}
    assert migratable["cases"][-1]["nodes"]["names"] == [other]


def test_a_changed_template_is_explained_for_the_next_start(scenario: ExplainScenario) -> None:
    labels = {"spec": {"template": {"metadata": {"labels": {"class": "fast"}}}}}
    scenario.patch("virtualmachine/kind-plain", merge=labels)
    result = scenario.explain(vmi=f"{VMS}/kind-plain")
    assert {each["when"]: each["pool"] for each in result["cases"]} == {
        "now": "primary",
        "next start": "fast",
        "live migration": "primary",
    }
    assert [each["image"] for each in result["cases"]] == [scenario.stock] * 3


def test_a_manifest_is_explained_before_it_exists_and_for_a_list(scenario: ExplainScenario, tmp_path: Path) -> None:
    manifest = tmp_path / "vm.json"
    manifest.write_text(json.dumps(vm("later", template({"class": "fast"}, **KINDS["gpu"]))))
    found = scenario.explain(manifest=str(manifest))
    assert (found["state"], found["pool"]) == ("not in the cluster", "a100")
    assert [answer["state"] for answer in found["cases"][0]["pools"]] == ["wins", "matches"]
    found = scenario.explain(manifest=str(manifest), pools=POOLS[::-1])
    assert (found["pool"], found["image"], found["cases"][0]["nodes"]["count"]) == ("fast", scenario.stock, 0)
    assert "offers no" in found["text"][-1]
    with scenario.no_writes():
        assert scenario.explain(vm=f"{VMS}/train", pools=POOLS[:1], prune=True)["pool"] == "a100"


def test_a_dump_says_the_same_as_the_cluster(scenario: ExplainScenario, tmp_path: Path) -> None:
    scenario.wait_until_running("train", "kind-gpu")
    online = [scenario.explain(vm=f"{VMS}/{name}") for name in ("train", "kind-gpu")]
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "all.json").write_text(scenario.cluster.kubectl("get", "-A", "-o", "json", DUMPED))
    (dump / "types.json").write_text(json.dumps(instancetype(A100)))
    for name, expected in zip(("train", "kind-gpu"), online, strict=True):
        offline = scenario.explain(vm=f"{VMS}/{name}", dump=str(dump))
        assert {**offline, "invocation": None} == {**expected, "invocation": None}


def test_a_vm_that_is_not_there_fails_with_a_sentence(scenario: ExplainScenario) -> None:
    found = scenario.module("explanation_info", vm=f"{VMS}/nobody")
    assert found["msg"].startswith(f"VirtualMachine {VMS}/nobody is not in the cluster at https://")
