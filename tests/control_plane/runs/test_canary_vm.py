# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""After every wave a canary VM starts; the gate passes only with it, and it is gone afterwards. In order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import RunningPlaybook, TaskResult
from scenario import Object, Scenario, pool

pytestmark = pytest.mark.thorough  # test_user_journey has canary VMs that pass, unit tests all others

DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"
IMAGE = "registry.example/virt-launcher:v1.9.0-gpu"
STOCK = "stock.example/kubevirt/virt-launcher:v1.9.0"
GPU = pool("gpu", "gpu", virtLauncherImage=IMAGE, selector={"deviceNames": [DEVICE]})
NEWER = {**GPU, "virtLauncherImage": f"{IMAGE}-newer"}
PLAIN = pool("rt", "rt")
WAVES = [{"name": "canary", "nodes": ["gpu-01", "rt-0"]}]
TITLES = {"gpu": "default/virt-canary-gpu", "rt": "default/virt-canary-rt"}
QUICK = {"agent.virtpools.io/start-seconds": "0.3", "agent.virtpools.io/stop-seconds": "0.3"}
TOO_BIG = {"spec": {"domain": {"devices": {}, "memory": {"guest": "10Ti"}}}}


@pytest.fixture(scope="module")
def scenario(start_cluster: Callable[..., LocalCluster]) -> Scenario:
    """Return a cluster with nodes for a pool with a launcher image, one for a pool without, and some for no pool."""
    gpu = Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, capacity={DEVICE: "2"}, annotations=QUICK)
    rt = Nodes(name="rt-0", labels={"accelerator": "rt"}, annotations=QUICK)
    return Scenario(start_cluster(Fleet((gpu, rt, Nodes(prefix="plain-", count=2, annotations=QUICK)))))


def start(scenario: Scenario, playbook: str, *pools: Object, **variables: Any) -> RunningPlaybook:
    """Start a playbook."""
    quick = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 30, "virtpools_gate_timeout": 30}
    return playbooks.start(playbook, scenario.writer.kubeconfig, pools or None, **{**quick, **variables})


def machines(scenario: Scenario) -> list[str]:
    """Return the virtual machines, instances and launcher pods of the cluster."""
    objects = scenario.get("vm,vmi,pods", "-A", "-l", "virtpools.io/canary")["items"]
    return [f"{each['kind']} {each['metadata']['name']}" for each in objects]


def passed(task: TaskResult) -> dict[str, tuple[str, str]]:
    """Return the node and image of every canary VM that has passed."""
    return {vm["vm"]: (vm["node"], vm["image"]) for vm in task.result["vms"]}


def tried(scenario: Scenario, **arguments: Any) -> str:
    """Return why the pool's canary VM has not passed."""
    result = scenario.module("canary_vm", pools=[NEWER, PLAIN], nodes=["gpu-01"], **arguments)
    return str(result.get("msg"))


def test_a_canary_vm_per_pool_passes_each_wave_and_is_deleted(scenario: Scenario) -> None:
    """The VMs run on the wave's nodes, with the launcher image of their pool."""
    marker = scenario.cluster.audit_marker()
    run = start(scenario, "rollout", GPU, PLAIN, virtpools_waves=WAVES, virtpools_canary_vm=True).wait().succeeded()
    first, second = (passed(task) for task in run.results_of("virtpools.kubevirt.canary_vm"))
    assert first == {TITLES["gpu"]: ("gpu-01", IMAGE), TITLES["rt"]: ("rt-0", STOCK)}
    assert second == {TITLES["gpu"]: ("gpu-00", IMAGE)}
    written = scenario.cluster.writes(marker, scenario.writer.user)
    verbs = [write.verb for write in written if write.resource == "virtualmachines.kubevirt.io"]
    assert verbs == ["create", "delete"] * 3
    assert machines(scenario) == []


def test_a_canary_vm_gets_a_new_launcher_image_before_other_vms(scenario: Scenario) -> None:
    """A pool that the wave does not change gets no canary VM."""
    variables = {"virtpools_waves": WAVES, "virtpools_stop_after_wave": "canary", "virtpools_canary_vm": True}
    run = start(scenario, "rollout", NEWER, PLAIN, **variables).wait().succeeded()
    (task,) = run.results_of("virtpools.kubevirt.canary_vm")
    assert passed(task) == {TITLES["gpu"]: ("gpu-01", NEWER["virtLauncherImage"])}


def test_a_canary_vm_without_room_says_so_and_is_gone(scenario: Scenario) -> None:
    """The message says what the scheduler says."""
    error = tried(scenario, canary_vm=TOO_BIG, timeout=5)
    assert (
        f"The gate has not passed, and the rollout stops here. Canary VM {TITLES['gpu']} of pool gpu has not passed"
        in error
    )
    assert "Insufficient memory" in error
    assert machines(scenario) == []


def test_a_canary_vm_with_a_wrong_image_does_not_pass(scenario: Scenario) -> None:
    """Without the policy it gets KubeVirt's own image; the API server takes a moment to drop a deleted policy."""
    scenario.cluster.kubectl("delete", "mutatingadmissionpolicybinding", "virtpools-launcher")
    scenario.cluster.wait(
        lambda: f"it has {STOCK} in container compute" in tried(scenario), 60, "a wrong image", interval=1
    )
    assert machines(scenario) == []


def test_the_canary_vm_of_a_dead_run_goes_with_the_pools(scenario: Scenario) -> None:
    """The removal of the pools deletes all that was made for them, and so the VM."""
    newest = {**NEWER, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-newest"}
    run = start(scenario, "site", newest, PLAIN, virtpools_canary_vm=TOO_BIG, virtpools_gate_timeout=300)
    waiting = ["VirtualMachine virt-canary-gpu", "VirtualMachineInstance virt-canary-gpu"]
    scenario.cluster.wait(lambda: machines(scenario)[:2] == waiting, 200, "the canary VM", interval=0.5)
    run.kill_all()
    assert "canary_vms_left" in scenario.findings()
    removed = start(scenario, "remove", virtpools_remove="all").wait().succeeded()
    assert f"VirtualMachine {TITLES['gpu']}: delete" in removed.changes
    scenario.cluster.wait(lambda: machines(scenario) == [], 30, "all of it to go", interval=0.5)
    assert scenario.owners() == {}
