# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A cluster with pools of KubeVirt's own, seen as one with collection pools, so that the same checks judge both.

In the view, nodes have owners by the build's rule, virt-operator's DaemonSets are those of the pools, and the primary is as it
would be without pools. Nothing of a view is ever written.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, replace

from ..admission import outdated_policy
from ..admission.launcher_backends import Choice
from ..admission.launcher_rollout import LauncherPolicyRollout
from ..admission.live_policy import Policy
from ..base import names
from ..base.findings import Finding, InputErrors, error, in_order, warning
from ..base.objects import Difference, KubeObject, Object, canonical_json
from ..checks.explanation import ExplainContext
from ..checks.verdicts import Judge
from ..kubevirt import daemonsets, feature_gates, preflight
from ..kubevirt.hco import Edit
from ..observed.nodes import Node
from ..observed.snapshot import Snapshot
from ..planning import history
from ..planning.batching import Move
from ..planning.options import Options
from ..planning.plan import NO_DIGEST, DaemonSetChange, Plan
from ..pools.model import Pool
from ..vms.launcher_pods import LauncherPod
from ..vms.mapping import Table
from ..vms.rendering import Defaults
from . import forms, placement, rollout
from . import plan as operator_plan
from .builds import Build
from .placement import Placement


@dataclass(frozen=True)
class OperatorView:
    """``pools``: those that the cluster has, in the order in which the build asks them. ``plan``: its snapshot is the view."""

    build: Build
    pools: tuple[Pool, ...]
    plan: Plan
    applied: str
    """When a run of ours completed that made the pools as they are; empty when the history does not say."""
    listed: bool = False
    """Whether the plan is for a list, and not for the pools of the cluster."""

    @property
    def snapshot(self) -> Snapshot:
        return self.plan.snapshot

    @property
    def policy(self) -> Policy:
        """What gives launcher pods their images: KubeVirt itself."""
        return Policy("none", "live", created=self.applied, build=self.build.name)

    def launcher_pod(self, pod: LauncherPod) -> LauncherPod:
        """A launcher pod as the checks are to see it: what KubeVirt noted in it stands for what a launcher policy would note.
        Places that the build leaves alone are ignored."""
        images = pod.launcher_images
        if not self.build.replaces_image_everywhere:
            images = {place: image for place, image in images.items() if not place.startswith("volume ")}
        younger = bool(self.applied) and pod.created >= self.applied
        return replace(pod, launcher_images=images, pool_env=pod.operator_pool if younger else None)

    def explain_context(self) -> ExplainContext:
        """What VMs are explained by: the pools of the plan."""
        given = self.plan.launcher_pools
        on = feature_gates.is_on(self.snapshot.kubevirt, self.build.gate)
        now = given == self.pools and (on or not self.listed)
        table = Table.for_pools(given)
        if not now:
            title = f"as a run of site with this pool list would create it, by {self.build.place}"
        elif on:
            title = f"in effect now, by {self.build.place}"
        else:
            title, table = f"none is in effect: {_gate_off(self.build)}", Table(())
        stock = outdated_policy.stock_image(self.snapshot)
        return ExplainContext(
            title=title,
            table=table,
            pools=given,
            nodes=self.plan.nodes_after(),
            stock_image=stock,
            defaults=Defaults.from_kubevirt(self.snapshot.kubevirt),
            judge=Judge(Table.for_pools(self.pools), stock or "", self.snapshot, self.policy),
            places=self.build.requires_node_labels,
            by_node_labels=True,
            findings=self.plan.errors,
        )


def make_view(build: Build, snapshot: Snapshot, given: t.Sequence[Pool] | None, options: Options) -> OperatorView:
    """The view of a cluster, compared with a pool list.

    :param given: None for the pools that the cluster has.
    :raises InputErrors: when the cluster's pools are nothing that we can read.
    """
    live = operator_plan.live_pools(build, snapshot)
    names_given = {pool.name for pool in live if given is None} | {pool.name for pool in given or ()}
    kept = [pool for pool in live if pool.name not in names_given and not options.prune]
    wanted = live if given is None else (*given, *kept)
    if build.by_name:
        wanted = tuple(sorted(wanted, key=lambda pool: pool.name))
    made = _plan(build, snapshot, live, tuple(wanted))
    return OperatorView(build, live, made, _applied(build, snapshot, live), listed=given is not None)


def _applied(build: Build, snapshot: Snapshot, live: t.Sequence[Pool]) -> str:
    entries = history.recorded_in(snapshot).entries
    if not entries or _written(build, entries[-1].pools) != _written(build, live):
        return ""
    return entries[-1].applied


def _written(build: Build, pools: t.Iterable[Pool]) -> list[str]:
    return [canonical_json(forms.to_build(build, pool)) for pool in pools]


def _plan(build: Build, snapshot: Snapshot, live: tuple[Pool, ...], wanted: tuple[Pool, ...]) -> Plan:
    primary = snapshot.primary
    view = replace(snapshot, by_operator=True, admission=None, monitoring=None)
    edit = Edit("KubeVirt", snapshot.kubevirt, snapshot.kubevirt, "", "")
    table = Table.for_pools(wanted)
    launchers = LauncherPolicyRollout(
        view,
        Choice("none", f"KubeVirt itself gives launcher pods their images, by {build.place}."),
        "refuse",
        (table,),
        table,
        in_effect=Table.for_pools(live),
    )
    empty = Plan(
        snapshot=view,
        exclusion=edit,
        settling=False,
        daemonsets=(),
        moves=(),
        retired=(),
        wanted={},
        desired={},
        findings=(),
        digest=NO_DIGEST,
    )
    if primary is None:
        return replace(empty, findings=in_order(preflight.fitness(snapshot)), parts=(launchers,))
    sets = {pool: ds for ds in snapshot.daemonsets.values() if (pool := build.pool_of(ds)) is not None}
    now, then = (
        Placement.from_layout(placement.layout_for(build, snapshot, primary, pools), snapshot)
        for pools in (live, wanted)
    )
    view = replace(
        view,
        primary=_without_exclusion(build, snapshot, primary),
        daemonsets={ds["metadata"]["name"]: _as_ours(ds, pool, live) for pool, ds in sets.items()},
        nodes={node.name: _owned(node, now) for node in snapshot.nodes.values()},
    )
    owners = {node: then.owner(node) or view.nodes[node].owner for node in view.nodes}
    desired = {pool.name: _desired(build, primary, pool, sets.get(pool.name)) for pool in wanted}
    gone = sorted(sets.keys() - desired.keys())
    changes = tuple(_changes(build, snapshot, primary, wanted, sets, desired))
    return replace(
        empty,
        snapshot=view,
        daemonsets=changes,
        retired=tuple(DaemonSetChange(pool, "delete", snapshot.namespace, live=sets[pool]) for pool in gone),
        moves=tuple(_moves(view, owners, desired, primary, {change.pool for change in changes})),
        wanted=owners,
        desired=desired,
        pools=tuple(pool.name for pool in wanted),
        findings=in_order(_findings(build, snapshot, primary, live, wanted)),
        parts=(replace(launchers, snapshot=view),),
        launcher_pools=wanted,
    )


def _owned(node: Node, placed: Placement) -> Node:
    """The node with the owner that the build gives it; the first pool of several."""
    owners = [owner for owner in placed.owners[node.name] if owner != names.PRIMARY]
    return node.owned_by(owners[0] if owners else names.PRIMARY)


def _without_exclusion(build: Build, snapshot: Snapshot, primary: KubeObject) -> Object:
    base = placement.layout_for(build, snapshot, primary, ()).without_pools["spec"]
    shown = copy.deepcopy(dict(primary))
    shown["spec"]["template"]["spec"].pop("affinity", None)
    shown["spec"]["template"]["spec"].update({key: base[key] for key in ("affinity",) if key in base})
    return shown


def _as_ours(daemonset: KubeObject, pool: str, pools: t.Iterable[Pool]) -> Object:
    """An operator's DaemonSet with the marks that ours have."""
    shown = copy.deepcopy(dict(daemonset))
    metadata = shown["metadata"]
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        names.OWNER_LABEL: pool,
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
    }
    said = [each for each in pools if each.name == pool]
    if said:
        annotation = {names.POOL_ANNOTATION: canonical_json(said[0].to_object())}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotation}
    return shown


def _desired(build: Build, primary: KubeObject, pool: Pool, live: KubeObject | None) -> Object:
    """The pool's DaemonSet as it should be, reduced to what checks look at: with its images."""
    shown = _as_ours(live or primary, pool.name, [pool])
    shown["metadata"]["name"] = names.pool_daemonset_name(pool.name)
    wanted = rollout.images(build, primary, pool)
    spec = shown["spec"]["template"]["spec"]
    for place in ("initContainers", "containers"):
        for container in spec.get(place) or ():
            container["image"] = wanted.get(container["name"], container["image"])
    return shown


def _changes(
    build: Build,
    snapshot: Snapshot,
    primary: KubeObject,
    wanted: t.Sequence[Pool],
    sets: t.Mapping[str, KubeObject],
    desired: t.Mapping[str, KubeObject],
) -> t.Iterator[DaemonSetChange]:
    for pool in wanted:
        live = sets.get(pool.name)
        if live is None:
            yield DaemonSetChange(pool.name, "create", snapshot.namespace, desired[pool.name])
            continue
        images = rollout.images(build, primary, pool)
        wrong = rollout.wrong_images(build, snapshot, primary, pool, live)
        differences = tuple(
            Difference(f"image of {name}", images[name], wrong[name]) for name in sorted(wrong) if name in images
        )
        if differences:
            yield DaemonSetChange(pool.name, "update", snapshot.namespace, desired[pool.name], live, differences)


def _moves(
    view: Snapshot,
    owners: t.Mapping[str, str],
    desired: t.Mapping[str, KubeObject],
    primary: KubeObject,
    changed: t.Collection[str],
) -> t.Iterator[Move]:
    """Nodes that should have another owner, and nodes whose handler has other images than its DaemonSet should have.

    :param changed: the pools whose DaemonSet is to change.
    """
    expected = {
        names.PRIMARY: daemonsets.images_of(primary),
        **{p: daemonsets.images_of(ds) for p, ds in desired.items()},
    }
    for node in view.nodes.values():
        owner = owners[node.name]
        if owner != node.owner:
            yield Move(node.name, node.owner, owner, "move")
            continue
        wanted = expected.get(owner, {})
        pods = view.handlers.get(node.name, ())
        if len(pods) == 1 and (
            owner in changed
            or not all(rollout.is_image(wanted.get(name, image), image) for name, image in pods[0].images.items())
        ):
            yield Move(node.name, owner, owner, "replace")


def _findings(
    build: Build,
    snapshot: Snapshot,
    primary: KubeObject,
    live: t.Sequence[Pool],
    wanted: t.Sequence[Pool],
) -> t.Iterator[Finding]:
    yield from forms.problems(build, wanted)
    yield from preflight.skew(snapshot, wanted)
    yield from history.unreadable_findings(history.recorded_in(snapshot), snapshot.namespace)
    if live and not feature_gates.is_on(snapshot.kubevirt, build.gate):
        yield error("operator_gate_off", f"Pools have no effect: {_gate_off(build)}; run site, which turns it on.")
    for sentence in rollout.observe(build, snapshot, primary, live).nodes_stale if live else ():
        yield error("operator_nodes_wrong", f"{sentence}; run site, which makes virt-operator notice the pools again.")
    layout = placement.layout_for(build, snapshot, primary, live)
    # What keeps KubeVirt from settling, and nodes from having their one handler.
    for finding in placement.findings(snapshot, layout, live, Placement.from_layout(layout, snapshot)) if live else ():
        if finding.severity == "error":
            yield finding
    for finding in operator_plan.images_left(build, wanted):
        yield warning(finding.code, finding.message)


def _gate_off(build: Build) -> str:
    return f"feature gate {build.gate} is off, so KubeVirt ignores the pools in {build.place}"


def recorded_pools(build: Build, snapshot: Snapshot) -> tuple[Pool, ...]:
    """The pools that the cluster has; none where they cannot be read."""
    try:
        return operator_plan.live_pools(build, snapshot)
    except InputErrors:
        return ()
