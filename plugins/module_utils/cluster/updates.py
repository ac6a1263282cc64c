# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live migrations of VMs, a few at a time, each proven before the next begins.

What happens to one VM reads as one generator, from top to bottom; it yields wherever it must wait.
"""

from __future__ import annotations

import collections
import typing as t
import uuid
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import (
    Cluster,
    ClusterError,
    Unreachable,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.lease import LeaseLost
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, names, snapshot, updates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import field
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.updates import AnyRelocation, Need, Relocation

Object = dict[str, t.Any]
Result = t.Literal["done", "gone", "restart", "failed", "not_started"]

_NAME_PREFIX = "virtpools-update-"
"""On launcher pods: the uid of their VMI."""

_LONGEST_PAUSE_SECONDS = 1.0
_PROOF_SECONDS = 30.0
"""The VMI says where its guest runs some moments after the migration has ended."""
_MOST_SINGLE_READS = 40
"""Up to so many VMIs are read one by one; more are cheaper as a list of all."""


@dataclass(frozen=True)
class Limits:
    """``batch``: migrations at once. ``max_failures``: so many, and no further one begins. ``timeout``: seconds for one."""

    batch: int = 2
    max_failures: int = 1
    timeout: float = 900


@dataclass(frozen=True)
class Outcome(t.Generic[AnyRelocation]):
    """What became of one VM.

    ``done``; ``gone``: there is no such VM any more; ``restart``: it can no longer be migrated; ``failed``;
    ``not_started``, because others failed.
    """

    update: AnyRelocation
    result: Result
    message: str = ""
    seconds: float | None = None

    def __str__(self) -> str:
        took = "" if self.seconds is None else f", {self.seconds:.1f} s"
        return f"{self.update}{took}" if self.result == "done" else f"{self.update}: {self.result}: {self.message}"

    def to_dict(self) -> dict[str, t.Any]:
        return {
            **self.update.to_dict(),
            "result": self.result,
            "message": self.message,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
        }


_Steps = t.Generator[None, None, Outcome[AnyRelocation]]


# Finding ------------------------------------------------------------------------------------------------------------


def find(
    cluster: Cluster,
    need: Need[AnyRelocation],
    namespaces: t.Collection[str] = (),
    nodes: t.Collection[str] | None = None,
) -> list[AnyRelocation]:
    """The VMs that need it, of these namespaces and nodes or of all, in order of their names."""
    found: dict[tuple[str, str], AnyRelocation] = {}
    for pod in live.launcher_pods(cluster, nodes):
        if namespaces and pod.namespace not in namespaces:
            continue
        update = need.update(pod)
        if update is not None:
            found[update.namespace, update.vmi] = update
    vmis = _vmis(cluster, found)
    wanted = (updates.with_vmi(update, vmis.get(key)) for key, update in sorted(found.items()))
    return [update for update in wanted if update is not None]


def _vmis(cluster: Cluster, wanted: t.Collection[tuple[str, str]]) -> dict[tuple[str, str], Object]:
    """These VMIs, each without its spec."""
    kind = kinds.VIRTUAL_MACHINE_INSTANCE
    if len(wanted) <= _MOST_SINGLE_READS:
        single = ((key, cluster.get(kind, key[1], key[0])) for key in wanted)
        return {key: vmi for key, vmi in single if vmi is not None}
    listed = (({**vmi, "spec": {}}, vmi["metadata"]) for vmi in cluster.list(kind))
    keyed = ((vmi, (metadata["namespace"], metadata["name"])) for vmi, metadata in listed)
    return {key: vmi for vmi, key in keyed if key in wanted}


# Carrying out -------------------------------------------------------------------------------------------------------


def carry_out(
    cluster: Cluster, need: Need[AnyRelocation], wanted: t.Iterable[AnyRelocation], limits: Limits, clock: Clock
) -> t.Iterator[Outcome[AnyRelocation]]:
    """Migrate these VMs; the outcomes come as they are known, those of VMs that were not begun at the end.

    When it is interrupted, migrations that have begun go on, and the next run finds them.
    """
    waiting = collections.deque(wanted)
    running: dict[AnyRelocation, _Steps[AnyRelocation]] = {}
    failures = 0
    migrations = _Migrations(cluster, need, limits.timeout, clock)
    for _pause in clock.pauses(longest=_LONGEST_PAUSE_SECONDS):
        while waiting and len(running) < limits.batch and failures < limits.max_failures:
            update = waiting.popleft()
            running[update] = migrations.migrate(update)
        for update, steps in list(running.items()):
            outcome = _advance(update, steps)
            if outcome is not None:
                del running[update]
                failures += outcome.result == "failed"
                yield outcome
        if not running and (not waiting or failures >= limits.max_failures):
            break
    for update in waiting:
        yield Outcome(update, "not_started", f"{failures} update(s) failed before")


def _advance(update: AnyRelocation, steps: _Steps[AnyRelocation]) -> Outcome[AnyRelocation] | None:
    """One round of one VM. What fails for a VM stays there: others are on their way."""
    try:
        next(steps)
    except StopIteration as end:
        return t.cast("Outcome[AnyRelocation]", end.value)
    except (LeaseLost, Unreachable):
        raise
    except ClusterError as error:
        return Outcome(update, "failed", str(error))
    return None


@dataclass(frozen=True)
class _Migrations(t.Generic[AnyRelocation]):
    cluster: Cluster
    need: Need[AnyRelocation]
    timeout: float
    clock: Clock

    def migrate(self, update: AnyRelocation) -> _Steps[AnyRelocation]:
        began = self.clock.now()
        give_up = began + self.timeout
        while True:
            running = self._running(update)
            if running is None:
                settled = self._settled(update)
                if settled is not None:
                    return settled
                running = self._create(update)
            if _is_ours(running):
                break
            if self.clock.now() >= give_up:
                name = running["metadata"]["name"]
                return Outcome(update, "failed", f"another migration of it, {name}, does not end")
            yield
        name, uid = running["metadata"]["name"], running["metadata"]["uid"]
        while (phase := field(running, "status", "phase")) != "Succeeded":
            if phase == "Failed":
                return Outcome(update, "failed", f"its migration {name} failed: {self._why(update, running)}")
            if self.clock.now() >= give_up:
                self._cancel(update, name, uid)
                left = f"did not end within {self.timeout:.0f} s and was cancelled: {self._waits_for(update, running)}"
                return Outcome(update, "failed", f"its migration {name} {left}")
            yield
            running = self.cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION, name, update.namespace)
            if running is None or running["metadata"]["uid"] != uid:
                return Outcome(update, "failed", f"somebody deleted its migration {name}")
        proof_by = self.clock.now() + _PROOF_SECONDS
        while (problem := self._problem(update)) is not None:
            if self.clock.now() >= proof_by:
                return Outcome(update, "failed", f"it was migrated ({name}), but {problem}")
            yield
        return Outcome(update, "done", seconds=self.clock.now() - began)

    def _running(self, update: Relocation) -> Object | None:
        """The migration of the VM that has not ended; KubeVirt allows one at a time."""
        listed = self.cluster.list(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION, update.namespace)
        of_vmi = (found for found in listed if field(found, "spec", "vmiName") == update.vmi)
        return next((found for found in of_vmi if snapshot.is_active(found)), None)

    def _settled(self, update: AnyRelocation) -> Outcome[AnyRelocation] | None:
        """What became of the VM since it was found; None when it still is to be migrated and can be."""
        vmi = self._vmi(update)
        if updates.with_vmi(update, vmi) is None:
            return Outcome(update, "gone", "it has ended meanwhile")
        pod = self._current_pod(update, vmi)
        if pod is None:
            return Outcome(update, "restart", "it has no running launcher pod any more")
        fresh = self.need.update(pod)
        if fresh is None:
            return Outcome(update, "done", "it was updated meanwhile")
        now = updates.with_vmi(fresh, vmi)
        return Outcome(update, "restart", now.reason) if now is not None and now.how == "restart" else None

    def _problem(self, update: AnyRelocation) -> str | None:
        """What is wrong with the VM after its migration."""
        vmi = self._vmi(update)
        pod = self._current_pod(update, vmi)
        if pod is None:
            return "it has no running launcher pod"
        node = self.cluster.get(kinds.NODE, pod.node)
        return self.need.problem(update, pod, Node.of(node) if node else None)

    def _vmi(self, update: Relocation) -> Object | None:
        return self.cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE, update.vmi, update.namespace)

    def _pods(self, update: Relocation) -> list[LauncherPod]:
        namespace = self.cluster.get(kinds.NAMESPACE, update.namespace)
        labels = field(namespace, "metadata", "labels")
        selector = f"{names.CREATED_BY_LABEL}={update.uid}"
        listed = self.cluster.list(kinds.POD, update.namespace, label_selector=selector)
        return [pod for pod in (LauncherPod.of(found, labels) for found in listed) if pod.vmi_uid == update.uid]

    def _current_pod(self, update: Relocation, vmi: Object | None) -> LauncherPod | None:
        """The launcher pod that the guest runs in: of two during a migration, the one where the VMI says it is."""
        node = field(vmi, "status", "nodeName")
        alive = (pod for pod in self._pods(update) if not pod.ended and not pod.terminating)
        return next((pod for pod in alive if pod.node == node), None)

    def _create(self, update: Relocation) -> Object:
        """A migration of the VM; another one if KubeVirt refuses ours because that was faster."""
        kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
        name = f"{_NAME_PREFIX}{uuid.uuid4().hex[:12]}"
        migration = kind.object(name, update.namespace, spec={"vmiName": update.vmi})
        migration["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        try:
            return self.cluster.create(kind, migration, dry_run=False)
        except (LeaseLost, Unreachable):
            raise
        except ClusterError:
            other = self._running(update)
            if other is None:
                raise
            return other

    def _cancel(self, update: Relocation, name: str, uid: str) -> None:
        """KubeVirt aborts a migration whose object is deleted."""
        kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
        self.cluster.delete(kind, name, update.namespace, uid=uid, dry_run=False)

    def _why(self, update: Relocation, migration: Object) -> str:
        """Why a migration failed, as KubeVirt says it."""
        for obj in (migration, self._vmi(update)):
            reason = field(obj, "status", "migrationState", "failureReason")
            if reason:
                return str(reason)
        return "KubeVirt does not say why"

    def _waits_for(self, update: Relocation, migration: Object) -> str:
        phase = field(migration, "status", "phase") or "Pending"
        target = next((pod for pod in self._pods(update) if pod.migration == migration["metadata"]["uid"]), None)
        said = target.unschedulable if target is not None else None
        return f"it is {phase}" + (f", and the scheduler says {said}" if said else "")


def _is_ours(migration: Object) -> bool:
    return bool(field(migration, "metadata", "labels", names.MANAGED_BY_LABEL) == names.MANAGED_BY)
