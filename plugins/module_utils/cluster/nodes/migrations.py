# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Migrates VMs live, a few at a time, and proves each migration before the next one begins.

What happens to one VM is one generator that reads from top to bottom. It yields wherever it must wait.
"""

from __future__ import annotations

import typing as t
import uuid
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field

from ...core.base import kinds, names
from ...core.base.findings import InputErrors, counted, printable
from ...core.base.objects import Object, field, is_managed
from ...core.observed.migrations import is_active, waits_for_other_half
from ...core.observed.nodes import Node
from ...core.planning.relocation import AnyRelocation, Relocation, RelocationRule, with_vmi
from ...core.vms.launcher_pods import LauncherPod
from ..api.client import Cluster, ClusterError, DeleteOptions, Unreachable
from ..api.lease import LeaseLost
from ..api.waiting import Clock
from ..reading import live
from . import side_by_side

MigrationResult = t.Literal["done", "gone", "restart", "failed", "not_started"]

_NAME_PREFIX = "virtpools-update-"
_LONGEST_PAUSE_SECONDS = 1.0
_PROOF_SECONDS = 30.0
"""A VMI names the new node of its guest only some moments after the migration has ended."""
_PASSING_SECONDS = 10.0
"""KubeVirt may be Degraded for a second or two, as when an API server restarts."""
_MOST_TOLD = 5
"""VMs of which a person is told what they wait for: each costs requests, and a drain of many nodes migrates hundreds at once."""
_MOST_SINGLE_READS = 40
"""VMIs read individually, up to this number; for more, a list of all VMIs is cheaper."""


@dataclass(frozen=True)
class Limits:
    """How many migrations there may be."""

    batch: int = 2
    """Migrations at once."""
    max_failures: int = 1
    """After this many failures, no migration begins."""
    timeout: float = 900
    """Seconds for each migration."""


@dataclass(frozen=True)
class MigrationOutcome(t.Generic[AnyRelocation]):
    """What happened to one VM.

    ``gone``: the VM does not exist any more. ``restart``: it can no longer be migrated, only restarted.
    ``not_started``: too many others failed before.
    """

    relocation: AnyRelocation
    result: MigrationResult
    message: str = ""
    seconds: float | None = None

    def __str__(self) -> str:
        took = "" if self.seconds is None else f", {self.seconds:.1f} s"
        return (
            f"{self.relocation}{took}" if self.result == "done" else f"{self.relocation}: {self.result}: {self.message}"
        )

    def to_dict(self) -> dict[str, t.Any]:
        return {
            **self.relocation.to_dict(),
            "result": self.result,
            "message": self.message,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
        }


_Steps = t.Generator[None, None, MigrationOutcome[AnyRelocation]]


# Finding ------------------------------------------------------------------------------------------------------------


def find(
    cluster: Cluster,
    rule: RelocationRule[AnyRelocation],
    namespaces: t.Collection[str] = (),
    nodes: t.Collection[str] | None = None,
) -> list[AnyRelocation]:
    """The VMs that need a relocation, in these namespaces (empty: in all) and on these nodes (None: all), by name."""
    needed: dict[tuple[str, str], AnyRelocation] = {}
    for pod in live.launcher_pods(cluster, nodes):
        if namespaces and pod.namespace not in namespaces:
            continue
        relocation = rule.relocation_for(pod)
        if relocation is not None:
            needed[relocation.namespace, relocation.vmi] = relocation
    vmis = _vmis(cluster, needed)
    wanted = (with_vmi(relocation, vmis.get(key)) for key, relocation in sorted(needed.items()))
    return [relocation for relocation in wanted if relocation is not None]


def _vmis(cluster: Cluster, wanted: t.Collection[tuple[str, str]]) -> dict[tuple[str, str], Object]:
    """The VMIs with these namespaces and names, without their specs."""
    kind = kinds.VIRTUAL_MACHINE_INSTANCE
    if len(wanted) <= _MOST_SINGLE_READS:
        single = ((key, cluster.get(kind, key[1], key[0])) for key in wanted)
        return {key: vmi for key, vmi in single if vmi is not None}
    listed = (({**vmi, "spec": {}}, vmi["metadata"]) for vmi in cluster.list(kind))
    keyed = ((vmi, (metadata["namespace"], metadata["name"])) for vmi, metadata in listed)
    return {key: vmi for vmi, key in keyed if key in wanted}


class RuleInForce(t.Generic[AnyRelocation]):
    """A rule that is read again before it decides: migrations may take hours, in which KubeVirt is upgraded, or its policy edited."""

    def __init__(
        self, rule: RelocationRule[AnyRelocation], read: t.Callable[[], RelocationRule[AnyRelocation]], clock: Clock
    ) -> None:
        """``read``: reads the rule from the cluster; it raises InputErrors while no VM may be migrated."""
        self._rule = rule
        self._read = read
        self._clock = clock
        self._read_at = clock.now()

    def relocation_for(self, pod: LauncherPod) -> AnyRelocation | None:
        """As RelocationRule has it.

        :raises ClusterError: while no VM may be migrated.
        """
        self._refresh()
        return self._rule.relocation_for(pod)

    def problem(self, moved: AnyRelocation, pod: LauncherPod, node: Node | None) -> str | None:
        """As RelocationRule has it.

        :raises ClusterError: when the VM looks wrong while no VM may be migrated.
        """
        problem = self._rule.problem(moved, pod, node)
        if problem is None or not self._refresh():
            return problem
        return self._rule.problem(moved, pod, node)

    def _refresh(self) -> bool:
        """Whether the rule was stale, and is not any more."""
        if not self._clock.is_stale(self._read_at):
            return False
        refusal = self._clock.wait(self._refusal, _PASSING_SECONDS)
        if refusal is not None:
            raise ClusterError(refusal)
        return True

    def _refusal(self) -> str | None:
        """Why no VM may be migrated now; None when the rule was read."""
        read_at = self._clock.now()
        try:
            self._rule = self._read()
        except InputErrors as error:
            return " ".join(error.messages)
        self._read_at = read_at
        return None


# Carrying out -------------------------------------------------------------------------------------------------------


def carry_out(
    cluster: Cluster,
    rule: RelocationRule[AnyRelocation],
    wanted: t.Iterable[AnyRelocation],
    limits: Limits,
    clock: Clock,
    group: t.Callable[[AnyRelocation], str] | None = None,
) -> t.Iterator[MigrationOutcome[AnyRelocation]]:
    """Migrate these VMs. Outcomes come as soon as they are known, at the end those of VMs that were not started.

    When the run is interrupted, its migrations go on, and the next run finds them.

    :param group: the group of a VM. Of each group one VM is migrated alone, until one has succeeded: what breaks the migrations
        of a group then meets one VM. None: no VM waits for another.
    """
    waiting = list(wanted)
    proven: set[str] = set()
    running: dict[AnyRelocation, side_by_side.Job[None, None, MigrationOutcome[AnyRelocation]]] = {}
    failures = 0
    migrations = _Migrations(cluster, rule, limits.timeout, clock)
    for _pause in clock.pauses(longest=_LONGEST_PAUSE_SECONDS):
        while len(running) < limits.batch and failures < limits.max_failures:
            relocation = _next_of(waiting, running, proven, group)
            if relocation is None:
                break
            waiting.remove(relocation)
            running[relocation] = _job(relocation, migrations.migrate(relocation))
        for relocation, job in side_by_side.one_round(running, list(running), lambda _relocation: None):
            if job.outcome is not None:
                failures += job.outcome.result == "failed"
                if group is not None and job.outcome.seconds is not None:
                    proven.add(group(relocation))
                clock.status.say(str(job.outcome))
                yield job.outcome
        clock.status.remind(lambda: migrations.status(running, len(waiting)))
        if not running and (not waiting or failures >= limits.max_failures):
            break
    for relocation in waiting:
        yield MigrationOutcome(relocation, "not_started", f"{counted(failures, 'update')} failed before")


def _next_of(
    waiting: t.Sequence[AnyRelocation],
    running: t.Collection[AnyRelocation],
    proven: t.Collection[str],
    group: t.Callable[[AnyRelocation], str] | None,
) -> AnyRelocation | None:
    """The first VM that may be migrated now; None when all must wait."""
    if group is None:
        return waiting[0] if waiting else None
    tried = {group(relocation) for relocation in running} - set(proven)
    return next((relocation for relocation in waiting if group(relocation) not in tried), None)


def _job(
    relocation: AnyRelocation, steps: _Steps[AnyRelocation]
) -> side_by_side.Job[None, None, MigrationOutcome[AnyRelocation]]:
    return side_by_side.Job(
        steps,
        lambda error: MigrationOutcome(relocation, "failed", str(error).rstrip(".")),
        passes_on=(LeaseLost, Unreachable),
    )


@dataclass(frozen=True)
class _Migrations(t.Generic[AnyRelocation]):
    cluster: Cluster
    rule: RelocationRule[AnyRelocation]
    timeout: float
    clock: Clock
    begun: dict[Relocation, tuple[float, Object]] = dataclass_field(default_factory=dict)
    """When each VM's turn came, and the migration that it waits for."""

    def status(self, running: t.Iterable[AnyRelocation], waiting: int) -> str:
        """What is going on, for a person who watches."""
        begun = sorted((vm for vm in running if vm in self.begun), key=lambda vm: (vm.namespace, vm.vmi))
        told = ", ".join(map(self._status_of, begun[:_MOST_TOLD]))
        more = f" and {len(begun) - _MOST_TOLD} more" if len(begun) > _MOST_TOLD else ""
        return f"Waiting for migrations: {told}{more}; {counted(waiting, 'VM')} to come."

    def _status_of(self, vm: Relocation) -> str:
        began, migration = self.begun[vm]
        waited = self.clock.now() - began
        return f"{vm.namespace}/{vm.vmi} ({waited:.0f} s of at most {self.timeout:.0f} s): {self._waits_for(vm, migration)}"

    def migrate(self, relocation: AnyRelocation) -> _Steps[AnyRelocation]:
        began = self.clock.now()
        while True:
            outcome = yield from self._migrate(relocation, began)
            # KubeVirt fails the migration of a VM that ends, or deletes it.
            gone = _gone(relocation, self._vmi(relocation)) if outcome.result == "failed" else None
            if gone is not None or outcome.result != "failed":
                return gone or outcome
            # It also fails the later one of two that were created at once. The other one may do what ours was for.
            if self.clock.now() >= began + self.timeout or self._running(relocation) is None:
                return outcome

    def _migrate(self, relocation: AnyRelocation, began: float) -> _Steps[AnyRelocation]:
        give_up = began + self.timeout
        while True:
            found = self._running(relocation) or self._settled(relocation) or self._create(relocation)
            if isinstance(found, MigrationOutcome):
                waited = relocation in self.begun and found.result == "done"
                return replace(found, seconds=self.clock.now() - began) if waited else found
            running = found
            self.begun[relocation] = (began, running)
            if is_managed(running) and not _is_cancelled(running):
                break
            if self.clock.now() >= give_up:
                return MigrationOutcome(relocation, "failed", _does_not_end(running))
            yield
        name, uid = running["metadata"]["name"], running["metadata"]["uid"]
        while (phase := field(running, "status", "phase")) != "Succeeded":
            if phase == "Failed" and _is_cancelled(running):
                return _deleted(relocation, name)
            if phase == "Failed":
                return MigrationOutcome(
                    relocation, "failed", f"its migration {name} failed: {self._why(relocation, running)}"
                )
            if self.clock.now() >= give_up:
                # Asked first: KubeVirt deletes the waiting pod, which knows the scheduler's reason, at once.
                waits = self._waits_for(relocation, running)
                self._cancel(relocation, name, uid)
                left = f"did not end within {self.timeout:.0f} s and was cancelled: {waits}"
                return MigrationOutcome(relocation, "failed", f"its migration {name} {left}")
            yield
            seen = self.cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION, name, relocation.namespace)
            if seen is None or seen["metadata"]["uid"] != uid:
                return _deleted(relocation, name)
            running = seen
            self.begun[relocation] = (began, running)
        proof_by = self.clock.now() + _PROOF_SECONDS
        while (problem := self._problem(relocation)) is not None:
            if self.clock.now() >= proof_by:
                return MigrationOutcome(relocation, "failed", f"it was migrated ({name}), but {problem}")
            yield
        return MigrationOutcome(relocation, "done", seconds=self.clock.now() - began)

    def _running(self, relocation: Relocation) -> Object | None:
        """The migration of the VM that has not ended, if any; KubeVirt allows one at a time."""
        listed = self.cluster.list(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION, relocation.namespace)
        of_vmi = (migration for migration in listed if field(migration, "spec", "vmiName") == relocation.vmi)
        return next(filter(is_active, of_vmi), None)

    def _settled(self, relocation: AnyRelocation) -> MigrationOutcome[AnyRelocation] | None:
        """The outcome for a VM that need not or cannot be migrated any more; None for any other VM."""
        vmi = self._vmi(relocation)
        gone = _gone(relocation, vmi)
        if gone is not None:
            return gone
        pod = self._current_pod(relocation, vmi)
        if pod is None:
            return MigrationOutcome(relocation, "restart", "it has no running launcher pod any more")
        fresh = self.rule.relocation_for(pod)
        if fresh is None:
            return MigrationOutcome(relocation, "done", "it was updated since")
        now = with_vmi(fresh, vmi)
        return MigrationOutcome(relocation, "restart", now.reason) if now is not None and now.how == "restart" else None

    def _problem(self, relocation: AnyRelocation) -> str | None:
        """What is wrong with the VM after its migration; None when nothing is."""
        vmi = self._vmi(relocation)
        pod = self._current_pod(relocation, vmi)
        if pod is None:
            return "it has no running launcher pod"
        node = self.cluster.get(kinds.NODE, pod.node)
        return self.rule.problem(relocation, pod, Node.from_object(node) if node else None)

    def _vmi(self, relocation: Relocation) -> Object | None:
        return self.cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE, relocation.vmi, relocation.namespace)

    def _pods(self, relocation: Relocation) -> list[LauncherPod]:
        namespace = self.cluster.get(kinds.NAMESPACE, relocation.namespace)
        labels = field(namespace, "metadata", "labels")
        selector = f"{names.CREATED_BY_LABEL}={relocation.uid}"
        listed = self.cluster.list(kinds.POD, relocation.namespace, label_selector=selector)
        return [
            pod for pod in (LauncherPod.from_object(obj, labels) for obj in listed) if pod.vmi_uid == relocation.uid
        ]

    def _current_pod(self, relocation: Relocation, vmi: Object | None) -> LauncherPod | None:
        """The launcher pod that the guest runs in: during a migration there are two, and the VMI names the node."""
        node = field(vmi, "status", "nodeName")
        alive = (pod for pod in self._pods(relocation) if not pod.ended and not pod.terminating)
        return next((pod for pod in alive if pod.node == node), None)

    def _create(self, relocation: AnyRelocation) -> Object | MigrationOutcome[AnyRelocation]:
        """Create a migration of the VM. When KubeVirt refuses it, return what has happened to the VM since the last look."""
        kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
        name = f"{_NAME_PREFIX}{uuid.uuid4().hex[:12]}"
        migration = kind.object(name, relocation.namespace, spec={"vmiName": relocation.vmi})
        migration["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        try:
            return self.cluster.create(kind, migration, dry_run=False)
        except (LeaseLost, Unreachable):
            raise
        except ClusterError:
            since = self._running(relocation) or self._settled(relocation)
            if since is None:
                raise
            return since

    def _cancel(self, relocation: Relocation, name: str, uid: str) -> None:
        """Delete the migration: KubeVirt then aborts it."""
        kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
        self.cluster.delete(kind, name, relocation.namespace, DeleteOptions(uid=uid), dry_run=False)

    def _why(self, relocation: Relocation, migration: Object) -> str:
        """KubeVirt's reason for a failed migration."""
        states = [field(obj, "status", "migrationState") or {} for obj in (migration, self._vmi(relocation))]
        # A VMI keeps the state of its last migration until the next one begins.
        own = (state for state in states if state.get("migrationUid") in (None, migration["metadata"]["uid"]))
        return next(
            (str(state["failureReason"]) for state in own if state.get("failureReason")), "KubeVirt gives no reason"
        )

    def _waits_for(self, relocation: Relocation, migration: Object) -> str:
        try:
            reason = self._held_up_by(relocation, migration)
        except (LeaseLost, Unreachable):
            raise
        except ClusterError as error:
            reason = f"what it waits for could not be read: {str(error).rstrip('.')}"
        phase = field(migration, "status", "phase") or "Pending"
        return f"it is {phase}" + (f", and {reason}" if reason else "")

    def _held_up_by(self, relocation: Relocation, migration: Object) -> str | None:
        """What keeps a migration from going on, as a clause; None for one that has a target pod and no known problem."""
        target = next((pod for pod in self._pods(relocation) if pod.migration == migration["metadata"]["uid"]), None)
        reason = _blocked(migration)
        if reason is None and target is not None and target.unschedulable:
            reason = f"the scheduler reports: {target.unschedulable}"
        if reason is None and target is not None and target.held_up:
            reason = f"its target pod does not start on {target.node}: {printable(target.held_up)}"
        if reason is None and target is None:
            own = (relocation.namespace, migration["metadata"]["name"])
            others = sum(1 for m in live.migrations(self.cluster) if m.nodes and (m.namespace, m.name) != own)
            reason = (
                f"it has no target pod while {counted(others, 'other migration runs', 'other migrations run')} "
                "(KubeVirt's limits: spec.configuration.migrations)"
                if others > 0
                else "it has no target pod, see its events"
            )
        return reason


def _gone(relocation: AnyRelocation, vmi: Object | None) -> MigrationOutcome[AnyRelocation] | None:
    """The outcome for a VM that has ended; None for any other VM."""
    return MigrationOutcome(relocation, "gone", "it has ended since") if with_vmi(relocation, vmi) is None else None


def _is_cancelled(migration: Object) -> bool:
    """Whether the migration was deleted: KubeVirt aborts it, and then lets it go."""
    return bool(field(migration, "metadata", "deletionTimestamp"))


def _deleted(relocation: AnyRelocation, migration: str) -> MigrationOutcome[AnyRelocation]:
    return MigrationOutcome(relocation, "failed", f"its migration {migration} was deleted by another client")


def _does_not_end(other: Object) -> str:
    """Why a VM cannot be migrated, of which another client's migration has not ended."""
    name, namespace = other["metadata"]["name"], other["metadata"]["namespace"]
    phase = field(other, "status", "phase") or "Pending"
    waits = ", which waits for its other half in another cluster or namespace" if waits_for_other_half(other) else ""
    return (
        f"another migration of it, {name} ({phase}){waits}, does not end; cancel that one (`kubectl delete vmim {name} -n "
        f"{namespace}`)"
    )


def _blocked(migration: Object) -> str | None:
    """What keeps a migration from going on according to KubeVirt, such as a quota or a backup; None when it reports nothing."""
    for condition in field(migration, "status", "conditions") or ():
        if condition.get("status") == "True" and condition.get("message"):
            return f"KubeVirt reports {printable(condition['message']).rstrip('.')}"
    return None
