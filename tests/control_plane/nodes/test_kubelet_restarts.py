# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Kubelets may restart at any moment of any run: every VM fits its node all the time. The agent watches that.

The tests run in order.
"""

from __future__ import annotations

from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, Nodes
from scenario import pool
from vm_scenario import VmScenario

GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage="registry.example/virt-launcher:v1.9.0-gpu",
    selector={"vmLabels": {"matchLabels": {"class": "gpu"}}},
)
PLAIN = {
    "name": "plain",
    "nodeSelector": {"pooled": "yes"},
    "virtHandlerImage": "registry.example/virt-handler:v1.9.0-plain",
    "unmatched": "keep_off",
}
UNTIL_GPU, UNTIL_PRIMARY = "until.virtpools.io/gpu", "until.virtpools.io/primary"
LEAVE = {"virtpools_remove_vms": "leave"}


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> VmScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}),
        Nodes(prefix="plain-", count=2),
    )
    scenario = VmScenario(start_cluster(fleet))
    scenario.wait_until_settled()
    scenario.set_up([GPU])
    return scenario


def runs_on(scenario: VmScenario, pod: dict[str, Any]) -> bool:
    """Whether the VM is still in this very pod."""
    live = scenario.get("pod", pod["metadata"]["name"], "-n", pod["metadata"]["namespace"])
    return (live["metadata"]["uid"], live["status"]["phase"]) == (pod["metadata"]["uid"], "Running")


def test_a_vm_stays_when_a_pool_takes_its_node(scenario: VmScenario) -> None:
    guest = scenario.start_vm("nobodys", **{"class": "none"})
    node = guest["spec"]["nodeName"]
    assert node.startswith("plain-")
    scenario.cluster.kubectl("label", "node", node, "pooled=yes")
    scenario.site([GPU, PLAIN]).succeeded()
    assert scenario.owners()[node] == "plain"
    assert UNTIL_PRIMARY in scenario.node(node)["labels"]
    assert runs_on(scenario, guest)
    assert scenario.ending_vms() == {}
    assert scenario.module("verification_info")["verdicts"]["at_risk"] == 0


def test_a_new_vm_keeps_off_a_node_where_another_may_stay(scenario: VmScenario) -> None:
    guest = scenario.start_vm("next", **{"class": "none"})
    assert scenario.owners().get(guest["spec"]["nodeName"]) is None
    scenario.settled([GPU, PLAIN])


def test_a_vm_stays_when_its_pool_is_pruned(scenario: VmScenario) -> None:
    guest = scenario.start_vm("gpus", **{"class": "gpu"})
    node = guest["spec"]["nodeName"]
    scenario.site([PLAIN], virtpools_prune=True, **LEAVE).succeeded()
    assert node not in scenario.owners()
    labels = [name for name in ("gpu-00", "gpu-01") if UNTIL_GPU in scenario.node(name)["labels"]]
    assert labels == [node], "the label is only where a VM needs it"
    assert runs_on(scenario, guest)
    assert scenario.ending_vms() == {}


def test_vms_stay_when_everything_is_removed(scenario: VmScenario) -> None:
    playbooks.run("remove", scenario.writer.kubeconfig, virtpools_remove="all", **LEAVE).succeeded()
    assert scenario.owners() == {}
    assert scenario.ending_vms() == {}


def test_and_when_pools_come_again(scenario: VmScenario) -> None:
    scenario.site([GPU, PLAIN]).succeeded()
    assert scenario.ending_vms() == {}


def test_a_label_changed_by_hand_puts_a_vm_at_risk(scenario: VmScenario) -> None:
    """The agent sees what a kubelet would do, or this file would prove nothing."""
    guest = scenario.start_vm("old", **{"class": "gpu"})
    node = guest["spec"]["nodeName"]
    scenario.cluster.kubectl("label", "node", node, "virtpools.io/pool-")
    scenario.cluster.wait(scenario.ending_vms, 30, "the agent to see that the VM would end")
    assert {"wrong_node", "at_risk"} & scenario.module("verification_info")["failing"].keys()
    scenario.cluster.kubectl("label", "node", node, "virtpools.io/pool=gpu")
    # A change by hand, in one step: both handlers run until the first has stopped.
    scenario.cluster.wait(lambda: scenario.info()["findings"] == [], 60, "one handler on the node")


@pytest.mark.thorough  # shows a limit that docs/design/epochs.md names
def test_vms_that_wait_may_start_where_their_pool_was(scenario: VmScenario) -> None:
    """Where a VM stays, each VM of its former pool that waited meanwhile may start, and verify finds it."""
    scenario.stop_vms()
    scenario.cluster.kubectl("cordon", "gpu-00")
    scenario.start_vm("stays", **{"class": "gpu"})
    scenario.cluster.kubectl("cordon", "gpu-01")
    waiting = [f"waits-{number}" for number in range(5)]
    for name in waiting:
        scenario.create_vm(name, **{"class": "gpu"})
    scenario.cluster.wait(lambda: len(scenario.get("pods", "-n", "default")["items"]) == 6, 60, "all pods")
    scenario.cluster.kubectl("label", "node", "gpu-01", "--overwrite", "accelerator=none", "pooled=yes")
    scenario.site([GPU, PLAIN], **LEAVE).succeeded()
    assert scenario.owners()["gpu-01"] == "plain"
    assert not any(scenario.running(name) for name in waiting), "its nodes are cordoned"
    scenario.cluster.kubectl("uncordon", "gpu-01")
    scenario.cluster.wait(lambda: all(map(scenario.running, waiting)), 60, "the VMs to start")
    assert {scenario.running(name)["spec"]["nodeName"] for name in waiting} == {"gpu-01"}
    scenario.create_vm("later", **{"class": "gpu"})
    scenario.cluster.wait(lambda: len(scenario.get("pods", "-n", "default")["items"]) == 7, 60, "the pod of another VM")
    assert scenario.module("verification_info")["verdicts"]["wrong_node"] == len(["stays", *waiting])
    assert not scenario.running("later"), "only VMs from before fit the node"
