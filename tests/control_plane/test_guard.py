# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The guard: kubelets and people cannot change owners, KubeVirt cannot drop the exclusion, and runs work as before.

One cluster; the tests run in order.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

import playbooks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api._client import Cluster, ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from local_cluster import Fleet, Nodes, programs
from local_cluster.kubevirt import IMAGES
from merging import merge_patch
from scene import NAMESPACE, OUR_REQUIREMENT, OWNER, Object, Scene, pool

FROM, TO = programs.EARLIER, programs.KUBEVIRT
POOLS = [pool(name, name, virtHandlerImage=f"registry.example/virt-handler:{FROM}-{name}") for name in ("a100", "l40s")]
GUARDED = {"virtpools_guard": True, "virtpools_assign_new_nodes": True}
OBJECTS = [
    f"{kind} {name}"
    for name in names.GUARDS
    for kind in (kinds.VALIDATING_ADMISSION_POLICY, kinds.VALIDATING_ADMISSION_POLICY_BINDING)
]

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def scene(start_cluster: Any) -> Scene:
    fleet = Fleet.of(Nodes(prefix="a100-", count=2, labels={"accelerator": "a100"}), Nodes(prefix="node-", count=2))
    scene = Scene(start_cluster(fleet, kubevirt=FROM))
    allow(scene, {"kind": "Group", "name": "system:nodes"})
    allow(scene, {"kind": "User", "name": "labeller"})
    scene.wait_until_settled()
    return scene


def allow(scene: Scene, subject: Mapping[str, str]) -> None:
    """Give a user or group the rights of kubelets."""
    scene.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"test-{subject['name'].replace(':', '-')}"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:node"},
            "subjects": [{"apiGroup": RBAC, **subject}],
        }
    )


def acting_as(scene: Scene, user: str = "", *groups: str) -> Cluster:
    """Return a client that hardly retries a failed request."""
    who = {"impersonate_user": user, "impersonate_groups": list(groups)} if user else {}
    return Cluster.connect({"kubeconfig": str(scene.cluster.kubeconfig), **who}).retrying_for(0.1)


def kubelet(scene: Scene, name: str) -> Cluster:
    return acting_as(scene, f"system:node:{name}", "system:nodes")


def owned_by(owner: str | None) -> Object:
    return {"metadata": {"labels": {OWNER: owner}}}


def status_of(node: str) -> kinds.Kind:
    """Return a kind whose object named ``status`` is the status of this node."""
    return kinds.Kind("v1", "Node", f"nodes/{node}", namespaced=False)


def joining(name: str, **labels: str) -> Object:
    node = kinds.NODE.object(name)
    node["metadata"]["labels"] = labels
    return node


def test_a_run_puts_the_guard_in_force_once(scene: Scene) -> None:
    run = scene.site(POOLS, **GUARDED).succeeded()
    written = [line for line in run.changes if "guard" in line]
    assert written == [f"{each}: create" for each in OBJECTS]
    assert [line for line in run.plan["changes"] if "guard" in line] == written
    assert scene.owners() == {"a100-00": "a100", "a100-01": "a100"}, "moved by a run under the guard"
    scene.settled(POOLS, **GUARDED)
    assert "guard_edited" not in scene.findings()


@pytest.mark.parametrize("who", ["kubelet", "labeller"])
def test_others_may_change_everything_but_the_owner(scene: Scene, who: str) -> None:
    node = "a100-00"
    other = kubelet(scene, node) if who == "kubelet" else acting_as(scene, "labeller")
    for owner in ("l40s", "", names.IN_TRANSIT, None):
        for kind, name in ((kinds.NODE, node), (status_of(node), "status")):
            with pytest.raises(
                ClusterError, match="only who has the right to assign nodeowners.virtpools.io may change it"
            ):
                merge_patch(other, kind, name, owned_by(owner), dry_run=False)
    merge_patch(other, kinds.NODE, node, {"metadata": {"labels": {"rack": who}}}, dry_run=False)
    beat = {"status": {"conditions": [{"type": "Tested", "status": "True"}]}}
    merge_patch(other, status_of(node), "status", beat, dry_run=True)
    assert scene.node(node)["labels"][OWNER] == "a100"
    assert scene.node(node)["labels"]["rack"] == who


def test_a_node_joins_with_the_owner_that_the_policy_gives_it_and_no_other(scene: Scene) -> None:
    def owner_of(**labels: str) -> str | None:
        node = kubelet(scene, "new").create(kinds.NODE, joining("new", **labels), dry_run=True)
        return dict(node["metadata"]["labels"]).get(OWNER)

    assert owner_of(accelerator="l40s") == owner_of(accelerator="l40s", **{OWNER: "l40s"}) == "l40s"
    assert owner_of(zone="a") is None
    for labels in ({"accelerator": "l40s", OWNER: "a100"}, {OWNER: "a100"}, {OWNER: ""}):
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


def test_the_guard_judges_a_virt_handler_as_the_core_does(scene: Scene) -> None:
    cluster, rng = acting_as(scene), random.Random(7)
    probe = guard._daemonset(scene.get("daemonset", "virt-handler"))
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


def test_kubevirt_that_was_told_to_drop_the_exclusion_cannot_and_says_so(scene: Scene) -> None:
    handlers, primary = scene.handlers(), scene.get("daemonset", "virt-handler")
    scene.patch("kubevirt/kubevirt", merge={"spec": {"customizeComponents": {"patches": []}}})
    scene.cluster.wait(lambda: "guard_refuses" in scene.findings(), 30, "KubeVirt to be refused")
    conditions = {each["type"]: each for each in scene.kubevirt()["status"]["conditions"]}
    assert [conditions[of]["status"] for of in ("Available", "Degraded")] == ["False", "True"]
    assert names.EXCLUSION_GUARD in conditions["Degraded"]["message"]
    assert "Run its playbook site to put that back" in conditions["Degraded"]["message"]
    assert scene.handlers() == handlers
    assert scene.get("daemonset", "virt-handler")["spec"] == primary["spec"]
    run = scene.site(POOLS, **GUARDED).succeeded()
    assert len(run.changes) == 1, "the exclusion"
    assert "keep the primary virt-handler off nodes" in run.changes[0]
    scene.wait_until_settled()
    assert scene.get("daemonset", "virt-handler")["spec"] == primary["spec"]
    assert "guard_refuses" not in scene.findings()


def test_the_guard_is_not_in_the_way_of_an_upgrade(scene: Scene) -> None:
    manifest = programs.manifest(scene.cluster.add_kubevirt(TO), NAMESPACE, IMAGES)
    scene.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    scene.cluster.wait(lambda: scene.kubevirt()["status"]["observedKubeVirtVersion"] == TO, 180, "the upgrade")
    scene.wait_until_settled()
    assert scene.handlers()["node-00"] == [f"{IMAGES}/virt-handler:{TO}"]


def put(scene: Scene, *, on: bool) -> list[str]:
    """Return what the module changes; the upgrade has left the pools' images behind."""
    done = scene.module("guard_policies", pools=POOLS, allow_skew=True, assign_new_nodes=True, guard=on)
    return list(done["changes"])


def test_a_guard_that_was_changed_by_hand_is_reported_and_repaired(scene: Scene) -> None:
    binding = f"validatingadmissionpolicybinding/{names.OWNER_GUARD}"
    for disturb in (
        lambda: scene.patch(binding, merge={"spec": {"validationActions": ["Audit"]}}),
        lambda: scene.cluster.kubectl("delete", *binding.split("/")),
    ):
        disturb()
        assert names.OWNER_GUARD in scene.findings()["guard_edited"]
        assert len(put(scene, on=True)) == 1
        assert "guard_edited" not in scene.findings()


def test_without_the_option_the_guard_goes(scene: Scene) -> None:
    assert sorted(put(scene, on=False)) == sorted(f"{each}: delete" for each in OBJECTS)
    merge_patch(kubelet(scene, "a100-00"), kinds.NODE, "a100-00", owned_by("l40s"), dry_run=True)
    assert len(put(scene, on=True)) == len(OBJECTS)


def test_a_removal_deletes_the_guard_before_the_exclusion(scene: Scene) -> None:
    variables = {"virtpools_remove": "all", "virtpools_node_timeout": 30, "virtpools_max_unavailable": "100%"}
    run = playbooks.run("remove", scene.writer.kubeconfig, None, **variables).succeeded()
    assert run.changes == run.plan["changes"]
    deleted = [run.changes.index(f"{each}: delete") for each in OBJECTS]
    assert max(deleted) < next(number for number, line in enumerate(run.changes) if line.startswith("Node "))
    for kind in (kinds.VALIDATING_ADMISSION_POLICY, kinds.VALIDATING_ADMISSION_POLICY_BINDING):
        left = [each["metadata"]["name"] for each in scene.get(kind.plural)["items"]]
        assert [name for name in left if "virtpools" in name] == []  # KubeVirt has some of its own
    assert scene.owners() == {}
