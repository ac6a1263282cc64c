# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The collection mode: this collection makes the pools' DaemonSets, on any KubeVirt."""

from __future__ import annotations

import collections
import copy
import typing as t
from dataclasses import dataclass, replace

from ..admission.live_policy import Policy
from ..base import kinds, names, permissions
from ..base.findings import Finding, InputErrors
from ..base.objects import change_line
from ..base.permissions import Permission
from ..checks import state, upgrade
from ..checks.explanation import ExplainContext
from ..checks.state import State
from ..checks.upgrade import Upgrade
from ..kubevirt import exclusion
from ..observed.snapshot import Snapshot
from ..planning import approval, goals, history, plan, plan_text, removal
from ..planning.departure import Departure, removal_request, without_daemonsets
from ..planning.options import Drain, Options
from ..planning.plan import Plan
from ..planning.progress import RolloutScope
from ..planning.proposal import CanaryTarget, ModeName, PlanProposal, PlanWait, wait_for
from ..planning.request import PlanRequest
from ..pools.model import Pool
from ..vms import node_fit
from ..vms.launcher_pods import LauncherPod


@dataclass(frozen=True)
class CollectionProposal(PlanProposal[Plan]):
    """A plan of ours as its user reads and approves it."""

    mode: t.ClassVar[ModeName] = "collection"
    build: t.ClassVar = ""

    @property
    def scope(self) -> RolloutScope:
        """How far the run goes. A plan with errors may have no waves, so they come first."""
        return RolloutScope.for_plan(self.plan, None if self.errors else self.request.stop_after_wave)

    @property
    def pending(self) -> bool:
        return self.scope.pending

    @property
    def recorded(self) -> bool:
        admission, entry = self.snapshot.admission, self.entry
        if entry is None or admission is None:
            return removal.is_recorded(self.request.options.remove_pools, self.snapshot)
        known = history.read(admission.objects.get((kinds.CONFIG_MAP.name, names.HISTORY)))
        return known.is_current(entry)

    @property
    def entry(self) -> history.Entry | None:
        options = self.request.options
        if self.plan.undoing:
            return None
        kept = () if options.prune else goals.recorded(self.snapshot)
        return history.entry_of(self.request.pools, kept, options, "", "")

    @property
    def wait(self) -> PlanWait:
        if self.settling and not self.plan.held:
            return "own_change"
        return wait_for(self.errors)

    @property
    def rights(self) -> tuple[Permission, ...]:
        snapshot = self.snapshot
        rights = permissions.for_run(
            hco=snapshot.hyperconverged is not None,
            parts=[right for part in self.plan.parts for right in part.rights],
            migrates=any(drain.vms == "migrate" for drain in self._drains),
            canary_vms=self.request.canary_vms or bool(snapshot.leftover_canaries),
        )
        return (*rights, *(permissions.LEFTOVERS if self.plan.cleared else ()))

    @property
    def _drains(self) -> set[Drain]:
        """What happens to VMs before the moves of the plan."""
        options = self.request.options
        return {options.drain, *(options.drain_of_pools for move in self.plan.moves if move.leaves_pool)}

    @property
    def sizes(self) -> dict[str, int]:
        plan = self.plan
        return {"nodes": len(plan.moves), "waves": len(plan.waves), "batches": len(plan.batches)}

    @property
    def held_back(self) -> frozenset[str]:
        return self.plan.held_back

    @property
    def summary(self) -> str:
        return approval.summary(self.plan, self.scope)

    def details(self, now: float) -> dict[str, t.Any]:
        plan, scope = self.plan, self.scope
        return {
            "batches": [[move.to_dict() for move in batch] for batch in plan.batches],
            "next_batches": [[move.to_dict() for move in batch] for batch in scope.next_batches()],
            "waves": scope.to_list(),
            "stop": scope.stop or "",
            "progress": [each.to_dict() for each in scope.progress(now)],
            "steps": plan.steps(),
            "leftovers": list(plan.leftovers),
            "retire": [change.pool for change in plan.retired],
            "exclusion": plan.exclusion.changed,
            "released": list(plan.released),
            "cleared": [change_line(obj, "delete") for obj in plan.cleared],
        }

    def lines(self) -> list[str]:
        return plan_text.plan_lines(self.plan, self.scope)

    def step_lines(self) -> list[str]:
        return plan_text.step_lines(self.plan, self.scope)

    def canary_target(self) -> CanaryTarget | None:
        plan, rollout = self.plan, self.plan.launcher_rollout
        if rollout is None or plan.errors or not plan.batches:
            return None
        pools = {move.target for move in plan.moves}
        nodes = tuple(node for node in plan.nodes_after().values() if node.owner in pools)
        snapshot = self.snapshot
        everywhere = tuple(snapshot.nodes.values())
        return CanaryTarget(rollout.stages[-1], nodes, everywhere, snapshot.kubevirt, snapshot.leftover_canaries)

    def vm_findings(self, pods: t.Iterable[LauncherPod]) -> t.Iterable[Finding]:
        request, loss = self.request, self._loss
        rollout = self.plan.launcher_rollout if request.asks_about_vms and not self.plan.undoing else None
        table = rollout.full if rollout is not None and rollout.full.needed else None
        if table is None and not request.asks_about_loss(loss):
            return ()
        # Canary VMs go before any node does.
        canaries = [str(vm) for vm in self.snapshot.leftover_canaries]
        pods = (pod for pod in pods if f"{pod.namespace}/{pod.vmi}" not in canaries)
        losing, kubelets = removal.LosingVms(loss), self._kubelets
        noted = kubelets.passing(losing.noting(pods))
        found = node_fit.restart_findings(table, self.plan.nodes_after(), noted) if table is not None else ()
        collections.deque(noted, maxlen=0)
        return (*found, *losing.findings(request.options.vms_of_pools), *kubelets.findings())

    @property
    def _kubelets(self) -> node_fit.KubeletRestarts:
        return node_fit.KubeletRestarts(self.snapshot.nodes, self.plan.nodes_after())

    @property
    def _loss(self) -> removal.Loss:
        """What VMs lose by the run."""
        options, snapshot = self.request.options, self.snapshot
        gone: t.Collection[str] = self.plan.deleted
        removing = options.remove_pools is not None and options.restore_nodes is None
        if removing and options.remove_pools is not None:
            gone = removal.leaving(options.remove_pools, snapshot) - {names.IN_TRANSIT}
        return removal.loss_of(snapshot.nodes, self.plan.wanted, gone, goals.recorded(snapshot), removing=removing)


@dataclass(frozen=True)
class CollectionView:
    """A cluster compared with a plan of ours."""

    plan: Plan
    given: tuple[Pool, ...] | None
    """The pools that were given; None for those that the cluster records."""
    policy: t.ClassVar[Policy | None] = None

    def launcher_pod(self, pod: LauncherPod) -> LauncherPod:
        return pod

    def explain_context(self) -> ExplainContext:
        if self.given is not None:
            return ExplainContext.from_planned_policy(self.plan, self.given)
        return ExplainContext.from_live_policy(self.plan)


@dataclass(frozen=True)
class CollectionMode:
    """This collection makes the pools' DaemonSets."""

    name: t.ClassVar[ModeName] = "collection"
    build_name: t.ClassVar = ""
    cannot_probe: t.ClassVar = ""

    def propose(self, snapshot: Snapshot, request: PlanRequest) -> CollectionProposal:
        return CollectionProposal(plan.make_plan(snapshot, request.pools, request.options), request)

    def view(
        self,
        snapshot: Snapshot,
        pools: t.Sequence[Pool] | None,
        options: Options,
        *,
        dialect: str,  # noqa: ARG002 (of the protocol)
    ) -> CollectionView:
        if pools is not None:
            return CollectionView(plan.make_plan(snapshot, pools, options), tuple(pools))
        recorded = goals.recorded(snapshot)
        if not recorded:
            raise InputErrors([goals.NO_POOLS_GIVEN])
        made = plan.make_plan(snapshot, recorded, goals.recorded_options(snapshot, options))
        return CollectionView(made, None)

    def state(self, snapshot: Snapshot) -> State:
        return state.examine(snapshot)

    def upgrade(self, snapshot: Snapshot, version: str, pools: t.Sequence[Pool] | None, options: Options) -> Upgrade:
        return upgrade.check(snapshot, version, pools, options)

    def recorded(self, snapshot: Snapshot) -> tuple[Pool, ...]:
        return goals.recorded(snapshot)

    def takedown(self, snapshot: Snapshot, request: PlanRequest) -> Departure | None:
        primary = snapshot.primary
        excluded = primary is not None and exclusion.has_exclusion(primary)
        if not (snapshot.pools or excluded or exclusion.exclusion_requested(snapshot.kubevirt)):
            return None
        proposal = self.propose(snapshot, removal_request(request))
        recorded = goals.recorded(snapshot)
        return Departure(proposal, tuple(sorted(snapshot.pools)), recorded, _without_pools(proposal.plan))

    def cannot_migrate_vms(self, _snapshot: Snapshot) -> str:
        return ""


def _without_pools(planned: Plan) -> Snapshot:
    """The cluster once our pools are deleted."""
    snapshot, edit = planned.snapshot, planned.exclusion
    primary = snapshot.primary
    if primary is not None:
        shown = copy.deepcopy(dict(primary))
        template = shown["spec"]["template"]
        template["spec"] = exclusion.without_exclusion_terms(template["spec"])
        primary = shown
    gone = {daemonset["metadata"]["name"] for daemonset in snapshot.pools.values()}
    return replace(
        without_daemonsets(snapshot, gone, primary),
        kubevirt=exclusion.without_exclusion(snapshot.kubevirt, None).after,
        hyperconverged=edit.after if edit.kind == "HyperConverged" else snapshot.hyperconverged,
        nodes={name: replace(node.owned_by(names.PRIMARY), former_owner=None) for name, node in snapshot.nodes.items()},
    )
