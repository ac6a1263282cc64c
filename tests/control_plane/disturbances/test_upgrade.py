# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""An upgrade of KubeVirt that begins while a run is under way."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster import Fleet, Nodes, programs
from local_cluster.kubevirt import IMAGES
from scenario import NAMESPACE, Object, Scenario, pool

FROM, TO = programs.EARLIER, programs.KUBEVIRT
OWNERS = {"a100-00": "gpu", "a100-01": "gpu", "l40s-00": "stock"}


def pools(version: str) -> list[Object]:
    """Return a pool with a handler image of this version, and one with KubeVirt's handler and a launcher image of it."""
    stock = pool("stock", "l40s", virtLauncherImage=f"registry.example/virt-launcher:{version}-stock")
    del stock["virtHandlerImage"]
    stock["selector"] = {"vmLabels": {"matchLabels": {"workload": "stock"}}}
    return [pool("gpu", "a100", virtHandlerImage=f"registry.example/virt-handler:{version}-gpu"), stock]


@pytest.mark.thorough
def test_it_stops_the_run_and_the_next_one_follows_it(start_cluster: Any) -> None:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=2, labels={"accelerator": "a100"}),
        Nodes(prefix="l40s-", count=1, labels={"accelerator": "l40s"}),
        Nodes(prefix="node-", count=1),
    )
    scenario = Scenario(start_cluster(fleet, kubevirt=FROM))
    manifest = programs.manifest(scenario.cluster.add_kubevirt(TO), NAMESPACE, IMAGES)
    old = pools(FROM)
    scenario.site(old).succeeded()

    gpu, stock = old
    newer = [{**gpu, "imagePullSecrets": [{"name": "registry"}]}, stock]
    # The run waits for the first handler until virt-operator has begun the upgrade, however long that takes.
    running = scenario.start(newer, virtpools_max_unavailable=1, virtpools_node_timeout=600)

    def begun() -> bool:
        template = scenario.get("daemonset", "virt-handler-gpu")["spec"]["template"]
        return {"name": "registry"} in template["spec"].get("imagePullSecrets", ())

    scenario.cluster.wait(begun, 60, "the run to begin", interval=0.05)
    scenario.knob("a100-00", "never-ready")
    scenario.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    scenario.cluster.wait(
        lambda: scenario.kubevirt()["status"]["targetKubeVirtVersion"] == TO, 120, "the upgrade to begin"
    )
    scenario.knob("a100-00", None)
    said = running.wait().refused()
    assert f"is being upgraded from {FROM} to {TO}; wait until that is done, then run again." in said
    scenario.cluster.wait(lambda: scenario.kubevirt()["status"]["observedKubeVirtVersion"] == TO, 180, "the upgrade")
    scenario.wait_until_settled()

    image = f"virtHandlerImage registry.example/virt-handler:{FROM}-gpu"
    assert f"{image} is of another version than KubeVirt {TO}" in scenario.refused(old)
    accepted = [{**each, "allowSkew": True} for each in old]
    run = scenario.site(accepted, virtpools_max_unavailable=1).succeeded()
    assert "Node l40s-00: replace the handler of stock" in run.changes
    assert all(len({move["to"] for move in batch}) == len(batch) for batch in run.plan["batches"]), "one by one"
    assert scenario.handlers()["l40s-00"] == [f"{IMAGES}/virt-handler:{TO}"]
    assert scenario.handlers()["a100-00"] == [gpu["virtHandlerImage"]]
    scenario.settled(accepted)
    scenario.site(pools(TO)).succeeded()
    assert scenario.handlers()["a100-01"] == [f"registry.example/virt-handler:{TO}-gpu"]
    assert scenario.owners() == OWNERS
    assert scenario.info()["findings"] == []
