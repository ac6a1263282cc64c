# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Nodes that join later: on a real API server the node policy decides like the core, and each node gets one handler.

One cluster; the tests run in order: the policy by itself, then a run, nodes that join, and a removal.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

import playbooks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import (
    node_policy,
    policy_objects,
    probes,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from local_cluster import Fleet, Nodes
from scenario import OWNER, Object, Scenario, pool
from watcher import Watcher

KIND = kinds.MUTATING_ADMISSION_POLICIES[0]
A100, L40S = pool("a100", "a100"), pool("l40s", "l40s")
POOLS = [A100, L40S]
# What Karpenter labels the nodes with that it makes.
KARPENTERS = {"accelerator": "a100", "karpenter.sh/nodepool": "a100"}
KUBELET_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kubelets"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
    "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:nodes"}],
}


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(Nodes(prefix="a100-", count=1, labels=KARPENTERS), Nodes(prefix="node-", count=1))
    return Scenario(start_cluster(fleet))


def acting_as(scenario: Scenario, user: str = "", *groups: str) -> Cluster:
    who = {"impersonate_user": user, "impersonate_groups": list(groups)} if user else {}
    return Cluster.connect({"kubeconfig": str(scenario.cluster.kubeconfig), **who})


def node(name: str, labels: dict[str, str]) -> Object:
    obj: Object = kinds.NODE.object(name)
    obj["metadata"]["labels"] = labels
    return obj


# The policy ---------------------------------------------------------------------------------------------------------

VALUES = [
    "0",
    "00",
    "7",
    "08",
    "65",
    "9223372036854775807",
    "9223372036854775808",
    "0" * 40 + "9",
    "9" * 40,
    "x",
    "7x",
    "",
]


def any_pools(rng: random.Random) -> list[Object]:
    """Return pools with requirements of every kind on few keys, so that many nodes meet some."""

    def requirement() -> Object:
        key, operator = rng.choice("ab"), rng.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        if operator in ("Gt", "Lt"):
            return {
                "key": key,
                "operator": operator,
                "values": [rng.choice(["-1", "0", "7", "64", "9223372036854775806"])],
            }
        values = {"values": rng.sample(VALUES[:8], rng.randint(1, 3))} if operator in ("In", "NotIn") else {}
        return {"key": key, "operator": operator, **values}

    pools: list[Object] = []
    while len(pools) < 6:
        one = pool(f"p{len(pools)}", "any", nodeExpressions=[requirement() for _ in range(rng.randint(1, 2))])
        # A pool that no node can match is refused, so leave it out.
        with contextlib.suppress(InputErrors):
            read_dialect(OWN, [one])
            pools.append(one)
    return pools


def test_the_policy_decides_as_the_core_does(scenario: Scenario) -> None:
    cluster, name, rng = acting_as(scenario), names.CANDIDATE_NODE_POLICY, random.Random(5)
    owners: set[str | None] = set()
    for _round in range(4):
        pools = read_dialect(OWN, any_pools(rng))
        policies.put(cluster, node_policy.derive(pools, KIND, name), None, 30, Clock())
        assert policies.await_probes(cluster, node_policy.probes(pools, name), 30, Clock()) is None
        for _ in range(60):
            labels = {key: rng.choice(VALUES) for key in "ab" if rng.random() < 0.8}
            labels = {**labels, **({"accelerator": "any"} if rng.random() < 0.9 else {})}
            admitted = cluster.create(kinds.NODE, node("joins", {**labels, names.PROBE_LABEL: name}), dry_run=True)
            expected = next((each.name for each in pools if each.nodes.matches(labels)), None)
            assert probes.digest_in(admitted) == node_policy.digest_of(pools)
            assert admitted["metadata"]["labels"].get(OWNER) == expected, labels
            owners.add(expected)
    assert {None, "p0", "p5"} <= owners, "nobody, the first and the last pool"
    live = [cluster.existing(kind, name) for kind in (kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0], KIND)]
    policies.remove(cluster, policy_objects.removals(live), node_policy.plain(name), 30, Clock())


# A run --------------------------------------------------------------------------------------------------------------


def test_a_run_writes_the_policy_once(scenario: Scenario) -> None:
    """A plan without it says that new nodes of the autoscaler would belong to the primary."""
    noted = "1 node of pool a100 comes from a node group (label karpenter.sh/nodepool)"
    assert noted in "\n".join(scenario.module("plan_info", pools=POOLS)["text"])
    run = scenario.site(POOLS, virtpools_assign_new_nodes=True).succeeded()
    assert noted not in run.stdout
    written = [line for line in run.changes if names.NODE_POLICY in line]
    assert written == [f"{kind} {names.NODE_POLICY}: create" for kind in (f"{KIND}", f"{KIND}Binding")]
    assert [line for line in run.plan["changes"] if names.NODE_POLICY in line] == written
    scenario.settled(POOLS, virtpools_assign_new_nodes=True)


def test_nodes_that_join_have_the_right_owner_and_one_handler(scenario: Scenario) -> None:
    joining = Fleet.from_groups(
        Nodes(prefix="new-a100-", count=2, labels=KARPENTERS),
        Nodes(prefix="new-l40s-", count=1, labels={"accelerator": "l40s"}),
        Nodes(prefix="new-node-", count=1),
        Nodes(prefix="own-", count=1, labels={"accelerator": "l40s", OWNER: "a100"}),
    )
    owners = {"a100-00": "a100", "new-a100-00": "a100", "new-a100-01": "a100", "new-l40s-00": "l40s", "own-00": "a100"}

    def covered() -> bool:
        handlers = scenario.handlers()
        return {*handlers} == {*owners, "node-00", "new-node-00"} and all(len(pods) == 1 for pods in handlers.values())

    with Watcher(scenario.cluster) as watcher:
        scenario.cluster.add_nodes(joining)
        assert scenario.owners() == owners, "also the label that a node brought along"
        scenario.cluster.wait(covered, 30, "a handler on every node")
        watcher.stop()
    started = {(start.node, start.daemonset) for start in watcher.starts}
    joined = {"new-node-00": "virt-handler", **{name: f"virt-handler-{pool}" for name, pool in owners.items()}}
    del joined["a100-00"]
    assert started == {*joined.items()}, "no other handler, not even for a moment"
    assert scenario.handlers()["new-l40s-00"] == [L40S["virtHandlerImage"]]
    assert scenario.handlers()["new-node-00"] == scenario.handlers()["node-00"]
    scenario.cluster.kubectl("delete", "node", "own-00")


def test_a_kubelet_may_register_itself(scenario: Scenario) -> None:
    scenario.apply(KUBELET_ROLE)
    kubelet = acting_as(scenario, "system:node:kubelet-0", "system:nodes")
    admitted = kubelet.create(kinds.NODE, node("kubelet-0", {"accelerator": "a100"}), dry_run=True)
    assert admitted["metadata"]["labels"][OWNER] == "a100"


def test_a_node_that_is_relabelled_later_is_drift(scenario: Scenario) -> None:
    scenario.cluster.kubectl("label", "node", "new-node-00", "accelerator=l40s")
    assert "new-node-00" not in scenario.owners()
    assert "new-node-00" in scenario.findings()["node_drift"]
    run = scenario.site(POOLS, virtpools_assign_new_nodes=True).succeeded()
    assert [line for line in run.changes if line.startswith("Node ")] == ["Node new-node-00: primary -> l40s"]


def _edit(variable: str, expression: str) -> list[Object]:
    """Return the patch that gives the last variable of the policy, which has this name, another expression."""
    at = "/spec/variables/3"
    return [
        {"op": "test", "path": f"{at}/name", "value": variable},
        {"op": "replace", "path": f"{at}/expression", "value": expression},
    ]


def test_a_policy_changed_by_hand_is_reported_and_repaired(scenario: Scenario) -> None:
    scenario.patch(f"mutatingadmissionpolicy/{names.NODE_POLICY}", *_edit("owner", "'a100'"))
    assert names.NODE_POLICY in scenario.findings()["node_policy_edited"]
    done = scenario.module("run_part", part="node_policy", pools=POOLS, assign_new_nodes=True)
    assert done["changes"] == [f"{KIND} {names.NODE_POLICY}: update"], done
    assert "node_policy_edited" not in scenario.findings()


def test_a_removal_deletes_the_policy(scenario: Scenario) -> None:
    """It waits for the pod of a node that is gone, which Kubernetes deletes up to 60 s after the node."""
    variables = {"virtpools_remove": "all", "virtpools_max_unavailable": "100%"}
    run = playbooks.run("remove", scenario.writer.kubeconfig, None, **variables).succeeded()
    assert f"{KIND} {names.NODE_POLICY}: delete" in run.changes
    scenario.cluster.add_nodes(Fleet.from_groups(Nodes(prefix="late-", count=1, labels={"accelerator": "a100"})))
    assert scenario.owners() == {}
