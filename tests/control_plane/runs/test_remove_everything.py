# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""After everything that the collection can write to a cluster, remove leaves it as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import playbooks
import prometheus_operator
from full_dump import differences, dump, handlers, ours
from local_cluster import Fleet, LocalCluster, Nodes
from scenario import Scenario, pool

DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"
GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage="registry.example/virt-launcher:v1.9.0-gpu",
    selector={"deviceNames": [DEVICE]},
    tolerations=[{"key": "gpu", "operator": "Exists"}],
)
EDGE = pool("edge", "edge", unmatched="keep_off")
WAVES = [{"name": "canary", "nodes": ["gpu-01"]}]
TOO_BIG = {"spec": {"domain": {"devices": {}, "memory": {"guest": "10Ti"}}}}
# What a user may have set before there were pools.
PLACEMENT = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]},
                    {"matchExpressions": [{"key": "accelerator", "operator": "Exists"}]},
                ]
            }
        }
    },
    "tolerations": [{"key": "own", "operator": "Exists"}],
}
PATCH = {
    "resourceName": "virt-handler",
    "resourceType": "DaemonSet",
    "type": "strategic",
    "patch": '{"spec": {"template": {"metadata": {"annotations": {"own": "yes"}}}}}',
}


def test_nothing_is_left_of_all_that_the_collection_can_write(
    start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, capacity={DEVICE: "2"}),
        Nodes(name="edge-0", labels={"accelerator": "edge"}),
        Nodes(prefix="plain-", count=2),
    )
    scenario = Scenario(start_cluster(fleet))
    spec = {"workloads": {"nodePlacement": PLACEMENT}, "customizeComponents": {"patches": [PATCH]}}
    scenario.patch("kubevirt/kubevirt", merge={"spec": spec})
    prometheus_operator.install(scenario.cluster)
    scenario.wait_until_settled()
    before, handlers_before = dump(scenario.cluster), handlers(scenario.cluster)

    gate = tmp_path / "gate.yml"
    gate.write_text(json.dumps([{"name": "Look", "ansible.builtin.debug": {"msg": "fine"}}]), "utf-8")
    everything: dict[str, Any] = {
        "virtpools_waves": WAVES,
        "virtpools_gates": [str(gate)],
        "virtpools_canary_vm": True,
        "virtpools_guard": True,
        "virtpools_alerts": True,
        "virtpools_assign_new_nodes": True,
        "virtpools_outdated": "correct",
        "virtpools_node_timeout": 60,
        "virtpools_gate_timeout": 60,
    }
    playbooks.run("rollout", scenario.writer.kubeconfig, [GPU, EDGE], **everything).succeeded()
    kinds = {name.split(" ")[0] for name in differences(before, dump(scenario.cluster))}
    assert {kind.partition(".")[0] for kind in kinds} >= {
        "nodes",
        "daemonsets",
        "kubevirts",
        "configmaps",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "prometheusrules",
    }

    # A power failure while a canary VM waits for room.
    newer = {**GPU, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-gpu-2"}
    stuck = {**everything, "virtpools_canary_vm": TOO_BIG, "virtpools_gate_timeout": 300}
    run = playbooks.start("rollout", scenario.writer.kubeconfig, [newer, EDGE], **stuck)
    canaries = lambda: scenario.get("vmi", "-A", "-l", "virtpools.io/canary")["items"]  # noqa: E731
    scenario.cluster.wait(lambda: run.ended() or canaries(), 120, "the canary VM", interval=0.5)
    run.kill_all()
    assert canaries()

    quick = {"virtpools_node_timeout": 60, "virtpools_remove": "all"}
    playbooks.run("remove", scenario.writer.kubeconfig, **quick).succeeded()
    scenario.wait_until_settled()
    scenario.cluster.wait(lambda: not scenario.get("pods", "-n", "default")["items"], 60, "the canary VM to end")
    assert differences(before, dump(scenario.cluster)) == {}
    assert handlers(scenario.cluster) == handlers_before
    assert ours(scenario.cluster) == []
