# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster's pools are like now: nodes by owner, DaemonSets, handlers missing or doubled, unfinished handovers."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    assignment,
    daemonsets,
    exclusion,
    guard,
    health,
    names,
    node_policy,
    preflight,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    InputErrors,
    error,
    in_order,
    listed,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import (
    HandlerPod,
    KubeObject,
    Node,
    Snapshot,
)


@dataclass(frozen=True)
class Owner:
    """An owner of nodes, ``primary`` or a pool, and its DaemonSet's state."""

    name: str
    daemonset: str
    nodes: int
    desired: int
    ready: int
    handler_image: str

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
    """The state of all pools, with a finding for everything that is not as it should be."""
    sets = _daemonsets(snapshot)
    findings = [
        *preflight.fitness(snapshot),
        *_handlers(snapshot, sets),
        *_unfinished(snapshot),
        *_unknown_owners(snapshot),
        *_drift(snapshot),
        *_exclusion(snapshot),
        *node_policy.examine(snapshot.admission),
        *guard.examine(snapshot),
    ]
    return State(
        owners=tuple(_owner(snapshot, name, ds) for name, ds in sets.items()),
        in_transit=tuple(n.name for n in snapshot.nodes.values() if n.owner == names.IN_TRANSIT),
        excluded=snapshot.primary is not None and exclusion.exclusion_in(snapshot.primary),
        findings=in_order(findings),
        version=health.version_of(snapshot.kubevirt),
    )


def _owner(snapshot: Snapshot, name: str, daemonset: KubeObject) -> Owner:
    status = daemonset.get("status") or {}
    return Owner(
        name=name,
        daemonset=daemonset["metadata"]["name"],
        nodes=sum(1 for node in snapshot.nodes.values() if node.owner == name),
        desired=status.get("desiredNumberScheduled", 0),
        ready=status.get("numberReady", 0),
        handler_image=daemonsets.handler_image(daemonset),
    )


def _handlers(snapshot: Snapshot, sets: t.Mapping[str, KubeObject]) -> t.Iterator[Finding]:
    """Every node that should run a handler must run exactly one Ready handler, of its owner."""
    found: dict[str, list[str]] = {}
    for node in snapshot.nodes.values():
        code = _handler_problem(node, snapshot.handlers.get(node.name, ()), sets)
        if code is not None:
            found.setdefault(code, []).append(node.name)
    doubled, missing = found.get("two_handlers"), found.get("no_handler")
    wrong, not_ready = found.get("wrong_handler"), found.get("handler_not_ready")
    if doubled:
        yield error(
            "two_handlers",
            f"{len(doubled)} node(s) have two handler pods, and pause, console and VNC fail there: {listed(doubled)}.",
        )
    if missing:
        yield error("no_handler", f"{len(missing)} node(s) have no handler pod: {listed(missing)}.")
    if wrong:
        yield error(
            "wrong_handler", f"{len(wrong)} node(s) run the handler of another owner than their own: {listed(wrong)}."
        )
    if not_ready:
        reasons = [f"{node} ({snapshot.handlers[node][0].problem or 'no reason known'})" for node in not_ready]
        yield error(
            "handler_not_ready", f"{len(not_ready)} node(s) have a handler that is not Ready: {listed(reasons)}."
        )


def node_problems(snapshot: Snapshot) -> dict[str, str]:
    """What is wrong with a node, as the code of the finding that tells of it; nodes in order are left out."""
    sets = _daemonsets(snapshot)
    found = {}
    for node in snapshot.nodes.values():
        code = _handler_problem(node, snapshot.handlers.get(node.name, ()), sets)
        if code in (None, "no_handler"):
            # Then that is why.
            code = _owner_problem(node, sets) or code
        if code is not None:
            found[node.name] = code
    return found


def _owner_problem(node: Node, sets: t.Mapping[str, KubeObject]) -> str | None:
    if node.owner == names.IN_TRANSIT:
        return "in_transit"
    return "owner_unknown" if node.owner != names.PRIMARY and node.owner not in sets else None


def _daemonsets(snapshot: Snapshot) -> dict[str, KubeObject]:
    """The DaemonSet of every owner."""
    primary = {} if snapshot.primary is None else {names.PRIMARY: snapshot.primary}
    return {**primary, **snapshot.pools}


def _handler_problem(node: Node, pods: t.Sequence[HandlerPod], sets: t.Mapping[str, KubeObject]) -> str | None:
    if len(pods) > 1:
        return "two_handlers"
    if not pods:
        return "no_handler" if _expects_handler(node, sets) else None
    if node.owner in sets and pods[0].daemonset != sets[node.owner]["metadata"]["name"]:
        return "wrong_handler"
    return "handler_not_ready" if node.ready and not pods[0].ready else None


def _expects_handler(node: Node, sets: t.Mapping[str, KubeObject]) -> bool:
    daemonset = sets.get(node.owner)
    if daemonset is None:
        # In transit, or an owner that does not exist: nothing puts a handler here, which other findings explain.
        return node.owner != names.IN_TRANSIT
    spec = exclusion.without_exclusion_terms(daemonset["spec"]["template"]["spec"])
    return assignment.unfit({"spec": spec}, node) is None


def _unfinished(snapshot: Snapshot) -> t.Iterator[Finding]:
    transit = [n.name for n in snapshot.nodes.values() if n.owner == names.IN_TRANSIT]
    if transit:
        yield error(
            "in_transit",
            f"{len(transit)} node(s) are in transit, owned by nobody: {listed(transit)}; run site again to finish.",
        )
    unproven = [n.name for n in snapshot.nodes.values() if n.former_owner and n.owner != names.IN_TRANSIT]
    if unproven:
        yield warning(
            "handover_unfinished",
            f"{len(unproven)} new handler(s) were never proven: {listed(unproven)}; run site again to finish.",
        )
    if snapshot.leftover_pulls:
        yield warning(
            "pull_pods_left",
            f"{len(snapshot.leftover_pulls)} image pull pod(s) were left behind: {listed(snapshot.leftover_pulls)}.",
        )
    if snapshot.leftover_canaries:
        yield warning(
            "canary_vms_left",
            f"{len(snapshot.leftover_canaries)} canary VM(s) were left behind: {listed(snapshot.leftover_canaries)}; the "
            "next run deletes them.",
        )


def _unknown_owners(snapshot: Snapshot) -> t.Iterator[Finding]:
    known = {names.PRIMARY, names.IN_TRANSIT, *snapshot.pools}
    lost = [f"{n.name} ({n.owner})" for n in snapshot.nodes.values() if n.owner not in known]
    if lost:
        yield error("owner_unknown", f"{len(lost)} node(s) have an owner that is no pool: {listed(lost)}.")


def _drift(snapshot: Snapshot) -> t.Iterator[Finding]:
    """Pools against what their DaemonSet says they are: does it still derive from the primary, who should own which node?"""
    if snapshot.primary is None:
        return
    pools = []
    for name, live in snapshot.pools.items():
        try:
            pool = daemonsets.pool_of(live)
        except InputErrors:
            yield warning(
                "pool_unreadable",
                f"DaemonSet {live['metadata']['name']} of pool {name} does not say what it was made for (annotation "
                f"{names.POOL_ANNOTATION}), so its drift cannot be told.",
            )
            continue
        pools.append(pool)
        found = daemonsets.drift(daemonsets.derive(snapshot.primary, pool), live)
        if found:
            yield warning(
                "daemonset_drift",
                f"DaemonSet {live['metadata']['name']} is not what pool {name} derives from the primary: "
                f"{'; '.join(str(d) for d in found[:3])}{' and more' if len(found) > 3 else ''}.",
            )
    for pool in pools:
        strayed = [n.name for n in snapshot.nodes.values() if n.owner == names.PRIMARY and pool.nodes.matches(n.labels)]
        if strayed:
            yield warning(
                "node_drift",
                f"{len(strayed)} node(s) have the labels that pool {pool.name} selects but belong to the primary "
                f"({listed(strayed)}): they joined or were relabelled later, could not be handed over, or a rollout has not come to "
                "them yet; run site or rollout.",
            )
        left = [n.name for n in snapshot.nodes.values() if n.owner == pool.name and not pool.nodes.matches(n.labels)]
        if left:
            yield warning(
                "node_drift",
                f"{len(left)} node(s) belong to pool {pool.name} but no longer have the labels it selects "
                f"({listed(left)}); run site.",
            )


def _exclusion(snapshot: Snapshot) -> t.Iterator[Finding]:
    if snapshot.primary is None or not snapshot.pools or exclusion.exclusion_in(snapshot.primary):
        return
    yield error(
        "exclusion_missing",
        "There are pools, but the primary virt-handler does not keep off their nodes; run site.",
    )
