# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One batch of a plan: everything that is checked and prepared before the first node is touched, then the moves."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import canary, drain, handover, images, settle
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster, ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.handover import Outcome, Target
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    assignment,
    daemonsets,
    exclusion,
    names,
    preflight,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.drain import LEAVE, Drain
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.schedule import Move


@dataclass(frozen=True)
class Timeouts:
    """In seconds. ``handler``: for an old handler to end, and again for a new one to get Ready; ``pull``: for the images
    of a batch; ``migrations``: for live migrations through its nodes to end, and for VMs to leave them."""

    handler: float = 300
    pull: float = 900
    migrations: float = 900


def carry_out(
    cluster: Cluster,
    plan: Plan,
    moves: t.Sequence[Move],
    timeouts: Timeouts,
    clock: Clock,
    *,
    prepull: bool,
    vms: Drain = LEAVE,
) -> list[Outcome]:
    """Carry out moves of ``plan`` side by side.

    :param vms: what becomes of those on the nodes.
    :raises ClusterError: when something forbids it; no node of the batch was touched then.
    """
    _refuse_unfit(plan, moves)
    images.remove(cluster, plan.snapshot.namespace, plan.snapshot.leftover_pulls)
    canary.remove(cluster, plan.snapshot.leftover_canaries)
    targets = [(move, _target(plan, move, move.target), _target(plan, move, move.source)) for move in moves]
    for name in sorted({to.daemonset for _move, to, _back in targets if to.owner != names.PRIMARY and to.daemonset}):
        settle.daemonset_observed(cluster, plan.snapshot.namespace, name, timeouts.handler, clock)
    if prepull:
        _pull(cluster, plan, moves, timeouts.pull, clock)
    drain.carry_out(cluster, vms, _handled(plan, moves), timeouts.migrations, clock)
    _await_migrations(cluster, moves, timeouts.migrations, clock)
    return handover.Batch(cluster, plan.snapshot.namespace, clock, timeouts.handler).run(targets)


def _refuse_unfit(plan: Plan, moves: t.Sequence[Move]) -> None:
    # A removal goes on beside a KubeVirt that is not well, as far as its plan has no errors.
    found = plan.findings if plan.undoing else preflight.fitness(plan.snapshot)
    problems = [f.message for f in found if f.severity == "error"]
    primary = plan.snapshot.primary
    if not plan.undoing and not problems and primary is not None and not exclusion.exclusion_in(primary):
        problems = ["the primary virt-handler does not keep off pool nodes yet: run primary_exclusion first."]
    missing = sorted({m.target for m in moves if m.target not in (names.PRIMARY, *plan.snapshot.pools)})
    if missing:
        problems.append(f"the DaemonSet of pool {', '.join(missing)} does not exist yet: run pool_daemonsets first.")
    if problems:
        raise ClusterError(f"No node of this batch was touched, because {' '.join(problems)}")


def _target(plan: Plan, move: Move, owner: str) -> Target:
    """Whose handler must come up on the node when ``owner`` has it; none where that DaemonSet puts no pod."""
    node = plan.snapshot.nodes[move.node]
    if owner == names.PRIMARY:
        primary = t.cast("t.Mapping[str, t.Any]", plan.snapshot.primary)
        spec = exclusion.without_exclusion_terms(primary["spec"]["template"]["spec"])
        runs = assignment.unfit({"spec": spec}, node) is None
        return Target(owner, names.HANDLER if runs else None)
    live = plan.snapshot.pools.get(owner)
    if live is None:
        # A former owner that is no pool (any more) cannot have the node back.
        return _target(plan, move, names.PRIMARY)
    return Target(owner, live["metadata"]["name"], daemonsets.template_of(live))


def _pull(cluster: Cluster, plan: Plan, moves: t.Sequence[Move], timeout: float, clock: Clock) -> None:
    pulls = []
    for move in moves:
        daemonset = plan.snapshot.pools.get(move.target, plan.snapshot.primary)
        if daemonset is not None and move.action != "finish":
            pulls.append(images.Pull(plan.snapshot.nodes[move.node], daemonset))
    problems = images.pull(cluster, plan.snapshot.namespace, pulls, timeout, clock)
    if problems:
        shown = "; ".join(f"{node}: {problem}" for node, problem in sorted(problems.items())[:5])
        raise ClusterError(
            f"No node of this batch was touched, because {len(problems)} of {len(moves)} cannot get the images of their "
            f"next handler. {shown}. Check the image, its registry and pull secrets (or virtpools_prepull: false where "
            "nodes get images in another way)."
        )


def _handled(plan: Plan, moves: t.Sequence[Move]) -> dict[str, bool]:
    """The nodes that are to lose a handler, and whether it is Ready. A handover that was begun has taken it already."""
    begun = {m.node for m in moves if m.action == "finish" or plan.snapshot.nodes[m.node].owner == names.IN_TRANSIT}
    handlers = {m.node: plan.snapshot.handlers.get(m.node, ()) for m in moves if m.node not in begun}
    return {node: any(pod.ready for pod in pods) for node, pods in handlers.items() if pods}


def _await_migrations(cluster: Cluster, moves: t.Sequence[Move], timeout: float, clock: Clock) -> None:
    running = settle.migrations(cluster, [move.node for move in moves], timeout, clock)
    if running:
        raise ClusterError(
            f"No node of this batch was touched, because live migrations through its nodes did not end within "
            f"{timeout:.0f} s ({settle.describe(running)}), and a restarting handler would break them. Wait for them or "
            "cancel them, then run again."
        )
