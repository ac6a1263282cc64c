# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The operator mode: virt-operator makes the pools' DaemonSets, where KubeVirt is a build with pools of its own."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base import permissions
from ..base.findings import Finding, InputErrors, in_order
from ..base.permissions import Permission
from ..checks import upgrade
from ..checks.state import State
from ..checks.upgrade import Upgrade
from ..kubevirt import preflight
from ..observed.snapshot import Snapshot
from ..planning import goals, removal
from ..planning.departure import REMOVAL, Departure
from ..planning.options import Options
from ..planning.proposal import ModeName, PlanProposal, PlanWait
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

    @property
    def build(self) -> str:
        return self.plan.build.name

    @property
    def pending(self) -> bool:
        return self.plan.pending

    @property
    def recorded(self) -> bool:
        return self.plan.removing or self.plan.is_recorded(self.request.options)

    @property
    def wait(self) -> PlanWait:
        return "transient" if preflight.TRANSIENT & {finding.code for finding in self.errors} else "none"

    @property
    def rights(self) -> tuple[Permission, ...]:
        return permissions.for_operator_run(
            hco=self.snapshot.hyperconverged is not None, objects=self.plan.build.kind is not None
        )

    @property
    def sizes(self) -> dict[str, int]:
        return {"nodes": len(self.plan.moves()), "waves": 0, "batches": 0}

    @property
    def summary(self) -> str:
        return self.plan.summary

    def details(self, _now: float) -> dict[str, t.Any]:
        left = {pool.name for pool in self.plan.before} - {pool.name for pool in self.plan.pools}
        return {"retire": sorted(left)}

    def lines(self) -> list[str]:
        return plan_text.plan_lines(self.plan)

    def step_lines(self) -> list[str]:
        return list(self.plan.changes())

    def canary_target(self) -> None:
        return None

    def vm_findings(self, pods: t.Iterable[LauncherPod]) -> t.Iterable[Finding]:
        made, request = self.plan, self.request
        if not (request.asks_about_vms and made.removing and made.before):
            return ()
        leaving = {pool.name for pool in made.before} - {pool.name for pool in made.pools}
        seen = view.make_view(made.build, made.snapshot, None, request.options)
        noted = (replace(pod, pool_env=pod.operator_pool) for pod in pods)
        return removal.vm_findings(noted, seen.snapshot.nodes, made.before, leaving, request.remove_vms)


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
        findings = in_order((*made.findings, *_refused(request)))
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

    def takedown(self, snapshot: Snapshot) -> Departure:
        proposal = self.propose(snapshot, REMOVAL)
        pools = tuple(pool.name for pool in proposal.plan.before)
        return Departure(proposal, pools, takedown.without_pools(proposal.plan))

    def cannot_migrate_vms(self, snapshot: Snapshot) -> str:
        if snapshot.pools:
            return ""
        return (
            f"KubeVirt {snapshot.kubevirt_name} creates the pools itself, by {self.build.place}, and knows their images: let it update VMs by "
            "spec.workloadUpdateStrategy.workloadUpdateMethods, or migrate them by hand."
        )


def _refused(request: PlanRequest) -> t.Iterator[Finding]:
    """What operator mode cannot keep of a request, beside its options."""
    if request.canary_vms:
        yield plan.refused("virtpools_canary_vm", "there are no waves after which to start one")
    if request.stop_after_wave:
        yield plan.refused("virtpools_stop_after_wave", "there are no waves")
    if request.remove_vms not in ("refuse", "leave"):
        yield plan.refused(
            f"virtpools_remove_vms: {request.remove_vms}",
            "virt-operator does not wait for VMs, and KubeVirt's own updates know the pools' images",
        )
