# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which parts a run has: what it writes for launcher pods, new nodes, the guard and the alerts."""

from __future__ import annotations

import typing as t

from ..admission import launcher_rollout
from ..admission.guard import Guard
from ..admission.launcher_rollout import LauncherPolicyRemoval, LauncherPolicyRollout
from ..admission.node_policy import NodePolicy
from ..base.parts import Part
from ..monitoring.alerts import Alerts
from ..observed.snapshot import Admission, Monitoring, Snapshot
from . import batching, goals
from .batching import Move
from .goals import Goal

NAMES: t.Final = (LauncherPolicyRollout.name, NodePolicy.name, Guard.name, Alerts.name)
"""The names of all parts, in the order to write them."""


def find_parts(
    snapshot: Snapshot, goal: Goal, batches: t.Sequence[t.Sequence[Move]], leaving: t.Sequence[str]
) -> tuple[Part, ...]:
    """The parts of a run, in the order to write them.

    :param leaving: the pools whose DaemonSets the run deletes.
    """
    policies = tuple(_policies(snapshot, goal, batches))
    launchers = next((part for part in policies if isinstance(part, LauncherPolicyRollout)), None)
    alerts = _alerts(snapshot, goal, launchers, tuple(leaving))
    return (*policies, *([alerts] if alerts else []))


def removal_of(name: str, snapshot: Snapshot) -> Part:
    """The part that removes what the cluster has of the part of this name.

    :param name: one of ``NAMES``.
    """
    admission = snapshot.admission or Admission()
    removals: dict[str, Part] = {
        LauncherPolicyRollout.name: LauncherPolicyRemoval(snapshot),
        NodePolicy.name: NodePolicy(admission),
        Guard.name: Guard(snapshot, admission, wanted=False),
        Alerts.name: Alerts(snapshot.monitoring or Monitoring(), snapshot.namespace),
    }
    return removals[name]


def _policies(snapshot: Snapshot, goal: Goal, batches: t.Sequence[t.Sequence[Move]]) -> t.Iterator[Part]:
    options = goal.options
    if snapshot.admission is None:
        return
    if options.restore_nodes is not None:
        # A VM must not wait for a node of a pool that loses its last one.
        emptied = {node.owner for node in snapshot.nodes.values()} - set(goal.assigned.wanted.values())
        if emptied:
            yield launcher_rollout.without_pools(snapshot, emptied, len(batches), options.outdated)
        return
    yield launcher_rollout.make_rollout(
        snapshot,
        goal.launcher_pools,
        tuple(goals.readable(snapshot, (pool for pool in snapshot.pools if pool not in goal.desired))),
        goal.assigned,
        batches,
        options,
        batching.left_behind(snapshot, batches, goal.desired),
    )
    nodes = NodePolicy(snapshot.admission, goal.new_node_pools if options.assign_new_nodes else ())
    yield nodes
    guarded = options.guard is not False
    yield Guard(snapshot, snapshot.admission, guarded, nodes.pools, asked_for=bool(options.guard), leaving=goal.last)


def _alerts(
    snapshot: Snapshot, goal: Goal, launchers: LauncherPolicyRollout | None, leaving: tuple[str, ...]
) -> Alerts | None:
    """A pool that should go and cannot now is watched like those that stay."""
    if snapshot.monitoring is None or goal.options.restore_nodes is not None:
        return None
    stays = set(goal.deleted) - set(leaving)
    return Alerts(
        monitoring=snapshot.monitoring,
        namespace=snapshot.namespace,
        settings=goal.options.alerts,
        pools=(*goal.desired, *stays),
        leaving=leaving,
        admission_policy=launchers is not None
        and launchers.full.needed
        and launchers.choice.backend == "admission_policy",
        undoing=goal.options.undoing,
        approved_pools=tuple(goal.desired),
    )
