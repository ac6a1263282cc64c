# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Pools that have changed since a run made them: pool_info finds it, and the next run repairs it. One cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from local_cluster import Fleet, Nodes
from scenario import NAMESPACE, OWNER, Scenario, pool
from watcher import Watcher

A100 = pool("a100", "a100")
L40S = pool("l40s", "l40s")
BOTH = [A100, L40S]
OWNERS = {"a100-00": "a100", "a100-01": "a100", "l40s-00": "l40s"}
DAEMONSET = "daemonset/virt-handler-a100"


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=2, labels={"accelerator": "a100"}),
        Nodes(prefix="l40s-", count=1, labels={"accelerator": "l40s"}),
        Nodes(prefix="node-", count=2),
    )
    scenario = Scenario(start_cluster(fleet))
    scenario.set_up(BOTH)
    return scenario


@pytest.fixture(autouse=True)
def in_order(scenario: Scenario) -> None:
    """Repair both pools before every test, whatever the one before left."""
    if scenario.owners() != OWNERS or scenario.info()["findings"]:
        scenario.set_up(BOTH)
        assert scenario.owners() == OWNERS


def test_a_pool_that_left_the_list_is_kept_and_reported(scenario: Scenario) -> None:
    shown = "\n".join(scenario.settled([A100]))
    assert "Pool l40s exists but is not in the list: it is kept with the nodes it has" in shown
    assert "set virtpools_prune: true" in shown


def test_a_daemonset_edited_by_hand_is_repaired_exactly(scenario: Scenario) -> None:
    before = scenario.get("daemonset", "virt-handler-a100")["spec"]
    env = {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": "DEBUG", "value": "1"}}
    label = {"op": "add", "path": "/spec/template/metadata/labels/by-hand", "value": "yes"}
    scenario.patch(DAEMONSET, env, label)
    drift = scenario.findings()["daemonset_drift"]
    assert "DaemonSet virt-handler-a100 is not what pool a100 derives from the primary" in drift
    run = scenario.site(BOTH).succeeded()
    assert run.changes == ["DaemonSet kubevirt/virt-handler-a100: update"]
    assert scenario.get("daemonset", "virt-handler-a100")["spec"] == before
    assert scenario.info()["findings"] == []
    scenario.settled(BOTH)


@pytest.mark.thorough  # test_no_harm has one that is deleted and comes back
def test_a_pool_handler_that_is_deleted_comes_back(scenario: Scenario) -> None:
    scenario.cluster.kubectl("delete", "pods", "-n", NAMESPACE, "-l", f"{OWNER}=a100")
    images = {name: [A100["virtHandlerImage"]] for name in ("a100-00", "a100-01")}
    scenario.cluster.wait(lambda: scenario.handlers().items() >= images.items(), 30, "new handlers")
    scenario.cluster.wait(lambda: scenario.info()["findings"] == [], 30, "them to be Ready")
    scenario.settled(BOTH)


def test_a_joining_node_goes_where_its_labels_say(scenario: Scenario) -> None:
    scenario.cluster.add_nodes(Fleet.from_groups(Nodes(name="joined", labels={"accelerator": "l40s"})))
    scenario.cluster.wait(lambda: "joined" in scenario.handlers(), 30, "the primary's handler")
    scenario.wait_until_settled()
    try:
        drift = scenario.findings()["node_drift"]
        assert "1 node has the labels that pool l40s selects but belongs to the primary (joined)" in drift
        assert scenario.site(BOTH).succeeded().changes == ["Node joined: primary -> l40s"]
        scenario.cluster.kubectl("label", "node", "joined", "accelerator-")
        drift = scenario.findings()["node_drift"]
        assert "1 node belongs to pool l40s without the labels that it selects (joined)" in drift
        assert scenario.site(BOTH).succeeded().changes == ["Node joined: l40s -> primary"]
    finally:
        scenario.cluster.kubectl("delete", "node", "joined")


# What pool_info finds, and what the next run does about it ----------------------------------------------------------


def _steal_handler(scenario: Scenario) -> None:
    """Delete a handler while no controller creates a new one."""
    scenario.cluster.stop_component("kube-controller-manager")
    scenario.cluster.kubectl("delete", "pods", "-n", NAMESPACE, "-l", f"{OWNER}=l40s", "--force")
    scenario.cluster.wait(lambda: "l40s-00" not in scenario.handlers(), 30)


def _add_handler(scenario: Scenario) -> None:
    """Put a second handler on a node; it has an owner reference, or the primary would adopt and delete it."""
    uid = scenario.get("configmap", "kube-root-ca.crt")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": uid, "controller": True}
    labels = {"kubevirt.io": "virt-handler"}
    containers = [{"name": "virt-handler", "image": "registry.example/virt-handler:v1.9.0"}]
    scenario.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "second", "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]},
            "spec": {"nodeName": "a100-00", "containers": containers},
        }
    )


def _in_transit(scenario: Scenario) -> None:
    scenario.cluster.kubectl("label", "node", "a100-00", f"{OWNER}=in_transit", "--overwrite")


def _unknown_owner(scenario: Scenario) -> None:
    scenario.cluster.kubectl("label", "node", "a100-00", f"{OWNER}=ghost", "--overwrite")


def _no_exclusion(scenario: Scenario) -> None:
    """Let virt-operator remove the exclusion, so that the primary runs everywhere."""
    scenario.patch("kubevirt/kubevirt", {"op": "remove", "path": "/spec/customizeComponents/patches"})
    scenario.wait_until_settled()


def _crashing(scenario: Scenario) -> None:
    scenario.knob("a100-00", "never-ready")
    scenario.cluster.wait(lambda: "handler_not_ready" in scenario.findings(), 30)


def _start_controllers(scenario: Scenario) -> None:
    scenario.cluster.start_component("kube-controller-manager")


def _remove_second(scenario: Scenario) -> None:
    scenario.cluster.kubectl("delete", "pod", "second", "-n", NAMESPACE)


def _heal(scenario: Scenario) -> None:
    scenario.knob("a100-00", None)


def _nothing(_: Scenario) -> None:
    """Leave the repair to the next run."""


FAULTS = {
    "no_handler": (_steal_handler, _start_controllers, "1 node has no handler pod: l40s-00."),
    "two_handlers": (_add_handler, _remove_second, "1 node has two handler pods, and pause, console and VNC fail there: a100-00."),
    "in_transit": (
        _in_transit,
        _nothing,
        (
            "1 node has no owner, because a handover was not finished: a100-00; unless a run is under way, "
            "run the playbook that stopped again to finish."
        ),
    ),
    "owner_unknown": (_unknown_owner, _nothing, "1 node has an owner that is not a pool: a100-00 (ghost)."),
    "handler_not_ready": (_crashing, _heal, "1 node has a handler that is not Ready: a100-00"),
    "exclusion_missing": (_no_exclusion, _nothing, "Pools exist, but the primary virt-handler is not kept off their nodes; run site."),
}  # fmt: skip
OFTEN = {"in_transit", "exclusion_missing"}
"""The faults that make test plants here; test_verify.py plants the others as well."""


@pytest.mark.parametrize(
    "code", [code if code in OFTEN else pytest.param(code, marks=pytest.mark.thorough) for code in FAULTS]
)
def test_a_fault_is_found_and_mended(scenario: Scenario, code: str) -> None:
    plant: Callable[[Scenario], None]
    plant, mend, message = FAULTS[code]
    plant(scenario)
    try:
        info = scenario.info()
        found = {finding["code"]: finding for finding in info["findings"]}
        assert message in found[code]["message"]
        assert found[code]["severity"] == "error"
        assert not info["healthy"]
    finally:
        mend(scenario)
    scenario.cluster.wait(lambda: "handler_not_ready" not in scenario.findings(), 30)
    scenario.site(BOTH).succeeded()
    assert scenario.owners() == OWNERS
    scenario.cluster.wait(lambda: scenario.info()["findings"] == [], 30, "nothing to be wrong any more")


@pytest.mark.thorough  # test_interruption and test_nodes prune pools, and unit tests make batches
def test_a_pool_that_left_the_list_is_taken_down_on_request(scenario: Scenario) -> None:
    with Watcher(scenario.cluster) as watcher:
        run = scenario.site([L40S], virtpools_prune=True, virtpools_max_unavailable=1).succeeded()
        watcher.stop()
    assert run.changes == [
        "Node a100-00: a100 -> primary",
        "Node a100-01: a100 -> primary",
        "DaemonSet kubevirt/virt-handler-a100: delete",
    ]
    assert len(run.plan["batches"]) == 2, "one by one"
    assert watcher.crowded == []
    assert scenario.owners() == {"l40s-00": "l40s"}
    assert scenario.cluster.kubectl("get", *DAEMONSET.split("/"), "-n", NAMESPACE, "--ignore-not-found") == ""
    assert all(
        image.startswith("stock.example/") for name in ("a100-00", "a100-01") for image in scenario.handlers()[name]
    )
    scenario.settled([L40S])
