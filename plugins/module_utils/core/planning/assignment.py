# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which owner every node should have, why a node cannot get it now, and the devices of pools that are partly moved."""

from __future__ import annotations

import collections
import itertools
import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.findings import Finding, counted, error, in_order, listed, note, warning
from ..base.objects import KubeObject
from ..base.selectors import TermIndex, example_labels
from ..kubevirt import handler_fit
from ..kubevirt.handler_fit import unfit
from ..observed.nodes import Node
from ..observed.snapshot import Snapshot
from ..pools.model import Pool
from . import node_loss

Overlap = t.Literal["error", "first_wins"]

_MOST_OVERLAPS = 5

_NODE_GROUP_LABELS = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "cluster.x-k8s.io/deployment-name",
)
"""What Karpenter, the clouds' node groups and Cluster API label the nodes with that they make."""


@dataclass(frozen=True)
class Assignment:
    """Which owner each node should have."""

    wanted: t.Mapping[str, str]
    """The owner that every node should have."""
    blocked: t.Mapping[str, str]
    """Why a node cannot get it now."""
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

    :param pools: the pools in the list, in order.
    :param kept: names of pools that exist, are not in the list, and stay: they keep the nodes they have.
    :param templates: pod template of every owner's DaemonSet, also of pools that are removed; the primary's without our exclusion.
    :param overlap: what to do with a node that several pools select.
    :param complete: whether ``nodes`` are all nodes of the cluster. Only then can the findings say that a pool or the primary
        has no node, or that pools could overlap.
    """
    claims = _claims(nodes, pools)
    wanted = {node.name: _wanted(node, claims[node.name], kept) for node in nodes.values()}
    leaving = templates.keys() - {names.PRIMARY, *kept, *(pool.name for pool in pools)}
    blocked, of_nodes = _blocked_of(nodes, wanted, leaving, templates)
    findings = [*_contested(claims, overlap), *of_nodes]
    if complete:
        findings += [
            *_could_overlap(pools, claims),
            *_unused(pools, wanted, nodes),
            *_primary_left_empty(nodes, wanted, templates),
        ]
    return Assignment(wanted=wanted, blocked=blocked, findings=in_order(findings))


def give_back(
    nodes: t.Mapping[str, Node],
    pools: t.Sequence[Pool],
    leaving: t.Collection[str],
    templates: t.Mapping[str, KubeObject],
) -> Assignment:
    """The owner of every node when some owners are removed; the others keep the nodes they have.

    :param pools: those that stay, in order. A node that loses its owner goes to the first pool that selects it and whose
        handler would run there, else to the primary.
    :param leaving: the owners that are removed.
    :param templates: as for ``assign``.
    """
    wanted, index = {}, _index(pools)
    staying = templates.keys() - {names.PRIMARY, *leaving}
    for node in nodes.values():
        claims = (name for name in index.matching(node.labels) if not unfit(templates[name], node))
        wanted[node.name] = next(claims, names.PRIMARY) if _loses(node, leaving, staying) else node.owner
    blocked, findings = _blocked_of(nodes, wanted, leaving, templates)
    return Assignment(wanted=wanted, blocked=blocked, findings=in_order(findings))


def selected(nodes: t.Mapping[str, Node], pools: t.Sequence[Pool]) -> dict[str, str]:
    """The first pool that selects each node; nodes that none selects are left out."""
    return {name: claimed[0] for name, claimed in _claims(nodes, pools).items() if claimed}


def _claims(nodes: t.Mapping[str, Node], pools: t.Sequence[Pool]) -> dict[str, t.Sequence[str]]:
    """The pools that select each node, in order."""
    index = _index(pools)
    return {node.name: index.matching(node.labels) for node in nodes.values()}


def _index(pools: t.Sequence[Pool]) -> TermIndex:
    return TermIndex({pool.name: pool.nodes for pool in pools})


def _loses(node: Node, leaving: t.Collection[str], staying: t.Collection[str]) -> bool:
    """Whether the node's owner is removed. In transit, a node needs an owner unless it left a pool that stays: it may have been on its
    way to a pool that is removed."""
    return node.owner in leaving or (node.owner == names.IN_TRANSIT and node.former_owner not in staying)


def idle(snapshot: Snapshot, nodes: t.Mapping[str, Node]) -> frozenset[str]:
    """Nodes of the primary that have none of its handlers and get none, such as most of a control plane: no VM runs there.

    :param nodes: the snapshot's nodes, or these with the owners that they will have.
    """
    if snapshot.primary is None:
        return frozenset()
    template = handler_fit.primary_template(snapshot.primary)
    return frozenset(
        node.name
        for node in nodes.values()
        if node.owner == names.PRIMARY
        and not any(pod.daemonset == names.HANDLER for pod in snapshot.handlers.get(node.name, ()))
        and unfit(template, node) is not None
    )


def counts(snapshot: Snapshot, nodes: t.Mapping[str, Node]) -> collections.Counter[str]:
    """How many nodes every owner has. Idle nodes count for none."""
    ignored = idle(snapshot, nodes)
    return collections.Counter(node.owner for node in nodes.values() if node.name not in ignored)


def _wanted(node: Node, claims: t.Sequence[str], kept: t.Collection[str]) -> str:
    if claims:
        return claims[0]
    holder = node.former_owner if node.owner == names.IN_TRANSIT else node.owner
    return holder if holder is not None and holder in kept else names.PRIMARY


def _blocked_of(
    nodes: t.Mapping[str, Node],
    wanted: t.Mapping[str, str],
    leaving: t.Collection[str],
    templates: t.Mapping[str, KubeObject],
) -> tuple[dict[str, str], list[Finding]]:
    """Why nodes cannot get the owner that they should have, and what to say about them."""
    blocked: dict[str, str] = {}
    left_without: dict[str, list[str]] = {}
    for node in nodes.values():
        owner = wanted[node.name]
        reason = handler_fit.refusal(templates[owner], node) if owner != node.owner else None
        if reason is None:
            continue
        if owner == names.PRIMARY and node.ready and not _has_handler_to_lose(node, leaving, templates):
            left_without.setdefault(reason, []).append(node.name)
        else:
            blocked[node.name] = reason
    return blocked, [*_held_back(nodes, wanted, blocked), *_left_without(left_without)]


def _has_handler_to_lose(node: Node, leaving: t.Collection[str], templates: t.Mapping[str, KubeObject]) -> bool:
    """Whether a node that should go to the primary, which would not run there, must stay as it is.

    It need not when its pool is removed and was made for such nodes, by its tolerations for instance: before the pool, the node
    had no handler either. Where the pool would not start its handler again, the primary's may have run, and the node stays.
    """
    template = templates.get(node.owner)
    if template is None:  # in transit, or of an owner that does not exist
        return False
    return node.owner not in leaving or handler_fit.refusal(template, node) is not None


def _contested(claims: t.Mapping[str, t.Sequence[str]], overlap: Overlap) -> t.Iterator[Finding]:
    contested: dict[tuple[str, ...], list[str]] = {}
    for node, pools in claims.items():
        if len(pools) > 1:
            contested.setdefault(tuple(pools), []).append(node)
    for pools, nodes in contested.items():
        if overlap == "first_wins":
            yield note(
                "overlap_first_wins",
                f"Pools {', '.join(pools)} select the same nodes ({listed(nodes)}): {pools[0]} comes first and gets them.",
            )
        else:
            yield error(
                "overlap",
                f"Pools {', '.join(pools)} select the same nodes ({listed(nodes)}); make their nodeSelector or "
                "nodeExpressions exclude each other, or set virtpools_overlap: first_wins to let the order of the list decide.",
            )


def _could_overlap(pools: t.Sequence[Pool], claims: t.Mapping[str, t.Sequence[str]]) -> t.Iterator[Finding]:
    contested = {pair for claimants in claims.values() for pair in itertools.combinations(claimants, 2)}
    possible = []
    # Most pools differ in the value of one label. Comparing these first saves work that grows with the square of the pools.
    needed = {pool.name: _needed_values(pool) for pool in pools}
    for first, second in itertools.combinations(pools, 2):
        if (first.name, second.name) in contested or _disjoint(needed[first.name], needed[second.name]):
            continue
        labels = example_labels(first.nodes, second.nodes)
        if labels is not None:
            possible.append((first.name, second.name, labels))
    pairs = [
        f"{first} and {second} ({', '.join(f'{key}={value}' for key, value in sorted(labels.items()))})"
        for first, second, labels in possible
    ]
    if pairs:
        more = len(pairs) - _MOST_OVERLAPS
        yield note(
            "overlap_possible",
            f"No node matches two pools now, but a node with these labels would: {'; '.join(pairs[:_MOST_OVERLAPS])}"
            f"{f'; and {more} more pairs of pools' if more > 0 else ''}.",
        )


def _needed_values(pool: Pool) -> dict[str, frozenset[str]]:
    """The values of which each label of the pool's nodes must have one, by its In requirements."""
    return {each.key: frozenset(each.values) for each in pool.nodes.requirements if each.operator == "In"}


def _disjoint(first: t.Mapping[str, frozenset[str]], second: t.Mapping[str, frozenset[str]]) -> bool:
    return any(key in second and values.isdisjoint(second[key]) for key, values in first.items())


def _unused(pools: t.Sequence[Pool], wanted: t.Mapping[str, str], nodes: t.Mapping[str, Node]) -> t.Iterator[Finding]:
    used = set(wanted.values())
    for pool in pools:
        if pool.name not in used:
            nothing = (
                f"Pool {pool.name} gets no node: no node has the labels that its nodeSelector and nodeExpressions select, "
                "or earlier pools take all that have them."
            )
            yield warning(
                "pool_without_nodes",
                " ".join((nothing, *node_loss.hints(pool, tuple(nodes.values()), nodes))),
            )


def _primary_left_empty(
    nodes: t.Mapping[str, Node], wanted: t.Mapping[str, str], templates: t.Mapping[str, KubeObject]
) -> t.Iterator[Finding]:
    stays = (n for n in nodes.values() if wanted[n.name] == names.PRIMARY)
    if not any(unfit(templates[names.PRIMARY], node) is None for node in stays):
        yield error(
            "primary_without_nodes",
            "The pools would leave the primary virt-handler without a node, and KubeVirt's upgrades hang when it has none; "
            "keep at least one node that no pool selects and where the primary runs.",
        )


def _held_back(
    nodes: t.Mapping[str, Node], wanted: t.Mapping[str, str], blocked: t.Mapping[str, str]
) -> t.Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, reason in blocked.items():
        groups.setdefault((wanted[name], nodes[name].owner, reason), []).append(name)
    for (owner, current, reason), stay in groups.items():
        yield warning(
            "node_held_back",
            f"{counted(len(stay), 'node')} should go from {current} to {owner} but cannot now, because {reason}: "
            f"{listed(stay)}.",
        )


def _left_without(nodes_of: t.Mapping[str, t.Sequence[str]]) -> t.Iterator[Finding]:
    """:param nodes_of: the nodes by the reason why the primary does not run there."""
    for reason, left in nodes_of.items():
        yield warning(
            "node_without_primary",
            f"{counted(len(left), 'node')} will have no virt-handler after the return to the primary, which does not run there because "
            f"{reason}: {listed(left)}. No VM can run on them then.",
        )


class NewNodes(t.NamedTuple):
    """What decides how a node that joins can get its owner."""

    policy: bool
    """Whether the cluster can have the policy for new nodes."""
    guarded: bool
    """Whether the guard is on. It refuses a node that comes with an owner label, unless that policy would set the same."""

    def advice(self, pool: str) -> str:
        label = f"{names.OWNER_LABEL}={pool}"
        if self.guarded:
            refused = f"the guard refuses a node that comes with the label {label}."
            set_option = "Set virtpools_assign_new_nodes: true; without it"
            return f"{set_option if self.policy else 'Run site when one has joined;'} {refused}"
        return f"{'Set virtpools_assign_new_nodes: true, or let' if self.policy else 'Let'} the group label its nodes {label}."


def node_groups(assigned: Assignment, nodes: t.Mapping[str, Node], joining: NewNodes) -> t.Iterator[Finding]:
    """A note on nodes of pools that others make and replace: new ones have no owner label unless something sets it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, owner in assigned.wanted.items():
        label = next((label for label in _NODE_GROUP_LABELS if label in nodes[name].labels), None)
        if label is not None and owner != names.PRIMARY:
            groups.setdefault((owner, label), []).append(name)
    for (pool, label), made in groups.items():
        yield note(
            "nodes_of_group",
            f"{counted(len(made), f'node of pool {pool} comes', f'nodes of pool {pool} come')} "
            f"from a node group (label {label}), which may replace them and add others at "
            f"any time: {listed(made)}. A new node belongs to the primary until the next run. {joining.advice(pool)}",
        )


@dataclass(frozen=True)
class Capacity:
    """How many devices of a kind a pool's nodes have, and how many are on nodes still to move to it; each with the number of
    these nodes."""

    pool: str
    device: str
    served: tuple[int, int]
    to_move: tuple[int, int]

    def __str__(self) -> str:
        (served, nodes), (to_move, others) = self.served, self.to_move
        return (
            f"Pool {self.pool} is partly moved: {served} of {self.device} on its {counted(nodes, 'node')}, {to_move} "
            f"on {counted(others, 'node')} still to move."
        )


def capacities(pools: t.Iterable[Pool], nodes: t.Iterable[Node], wanted: t.Mapping[str, str]) -> tuple[Capacity, ...]:
    """The devices by which partly moved pools select VMs.

    :param wanted: the owner that every node should have, by node.
    """
    served: dict[str, list[Node]] = {}
    to_move: dict[str, list[Node]] = {}
    for node in nodes:
        if node.former_owner is None and node.owner == wanted[node.name]:
            served.setdefault(node.owner, []).append(node)
        else:
            to_move.setdefault(wanted[node.name], []).append(node)
    return tuple(
        Capacity(pool.name, device, _count(device, served[pool.name]), _count(device, to_move[pool.name]))
        for pool in pools
        if pool.selector is not None and pool.name in served and pool.name in to_move
        for device in pool.selector.device_names
    )


def _count(device: str, nodes: t.Collection[Node]) -> tuple[int, int]:
    return sum(node.devices.get(device, 0) for node in nodes), len(nodes)
