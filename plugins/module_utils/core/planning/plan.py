# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The plan: everything a run will do, in order, and what the user should know before it."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field, replace

from ..admission import guard
from ..admission.guard import Guard
from ..admission.launcher_rollout import LauncherPolicyRollout, unusable_rules
from ..base import names
from ..base.findings import Finding, InputErrors, counted, error, in_order, listed, note, warning
from ..base.objects import Difference, KubeObject, change_line, short_digest
from ..base.parts import LAST, Part, Step
from ..kubevirt import daemonsets, exclusion, hco, preflight
from ..kubevirt.feature_gates import NO_GATES, GateChange
from ..kubevirt.hco import Edit
from ..monitoring.alerts import Alerts
from ..observed.nodes import Node
from ..observed.snapshot import Snapshot
from ..pools.model import Pool
from . import assignment, batching, goals, removal, run_parts
from .batching import Move, Wave
from .goals import Goal
from .options import DIGEST_OPTIONS, LEAVE, Options

ObjectAction = t.Literal["create", "update", "delete"]

DESIRED_OBJECTS: t.Final = (
    "the desired objects (pools, images, launcher policy, or the primary DaemonSet they derive from)"
)


@dataclass(frozen=True)
class DaemonSetChange:
    """A pool DaemonSet to create, update or delete. ``differences``: what an update changes."""

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


_UNKNOWN: t.Final = "0" * 12
"""A part of a digest that is not known."""


@dataclass(frozen=True)
class Digest:
    """What an approval of a plan covers: the cluster, the desired objects, the owner of every node, the options that change
    writes, and the list that the last completed run brought.

    It covers neither what is left to do nor anything that changes by itself, so an approval holds after an interruption. The
    run that completes it uses it up.
    """

    cluster: str
    objects: str
    owners: str
    options: str
    history: str = _UNKNOWN
    """For ``History.newest``. Not known in a plan from files, and in that of an upgrade, which several runs follow."""
    takedown: str = ""
    """In a move between the modes, what the first part takes down. Empty when nothing of the former mode is left."""

    def with_options(self, name: str, value: object) -> Digest:
        """The digest of a plan with more options."""
        return replace(self, options=short_digest([self.options, name, value]))

    @staticmethod
    def cluster_of(kubevirt: KubeObject) -> str:
        """The part for the cluster that has this KubeVirt object: two clusters may need the same objects for the same nodes."""
        return short_digest(kubevirt["metadata"].get("uid"))

    def __str__(self) -> str:
        parts = (self.cluster, self.objects, self.owners, self.options, self.history, self.takedown)
        return "-".join(part for part in parts if part)

    def mismatch(
        self, expected: str, *, begun: str = "", objects: str = DESIRED_OBJECTS, pending: bool = True
    ) -> str | None:
        """What changed since the plan with the digest ``expected``, in words for a message; None when nothing did.

        :param begun: the digest with which an unfinished move began. Nodes may have come and gone since, and the cluster must
            not stay without pools because of that.
        :param objects: the desired objects, in words.
        :param pending: whether the run would change anything. The same run again, which changes nothing, needs no new approval.
        :raises InputErrors: when ``expected`` is not the digest of a plan.
        """
        expected = expected.strip()
        parts = expected.split("-")
        if len(parts) not in (5, 6) or not all(re.fullmatch(r"[0-9a-f]{12}", part) for part in parts):
            raise InputErrors(
                [
                    f"virtpools_expected_plan is {expected[:80]!r}, which is not a plan digest; copy it from the output of the playbook plan."
                ]
            )
        meanings = (
            ("the cluster (it is another one, or KubeVirt was installed again)", self.cluster, parts[0]),
            (objects, self.objects, parts[1]),
            (
                "the owners of nodes (nodes or their labels, or the pools' selectors)",
                self.owners,
                self.owners if expected == begun else parts[2],
            ),
            (
                f"the options ({', '.join(DIGEST_OPTIONS)})",
                self.options,
                parts[3],
            ),
            # What is taken down already needs no approval any more.
            ("the pools that the move takes down", self.takedown, parts[5] if parts[5:] and self.takedown else ""),
            (
                "the list that the cluster has (a run has completed; if it was this one, it has used up its approval)",
                self.history,
                self.history if expected == begun or not pending or _UNKNOWN in (self.history, parts[4]) else parts[4],
            ),
        )
        changed = [meaning for meaning, now, then in meanings if now != then]
        return " and ".join(changed) or None


NO_DIGEST: t.Final = Digest(*[_UNKNOWN] * 4)
"""The digest of a plan that can do nothing, because KubeVirt is not installed completely."""


@dataclass(frozen=True)
class Plan:
    """Everything a run does, in this order: ``gates``, ``exclusion``, ``daemonsets``, ``batches``, ``retired``.

    The steps of ``launcher_rollout`` come before the first batch and between batches. When ``undoing``, a change of the
    exclusion comes after all these, then the objects in ``cleared`` are deleted, and the gates come last.
    """

    snapshot: Snapshot
    exclusion: Edit
    settling: bool
    """Whether the primary does not run what the KubeVirt object asks for yet; the run waits for it."""
    daemonsets: tuple[DaemonSetChange, ...]
    moves: tuple[Move, ...]
    retired: tuple[DaemonSetChange, ...]
    wanted: t.Mapping[str, str]
    desired: t.Mapping[str, KubeObject]
    """DaemonSet of every pool that exists after the run, by pool; a pool that does not change has the live one."""
    findings: tuple[Finding, ...]
    digest: Digest
    pools: tuple[str, ...] = field(default=())
    """The names of the pools that the plan is about, in order."""
    parts: tuple[Part, ...] = ()
    """In the order to write them. A part that the run leaves alone, or that the snapshot does not tell, is missing."""
    waves: tuple[Wave, ...] = ()
    held_back: frozenset[str] = frozenset()
    """Nodes that should change but cannot now."""
    deleted: tuple[str, ...] = ()
    """The pools that are to go. One whose nodes cannot leave it now is not in ``retired``."""
    undoing: bool = False
    """Whether the run removes pools or restores nodes: then KubeVirt need not be healthy."""
    restoring: bool = False
    """Whether the run restores nodes after a wave that failed: then all pools stay."""
    cleared: tuple[KubeObject, ...] = ()
    """What is deleted at the very end, when no pool stays."""
    launcher_pools: tuple[Pool, ...] = ()
    """Pools that the launcher policy serves after the run, in order."""
    released: tuple[str, ...] = ()
    """Nodes that the primary gives up before the exclusion is written: its handler does not start there, and a pool gets them."""
    gates: GateChange = NO_GATES
    """What the run does about feature gates that the user names."""

    @property
    def batches(self) -> tuple[tuple[Move, ...], ...]:
        """The batches of all waves, in order."""
        return batching.batches_of(self.waves)

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
            or any(part.steps for part in self.parts)
            or self.gates.lines
        )

    @property
    def pending(self) -> bool:
        """Whether a run has anything to do, even if it only waits for KubeVirt or asks the gates of an earlier run."""
        return self.changed or self.settling or any(wave.due for wave in self.waves)

    @property
    def held(self) -> bool:
        """Whether KubeVirt drops the exclusion only once the run has deleted the guard: then it does not wait for that first."""
        return self.undoing and self.settling and guard.holds_exclusion(self.snapshot)

    @property
    def launcher_rollout(self) -> LauncherPolicyRollout | None:
        """The part for launcher pods, whose mapping tables others read."""
        return next((part for part in self.parts if isinstance(part, LauncherPolicyRollout)), None)

    def part(self, name: str) -> Part | None:
        """The part of this name."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def leftovers(self) -> tuple[str, ...]:
        """The deletion of each object that an interrupted run left behind, one line each."""
        pods = (f"Pod {pod}: delete" for pod in self.snapshot.leftover_pulls)
        return (*pods, *(f"VirtualMachine {vm}: delete" for vm in self.snapshot.leftover_canaries))

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def still_owning(self) -> dict[str, tuple[str, ...]]:
        """The pools of ``retired`` that still have nodes, each with its nodes."""
        nodes = {change.pool: removal.nodes_of(self.snapshot.nodes, [change.pool]) for change in self.retired}
        return {pool: left for pool, left in nodes.items() if left}

    def changes(self) -> tuple[str, ...]:
        """Every change, one line each, in the order of the run."""
        lines = [*self.first_changes(), *self.part_changes(0)]
        for number, batch in enumerate(self.batches, 1):
            lines += [*map(str, batch), *self.part_changes(number)]
        return (*lines, *self.last_changes())

    def steps(self) -> dict[str, list[str]]:
        """The names of the parts that the run writes, by step, in the order to write them."""
        steps: dict[str, list[str]] = {}
        for part in self.parts:
            for step in part.steps:
                steps.setdefault(str(step), []).append(part.name)
        return steps

    def part_changes(self, step: Step) -> tuple[str, ...]:
        """What the run writes of its parts at this step."""
        return tuple(line for part in self.parts for line in part.changes(step))

    def owners(self) -> dict[str, dict[str, int]]:
        """How many nodes every owner has now, and will have after the run."""
        now = assignment.counts(self.snapshot, self.snapshot.nodes)
        after = assignment.counts(self.snapshot, self.nodes_after())
        order = [names.PRIMARY, *self.pools, *sorted({*now, *after} - {names.PRIMARY, *self.pools})]
        return {owner: {"now": now[owner], "after": after[owner]} for owner in order}

    def nodes_after(self) -> dict[str, Node]:
        """The nodes with the owners that they have after the run, and their labels."""
        moved = {move.node: move.target for move in self.moves}
        return {name: node.owned_by(moved.get(name, node.owner)) for name, node in self.snapshot.nodes.items()}

    def with_findings(self, findings: t.Iterable[Finding]) -> Plan:
        """The same plan with more findings."""
        return replace(self, findings=in_order((*self.findings, *findings)))

    def first_changes(self) -> tuple[str, ...]:
        """What the run does before it touches launcher pods and nodes."""
        lines = [] if self.undoing else [*self.gates.lines]
        lines += [str(self.exclusion)] if self.exclusion.changed and not self.undoing else []
        lines += [str(change) for change in self.daemonsets]
        return (*lines, *self.leftovers)

    def last_changes(self) -> tuple[str, ...]:
        """What the run does after the last batch."""
        lines = [*map(str, self.retired), *self.part_changes(LAST)]
        if self.undoing and self.exclusion.changed:
            lines.append(str(self.exclusion))
        lines += [change_line(obj, "delete") for obj in self.cleared]
        return (*lines, *(self.gates.lines if self.undoing else ()))


def make_plan(snapshot: Snapshot, pools: t.Sequence[Pool], options: Options) -> Plan:
    """The plan for these pools on this cluster. Never raises for an unfit cluster: ``findings`` has the errors."""
    undoing = options.undoing
    if snapshot.primary is None:
        return replace(_nothing(snapshot, () if undoing else pools, options), undoing=undoing)
    goal = goals.make_goal(snapshot, snapshot.primary, pools, options)
    options, assigned = goal.options, goal.assigned
    moves, held_back, held = batching.plan_moves(goal.movable, assigned, goal.desired)
    retired, staying = _retired(snapshot, goal.deleted, moves)
    open_waves = () if undoing else batching.open_waves(snapshot, options)
    groups = batching.begun_apart(goal.waves, open_waves, moves, snapshot)
    in_waves = batching.sort_into_waves(moves, held, groups, assigned, snapshot, options)
    in_waves = batching.with_open_waves(in_waves, open_waves, snapshot)
    parts = run_parts.find_parts(snapshot, goal, batching.batches_of(in_waves), [change.pool for change in retired])
    findings = [*goal.findings, *assigned.findings, *held_back, *staying, *_restarts(snapshot, goal.exclusion)]
    lost = undoing and not exclusion.has_exclusion(snapshot.primary)
    findings += _two_handlers(snapshot, moves if lost else (), restored=goal.exclusion.changed and not undoing)
    undone = "run site first" if lost else "the run gives the nodes back first"
    findings += guard.lost_exclusion(snapshot, undone if undoing else "the run restores it")
    if not undoing:
        findings += [
            *batching.early_replacements(snapshot, in_waves, goal.desired),
            *batching.pending_gates(in_waves),
            *_migrations(snapshot, goal.exclusion, moves),
            *(finding for part in parts for finding in part.findings()),
        ]
    else:
        findings += unusable_rules(snapshot.admission)
    stuck = goal.last and bool(assigned.blocked or held_back or staying)
    return Plan(
        snapshot=snapshot,
        exclusion=exclusion.unchanged(snapshot.kubevirt, snapshot.hyperconverged) if stuck else goal.exclusion,
        settling=goal.settling and not (stuck and guard.holds_exclusion(snapshot)),
        daemonsets=_daemonset_changes(snapshot, goal.desired),
        moves=moves,
        waves=in_waves,
        held_back=held,
        retired=retired,
        deleted=goal.deleted,
        wanted=assigned.wanted,
        desired=goal.desired,
        findings=in_order(findings),
        digest=_digest(snapshot, goal, parts),
        pools=goal.pools,
        # While pools cannot go, they are watched and guarded as they are.
        parts=tuple(part for part in parts if not (stuck and isinstance(part, (Alerts, Guard)))),
        undoing=undoing,
        restoring=options.restore_nodes is not None,
        cleared=() if stuck else goal.cleared,
        launcher_pools=goal.launcher_pools,
        released=goal.released,
    )


def _nothing(snapshot: Snapshot, pools: t.Sequence[Pool], options: Options) -> Plan:
    """The plan for a KubeVirt that has no virt-handler DaemonSet yet: it has findings and nothing to do."""
    edit, problems = goals.exclusion_edit(snapshot, options)
    return Plan(
        snapshot=snapshot,
        exclusion=edit,
        settling=False,
        daemonsets=(),
        moves=(),
        retired=(),
        wanted={},
        desired={},
        findings=in_order((*problems, *preflight.check(snapshot, pools, edit))),
        digest=NO_DIGEST,
    )


def _daemonset_changes(snapshot: Snapshot, desired: t.Mapping[str, KubeObject]) -> tuple[DaemonSetChange, ...]:
    changes = []
    for pool, wanted in desired.items():
        live = snapshot.pools.get(pool)
        if live is None:
            changes.append(DaemonSetChange(pool, "create", snapshot.namespace, desired=wanted))
        elif live is not wanted:
            differences = daemonsets.drift(wanted, live)
            if differences:
                changes.append(DaemonSetChange(pool, "update", snapshot.namespace, wanted, live, differences))
    return tuple(changes)


def _retired(
    snapshot: Snapshot, gone: t.Sequence[str], moves: t.Sequence[Move]
) -> tuple[tuple[DaemonSetChange, ...], list[Finding]]:
    """The DaemonSets that are deleted; one whose nodes cannot leave it now stays."""
    leaving = {move.node for move in moves}
    changes = []
    findings = []
    for name in gone:
        stuck = [node for node in removal.nodes_of(snapshot.nodes, [name]) if node not in leaving]
        if stuck:
            findings.append(
                warning(
                    "pool_not_removed",
                    f"Pool {name} should be removed, but its DaemonSet stays because {listed(stuck)} cannot leave it now.",
                )
            )
        else:
            changes.append(DaemonSetChange(name, "delete", snapshot.namespace, live=snapshot.pools[name]))
    return tuple(changes), findings


def _migrations(snapshot: Snapshot, edit: Edit, moves: t.Sequence[Move]) -> t.Iterator[Finding]:
    moved = {move.node for move in moves}
    running = [m for m in snapshot.migrations if (m.nodes if edit.changed else m.nodes & moved)]
    if running:
        yield note(
            "migrations_running",
            f"The run waits for {counted(len(running), 'live migration')}, which the restart of a handler would break: "
            f"{listed(map(str, running))}.",
        )


def _two_handlers(snapshot: Snapshot, returning: t.Sequence[Move], *, restored: bool) -> t.Iterator[Finding]:
    """:param returning: the moves to the primary while the exclusion is missing. Its handler would not end on nodes that have it
    already, so nothing could prove there that it works alone."""
    nodes = [node for node, pods in snapshot.handlers.items() if len(pods) > 1]
    if not nodes:
        return
    what = f"{counted(len(nodes), 'node has', 'nodes have')} two handler pods, and pause, console and VNC fail there: {listed(nodes)}."
    if any(sum(not pod.terminating for pod in snapshot.handlers.get(move.node, ())) > 1 for move in returning):
        yield error(
            "two_handlers",
            f"{what} The exclusion is missing, so the run could not take the pool's handler away: run site, which restores it, then "
            "run again.",
        )
        return
    place = hco.shared_place(snapshot.hyperconverged)
    lost = f" The exclusion is missing there, and this run restores it: {place}. Exclude that from a GitOps tool that removed it."
    yield warning("two_handlers", f"{what}{lost if restored else ''}")


def _restarts(snapshot: Snapshot, edit: Edit) -> t.Iterator[Finding]:
    if edit.changed:
        running = sum(1 for pods in snapshot.handlers.values() if any(pod.daemonset == names.HANDLER for pod in pods))
        yield note(
            "primary_restarts",
            f"To keep KubeVirt's virt-handler off pool nodes, its pod template changes, so KubeVirt restarts its "
            f"{counted(running, 'handler')} once, at its own pace; VMs keep running.",
        )


def _digest(snapshot: Snapshot, goal: Goal, parts: t.Iterable[Part]) -> Digest:
    options = goal.options
    objects = {
        "exclusion": goal.exclusion.place,
        "daemonsets": {
            pool: [
                ds["metadata"]["name"],
                (ds["metadata"].get("annotations") or {}).get(names.POOL_ANNOTATION),
                ds["spec"],
            ]
            for pool, ds in goal.desired.items()
        },
        **{part.name: approved for part in parts if (approved := part.approved) is not None},
    }
    return Digest(
        cluster=Digest.cluster_of(snapshot.kubevirt),
        objects=short_digest(objects),
        owners=short_digest(dict(goal.assigned.wanted)),
        options=short_digest(
            [options.overlap, options.prune, options.max_unavailable, options.prepull]
            + (["assign_new_nodes"] if options.assign_new_nodes else [])
            + (["guard"] if options.guard is not False else [])
            + ([["alerts", options.alerts.to_object()]] if options.alerts else [])
            + ([[spec.to_object() for spec in options.waves]] if options.waves else [])
            + ([options.remove_pools] if options.remove_pools is not None else [])
            + ([[options.drain.vms, options.drain.on_non_migratable]] if options.drain != LEAVE else [])
            + ([["remove_vms", options.remove_vms]] if options.remove_vms in ("migrate", "wait") else [])
        ),
    )
