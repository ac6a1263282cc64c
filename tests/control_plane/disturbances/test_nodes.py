# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Nodes that misbehave during their handover. One cluster; each test leaves it as it was."""

from __future__ import annotations

import time
from typing import Any

import pytest

from local_cluster import Fleet, Nodes
from scenario import FORMER_OWNER, HANDS_OFF, HEARTBEAT, OWNER, TWO_HANDLERS, Object, Scenario, migration, pool
from watcher import Watcher

GPU = pool("gpu", "a100")
FRESH = pool("fresh", "a100")
GPU_NODES = ("gpu-00", "gpu-01", "gpu-02")
# The agent, which plays virt-handler, leaves VMs with this annotation alone.
TAINT = {"key": "gpu", "value": "true", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=3, labels={"accelerator": "a100"}),
        Nodes(name="tainted", labels={"accelerator": "tainted"}, taints=[TAINT]),
        Nodes(prefix="node-", count=3),
    )
    return Scenario(start_cluster(fleet))


@pytest.fixture
def pooled(scenario: Scenario) -> Scenario:
    """Return the cluster with its three GPU nodes in the pool gpu, whatever its image."""
    scenario.knob("gpu-01", None)
    if scenario.owners() != dict.fromkeys(GPU_NODES, "gpu"):
        scenario.site([GPU], virtpools_prune=True).succeeded()
    return scenario


def test_an_unpullable_image_is_found_before_any_node_changes(scenario: Scenario) -> None:
    before = {name: scenario.node(name) for name in GPU_NODES}
    handlers = scenario.handlers()
    marker = scenario.cluster.audit_marker()
    run = scenario.site([{**GPU, "virtHandlerImage": "unpullable.example/virt-handler:v1.9.0"}])
    said = run.refused()
    assert "DaemonSet kubevirt/virt-handler-gpu was not created, because 3 of 3 nodes cannot get its images." in said
    assert "gpu-00: " in said
    assert "unpullable.example/virt-handler:v1.9.0" in said
    written = {line.split()[2] for line in scenario.writes(marker)}
    assert written == {"leases.coordination.k8s.io", "pods"}, "KubeVirt does not restart its handlers for it"
    assert {name: scenario.node(name) for name in GPU_NODES} == before
    assert scenario.handlers() == handlers
    assert scenario.get("pods", "-l", "virtpools.io/pull")["items"] == []


@pytest.mark.thorough  # the agent plays what is in an image; unit tests and make test-kind have such images
def test_an_image_that_lacks_something_is_found_as_well(scenario: Scenario) -> None:
    image = "registry.example/virt-handler:incomplete"
    marker = scenario.cluster.audit_marker()
    said = scenario.site([{**GPU, "virtHandlerImage": image}]).refused()
    refused = f"DaemonSet kubevirt/virt-handler-gpu was not created, because image {image} lacks /usr/bin/virt-tail."
    assert f"{refused} Build pool images on" in said
    assert scenario.writes(marker, "nodes") == []
    assert scenario.get("pods", "-l", "virtpools.io/pull")["items"] == []


def test_a_node_whose_handler_never_comes_returns_to_its_owner(scenario: Scenario) -> None:
    before = scenario.node("gpu-01")
    scenario.knob("gpu-01", "never-ready/virt-handler-gpu")
    with Watcher(scenario.cluster) as watcher:
        run = scenario.site([GPU], virtpools_node_timeout=6)
        watcher.stop()
    said = run.refused()
    assert "1 of 3 nodes failed, and the run stops here. Node gpu-01: primary -> gpu: returned: handler pod" in said
    assert "was not Ready after 6 s; it went back to primary." in said
    assert scenario.node("gpu-01") == before
    assert scenario.owners() == {"gpu-00": "gpu", "gpu-02": "gpu"}
    assert watcher.crowded == []
    assert watcher.nodes["gpu-01"].owners == ["primary", "in_transit", "gpu", "in_transit", "primary"]
    scenario.wait_until_settled()
    info = scenario.info()
    assert info["healthy"], info["findings"]
    assert "gpu-01" in {finding["code"]: finding["message"] for finding in info["findings"]}["node_drift"]

    scenario.knob("gpu-01", None)
    again = scenario.site([GPU]).succeeded()
    assert again.changes == ["Node gpu-01: primary -> gpu"]
    assert scenario.owners() == dict.fromkeys(GPU_NODES, "gpu")
    scenario.settled([GPU])


@pytest.mark.thorough  # as an image that lacks something
def test_an_image_without_a_shell_is_used_unchecked(pooled: Scenario) -> None:
    image = "registry.example/virt-launcher:no-shell"
    pool = {**GPU, "virtLauncherImage": image, "selector": {"vmLabels": {"matchLabels": {"workload": "gpu"}}}}
    pooled.site([pool]).succeeded()
    assert pooled.owners() == dict.fromkeys(GPU_NODES, "gpu")
    found = {each["code"]: each["message"] for each in pooled.module("verification_info")["findings"]}
    assert (
        f"whether {image} (it has no /bin/sh) has all that KubeVirt needs was not checked" in found["image_unchecked"]
    )
    pooled.site([GPU]).succeeded()


@pytest.mark.thorough
def test_a_tainted_node_waits_for_a_pool_that_tolerates_it(pooled: Scenario) -> None:
    tainted = pool("tainted", "tainted")
    said = pooled.site([GPU, tainted]).succeeded().stdout
    assert "1 node should go from primary to tainted but cannot now" in said
    assert "taint gpu=true:NoSchedule is not tolerated: tainted." in said
    assert "tainted" not in pooled.owners()
    pooled.settled([GPU, tainted])

    tolerant = {**tainted, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    run = pooled.site([GPU, tolerant]).succeeded()
    assert run.changes == ["DaemonSet kubevirt/virt-handler-tainted: update", "Node tainted: primary -> tainted"]
    assert pooled.handlers()["tainted"] == [tainted["virtHandlerImage"]]
    pooled.settled([GPU, tolerant])

    assert "Node tainted: tainted -> primary" in pooled.site([GPU], virtpools_prune=True).succeeded().changes
    assert "tainted" not in pooled.handlers(), "the primary never ran there"
    assert "taint gpu=true:NoSchedule" in pooled.findings()["handler_lost"]
    pooled.cluster.kubectl("annotate", "node", "tainted", f"{HEARTBEAT}-")
    assert pooled.findings() == {}, "as on a node that never had a handler"


@pytest.mark.thorough  # unit tests hold back nodes for every reason
def test_a_node_that_is_not_ready_is_held_back_until_it_is(pooled: Scenario) -> None:
    pooled.cluster.add_nodes(Fleet.from_groups(Nodes(prefix="late-", count=2, labels={"accelerator": "a100"})))
    pooled.cluster.wait(lambda: {"late-00", "late-01"} <= set(pooled.handlers()), 30, "the primary's handlers")
    pooled.wait_until_settled()
    drift = pooled.findings()["node_drift"]
    assert "2 nodes have the labels that pool gpu selects but belong to the primary (late-00, late-01)" in drift

    pooled.cluster.set_kubelet("late-00", up=False)
    run = pooled.site([GPU]).succeeded()
    assert "because the node is not Ready: late-00." in run.stdout
    assert run.changes == ["Node late-01: primary -> gpu"]
    pooled.settled([GPU])

    pooled.cluster.set_kubelet("late-00", up=True)
    pooled.cluster.wait(lambda: pooled.findings().keys() == {"node_drift"}, 60, "the handler to be Ready again")
    assert pooled.site([GPU]).succeeded().changes == ["Node late-00: primary -> gpu"]
    pooled.settled([GPU])
    for name in ("late-00", "late-01"):
        pooled.cluster.kubectl("delete", "node", name)
    pooled.cluster.wait(lambda: not {"late-00", "late-01"} & set(pooled.handlers()), 60, "their pods to go")


def test_a_batch_waits_for_live_migrations_through_its_nodes(pooled: Scenario) -> None:
    changed = {**GPU, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-next"}
    _begin_migration(pooled, "gpu-00", "node-00")
    marker = pooled.cluster.audit_marker()
    said = pooled.site([changed], virtpools_migration_timeout=1).refused()
    assert "No node of this batch was touched, because live migrations through its nodes did not end within 1 s" in said
    assert "default/moving" in said
    assert pooled.writes(marker, "nodes") == []
    assert {image for name in GPU_NODES for image in pooled.handlers()[name]} == {GPU["virtHandlerImage"]}

    running = pooled.start([changed], virtpools_migration_timeout=120)
    lease = ("leases", "--field-selector=metadata.name=virtpools")
    pooled.cluster.wait(lambda: pooled.get(*lease)["items"], 30, "the run to begin")
    time.sleep(8)
    assert not running.ended(), running.wait()
    assert pooled.handlers()["gpu-00"] == [GPU["virtHandlerImage"]]
    _end_migration(pooled)
    run = running.wait().succeeded()
    assert _moving(pooled)["nodeName"] == "node-00"
    pooled.cluster.kubectl("delete", "vmi", "moving")
    assert run.changes == [f"Node {name}: replace the handler of gpu" for name in GPU_NODES]
    assert {image for name in GPU_NODES for image in pooled.handlers()[name]} == {changed["virtHandlerImage"]}


def _begin_migration(scenario: Scenario, source: str, target: str) -> None:
    """Begin a live migration that goes on until _end_migration."""
    scenario.cluster.kubectl("label", "node", source, "stage=here")
    devices = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    spec = {
        "nodeSelector": {"stage": "here"},
        "domain": {"devices": devices, "resources": {"requests": {"memory": "64Mi"}}},
        "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41"}}],
    }
    metadata = {"name": "moving", "namespace": "default"}
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    scenario.apply({**kind, "metadata": metadata, "spec": spec})
    scenario.cluster.wait(lambda: _moving(scenario).get("phase") == "Running", 60, "the VM to run")
    scenario.cluster.kubectl("annotate", "vmi", "moving", f"{HANDS_OFF}=")
    scenario.cluster.kubectl("label", "node", target, "stage=here")
    scenario.apply(migration("moving"))
    scenario.cluster.wait(
        lambda: _moving(scenario).get("migrationState", {}).get("targetNode") == target, 60, "the migration to begin"
    )


def _moving(scenario: Scenario) -> Object:
    """Return the status of the VM that is migrated."""
    return dict(scenario.cluster.get("vmi", "moving").get("status", {}))


def _end_migration(scenario: Scenario) -> None:
    scenario.cluster.kubectl("annotate", "vmi", "moving", f"{HANDS_OFF}-")
    scenario.cluster.wait(lambda: _moving(scenario)["migrationState"].get("completed"), 30, "the migration to end")


@pytest.mark.thorough  # test_pools has such a node
def test_a_node_that_somebody_put_in_transit_gets_its_owner_back(pooled: Scenario) -> None:
    pooled.cluster.kubectl("label", "node", "gpu-02", f"{OWNER}=in_transit", "--overwrite")
    assert "in_transit" in pooled.findings()
    run = pooled.site([GPU]).succeeded()
    assert "Node gpu-02: primary -> gpu" in run.changes
    assert pooled.info()["findings"] == []


def test_a_run_goes_on_through_a_restart_of_the_api_server(pooled: Scenario) -> None:
    marker = pooled.cluster.audit_marker()
    pooled.cluster.set_node_annotation("gpu-00", "agent.virtpools.io/stop-seconds", "5")  # time to restart it half-way
    with Watcher(pooled.cluster) as watcher:
        # An API server that starts, and all that then read it anew, take more than half a minute of a busy machine.
        running = pooled.start([FRESH], virtpools_prune=True, virtpools_node_timeout=180)
        pooled.cluster.wait(lambda: "in_transit" in pooled.owners().values(), 60, "a node in transit")
        watcher.stop()
        pooled.cluster.restart("kube-apiserver", kill=True)
        run = running.wait().succeeded()
    assert pooled.owners() == dict.fromkeys(GPU_NODES, "fresh")
    assert all(FORMER_OWNER not in pooled.node(name)["annotations"] for name in GPU_NODES)
    assert run.changes[-1] == "DaemonSet kubevirt/virt-handler-gpu: delete"
    assert all(pooled.handlers()[name] == [FRESH["virtHandlerImage"]] for name in GPU_NODES)
    assert pooled.info()["findings"] == []
    # The DaemonSet controller creates a pod again whose creation got no answer, and deletes one of the two (Kubernetes).
    controller = "system:serviceaccount:kube-system:daemon-set-controller"
    deleted = [write for write in pooled.cluster.writes(marker, controller) if write.verb == "delete"]
    twice = [write for write in deleted if write.name.startswith("virt-handler-fresh-")]
    crowded = [name for name in GPU_NODES if TWO_HANDLERS in pooled.node(name)["annotations"]]
    assert len(crowded) <= len(twice), (crowded, twice)
    pooled.settled([FRESH])
