# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What a mode offers. Modules, and what happens around a plan, know only this."""

from __future__ import annotations

import typing as t

from ..admission.live_policy import Policy
from ..checks.explanation import ExplainContext
from ..checks.state import State
from ..checks.upgrade import Upgrade
from ..observed.snapshot import Snapshot
from ..planning.departure import Departure
from ..planning.options import Options
from ..planning.plan import Plan
from ..planning.proposal import ModeName, Proposal
from ..planning.request import PlanRequest
from ..pools.model import Pool
from ..vms.launcher_pods import LauncherPod


class ClusterView(t.Protocol):
    """A cluster as verifications and explanations see it."""

    @property
    def plan(self) -> Plan:
        """What would change, compared with the pools."""

    @property
    def policy(self) -> Policy | None:
        """What gives launcher pods their images; None for what the plan shows."""

    def launcher_pod(self, pod: LauncherPod) -> LauncherPod:
        """A launcher pod as the checks are to see it."""

    def explain_context(self) -> ExplainContext:
        """What VMs are explained by."""


class Mode(t.Protocol):
    """Who makes the pools' DaemonSets, and all that follows from it."""

    @property
    def name(self) -> ModeName: ...

    @property
    def build_name(self) -> str:
        """The build of KubeVirt that makes the pools; empty for collection pools."""

    @property
    def cannot_probe(self) -> str:
        """Why the launcher policy cannot be tried, as a sentence; empty when it can."""

    def propose(self, snapshot: Snapshot, request: PlanRequest) -> Proposal:
        """The plan of a run. Its findings have the errors of an unfit cluster."""

    def view(
        self, snapshot: Snapshot, pools: t.Sequence[Pool] | None, options: Options, *, dialect: str
    ) -> ClusterView:
        """The cluster, compared with these pools or, for None, with those that it records.

        :raises InputErrors: when no pools are given and the cluster has none.
        """

    def state(self, snapshot: Snapshot) -> State:
        """The state of the pools, without a pool list."""

    def upgrade(self, snapshot: Snapshot, version: str, pools: t.Sequence[Pool] | None, options: Options) -> Upgrade:
        """Whether KubeVirt can be upgraded to this version, with these pools or those that the cluster records."""

    def recorded(self, snapshot: Snapshot) -> tuple[Pool, ...]:
        """The pools that the cluster has."""

    def takedown(self, snapshot: Snapshot, request: PlanRequest) -> Departure | None:
        """How the pools of this mode go before those of the other come; None when there are none.

        :param request: what the move is asked for.
        """

    def cannot_migrate_vms(self, snapshot: Snapshot) -> str:
        """Why runs do not migrate outdated VMs, as a sentence; empty when they do."""


def in_results(mode: Mode) -> dict[str, str]:
    """How results of modules name a mode."""
    return {"mode": mode.name, "build": mode.build_name}
