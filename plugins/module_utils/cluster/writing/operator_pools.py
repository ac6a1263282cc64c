# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Carries out operator-mode plan: tries every write as a dry run first, writes, and waits until virt-operator has followed."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core.base import kinds, names
from ...core.base.findings import counted, listed, printable
from ...core.base.objects import Change, KubeObject, Object
from ...core.kubevirt import feature_gates, health
from ...core.kubevirt.hco import Edit
from ...core.observed import snapshot
from ...core.observed.snapshot import Snapshot
from ...core.operator_mode import edits, found_list, rollout
from ...core.operator_mode.edits import WantedParts
from ...core.operator_mode.plan import ObjectChange, OperatorPlan, WriteStep
from ..api.client import Cluster, ClusterError, DeleteOptions
from ..api.waiting import Clock, Persistence
from ..reading import live
from . import settle, writes

_SETTLE_SECONDS = 120.0
"""How long the end of a run waits for KubeVirt's own conditions."""

_BROKEN_SECONDS = 120.0
"""How long virt-operator, or its Job, may not start: a pod that was just moved or pulls its image takes a while."""

_GATE_SECONDS = 10.0
"""How long the gate may be off after it was turned on: a cache may answer reads with an older state."""

_NODES_SECONDS = 30.0
"""The nodes are read again so often during a wait. Handlers are read each time."""


def try_out(cluster: Cluster, plan: OperatorPlan) -> list[Change]:
    """Every write of the plan as a dry run on the server: its webhooks speak before anything is stored.

    :raises ClusterError: when the server refuses one.
    """
    return [change for step in plan.steps for change in _write(cluster, plan, step, None)]


def carry_out(cluster: Cluster, plan: OperatorPlan, timeout: float, clock: Clock, windows: Windows) -> list[Change]:
    """Do what the plan says, and wait until virt-operator has followed each step.

    :param windows: is told what happens to nodes on the way.
    :returns: what was written.
    :raises InputErrors: when another user has changed what a step would write over.
    :raises ClusterError: when a write is refused, or when virt-operator takes longer than ``timeout`` seconds for a step.
    """
    wait = _Wait(cluster, plan, timeout, clock, windows)
    changes: list[Change] = []
    for step in plan.steps:
        changes += _write(cluster, plan, step, wait)
        wait.until_followed()
    if not plan.steps:
        wait.until_followed()
    return changes


def _write(cluster: Cluster, plan: OperatorPlan, step: WriteStep, wait: _Wait | None) -> list[Change]:
    """Write a step; without ``wait`` as dry runs."""
    dry_run = wait is None
    if step.objects and not dry_run:
        found_list.refuse_changed_objects(plan.build, step.expects, cluster.list(kinds.WORKER_POOL))
    changes = [_write_object(cluster, plan, change, dry_run=dry_run) for change in step.objects]
    if wait is not None:
        wait.until_gone(step.gone)
    if step.edit is not None and step.wanted is not None:
        if step.wanted.gate is False and plan.build.field is None and not dry_run:
            found_list.refuse_changed_objects(plan.build, (), cluster.list(kinds.WORKER_POOL))
        expects = None if dry_run else step.expects
        changes.append(_write_edit(cluster, plan, step.edit, step.wanted, expects=expects, dry_run=dry_run))
        if step.wanted.touch and wait is not None:
            _await_touch(cluster, plan, wait.timeout, wait.clock)
            undo = WantedParts(touch=False)
            live_kubevirt = _kubevirt(cluster, plan)
            hyperconverged = live.find_hyperconverged(cluster, live_kubevirt)
            back = edits.edit(plan.build, live_kubevirt, hyperconverged, undo)
            _write_edit(cluster, plan, back, undo, expects=None, dry_run=False)
    return changes


def _write_object(cluster: Cluster, plan: OperatorPlan, change: ObjectChange, *, dry_run: bool) -> Change:
    kind = kinds.WORKER_POOL
    if change.action == "delete":
        metadata = change.live["metadata"] if change.live is not None else {}
        options = DeleteOptions(uid=metadata.get("uid"), resource_version=metadata.get("resourceVersion"))
        cluster.delete(kind, change.name, None, options, dry_run=dry_run)
        return Change(change.live, None)
    if change.action == "create":
        obj = kind.object(change.name, spec=change.spec)
        obj["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        return Change(None, cluster.create(kind, obj, dry_run=dry_run))

    def update(found: Object) -> Object:
        if found.get("spec") != change.spec and change.live is not None:
            found_list.refuse_changed_objects(plan.build, [change.live], [found])
        return {**found, "spec": change.spec}

    return Change(*cluster.edit(kind, change.name, None, update, dry_run=dry_run))


def _write_edit(
    cluster: Cluster,
    plan: OperatorPlan,
    edit: Edit,
    wanted: WantedParts,
    *,
    expects: t.Sequence[KubeObject] | None,
    dry_run: bool,
) -> Change:
    """Write an edit of the object as it is now.

    :param expects: the list of pools that the object must still have; None when it does not matter.
    :raises InputErrors: when it has another one.
    """

    def again(found: Object) -> Edit:
        if expects is not None:
            found_list.refuse_changed_list(plan.build, plan.snapshot, found, expects, wanted)
        if edit.kind == "KubeVirt":
            return edits.edit(plan.build, found, None, wanted)
        return edits.edit(plan.build, plan.snapshot.kubevirt, found, wanted)

    return Change(*writes.edit_object(cluster, edit, again, dry_run=dry_run))


def _kubevirt(cluster: Cluster, plan: OperatorPlan) -> Object:
    return cluster.existing(kinds.KUBEVIRT, plan.snapshot.kubevirt["metadata"]["name"], plan.snapshot.namespace)


def _await_touch(cluster: Cluster, plan: OperatorPlan, timeout: float, clock: Clock) -> None:
    """Wait until the KubeVirt object has the touch. Without HCO it has it at once."""
    problem = clock.wait(
        lambda: (
            None
            if edits.is_touched(_kubevirt(cluster, plan))
            else f"HCO has not written the feature gate {edits.TOUCH} yet"
        ),
        timeout,
    )
    if problem is not None:
        raise ClusterError(
            f"HCO has not written the feature gate {edits.TOUCH} into KubeVirt {plan.snapshot.kubevirt_name} within {timeout:.0f} s; see "
            "whether it reconciles, then run again."
        )


# Waiting ------------------------------------------------------------------------------------------------------------


@dataclass
class Windows:
    """How long nodes had no handler, or several, while virt-operator worked, as observed by the waits of a run."""

    bare: dict[str, float] = field(default_factory=dict)
    doubled: dict[str, float] = field(default_factory=dict)
    _before: float | None = None
    _open: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())

    def note(self, seen: rollout.Rollout, now: float) -> None:
        passed = 0.0 if self._before is None else now - self._before
        for seconds, nodes in zip((self.bare, self.doubled), self._open, strict=True):
            for node in nodes:
                seconds[node] = seconds.get(node, 0.0) + passed
        self._open, self._before = (frozenset(seen.bare), frozenset(seen.doubled)), now

    @property
    def sentences(self) -> str:
        return " ".join(f"{line}." for line in self.lines())

    def lines(self) -> list[str]:
        """For people, one line for each kind."""
        kinds_of = (("no handler", self.bare), ("two handlers", self.doubled))
        return [
            f"{counted(len(nodes), 'node')} had {what} for a while, at most {max(nodes.values()):.0f} s: {listed(nodes)}"
            for what, nodes in kinds_of
            if nodes
        ]


_Pending = t.Callable[[Snapshot, "rollout.Rollout | None"], "str | None"]
"""What is missing, in the cluster as it is and in how far virt-operator has come; None for nothing."""


class _Wait:
    """The waits of a run for virt-operator. They count what happens to nodes, and report what is missing."""

    def __init__(self, cluster: Cluster, plan: OperatorPlan, timeout: float, clock: Clock, windows: Windows) -> None:
        self.timeout = timeout
        self.clock = clock
        self._cluster = cluster
        self._plan = plan
        self._windows = windows
        self._degraded = settle.DegradedWatch(clock)
        self._broken = Persistence(clock, _BROKEN_SECONDS)
        self._gate_off = Persistence(clock, _GATE_SECONDS)
        self._nodes = _Nodes(cluster, clock)

    def until_followed(self) -> None:
        """Wait until virt-operator has created its DaemonSets as the pools ask for, and each node has its one Ready handler.

        KubeVirt's own conditions are ignored: on some builds they are early, and with a pool without a node they never come.

        :raises InputErrors: when another user changes the pools in the meantime.
        :raises ClusterError: when it takes too long, when KubeVirt stays Degraded, when virt-operator does not start, or when
            another user turns the gate off.
        """

        def pending(found: Snapshot, seen: rollout.Rollout | None) -> str | None:
            gate_off = self._gate_problem(found.kubevirt)
            if seen is None:
                return f"there is no DaemonSet {names.HANDLER}."
            return _lost_by_hco(self._plan, found.kubevirt) or gate_off or seen.problem

        self._until(pending)

    def until_gone(self, pools: t.Collection[str]) -> None:
        """Wait until virt-operator has deleted the DaemonSets of these pools.

        :raises ClusterError: as above.
        """

        def pending(found: Snapshot, _seen: rollout.Rollout | None) -> str | None:
            left = found.daemonsets.keys() & {names.pool_daemonset_name(pool) for pool in pools}
            return f"it has not deleted DaemonSet {listed(sorted(left))}." if left else None

        if pools:
            self._until(pending)

    def _until(self, pending: _Pending) -> None:
        problem = self.clock.wait(lambda: self._round(pending), self.timeout)
        if problem is not None:
            raise ClusterError(
                f"virt-operator did not follow the pools within {self.timeout:.0f} s: {problem} It goes on by itself; run again to wait "
                f"for it, or with a longer virtpools_settle_timeout. {self._windows.sentences}".rstrip()
            )

    def _round(self, pending: _Pending) -> str | None:
        kubevirt = _kubevirt(self._cluster, self._plan)
        found = _state(self._cluster, kubevirt, self._nodes.read())
        seen = None
        if found.primary is not None:
            seen = rollout.observe(self._plan.build, found, found.primary, self._plan.pools)
            self._windows.note(seen, self.clock.now())
        problem = pending(found, seen)
        if problem is not None:
            note = f". {problem} {self._windows.sentences}".rstrip()
            # While virt-operator updates KubeVirt to another list, Degraded is expected; a failed update has a reason of its own.
            self._degraded.refuse(
                health.Health.from_kubevirt(kubevirt), f"KubeVirt {self._plan.snapshot.kubevirt_name}", note
            )
            self._refuse_broken_operator(note)
            self._refuse_another_list(kubevirt)
            self.clock.status.remind(lambda: f"Waiting for virt-operator: {problem} {self._windows.sentences}")
        return problem

    def _gate_problem(self, kubevirt: KubeObject) -> str | None:
        """What is missing while the gate, which the run's pools need, is off.

        :raises ClusterError: when it stays off. Under HCO the wait goes on: HCO may have yet to bring the gate.
        """
        plan, gate = self._plan, self._plan.build.gate
        off = bool(plan.pools) and not feature_gates.is_on(kubevirt, gate)
        if self._gate_off.lasts(off) and plan.snapshot.hyperconverged is None:
            raise ClusterError(
                f"Another user has turned off the feature gate {gate} of KubeVirt {plan.snapshot.kubevirt_name} while this run "
                "waited for virt-operator, which ignores pools without it. See who did that, such as a GitOps tool, and make it "
                f"keep the gate, then run again. {self._windows.sentences}".rstrip()
            )
        return f"the feature gate {gate} is off in the KubeVirt object." if off else None

    def _refuse_another_list(self, kubevirt: Object) -> None:
        plan, spec = self._plan, kubevirt.get("spec") or {}
        name = plan.build.field
        entries = self._cluster.list(kinds.WORKER_POOL) if name is None else spec.get(name)
        under_hco = plan.snapshot.hyperconverged is not None
        expected = (plan.pools, plan.before) if under_hco else (plan.pools,)
        found_list.refuse_another_list(plan.build, entries or (), expected)

    def _refuse_broken_operator(self, note: str) -> None:
        """End the wait when virt-operator, or its Job that prepares another list, does not start: then nothing goes on.

        :raises ClusterError: when that lasts.
        """
        pods = live.operator_pods(self._cluster, self._plan.snapshot.namespace)
        faults = sorted(f"{pod.name}: {printable(pod.fault)}" for pod in pods if pod.fault and not pod.ready)
        if self._broken.lasts(bool(faults)):
            raise ClusterError(
                f"virt-operator does not work, so nothing follows the pools: {listed(faults)}. Repair that, then run again{note}"
            )


def await_settled(cluster: Cluster, plan: OperatorPlan, clock: Clock) -> None:
    """Give KubeVirt a moment to report that it has settled. Nodes and handlers are as they should be already, so no failure
    when it does not."""
    clock.wait(
        lambda: (
            None if health.Health.from_kubevirt(_kubevirt(cluster, plan)).settled else "KubeVirt has not settled yet"
        ),
        _SETTLE_SECONDS,
    )


def unneeded_strategies(cluster: Cluster, plan: OperatorPlan) -> list[str]:
    """The ConfigMaps in which virt-operator still keeps what it had created for lists of pools. They are its own, so no run
    deletes them. It creates one again when it needs it. Empty until KubeVirt has settled.
    """
    status = _kubevirt(cluster, plan).get("status") or {}
    deployed = status.get("observedDeploymentID")
    if not plan.build.rolls_out_all or not deployed or deployed != status.get("targetDeploymentID"):
        return []
    kept = cluster.list(kinds.CONFIG_MAP, plan.snapshot.namespace, label_selector=names.INSTALL_STRATEGY_LABEL)
    written_for = {
        each["metadata"]["name"]: (each["metadata"].get("annotations") or {}).get(names.DEPLOYMENT_ANNOTATION)
        for each in kept
    }
    return sorted(name for name, deployment in written_for.items() if deployment and deployment != deployed)


def _lost_by_hco(plan: OperatorPlan, kubevirt: KubeObject) -> str | None:
    if plan.snapshot.hyperconverged is None or plan.build.field is None or not plan.pools:
        return None
    if (kubevirt.get("spec") or {}).get(plan.build.field):
        return None
    return (
        f"the KubeVirt object has no spec.{plan.build.field}: HCO has not written it yet, or this HCO was built without that field and "
        "loses it; then operator mode is not possible here."
    )


class _Nodes:
    """All nodes, read again from time to time."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._read_at: float | None = None
        self._nodes: list[Object] = []

    def read(self) -> list[Object]:
        now = self._clock.now()
        if self._read_at is None or now - self._read_at >= _NODES_SECONDS:
            self._nodes, self._read_at = list(live.all_nodes(self._cluster)), now
        return self._nodes


def _state(cluster: Cluster, kubevirt: Object, nodes: t.Iterable[Object]) -> Snapshot:
    namespace = kubevirt["metadata"]["namespace"]
    objects = snapshot.ClusterObjects(
        daemonsets=cluster.list(kinds.DAEMON_SET, namespace),
        nodes=nodes,
        pods=live.handler_pods(cluster, namespace),
    )
    return snapshot.build(kubevirt, objects)
