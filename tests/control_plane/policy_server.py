# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""An API server to try launcher policies on: many at once, each on launcher pods of its own."""

from __future__ import annotations

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import launcher_policy, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import (
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    Kind,
)
from ansible_collections.virtpools.kubevirt.tests.unit import launcher_cases as cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
    from local_cluster import LocalCluster

Object = dict[str, Any]
Objects = list[tuple[Kind, Object]]

KUBEVIRT = "kubevirt"
POLICY = MUTATING_ADMISSION_POLICIES[0]
BINDING = MUTATING_ADMISSION_POLICY_BINDINGS[0]
ARENA = "test.virtpools.io/arena"
"""Label of the pods that a policy, or a webhook, of a test acts on."""

_SENTINEL = "test.virtpools.io/sentinel"
_THREADS = 6


class PolicyServer:
    """Creates pods as whoever is asked for, and puts policies and webhooks where only chosen pods meet them."""

    def __init__(self, kubernetes: LocalCluster) -> None:
        """Make the namespaces that random pods are in, with room for pods of virt-controller's."""
        self._kubeconfig = str(kubernetes.kubeconfig)
        self.cluster = self.acting_as("")
        self.controller = self.acting_as(cases.CONTROLLER)
        self.namespaces: dict[str, Mapping[str, str]] = {}
        for name, labels in cases.NAMESPACES.items():
            if self.cluster.get(NAMESPACE, name) is None:
                obj = NAMESPACE.object(name)
                obj["metadata"]["labels"] = dict(labels)
                self.cluster.create(NAMESPACE, obj, dry_run=False)
            self.namespaces[name] = self.cluster.existing(NAMESPACE, name)["metadata"]["labels"]
        for name in cases.NAMESPACES:
            kubernetes.wait(partial(self.cluster.get, SERVICE_ACCOUNT, "default", name), 30, f"namespace {name}")

    def acting_as(self, user: str) -> Cluster:
        """Return the cluster as a user has it, or as the administrator without a name."""
        # The group only for the right to create pods: what counts is the name.
        who = {"impersonate_user": user, "impersonate_groups": ["system:masters"]} if user else {}
        return Cluster.connect({"kubeconfig": self._kubeconfig, **who})

    # Pods

    def create(self, pod: Object, by: Cluster | None = None, *, arena: str = "", dry_run: bool = True) -> Object:
        """Create a pod, by default as virt-controller and without storing it, and return what became of it."""
        result: Object = (by or self.controller).create(POD, in_arena(pod, arena), dry_run=dry_run)
        result["metadata"].pop("managedFields", None)
        return result

    def create_all(self, pods: Iterable[Object], by: Cluster | None = None, *, arena: str = "") -> list[Object]:
        """Create many pods at once, without storing them; the results are in their order."""
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(lambda pod: self.create(pod, by, arena=arena), pods))

    # Policies

    def install(self, objects: Objects, *arenas: str) -> None:
        """Put a policy and its binding in force for the pods of arenas, with names after the first."""
        for kind, obj in confined(objects, arenas):
            self.put(kind, obj)

    def put(self, kind: Kind, obj: Object) -> None:
        """Create an object, or put it in the place of the one that there is."""
        live = self.cluster.get(kind, obj["metadata"]["name"])
        if live is None:
            self.cluster.create(kind, obj, dry_run=False)
        else:
            versioned = {**obj["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
            self.cluster.replace(kind, {**obj, "metadata": versioned}, dry_run=False)

    def remove(self, objects: Objects, *arenas: str) -> None:
        """Take away what install put there."""
        for kind, obj in reversed(confined(objects, arenas)):
            self.cluster.delete(kind, obj["metadata"]["name"], dry_run=False)

    def settle(self) -> None:
        """Wait until all that was installed or removed so far is in force: the server reads policies in one go."""
        stamp = str(time.monotonic_ns())
        expression = f'[JSONPatch{{op: "add", path: "/metadata/labels/sentinel", value: "{stamp}"}}]'
        spec = {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": _pods_with({_SENTINEL: "yes"}),
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        }
        name = "test-sentinel"
        self.put(POLICY, POLICY.object(name, spec=spec))
        self.put(BINDING, BINDING.object(name, spec={"policyName": name}))
        pod = cases.launcher_pod("pvc", "sentinel", labels={_SENTINEL: "yes"})
        deadline = time.monotonic() + 30
        while self.create(pod, self.cluster)["metadata"]["labels"].get("sentinel") != stamp:
            if time.monotonic() > deadline:
                raise TimeoutError("The API server does not see a new policy after 30 s.")
            time.sleep(0.05)


def in_arena(pod: Object, arena: str) -> Object:
    """Return the pod with the label that has the policies and webhooks of an arena act on it."""
    if not arena:
        return pod
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), ARENA: arena}}}


def derived(table: Table, name: str = names.POLICY) -> Objects:
    """Return the policy of a table and its binding."""
    return launcher_policy.derive(table, KUBEVIRT, POLICY, name)


def digest(objects: Objects) -> str:
    """Return the digest that a policy writes on pods."""
    return str(objects[0][1]["metadata"]["annotations"][names.POLICY_ANNOTATION])


def changed(objects: Objects, change: Callable[[Object], None]) -> Objects:
    """Return a policy and its binding with another spec of the policy."""
    (kind, policy), *rest = copy.deepcopy(objects)
    change(policy["spec"])
    return [(kind, policy), *rest]


def confined(objects: Objects, arenas: Sequence[str]) -> Objects:
    """Return a policy and its binding, named after the first arena and for the pods of all of them only."""
    made = copy.deepcopy(objects)
    name = f"test-{arenas[0]}"
    for _kind, obj in made:
        obj["metadata"]["name"] = name
        if "policyName" in obj["spec"]:
            selector = {"matchExpressions": [{"key": ARENA, "operator": "In", "values": list(arenas)}]}
            obj["spec"].update(policyName=name, matchResources={"objectSelector": selector})
    return made


def _pods_with(labels: Mapping[str, str]) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {"objectSelector": {"matchLabels": dict(labels)}, "resourceRules": [rule]}
