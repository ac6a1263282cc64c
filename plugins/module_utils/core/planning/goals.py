# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The three goals of a plan: to apply a pool list, to remove pools, and to restore nodes. ``plan.make`` plans all alike."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, replace

from ..admission import guard, launcher_backends, node_policy, outdated_policy, policy_objects
from ..base import names
from ..base.findings import Finding, InputErrors, warning
from ..base.objects import KubeObject
from ..kubevirt import daemonsets, exclusion, handler_fit, preflight
from ..kubevirt.hco import Edit
from ..monitoring import alerts
from ..observed.snapshot import Admission, Snapshot
from ..pools.model import Pool
from ..vms.mapping import Table
from . import assignment, batching, node_loss, removal, waves
from .assignment import Assignment
from .options import Options

NO_POOLS_GIVEN: t.Final = (
    "No pools were given, and the cluster has none: bring a list with site or rollout first, or give virtpools_pools."
)
"""The error for a comparison without pools."""


@dataclass(frozen=True)
class Goal:
    """What a run is to reach. All that sets the three kinds of plans apart is in here."""

    options: Options
    exclusion: Edit
    pools: tuple[str, ...]
    """The names of the pools that the plan is about, in order."""
    assigned: Assignment
    desired: t.Mapping[str, KubeObject]
    """DaemonSet of every pool that exists after the run, by pool; a pool that does not change has the live one."""
    movable: Snapshot
    """The snapshot with only the nodes that the run may change."""
    waves: tuple[waves.Group, ...]
    findings: tuple[Finding, ...]
    settling: bool = False
    """Whether the primary does not run what the KubeVirt object asks for yet."""
    deleted: tuple[str, ...] = ()
    """Pools whose DaemonSet goes when their nodes have left."""
    launcher_pools: tuple[Pool, ...] = ()
    """Pools that the launcher policy serves after the run, in order."""
    new_node_pools: tuple[Pool, ...] = ()
    """Pools that a policy gives new nodes to, if the options ask for one."""
    cleared: tuple[KubeObject, ...] = ()
    """What is deleted at the very end, when no pool stays."""
    last: bool = False
    """Whether no pool stays."""
    released: tuple[str, ...] = ()
    """Nodes that the primary gives up first of all, because its handler does not start there."""


def exclusion_edit(snapshot: Snapshot, options: Options) -> tuple[Edit, tuple[Finding, ...]]:
    """How the exclusion changes: the first pools bring it, and only removing the last pool takes it away.

    With findings, HyperConverged's annotation does not allow that change.
    """
    kubevirt, hyperconverged = snapshot.kubevirt, snapshot.hyperconverged
    removed = options.remove_pools
    as_it_is = exclusion.unchanged(kubevirt, hyperconverged)
    if options.restore_nodes is not None or (removed is not None and not removal.is_last(removed, snapshot)):
        return as_it_is, ()
    change = exclusion.with_exclusion if removed is None else exclusion.without_exclusion
    try:
        return change(kubevirt, hyperconverged), ()
    except InputErrors as problem:
        return as_it_is, exclusion.edit_findings(problem)


def make_goal(snapshot: Snapshot, primary: KubeObject, pools: t.Sequence[Pool], options: Options) -> Goal:
    """What the options ask for.

    :param primary: the primary's DaemonSet.
    :param pools: the list to apply or, when nodes are restored, the former list. A removal does not need it.
    """
    if options.restore_nodes is not None:
        return _restore_nodes(snapshot, primary, pools, options.restore_nodes, options)
    if options.remove_pools is not None:
        return _remove_pools(snapshot, primary, options.remove_pools, recorded_options(snapshot, options))
    return _apply_list(snapshot, primary, pools, options)


def _apply_list(snapshot: Snapshot, primary: KubeObject, pools: t.Sequence[Pool], options: Options) -> Goal:
    edit, problems = exclusion_edit(snapshot, options)
    primary = primary if problems else exclusion.primary_after(primary, edit)
    unlisted = [pool for pool in snapshot.pools if pool not in {p.name for p in pools}]
    kept = [] if options.prune else unlisted
    desired, of_kept = _desired(snapshot, primary, pools, kept)
    templates = _templates(primary, {**snapshot.pools, **desired})
    assigned = assignment.assign(snapshot.nodes, pools, kept, templates, options.overlap, complete=snapshot.complete)
    members = batching.members(snapshot, assigned)
    released = _released(snapshot, assigned)
    return Goal(
        options=options,
        exclusion=edit,
        pools=tuple(pool.name for pool in pools),
        assigned=assigned,
        desired=desired,
        movable=snapshot,
        waves=waves.group(options.waves, members),
        findings=(
            *problems,
            *preflight.check(snapshot, pools, edit, released),
            *of_kept,
            *(waves.check(options.waves, members) if snapshot.complete else ()),
            *(_node_loss(snapshot, pools, assigned, options) if snapshot.complete else ()),
            *(
                ()
                if options.assign_new_nodes
                else assignment.node_groups(assigned, snapshot.nodes, _advice(snapshot, options))
            ),
        ),
        # While the primary still has the exclusion that this run writes again, as when the guard refused its removal, there
        # is nothing to wait for.
        settling=preflight.own_change_settling(snapshot) and not edit.changed,
        deleted=tuple(unlisted) if options.prune else (),
        launcher_pools=(*pools, *_served(snapshot, kept)),
        new_node_pools=tuple(pools),
        released=released,
    )


def _advice(snapshot: Snapshot, options: Options) -> assignment.NewNodes:
    """How nodes that join can get their owner on this cluster."""
    admission = snapshot.admission
    guarded = options.guard is not False and (admission is None or admission.validating)
    return assignment.NewNodes(admission is None or admission.policy_kind is not None, guarded)


def _released(snapshot: Snapshot, assigned: Assignment) -> tuple[str, ...]:
    """The nodes of the primary where its handler does not start, and that go to a pool. Until they have left it, KubeVirt is not
    available, and its rollout of the exclusion stands still."""
    broken = preflight.broken_handlers(snapshot)
    nodes = (node for node in snapshot.nodes.values() if node.name in broken and node.name not in assigned.blocked)
    # An earlier run may have released them.
    leaving = (node for node in nodes if node.owner in (names.PRIMARY, names.IN_TRANSIT))
    return tuple(node.name for node in leaving if assigned.wanted[node.name] != names.PRIMARY)


def _node_loss(
    snapshot: Snapshot, pools: t.Sequence[Pool], assigned: Assignment, options: Options
) -> t.Iterator[Finding]:
    existing = readable(snapshot, snapshot.pools)
    returning, limit = options.back_to is not None, options.max_nodes_lost
    return node_loss.check(snapshot.nodes, assigned.wanted, pools, existing, limit, returning=returning)


def _remove_pools(snapshot: Snapshot, primary: KubeObject, removed: removal.Removed, options: Options) -> Goal:
    """Take pools away, and leave all others as they are."""
    last = removal.is_last(removed, snapshot)
    edit, problems = exclusion_edit(snapshot, options)
    if last:  # An approved plan holds when an earlier run has deleted these objects.
        options = replace(options, assign_new_nodes=False, guard=False, alerts=None)
    if launcher_backends.backend_in_use(snapshot.admission or Admission()) is None:
        options = replace(options, launcher_backend="none")
    keeps_history = options.keep_history or removal.leaves_moving(removed, snapshot)
    leaving = removal.leaving(removed, snapshot)
    pools = tuple(pool for pool in recorded(snapshot) if pool.name not in leaving)
    desired = {name: live for name, live in snapshot.pools.items() if name not in leaving}
    assigned = assignment.give_back(snapshot.nodes, pools, leaving, _templates(primary, snapshot.pools))
    members = batching.members(snapshot, assigned)
    return Goal(
        options=options,
        exclusion=edit,
        pools=tuple(pool.name for pool in pools),
        assigned=assigned,
        desired=desired,
        movable=snapshot.limited_to(removal.changing(leaving, snapshot)),
        waves=waves.group(options.waves, members),
        findings=(
            *problems,
            *removal.check(snapshot, removed, edit),
            *(waves.check(options.waves, members) if snapshot.complete else ()),
        ),
        settling=last and preflight.own_change_settling(snapshot),
        deleted=tuple(pool for pool in snapshot.pools if pool in leaving),
        launcher_pools=_with_live_images(snapshot, _served(snapshot, _in_order(snapshot, desired))),
        new_node_pools=pools,
        cleared=removal.history(snapshot) if last and not keeps_history else (),
        last=last,
    )


def _restore_nodes(
    snapshot: Snapshot, primary: KubeObject, former: t.Sequence[Pool], nodes: t.Collection[str], options: Options
) -> Goal:
    """Bring these nodes back to what a former list makes of them, and leave the others as they are.

    A DaemonSet has one template for all its nodes: where the former list has another one, the run restores it, and the
    pool's other nodes keep the handlers that they have until these end.
    """
    edit, _problems = exclusion_edit(snapshot, options)
    movable = snapshot.limited_to(nodes)
    derived = {pool.name: daemonsets.derive(primary, pool) for pool in former}
    templates = _templates(primary, {**snapshot.pools, **derived})
    restored = assignment.assign(movable.nodes, former, (), templates, options.overlap, complete=False)
    taken = set(restored.wanted.values())
    desired = {**snapshot.pools, **{pool: ds for pool, ds in derived.items() if pool in taken}}
    owners = {node.name: node.owner for node in snapshot.nodes.values()}
    assigned = replace(restored, wanted={**owners, **restored.wanted})
    return Goal(
        options=replace(options, outdated=recorded_options(snapshot, options).outdated),
        exclusion=edit,
        pools=tuple(sorted(desired)),
        assigned=assigned,
        desired=desired,
        movable=movable,
        waves=waves.group((), batching.members(movable, assigned)),
        findings=tuple(removal.fitness(snapshot, edit)),
    )


def _templates(primary: KubeObject, desired: t.Mapping[str, KubeObject]) -> dict[str, KubeObject]:
    """The pod template of every owner's DaemonSet; the primary's without our exclusion."""
    templates = {pool: daemonset["spec"]["template"] for pool, daemonset in desired.items()}
    return {**templates, names.PRIMARY: handler_fit.primary_template(primary)}


def _desired(
    snapshot: Snapshot, primary: KubeObject, pools: t.Sequence[Pool], kept: t.Sequence[str]
) -> tuple[dict[str, KubeObject], list[Finding]]:
    """The DaemonSet of every pool. Pools that are kept follow the primary too, if their DaemonSet says what they are and their images
    are fit for this version of KubeVirt."""
    desired: dict[str, KubeObject] = {pool.name: daemonsets.derive(primary, pool) for pool in pools}
    findings = []
    for name in kept:
        findings.append(
            warning(
                "pool_not_listed",
                f"Pool {name} exists but is not in the list: it is kept with the nodes it has; set virtpools_prune: true to "
                "give its nodes back and delete its DaemonSet.",
            )
        )
        live = snapshot.pools[name]
        try:
            pool = daemonsets.pool_of(live)
            skew = tuple(preflight.skew(snapshot, [pool]))
            refused = [finding.message for finding in skew if finding.severity == "error"]
            desired[name] = live if refused else daemonsets.derive(primary, pool)
            findings += [_kept_with_skew(live, refused)] if refused else skew
        except InputErrors:
            desired[name] = live
            findings.append(
                warning(
                    "kept_pool_unreadable",
                    f"DaemonSet {live['metadata']['name']} of pool {name}, which is not in the list, does not record "
                    f"what it was created for (annotation {names.POOL_ANNOTATION}); it stays as it is and does not follow KubeVirt's "
                    "upgrades.",
                )
            )
    return desired, findings


def _kept_with_skew(live: KubeObject, refused: t.Sequence[str]) -> Finding:
    """:param refused: why the images would be refused if the pool were in the list."""
    return warning(
        "kept_pool_skew",
        f"{' '.join(refused)} The pool is not in the list, so its DaemonSet {live['metadata']['name']} stays as it is and does not "
        "follow KubeVirt's upgrade; put the pool into the list with fit images, or set virtpools_prune: true.",
    )


# What the cluster records -------------------------------------------------------------------------------------------


def readable(snapshot: Snapshot, pools: t.Iterable[str]) -> t.Iterator[Pool]:
    """These pools as their DaemonSets describe them; one whose DaemonSet does not is left out."""
    for name in pools:
        with contextlib.suppress(InputErrors):
            yield daemonsets.pool_of(snapshot.pools[name])


def recorded(snapshot: Snapshot) -> tuple[Pool, ...]:
    """The pools as their DaemonSets describe them: first those of the live launcher policy in its order, then the others by
    name. A pool whose DaemonSet does not describe it is left out."""
    return tuple(readable(snapshot, _in_order(snapshot, snapshot.pools)))


def _in_order(snapshot: Snapshot, pools: t.Iterable[str]) -> list[str]:
    """First those of the live launcher policy in its order, then the others by name."""
    order = list(_live_table(snapshot).images)
    return sorted(sorted(pools), key=lambda name: order.index(name) if name in order else len(order))


def _live_table(snapshot: Snapshot) -> Table:
    """What the live launcher policy does for VMs of the present version of KubeVirt."""
    table = launcher_backends.recorded_table(snapshot.admission or Admission()) or Table(())
    return table.as_of(outdated_policy.stock_image(snapshot))


def _served(snapshot: Snapshot, pools: t.Collection[str]) -> tuple[Pool, ...]:
    """These pools for the launcher policy: as their DaemonSets describe them or, where one does not, as the live policy has it, so
    that its VMs keep their image and its nodes."""
    known = {**_live_table(snapshot).pools, **{pool.name: pool for pool in readable(snapshot, pools)}}
    return tuple(known[pool] for pool in pools if pool in known)


def recorded_options(snapshot: Snapshot, options: Options) -> Options:
    """The options for pools that the cluster records: overlaps were accepted when they were applied."""
    admission = snapshot.admission or Admission()
    backend, outdated = options.launcher_backend, options.outdated
    if backend == "auto":
        backend = launcher_backends.backend_in_use(admission) or backend
    if policy_objects.live_objects(admission, names.OUTDATED_POLICY):
        outdated = "correct"
    return replace(
        options,
        overlap="first_wins",
        launcher_backend=backend,
        outdated=outdated,
        assign_new_nodes=options.assign_new_nodes or node_policy.is_live(admission),
        guard=bool(options.guard) or guard.is_live(admission),
        alerts=options.alerts or alerts.recorded(snapshot.monitoring),
    )


def _with_live_images(snapshot: Snapshot, pools: t.Iterable[Pool]) -> tuple[Pool, ...]:
    """The pools with the launcher images that VMs get now: a removal does not bring a pool's next image."""
    images = _live_table(snapshot).images
    return tuple(replace(pool, virt_launcher_image=images.get(pool.name, pool.virt_launcher_image)) for pool in pools)
