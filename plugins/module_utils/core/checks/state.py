# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The state of a cluster's pools: nodes by owner, DaemonSets, and findings on everything that is not as it should be."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..admission import guard, launcher_backends, node_policy, outdated_policy
from ..base import names
from ..base.findings import Finding, InputErrors, counted, error, in_order, listed, warning
from ..base.objects import KubeObject
from ..base.selectors import TermIndex
from ..kubevirt import daemonsets, exclusion, health, hypervisor, image_contents, launcher_arguments, preflight
from ..kubevirt.hco import title
from ..monitoring import alerts
from ..observed.snapshot import Snapshot
from ..planning import assignment, history
from ..pools.model import Pool
from . import node_checks


@dataclass(frozen=True)
class Owner:
    """An owner of nodes, ``primary`` or a pool, with the state of its DaemonSet."""

    name: str
    daemonset: str
    nodes: int
    desired: int
    ready: int
    handler_image: str
    hypervisor: str

    def to_dict(self) -> dict[str, t.Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class State:
    owners: tuple[Owner, ...]
    in_transit: tuple[str, ...]
    excluded: bool
    findings: tuple[Finding, ...]
    version: str | None


def examine(snapshot: Snapshot) -> State:
    """The state of all pools. What is wrong is found without a pool list, from what the cluster records."""
    facts = node_checks.Facts(snapshot)
    nodes = assignment.counts(snapshot, snapshot.nodes)
    known = history.recorded_in(snapshot)
    asked = known.newest_options
    of_pools = asked if snapshot.pools else {}
    findings = [
        *preflight.fitness(snapshot),
        *node_checks.findings((*node_checks.STATE, node_checks.HANDOVER_UNFINISHED, *node_checks.UNUSABLE), facts),
        *_empty(snapshot, nodes),
        *_leftovers(snapshot),
        *history.unreadable_findings(known, snapshot.namespace),
        *image_contents.examine(snapshot.pools),
        *launcher_arguments.examine(
            launcher_backends.images_in_effect(snapshot.admission, outdated_policy.stock_image(snapshot)),
            snapshot.kubevirt,
        ),
        *(() if snapshot.by_operator else (*_drift(snapshot), *_exclusion(snapshot))),
        *node_policy.examine(snapshot.admission, expected=bool(of_pools.get("assign_new_nodes"))),
        *guard.examine(snapshot, expected=bool(of_pools.get("guard"))),
        *alerts.examine(snapshot.monitoring, expected=bool(asked.get("alerts"))),
    ]
    return State(
        owners=tuple(_owner(name, ds, nodes[name], snapshot.kubevirt) for name, ds in facts.daemonsets.items()),
        in_transit=tuple(n.name for n in snapshot.nodes.values() if n.owner == names.IN_TRANSIT),
        excluded=snapshot.primary is not None and exclusion.has_exclusion(snapshot.primary),
        findings=in_order(findings),
        version=health.version_of(snapshot.kubevirt),
    )


def _empty(snapshot: Snapshot, nodes: t.Mapping[str, int]) -> t.Iterator[Finding]:
    """Pools that take VMs and have no node."""
    table = launcher_backends.recorded_table(snapshot.admission) if snapshot.admission is not None else None
    empty = [rule.name for rule in table.rules if not nodes.get(rule.name)] if table is not None else []
    for pool in empty:
        yield warning(
            "pool_without_nodes",
            f"Pool {pool} takes VMs and has no node, so VMs that start there stay pending; label a node for it and run site, or "
            "remove the pool.",
        )


def _owner(name: str, daemonset: KubeObject, nodes: int, kubevirt: KubeObject) -> Owner:
    status = daemonset.get("status") or {}
    return Owner(
        name=name,
        daemonset=daemonset["metadata"]["name"],
        nodes=nodes,
        desired=status.get("desiredNumberScheduled", 0),
        ready=status.get("numberReady", 0),
        handler_image=daemonsets.handler_image(daemonset),
        hypervisor=hypervisor.of_daemonset(kubevirt, daemonset),
    )


def _leftovers(snapshot: Snapshot) -> t.Iterator[Finding]:
    pulls, canaries = snapshot.leftover_pulls, snapshot.leftover_canaries
    if pulls:
        number = counted(len(pulls), "image pull pod was", "image pull pods were")
        yield warning("pull_pods_left", f"{number} left behind: {listed(map(str, pulls))}; the next run deletes them.")
    if canaries:
        number = counted(len(canaries), "canary VM was", "canary VMs were")
        yield warning(
            "canary_vms_left", f"{number} left behind: {listed(map(str, canaries))}; the next run deletes them."
        )


def _drift(snapshot: Snapshot) -> t.Iterator[Finding]:
    """Pools whose DaemonSet no longer derives from the primary, and nodes whose owner is not the pool that selects them."""
    if snapshot.primary is None:
        return
    pools = []
    for name, live in snapshot.pools.items():
        try:
            pool = daemonsets.pool_of(live)
        except InputErrors:
            yield warning(
                "pool_unreadable",
                f"DaemonSet {live['metadata']['name']} of pool {name} does not record what it was created for "
                f"(annotation {names.POOL_ANNOTATION}), so its drift is unknown.",
            )
            continue
        pools.append(pool)
        differences = daemonsets.drift(daemonsets.derive(snapshot.primary, pool), live)
        if differences:
            yield warning(
                "daemonset_drift",
                f"DaemonSet {live['metadata']['name']} is not what pool {name} derives from the primary: "
                f"{'; '.join(map(str, differences[:3]))}{' and more' if len(differences) > 3 else ''}.",
            )
    yield from _node_drift(snapshot, pools)


def _node_drift(snapshot: Snapshot, pools: t.Sequence[Pool]) -> t.Iterator[Finding]:
    index = TermIndex({pool.name: pool.nodes for pool in pools})
    missing: dict[str, list[str]] = {}
    strayed: dict[str, list[str]] = {}
    for node in snapshot.nodes.values():
        selecting = index.matching(node.labels)
        if node.owner == names.PRIMARY:
            for name in selecting:
                missing.setdefault(name, []).append(node.name)
        elif node.owner not in selecting:
            strayed.setdefault(node.owner, []).append(node.name)
    for pool in pools:
        if pool.name in missing:
            nodes = missing[pool.name]
            yield warning(
                "node_drift",
                f"{counted(len(nodes), 'node has', 'nodes have')} the labels that pool {pool.name} selects but "
                f"{'belongs' if len(nodes) == 1 else 'belong'} to the primary ({listed(nodes)}): a node joined or was "
                f"relabelled later, could not be handed over, or no rollout has reached it yet; run site or rollout.",
            )
        if pool.name in strayed:
            nodes = strayed[pool.name]
            yield warning(
                "node_drift",
                f"{counted(len(nodes), 'node belongs', 'nodes belong')} to pool {pool.name} without the labels that it selects "
                f"({listed(nodes)}); run site.",
            )


def _exclusion(snapshot: Snapshot) -> t.Iterator[Finding]:
    if snapshot.primary is None or not snapshot.pools:
        return
    yield from guard.overwritten(snapshot, "run site")
    if not exclusion.has_exclusion(snapshot.primary):
        yield error(
            "exclusion_missing",
            "Pools exist, but the primary virt-handler is not kept off their nodes; run site.",
        )
        return
    try:
        edit = exclusion.with_exclusion(snapshot.kubevirt, snapshot.hyperconverged)
    except InputErrors as problem:
        yield from exclusion.edit_findings(problem)
    else:
        if edit.changed and not (edit.kind == "HyperConverged" and exclusion.is_overwritten(edit.before)):
            kept = exclusion.exclusion_requested(snapshot.kubevirt)
            effect = "follows the former one until then" if kept else "is about to lose the exclusion"
            yield error(
                "exclusion_outdated",
                f"{title(edit.before)} has changed since the exclusion was written there ({edit.place}), as by another "
                f"nodePlacement: the primary virt-handler {effect}; run site.",
            )
