# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for KubeVirt and DaemonSets to take up what was written, bounded, and ended early where it cannot succeed."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster, ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock, Persistence
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import exclusion, health, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import (
    HandlerPod,
    Migration,
    Node,
    Snapshot,
)

Object = dict[str, t.Any]

_STALL_SECONDS = 180.0
"""A handler needs about a minute to end and get Ready; a rollout that stands still for so long waits for something else."""

_DEGRADED_PATIENCE_SECONDS = 45.0
"""virt-operator needs up to 15 s for a sync, and a condition stays as it was until the next one."""


def primary(cluster: Cluster, snapshot: Snapshot, timeout: float, clock: Clock, *, excluded: bool) -> None:
    """Wait until the live primary carries the exclusion (or, not ``excluded``, does no longer) and KubeVirt has settled.

    :raises ClusterError: after ``timeout`` seconds, or when KubeVirt stays Degraded.
    """
    namespace, name = snapshot.namespace, snapshot.kubevirt["metadata"]["name"]
    health_of = _Watch(cluster, namespace, name, clock)

    stalled = _Stall(clock)

    def pending() -> str | None:
        problem = health_of.pending()
        daemonset = cluster.existing(kinds.DAEMON_SET, names.HANDLER, namespace)
        if stalled.lasts(daemonset):
            _refuse_dead_nodes(cluster, namespace)
        if exclusion.exclusion_in(daemonset) != excluded:
            return "virt-operator has not changed its DaemonSet yet."
        if health.primary_rolled_out(daemonset, health_of.dead_handlers):
            return problem
        return _rollout(daemonset)

    left = clock.wait(pending, timeout)
    if left is not None:
        raise ClusterError(
            f"KubeVirt {namespace}/{name} did not settle within {timeout:.0f} s: {left} It goes on by itself; run again "
            "when it has, or with a longer virtpools_settle_timeout."
        )


def fit(cluster: Cluster, namespace: str, name: str, timeout: float, clock: Clock) -> None:
    """Wait until KubeVirt has settled: nodes that come and go make it unavailable for some seconds.

    :raises ClusterError: after ``timeout`` seconds; at once while it is being upgraded; when it stays Degraded.
    """
    left = clock.wait(_Watch(cluster, namespace, name, clock).pending, timeout)
    if left is not None:
        raise ClusterError(
            f"KubeVirt {namespace}/{name} did not settle within {timeout:.0f} s: {left} Nothing was changed; see what keeps "
            "it from that, then run again."
        )


class _Stall:
    """Notices a rollout of the primary that makes no headway."""

    def __init__(self, clock: Clock) -> None:
        self._lasting = Persistence(clock, _STALL_SECONDS)
        self._progress: object = None

    def lasts(self, daemonset: Object) -> bool:
        status = daemonset.get("status") or {}
        progress = (
            daemonset["metadata"]["generation"],
            status.get("updatedNumberScheduled"),
            status.get("numberReady"),
        )
        if progress != self._progress:
            self._lasting.lasts(False)
        self._progress = progress
        return self._lasting.lasts(True)


def _refuse_dead_nodes(cluster: Cluster, namespace: str) -> None:
    """Wait no longer for handlers on nodes that died meanwhile: one of them can hold up a whole rollout (see preflight).

    :raises ClusterError: when there are any.
    """
    dead = sorted(set(_dead_handlers(cluster, namespace).values()))
    if dead:
        raise ClusterError(
            f"KubeVirt's rollout of virt-handler makes no headway, and {len(dead)} node(s) with a handler are not Ready "
            f"({listed(dead)}), which can hold it up for ever; bring them back, or delete the Node objects of machines that "
            "are gone, then run again. No node was handed over."
        )


class _Watch:
    """KubeVirt's health while we wait for it. ``dead_handlers``: primary handlers that nobody waits for."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, clock: Clock) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._degraded = Persistence(clock, _DEGRADED_PATIENCE_SECONDS)
        self.dead_handlers = 0

    def pending(self) -> str | None:
        """What keeps KubeVirt from being settled; None when nothing does.

        :raises ClusterError: for an upgrade, or when it stays Degraded.
        """
        kubevirt = self._cluster.existing(kinds.KUBEVIRT, self._name, self._namespace)
        state = health.Health.of(kubevirt)
        where = f"KubeVirt {self._namespace}/{self._name}"
        if self._degraded.lasts(state.degraded is not None):
            raise ClusterError(
                f"{where} does not recover from being degraded: {state.degraded}. Look at what virt-operator says, put it "
                "right and run again; no node was touched meanwhile."
            )
        if state.upgrading:
            raise ClusterError(
                f"{where} is being upgraded from {state.upgrading[0]} to {state.upgrading[1]}; wait until that is done, then "
                "run again."
            )
        if state.settled:
            self.dead_handlers = 0
            return None
        dead = _dead_handlers(self._cluster, self._namespace)
        self.dead_handlers = len(dead)
        if health.waits_only_for(state, dead, set(dead.values())):
            return None
        return f"{'; '.join(state.problems())}."


def own_change(cluster: Cluster, snapshot: Snapshot, timeout: float, clock: Clock) -> None:
    """Wait until KubeVirt has rolled out the exclusion that an interrupted run asked for, or took back.

    :raises ClusterError: after ``timeout`` seconds, or when KubeVirt stays Degraded.
    """
    primary(cluster, snapshot, timeout, clock, excluded=exclusion.exclusion_requested(snapshot.kubevirt))


def _dead_handlers(cluster: Cluster, namespace: str) -> dict[str, str]:
    """The primary's pods that are not Ready because their node is not, with that node."""
    waiting = [HandlerPod.of(pod) for pod in live.handler_pods(cluster, namespace)]
    # One that was only just made is bound to no node yet.
    suspects = {pod.name: pod.node for pod in waiting if pod.node and pod.daemonset == names.HANDLER and not pod.ready}
    unready = {name for name in set(suspects.values()) if not _is_ready(cluster.get(kinds.NODE, name))}
    return {pod: node for pod, node in suspects.items() if node in unready}


def _is_ready(node: Object | None) -> bool:
    return node is not None and Node.of(node).ready


def _rollout(daemonset: Object) -> str:
    status = daemonset.get("status") or {}
    return (
        f"{status.get('updatedNumberScheduled', 0)} of {status.get('desiredNumberScheduled', 0)} primary handlers are "
        f"restarted and {status.get('numberReady', 0)} are Ready."
    )


def migrations(
    cluster: Cluster, nodes: t.Collection[str] | None, timeout: float, clock: Clock
) -> tuple[Migration, ...]:
    """Wait until no live migration runs (through these nodes); returns those that still do after ``timeout`` seconds.

    A migration whose ends are not known yet counts for every node.
    """
    running: tuple[Migration, ...] = ()

    def pending() -> str | None:
        nonlocal running
        found = live.migrations(cluster)
        running = tuple(m for m in found if nodes is None or not m.nodes or m.nodes & set(nodes))
        return "migrations run" if running else None

    clock.wait(pending, timeout)
    return running


def describe(running: t.Iterable[Migration]) -> str:
    return listed(f"{m.namespace}/{m.name}" for m in running)


def daemonset_observed(cluster: Cluster, namespace: str, name: str, timeout: float, clock: Clock) -> None:
    """Wait until the DaemonSet controller works with the DaemonSet as it is now.

    :raises ClusterError: after ``timeout`` seconds.
    """

    def pending() -> str | None:
        found = cluster.existing(kinds.DAEMON_SET, name, namespace)
        observed = (found.get("status") or {}).get("observedGeneration", 0)
        return None if observed >= found["metadata"]["generation"] else "not observed"

    if clock.wait(pending, timeout) is not None:
        raise ClusterError(
            f"The DaemonSet controller has not taken up DaemonSet {namespace}/{name} within {timeout:.0f} s; see whether "
            "kube-controller-manager works, then run again."
        )


def daemonset_gone(cluster: Cluster, namespace: str, name: str, timeout: float, clock: Clock) -> None:
    """Wait until a deleted DaemonSet and its pods are gone.

    :raises ClusterError: after ``timeout`` seconds.
    """

    def pending() -> str | None:
        return "there" if cluster.get(kinds.DAEMON_SET, name, namespace) else None

    if clock.wait(pending, timeout) is not None:
        raise ClusterError(
            f"DaemonSet {namespace}/{name} was deleted but is still there after {timeout:.0f} s, because pods of it have "
            "not ended; see which, then run again."
        )
