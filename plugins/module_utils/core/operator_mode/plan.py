# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The plan of an operator-mode run: what is written, what virt-operator then does on each node, and what the user should know before it."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, replace

from ..base import names
from ..base.findings import Finding, InputErrors, counted, error, in_order, listed, note, warning
from ..base.objects import KubeObject, Object, field, short_digest
from ..kubevirt import feature_gates, health, preflight
from ..kubevirt.feature_gates import NO_GATES, GateChange
from ..kubevirt.hco import Edit
from ..observed.snapshot import Snapshot
from ..planning import history, removal
from ..planning.history import OperatorRecord
from ..planning.options import LEAVE, Options
from ..planning.plan import NO_DIGEST, Digest, ObjectAction
from ..pools.model import Pool
from . import edits, forms, found_list, placement, rollout
from .builds import Build
from .edits import WantedParts
from .placement import Placement
from .rollout import Rollout

_UPDATE_METHODS = ("spec", "workloadUpdateStrategy", "workloadUpdateMethods")
_MOST_NODES = 20

_NOTHING_TO_DO = Rollout((), (), (), (), (), ())


@dataclass(frozen=True)
class ObjectChange:
    """A pool's object to create, update or delete. ``spec``: what it is to have."""

    name: str
    action: ObjectAction
    spec: Object | None = None
    live: KubeObject | None = None


@dataclass(frozen=True)
class WriteStep:
    """What is written at once: first objects of pools, and when the DaemonSets of ``gone`` are deleted the KubeVirt object."""

    objects: tuple[ObjectChange, ...] = ()
    gone: tuple[str, ...] = ()
    wanted: WantedParts | None = None
    expects: tuple[KubeObject, ...] = ()
    """The list, or the objects, that the step finds and replaces. When another user has changed them, it must not."""
    edit: Edit | None = None
    """The edit that ``wanted`` makes of the snapshot's object. An edit with a touch is followed by one that undoes the touch."""


@dataclass(frozen=True)
class OperatorPlan:
    """Everything that an operator-mode run does. virt-operator does the rest, at its own pace.

    ``before``: the pools that the cluster has; ``pools``: those that it has after the run. ``placed``: where handlers run then.
    ``record``: what the history must know before anything is written; None when no pool stays and all is taken back.
    """

    snapshot: Snapshot
    build: Build
    before: tuple[Pool, ...]
    pools: tuple[Pool, ...]
    steps: tuple[WriteStep, ...]
    placed: Placement
    rollout: Rollout
    findings: tuple[Finding, ...]
    digest: Digest
    record: OperatorRecord
    removing: bool
    cleared: tuple[KubeObject, ...] = ()
    """What is deleted at the very end, when no pool stays."""
    keeps_history: bool = False
    """Whether the history stays then."""
    forgets: bool = False
    """Whether it then loses the record."""
    gates: GateChange = NO_GATES
    """What the run does about feature gates that the user names."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def changed(self) -> bool:
        """Whether a run would write anything."""
        return bool(self.steps or self.cleared or self.forgets or self.gates.lines)

    @property
    def writes_list(self) -> bool:
        """Whether a run would write the list, or objects of pools."""
        return any(step.objects or (step.wanted and step.wanted.entries is not None) for step in self.steps)

    @property
    def found_list(self) -> str:
        """Digest of the list, or the objects, on which the plan is based, for a run that must not overwrite other people's changes."""
        return found_list.digest(self.build, self.snapshot, live_entries(self.build, self.snapshot))

    @property
    def settling(self) -> bool:
        """Whether what was written has not been rolled out yet, or a node that got another label has not its one handler."""
        return self.rollout.problem is not None

    @property
    def pending(self) -> bool:
        return self.changed or self.settling

    def moves(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """The nodes whose handlers are to change: the owners of those that they have, and of that which they will have."""
        moves = {}
        for node, after in self.placed.owners.items():
            now = owners_now(self.build, self.snapshot, node)
            if now != after and (now or after) and node in self.placed.needed:
                moves[node] = (now, after)
        return moves

    def changes(self) -> tuple[str, ...]:
        """Every change, one line each, in the order of the run; then what virt-operator does with the nodes."""
        lines = [] if self.removing else [*self.gates.lines]
        lines += [line for step in self.steps for line in _step_lines(self, step)]
        lines += [f"ConfigMap {self.snapshot.namespace}/{names.HISTORY}: delete" for _obj in self.cleared]
        lines += [f"ConfigMap {self.snapshot.namespace}/{names.HISTORY}: update"] if self.forgets else []
        lines += self.gates.lines if self.removing else ()
        return (
            *lines,
            *(f"Node {node}: {_names(now)} -> {_names(after)}" for node, (now, after) in self.moves().items()),
        )

    def owners(self) -> dict[str, dict[str, int]]:
        """How many nodes every owner has now, by the handlers there, and will have after the run."""
        now = collections.Counter(
            owner for node in self.snapshot.nodes for owner in owners_now(self.build, self.snapshot, node)
        )
        # A plan that was refused before that was known changes nothing.
        after = self.placed.counts() if self.placed.owners else now
        known = dict.fromkeys((names.PRIMARY, *(pool.name for pool in (*self.pools, *self.before)), *sorted(now)))
        return {owner: {"now": now[owner], "after": after[owner]} for owner in known}

    def entry(self, options: Options, applied: str, by: str) -> history.Entry:
        """The history's entry for this run once it has completed."""
        return history.entry_of(self.pools, (), options, applied, by, self.build.name)

    def is_recorded(self, options: Options) -> bool:
        """Whether the history has these pools as its newest list."""
        return history.recorded_in(self.snapshot).is_current(self.entry(options, "", ""))

    @property
    def summary(self) -> str:
        """The plan in one line, for the person who approves it."""
        if self.errors:
            return f"refused, because {' '.join(finding.message for finding in self.errors)}"
        if not self.pending:
            return "no change"
        moves = len(self.moves())
        parts = [line for step in self.steps for line in _step_lines(self, step)][:_MOST_NODES]
        parts += self.gates.lines
        parts.append(f"KubeVirt's own operator gives {counted(moves, 'node')} another handler, at its own pace")
        warnings = sum(finding.severity == "warning" for finding in self.findings)
        return "; ".join([*parts, counted(warnings, "warning")] if warnings else parts)


def owners_now(build: Build, snapshot: Snapshot, node: str) -> tuple[str, ...]:
    """The owners of the handlers that a node has now."""
    sets = {ds["metadata"]["name"]: build.pool_of(ds) for ds in snapshot.daemonsets.values()}
    pods = (pod.daemonset for pod in snapshot.handlers.get(node, ()) if pod.daemonset is not None)
    return tuple(sorted({names.PRIMARY if ds == names.HANDLER else sets.get(ds) or ds for ds in pods}))


def _names(owners: t.Sequence[str]) -> str:
    return " and ".join(owners) or "no handler"


def _step_lines(plan: OperatorPlan, step: WriteStep) -> t.Iterator[str]:
    for change in step.objects:
        yield f"{plan.build.kind} {change.name}: {change.action}"
    if step.edit is not None:
        yield str(step.edit)


# What the cluster has -----------------------------------------------------------------------------------------------


def live_entries(build: Build, snapshot: Snapshot) -> tuple[KubeObject, ...]:
    """The build's list, or its objects, as the cluster has them."""
    if build.field is not None:
        return tuple((snapshot.kubevirt.get("spec") or {}).get(build.field) or ())
    return tuple(sorted(snapshot.operator_api.worker_pools, key=lambda obj: str(obj["metadata"]["name"])))


def live_pools(build: Build, snapshot: Snapshot) -> tuple[Pool, ...]:
    """The pools that the cluster has, in the order in which the build asks them.

    :raises InputErrors: when one of them is nothing that we can read.
    """
    entries = history.recorded_in(snapshot).entries
    recorded = entries[-1].pools if entries else ()
    return forms.with_record(build, forms.from_build(build, live_entries(build, snapshot)), recorded)


# The plan -----------------------------------------------------------------------------------------------------------


def make_plan(build: Build, snapshot: Snapshot, pools: t.Sequence[Pool], options: Options) -> OperatorPlan:
    """The plan for these pools or, with ``options.remove_pools``, for their removal. Never raises for an unfit cluster."""
    findings: list[Finding] = []
    try:
        before = live_pools(build, snapshot)
    except InputErrors as problem:
        before = ()
        findings.append(error("operator_pools_unreadable", f"In {build.place}: {' '.join(problem.messages)}"))
    removing = options.remove_pools is not None
    after = _after(build, before, pools, options)
    recorded = history.recorded_in(snapshot).operator_record
    record = recorded or OperatorRecord(build.name, None)
    if record.gate_depth is None:
        # Another user may have turned it off since then.
        record = replace(record, gate_depth=edits.gate_depth(snapshot.kubevirt, build.gate))
    findings += _refused_options(options)
    findings += _unlisted(build, snapshot, before, pools, options)
    if snapshot.primary is None or findings_forbid(findings):
        findings += preflight.fitness(snapshot)
        return _nothing(build, snapshot, before, after, findings, record, removing=removing)
    layout = placement.layout_for(build, snapshot, snapshot.primary, after)
    placed = Placement.from_layout(layout, snapshot)
    seen = (
        rollout.observe(build, snapshot, snapshot.primary, after)
        if before or after or _orphans(build, snapshot)
        else _NOTHING_TO_DO
    )
    try:
        steps = _steps(build, snapshot, before, after, record, seen)
    except InputErrors as problem:
        findings += [error("operator_edit_impossible", message) for message in problem.messages]
        steps = ()
    last = not after and removing
    keeps = options.keep_history or removal.leaves_moving(options.remove_pools, snapshot)
    planned = OperatorPlan(
        snapshot=snapshot,
        build=build,
        before=before,
        pools=after,
        steps=steps,
        placed=placed,
        rollout=seen,
        findings=(),
        digest=_digest(snapshot, build, after, placed, options),
        record=record,
        removing=removing,
        cleared=removal.history(snapshot) if last and not keeps else (),
        keeps_history=keeps,
        forgets=last and keeps and recorded is not None,
    )
    findings += _fitness(planned, begun=bool(before) or recorded is not None)
    findings += forms.problems(build, () if removing else pools)
    findings += forms.labels_of_pods(() if removing else after)
    findings += placement.findings(snapshot, layout, after, placed)
    findings += _foreign_daemonsets(build, snapshot, after)
    findings += _being_deleted(build, snapshot, after)
    if not removing:
        findings += preflight.skew(snapshot, after)
    findings += _what_happens(planned)
    return replace(planned, findings=in_order(findings))


def findings_forbid(findings: t.Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _nothing(
    build: Build,
    snapshot: Snapshot,
    before: tuple[Pool, ...],
    after: tuple[Pool, ...],
    findings: t.Iterable[Finding],
    record: OperatorRecord,
    *,
    removing: bool,
) -> OperatorPlan:
    """A plan that has findings and nothing to do."""
    return OperatorPlan(
        snapshot=snapshot,
        build=build,
        before=before,
        pools=after,
        steps=(),
        placed=Placement({}, frozenset()),
        rollout=_NOTHING_TO_DO,
        findings=in_order(findings),
        digest=NO_DIGEST,
        record=record,
        removing=removing,
    )


def _after(build: Build, before: t.Sequence[Pool], pools: t.Sequence[Pool], options: Options) -> tuple[Pool, ...]:
    """The pools after the run, in the order in which the build asks them."""
    if options.remove_pools is not None:
        return (
            ()
            if options.remove_pools == removal.ALL
            else tuple(p for p in before if p.name not in options.remove_pools)
        )
    given = {pool.name for pool in pools}
    kept = [] if options.prune else [pool for pool in before if pool.name not in given]
    after = [*pools, *kept]
    return tuple(sorted(after, key=lambda pool: pool.name) if build.by_name else after)


def _steps(
    build: Build,
    snapshot: Snapshot,
    before: t.Sequence[Pool],
    after: t.Sequence[Pool],
    record: OperatorRecord,
    seen: Rollout,
) -> tuple[WriteStep, ...]:
    gate = None if (not after and record.gate_depth is None) else bool(after)
    depth = 0 if record.gate_depth is None else record.gate_depth
    entries = _entries(build, snapshot, before, after) if build.field is not None else None
    objects = _object_changes(build, snapshot, before, after) if build.field is None else ()
    orphans = _orphans(build, snapshot)
    together = bool(after) or (build.gate_with_list and not orphans)
    # DaemonSets that the gate left behind go once it is on again, when no object asks for them any more.
    first = gate if together else True if orphans else None
    wanted = WantedParts(entries, first, depth, False if edits.is_touched(snapshot.kubevirt) else None)
    edit = edits.edit(build, snapshot.kubevirt, snapshot.hyperconverged, wanted)
    gone = _gone(build, snapshot, after) if feature_gates.is_on(snapshot.kubevirt, build.gate) else ()
    if not edit.changed and (objects or _lost(snapshot, seen)):
        wanted = WantedParts(touch=True)
        edit = edits.edit(build, snapshot.kubevirt, snapshot.hyperconverged, wanted)
    elif edits.will_be_touched(snapshot.hyperconverged):
        wanted = replace(wanted, touch=False)
        edit = edits.edit(build, snapshot.kubevirt, snapshot.hyperconverged, wanted)
    live = live_entries(build, snapshot)
    # Under HCO, a run that died may have begun the touch. It has to be ended, although beginning it changes nothing.
    steps = [WriteStep(objects, gone, wanted, live, edit)] if edit.changed or wanted.touch else []
    if not together and gate is False:
        last = WantedParts(gate=False, depth=depth)
        # By then the list is deleted, or the gate is on.
        kubevirt, hyperconverged = _after_edit(snapshot, edit)
        edit = edits.edit(build, kubevirt, hyperconverged, last)
        steps += [WriteStep(wanted=last, expects=tuple(entries or ()), edit=edit)] if edit.changed else []
    return tuple(steps)


def _after_edit(snapshot: Snapshot, edit: Edit) -> tuple[KubeObject, KubeObject | None]:
    """The KubeVirt object and the HyperConverged, of which an edit has changed one."""
    if snapshot.hyperconverged is None:
        return edit.after, None
    return snapshot.kubevirt, edit.after


def _orphans(build: Build, snapshot: Snapshot) -> bool:
    """Whether DaemonSets of pools exist that virt-operator leaves alone, because they are those of objects and the gate is off."""
    off = build.field is None and not feature_gates.is_on(snapshot.kubevirt, build.gate)
    return off and bool(build.pool_daemonsets(snapshot.daemonsets.values()))


def _gone(build: Build, snapshot: Snapshot, after: t.Sequence[Pool]) -> tuple[str, ...]:
    """The pools whose DaemonSets virt-operator has yet to delete, where pools are objects. A run that was interrupted may have
    deleted these already."""
    if build.field is not None:
        return ()
    objects = {str(obj["metadata"]["name"]) for obj in live_entries(build, snapshot)}
    there = objects | build.pool_daemonsets(snapshot.daemonsets.values()).keys()
    return tuple(sorted(there - {pool.name for pool in after}))


def _lost(snapshot: Snapshot, seen: Rollout) -> bool:
    """Whether virt-operator has seen the object as it is now, and its DaemonSets still are not as the pools ask for."""
    return bool(seen.stale) and health.Health.from_kubevirt(snapshot.kubevirt).observed


def _entries(build: Build, snapshot: Snapshot, before: t.Sequence[Pool], after: t.Sequence[Pool]) -> tuple[Object, ...]:
    """The list after the run. An entry with the same content stays as it was written."""
    live = {pool.name: pool for pool in before}
    raw = {str(entry.get("name")): entry for entry in live_entries(build, snapshot)}
    return tuple(
        dict(raw[pool.name])
        if pool.name in live and forms.same(build, live[pool.name], pool)
        else forms.to_build(build, pool)
        for pool in after
    )


def _object_changes(
    build: Build, snapshot: Snapshot, before: t.Sequence[Pool], after: t.Sequence[Pool]
) -> tuple[ObjectChange, ...]:
    live = {pool.name: pool for pool in before}
    raw = {str(obj["metadata"]["name"]): obj for obj in live_entries(build, snapshot)}
    changes = []
    for pool in after:
        spec = t.cast(Object, forms.to_build(build, pool)["spec"])
        if pool.name not in live:
            changes.append(ObjectChange(pool.name, "create", spec))
        elif not forms.same(build, live[pool.name], pool):
            changes.append(ObjectChange(pool.name, "update", spec, raw[pool.name]))
    gone = sorted(live.keys() - {pool.name for pool in after})
    return (*changes, *(ObjectChange(name, "delete", live=raw[name]) for name in gone))


def _digest(snapshot: Snapshot, build: Build, after: t.Sequence[Pool], placed: Placement, options: Options) -> Digest:
    objects = {"operator": build.name, "pools": [forms.to_build(build, pool) for pool in after]}
    owners = {node: list(owners) for node, owners in placed.owners.items()}
    chosen = ["operator", options.prune, *([options.remove_pools] if options.remove_pools is not None else [])]
    cluster = Digest.cluster_of(snapshot.kubevirt)
    return Digest(cluster, short_digest(objects), short_digest(owners), short_digest(chosen))


# What the user must know --------------------------------------------------------------------------------------------


def _fitness(planned: OperatorPlan, *, begun: bool) -> t.Iterator[Finding]:
    """Findings on KubeVirt itself. What an unfinished change of pools, or a pool without a node, causes must not keep a run
    from repairing it.

    :param begun: whether there are pools, or were when a run was interrupted.
    """
    snapshot, steps = planned.snapshot, planned.steps
    edit = next((step.edit for step in reversed(steps) if step.edit is not None), None)
    found = preflight.for_removal(snapshot, edit) if edit is not None else iter(preflight.fitness(snapshot))
    repairs = begun and (planned.removing or planned.settling)
    ours = _own_rollout(planned.build, snapshot) and (planned.removing or not steps)
    for finding in found:
        repairable = finding.code in preflight.PASSING and (finding.code != preflight.ROLLOUT or ours)
        if finding.severity == "error" and repairs and repairable:
            yield warning(
                "operator_kubevirt_unsettled", f"{finding.message} The run goes on, since its pools may be the cause."
            )
        elif finding.code in ("kubevirt_upgrading", preflight.ROLLOUT):
            yield replace(finding, message=" ".join((finding.message, *_what_ends_upgrade(planned.build, snapshot))))
        else:
            yield finding


def _what_ends_upgrade(build: Build, snapshot: Snapshot) -> t.Iterator[str]:
    """What its user must do about an upgrade of KubeVirt that does not end by itself. Nothing else than virt-operator could change
    the pools until then, and it does not look at them."""
    status = snapshot.kubevirt.get("status") or {}
    former, target = (str(status.get(f"{which}KubeVirtVersion")) for which in ("observed", "target"))
    now, then = health.rank(former), health.rank(target)
    # virt-operator takes its way of upgrades for every other version, unless it knows that it is older.
    forward = former != target and (now is None or then is None or now < then)
    left = [
        name
        for name, daemonset in snapshot.daemonsets.items()
        if build.pool_of(daemonset) is not None
        and (daemonset["metadata"].get("annotations") or {}).get(names.VERSION_ANNOTATION) != target
    ]
    if not (build.stalls_upgrades and forward and left):
        return
    pools = sorted(str(build.pool_of(snapshot.daemonsets[name])) for name in left)
    yield (
        f"With {build.name} it does not end by itself: virt-operator waits for the handlers of pool {listed(pools)} to be of {target}, and "
        "renews them only after it."
    )
    lacking = [
        node
        for node, pods in sorted(snapshot.handlers.items())
        if any(pod.daemonset in left for pod in pods)
        and not any(pod.daemonset == names.HANDLER and pod.ready and not pod.terminating for pod in pods)
    ]
    lack = (
        f", and {counted(len(lacking), 'node lacks', 'nodes lack')} one ({listed(lacking)})"
        if lacking
        else ", as it is now"
    )
    yield (
        f"Once each of their nodes has a Ready handler of the primary, too{lack}, delete their DaemonSets: kubectl delete daemonset -n "
        f"{snapshot.namespace} -l {build.pool_label}. VMs keep running, and virt-operator recreates the DaemonSets "
        f"after the upgrade; then run site."
    )


def _own_rollout(build: Build, snapshot: Snapshot) -> bool:
    """Whether another deployment of the same version may be a change of the pools."""
    status = snapshot.kubevirt.get("status") or {}
    keys = ("KubeVirtVersion", "KubeVirtRegistry")
    return build.rolls_out_all and all(status.get(f"observed{key}") == status.get(f"target{key}") for key in keys)


def _foreign_daemonsets(build: Build, snapshot: Snapshot, after: t.Sequence[Pool]) -> t.Iterator[Finding]:
    for pool in after:
        live = snapshot.daemonsets.get(names.pool_daemonset_name(pool.name))
        if live is not None and build.pool_of(live) is None:
            yield error(
                "foreign_daemonset",
                f"DaemonSet {snapshot.namespace}/{live['metadata']['name']} has the name that virt-operator needs for pool "
                f"{pool.name}, and it is not virt-operator's; delete it, or give the pool another name.",
            )


def _being_deleted(build: Build, snapshot: Snapshot, after: t.Sequence[Pool]) -> t.Iterator[Finding]:
    stays = {pool.name for pool in after}
    for obj in live_entries(build, snapshot) if build.field is None else ():
        name = obj["metadata"]["name"]
        if name in stays and obj["metadata"].get("deletionTimestamp"):
            yield error(
                "pool_being_deleted",
                f"{build.kind} {name} is being deleted, which cannot be undone; wait until that has happened, then run again.",
            )


def _unlisted(
    build: Build, snapshot: Snapshot, before: t.Sequence[Pool], pools: t.Sequence[Pool], options: Options
) -> t.Iterator[Finding]:
    live = {pool.name for pool in before}
    if options.remove_pools is None:
        for name in sorted(live - {pool.name for pool in pools}) if not options.prune else ():
            yield warning(
                "pool_not_listed",
                f"Pool {name} exists in {build.place} but is not in the list: it is kept as it is; set virtpools_prune: true to "
                "take it down.",
            )
        return
    if options.remove_pools == removal.ALL:
        return
    missing = set(options.remove_pools) - live - removal.moving(snapshot)
    if missing:
        yield error(
            "removed_pool_unknown",
            f"The cluster has no pool {listed(missing)}; its pools are: {listed(live) or 'none'}. Correct virtpools_remove, then "
            "run again.",
        )


def _refused_options(options: Options) -> t.Iterator[Finding]:
    """Errors for options that promise what virt-operator does not do."""
    options_given: tuple[tuple[str, bool, str], ...] = (
        (
            "virtpools_waves",
            bool(options.waves),
            "virt-operator takes all nodes with a pool's labels at once; label the nodes wave by wave and run site after each",
        ),
        ("virtpools_overlap: first_wins", options.overlap != "error", "a node that two pools select gets two handlers"),
        (
            "virtpools_max_unavailable",
            options.max_unavailable != 1,
            "virt-operator decides how many handlers it restarts",
        ),
        (
            "virtpools_launcher_backend",
            options.launcher_backend not in ("auto", "none"),
            "virt-controller itself gives launcher pods their image",
        ),
        ("virtpools_outdated: correct", options.outdated != "refuse", "KubeVirt knows the images of its own pools"),
        (
            "virtpools_assign_new_nodes",
            options.assign_new_nodes,
            "a node that joins gets its handler by its labels anyway",
        ),
        ("virtpools_guard", bool(options.guard), "there is no owner label and no exclusion of ours to guard"),
        ("virtpools_alerts", options.alerts is not None, "its rules are about collection pools"),
        ("virtpools_drain", options.drain != LEAVE, "virt-operator does not wait for VMs"),
    )
    for option, given, why in options_given:
        if given:
            yield refused(option, why)


def refused(option: str, why: str) -> Finding:
    """The error for an option that operator mode cannot keep."""
    return error(
        "operator_option_refused",
        f"{option} cannot be kept in operator mode: {why}. Leave it out, or use collection pools.",
    )


def _what_happens(planned: OperatorPlan) -> t.Iterator[Finding]:
    """What virt-operator will do, and where its pace is unsafe."""
    build, moves = planned.build, planned.moves()
    if planned.steps:
        twice = (
            ", and a second time when the feature gate is turned off"
            if len(planned.steps) > 1 and build.rolls_out_all
            else ""
        )
        yield note(
            "operator_restarts", f"{build.restarts}{twice}; VMs keep running. Operator mode cannot keep its pace."
        )
        if build.rolls_out_all:
            yield _strategies(planned)
    # A node that has its handler beside another only loses that one.
    changing = [node for node, (now, then) in moves.items() if not {*then} <= {*now}]
    if planned.steps and changing:
        yield warning(
            "operator_window",
            f"{counted(len(changing), 'node changes its', 'nodes change their')} handler, and virt-operator decides when ({listed(changing)}). "
            f"{_window(planned, changing)}",
        )
    running = [migration for migration in planned.snapshot.migrations if migration.nodes]
    if planned.steps and running:
        yield warning(
            "operator_migrations_running",
            f"The run waits for {counted(len(running), 'live migration')}: {listed(map(str, running))}. virt-operator will not wait "
            "for those that begin later.",
        )
    methods = field(planned.snapshot.kubevirt, *_UPDATE_METHODS) or ()
    if planned.steps and methods and any(pool.virt_launcher_image for pool in (*planned.before, *planned.pools)):
        yield warning(
            "operator_updates_vms",
            f"KubeVirt has {' and '.join(methods)} in {'.'.join(_UPDATE_METHODS)}: it treats running VMs whose pool or launcher image "
            "changes as outdated, and updates them so by itself.",
        )
    yield from images_left(build, planned.pools)


def _window(planned: OperatorPlan, changing: t.Collection[str]) -> str:
    """What nodes that change owners have until virt-operator is done."""
    build, moves = planned.build, planned.moves()
    on = feature_gates.is_on(planned.snapshot.kubevirt, build.gate)
    joins = any({*moves[node][1]} - {names.PRIMARY} for node in changing)
    leaves = any({*moves[node][0]} - {names.PRIMARY} for node in changing)
    return " ".join(
        [*([build.joining if on else build.joining_first] if joins else ()), *([build.leaving] if leaves else ())]
    )


def _strategies(planned: OperatorPlan) -> Finding:
    """A note on what virt-operator keeps of each list."""
    end = "; at its end the run names those that nothing needs any more" if planned.removing else ""
    return note(
        "operator_strategies_stay",
        f"virt-operator keeps a ConfigMap with an install strategy for each list that it has ever rolled out{end}.",
    )


def images_left(build: Build, pools: t.Sequence[Pool]) -> t.Iterator[Finding]:
    """What keeps KubeVirt's own images although a pool has others."""
    with_launcher = [pool.name for pool in pools if pool.virt_launcher_image]
    if not with_launcher:
        return
    parts = []
    if not build.images(None, "launcher"):
        parts.append("the init container and the launcher image holder of its handlers")
    if not build.replaces_image_everywhere:
        parts.append("hotplug pods and image volumes of its VMs")
    if parts:
        yield note(
            "operator_images_left",
            f"In pool {listed(with_launcher)}, {' and '.join(parts)} keep KubeVirt's own launcher image: this build does not "
            "replace it there.",
        )
