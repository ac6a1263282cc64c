# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import canary, explanation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verdicts import Judge
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.rendering import Defaults
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

NODES = [Node.from_object(vms.node(name, "gpu")) for name in ("gpu-0", "gpu-1")]
ON_THEM = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-0", "gpu-1"]}
OTHER = "vendor.example/other"
NAMESPACES = {"default": {}, "team-a": {"tier": "gold"}, "team-b": {"tier": "silver"}}


# What the user wants


@pytest.mark.parametrize("raw", [None, False, "", "false", "No"])
def test_values_for_no_canary_vm(raw):
    assert canary.parse(raw) is None


@pytest.mark.parametrize("raw", [True, "true", {}, {"kind": "VirtualMachineInstance"}])
def test_values_for_a_minimal_canary_vm(raw):
    wanted = canary.parse(raw)
    spec = wanted.spec["template"]["spec"]
    assert (wanted.namespace, spec["domain"]["memory"]) == ("default", {"guest": "64Mi"})
    assert "volumes" not in spec


def test_an_instance_becomes_the_template_of_a_machine():
    metadata = {"name": "x", "namespace": "team-a", "uid": "1", "labels": {"os": "x"}, "annotations": {"a": "b"}}
    raw = {"kind": "VirtualMachineInstance", "metadata": metadata, "spec": {"domain": {"cpu": {"cores": 2}}}}
    vm = canary.parse(raw).vm("virt-canary-gpu", "team-a")
    template = {"metadata": {"labels": {"os": "x"}, "annotations": {"a": "b"}}, "spec": raw["spec"]}
    assert vm["metadata"] == {"name": "virt-canary-gpu", "namespace": "team-a"}
    assert vm["spec"] == {"runStrategy": "Once", "template": template}


def test_a_machine_starts_once():
    raw = {
        "kind": "VirtualMachine",
        "metadata": {"labels": {"a": "b"}},
        "spec": {"running": True, "template": {"spec": {}}},
    }
    vm = canary.parse(raw).vm("virt-canary-gpu", "default")
    assert vm["metadata"]["labels"] == {"a": "b"}
    assert vm["spec"] == {"runStrategy": "Once", "template": {"spec": {}}}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("maybe", 'is "maybe"'),
        ([], "is an empty list"),
        ({"kind": "Pod"}, 'is of kind "Pod"'),
        ({"spec": "x"}, "metadata or spec that is not a mapping"),
        ({"kind": "VirtualMachine"}, "without spec.template.spec"),
    ],
)
def test_other_values_are_refused(raw, said):
    with pytest.raises(InputErrors) as caught:
        canary.parse(raw)
    assert said in str(caught.value)
    assert "give true, or the manifest" in str(caught.value)


# The canary VM of a pool


def drafted(*pools, raw=True, pool="gpu", table=None, nodes=NODES, namespace="default", everywhere=()):
    wanted, table = canary.parse(raw), table or Table.for_pools(pools)
    vm = wanted.vm(names.canary_vm_name(pool), namespace)
    subject = explanation.Subject(namespace, names.canary_vm_name(pool), vm=vm, namespace_labels=NAMESPACES[namespace])
    return canary.draft(wanted, pool, table, nodes, subject, Defaults(), everywhere)


def template(*pools, **fields):
    made = drafted(*pools, **fields)
    assert isinstance(made, canary.Draft), made
    return made.vm["spec"]["template"]


def test_it_is_ours_and_goes_to_the_nodes_and_no_others():
    made = drafted(vms.gpu())
    assert made.title == "default/virt-canary-gpu"
    assert made.vm["metadata"]["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.CANARY_LABEL: "gpu"}
    template = made.vm["spec"]["template"]
    assert template["metadata"]["labels"] == {names.CANARY_LABEL: "gpu"}
    assert template["spec"]["affinity"] == builders.affinity({"matchExpressions": [ON_THEM]})
    assert (template["spec"]["architecture"], template["spec"]["terminationGracePeriodSeconds"]) == ("amd64", 0)


def test_what_the_user_says_of_nodes_stays():
    own = {"key": "zone", "operator": "Exists"}
    affinity = {**builders.affinity({"matchExpressions": [own]}), "podAffinity": {"x": []}}
    affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = ["p"]
    spec = template(
        vms.gpu(), raw={"spec": {"affinity": affinity, "architecture": "arm64", "nodeSelector": {"a": "b"}}}
    )["spec"]
    required = {"nodeSelectorTerms": [{"matchExpressions": [own, ON_THEM]}]}
    assert spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == required
    assert spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == ["p"]
    assert spec["affinity"]["podAffinity"] == {"x": []}
    assert (spec["architecture"], spec["nodeSelector"]) == ("arm64", {"a": "b"})


def test_nodes_that_cannot_be_told_apart_get_none():
    twin = Node.from_object(builders.node("twin", labels={"kubernetes.io/hostname": "gpu-1"}))
    assert isinstance(drafted(vms.gpu(), everywhere=[*NODES, Node.from_object(builders.node("other"))]), canary.Draft)
    assert str(drafted(vms.gpu(), everywhere=[*NODES, twin])) == (
        "No canary VM starts for pool gpu: a VM cannot be kept to its nodes, because node twin has the same label "
        "kubernetes.io/hostname as one of them; give each node a value of its own."
    )


def test_each_pool_gets_data_volumes_of_its_own():
    disks = [{"metadata": {"name": "root", "labels": {"a": "b"}}, "spec": {"x": 1}}, {"metadata": {"name": "data"}}]
    volumes = [
        {"name": "r", "dataVolume": {"name": "root"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "o", "dataVolume": {"name": "other"}},
    ]
    raw = {
        "kind": "VirtualMachine",
        "spec": {"dataVolumeTemplates": disks, "template": {"spec": {"domain": {}, "volumes": volumes}}},
    }
    spec = drafted(vms.gpu(), raw=raw).vm["spec"]
    names_of = [each["metadata"]["name"] for each in spec["dataVolumeTemplates"]]
    assert names_of == ["virt-canary-gpu-1", "virt-canary-gpu-2"]
    assert spec["dataVolumeTemplates"][0]["metadata"]["labels"] == {"a": "b"}
    assert spec["template"]["spec"]["volumes"] == [
        {"name": "r", "dataVolume": {"name": "virt-canary-gpu-1"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "virt-canary-gpu-2"}},
        {"name": "o", "dataVolume": {"name": "other"}},
    ]
    assert disks[0]["metadata"]["name"] == "root"


EXPRESSIONS = [{"key": "class", "operator": "Exists"}, {"key": "tier", "operator": "NotIn", "values": ["x"]}]
SELECTORS = {
    "labels": ({"vmLabels": {"matchLabels": {"w": "g"}}, "deviceNames": [vms.DEVICE]}, {"w": "g"}, {}, []),
    "expressions": ({"vmLabels": {"matchExpressions": EXPRESSIONS}}, ["class"], {}, []),
    "node selector": ({"matchNodeSelector": True}, {}, {"hw": "gpu"}, []),
    "device that a node offers": ({"deviceNames": ["a.example/none", vms.DEVICE]}, {}, {}, [vms.DEVICE]),
    "device that none offers": ({"deviceNames": ["b.example/none", "a.example/none"]}, {}, {}, ["a.example/none"]),
    "architecture": ({"architectures": ["amd64"]}, {}, {}, []),
}


@pytest.mark.parametrize(("selector", "labels", "node_selector", "devices"), SELECTORS.values(), ids=SELECTORS)
def test_it_gets_what_makes_it_one_of_the_pool(selector, labels, node_selector, devices):
    made = template(vms.gpu(selector=selector))
    own = {key: value for key, value in made["metadata"]["labels"].items() if key != names.CANARY_LABEL}
    assert (list(own) if isinstance(labels, list) else own) == labels
    assert made["spec"]["nodeSelector"] == node_selector
    found = made["spec"]["domain"]["devices"].get("gpus", [])
    assert [device["deviceName"] for device in found] == devices


def test_one_that_the_pool_takes_as_it_is_gets_nothing():
    devices = {"gpus": [{"name": "g", "deviceName": vms.DEVICE}]}
    selector = {"deviceNames": [vms.DEVICE], "vmLabels": {"matchLabels": {"w": "g"}}}
    made = template(vms.gpu(selector=selector), raw={"spec": {"domain": {"devices": devices}}})
    assert made["spec"]["domain"]["devices"] == devices
    assert made["metadata"]["labels"] == {names.CANARY_LABEL: "gpu"}


def test_a_device_comes_beside_those_of_the_user():
    own = {"name": "o", "deviceName": OTHER}
    made = template(vms.gpu(), raw={"spec": {"domain": {"devices": {"gpus": [own], "rng": {}}}}})
    devices = made["spec"]["domain"]["devices"]
    assert [device["deviceName"] for device in devices["gpus"]] == [OTHER, vms.DEVICE]
    assert devices["rng"] == {}


def test_it_gets_another_image_where_an_earlier_pool_takes_it():
    labels = {"vmLabels": {"matchLabels": {"w": "g"}}}
    first = vms.gpu("first", selector=labels)
    made = template(first, vms.gpu(selector={**labels, "deviceNames": [vms.DEVICE]}))
    assert made["metadata"]["labels"] == {names.CANARY_LABEL: "gpu"}
    assert made["spec"]["domain"]["devices"]["gpus"]


PLAIN = builders.pool("gpu")
LEFT_OUT = {
    "taken by another": ([vms.gpu("first"), vms.gpu()], {}, "pool first would take it"),
    "not active": ([], {"table": Table.for_pools([vms.gpu()], images={})}, "it takes no VMs, or none yet"),
    "nothing selects": ([builders.pool("gpu", unmatched="keep_off")], {}, "it takes no VMs, or none yet"),
    "another architecture": ([vms.gpu(selector={"architectures": ["arm64"]})], {}, "its selector would not take it"),
    "for others, and not for it": (
        [vms.gpu("arch", selector={"architectures": ["amd64"]}), PLAIN],
        {},
        "pool arch would take it",
    ),
}


@pytest.mark.parametrize(("pools", "fields", "reason"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_pools_without_one(pools, fields, reason):
    assert str(drafted(*pools, **fields)) == f"No canary VM starts for pool gpu: {reason}."


def test_a_pool_that_lets_any_vm_in_gets_one_as_it_is():
    made = template(PLAIN)
    assert made["metadata"]["labels"] == {names.CANARY_LABEL: "gpu"}


@pytest.mark.parametrize(
    ("only", "home"),
    [
        (None, "default"),
        (["default", "team-b"], "default"),
        (["team-b", "team-a"], "team-a"),
        ({"matchLabels": {"tier": "silver"}}, "team-b"),
        (["gone"], None),
    ],
)
def test_its_namespace_is_one_that_the_pool_takes(only, home):
    selector = {"deviceNames": [vms.DEVICE], **({"namespaces": only} if only else {})}
    assert canary.namespace_for(Table.for_pools([vms.gpu(selector=selector)]), "gpu", "default", NAMESPACES) == home


def test_nodes_of_the_primary_have_none():
    nodes = [*NODES, Node.from_object(vms.node("rest")), Node.from_object(vms.node("moving", names.IN_TRANSIT))]
    assert canary.nodes_by_pool(nodes) == {"gpu": NODES}


def test_findings_of_a_plan():
    first, second = canary.findings([drafted(vms.gpu()), canary.LeftOut("rt", "because")])
    assert (first.severity, second.severity) == ("note", "warning")
    assert "default/virt-canary-gpu (pool gpu)" in first.message
    assert second.message == "No canary VM starts for pool rt: because."


# Whether it has passed

NAME = names.canary_vm_name("gpu")
JUDGE = Judge.for_plan(vms.plan_of())
VM = kinds.VIRTUAL_MACHINE.object(NAME, "default")


def looked(vmi, pod, vm=VM):
    return canary.result(drafted(vms.gpu()), vm, vmi, pod, JUDGE)


def instance(phase="Running", **status):
    return vms.vmi(NAME, namespace="default", phase=phase, **status)


def launcher(**fields):
    return vms.launcher(NAME, namespace="default", **fields)


def test_one_that_runs_with_the_right_image_has_passed():
    judged = looked(instance(), launcher())
    assert (judged.node, judged.expected_image) == ("gpu-0", vms.IMAGE)


FAILURE = {**VM, "status": {"conditions": [{"type": "Failure", "message": "admission webhook refuses it"}]}}
SYNCHRONIZED = {"type": "Synchronized", "status": "False", "message": "exceeded quota"}
PULL = {"containerStatuses": [{"name": "compute", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
DIED = {
    "containerStatuses": [
        {"name": "compute", "state": {"terminated": {"exitCode": 2, "reason": "Error", "message": "a\nno QEMU\n"}}}
    ]
}
WAITING = {
    "no instance": (None, None, VM, ["no VM instance yet"]),
    "no instance, and why": (None, None, FAILURE, ["no VM instance yet: admission webhook refuses it"]),
    "no pod": (
        instance("Pending", conditions=[SYNCHRONIZED]),
        None,
        VM,
        ["it stays Pending; exceeded quota; it has no launcher pod"],
    ),
    "no node": (
        instance("Scheduling", nodeName=""),
        launcher(on="", status=vms.unschedulable()),
        VM,
        ["it stays Scheduling", "3 Insufficient nvidia.com/x"],
    ),
    "no image": (instance("Scheduling"), launcher(status=PULL), VM, ["container compute: ImagePullBackOff"]),
    "ended": (
        instance("Scheduled"),
        launcher(status={"phase": "Succeeded"}),
        VM,
        ["it stays Scheduled; its launcher pod has ended (phase Succeeded)"],
    ),
    "died": (
        instance("Scheduled"),
        launcher(status={"phase": "Failed", **DIED}),
        VM,
        ["it stays Scheduled; container compute ended with exit code 2 and said 'no QEMU'"],
    ),
    "runs, and its pod is not there": (instance(), None, VM, ["it stays Running; it has no launcher pod"]),
}


@pytest.mark.parametrize(("vmi", "pod", "vm", "said"), WAITING.values(), ids=WAITING)
def test_one_that_does_not_run_yet_has_not_failed(vmi, pod, vm, said):
    problem = looked(vmi, pod, vm)
    assert not problem.final
    assert all(words in problem.message for words in said), problem.message


@pytest.mark.parametrize(
    ("vmi", "pod", "said"),
    [
        (instance("Failed"), launcher(), "its guest has ended (phase Failed)"),
        (
            instance("Failed"),
            launcher(status=DIED),
            "its guest has ended (phase Failed): container compute ended with exit code 2 and said 'no QEMU'",
        ),
        (instance("Succeeded"), None, "its guest has ended (phase Succeeded)"),
        (instance(), launcher(image=vms.STOCK), f"{vms.STOCK} in container compute"),
        (instance(nodeName="rest"), launcher(on="rest"), "not on one of pool gpu"),
    ],
)
def test_final_problems(vmi, pod, said):
    problem = looked(vmi, pod)
    assert problem.final
    assert said in problem.message


@pytest.mark.parametrize("pod", [None, launcher()])
def test_a_guest_without_its_pod_has_what_was_wrong_before(pod):
    problem = canary.result(drafted(vms.gpu()), VM, instance("Failed"), pod, JUDGE, "container compute died")
    assert problem.message == "its guest has ended (phase Failed): container compute died"


def test_nodes_of_the_pool_outside_of_the_wave_are_ignored():
    made = drafted(vms.gpu(), nodes=NODES[1:])
    problem = canary.result(made, VM, instance(), launcher(), JUDGE)
    assert problem.message == "it runs on node gpu-0, which is not one of the pool's nodes in this wave"


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("sev", {"launchSecurity": {"sev": {}}, "firmware": {"bootloader": {"efi": {"secureBoot": False}}}}),
        ("tdx", {"launchSecurity": {"tdx": {}}, "firmware": {"bootloader": {"efi": {"secureBoot": False}}}}),
        ("vhost-vsock", {"devices": {"autoattachVSOCK": True}}),
        ("vhost-net", {"devices": {"autoattachPodInterface": True}}),
        ("kvm", {}),
    ],
)
def test_it_asks_for_kubevirts_own_devices_as_kubevirt_wants(device, expected):
    pool = vms.gpu(selector={"deviceNames": [f"devices.kubevirt.io/{device}"]})
    domain = template(pool)["spec"]["domain"]
    assert "gpus" not in domain["devices"]
    assert domain["memory"] == {"guest": "64Mi"}
    for key, value in expected.items():
        assert value.items() <= domain[key].items()


def test_what_the_users_vm_has_by_itself_is_kept():
    pool = vms.gpu(selector={"deviceNames": ["devices.kubevirt.io/sev"]})
    own = {"launchSecurity": {"snp": {}}, "devices": {}}
    assert template(pool, raw={"spec": {"domain": own}})["spec"]["domain"] == own


def test_a_device_that_only_kubevirt_gives_is_said():
    pool = vms.gpu(selector={"deviceNames": ["devices.kubevirt.io/pr-helper"]})
    assert str(drafted(pool)) == (
        "No canary VM starts for pool gpu: KubeVirt itself gives device devices.kubevirt.io/pr-helper to VMs, and refuses a VM "
        "that names it; set virtpools_canary_vm to the manifest of a VM that gets it."
    )
    beside = vms.gpu(selector={"deviceNames": ["devices.kubevirt.io/pr-helper", vms.DEVICE]})
    assert template(beside)["spec"]["domain"]["devices"]["gpus"]
