# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which owner every node should have, and what keeps a node from getting it."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    error,
    in_order,
    listed,
    note,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import (
    example_labels,
    node_selector_matches,
    untolerated,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node

KubeObject = t.Mapping[str, t.Any]
Overlap = t.Literal["error", "first_wins"]

_DAEMON_POD_TOLERATIONS: tuple[KubeObject, ...] = tuple(
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists"}
    for condition in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
)
"""What the DaemonSet controller lets every one of its pods tolerate (Kubernetes)."""

_MOST_OVERLAPS = 5


@dataclass(frozen=True)
class Assignment:
    """``wanted``: the owner that every node should have. ``blocked``: why a node cannot get it now."""

    wanted: t.Mapping[str, str]
    blocked: t.Mapping[str, str]
    findings: tuple[Finding, ...]

    def nodes_of(self, owner: str) -> tuple[str, ...]:
        return tuple(node for node, wanted in self.wanted.items() if wanted == owner)


def assign(
    nodes: t.Mapping[str, Node],
    pools: t.Sequence[Pool],
    kept: t.Collection[str],
    templates: t.Mapping[str, KubeObject],
    overlap: Overlap,
    *,
    complete: bool = True,
) -> Assignment:
    """The owner of every node.

    :param pools: the pools that were asked for, in order.
    :param kept: names of pools that exist, were not asked for and stay: they keep the nodes they have.
    :param complete: whether ``nodes`` are all that the cluster has; only then can a pool or the primary lack nodes.
    :param templates: pod template of every owner's DaemonSet, ``primary`` included (without our exclusion).
    """
    claims = {node.name: [pool.name for pool in pools if pool.nodes.matches(node.labels)] for node in nodes.values()}
    wanted = {node.name: _wanted(node, claims[node.name], kept) for node in nodes.values()}
    blocked = {}
    for node in nodes.values():
        if wanted[node.name] != node.owner:
            reason = _blocked(node, wanted[node.name], templates)
            if reason:
                blocked[node.name] = reason
    findings = [
        *_contested(claims, overlap),
        *_held_back(nodes, wanted, blocked),
    ]
    if complete:
        findings += [
            *_could_overlap(pools, claims),
            *_unused(pools, wanted),
            *_primary_left_empty(nodes, wanted, templates),
        ]
    return Assignment(wanted=wanted, blocked=blocked, findings=in_order(findings))


def give_back(
    nodes: t.Mapping[str, Node],
    pools: t.Sequence[Pool],
    leaving: t.Collection[str],
    templates: t.Mapping[str, KubeObject],
) -> Assignment:
    """The owner of every node when some owners are taken away: all others keep what they have.

    :param pools: those that stay, in order; the first that selects a node, and would run there, gets it, else the primary.
    :param leaving: the owners that are taken away.
    :param templates: as for ``assign``.
    """
    wanted = {}
    for node in nodes.values():
        claims = (
            pool.name for pool in pools if pool.nodes.matches(node.labels) and not unfit(templates[pool.name], node)
        )
        wanted[node.name] = next(claims, names.PRIMARY) if _loses(node, leaving) else node.owner
    moving = {name: node for name, node in nodes.items() if wanted[name] != node.owner}
    reasons = {name: _blocked(node, wanted[name], templates) for name, node in moving.items()}
    blocked = {name: reason for name, reason in reasons.items() if reason}
    return Assignment(wanted=wanted, blocked=blocked, findings=in_order(_held_back(nodes, wanted, blocked)))


def _loses(node: Node, leaving: t.Collection[str]) -> bool:
    """Whether the node's owner goes; in transit the former one counts, which the node would go back to."""
    return node.owner in leaving or (node.owner == names.IN_TRANSIT and node.former_owner in leaving)


def unfit(template: KubeObject, node: Node) -> str | None:
    """Why a DaemonSet with this pod template would not put a pod on the node; None when it would.

    The owner label itself is left out: it is what a handover changes.
    """
    spec = template["spec"]
    for key, value in (spec.get("nodeSelector") or {}).items():
        if key != names.OWNER_LABEL and node.labels.get(key) != value:
            return f"its DaemonSet selects {key}={value}"
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not node_selector_matches(required, node.labels, node.name):
        return "no required node-affinity term of its DaemonSet (from KubeVirt's spec.workloads.nodePlacement) fits"
    taints = untolerated((*(spec.get("tolerations") or ()), *_DAEMON_POD_TOLERATIONS), node.taints)
    if taints:
        shown = ", ".join(f"{t_['key']}={t_.get('value') or ''}:{t_['effect']}" for t_ in taints)
        return f"taint {shown} is not tolerated"
    return None


def _wanted(node: Node, claims: t.Sequence[str], kept: t.Collection[str]) -> str:
    if claims:
        return claims[0]
    holder = node.former_owner if node.owner == names.IN_TRANSIT else node.owner
    return holder if holder is not None and holder in kept else names.PRIMARY


def _blocked(node: Node, owner: str, templates: t.Mapping[str, KubeObject]) -> str | None:
    if not node.ready:
        return "the node is not Ready"
    if owner == names.PRIMARY:
        # Going back to where the primary does not run is how it was before the pool.
        return None
    return unfit(templates[owner], node)


def _contested(claims: t.Mapping[str, t.Sequence[str]], overlap: Overlap) -> t.Iterator[Finding]:
    contested: dict[tuple[str, ...], list[str]] = {}
    for node, pools in claims.items():
        if len(pools) > 1:
            contested.setdefault(tuple(pools), []).append(node)
    for pools, nodes in contested.items():
        if overlap == "first_wins":
            yield note(
                "overlap_first_wins",
                f"Pools {', '.join(pools)} select the same nodes ({listed(nodes)}): {pools[0]} is first and gets them.",
            )
        else:
            yield error(
                "overlap",
                f"Pools {', '.join(pools)} select the same nodes ({listed(nodes)}); make their nodeSelector or "
                "nodeExpressions exclude each other, or set virtpools_overlap: first_wins to let list order decide.",
            )


def _could_overlap(pools: t.Sequence[Pool], claims: t.Mapping[str, t.Sequence[str]]) -> t.Iterator[Finding]:
    contested = {pair for found in claims.values() for pair in itertools.combinations(found, 2)}
    possible = []
    for first, second in itertools.combinations(pools, 2):
        if (first.name, second.name) in contested:
            continue
        labels = example_labels(first.nodes, second.nodes)
        if labels is not None:
            possible.append((first.name, second.name, labels))
    for first_name, second_name, labels in possible[:_MOST_OVERLAPS]:
        shown = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        yield note(
            "overlap_possible",
            f"Pools {first_name} and {second_name} select no node together today, but both would select one with {shown}.",
        )
    if len(possible) > _MOST_OVERLAPS:
        yield note(
            "overlap_possible",
            f"{len(possible) - _MOST_OVERLAPS} more pairs of pools could select the same node.",
        )


def _unused(pools: t.Sequence[Pool], wanted: t.Mapping[str, str]) -> t.Iterator[Finding]:
    used = set(wanted.values())
    for pool in pools:
        if pool.name not in used:
            yield warning(
                "pool_without_nodes",
                f"Pool {pool.name} gets no node: no node has the labels that its nodeSelector and nodeExpressions ask "
                "for, or an earlier pool takes them.",
            )


def _primary_left_empty(
    nodes: t.Mapping[str, Node], wanted: t.Mapping[str, str], templates: t.Mapping[str, KubeObject]
) -> t.Iterator[Finding]:
    stays = (n for n in nodes.values() if wanted[n.name] == names.PRIMARY)
    if not any(unfit(templates[names.PRIMARY], node) is None for node in stays):
        yield error(
            "primary_without_nodes",
            "The pools would leave the primary virt-handler without a node, and KubeVirt's upgrades hang when it has "
            "none; keep at least one node that no pool selects and where virt-handler runs.",
        )


def _held_back(
    nodes: t.Mapping[str, Node], wanted: t.Mapping[str, str], blocked: t.Mapping[str, str]
) -> t.Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, reason in blocked.items():
        groups.setdefault((wanted[name], nodes[name].owner, reason), []).append(name)
    for (owner, current, reason), found in groups.items():
        yield warning(
            "node_held_back",
            f"{len(found)} node(s) should go from {current} to {owner} but stay as they are, because {reason}: "
            f"{listed(found)}.",
        )
