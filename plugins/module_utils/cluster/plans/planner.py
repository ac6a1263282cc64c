# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Makes the plan of a run on a cluster, or from files: it asks for the rights that the run needs, waits for what passes by
itself, and adds what the run means for VMs."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, replace

from ...core.base import permissions
from ...core.base.findings import Finding, in_order
from ...core.base.objects import KubeObject
from ...core.base.permissions import Permission
from ...core.checks import canary
from ...core.checks.canary import Blueprint
from ...core.kubevirt import feature_gates
from ...core.modes import choice, moving
from ...core.modes.mode import Mode
from ...core.observed.snapshot import Snapshot
from ...core.planning import approval, list_conflicts
from ...core.planning.departure import Departure
from ...core.planning.history import PendingMove, recorded_in, unreadable_findings
from ...core.planning.proposal import AskedMode, Proposal
from ...core.planning.request import PlanRequest
from ...core.vms.launcher_pods import LauncherPod
from ..api.client import Cluster, ClusterError
from ..api.waiting import Clock
from ..nodes import canary as canary_vms
from ..reading import dump, live
from ..writing import history, settle

_TRANSIENT_SECONDS = 60


class Session(t.Protocol):
    """The module in which a plan is made."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def clock(self) -> Clock: ...

    def snapshot(self) -> Snapshot: ...

    def require(self, rights: t.Iterable[Permission]) -> None: ...

    def lacks(self, rights: t.Iterable[Permission]) -> bool: ...

    def settle(self, timeout: float) -> None: ...


@dataclass(frozen=True)
class Planned:
    """A plan, and the first part of the run where it moves between the modes."""

    mode: Mode
    proposal: Proposal
    departure: Departure | None
    move: PendingMove | None
    """What the history must know of a move before its first write; also of one that an earlier run began."""


@dataclass(frozen=True)
class Planner:
    """How a plan is made."""

    session: Session
    request: PlanRequest
    asked: AskedMode = "auto"
    canary_vm: Blueprint | None = None
    for_run: bool = False
    """Whether the run follows: then its rights are asked for, and what passes by itself is waited for."""
    settle_timeout: float = 0
    expected: str | None = None
    """The digest of the plan that was approved."""
    objects: t.Sequence[KubeObject] | None = None
    """The objects of a dump, to plan from instead of a cluster."""
    kubevirt: tuple[str | None, str | None] = (None, None)
    """Namespace and name of the KubeVirt object in a dump."""

    def plan(self) -> Planned:
        """The plan.

        :raises InputErrors: when it is not the one that was approved, or when the mode is not possible here.
        :raises ClusterError: when the user lacks rights.
        """
        snapshot = self._snapshot()
        if self.for_run and self.objects is None:
            snapshot = self._without_rights(snapshot)
        options = self.request.options
        brings_list = options.remove_pools is None and options.restore_nodes is None
        mode = choice.choose(self.asked, snapshot, moving=brings_list)
        departure = choice.departure(mode, snapshot, self.request) if brings_list else None
        move = moving.find_move(mode, departure, snapshot, self.request) if brings_list else None
        request = move.request if move else self.request
        proposal = _propose(mode, departure.after if departure else snapshot, request)
        if self.for_run and self.objects is None:
            self.session.require({*proposal.rights, *(departure.proposal.rights if departure else ())})
            if departure is None and self._waited(proposal, snapshot):
                proposal = _propose(mode, self._without_rights(self.session.snapshot()), request)
        if move is not None:
            proposal = proposal.with_takedown(move.takedown).with_findings(
                in_order((*proposal.findings, *move.findings))
            )
        if self.objects is None:
            proposal = proposal.after(history.read(self.session.cluster, proposal.snapshot.namespace).newest)
        begun = move.begun if move else ""
        approval.check(proposal.digest, self.expected, begun=begun, pending=proposal.pending or departure is not None)
        record = move.to_record(mode, str(proposal.digest)) if move else None
        about_history = tuple(self._about_history(proposal, snapshot))
        return Planned(mode, self._with_findings(proposal, departure, about_history), departure, record)

    def _without_rights(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, which notes whether the user may write a guard: a run can do without one that was not asked for."""
        if snapshot.admission is None or not self.session.lacks(permissions.GUARD):
            return snapshot
        return replace(snapshot, admission=replace(snapshot.admission, may_guard=False))

    def _snapshot(self) -> Snapshot:
        if self.objects is None:
            return self.session.snapshot()
        return dump.snapshot_of(self.objects, *self.kubevirt)

    def _waited(self, proposal: Proposal, snapshot: Snapshot) -> bool:
        """Wait for what passes by itself. Returns whether the cluster is to be read again."""
        if proposal.wait == "own_change":
            settle.await_own_change(self.session.cluster, snapshot, self.settle_timeout, self.session.clock)
        elif proposal.wait != "none":
            # A lasting error is refused afterwards.
            with contextlib.suppress(ClusterError):
                self.session.settle(self.settle_timeout if proposal.wait == "rollout" else _TRANSIENT_SECONDS)
        return proposal.wait != "none"

    def _about_history(self, proposal: Proposal, snapshot: Snapshot) -> t.Iterator[Finding]:
        """What of the history cannot be read, and a warning when the list is an earlier one of it, and no rollback was asked for."""
        options, known = self.request.options, recorded_in(snapshot)
        yield from unreadable_findings(
            known, snapshot.namespace, undoing=options.undoing, skip_pending_gates=options.skip_pending_gates
        )
        if proposal.entry is None or options.back_to is not None:
            return
        older = list_conflicts.brings_back(known, proposal.entry.pools, proposal.build or None)
        if older is not None:
            yield older

    def _with_findings(self, proposal: Proposal, departure: Departure | None, more: t.Iterable[Finding]) -> Proposal:
        """The plan with what it means for VMs and, in a move, with the findings of both parts."""
        found = (
            *proposal.findings,
            *more,
            *proposal.vm_findings(self._pods()),
            *self._canary_findings(proposal),
        )
        if departure is None:
            return proposal.with_findings(in_order(found))
        leaving = departure.proposal.vm_findings(self._pods())
        return proposal.with_findings(departure.findings((*found, *leaving)))

    def _pods(self) -> t.Iterable[LauncherPod]:
        return live.launcher_pods(self.session.cluster) if self.objects is None else dump.launcher_pods(self.objects)

    def _canary_findings(self, proposal: Proposal) -> t.Iterator[Finding]:
        """Whether the canary VMs of this run can start."""
        target = proposal.canary_target() if self.canary_vm is not None and self.objects is None else None
        if target is None or self.canary_vm is None:
            return
        cluster = self.session.cluster
        drafts = canary_vms.draft_vms(
            cluster, self.canary_vm, target.table, target.nodes, target.everywhere, target.kubevirt
        )
        for draft in drafts if self.for_run else ():
            if isinstance(draft, canary.Draft) and draft.title not in map(str, target.leftovers):
                canary_vms.dry_run(cluster, draft)
        yield from canary.findings(drafts)


def _propose(mode: Mode, snapshot: Snapshot, request: PlanRequest) -> Proposal:
    """The plan of the mode, with the feature gates that the user names."""
    proposal = mode.propose(snapshot, request)
    options = request.options
    # The history of lists does not know gates.
    rolls_back = options.remove_pools is None and options.back_to is not None
    if not request.gates or rolls_back or options.restore_nodes is not None:
        return proposal
    return proposal.with_gates(feature_gates.plan_gates(snapshot, request.gates))
