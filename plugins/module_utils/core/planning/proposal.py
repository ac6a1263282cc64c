# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A plan as its user reads and approves it. Both modes make one, so that nothing around a plan asks which mode it is."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base.findings import Finding, in_order
from ..base.objects import KubeObject, short_digest
from ..base.permissions import Permission
from ..kubevirt import preflight
from ..kubevirt.feature_gates import GateChange
from ..observed.leftovers import Leftover
from ..observed.nodes import Node
from ..observed.snapshot import Snapshot
from ..vms.launcher_pods import LauncherPod
from ..vms.mapping import Table
from .history import Entry
from .plan import Digest
from .request import PlanRequest

ModeName = t.Literal["collection", "operator"]
"""Who makes the pools' DaemonSets: this collection, or virt-operator."""

AskedMode = t.Literal["auto", "operator", "collection"]
"""What a user asks for. ``auto``: the mode whose pools the cluster has."""

PlanWait = t.Literal["none", "own_change", "rollout", "transient"]
"""What to wait for before a plan can be judged. ``own_change``: KubeVirt rolls out what an earlier run wrote. ``rollout``: it rolls
out another deployment of its version. ``transient``: an error that passes within seconds, as when nodes were just handed over."""


def wait_for(errors: t.Iterable[Finding]) -> PlanWait:
    """What may end these errors by itself."""
    codes = {finding.code for finding in errors}
    if preflight.ROLLOUT in codes:
        return "rollout"
    return "transient" if preflight.TRANSIENT & codes else "none"


NO_DETAILS: t.Final[t.Mapping[str, t.Any]] = {
    **{
        key: []
        for key in ("batches", "next_batches", "waves", "progress", "leftovers", "cleared", "retire", "released")
    },
    "steps": {},
    "stop": "",
    "found_list": "",
    "exclusion": False,
}
"""What ``details`` of a plan stand for when it does not have them."""


@dataclass(frozen=True)
class CanaryTarget:
    """Where the canary VMs of a run start."""

    table: Table
    """The mapping table at the end of the run."""
    nodes: tuple[Node, ...]
    """The nodes of pools that get nodes or new handlers."""
    everywhere: tuple[Node, ...]
    """All nodes."""
    kubevirt: KubeObject
    leftovers: tuple[Leftover, ...]
    """Canary VMs that an earlier run left behind."""


class Proposal(t.Protocol):
    """A plan as its user reads and approves it."""

    @property
    def mode(self) -> ModeName: ...

    @property
    def build(self) -> str:
        """The build of KubeVirt that makes the pools; empty for collection pools."""

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def findings(self) -> tuple[Finding, ...]: ...

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that prevent a run."""

    @property
    def digest(self) -> Digest: ...

    @property
    def pending(self) -> bool:
        """Whether a run has anything to do before it stops."""

    @property
    def settling(self) -> bool:
        """Whether KubeVirt has not yet rolled out what was written."""

    @property
    def recorded(self) -> bool:
        """Whether the history has these pools as its newest list, or need not have them."""

    @property
    def entry(self) -> Entry | None:
        """What the history is to have for a run that brings a list, once it has completed."""

    @property
    def wait(self) -> PlanWait: ...

    @property
    def rights(self) -> t.Iterable[Permission]:
        """What a run of this plan needs."""

    @property
    def sizes(self) -> t.Mapping[str, int]:
        """The number of ``nodes``, ``waves`` and ``batches``."""

    @property
    def held_back(self) -> frozenset[str]:
        """The nodes that should change but cannot now. They are in no batch."""

    @property
    def summary(self) -> str:
        """The plan in one line, for the person who approves it."""

    def changes(self) -> tuple[str, ...]:
        """Every change, one line each, in the order of the run."""

    def owners(self) -> dict[str, dict[str, int]]:
        """How many nodes every owner has now, and will have after the run."""

    def details(self, now: float) -> t.Mapping[str, t.Any]:
        """What only plans of this mode have, by keys of ``NO_DETAILS``.

        :param now: the time in seconds since 1970.
        """

    def lines(self) -> list[str]:
        """The plan for people."""

    def step_lines(self) -> list[str]:
        """Only what the run does."""

    def canary_target(self) -> CanaryTarget | None:
        """Where canary VMs start; None when the run starts none."""

    def vm_findings(self, pods: t.Iterable[LauncherPod]) -> t.Iterable[Finding]:
        """What the run means for running VMs.

        :param pods: the launcher pods of the cluster, read once and not kept.
        """

    def with_findings(self, findings: t.Iterable[Finding]) -> Proposal:
        """The same plan with these findings in place of its own."""

    @property
    def gates(self) -> GateChange:
        """What the run does about feature gates: first of all, or last of all when it removes pools."""

    def with_gates(self, gates: GateChange) -> Proposal:
        """The same plan, which also changes feature gates. Its digest covers them."""

    def after(self, newest: str) -> Proposal:
        """The same plan, whose digest also covers the list that the cluster has: ``History.newest``."""

    def with_takedown(self, takedown: str) -> Proposal:
        """The same plan as the second part of a move, whose digest also covers what the first part takes down."""


class ProposedPlan(t.Protocol):
    """What plans of both modes have under the same names. They are dataclasses."""

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def findings(self) -> tuple[Finding, ...]: ...

    @property
    def errors(self) -> tuple[Finding, ...]: ...

    @property
    def digest(self) -> Digest: ...

    @property
    def settling(self) -> bool: ...

    @property
    def gates(self) -> GateChange: ...

    def changes(self) -> tuple[str, ...]: ...

    def owners(self) -> dict[str, dict[str, int]]: ...


AnyPlan = t.TypeVar("AnyPlan", bound=ProposedPlan)
AnyProposal = t.TypeVar("AnyProposal", bound="PlanProposal[t.Any]")


@dataclass(frozen=True)
class PlanProposal(t.Generic[AnyPlan]):
    """The part of a proposal that follows from its plan in the same way in both modes."""

    plan: AnyPlan
    request: PlanRequest

    @property
    def snapshot(self) -> Snapshot:
        return self.plan.snapshot

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.plan.findings

    @property
    def errors(self) -> tuple[Finding, ...]:
        return self.plan.errors

    @property
    def digest(self) -> Digest:
        return self.plan.digest

    @property
    def settling(self) -> bool:
        return self.plan.settling

    @property
    def gates(self) -> GateChange:
        return self.plan.gates

    def changes(self) -> tuple[str, ...]:
        return self.plan.changes()

    def owners(self) -> dict[str, dict[str, int]]:
        return self.plan.owners()

    def with_findings(self: AnyProposal, findings: t.Iterable[Finding]) -> AnyProposal:
        return replace(self, plan=replace(self.plan, findings=tuple(findings)))

    def with_gates(self: AnyProposal, gates: GateChange) -> AnyProposal:
        digest = self.digest.with_options("feature_gates", gates.gates.to_object())
        kept = (finding for finding in self.findings if finding.code != "feature_gates_stay")
        findings = in_order((*kept, *gates.findings))
        return replace(self, plan=replace(self.plan, gates=gates, digest=digest, findings=findings))

    def after(self: AnyProposal, newest: str) -> AnyProposal:
        digest = replace(self.plan.digest, history=short_digest(newest))
        return replace(self, plan=replace(self.plan, digest=digest))

    def with_takedown(self: AnyProposal, takedown: str) -> AnyProposal:
        return replace(self, plan=replace(self.plan, digest=replace(self.plan.digest, takedown=takedown)))
