# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plain", "labels": {}}}
RAW_POOL = {
    "name": "gpu",
    "nodeSelector": {"hw": "gpu"},
    "virtHandlerImage": builders.GPU_IMAGE,
    "virtLauncherImage": vms.IMAGE,
    "selector": {"deviceNames": [vms.DEVICE]},
}


def vm(name="vm"):
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "plain"},
        "spec": {"template": {"spec": {"domain": {"devices": {"gpus": [{"name": "g", "deviceName": vms.DEVICE}]}}}}},
    }


def cluster(*objects):
    """Everything in a cluster with the pool, its policy, and a VM that runs."""
    nodes = vms.nodes()
    for node in nodes:
        node["metadata"]["labels"]["kubernetes.io/arch"] = "amd64"
        node["status"]["allocatable"] = {vms.DEVICE: "4"}
    sets = [builders.primary(desired=1), builders.pool_daemonset(vms.gpu(), desired=2)]
    running = {**vms.vmi(), "spec": vm()["spec"]["template"]["spec"]}
    running["metadata"]["ownerReferences"] = [{"kind": "VirtualMachine", "name": "vm", "controller": True}]
    pod = vms.launcher()
    pod["metadata"]["labels"]["kubevirt.io/created-by"] = running["metadata"]["uid"]
    handlers = builders.handlers_of(nodes, sets)
    return [
        builders.excluding_kubevirt(),
        *sets,
        *nodes,
        *handlers,
        *vms.policy(),
        NAMESPACE,
        vm(),
        running,
        pod,
        *objects,
    ]


@pytest.fixture
def dump(tmp_path):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster(vm("halted"))})
    (tmp_path / "all.json").write_text(text)
    return str(tmp_path)


def test_a_vm_in_a_cluster_and_in_a_dump_is_the_same(run, dump):
    run.world = World(*cluster(vm("halted")))
    for address in ("plain/vm", "plain/halted"):
        found = run("explanation_info", vm=address)
        assert run("explanation_info", vm=address, dump=dump) | {"invocation": None} == found | {"invocation": None}
    assert not run.world.writes


def test_a_running_vm_is_correct_and_gets_the_same_again(run, dump):
    found = run("explanation_info", vmi="plain/vm", dump=dump)
    assert (found["vm"], found["pool"], found["image"]) == ("VirtualMachine plain/vm", "gpu", vms.IMAGE)
    assert [pod["verdict"] for pod in found["pods"]] == ["correct"]
    assert [(case["when"], case["pool"]) for case in found["cases"]] == [
        ("now", "gpu"),
        ("next start", "gpu"),
        ("live migration", "gpu"),
    ]
    assert found["findings"] == []
    assert found["text"][0] == "VirtualMachine plain/vm: Running on node gpu-0"
    assert not found["changed"]
    assert not run.connected


def test_a_manifest_is_explained_with_the_pools_given(run, dump, tmp_path):
    manifest = tmp_path / "new.yaml.txt"
    manifest.write_text(json.dumps(vm("new")))
    other = {**RAW_POOL, "name": "other", "nodeSelector": {"hw": "other"}, "selector": {"deviceNames": ["x/y"]}}
    found = run("explanation_info", manifest=str(manifest), dump=dump, pools=[other], prune=True)
    assert found["state"] == "not in the cluster"
    assert found["mapping"] == "as a run of site with this pool list would create it"
    assert found["pool"] == "primary"
    recorded = run("explanation_info", manifest=str(manifest), dump=dump)
    assert recorded["pool"] == "gpu"
    assert recorded["cases"][0]["nodes"]["count"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "Give exactly one of vm, vmi and manifest; none is given."),
        ({"vm": "a/b", "manifest": "x"}, "vm and manifest are given."),
        ({"vm": "plain/none"}, "VirtualMachine plain/none is not in the dump"),
        ({"manifest": "/nowhere/x.yaml"}, "/nowhere/x.yaml cannot be read"),
        ({"vm": "plain/vm", "pools": []}, "virtpools_pools is an empty list"),
    ],
)
def test_bad_input_is_refused(run, dump, arguments, words):
    assert words in run.failure("explanation_info", dump=dump, **arguments)


def test_a_cluster_without_pools_needs_a_list(run, world):
    world.put(vm())
    assert "give virtpools_pools" in run.failure("explanation_info", vm="plain/vm")
    assert run("explanation_info", vm="plain/vm", pools=[RAW_POOL])["vm"] == "VirtualMachine plain/vm"


def test_missing_rights_are_named_together(run):
    run.world = World(*cluster(), denied={("get", "virtualmachines"), ("get", "controllerrevisions")})
    message = run.failure("explanation_info", vm="plain/vm")
    assert "lacks 3 permissions" in message
    assert "get virtualmachines.kubevirt.io" in message
    assert "get controllerrevisions.apps" in message
