# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Carries out operator-mode plan: tries every write as a dry run first, writes, and waits until virt-operator has followed."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core.base import kinds, names
from ...core.base.findings import counted, listed
from ...core.base.objects import Change, KubeObject, Object
from ...core.kubevirt import health
from ...core.kubevirt.hco import Edit
from ...core.observed import snapshot
from ...core.observed.snapshot import Snapshot
from ...core.operator_mode import edits, found_list, rollout
from ...core.operator_mode.edits import WantedParts
from ...core.operator_mode.plan import ObjectChange, OperatorPlan, WriteStep
from ..api.client import Cluster, ClusterError, DeleteOptions
from ..api.waiting import Clock
from ..reading import live
from . import settle, writes

_SETTLE_SECONDS = 120.0
"""How long the end of a run waits for KubeVirt's own conditions."""

_NODES_SECONDS = 30.0
"""The nodes are read again so often during a wait. Handlers are read each time."""


def try_out(cluster: Cluster, plan: OperatorPlan) -> list[Change]:
    """Every write of the plan as a dry run on the server: its webhooks speak before anything is stored.

    :raises ClusterError: when the server refuses one.
    """
    return [change for step in plan.steps for change in _write(cluster, plan, step, dry_run=True)]


def carry_out(
    cluster: Cluster, plan: OperatorPlan, timeout: float, clock: Clock, windows: Windows, last_wait: float = 0
) -> tuple[list[Change], str | None]:
    """Do what the plan says, and wait until virt-operator has followed each step.

    :param windows: is told what happens to nodes on the way.
    :param last_wait: how many seconds to wait after the last step at most, when a longer wait is not a failure;
        0 to wait as after any step.
    :returns: what was written, and what virt-operator has not done yet when ``last_wait`` was over.
    :raises InputErrors: when another user has changed what a step would write over.
    :raises ClusterError: when a write is refused, or when virt-operator takes longer than ``timeout`` seconds for a step.
    """
    changes: list[Change] = []
    for number, step in enumerate(plan.steps, 1):
        changes += _write(cluster, plan, step, dry_run=False, timeout=timeout, clock=clock)
        if number < len(plan.steps):
            _refuse_delay(_followed(cluster, plan, timeout, clock, windows), timeout, windows)
    problem = _followed(cluster, plan, last_wait or timeout, clock, windows)
    if not last_wait:
        _refuse_delay(problem, timeout, windows)
    return changes, problem


def _write(
    cluster: Cluster,
    plan: OperatorPlan,
    step: WriteStep,
    *,
    dry_run: bool,
    timeout: float = 0,
    clock: Clock | None = None,
) -> list[Change]:
    if step.objects and not dry_run:
        found_list.refuse_changed_objects(plan.build, step.expects, cluster.list(kinds.WORKER_POOL))
    changes = [_write_object(cluster, plan, change, dry_run=dry_run) for change in step.objects]
    if clock is not None:
        for pool in step.gone:
            name = names.pool_daemonset_name(pool)
            settle.await_daemonset_gone(cluster, plan.snapshot.namespace, name, timeout, clock)
    if step.edit is not None and step.wanted is not None:
        if step.wanted.gate is False and plan.build.field is None and not dry_run:
            found_list.refuse_changed_objects(plan.build, (), cluster.list(kinds.WORKER_POOL))
        expects = None if dry_run else step.expects
        changes.append(_write_edit(cluster, plan, step.edit, step.wanted, expects=expects, dry_run=dry_run))
        if step.wanted.touch and clock is not None:
            _await_touch(cluster, plan, timeout, clock)
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
    problem = clock.wait(lambda: None if edits.is_touched(_kubevirt(cluster, plan)) else "not there", timeout)
    if problem is not None:
        raise ClusterError(
            f"HCO has not written the feature gate {edits.TOUCH} into KubeVirt {plan.snapshot.kubevirt_name} within {timeout:.0f} s; see "
            "whether it reconciles, then run again."
        )


# Waiting ------------------------------------------------------------------------------------------------------------


@dataclass
class Windows:
    """How long nodes had no handler, or several, while virt-operator worked, as observed by the wait."""

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

    def lines(self) -> list[str]:
        """For people, one line for each kind."""
        kinds_of = (("no handler", self.bare), ("two handlers", self.doubled))
        return [
            f"{counted(len(nodes), 'node')} had {what} for a while, at most {max(nodes.values()):.0f} s: {listed(nodes)}"
            for what, nodes in kinds_of
            if nodes
        ]


def _followed(cluster: Cluster, plan: OperatorPlan, timeout: float, clock: Clock, windows: Windows) -> str | None:
    """Wait until virt-operator has created its DaemonSets as the pools ask for, and each node has its one Ready handler.

    KubeVirt's own conditions are ignored: on some builds they are early, and with a pool without a node they never come.

    :returns: what is missing after ``timeout`` seconds; None for nothing.
    :raises ClusterError: when KubeVirt stays Degraded.
    """
    degraded = settle.DegradedWatch(clock)
    nodes = _Nodes(cluster, clock)

    def pending() -> str | None:
        kubevirt = _kubevirt(cluster, plan)
        state = health.Health.from_kubevirt(kubevirt)
        note = " ".join([".", *(f"{line}." for line in windows.lines())])
        degraded.refuse(state, f"KubeVirt {plan.snapshot.kubevirt_name}", note)
        found = _state(cluster, kubevirt, nodes.read())
        if found.primary is None:
            return f"there is no DaemonSet {names.HANDLER}."
        seen = rollout.observe(plan.build, found, found.primary, plan.pools)
        windows.note(seen, clock.now())
        return _lost_by_hco(plan, kubevirt) or seen.problem

    return clock.wait(pending, timeout)


def _refuse_delay(problem: str | None, timeout: float, windows: Windows) -> None:
    if problem is not None:
        raise ClusterError(
            f"virt-operator did not follow the pools within {timeout:.0f} s: {problem} It goes on by itself; run again to wait for it, "
            f"or with a longer virtpools_settle_timeout. {' '.join(f'{line}.' for line in windows.lines())}".rstrip()
        )


def await_settled(cluster: Cluster, plan: OperatorPlan, clock: Clock) -> None:
    """Give KubeVirt a moment to report that it has settled. Nodes and handlers are as they should be already, so no failure
    when it does not."""
    clock.wait(
        lambda: None if health.Health.from_kubevirt(_kubevirt(cluster, plan)).settled else "not settled",
        _SETTLE_SECONDS,
    )


def _lost_by_hco(plan: OperatorPlan, kubevirt: Object) -> str | None:
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
            self._nodes, self._read_at = list(self._cluster.list(kinds.NODE)), now
        return self._nodes


def _state(cluster: Cluster, kubevirt: Object, nodes: t.Iterable[Object]) -> Snapshot:
    namespace = kubevirt["metadata"]["namespace"]
    objects = snapshot.ClusterObjects(
        daemonsets=cluster.list(kinds.DAEMON_SET, namespace),
        nodes=nodes,
        pods=live.handler_pods(cluster, namespace),
    )
    return snapshot.build(kubevirt, objects)
