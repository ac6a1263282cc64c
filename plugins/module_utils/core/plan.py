# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a snapshot and pools to everything a run will do, in order, and everything its user must know first."""

from __future__ import annotations

import contextlib
import re
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    assignment,
    daemonsets,
    exclusion,
    guard,
    launcher_backends,
    launchers,
    names,
    node_policy,
    preflight,
    removal,
    schedule,
    waves,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.drain import LEAVE
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    InputErrors,
    in_order,
    listed,
    note,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.guard import Guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import Edit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launchers import Launchers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.node_policy import NodePolicy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Difference, digest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.schedule import Move, Wave
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import (
    Admission,
    KubeObject,
    Node,
    Snapshot,
)

ObjectAction = t.Literal["create", "update", "delete"]


@dataclass(frozen=True)
class DaemonSetChange:
    """A pool DaemonSet to create, update or delete; ``differences`` says what an update changes."""

    pool: str
    action: ObjectAction
    namespace: str
    desired: KubeObject | None = None
    live: KubeObject | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def name(self) -> str:
        return names.pool_daemonset_name(self.pool)

    def __str__(self) -> str:
        return f"DaemonSet {self.namespace}/{self.name}: {self.action}"


@dataclass(frozen=True)
class Digest:
    """What an approved plan is approved for: desired objects, owner of every node, options that change writes.

    Never what is left to do, nor anything that changes by itself: an approved plan holds after an interruption.
    """

    objects: str
    owners: str
    options: str

    def __str__(self) -> str:
        return f"{self.objects}-{self.owners}-{self.options}"

    def mismatch(self, expected: str) -> str | None:
        """What changed since ``expected``, as words for a message; None when nothing did.

        :raises InputErrors: when ``expected`` is no digest of a plan.
        """
        parts = expected.strip().split("-")
        if len(parts) != 3 or not all(re.fullmatch(r"[0-9a-f]{12}", part) for part in parts):
            raise InputErrors(
                [
                    f"expected_plan is {expected[:80]!r}, which is no plan digest; copy it from the output of the plan playbook."
                ]
            )
        meanings = (
            (
                "the desired objects (pools, images, launcher policy, or the primary DaemonSet they derive from)",
                self.objects,
                parts[0],
            ),
            ("the owners of nodes (nodes or their labels, or the pools' selectors)", self.owners, parts[1]),
            (
                "the options (overlap, prune, max_unavailable, prepull, assign_new_nodes, guard, waves, removed, vms_on_nodes, unmovable)",
                self.options,
                parts[2],
            ),
        )
        changed = [meaning for meaning, now, then in meanings if now != then]
        return " and ".join(changed) or None


@dataclass(frozen=True)
class Plan:
    """Everything a run does, in this order: ``exclusion``, ``daemonsets``, ``batches``, ``retired``.

    The steps of ``launchers`` come before the first batch and between batches. When ``undoing``, the exclusion comes after
    all these, if it goes at all, and then what is ``cleared``.
    """

    snapshot: Snapshot
    exclusion: Edit
    settling: bool
    """The primary does not run what the KubeVirt object asks for yet; the run waits for it."""
    daemonsets: tuple[DaemonSetChange, ...]
    moves: tuple[Move, ...]
    retired: tuple[DaemonSetChange, ...]
    wanted: t.Mapping[str, str]
    desired: t.Mapping[str, KubeObject]
    """DaemonSet of every pool that is there after the run, by pool; for a pool kept as it is the live one."""
    findings: tuple[Finding, ...]
    digest: Digest
    pools: tuple[str, ...] = field(default=())
    launchers: Launchers | None = None
    """None where the snapshot has not all that decides it."""
    node_policy: NodePolicy | None = None
    """None where the snapshot has not all that decides it."""
    guard: Guard | None = None
    """None where the snapshot has not all that decides it."""
    waves: tuple[Wave, ...] = ()
    """In order."""
    undoing: bool = False
    """Pools are taken away, or nodes brought back: KubeVirt need not be well for it."""
    cleared: tuple[KubeObject, ...] = ()
    """What is deleted at the very end, when no pool stays."""

    @property
    def batches(self) -> tuple[tuple[Move, ...], ...]:
        """Those of all waves, in order."""
        return schedule.batches_of(self.waves)

    @property
    def changed(self) -> bool:
        """Whether a run would write anything."""
        return bool(
            self.exclusion.changed
            or self.daemonsets
            or self.moves
            or self.retired
            or self.cleared
            or self.leftovers
            or self.launcher_steps
            or self.node_policy_changes
            or self.guard_changes
        )

    @property
    def pending(self) -> bool:
        """Whether a run has anything to do, waiting for what an earlier one left, and asking its gates, included."""
        return self.changed or self.settling or any(wave.due for wave in self.waves)

    @property
    def launcher_steps(self) -> tuple[int, ...]:
        """After how many batches the launcher policy changes; 0: before the first."""
        return self.launchers.steps if self.launchers else ()

    @property
    def node_policy_changes(self) -> tuple[str, ...]:
        """What is written for nodes to come, after the first step for launcher pods."""
        return self.node_policy.changes if self.node_policy else ()

    @property
    def guard_changes(self) -> tuple[str, ...]:
        """What is written for the guard: before nodes are handed over, and when the primary keeps off them for sure."""
        return self.guard.changes if self.guard else ()

    @property
    def leftovers(self) -> tuple[str, ...]:
        """The deletion of what an interrupted run left behind, one line each."""
        pods = (f"Pod {self.snapshot.namespace}/{name}: delete" for name in self.snapshot.leftover_pulls)
        return (*pods, *(f"VirtualMachine {vm}: delete" for vm in self.snapshot.leftover_canaries))

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def holding(self) -> dict[str, tuple[str, ...]]:
        """The pools of ``retired`` that nodes have still to leave, each with those nodes."""
        held = {change.pool: removal.concerned(self.snapshot.nodes, [change.pool]) for change in self.retired}
        return {pool: nodes for pool, nodes in held.items() if nodes}

    def changes(self) -> tuple[str, ...]:
        """Every change, one line each, in the order of the run."""
        lines = [*self.first_changes(), *self.launcher_changes(0), *self.policy_changes()]
        for number, batch in enumerate(self.batches, 1):
            lines += [*map(str, batch), *self.launcher_changes(number)]
        return (*lines, *self.last_changes())

    def nodes_after(self) -> dict[str, Node]:
        """The nodes with the owners that they have after the run."""
        moved = {move.node: move.target for move in self.moves}
        return {name: replace(node, owner=moved.get(name, node.owner)) for name, node in self.snapshot.nodes.items()}

    def noting(self, findings: t.Iterable[Finding]) -> Plan:
        """The same plan with more to tell."""
        return replace(self, findings=in_order((*self.findings, *findings)))

    def first_changes(self) -> tuple[str, ...]:
        """What is done before launcher pods and nodes are touched."""
        lines = [str(self.exclusion)] if self.exclusion.changed and not self.undoing else []
        lines += [str(change) for change in self.daemonsets]
        return (*lines, *self.leftovers)

    def policy_changes(self) -> tuple[str, ...]:
        """What is done for nodes to come and the guard, before nodes are touched."""
        return (*self.node_policy_changes, *self.guard_changes)

    def last_changes(self) -> tuple[str, ...]:
        """What is done after the last batch."""
        lines = [str(change) for change in self.retired]
        if self.undoing and self.exclusion.changed:
            lines.append(str(self.exclusion))
        return (*lines, *(launchers.line(obj, "delete") for obj in self.cleared))

    def launcher_changes(self, batches: int) -> tuple[str, ...]:
        """What is done for launcher pods after so many batches of nodes."""
        return self.launchers.changes(batches) if self.launchers and batches in self.launcher_steps else ()


def make(snapshot: Snapshot, pools: t.Sequence[Pool], options: Options) -> Plan:
    """The plan for these pools on this cluster. Never raises for an unfit cluster: ``findings`` has the errors."""
    if options.only is not None:
        return _return(snapshot, pools, options.only, options)
    if options.removed is not None:
        return _removal(snapshot, options.removed, recorded_options(snapshot, options))
    edit = exclusion.with_exclusion(snapshot.kubevirt, snapshot.hyperconverged)
    if snapshot.primary is None:
        return _nothing(snapshot, edit, pools, options)
    kept = [] if options.prune else [pool for pool in snapshot.pools if pool not in {p.name for p in pools}]
    desired, trouble = _desired(snapshot, snapshot.primary, pools, kept)
    templates = {pool: ds["spec"]["template"] for pool, ds in desired.items()}
    templates[names.PRIMARY] = _plain_template(snapshot.primary)
    assigned = assignment.assign(snapshot.nodes, pools, kept, templates, options.overlap, complete=snapshot.complete)
    changes = _daemonset_changes(snapshot, desired)
    moves, held_back, held = schedule.needed(snapshot, assigned, desired)
    listed_pools = {pool.name for pool in pools}
    gone = [pool for pool in snapshot.pools if pool not in listed_pools] if options.prune else []
    retired, staying = _retired(snapshot, gone, moves)
    members = schedule.members(snapshot, assigned)
    in_waves = schedule.reopened(schedule.by_wave(moves, held, members, assigned, snapshot, options), snapshot, options)
    batches = schedule.batches_of(in_waves)
    found = _launchers(snapshot, pools, kept, assigned, batches, options) if snapshot.admission else None
    of_nodes = _node_policy(snapshot, pools, options)
    guarded = _guard(snapshot, of_nodes, options)
    findings = [
        *preflight.check(snapshot, pools, edit, allow_skew=options.allow_skew),
        *assigned.findings,
        *trouble,
        *held_back,
        *staying,
        *_kept(kept),
        *(waves.check(options.waves, members) if snapshot.complete else ()),
        *schedule.ahead(snapshot, in_waves, desired),
        *schedule.unproven(in_waves),
        *_consequences(snapshot, edit, moves),
        *(found.findings() if found else ()),
        *(of_nodes.findings() if of_nodes else ()),
        *(guarded.findings() if guarded else ()),
    ]
    return Plan(
        snapshot=snapshot,
        exclusion=edit,
        # Not while the primary still has what this run asks for again, as when the guard held it.
        settling=preflight.own_change_settling(snapshot) and not edit.changed,
        daemonsets=changes,
        moves=moves,
        waves=in_waves,
        retired=retired,
        wanted=assigned.wanted,
        desired=desired,
        findings=in_order(findings),
        digest=_digest(edit, desired, assigned, found, of_nodes, guarded, options),
        pools=tuple(pool.name for pool in pools),
        launchers=found,
        node_policy=of_nodes,
        guard=guarded,
    )


def _removal(snapshot: Snapshot, removed: removal.Removed, options: Options) -> Plan:
    """The plan that takes pools away, and touches nothing of the others."""
    last = removal.is_last(removed, snapshot)
    edit = exclusion.without_exclusion(snapshot.kubevirt, snapshot.hyperconverged)
    if not last:
        edit = replace(edit, after=edit.before)
    if snapshot.primary is None:
        return replace(_nothing(snapshot, edit, (), options), undoing=True)
    if last:  # an approval holds when these policies are gone already
        options = replace(options, assign_new_nodes=False, guard=False)
    leaving = removal.leaving(removed, snapshot)
    pools = [pool for pool in recorded(snapshot) if pool.name not in leaving]
    desired = {name: live for name, live in snapshot.pools.items() if name not in leaving}
    templates = {pool: ds["spec"]["template"] for pool, ds in desired.items()}
    templates[names.PRIMARY] = _plain_template(snapshot.primary)
    assigned = assignment.give_back(snapshot.nodes, pools, leaving, templates)
    moves, held_back, held = schedule.needed(
        snapshot.only(removal.concerned(snapshot.nodes, leaving)), assigned, desired
    )
    retired, staying = _retired(snapshot, [pool for pool in snapshot.pools if pool in leaving], moves)
    members = schedule.members(snapshot, assigned)
    in_waves = schedule.by_wave(moves, held, members, assigned, snapshot, options)
    batches = schedule.batches_of(in_waves)
    found = None
    if snapshot.admission:
        if launcher_backends.in_use(snapshot.admission) is None:
            options = replace(options, launcher_backend="none")
        found = _launchers(snapshot, _as_in_effect(snapshot, pools), (), assigned, batches, options)
    of_nodes = _node_policy(snapshot, pools, options)
    guarded = _guard(snapshot, of_nodes, options)
    stuck = last and bool(assigned.blocked or held_back or staying)
    return Plan(
        snapshot=snapshot,
        exclusion=replace(edit, after=edit.before) if stuck else edit,
        settling=last and preflight.own_change_settling(snapshot),
        daemonsets=(),
        moves=moves,
        waves=in_waves,
        retired=retired,
        wanted=assigned.wanted,
        desired=desired,
        findings=in_order(
            [
                *removal.check(snapshot, removed, edit),
                *assigned.findings,
                *held_back,
                *staying,
                *(waves.check(options.waves, members) if snapshot.complete else ()),
                *_restarts(snapshot, edit),
            ]
        ),
        digest=_digest(edit, desired, assigned, found, of_nodes, guarded, options),
        pools=tuple(pool.name for pool in pools),
        launchers=found,
        node_policy=of_nodes,
        guard=guarded,
        undoing=True,
        cleared=removal.history(snapshot) if last and not stuck else (),
    )


def _return(snapshot: Snapshot, former: t.Sequence[Pool], nodes: t.Collection[str], options: Options) -> Plan:
    """The plan that brings these nodes back to what a former list makes of them, and leaves the others as they are.

    Handlers come from one template per DaemonSet: where the former list has another one, that of the pool is put back, and
    its nodes that stay keep the handlers they have until these end.
    """
    edit = exclusion.with_exclusion(snapshot.kubevirt, snapshot.hyperconverged)
    edit = replace(edit, after=edit.before)
    if snapshot.primary is None:
        return replace(_nothing(snapshot, edit, (), options), undoing=True)
    there = snapshot.only(nodes)
    derived = {pool.name: daemonsets.derive(snapshot.primary, pool) for pool in former}
    templates = {pool: ds["spec"]["template"] for pool, ds in derived.items()}
    templates[names.PRIMARY] = _plain_template(snapshot.primary)
    back = assignment.assign(there.nodes, former, (), templates, options.overlap, complete=False)
    taken = set(back.wanted.values())
    desired = {**snapshot.pools, **{pool: ds for pool, ds in derived.items() if pool in taken}}
    wanted = {**{node.name: node.owner for node in snapshot.nodes.values()}, **back.wanted}
    assigned = replace(back, wanted=wanted)
    moves, held_back, held = schedule.needed(there, assigned, desired)
    in_waves = schedule.by_wave(
        moves, held, schedule.members(there, assigned), assigned, snapshot, replace(options, waves=())
    )
    batches = schedule.batches_of(in_waves)
    # VMs must not wait for a pool that loses its last node.
    emptied = {node.owner for node in snapshot.nodes.values()} - set(wanted.values())
    found = None
    if snapshot.admission and emptied:
        found = launchers.without(snapshot, emptied, len(batches), recorded_options(snapshot, options).outdated)
    return Plan(
        snapshot=snapshot,
        exclusion=edit,
        settling=False,
        daemonsets=_daemonset_changes(snapshot, desired),
        moves=moves,
        waves=in_waves,
        retired=(),
        wanted=wanted,
        desired=desired,
        findings=in_order([*removal.fitness(snapshot, edit), *back.findings, *held_back]),
        digest=_digest(edit, desired, assigned, found, None, None, options),
        pools=tuple(sorted(desired)),
        launchers=found,
        undoing=True,
    )


def _node_policy(snapshot: Snapshot, pools: t.Sequence[Pool], options: Options) -> NodePolicy | None:
    if snapshot.admission is None:
        return None
    return NodePolicy(snapshot.admission, tuple(pools) if options.assign_new_nodes else ())


def _guard(snapshot: Snapshot, of_nodes: NodePolicy | None, options: Options) -> Guard | None:
    if snapshot.admission is None:
        return None
    return Guard(snapshot, snapshot.admission, options.guard, of_nodes.pools if of_nodes else ())


def _as_in_effect(snapshot: Snapshot, pools: t.Sequence[Pool]) -> list[Pool]:
    """The pools with the launcher images that VMs get now: which image is next is not for a removal to say."""
    live = launcher_backends.recorded(snapshot.admission or Admission())
    images = live.images if live else {}
    return [replace(pool, virt_launcher_image=images.get(pool.name, pool.virt_launcher_image)) for pool in pools]


def recorded(snapshot: Snapshot) -> tuple[Pool, ...]:
    """The pools as the cluster records them: those of the live launcher policy in its order, then the others by name.

    What a pool's DaemonSet says counts. One that does not say what it was made for is left out.
    """
    live = snapshot.admission and launcher_backends.recorded(snapshot.admission)
    order = [rule.name for rule in live.rules] if live else []
    found = {pool.name: pool for pool in _readable(snapshot, sorted(snapshot.pools))}
    ranked = sorted(found, key=lambda name: order.index(name) if name in order else len(order))
    return tuple(found[name] for name in ranked)


def recorded_options(snapshot: Snapshot, options: Options) -> Options:
    """The options for pools that the cluster records: what was accepted when they were made is no question now."""
    admission = snapshot.admission or Admission()
    backend, outdated = options.launcher_backend, options.outdated
    if backend == "auto":
        backend = launcher_backends.in_use(admission) or backend
    if launchers.corrects(admission):
        outdated = "correct"
    return replace(
        options,
        overlap="first_wins",
        allow_skew=True,
        launcher_backend=backend,
        outdated=outdated,
        assign_new_nodes=options.assign_new_nodes or node_policy.is_live(admission),
        guard=options.guard or guard.is_live(admission),
    )


def _nothing(snapshot: Snapshot, edit: Edit, pools: t.Sequence[Pool], options: Options) -> Plan:
    """The plan for a KubeVirt that has no virt-handler DaemonSet yet: only reasons why not."""
    return Plan(
        snapshot=snapshot,
        exclusion=edit,
        settling=False,
        daemonsets=(),
        moves=(),
        retired=(),
        wanted={},
        desired={},
        findings=in_order(preflight.check(snapshot, pools, edit, allow_skew=options.allow_skew)),
        digest=Digest("0" * 12, "0" * 12, "0" * 12),
    )


def _desired(
    snapshot: Snapshot, primary: KubeObject, pools: t.Sequence[Pool], kept: t.Sequence[str]
) -> tuple[dict[str, KubeObject], list[Finding]]:
    """The DaemonSet of every pool; pools kept follow the primary too, as far as their DaemonSet says what they are."""
    desired: dict[str, KubeObject] = {pool.name: daemonsets.derive(primary, pool) for pool in pools}
    findings = []
    for name in kept:
        live = snapshot.pools[name]
        try:
            pool = daemonsets.pool_of(live)
        except InputErrors:
            desired[name] = live
            findings.append(
                warning(
                    "kept_pool_unreadable",
                    f"DaemonSet {live['metadata']['name']} of pool {name}, which is not in the list, does not say what it "
                    f"was made for (annotation {names.POOL_ANNOTATION}); it stays as it is and does not follow KubeVirt's "
                    "upgrades.",
                )
            )
        else:
            desired[name] = daemonsets.derive(primary, pool)
    return desired, findings


def _readable(snapshot: Snapshot, pools: t.Iterable[str]) -> t.Iterator[Pool]:
    """What the DaemonSets of these pools say they were made for, as far as they do."""
    for name in pools:
        with contextlib.suppress(InputErrors):
            yield daemonsets.pool_of(snapshot.pools[name])


def _launchers(
    snapshot: Snapshot,
    pools: t.Sequence[Pool],
    kept: t.Sequence[str],
    assigned: assignment.Assignment,
    batches: t.Sequence[t.Sequence[Move]],
    options: Options,
) -> Launchers:
    staying = {*kept, *(pool.name for pool in pools)}
    return launchers.make(
        snapshot,
        (*pools, *_readable(snapshot, kept)),
        tuple(_readable(snapshot, (pool for pool in snapshot.pools if pool not in staying))),
        assigned.wanted,
        assigned.blocked,
        batches,
        backend=options.launcher_backend,
        outdated=options.outdated,
    )


def _plain_template(primary: KubeObject) -> KubeObject:
    return {"spec": exclusion.without_exclusion_terms(primary["spec"]["template"]["spec"])}


def _daemonset_changes(snapshot: Snapshot, desired: t.Mapping[str, KubeObject]) -> tuple[DaemonSetChange, ...]:
    changes = []
    for pool, wanted in desired.items():
        live = snapshot.pools.get(pool)
        if live is None:
            changes.append(DaemonSetChange(pool, "create", snapshot.namespace, desired=wanted))
        elif live is not wanted:
            found = daemonsets.drift(wanted, live)
            if found:
                changes.append(DaemonSetChange(pool, "update", snapshot.namespace, wanted, live, found))
    return tuple(changes)


def _retired(
    snapshot: Snapshot, gone: t.Sequence[str], moves: t.Sequence[Move]
) -> tuple[tuple[DaemonSetChange, ...], list[Finding]]:
    """DaemonSets of pools that go; one whose nodes cannot leave it now stays."""
    leaving = {move.node for move in moves}
    changes = []
    findings = []
    for name in gone:
        stuck = [node for node in removal.concerned(snapshot.nodes, [name]) if node not in leaving]
        if stuck:
            findings.append(
                warning(
                    "pool_not_removed",
                    f"Pool {name} is to go but its DaemonSet stays, because {listed(stuck)} cannot leave it now.",
                )
            )
        else:
            changes.append(DaemonSetChange(name, "delete", snapshot.namespace, live=snapshot.pools[name]))
    return tuple(changes), findings


def _kept(kept: t.Sequence[str]) -> t.Iterator[Finding]:
    for name in kept:
        yield warning(
            "pool_not_listed",
            f"Pool {name} exists but is not in the list: it is kept with the nodes it has; set virtpools_prune: true to "
            "give its nodes back and delete its DaemonSet.",
        )


def _consequences(snapshot: Snapshot, edit: Edit, moves: t.Sequence[Move]) -> t.Iterator[Finding]:
    yield from _restarts(snapshot, edit)
    if snapshot.migrations and (edit.changed or moves):
        yield note(
            "migrations_running",
            f"{len(snapshot.migrations)} live migration(s) are running; a restarting handler would break them, so the run "
            "waits for those that it would touch.",
        )


def _restarts(snapshot: Snapshot, edit: Edit) -> t.Iterator[Finding]:
    if edit.changed:
        running = sum(1 for pods in snapshot.handlers.values() if any(pod.daemonset == names.HANDLER for pod in pods))
        yield note(
            "primary_restarts",
            f"The exclusion is part of the primary's pod template: virt-operator restarts its {running} handler(s) once, at "
            "the pace of its own rollouts; running VMs go on.",
        )


def _digest(
    edit: Edit,
    desired: t.Mapping[str, KubeObject],
    assigned: assignment.Assignment,
    found: Launchers | None,
    of_nodes: NodePolicy | None,
    guarded: Guard | None,
    options: Options,
) -> Digest:
    objects = {
        "exclusion": edit.place,
        "daemonsets": {
            pool: [
                ds["metadata"]["name"],
                (ds["metadata"].get("annotations") or {}).get(names.POOL_ANNOTATION),
                ds["spec"],
            ]
            for pool, ds in desired.items()
        },
        "launchers": found.digest if found else None,
        **({"nodes": of_nodes.digest} if of_nodes and of_nodes.pools else {}),
        **({"guard": guarded.digest} if guarded and guarded.wanted else {}),
    }
    return Digest(
        objects=digest(objects)[:12],
        owners=digest(dict(assigned.wanted))[:12],
        options=digest(
            [options.overlap, options.prune, options.max_unavailable, options.prepull]
            + (["assign_new_nodes"] if options.assign_new_nodes else [])
            + (["guard"] if options.guard else [])
            + ([[spec.to_object() for spec in options.waves]] if options.waves else [])
            + ([options.removed] if options.removed is not None else [])
            + ([[options.drain.vms, options.drain.unmovable]] if options.drain != LEAVE else [])
        )[:12],
    )
