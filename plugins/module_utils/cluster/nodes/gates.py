# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The gate between two waves: watches the cluster until the rollout may go on or the time is over."""

from __future__ import annotations

import functools
import typing as t

from ...core.base.findings import listed
from ...core.checks import gates
from ...core.checks.gates import Gate, GateProblem
from ...core.observed.snapshot import Snapshot
from ..api.client import Cluster
from ..api.waiting import Clock
from ..reading import live

_SOAK_PAUSE_SECONDS = 5.0


def find_problems(
    cluster: Cluster, namespace: str, name: str, nodes: t.Collection[str], now: float
) -> list[GateProblem]:
    """Everything that is wrong now with KubeVirt, with these nodes and their VMs, and, because of us, with other VMs.

    :param namespace: the namespace of the KubeVirt object, and ``name`` its name.
    :param now: seconds since 1970.
    """
    snapshot = live.take_snapshot(cluster, namespace, name, frozenset(nodes))
    problems = [*gates.cluster_problems(snapshot, nodes, now)]
    wave = frozenset(nodes) & snapshot.nodes.keys()  # VMs of a deleted node fail with it
    # Pods come first, so that we do not miss a VM that starts in between.
    all_nodes = functools.cache(lambda: live.nodes(cluster))
    problems += gates.pending_problems(live.pending_launcher_pods(cluster), wave, all_nodes)
    problems += _of_vmis(cluster, snapshot, wave)
    if live.count_without_handler(cluster, namespace):
        unmanaged = gates.nodes_without_handler(live.take_snapshot(cluster, namespace, name)) - wave
        problems += [problem for vmi in live.vmis_on(cluster, unmanaged) if (problem := gates.orphan_problem(vmi))]
    return problems


def _of_vmis(cluster: Cluster, snapshot: Snapshot, wave: t.Collection[str]) -> list[GateProblem]:
    """What is wrong with the VM instances on these nodes, but for what the run has cured."""
    found = [
        (vmi["metadata"].get("uid"), problem)
        for vmi in live.vmis_on(cluster, wave)
        if (problem := gates.vmi_problem(vmi))
    ]
    cured: t.Collection[str] = ()
    if any(problem.final for _uid, problem in found):
        admission = live.admission(cluster, snapshot.namespace)
        cured = gates.cured_failures(live.failed_launcher_pods(cluster), snapshot, admission)
    return [problem for uid, problem in found if uid not in cured]


def await_open(
    find_problems: t.Callable[[], list[GateProblem]], baseline: t.Iterable[str], timeout: float, clock: Clock
) -> list[GateProblem]:
    """Wait until no problem is left that is not in ``baseline``.

    Returns the problems that are left after ``timeout`` seconds, or as soon as one of them is final.
    """
    gate = Gate(baseline)
    left: list[GateProblem] = []

    def pending() -> str | None:
        nonlocal left
        left = gate.blocking(find_problems())
        waits = bool(left) and not any(problem.final for problem in left)
        return listed(problem.message for problem in left) if waits else None

    clock.wait(pending, timeout)
    return left


def soak(seconds: float, clock: Clock) -> None:
    """Wait for some seconds and keep the Lease alive."""
    until = clock.now() + seconds
    for _pause in clock.pauses(_SOAK_PAUSE_SECONDS):
        if clock.now() >= until:
            return
        clock.remind(until, seconds, "the nodes of the wave prove themselves.")
