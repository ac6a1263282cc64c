# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Verification of VMs on a real control plane: it finds nothing where nothing is wrong, and each fault by its own code.

One cluster; the tests run in order: nothing is wrong, then a dump, then many faults at once, then a broken policy.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import playbooks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import vm_verification
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verification import Verifier
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import goals, plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from local_cluster import Fleet, Nodes
from playbooks import Account, Run
from scenario import FORMER_OWNER, NAMESPACE, OWNER, Object, Scenario, pool

A100_DEVICE, L40S_DEVICE = "nvidia.com/GA100_A100_PCIE_40GB", "nvidia.com/AD102GL_L40S"
POLICY, CANDIDATE = "virtpools-launcher", "virtpools-launcher-candidate"
LEFT_BEHIND = "virtpools-pull-0f5aa9d8fdf7cd7e"
"""The name of the pod that pulls images to node-02."""
VMS = "default"
DUMPED = (
    "kubevirts.kubevirt.io",
    "nodes",
    "daemonsets",
    "pods",
    "virtualmachineinstances.kubevirt.io",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
)


def gpu_pool(name: str, device: str, **fields: Any) -> Object:
    """Return a pool with a launcher image, for VMs with this device."""
    image = f"registry.example/virt-launcher:v1.9.0-{name}"
    return pool(name, name, **{"virtLauncherImage": image, "selector": {"deviceNames": [device]}, **fields})


A100, L40S = gpu_pool("a100", A100_DEVICE), gpu_pool("l40s", L40S_DEVICE)
POOLS = [A100, L40S]


def vm(name: str, device: str = "", node: str = "", *, cpus: int = 1, **labels: str) -> Object:
    """Return a VM that asks for this device, and for this node or nodes with these labels."""
    devices: Object = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    if device:
        devices["gpus"] = [{"name": "gpu", "deviceName": device}]
    selected = {**labels, **({"kubernetes.io/hostname": node} if node else {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": VMS},
        "spec": {
            "nodeSelector": selected,
            "domain": {"devices": devices, "resources": {"requests": {"cpu": str(cpus), "memory": "64Mi"}}},
            "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41"}}],
        },
    }


class VerifyScenario(Scenario):
    """Two pools with VMs."""

    def start_vms(self, *wanted: Object) -> None:
        self.apply({"apiVersion": "v1", "kind": "List", "items": list(wanted)})
        names = {each["metadata"]["name"] for each in wanted}

        def running() -> bool:
            vmis = self.get("vmis", "-n", VMS)["items"]
            return names <= {v["metadata"]["name"] for v in vmis if v.get("status", {}).get("phase") == "Running"}

        self.cluster.wait(running, 60, "the VMs to run", interval=0.5)

    def verify(self, **arguments: Any) -> Object:
        """Return what the module verification_info says."""
        result = self.module("verification_info", **arguments)
        assert not result.get("failed"), result
        return result

    def launcher(self, name: str) -> Object:
        """Return the launcher pod of a VM."""
        (pod,) = self.get("pods", "-n", VMS, "-l", f"vm.kubevirt.io/name={name}")["items"]
        return dict(pod)

    def dump(self, folder: Path) -> None:
        for what in DUMPED:
            (folder / f"{what}.json").write_text(self.cluster.kubectl("get", what, "-A", "-o", "json"), "utf-8")


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> VerifyScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=4, labels={"accelerator": "a100"}, capacity={A100_DEVICE: 4}),
        Nodes(prefix="l40s-", count=4, labels={"accelerator": "l40s"}, capacity={L40S_DEVICE: 4}),
        Nodes(prefix="node-", count=3),
    )
    scenario = VerifyScenario(start_cluster(fleet))
    scenario.start_vms(vm("old", A100_DEVICE, "a100-03"))
    scenario.site(POOLS).succeeded()
    scenario.start_vms(
        vm("image", A100_DEVICE, "a100-00"),
        vm("log", A100_DEVICE, "a100-00"),
        vm("strayed", A100_DEVICE, "a100-01"),
        vm("uncovered", A100_DEVICE, "a100-02"),
        vm("other", L40S_DEVICE, "l40s-03"),
        vm("plain", node="node-00"),
    )
    return scenario


# In order -----------------------------------------------------------------------------------------------------------


def test_a_vm_that_is_older_is_listed(scenario: VerifyScenario) -> None:
    result = scenario.verify()
    assert (result["healthy"], result["listed"]) == (True, {"outdated": 1}), result["text"]
    (listed,) = result["vms"]
    assert (listed["name"], listed["pool"], listed["verdict"], listed["remedy"]) == (
        "old",
        "a100",
        "outdated",
        "restart",
    )
    assert listed["reason"].endswith("it is older than the launcher policy")


def test_a_cluster_in_order(scenario: VerifyScenario, tmp_path: Path) -> None:
    scenario.cluster.kubectl("delete", "vmi", "-n", VMS, "old")
    scenario.cluster.wait(
        lambda: not scenario.get("pods", "-n", VMS, "-l", "vm.kubevirt.io/name=old")["items"], 30, "its end"
    )
    reader = Account.make(scenario.cluster, "reader")
    page = tmp_path / "page.html"
    with scenario.no_writes():
        run = playbooks.run("verify", reader.kubeconfig, None, virtpools_report_html=str(page)).succeeded()
    (task,) = run.results_of("virtpools.kubevirt.verification_info")
    found = task.result
    assert (found["healthy"], found["findings"], found["vms"], found["nodes"]) == (True, [], [], []), found["text"]
    assert found["verdicts"]["correct"] == found["counts"]["vms"] == 6
    assert found["summary"] == "Everything is in order: 6 VMs on 11 nodes with 2 pools."
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert run.changed == 0


def keep(scenario: VerifyScenario, reader: Account, configmap: str, **variables: Any) -> Run:
    """Verify as a reader who may write this ConfigMap and no other."""
    namespace, name = configmap.split("/")
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reports", "namespace": namespace}}
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"], "resourceNames": [name]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reports"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": reader.user}
    scenario.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    scenario.apply({**kind, "kind": "Role", "rules": rules})
    scenario.apply({**kind, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})
    return playbooks.run("verify", reader.kubeconfig, None, virtpools_report_configmap=configmap, **variables)


def test_a_report_outlives_the_job(scenario: VerifyScenario, tmp_path: Path) -> None:
    reader = Account.make(scenario.cluster, "reader")
    page = tmp_path / "page.html"
    run = keep(scenario, reader, "reports/verified", virtpools_report_html=str(page)).succeeded()
    assert run.changed == 1
    stored = scenario.get("configmap", "verified", "-n", "reports")
    assert set(stored["data"]) == {"report.txt", "report.json", "report.html"}
    assert "6 VMs on 11 nodes with 2 pools" in stored["data"]["report.txt"]
    assert json.loads(stored["data"]["report.json"])["counts"]["vms"] == 6
    assert stored["data"]["report.html"].startswith("<!DOCTYPE html>")
    assert page.is_file()
    assert " on " in stored["metadata"]["annotations"]["virtpools.io/reported-by"]
    folder = next(task.result["path"] for task in run.tasks if task.action == "ansible.builtin.tempfile")
    assert not Path(folder).exists()


@pytest.mark.thorough  # verification_report replaces one in memory
def test_a_newer_report_replaces_it(scenario: VerifyScenario) -> None:
    stored = scenario.get("configmap", "verified", "-n", "reports")
    keep(scenario, Account.make(scenario.cluster, "reader"), "reports/verified").succeeded()
    newer = scenario.get("configmap", "verified", "-n", "reports")
    assert newer["data"]["report.txt"] != stored["data"]["report.txt"]


@pytest.mark.thorough  # verification_report refuses them in memory
def test_a_configmap_that_cannot_have_the_report(scenario: VerifyScenario) -> None:
    reader = Account.make(scenario.cluster, "reader")
    error = keep(scenario, reader, "kubevirt/virtpools-history").refused()
    assert "ConfigMap kubevirt/virtpools-history exists and has no reports of ours" in error
    configmap = {"virtpools_report_configmap": "kube-public/verified"}
    error = playbooks.run("verify", reader.kubeconfig, None, **configmap).refused()
    assert "Not allowed to create ConfigMap verified in namespace kube-public" in error
    writer = Account.make(scenario.cluster, "writer")
    configmap = {"virtpools_report_configmap": "missing/verified"}
    error = playbooks.run("verify", writer.kubeconfig, None, **configmap).refused()
    assert 'namespaces "missing" not found' in error


def test_probes_prove_that_the_policy_acts(scenario: VerifyScenario) -> None:
    result = scenario.verify(probe=True, pools=POOLS)
    assert (result["problems"], result["policy"]["state"]) == ({}, "live")


# Offline ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dumped(scenario: VerifyScenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dump")
    scenario.dump(folder)
    return folder


@pytest.fixture(scope="module")
def objects(dumped: Path) -> list[Object]:
    return [obj for file in dumped.iterdir() for obj in json.loads(file.read_text("utf-8"))["items"]]


def test_a_dump_says_the_same(scenario: VerifyScenario, dumped: Path) -> None:
    online, offline = scenario.verify(), scenario.verify(dump=str(dumped), kubeconfig="/nonexistent")
    # But for the name of the cluster.
    assert online["text"][1:] == offline["text"]
    of_cluster = ("invocation", "server", "uid", "text")
    said = [{key: value for key, value in each.items() if key not in of_cluster} for each in (offline, online)]
    assert said[0] == said[1]


def messages(objects: list[Object], code: str, pools: list[Object] | None = None) -> list[str]:
    """Return the messages of a verification of these objects that are errors with this code."""
    found = snapshot.from_objects(objects)
    if pools is None:
        made = plan.make_plan(found, goals.recorded(found), goals.recorded_options(found, Options()))
    else:
        made = plan.make_plan(found, read_dialect(OWN, pools), Options())
    report = vm_verification.verify_dump(objects, Verifier(made))
    return [each.message for each in report.findings if (each.severity, each.code) == ("error", code)]


@pytest.mark.parametrize(
    ("pools", "code", "named"),
    [
        ([*POOLS, gpu_pool("h100", "nvidia.com/H100")], "daemonset_missing", "Pool h100 has no DaemonSet"),
        ([gpu_pool("a100", A100_DEVICE, virtHandlerImage="registry.example/virt-handler:v1.8.0"), L40S], "version_skew", "Pool a100"),
        (POOLS[::-1], "policy_outdated", f"Launcher policy {POLICY}"),
        ([gpu_pool("a100", "nvidia.com/other"), L40S], "daemonset_drift", "DaemonSet virt-handler-a100"),
        ([{**A100, "nodeSelector": {"kubernetes.io/hostname": "a100-00"}}, L40S], "wrong_owner", "a100-01 (a100, not primary)"),
        ([pool(name, name, unmatched="allow") for name in ("a100", "l40s")], "policy_not_needed", POLICY),
    ],
)  # fmt: skip
def test_a_list_that_differs_from_the_cluster(
    objects: list[Object], pools: list[Object], code: str, named: str
) -> None:
    assert any(named in message for message in messages(objects, code, pools))


def degraded(objects: dict[str, list[Object]]) -> None:
    objects["KubeVirt"][0]["status"]["conditions"] = [{"type": "Degraded", "status": "True", "message": "broken"}]


def without_exclusion(objects: dict[str, list[Object]]) -> None:
    primary = next(each for each in objects["DaemonSet"] if each["metadata"]["name"] == "virt-handler")
    del primary["spec"]["template"]["spec"]["affinity"]


def foreign_handler(objects: dict[str, list[Object]]) -> None:
    (pod,) = _handlers_of("a100-00", objects)
    pod["metadata"]["ownerReferences"][0]["name"] = "virt-handler-l40s"


def endless_updates(objects: dict[str, list[Object]]) -> None:
    objects["KubeVirt"][0]["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}


def dead_node(objects: dict[str, list[Object]]) -> None:
    node = next(each for each in objects["Node"] if each["metadata"]["name"] == "a100-02")
    (pod,) = _handlers_of("a100-02", objects)
    for each in (node, pod):
        each["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


def _handlers_of(node: str, objects: dict[str, list[Object]]) -> list[Object]:
    pods = [each for each in objects["Pod"] if each["metadata"]["labels"].get("kubevirt.io") == "virt-handler"]
    return [each for each in pods if each["spec"].get("nodeName") == node]


@pytest.mark.parametrize(
    ("plant", "code", "named"),
    [
        (degraded, "kubevirt_degraded", "kubevirt/kubevirt is degraded: broken"),
        (without_exclusion, "exclusion_missing", "the primary virt-handler"),
        (foreign_handler, "wrong_handler", "a100-00"),
        (endless_updates, "workload_updates_never_end", "LiveMigrate"),
        (dead_node, "no_ready_handler", f"{VMS}/uncovered"),
    ],
)
def test_a_fault_in_a_dump(
    objects: list[Object], plant: Callable[[dict[str, list[Object]]], None], code: str, named: str
) -> None:
    by_kind: dict[str, list[Object]] = {}
    for obj in copy.deepcopy(objects):
        by_kind.setdefault(obj["kind"], []).append(obj)
    plant(by_kind)
    assert any(named in message for message in messages([obj for each in by_kind.values() for obj in each], code))


# Planted ------------------------------------------------------------------------------------------------------------


FAULTS = [
    ("wrong_image", f"{VMS}/image"),
    ("wrong_image", f"{VMS}/log"),
    ("wrong_node", f"{VMS}/strayed"),
    ("no_ready_handler", f"{VMS}/uncovered"),
    ("pending", f"{VMS}/stuck"),
    ("pending", f"{VMS}/full"),
    ("wrong_owner", "a100-01 (primary, not a100)"),
    ("handler_not_ready", "a100-02"),
    ("two_handlers", "l40s-00"),
    ("in_transit", "l40s-01"),
    ("handler_outdated", "l40s-02"),
    ("handover_unfinished", "l40s-03"),
    ("owner_unknown", "node-01 (ghost)"),
    ("no_handler", "node-01"),
    ("daemonset_not_ready", "DaemonSet virt-handler-a100"),
    ("daemonset_drift", "DaemonSet virt-handler-l40s"),
    ("pull_pods_left", LEFT_BEHIND),
    ("policy_candidate_left", CANDIDATE),
]


@pytest.fixture(scope="module")
def planted(scenario: VerifyScenario) -> Object:
    """Plant all faults at once, and verify until exactly these are found, or time is up."""
    evil = {"op": "replace", "value": "registry.example/virt-launcher:v1.9.0-evil"}
    for name, kind, container in (("image", "containers", "compute"), ("log", "initContainers", "guest-console-log")):
        pod = scenario.launcher(name)
        at = [each["name"] for each in pod["spec"][kind]].index(container)
        patch = json.dumps([{**evil, "path": f"/spec/{kind}/{at}/image"}])
        scenario.cluster.kubectl("patch", "pod", pod["metadata"]["name"], "-n", VMS, "--type=json", "-p", patch)
    scenario.apply(
        {"apiVersion": "v1", "kind": "List", "items": [vm("stuck", A100_DEVICE, zone="x"), vm("full", cpus=900)]}
    )
    for node, owner in (("a100-01", None), ("l40s-01", "in_transit"), ("node-01", "ghost")):
        scenario.patch(f"node/{node}", merge={"metadata": {"labels": {OWNER: owner}}})
    scenario.knob("a100-02", "never-ready")
    scenario.patch("node/l40s-03", merge={"metadata": {"annotations": {FORMER_OWNER: "primary"}}})
    _second_handler(scenario, "l40s-00")
    _old_handler(scenario, "l40s-02")
    env = {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": "DEBUG", "value": "1"}}
    scenario.patch("daemonset/virt-handler-l40s", env)
    labels = {"virtpools.io/pull": "true", "app.kubernetes.io/managed-by": "virtpools"}
    left = {"name": LEFT_BEHIND, "namespace": NAMESPACE, "labels": labels}
    container = {"name": "pull", "image": "registry.example/virt-handler:v1.9.0-l40s"}
    pull = {"restartPolicy": "Never", "containers": [container], "nodeName": "node-02"}
    scenario.apply({"apiVersion": "v1", "kind": "Pod", "metadata": left, "spec": pull})
    _candidate(scenario)

    codes = {code for code, _named in FAULTS}
    for _attempt in range(40):
        result = scenario.verify()
        if _codes(result) == codes:
            break
        time.sleep(0.5)
    return result


def _codes(result: Object) -> set[str]:
    return {each["code"] for each in result["findings"]}


def _second_handler(scenario: VerifyScenario, node: str) -> None:
    """Add a handler pod that no DaemonSet adopts, because it has an owner reference."""
    owner = scenario.get("deployment", "virt-controller")
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "virt-controller", "controller": True}
    metadata = {
        "name": "virt-handler-second",
        "namespace": NAMESPACE,
        "labels": {"kubevirt.io": "virt-handler"},
        "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
    }
    container = {"name": "virt-handler", "image": "registry.example/virt-handler:v1.9.0"}
    spec = {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    scenario.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _old_handler(scenario: VerifyScenario, node: str) -> None:
    pods = scenario.get("pods", "-l", f"{OWNER}=l40s")["items"]
    (name,) = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == node]
    scenario.patch(f"pod/{name}", merge={"metadata": {"annotations": {"virtpools.io/template": "former"}}})


def _candidate(scenario: VerifyScenario) -> None:
    live = scenario.get("mutatingadmissionpolicy", POLICY)
    metadata = {"name": CANDIDATE, "labels": live["metadata"]["labels"]}
    scenario.apply({**{key: live[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata})


@pytest.mark.parametrize(("code", "named"), FAULTS)
def test_a_planted_fault(planted: Object, code: str, named: str) -> None:
    messages = [each["message"] for each in planted["findings"] if each["code"] == code]
    assert any(named in message for message in messages), planted["text"]


def test_nothing_else_is_found(planted: Object) -> None:
    assert _codes(planted) == {code for code, _named in FAULTS}, planted["text"]


def test_what_is_said_of_the_vms(planted: Object) -> None:
    told = {each["name"]: each for each in planted["vms"]}
    assert set(told) == {"image", "log", "strayed", "uncovered", "stuck", "full"}
    assert "virt-launcher:v1.9.0-evil in container compute instead of" in told["image"]["reason"]
    assert "in init container guest-console-log instead of" in told["log"]["reason"]
    assert told["strayed"]["reason"].startswith("it runs on node a100-01 of primary, not on one of pool a100")
    # Its own nodeSelector keeps it there, so a restart alone would leave it pending.
    assert (told["strayed"]["pool"], told["strayed"]["remedy"]) == ("a100", "change placement, then restart")
    assert "none of " in told["stuck"]["reason"]
    assert " nodes fits: " in told["stuck"]["reason"]
    assert "asks for zone=x" in told["stuck"]["reason"]
    assert "Insufficient cpu" in told["full"]["reason"]
    assert planted["verdicts"]["correct"] == 2


def test_the_playbook_fails_on_it(scenario: VerifyScenario, planted: Object, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    reader = Account.make(scenario.cluster, "reader")
    run = playbooks.run("verify", reader.kubeconfig, None, virtpools_report_json=str(file))
    assert run.rc == 2
    assert run.error.startswith("Problems found: 2 wrong_image")
    assert json.loads(file.read_text("utf-8"))["problems"] == planted["problems"]


@pytest.mark.thorough  # tests of verification_info fail on what they are told to
def test_the_playbook_fails_on_what_it_is_told_to(scenario: VerifyScenario, planted: Object) -> None:
    reader = Account.make(scenario.cluster, "reader")
    wanted = {"virtpools_fail_on": ["daemonset_missing", "outdated"]}
    playbooks.run("verify", reader.kubeconfig, None, **wanted).succeeded()


# A broken policy ----------------------------------------------------------------------------------------------------


def broken(scenario: VerifyScenario, **arguments: Any) -> dict[str, str]:
    """Return the messages about the live launcher policy. (A candidate is planted and stays.)"""
    codes = {each["code"]: each["message"] for each in scenario.verify(**arguments)["findings"]}
    return {code: text for code, text in codes.items() if code.startswith("policy_") and "candidate" not in code}


def test_a_policy_whose_pods_another_policy_refuses(scenario: VerifyScenario, planted: Object) -> None:
    """Another policy of the cluster refuses the launcher pods that our policy has changed."""
    kind = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    expression = "!('virtpools.io/policy' in object.metadata.?annotations.orValue({}))"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "no changed launchers here"}],
    }
    policy = {"apiVersion": kind, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "deny"}, "spec": spec}
    bound = {"policyName": "deny", "validationActions": ["Deny"]}
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound}
    scenario.apply({"apiVersion": "v1", "kind": "List", "items": [policy, binding]})
    scenario.cluster.wait(
        lambda: "policy_failing" in broken(scenario, probe=True), 30, "the probes to be refused", interval=1
    )
    assert "no changed launchers here" in broken(scenario, probe=True)["policy_failing"]
    assert broken(scenario) == {}
    scenario.apply(vm("refused"))
    refused = scenario.cluster.wait(
        lambda: [each for each in scenario.verify()["vms"] if each["name"] == "refused"],
        30,
        "KubeVirt to say so",
        interval=1,
    )
    (told,) = refused
    assert told["verdict"] == "pending"
    assert "no changed launchers here" in told["reason"]
    scenario.cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "deny")


def test_a_policy_that_was_edited(scenario: VerifyScenario, planted: Object) -> None:
    before = scenario.get("mutatingadmissionpolicy", POLICY)["spec"]
    scenario.patch(f"mutatingadmissionpolicy/{POLICY}", merge={"spec": {"failurePolicy": "Ignore"}})
    assert "failurePolicy is 'Ignore'" in broken(scenario)["policy_edited"].replace('"', "'")
    scenario.patch(f"mutatingadmissionpolicy/{POLICY}", merge={"spec": copy.deepcopy(before)})
    assert broken(scenario) == {}


def test_a_policy_that_is_gone(scenario: VerifyScenario, planted: Object) -> None:
    scenario.cluster.kubectl("delete", "mutatingadmissionpolicybinding", POLICY)
    assert f"there is no MutatingAdmissionPolicyBinding {POLICY}" in broken(scenario)["policy_missing"]
    (told,) = [each for each in scenario.verify()["vms"] if each["name"] == "image"]
    assert told["remedy"] == "run site, then restart"
