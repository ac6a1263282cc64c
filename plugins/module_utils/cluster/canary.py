# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Canary VMs: one after the other they are made, looked at until they have passed or had their time, and deleted."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import explain, live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster, ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import canary, kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.canary import Draft, LeftOut, Problem, Wanted
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.prediction import Defaults
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verdicts import Judge, Judgement

Object = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Outcome:
    """What became of a canary VM; ``problem`` is a clause, None when it has passed."""

    draft: Draft
    seconds: float
    node: str = ""
    image: str = ""
    problem: str | None = None

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.draft} ran on node {self.node} with {self.image} after {self.seconds:.1f} s."
        return f"{self.draft} has not passed after {self.seconds:.1f} s: {self.problem}. It was deleted."

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "pool": self.draft.pool,
            "vm": self.draft.title,
            "node": self.node,
            "image": self.image,
            "seconds": round(self.seconds, 1),
        }


def drafts(
    cluster: Cluster, wanted: Wanted, table: Table, nodes: t.Iterable[Node], kubevirt: Object
) -> list[Draft | LeftOut]:
    """The canary VMs for these nodes, one for every pool that has some of them.

    :param table: what launcher pods are matched with.
    :raises InputErrors: when the namespace, or what the user's VM refers to, is not there.
    """
    namespaces = live.namespaces(cluster)
    if wanted.namespace not in namespaces:
        missing = f"virtpools_canary_vm: namespace {wanted.namespace} does not exist"
        raise InputErrors([f"{missing}; create it, or give the name of another one in metadata.namespace."])
    found: list[Draft | LeftOut] = []
    for pool, members in canary.by_pool(nodes).items():
        home = canary.home(table, pool, wanted.namespace, namespaces)
        if home is None:
            found.append(LeftOut(pool, "no namespace is there that its selector.namespaces takes"))
            continue
        plain = wanted.vm(canary.name_of(pool), home)
        subject = explain.find_in_manifest([plain], "virtpools_canary_vm", explain.Live(cluster))
        found.append(canary.draft(wanted, pool, table, members, subject, Defaults.of(kubevirt)))
    return found


def rehearse(cluster: Cluster, made: Draft) -> None:
    """Have the API server check a canary VM, and store nothing.

    :raises ClusterError: when it would not take it.
    """
    cluster.create(kinds.VIRTUAL_MACHINE, dict(made.vm), dry_run=True)


def try_out(cluster: Cluster, made: Draft, judge: Judge, patience: float, clock: Clock) -> Outcome:
    """Start a canary VM, wait until it has passed or ``patience`` seconds are over, and delete it in any case.

    One that does not go away again has not passed.
    """
    vm = cluster.create(kinds.VIRTUAL_MACHINE, dict(made.vm), dry_run=False)
    try:
        outcome = _looked_at(cluster, made, vm, judge, patience, clock)
    finally:
        remove(cluster, [made.title])
    left = _await_gone(cluster, vm, patience, clock)
    if left is not None and outcome.problem is None:
        return Outcome(made, outcome.seconds, problem=f"{left} is still there {patience:.0f} s after its deletion")
    return outcome


def remove(cluster: Cluster, titles: t.Iterable[str]) -> None:
    """Delete these canary VMs, given as ``namespace/name``."""
    for title in titles:
        namespace, _slash, name = title.partition("/")
        cluster.delete(kinds.VIRTUAL_MACHINE, name, namespace, dry_run=False)


def clear(cluster: Cluster, timeout: float, clock: Clock) -> None:
    """Delete what runs that died left behind, and wait until it is gone.

    :raises ClusterError: when something does not go.
    """
    for vm in list(live.canary_vms(cluster)):
        metadata = vm["metadata"]
        remove(cluster, [f"{metadata['namespace']}/{metadata['name']}"])
        left = _await_gone(cluster, vm, timeout, clock)
        if left is not None:
            raise ClusterError(
                f"{left}, which an earlier run left behind, is still there {timeout:.0f} s after its deletion; see what "
                "holds it, then run again."
            )


def _looked_at(cluster: Cluster, made: Draft, vm: Object, judge: Judge, patience: float, clock: Clock) -> Outcome:
    began = clock.now()
    name, namespace = vm["metadata"]["name"], vm["metadata"]["namespace"]
    found: Judgement | Problem = Problem("")

    def pending() -> str | None:
        nonlocal found
        present = cluster.get(kinds.VIRTUAL_MACHINE, name, namespace)
        if present is None:
            found = Problem("somebody deleted it", final=True)
        else:
            vmi = cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
            pods = [] if vmi is None else list(explain.Live(cluster).launcher_pods(namespace, vmi))
            found = canary.look(made, present, vmi, pods[0] if pods else None, judge)
        return "canary VM" if isinstance(found, Problem) and not found.final else None

    clock.wait(pending, patience)
    seconds = clock.now() - began
    if isinstance(found, Problem):
        return Outcome(made, seconds, problem=found.message)
    return Outcome(made, seconds, found.node, found.expected_image)


def _await_gone(cluster: Cluster, vm: Object, timeout: float, clock: Clock) -> str | None:
    """What is still there of it after ``timeout`` seconds."""
    name, namespace = vm["metadata"]["name"], vm["metadata"]["namespace"]

    def pending() -> str | None:
        for kind in (kinds.VIRTUAL_MACHINE_INSTANCE, kinds.VIRTUAL_MACHINE):
            if cluster.get(kind, name, namespace) is not None:
                return f"{kind} {namespace}/{name}"
        return None

    return clock.wait(pending, timeout)
