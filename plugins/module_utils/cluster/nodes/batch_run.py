# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Carries out one batch of a plan: checks and prepares everything before it touches a node, then makes the moves."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core.base import names
from ...core.kubevirt import daemonsets, exclusion, handler_fit, preflight
from ...core.planning.batching import Move
from ...core.planning.options import LEAVE, Drain
from ...core.planning.plan import Plan
from ..api.client import Cluster, ClusterError
from ..api.waiting import Clock
from ..writing import settle
from . import canary, drain, handover, images
from .node_handover import HandoverOutcome, Target

_STALE_SECONDS = 10.0
"""What was checked longer ago is checked again: pulls, drains and migrations may take an hour."""


@dataclass(frozen=True)
class BatchOptions:
    """How a batch is carried out. Timeouts are in seconds."""

    handler_timeout: float = 300
    """For an old handler to stop, and again for a new one to become Ready."""
    pull_timeout: float = 900
    """For the images of the batch."""
    migration_timeout: float = 900
    """For live migrations through the nodes to end, and for VMs to leave the nodes."""
    prepull: bool = True
    drain: Drain = LEAVE


def carry_out(
    cluster: Cluster,
    plan: Plan,
    moves: t.Sequence[Move],
    options: BatchOptions,
    clock: Clock,
    again: t.Callable[[], Plan] | None = None,
) -> list[HandoverOutcome]:
    """Carry out moves of ``plan`` side by side.

    :param again: plans the same nodes again, from the cluster as it is after long preparations.
    :raises ClusterError: when something forbids the batch; then no node of it was touched.
    """
    began = clock.now()
    _refuse_unfit(plan, moves)
    images.remove(cluster, plan.snapshot.namespace, plan.snapshot.leftover_pulls)
    canary.remove(cluster, plan.snapshot.leftover_canaries)
    for name in sorted(
        {plan.snapshot.pools[move.target]["metadata"]["name"] for move in moves if move.target != names.PRIMARY}
    ):
        settle.await_daemonset_observed(cluster, plan.snapshot.namespace, name, options.handler_timeout, clock)
    if options.prepull:
        _pull(cluster, plan, moves, options.pull_timeout, clock)
        _try_launchers(cluster, plan, moves, options.pull_timeout, clock)
    drain.carry_out(cluster, options.drain, _ready_handlers(plan, moves), options.migration_timeout, clock)
    _await_migrations(cluster, moves, options.migration_timeout, clock)
    if again is not None and clock.now() - began > _STALE_SECONDS:
        plan = again()
        moves = [move for move in moves if move.node in plan.snapshot.nodes]  # others were deleted since
        _refuse_unfit(plan, moves)
    targets = [(move, _target(plan, move, move.target), _target(plan, move, move.source)) for move in moves]
    handlers = {move.node: plan.snapshot.handlers.get(move.node, ()) for move in moves}
    return handover.Batch(cluster, plan.snapshot.namespace, clock, options.handler_timeout).run(targets, handlers)


def _refuse_unfit(plan: Plan, moves: t.Sequence[Move]) -> None:
    # A removal may go on while KubeVirt is not healthy, as long as its plan has no errors.
    findings = plan.findings if plan.undoing else preflight.fitness(plan.snapshot)
    problems = [f.message for f in findings if f.severity == "error"]
    primary = plan.snapshot.primary
    if not plan.undoing and not problems and primary is not None and not exclusion.has_exclusion(primary):
        problems = ["the primary virt-handler may still run on pool nodes: run primary_exclusion first."]
    missing = sorted({m.target for m in moves if m.target not in (names.PRIMARY, *plan.snapshot.pools)})
    if missing:
        problems.append(f"the DaemonSet of pool {', '.join(missing)} does not exist yet: run pool_daemonsets first.")
    if problems:
        raise ClusterError(f"No node of this batch was touched, because {' '.join(problems)}")


def _target(plan: Plan, move: Move, owner: str) -> Target:
    """The handler that must become Ready on the node once ``owner`` owns it; none when its DaemonSet puts no pod there."""
    node = plan.snapshot.nodes[move.node]
    if owner == names.PRIMARY:
        template = handler_fit.primary_template(t.cast("t.Mapping[str, t.Any]", plan.snapshot.primary))
        return Target(owner, None if handler_fit.unfit(template, node) else names.HANDLER, pod=template)
    live = plan.snapshot.pools.get(owner)
    if live is None:
        # The node cannot go back to a former owner that is not a pool, or is one no more.
        return _target(plan, move, names.PRIMARY)
    return Target(owner, live["metadata"]["name"], daemonsets.template_of(live), live["spec"]["template"])


def _pull(cluster: Cluster, plan: Plan, moves: t.Sequence[Move], timeout: float, clock: Clock) -> None:
    pulls = []
    for move in moves:
        daemonset = plan.snapshot.pools.get(move.target, plan.snapshot.primary)
        if daemonset is not None and move.action != "finish":
            pulls.append(images.Pull(plan.snapshot.nodes[move.node], daemonset))
    problems = images.pull(cluster, plan.snapshot.namespace, pulls, timeout, clock)
    if problems:
        raise ClusterError(
            f"No node of this batch was touched, because {len(problems)} of {len(moves)} cannot get the images of their "
            f"next handler. {_examples(problems)}. Check the image, its registry and pull secrets; set virtpools_prepull: false if "
            "nodes get images in another way."
        )


def _try_launchers(cluster: Cluster, plan: Plan, moves: t.Sequence[Move], timeout: float, clock: Clock) -> None:
    """Launcher pods do not have the pull secrets of handlers, so that what a handler pulled may not be for them."""
    pools = {pool.name: pool for pool in plan.launcher_pools}
    starts = []
    for move in moves:
        pool, daemonset = pools.get(move.target), plan.snapshot.pools.get(move.target)
        if pool is None or daemonset is None or pool.virt_launcher_image is None or move.action == "finish":
            continue
        secrets = tuple(secret["name"] for secret in pool.virt_launcher_pull_secrets)
        if secrets or daemonsets.pull_secrets_of(daemonset):
            starts.append(images.Start(plan.snapshot.nodes[move.node], pool.virt_launcher_image, secrets))
    problems = images.start(cluster, plan.snapshot.namespace, starts, timeout, clock)
    if problems:
        given = ", ".join(sorted({name for start in starts if start.node.name in problems for name in start.secrets}))
        raise ClusterError(
            f"No node of this batch was touched, because launcher pods would not start on {len(problems)} of {len(moves)}: "
            f"they do not have the pull secrets of their pool's handler, only those of its virtLauncherPullSecrets "
            f"({given or 'none'}). {_examples(problems)}. Let the kubelets of the pool's nodes pull the image without a pull "
            "secret, or name one in virtLauncherPullSecrets that is in KubeVirt's namespace and in those of the pool's VMs."
        )


def _examples(problems: t.Mapping[str, str]) -> str:
    return "; ".join(f"{node}: {problem}" for node, problem in sorted(problems.items())[:5])


def _ready_handlers(plan: Plan, moves: t.Sequence[Move]) -> dict[str, bool]:
    """The nodes that are to lose a handler, and whether it is Ready. A handover that has begun took it already."""
    begun = {m.node for m in moves if m.action == "finish" or plan.snapshot.nodes[m.node].owner == names.IN_TRANSIT}
    handlers = {m.node: plan.snapshot.handlers.get(m.node, ()) for m in moves if m.node not in begun}
    return {node: any(pod.ready for pod in pods) for node, pods in handlers.items() if pods}


def _await_migrations(cluster: Cluster, moves: t.Sequence[Move], timeout: float, clock: Clock) -> None:
    running = settle.await_migrations(cluster, [move.node for move in moves], timeout, clock)
    if running:
        raise ClusterError(
            f"No node of this batch was touched, because live migrations through its nodes did not end within "
            f"{timeout:.0f} s ({settle.migration_names(running)}), and a restarting handler would break them. Wait for them or "
            "cancel them, then run again."
        )
