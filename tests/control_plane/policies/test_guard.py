# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The guard, which a run writes unless it is switched off: kubelets and people cannot change owners, KubeVirt cannot drop
the exclusion, and runs work as before.

One cluster; the tests run in order. test_upgrade.py upgrades KubeVirt under the guard, and test_user_journey.py removes it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

import playbooks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster, ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from local_cluster import Fleet, Nodes
from merge_patch import merge_patch
from scenario import OUR_REQUIREMENT, OWNER, Object, Scenario, pool

POOLS = [pool(name, name) for name in ("a100", "l40s")]
GUARDED = {"virtpools_guard": None, "virtpools_assign_new_nodes": True}
OBJECTS = [
    f"{kind} {name}"
    for name in names.GUARDS
    for kind in (kinds.VALIDATING_ADMISSION_POLICY, kinds.VALIDATING_ADMISSION_POLICY_BINDING)
]

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=2, labels={"accelerator": "a100"}), Nodes(prefix="node-", count=2)
    )
    scenario = Scenario(start_cluster(fleet))
    allow(scenario, {"kind": "Group", "name": "system:nodes"})
    allow(scenario, {"kind": "User", "name": "labeller"})
    scenario.wait_until_settled()
    return scenario


def allow(scenario: Scenario, subject: Mapping[str, str]) -> None:
    """Give a user or group the rights of kubelets."""
    scenario.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"test-{subject['name'].replace(':', '-')}"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:node"},
            "subjects": [{"apiGroup": RBAC, **subject}],
        }
    )


def acting_as(scenario: Scenario, user: str = "", *groups: str) -> Cluster:
    """Return a client that hardly retries a failed request."""
    who = {"impersonate_user": user, "impersonate_groups": list(groups)} if user else {}
    return Cluster.connect({"kubeconfig": str(scenario.cluster.kubeconfig), **who}).retrying_for(0.1)


def kubelet(scenario: Scenario, name: str) -> Cluster:
    return acting_as(scenario, f"system:node:{name}", "system:nodes")


def owned_by(owner: str | None) -> Object:
    return {"metadata": {"labels": {OWNER: owner}}}


def status_of(node: str) -> kinds.Kind:
    """Return a kind whose object named ``status`` is the status of this node."""
    return kinds.Kind("v1", "Node", f"nodes/{node}", namespaced=False)


def joining(name: str, **labels: str) -> Object:
    node = kinds.NODE.object(name)
    node["metadata"]["labels"] = labels
    return node


def put(scenario: Scenario, *, on: bool) -> list[str]:
    """Return what the module changes."""
    done = scenario.module("run_part", part="guard", pools=POOLS, assign_new_nodes=True, guard=on)
    return list(done["changes"])


def test_a_run_puts_the_guard_in_force_once(scenario: Scenario) -> None:
    run = scenario.site(POOLS, **GUARDED).succeeded()
    written = [line for line in run.changes if "guard" in line]
    assert written == [f"{each}: create" for each in OBJECTS]
    assert [line for line in run.plan["changes"] if "guard" in line] == written
    assert scenario.owners() == {"a100-00": "a100", "a100-01": "a100"}, "moved by a run under the guard"
    with scenario.no_writes():
        assert put(scenario, on=True) == []
    assert "guard_edited" not in scenario.findings()


@pytest.mark.parametrize("who", ["kubelet", "labeller"])
def test_others_may_change_everything_but_the_owner(scenario: Scenario, who: str) -> None:
    node = "a100-00"
    other = kubelet(scenario, node) if who == "kubelet" else acting_as(scenario, "labeller")
    changes = [owned_by(owner) for owner in ("l40s", "", names.IN_TRANSIT, None)]
    changes.append({"metadata": {"labels": {f"{names.UNTIL_PREFIX}l40s": "9999999999"}}})
    for change in changes:
        for kind, name in ((kinds.NODE, node), (status_of(node), "status")):
            with pytest.raises(
                ClusterError, match="Only users with the right to assign nodeowners.virtpools.io may change them"
            ):
                merge_patch(other, kind, name, change, dry_run=False)
    merge_patch(other, kinds.NODE, node, {"metadata": {"labels": {"rack": who}}}, dry_run=False)
    beat = {"status": {"conditions": [{"type": "Tested", "status": "True"}]}}
    merge_patch(other, status_of(node), "status", beat, dry_run=True)
    assert scenario.node(node)["labels"][OWNER] == "a100"
    assert scenario.node(node)["labels"]["rack"] == who


def test_a_joining_node_may_only_have_the_owner_of_the_policy(scenario: Scenario) -> None:
    def owner_of(**labels: str) -> str | None:
        node = kubelet(scenario, "new").create(kinds.NODE, joining("new", **labels), dry_run=True)
        return dict(node["metadata"]["labels"]).get(OWNER)

    assert owner_of(accelerator="l40s") == owner_of(accelerator="l40s", **{OWNER: "l40s"}) == "l40s"
    assert owner_of(zone="a") is None
    draws = {f"{names.UNTIL_PREFIX}l40s": "9999999999"}
    for labels in (
        {"accelerator": "l40s", OWNER: "a100"},
        {OWNER: "a100"},
        {OWNER: ""},
        draws,
        {"accelerator": "l40s", **draws},
    ):
        with pytest.raises(ClusterError, match=names.OWNER_GUARD):
            owner_of(**labels)


def any_terms(rng: random.Random) -> list[Object] | None:
    """Return required node-affinity terms of a DaemonSet, or none."""
    expressions = [OUR_REQUIREMENT, {"key": OWNER, "operator": "Exists"}, {"key": "zone", "operator": "DoesNotExist"}]
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]

    def term() -> Object:
        chosen = rng.sample(expressions, rng.choice([0, 1, 2]))
        if rng.random() < 0.5 and OUR_REQUIREMENT not in chosen:
            chosen.append(OUR_REQUIREMENT)
        return {
            **({"matchExpressions": chosen} if chosen else {}),
            **({"matchFields": fields} if rng.random() < 0.3 else {}),
        }

    return [term() for _ in range(rng.randint(1, 3))] if rng.random() < 0.9 else None


def test_the_guard_judges_a_virt_handler_as_the_core_does(scenario: Scenario) -> None:
    cluster, rng = acting_as(scenario), random.Random(7)
    probe = guard._daemonset(scenario.get("daemonset", "virt-handler"))
    decided = {True: 0, False: 0}
    for _ in range(60):
        terms = any_terms(rng)
        required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        made = copy.deepcopy(probe)
        made["spec"]["template"]["spec"]["affinity"] = required if terms else rng.choice([{}, {"nodeAffinity": {}}])
        excluded = exclusion.has_exclusion(made)
        with nullcontext() if excluded else pytest.raises(ClusterError, match=names.EXCLUSION_GUARD):
            cluster.create(kinds.DAEMON_SET, made, dry_run=True)
        decided[excluded] += 1
    assert min(decided.values()) > 10


def test_kubevirt_cannot_drop_the_exclusion_and_reports_why(scenario: Scenario) -> None:
    handlers, primary = scenario.handlers(), scenario.get("daemonset", "virt-handler")
    scenario.patch("kubevirt/kubevirt", merge={"spec": {"customizeComponents": {"patches": []}}})
    scenario.cluster.wait(lambda: "guard_refuses" in scenario.findings(), 30, "KubeVirt to be refused")
    conditions = {each["type"]: each for each in scenario.kubevirt()["status"]["conditions"]}
    assert [conditions[of]["status"] for of in ("Available", "Degraded")] == ["False", "True"]
    assert names.EXCLUSION_GUARD in conditions["Degraded"]["message"]
    assert "Run its playbook site to put that back" in conditions["Degraded"]["message"]
    assert scenario.handlers() == handlers
    assert scenario.get("daemonset", "virt-handler")["spec"] == primary["spec"]
    run = scenario.site(POOLS, **GUARDED).succeeded()
    assert len(run.changes) == 1, "the exclusion"
    assert "keep the primary virt-handler off nodes" in run.changes[0]
    scenario.wait_until_settled()
    assert scenario.get("daemonset", "virt-handler")["spec"] == primary["spec"]
    assert "guard_refuses" not in scenario.findings()


def test_a_guard_changed_by_hand_is_reported_and_repaired(scenario: Scenario) -> None:
    binding = f"validatingadmissionpolicybinding/{names.OWNER_GUARD}"
    for disturb in (
        lambda: scenario.patch(binding, merge={"spec": {"validationActions": ["Audit"]}}),
        lambda: scenario.cluster.kubectl("delete", *binding.split("/")),
    ):
        disturb()
        assert names.OWNER_GUARD in scenario.findings()["guard_edited"]
        assert len(put(scenario, on=True)) == 1
        assert "guard_edited" not in scenario.findings()


def test_switched_off_the_guard_goes(scenario: Scenario) -> None:
    assert sorted(put(scenario, on=False)) == sorted(f"{each}: delete" for each in OBJECTS)
    merge_patch(kubelet(scenario, "a100-00"), kinds.NODE, "a100-00", owned_by("l40s"), dry_run=True)
    assert len(put(scenario, on=True)) == len(OBJECTS)


@pytest.mark.thorough  # test_user_journey removes it; unit tests keep the order
def test_a_removal_deletes_the_guard_between_nodes_and_exclusion(scenario: Scenario) -> None:
    variables = {"virtpools_remove": "all", "virtpools_node_timeout": 30, "virtpools_max_unavailable": "100%"}
    run = playbooks.run("remove", scenario.writer.kubeconfig, None, **variables).succeeded()
    assert run.changes == run.plan["changes"]
    deleted = [run.changes.index(f"{each}: delete") for each in OBJECTS]
    assert min(deleted) > max(number for number, line in enumerate(run.changes) if line.startswith("Node "))
    assert max(deleted) < next(number for number, line in enumerate(run.changes) if "run on every node again" in line)
    for kind in (kinds.VALIDATING_ADMISSION_POLICY, kinds.VALIDATING_ADMISSION_POLICY_BINDING):
        left = [each["metadata"]["name"] for each in scenario.get(kind.plural)["items"]]
        assert [name for name in left if "virtpools" in name] == []  # KubeVirt has some of its own
    assert scenario.owners() == {}
