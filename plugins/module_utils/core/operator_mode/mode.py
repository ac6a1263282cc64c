# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The operator mode: virt-operator makes the pools' DaemonSets, where KubeVirt is a build with pools of its own."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, replace

from ..base import names, permissions
from ..base.findings import Finding, InputErrors, error, in_order
from ..base.permissions import Permission
from ..checks import upgrade
from ..checks.state import State
from ..checks.upgrade import Upgrade
from ..kubevirt.feature_gates import GateChange
from ..observed.snapshot import Snapshot
from ..planning import goals, removal
from ..planning.departure import Departure, removal_request
from ..planning.history import Entry
from ..planning.options import Options
from ..planning.proposal import ModeName, PlanProposal, PlanWait, wait_for
from ..planning.request import PlanRequest
from ..pools.model import Pool
from ..vms.launcher_pods import LauncherPod
from . import forms, plan, plan_text, state, takedown, view
from .builds import Build
from .plan import OperatorPlan
from .view import OperatorView


@dataclass(frozen=True)
class OperatorProposal(PlanProposal[OperatorPlan]):
    """An operator-mode plan as its user reads and approves it."""

    mode: t.ClassVar[ModeName] = "operator"
    held_back: t.ClassVar[frozenset[str]] = frozenset()

    @property
    def build(self) -> str:
        return self.plan.build.name

    @property
    def pending(self) -> bool:
        return self.plan.pending

    @property
    def recorded(self) -> bool:
        if self.plan.removing:
            return removal.is_recorded(self.request.options.remove_pools, self.snapshot)
        return self.plan.is_recorded(self.request.options)

    @property
    def entry(self) -> Entry | None:
        return None if self.plan.removing else self.plan.entry(self.request.options, "", "")

    @property
    def wait(self) -> PlanWait:
        return wait_for(self.errors)

    @property
    def rights(self) -> tuple[Permission, ...]:
        return permissions.for_operator_run(
            hco=self.snapshot.hyperconverged is not None, objects=self.plan.build.kind is not None
        )

    def with_gates(self, gates: GateChange) -> OperatorProposal:
        proposal = super().with_gates(gates)
        if self.plan.build.gate not in gates.gates.absent or not self.plan.pools:
            return proposal
        needed = error(
            "feature_gate_refused",
            f"Feature gate {self.plan.build.gate} is to be absent, and this build of KubeVirt needs it for its pools; leave it out of "
            "virtpools_feature_gates_absent.",
        )
        return proposal.with_findings(in_order((*proposal.findings, needed)))

    @property
    def sizes(self) -> dict[str, int]:
        return {"nodes": len(self.plan.moves()), "waves": 0, "batches": 0}

    @property
    def summary(self) -> str:
        return self.plan.summary

    def details(self, _now: float) -> dict[str, t.Any]:
        left = {pool.name for pool in self.plan.before} - {pool.name for pool in self.plan.pools}
        return {"retire": sorted(left), "found_list": self.plan.found_list}

    def lines(self) -> list[str]:
        return plan_text.plan_lines(self.plan)

    def step_lines(self) -> list[str]:
        return list(self.plan.changes())

    def canary_target(self) -> None:
        return None

    def vm_findings(self, pods: t.Iterable[LauncherPod]) -> t.Iterable[Finding]:
        request, loss = self.request, self._loss
        if not request.asks_about_loss(loss):
            return ()
        losing = removal.LosingVms(loss)
        collections.deque(losing.noting(replace(pod, pool_env=pod.operator_pool) for pod in pods), maxlen=0)
        return losing.findings(request.options.vms_of_pools)

    @property
    def _loss(self) -> removal.Loss:
        """What VMs lose by the run. Once the pools are written, virt-operator takes nodes from them without asking."""
        made, options = self.plan, self.request.options
        before = made.before if made.steps else ()
        gone = {pool.name for pool in before} - {pool.name for pool in made.pools}
        seen = view.make_view(made.build, made.snapshot, None, options).snapshot.nodes if before else {}
        wanted = {
            name: node.owner
            if node.owner in made.placed.owners[name]
            else next(iter(made.placed.owners[name]), names.PRIMARY)
            for name, node in seen.items()
        }
        return removal.loss_of(seen, wanted, gone, before, removing=made.removing)


@dataclass(frozen=True)
class OperatorMode:
    """virt-operator makes the pools' DaemonSets, by the pools of this build of KubeVirt."""

    build: Build
    name: t.ClassVar[ModeName] = "operator"
    cannot_probe: t.ClassVar = "probe tries the launcher policy, and operator pools need none; drop it."

    @property
    def build_name(self) -> str:
        return self.build.name

    def propose(self, snapshot: Snapshot, request: PlanRequest) -> OperatorProposal:
        pools = forms.without_unmatched(request.pools, request.dialect)
        made = plan.make_plan(self.build, snapshot, pools, request.options)
        findings = in_order((*made.findings, *_refused(request, made)))
        return OperatorProposal(replace(made, findings=findings), request)

    def view(
        self, snapshot: Snapshot, pools: t.Sequence[Pool] | None, options: Options, *, dialect: str
    ) -> OperatorView:
        given = None if pools is None else forms.without_unmatched(tuple(pools), dialect)
        seen = view.make_view(self.build, snapshot, given, options)
        if given is None and not seen.pools:
            raise InputErrors([goals.NO_POOLS_GIVEN])
        return seen

    def state(self, snapshot: Snapshot) -> State:
        return state.examine(self.build, snapshot)

    def upgrade(self, snapshot: Snapshot, version: str, pools: t.Sequence[Pool] | None, options: Options) -> Upgrade:
        seen = view.make_view(self.build, snapshot, None, options)
        checked = upgrade.check(seen.snapshot, version, pools, options, seen.plan)
        more = state.after_upgrade(self.build, seen.pools)
        return replace(checked, findings=in_order((*checked.findings, *more)))

    def recorded(self, snapshot: Snapshot) -> tuple[Pool, ...]:
        return goals.recorded(snapshot) if snapshot.pools else view.recorded_pools(self.build, snapshot)

    def takedown(self, snapshot: Snapshot, request: PlanRequest) -> Departure:
        proposal = self.propose(snapshot, removal_request(request))
        pools = proposal.plan.before
        return Departure(proposal, tuple(pool.name for pool in pools), pools, takedown.without_pools(proposal.plan))

    def cannot_migrate_vms(self, snapshot: Snapshot) -> str:
        if snapshot.pools:
            return ""
        return (
            f"KubeVirt {snapshot.kubevirt_name} creates the pools itself, by {self.build.place}, and knows their images: let it update VMs by "
            "spec.workloadUpdateStrategy.workloadUpdateMethods, or migrate them by hand."
        )


def _refused(request: PlanRequest, made: OperatorPlan) -> t.Iterator[Finding]:
    """What operator mode cannot keep of a request, beside its options."""
    if request.canary_vms:
        yield plan.refused("virtpools_canary_vm", "there are no waves after which to start one")
    if request.stop_after_wave:
        yield plan.refused("virtpools_stop_after_wave", "there are no waves")
    remove_vms = request.options.remove_vms
    if remove_vms not in ("refuse", "leave") and made.before:
        yield plan.refused(
            f"virtpools_remove_vms: {remove_vms}",
            "virt-operator does not wait for VMs, and KubeVirt's own updates know the pools' images",
        )
