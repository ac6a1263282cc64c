# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A canary VM starts after every wave, closes the gate when it does not pass, and is gone afterwards. In order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import RunningPlaybook
from scene import Object, Scene, pool

DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"
IMAGE = "registry.example/virt-launcher:v1.9.0-gpu"
NEWER = f"{IMAGE}-newer"
STOCK = "stock.example/kubevirt/virt-launcher:v1.9.0"
GPU = pool("gpu", "gpu", virtLauncherImage=IMAGE, selector={"deviceNames": [DEVICE]})
PLAIN = pool("rt", "rt")
WAVES = [{"name": "canary", "nodes": ["gpu-01", "rt-0"]}]
TITLES = {"gpu": "default/virt-canary-gpu", "rt": "default/virt-canary-rt"}
QUICK = {"standin.virtpools.io/start-seconds": "0.3", "standin.virtpools.io/stop-seconds": "0.3"}
TOO_BIG = {"spec": {"domain": {"devices": {}, "memory": {"guest": "10Ti"}}}}


@pytest.fixture(scope="module")
def scene(start_cluster: Callable[..., LocalCluster]) -> Scene:
    """Return a cluster with nodes for a pool with VMs of its own, one for a pool without, and some that stay."""
    gpu = Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, capacity={DEVICE: "2"}, annotations=QUICK)
    rt = Nodes(name="rt-0", labels={"accelerator": "rt"}, annotations=QUICK)
    return Scene(start_cluster(Fleet((gpu, rt, Nodes(prefix="plain-", count=2, annotations=QUICK)))))


def start(scene: Scene, playbook: str, *pools: Object, **variables: Any) -> RunningPlaybook:
    """Start a playbook."""
    quick = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 30, "virtpools_gate_patience": 30}
    return playbooks.start(playbook, scene.writer.kubeconfig, pools or None, **{**quick, **variables})


def machines(scene: Scene) -> list[str]:
    """Return the virtual machines, instances and launcher pods of the cluster."""
    found = scene.get("vm,vmi,pods", "-A", "-l", "virtpools.io/canary")["items"]
    return [f"{each['kind']} {each['metadata']['name']}" for each in found]


def test_one_of_each_pool_passes_and_is_gone(scene: Scene) -> None:
    """In the first wave they run on its nodes, before the others are touched."""
    marker = scene.cluster.audit_marker()
    variables = {"virtpools_waves": WAVES, "virtpools_stop_after_wave": "canary", "virtpools_canary_vm": True}
    run = start(scene, "rollout", GPU, PLAIN, **variables).wait(200).succeeded()
    (task,) = run.of("virtpools.kubevirt.canary_vm")
    passed = {vm["vm"]: (vm["node"], vm["image"]) for vm in task.result["vms"]}
    assert passed == {TITLES["gpu"]: ("gpu-01", IMAGE), TITLES["rt"]: ("rt-0", STOCK)}
    assert [write.split()[0] for write in scene.writes(marker, "virtualmachines")] == ["create", "delete"] * 2
    assert machines(scene) == []


def test_one_gets_a_new_launcher_image_before_the_others_do(scene: Scene) -> None:
    """That is what it is for; a pool that the wave does not change has none."""
    scene.site([GPU, PLAIN]).succeeded()
    newer = {**GPU, "virtLauncherImage": NEWER}
    variables = {"virtpools_waves": WAVES, "virtpools_stop_after_wave": "canary", "virtpools_canary_vm": True}
    run = start(scene, "rollout", newer, PLAIN, **variables).wait(200).succeeded()
    (task,) = run.of("virtpools.kubevirt.canary_vm")
    assert [(vm["vm"], vm["node"], vm["image"]) for vm in task.result["vms"]] == [(TITLES["gpu"], "gpu-01", NEWER)]
    scene.site([GPU, PLAIN]).succeeded()


def test_one_with_a_wrong_image_closes_the_gate(scene: Scene) -> None:
    """Without the policy it has KubeVirt's own."""
    scene.cluster.kubectl("delete", "mutatingadmissionpolicybinding", "virtpools-launcher")
    scene.cluster.wait(lambda: "wrong" in judged(scene), 30, "the API server to forget the policy", interval=1)
    assert machines(scene) == []
    scene.site([GPU, PLAIN]).succeeded()


def judged(scene: Scene) -> str:
    """Return what is wrong with a canary VM of the pool."""
    said = scene.module("canary_vm", pools=[GPU, PLAIN], nodes=["gpu-00"], patience=20)
    return "wrong" if f"it has {STOCK} in container compute" in said.get("msg", "") else str(said)


def test_a_dead_run_leaves_one_that_a_removal_takes_away(scene: Scene) -> None:
    """Like all else of pools."""
    newer = {**GPU, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-newer"}
    run = start(scene, "site", newer, PLAIN, virtpools_canary_vm=TOO_BIG, virtpools_gate_patience=120)
    waiting = ["VirtualMachine virt-canary-gpu", "VirtualMachineInstance virt-canary-gpu"]
    scene.cluster.wait(lambda: machines(scene)[:2] == waiting, 120, "the canary VM", interval=0.5)
    run.kill_all()
    assert "canary_vms_left" in scene.findings()
    removed = start(scene, "remove", virtpools_remove="all").wait(200).succeeded()
    assert f"VirtualMachine {TITLES['gpu']}: delete" in removed.changes
    scene.cluster.wait(lambda: machines(scene) == [], 30, "all of it to go", interval=0.5)
    assert scene.owners() == {}


def test_one_that_finds_no_room_says_so(scene: Scene) -> None:
    """A rollout stops in the wave, and goes on from there when that is put right."""
    variables = {"virtpools_waves": WAVES, "virtpools_canary_vm": TOO_BIG, "virtpools_gate_patience": 5}
    error = start(scene, "rollout", GPU, PLAIN, **variables).wait(200).refused()
    assert f"Canary VM {TITLES['gpu']} of pool gpu has not passed" in error
    assert "Insufficient memory" in error
    assert scene.owners() == {"gpu-01": "gpu", "rt-0": "rt"}
    assert machines(scene) == []
