# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Images that others write or need: KubeVirt's pull secrets, registry mirrors, digests. The tests run in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import playbooks
from local_cluster import Fleet, LocalCluster, Nodes
from scenario import NAMESPACE, Object, Scenario, pool

pytestmark = pytest.mark.thorough  # mirrors and digests; unit tests compare such images

VMS = "default"
STOCK = "kubevirt/virt-launcher:v1.9.0"
OURS = "gpu/virt-launcher:v1.9.0"
# The name and the tag are KubeVirt's own: only the path tells the two launcher images apart.
GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage=f"registry.example/{OURS}",
    selector={"vmLabels": {"matchLabels": {"class": "gpu"}}},
    imagePullSecrets=[{"name": "ours"}],
)
SPARE = pool("spare", "none")
"""A pool without nodes: a copy could be one of its launcher image, too."""
HOLDER = "virt-launcher-image-holder"
DIGEST = f"@sha256:{'d1' * 32}"
REWRITES = {
    "keep": "IMAGE.replace('registry.example/', 'mirror.example/').replace('stock.example/', 'mirror.example/')",
    "flat": "'mirror.example/' + IMAGE.split('/')[IMAGE.split('/').size() - 1]",
    "stock": f"'mirror.example/{STOCK}'",
    "digest": f"IMAGE.contains('@') ? IMAGE : IMAGE + '{DIGEST}'",
}
"""What somebody's webhook does with the launcher images of a pod, in CEL, by the VM's label ``mirror``."""


def policy(name: str, resource: str, condition: str, patches: str) -> list[Object]:
    """Return a mutating policy of somebody, with its binding."""
    rule = {"apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "concerned", "expression": condition}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patches}}],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    return [
        {**kind, "kind": "MutatingAdmissionPolicy", "spec": spec},
        {**kind, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}},
    ]


def patches(field: str, condition: str, image: str, value: str) -> str:
    """Return CEL that gives the items of a list another image; IMAGE in ``value`` is the one that they have."""
    parent, _, last = field.rpartition(".")
    items = f"object.{parent}.?{last}.orValue([])"
    position = f"string({items}.map(other, other.name).indexOf(item.name))"
    path = f"'/{field.replace('.', '/')}/' + {position} + '/{image.replace('.', '/')}'"
    value = value.replace("IMAGE", f"item.{image}")
    return f"{items}.filter(item, {condition}).map(item, JSONPatch{{op: 'replace', path: {path}, value: {value}}})"


def rewritten_launchers() -> list[Object]:
    """Return the policy that does what the label ``mirror`` of a pod says."""
    cases = (f"object.metadata.labels['mirror'] == '{how}' ? ({value}) : " for how, value in REWRITES.items())
    value = f"({''.join(cases)} IMAGE)"
    launcher = "item.image.contains('/virt-launcher:')"
    places = (
        patches("spec.containers", launcher, "image", value),
        patches("spec.initContainers", launcher, "image", value),
        patches("spec.volumes", "item.name == 'launcher-volume' && has(item.image)", "image.reference", value),
    )
    return policy("mirror-launchers", "pods", "'mirror' in object.metadata.?labels.orValue({})", " + ".join(places))


class ImagesScenario(Scenario):
    """VMs of a pool and others, whose launcher pods somebody's webhook rewrites."""

    def start_vms(self, *vms: tuple[str, str, str]) -> None:
        """Start VMs, each given by its name and its labels ``class`` and ``mirror``."""
        for name, kind, mirror in vms:
            metadata = {"name": name, "namespace": VMS, "labels": {"class": kind, "mirror": mirror}}
            spec = {"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}}
            vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
            self.apply({**vmi, "spec": spec})
        self.cluster.wait(lambda: all(self.phase(vm[0]) == "Running" for vm in vms), 60, "the VMs to run")

    def phase(self, name: str) -> str:
        return str(self.get("vmi", name, "-n", VMS).get("status", {}).get("phase"))

    def image(self, name: str) -> str:
        """Return the launcher image of a VM."""
        (pod,) = self.get("pods", "-n", VMS, "-l", f"vm.kubevirt.io/name={name}")["items"]
        return next(str(each["image"]) for each in pod["spec"]["containers"] if each["name"] == "compute")

    def put(self, policy: list[Object], *probe: str) -> None:
        """Put a policy in force, and wait until the API server knows it: then the probe is given another image."""
        for obj in policy:
            self.apply(obj)
        probing = ("-n", NAMESPACE, *probe, "--dry-run=server", "-o", "json")
        self.cluster.wait(lambda: "mirror.example/" in self.cluster.kubectl(*probing), 30, "the API server to know it")

    def containers(self, node: str) -> Object:
        """Return the handler pod's containers on a node, with their images, and its pull secrets."""
        field = f"--field-selector=spec.nodeName={node}"
        (pod,) = self.get("pods", "-l", "kubevirt.io=virt-handler", field)["items"]
        images = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
        return {**images, "secrets": [each["name"] for each in pod["spec"].get("imagePullSecrets", ())]}


@pytest.fixture(scope="module")
def scenario(start_cluster: Callable[..., LocalCluster]) -> ImagesScenario:
    """Return a cluster whose KubeVirt has a pull secret, with a VM that is older than the pool."""
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}), Nodes(prefix="plain-", count=1)
    )
    scenario = ImagesScenario(start_cluster(fleet))
    scenario.patch("kubevirt/kubevirt", merge={"spec": {"imagePullSecrets": [{"name": "stock"}]}})
    image = "--image=registry.example/virt-launcher:probe"
    scenario.put(rewritten_launchers(), "run", "probe", image, "--labels=mirror=keep")
    scenario.start_vms(("old", "gpu", "flat"))
    scenario.wait_until_settled()
    return scenario


def test_with_pull_secrets_pool_nodes_hold_both_launcher_images(scenario: ImagesScenario) -> None:
    """Pods that attach hotplugged disks run KubeVirt's own image, without a secret of their own."""
    stock = f"stock.example/{STOCK}"
    before = scenario.containers("plain-00")
    assert (before[HOLDER], before["secrets"]) == (stock, ["stock"])
    scenario.site([GPU, SPARE]).succeeded()
    for node in ("gpu-00", "gpu-01"):
        held = scenario.containers(node)
        assert (held[HOLDER], held[f"{HOLDER}-stock"]) == (GPU["virtLauncherImage"], stock)
        assert held["secrets"] == ["stock", "ours"]
    assert scenario.containers("plain-00") == before
    scenario.settled([GPU, SPARE])


def test_a_copy_is_told_by_its_path_or_by_the_policys_note(scenario: ImagesScenario) -> None:
    scenario.start_vms(
        ("kept", "gpu", "keep"), ("plain", "other", "keep"), ("flat", "gpu", "flat"), ("spoiled", "gpu", "stock")
    )
    images = {name: scenario.image(name) for name in ("kept", "plain", "flat", "spoiled", "old")}
    flat = "mirror.example/virt-launcher:v1.9.0"
    assert images == {
        "kept": f"mirror.example/{OURS}",
        "plain": f"mirror.example/{STOCK}",
        "flat": flat,
        "spoiled": f"mirror.example/{STOCK}",
        "old": flat,
    }
    run = playbooks.run("verify", scenario.writer.kubeconfig)
    error = run.refused()
    (task,) = run.results_of("virtpools.kubevirt.verification_info")
    found = task.result
    assert {vm["name"]: vm["verdict"] for vm in found["vms"]} == {"spoiled": "wrong_image", "old": "unknown_image"}
    assert found["problems"] == {"wrong_image": 1}
    assert found["listed"] == {"unknown_image": 1, "pool_without_nodes": 1}
    assert found["verdicts"]["correct"] == 3
    assert "1 wrong_image" in error
    spoiled, old = found["vms"]
    assert "although the launcher policy gave it the right one: something changed it afterwards" in spoiled["reason"]
    assert f"it has {flat}" in old["reason"]
    assert f"a copy of {GPU['virtLauncherImage']} or of another launcher image" in old["reason"]


def test_an_appended_digest_makes_no_vm_outdated(scenario: ImagesScenario) -> None:
    scenario.cluster.kubectl("delete", "vmi", "-n", VMS, "spoiled", "old")
    scenario.start_vms(("digest", "gpu", "digest"), ("plain-digest", "other", "digest"))
    assert scenario.image("digest") == f"registry.example/{OURS}{DIGEST}"
    assert scenario.image("plain-digest") == f"stock.example/{STOCK}{DIGEST}"
    run = playbooks.run("verify", scenario.writer.kubeconfig).succeeded()
    (task,) = run.results_of("virtpools.kubevirt.verification_info")
    assert (task.result["vms"], task.result["verdicts"]["correct"]) == ([], 5)
    with scenario.no_writes():
        run = playbooks.run("workload_update", scenario.writer.kubeconfig).succeeded()
    (task,) = run.results_of("virtpools.kubevirt.workload_update")
    assert task.result["counts"]["outdated"] == task.result["counts"]["restart"] == 0
    scenario.cluster.kubectl("delete", "vmi", "-n", VMS, "--all")


def test_images_rewritten_by_a_mirror_are_not_drift(scenario: ImagesScenario) -> None:
    field = "spec.template.spec.containers"
    expression = patches(field, "true", "image", "IMAGE.replace('registry.example/', 'mirror.example/')")
    ours = "object.metadata.name.startsWith('virt-handler-')"
    mirror = policy("mirror-daemonsets", "daemonsets", ours, expression)
    scenario.put(
        mirror, "patch", "daemonset", "virt-handler-gpu", "--type=merge", '-p={"metadata": {"labels": {"probe": ""}}}'
    )
    newer = {**GPU, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-mirrored"}
    scenario.site([newer, SPARE]).succeeded()
    assert scenario.containers("gpu-00")["virt-handler"] == "mirror.example/virt-handler:v1.9.0-mirrored"
    scenario.settled([newer, SPARE])
    assert scenario.info()["findings"] == []
    playbooks.run("verify", scenario.writer.kubeconfig).succeeded()
    edited = "virt-handler=registry.example/virt-handler:v1.9.0-by-hand"
    scenario.cluster.kubectl("set", "image", "-n", "kubevirt", "daemonset/virt-handler-gpu", edited)
    assert "mirror.example/virt-handler:v1.9.0-by-hand" in scenario.findings()["daemonset_drift"]


def test_a_removal_takes_the_images_away(scenario: ImagesScenario) -> None:
    playbooks.run("remove", scenario.writer.kubeconfig, virtpools_remove=["gpu"], virtpools_node_timeout=30).succeeded()
    daemonsets = [each["metadata"]["name"] for each in scenario.get("daemonsets")["items"]]
    assert daemonsets == ["virt-handler", "virt-handler-spare"]
    assert scenario.containers("gpu-00") == scenario.containers("gpu-01") == scenario.containers("plain-00")
