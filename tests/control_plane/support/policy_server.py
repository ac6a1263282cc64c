# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""An API server for tests of launcher policies: many are in force at once, each for the launcher pods of its arenas."""

from __future__ import annotations

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import (
    KYVERNO_MUTATING_POLICY,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    NAMESPACE,
    POD,
    Kind,
)
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
    from local_cluster import LocalCluster

Object = dict[str, Any]
Objects = list[tuple[Kind, Object]]

KUBEVIRT = "kubevirt"
POLICY = MUTATING_ADMISSION_POLICIES[0]
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
BINDING = MUTATING_ADMISSION_POLICY_BINDINGS[0]
ARENA = "test.virtpools.io/arena"
"""The label that puts a pod into an arena; policies and webhooks of tests act only on the pods of their arenas."""

_SENTINEL = "test.virtpools.io/sentinel"
_THREADS = 6


class PolicyServer:
    """Creates pods as any user, and installs policies for the pods of chosen arenas."""

    def __init__(self, kubernetes: LocalCluster) -> None:
        """Make the namespaces of the random pods, and wait until pods can be created in them."""
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
        """Return a client that acts as this user, or as the administrator if the name is empty."""
        # The group is there only for the right to create pods: policies look at the user's name.
        who = {"impersonate_user": user, "impersonate_groups": ["system:masters"]} if user else {}
        return Cluster.connect({"kubeconfig": self._kubeconfig, **who})

    # Pods

    def create(self, pod: Object, by: Cluster | None = None, *, arena: str = "", dry_run: bool = True) -> Object:
        """Create a pod, by default as virt-controller and as a dry run, and return it as the server made it."""
        result: Object = (by or self.controller).create(POD, in_arena(pod, arena), dry_run=dry_run)
        result["metadata"].pop("managedFields", None)
        return result

    def create_all(self, pods: Iterable[Object], by: Cluster | None = None, *, arena: str = "") -> list[Object]:
        """Create many pods in parallel, as dry runs; the results are in the order of the pods."""
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(lambda pod: self.create(pod, by, arena=arena), pods))

    # Policies

    def install(self, objects: Objects, *arenas: str) -> None:
        """Put a policy and its binding in force for the pods of these arenas; the first arena gives them their name."""
        for kind, obj in confined(objects, arenas):
            self.put(kind, obj)

    def put(self, kind: Kind, obj: Object) -> None:
        """Create an object, or replace the existing one."""
        live = self.cluster.get(kind, obj["metadata"]["name"])
        if live is None:
            self.cluster.create(kind, obj, dry_run=False)
        else:
            versioned = {**obj["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
            self.cluster.replace(kind, {**obj, "metadata": versioned}, dry_run=False)

    def remove(self, objects: Objects, *arenas: str) -> None:
        """Delete what ``install`` created."""
        for kind, obj in reversed(confined(objects, arenas)):
            self.cluster.delete(kind, obj["metadata"]["name"], dry_run=False)

    def settle(self) -> None:
        """Wait until all changes so far are in force: the server loads all policies at once, so a new one shows it."""
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
    """Return the pod as one of an arena, whose policies and webhooks act on it."""
    if not arena:
        return pod
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), ARENA: arena}}}


def derived(table: Table, name: str = names.POLICY) -> Objects:
    """Return the launcher policy of a mapping table and its binding."""
    return launcher_policy.derive(table, KUBEVIRT, POLICY, name)


def digest(objects: Objects) -> str:
    """Return the digest that a policy writes on pods."""
    return str(objects[0][1]["metadata"]["annotations"][names.POLICY_ANNOTATION])


def changed(objects: Objects, change: Callable[[Object], None]) -> Objects:
    """Return a copy of a policy and its binding; ``change`` edits the policy's spec."""
    (kind, policy), *rest = copy.deepcopy(objects)
    change(policy["spec"])
    return [(kind, policy), *rest]


def confined(objects: Objects, arenas: Sequence[str]) -> Objects:
    """Return copies of a policy and its binding, if any, named after the first arena, for pods of these arenas only."""
    copies = copy.deepcopy(objects)
    name = f"test-{arenas[0]}"
    selector = {"matchExpressions": [{"key": ARENA, "operator": "In", "values": list(arenas)}]}
    for kind, obj in copies:
        obj["metadata"]["name"] = name
        if "policyName" in obj["spec"]:
            obj["spec"].update(policyName=name, matchResources={"objectSelector": selector})
        elif kind == KYVERNO_MUTATING_POLICY:
            # It has no binding.
            obj["spec"]["matchConstraints"]["objectSelector"].update(selector)
    return copies


def _pods_with(labels: Mapping[str, str]) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {"objectSelector": {"matchLabels": dict(labels)}, "resourceRules": [rule]}
