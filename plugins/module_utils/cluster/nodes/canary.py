# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Runs canary VMs one by one: creates each, watches it until it has passed or its time is over, and deletes it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core.base import kinds, names
from ...core.base.findings import InputErrors
from ...core.base.objects import KubeObject
from ...core.checks import canary
from ...core.checks.canary import Blueprint, CanaryProblem, Draft, LeftOut
from ...core.checks.verdicts import Judge, Judgement
from ...core.observed.handlers import pod_problem
from ...core.observed.leftovers import Leftover
from ...core.observed.nodes import Node
from ...core.vms.mapping import Table
from ...core.vms.rendering import Defaults
from ..api.client import Cluster, ClusterError, DeleteOptions
from ..api.waiting import Clock
from ..reading import live, vm_lookup


@dataclass(frozen=True)
class CanaryOutcome:
    """The result of a canary VM."""

    draft: Draft
    seconds: float
    node: str = ""
    image: str = ""
    problem: str | None = None
    """A clause; None when the VM has passed."""

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.draft} ran on node {self.node} with {self.image} after {self.seconds:.1f} s."
        vm = self.draft.vm["metadata"]
        events = f"kubectl get events -n {vm['namespace']} --field-selector involvedObject.name={vm['name']}"
        return f"{self.draft} has not passed after {self.seconds:.1f} s: {self.problem}. It was deleted; its events are left ({events})."

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "pool": self.draft.pool,
            "vm": self.draft.title,
            "node": self.node,
            "image": self.image,
            "seconds": round(self.seconds, 1),
        }


def draft_vms(
    cluster: Cluster,
    wanted: Blueprint,
    table: Table,
    nodes: t.Iterable[Node],
    everywhere: t.Collection[Node],
    kubevirt: KubeObject,
) -> list[Draft | LeftOut]:
    """The canary VMs for these nodes, one for each pool that has some of them.

    :param table: the mapping table that decides about launcher pods.
    :param everywhere: all nodes of the cluster.
    :raises InputErrors: when the namespace, or something that the user's VM refers to, does not exist.
    """
    namespaces = live.namespaces(cluster)
    if wanted.namespace not in namespaces:
        missing = f"virtpools_canary_vm: namespace {wanted.namespace} does not exist"
        raise InputErrors([f"{missing}; create it, or give the name of another one in metadata.namespace."])
    drafts: list[Draft | LeftOut] = []
    for pool, members in canary.nodes_by_pool(nodes).items():
        home = canary.namespace_for(table, pool, wanted.namespace, namespaces)
        if home is None:
            drafts.append(LeftOut(pool, "there is no namespace that its selector.namespaces takes"))
            continue
        plain = wanted.vm(names.canary_vm_name(pool), home)
        subject = vm_lookup.find_in_manifest([plain], "virtpools_canary_vm", vm_lookup.ClusterSource(cluster))
        defaults = Defaults.from_kubevirt(kubevirt)
        drafts.append(canary.draft(wanted, pool, table, members, subject, defaults, everywhere))
    return drafts


def dry_run(cluster: Cluster, draft: Draft) -> None:
    """Let the API server check a canary VM without storing it.

    :raises ClusterError: when the server would refuse the VM.
    """
    cluster.create(kinds.VIRTUAL_MACHINE, dict(draft.vm), dry_run=True)


def try_out(cluster: Cluster, draft: Draft, judge: Judge, timeout: float, clock: Clock) -> CanaryOutcome:
    """Start a canary VM, wait until it has passed or ``timeout`` seconds are over, and always delete it.

    A VM that cannot be deleted within ``timeout`` seconds has not passed.
    """
    vm = cluster.create(kinds.VIRTUAL_MACHINE, dict(draft.vm), dry_run=False)
    try:
        outcome = _watch(cluster, draft, vm, judge, timeout, clock)
    finally:
        remove(cluster, [Leftover.from_object(vm)])
    left = _await_gone(cluster, vm, timeout, clock)
    if left is not None and outcome.problem is None:
        return CanaryOutcome(draft, outcome.seconds, problem=f"{left} still exists {timeout:.0f} s after its deletion")
    return outcome


def remove(cluster: Cluster, vms: t.Iterable[Leftover]) -> None:
    """Delete these canary VMs, but none that another client created in their place."""
    for vm in vms:
        cluster.delete(kinds.VIRTUAL_MACHINE, vm.name, vm.namespace, DeleteOptions(uid=vm.uid), dry_run=False)


def remove_leftovers(cluster: Cluster, timeout: float, clock: Clock) -> None:
    """Delete the canary VMs that killed runs left behind, and wait until they no longer exist.

    :raises ClusterError: when one is not gone after ``timeout`` seconds.
    """
    for vm in live.canary_vms(cluster):
        remove(cluster, [Leftover.from_object(vm)])
        left = _await_gone(cluster, vm, timeout, clock)
        if left is not None:
            raise ClusterError(
                f"{left}, which an earlier run left behind, still exists {timeout:.0f} s after its deletion; see what holds "
                "it, then run again."
            )


def _watch(cluster: Cluster, draft: Draft, vm: KubeObject, judge: Judge, timeout: float, clock: Clock) -> CanaryOutcome:
    began = clock.now()
    name, namespace = vm["metadata"]["name"], vm["metadata"]["namespace"]
    result: Judgement | CanaryProblem = CanaryProblem("")
    wrong: str | None = None

    def pending() -> str | None:
        nonlocal result, wrong
        live = cluster.get(kinds.VIRTUAL_MACHINE, name, namespace)
        if live is None or live["metadata"]["uid"] != vm["metadata"]["uid"]:
            result = CanaryProblem("it was deleted by another client", final=True)
        else:
            vmi = cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
            pods = [] if vmi is None else list(vm_lookup.ClusterSource(cluster).launcher_pods(namespace, vmi))
            result = canary.result(draft, live, vmi, pods[0] if pods else None, judge, wrong)
            wrong = next(filter(None, map(pod_problem, pods)), wrong)
        if isinstance(result, CanaryProblem) and not result.final:
            return f"canary VM {namespace}/{name}: {result.message}"
        return None

    clock.wait(pending, timeout)
    seconds = clock.now() - began
    if isinstance(result, CanaryProblem):
        return CanaryOutcome(draft, seconds, problem=result.message)
    return CanaryOutcome(draft, seconds, result.node, result.expected_image)


def _await_gone(cluster: Cluster, vm: KubeObject, timeout: float, clock: Clock) -> str | None:
    """Wait until a deleted VM and its VM instance no longer exist. Returns the one that exists after ``timeout`` seconds."""
    name, namespace = vm["metadata"]["name"], vm["metadata"]["namespace"]

    def pending() -> str | None:
        live = cluster.get(kinds.VIRTUAL_MACHINE, name, namespace)
        if live is not None:
            ours = live["metadata"]["uid"] == vm["metadata"]["uid"]
            return f"{kinds.VIRTUAL_MACHINE} {namespace}/{name}" if ours else None
        vmi = cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
        return f"{kinds.VIRTUAL_MACHINE_INSTANCE} {namespace}/{name}" if vmi is not None else None

    return clock.wait(pending, timeout)
