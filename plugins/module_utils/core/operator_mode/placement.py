# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which virt-handler DaemonSets would run on each node, by the rule of a build.

The primary keeps off every node that has any label of any pool (``NotIn`` per label, all in one term). A node with one of
several labels of a pool then has no handler: the pool does not select it, and the primary is excluded.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ..base import affinity, names
from ..base.findings import Finding, counted, error, listed, warning
from ..base.objects import KubeObject, Object, field
from ..base.selectors import Term, example_labels
from ..kubevirt import handler_fit, hco
from ..kubevirt.patch_conflicts import targets_primary
from ..observed.nodes import Node
from ..observed.snapshot import Snapshot
from ..pools.model import Pool
from .builds import Build

_OS = "kubernetes.io/os"
_MOST_OVERLAPS = 5


@dataclass(frozen=True)
class Layout:
    """What decides where the handlers of every owner's DaemonSet run."""

    templates: t.Mapping[str, KubeObject]
    """The pod template of every owner's DaemonSet, the primary first."""
    without_pools: KubeObject
    """That of the primary on a cluster without pools."""

    def runners(self, node: Node) -> tuple[str, ...]:
        """The owners whose DaemonSets would run a handler on the node: normally one."""
        return tuple(owner for owner, template in self.templates.items() if handler_fit.unfit(template, node) is None)

    def needs_handler(self, node: Node, snapshot: Snapshot) -> bool:
        """Whether the node has a handler now, or would have one without pools."""
        return bool(snapshot.handlers.get(node.name)) or handler_fit.unfit(self.without_pools, node) is None


def layout_for(build: Build, snapshot: Snapshot, primary: KubeObject, pools: t.Sequence[Pool]) -> Layout:
    """The layout that the build makes of these pools.

    The affinity and tolerations of KubeVirt's ``spec.workloads.nodePlacement`` count; patches of the primary's affinity by
    others do not (see ``findings``).
    """
    base = _base(snapshot, primary)
    templates: dict[str, KubeObject] = {names.PRIMARY: {"spec": _excluding(build, base, pools)}}
    for pool in pools:
        templates[pool.name] = {"spec": _of_pool(build, base, pool)}
    return Layout(templates, {"spec": base})


def live(build: Build, snapshot: Snapshot, primary: KubeObject) -> Layout:
    """The layout of the DaemonSets that the cluster has now."""
    templates: dict[str, KubeObject] = {names.PRIMARY: primary["spec"]["template"]}
    for pool, daemonset in build.pool_daemonsets(snapshot.daemonsets.values()).items():
        templates[pool] = daemonset["spec"]["template"]
    return Layout(templates, {"spec": _base(snapshot, primary)})


def _base(snapshot: Snapshot, primary: KubeObject) -> Object:
    """What decides where the primary runs without pools."""
    spec = primary["spec"]["template"]["spec"]
    terms = affinity.required_terms(field(snapshot.kubevirt, "spec", "workloads", "nodePlacement", "affinity"))
    return {
        "nodeSelector": spec.get("nodeSelector") or {},
        "tolerations": spec.get("tolerations") or (),
        **_affinity(terms),
        # A pool's handler requests as much as the primary's.
        "containers": spec.get("containers") or (),
    }


def _affinity(terms: t.Sequence[KubeObject] | None) -> Object:
    return {"affinity": affinity.with_required_terms(None, terms)} if terms else {}


def _excluding(build: Build, base: Object, pools: t.Sequence[Pool]) -> Object:
    """The primary with the build's exclusion."""
    expressions = [
        {"key": key, "operator": "NotIn", "values": [value]}
        for pool in pools
        for key, value in sorted(pool.node_selector.items())
    ]
    terms = affinity.required_terms(base.get("affinity")) or []
    if not expressions:
        return base
    if not build.exclusion_in_every_term:
        return {**base, **_affinity([{"matchExpressions": expressions}, *terms])}
    return {**base, **_affinity([affinity.with_requirements(term, expressions) for term in terms or [{}]])}


def _of_pool(build: Build, base: Object, pool: Pool) -> Object:
    own = dict(pool.node_selector)
    if build.inherits_node_selector:
        selector = {**base["nodeSelector"], **own}
    else:
        selector = {**{key: value for key, value in base["nodeSelector"].items() if key == _OS}, **own}
    if not build.inherits_placement:
        return {"nodeSelector": selector, "tolerations": (), "containers": base["containers"]}
    return {**base, "nodeSelector": selector}


# What is wrong with it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placement:
    """Where handlers run."""

    owners: t.Mapping[str, tuple[str, ...]]
    """Each node's owners."""
    needed: frozenset[str]
    """The nodes that must have one."""

    @classmethod
    def from_layout(cls, layout: Layout, snapshot: Snapshot) -> Placement:
        nodes = snapshot.nodes.values()
        return cls(
            {node.name: layout.runners(node) for node in nodes},
            frozenset(node.name for node in nodes if layout.needs_handler(node, snapshot)),
        )

    def owner(self, node: str) -> str | None:
        """The one owner of a node; None when it has none or several."""
        owners = self.owners.get(node, ())
        return owners[0] if len(owners) == 1 else None

    def counts(self) -> collections.Counter[str]:
        return collections.Counter(owner for owners in self.owners.values() for owner in owners)

    @property
    def bare(self) -> tuple[str, ...]:
        """The nodes that need a handler and have none."""
        return tuple(node for node, owners in self.owners.items() if not owners and node in self.needed)

    @property
    def crowded(self) -> tuple[str, ...]:
        return tuple(node for node, owners in self.owners.items() if len(owners) > 1)


def findings(snapshot: Snapshot, layout: Layout, pools: t.Sequence[Pool], placed: Placement) -> t.Iterator[Finding]:
    """What is wrong with where handlers would run: nodes with none or several, owners without a node."""
    if pools:
        yield from _patched(snapshot)
    yield from _without(snapshot, layout, pools, placed)
    by_owners: dict[tuple[str, ...], list[str]] = collections.defaultdict(list)
    for node in placed.crowded:
        by_owners[placed.owners[node]].append(node)
    for owners, nodes in sorted(by_owners.items()):
        yield error(
            "operator_two_handlers",
            f"{counted(len(nodes), 'node')} would get a handler of each of {', '.join(owners)} ({listed(nodes)}): {_why_two(owners)}.",
        )
    counts = placed.counts()
    for owner in (names.PRIMARY, *(pool.name for pool in pools)):
        if not counts[owner] and snapshot.complete and placed.needed:
            what = "The primary virt-handler" if owner == names.PRIMARY else f"Pool {owner}"
            yield error(
                "operator_owner_empty",
                f"{what} would have no node, and KubeVirt becomes available only when each of its DaemonSets has one; label a "
                f"node for it{'' if owner == names.PRIMARY else ', or leave the pool out'}.",
            )
    yield from _not_now(pools)


def _why_two(owners: t.Sequence[str]) -> str:
    if names.PRIMARY in owners:
        return (
            "the required node-affinity terms of KubeVirt's spec.workloads.nodePlacement defeat this build's exclusion of the "
            "primary; move these terms to its nodeSelector, or use collection pools"
        )
    return "make the nodeSelectors exclude each other"


def _without(snapshot: Snapshot, layout: Layout, pools: t.Sequence[Pool], placed: Placement) -> t.Iterator[Finding]:
    by_reason: dict[str, list[str]] = collections.defaultdict(list)
    for name in placed.bare:
        by_reason[_why_none(snapshot.nodes[name], layout, pools)].append(name)
    for reason, nodes in sorted(by_reason.items()):
        yield error(
            "operator_no_handler", f"{counted(len(nodes), 'node')} would have no handler ({listed(nodes)}): {reason}."
        )


def _why_none(node: Node, layout: Layout, pools: t.Sequence[Pool]) -> str:
    for pool in pools:
        if pool.nodes.matches(node.labels):
            unfit = handler_fit.unfit(layout.templates[pool.name], node)
            return f"pool {pool.name} selects them, but its handler would not run there, because {unfit}"
    shared = [
        (pool, key)
        for pool in pools
        for key, value in sorted(pool.node_selector.items())
        if node.labels.get(key) == value
    ]
    if shared:
        pool, key = shared[0]
        return (
            f"this build keeps the primary off every node with {key}={pool.node_selector[key]}, and pool {pool.name} takes only "
            f"nodes with {Term.from_labels(pool.node_selector)}; select the pool's nodes by one label that only they have"
        )
    return str(handler_fit.unfit(layout.templates[names.PRIMARY], node))


def _not_now(pools: t.Sequence[Pool]) -> t.Iterator[Finding]:
    """Warnings on nodes that may join later."""
    several = [pool.name for pool in pools if len(pool.node_selector) > 1]
    if several:
        yield warning(
            "operator_several_labels",
            f"Pool {listed(several)} selects nodes by several labels: a node that joins with only some of them gets no handler, "
            "since this build keeps the primary off it. One label per pool avoids that.",
        )
    overlapping = [
        f"{one.name} and {other.name}"
        for index, one in enumerate(pools)
        for other in pools[index + 1 :]
        if example_labels(one.nodes, other.nodes) is not None
    ]
    if overlapping:
        left = len(overlapping) - _MOST_OVERLAPS
        more = f" and {counted(left, 'more pair')}" if left > 0 else ""
        yield warning(
            "operator_overlap_possible",
            f"A node with the labels of two pools gets two handlers, and nothing keeps such a node from joining: "
            f"{', '.join(overlapping[:_MOST_OVERLAPS])}{more}. Let the pools select different values of one label.",
        )


def _patched(snapshot: Snapshot) -> t.Iterator[Finding]:
    for patch in field(snapshot.kubevirt, "spec", "customizeComponents", "patches") or ():
        text = str(patch.get("patch"))
        if targets_primary(patch) and ("affinity" in text or "nodeSelector" in text):
            yield error(
                "operator_primary_patched",
                f"A patch in {hco.shared_place(snapshot.hyperconverged)} changes where virt-handler runs, and "
                f"how this combines with this build's own exclusion is not known; move it to {hco.placement_place(snapshot.hyperconverged)}.",
            )
            return
