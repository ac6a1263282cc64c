# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Waits until KubeVirt and DaemonSets have taken up what was written. Waits are bounded and end early when hopeless."""

from __future__ import annotations

import typing as t

from ...core.base import kinds, names
from ...core.base.findings import counted, listed, printable
from ...core.base.objects import KubeObject, Object
from ...core.kubevirt import exclusion, health
from ...core.kubevirt.feature_gates import Gates
from ...core.kubevirt.hco import Edit, title
from ...core.observed.handlers import HandlerPod
from ...core.observed.migrations import Migration, is_evacuated
from ...core.observed.nodes import Node
from ...core.observed.snapshot import Snapshot
from ..api.client import Cluster, ClusterError
from ..api.waiting import Clock, Persistence
from ..reading import live

_STALL_SECONDS = 180.0
"""A rollout without progress for this long is stuck: a handler needs about a minute to stop and become Ready."""

_HCO_SECONDS = 90.0
"""How long HCO may take to act on its annotation: it does within a second, and for 20 s after a restart it does nothing."""

_UNDONE_SECONDS = 10.0
"""How long KubeVirt may ask for another placement than a run has written: a cache may answer reads with an older state."""

_HANDLERS_SECONDS = 15.0
"""How often all handlers are read while more of them are missing than nodes that are not Ready explain."""

_DEGRADED_PATIENCE_SECONDS = 45.0
"""How long KubeVirt may be Degraded: virt-operator updates the condition once per sync, which takes up to 15 s."""


class DegradedWatch:
    """Ends a wait when KubeVirt stays Degraded."""

    def __init__(self, clock: Clock) -> None:
        self._degraded = Persistence(clock, _DEGRADED_PATIENCE_SECONDS)

    def refuse(self, state: health.Health, where: str, note: str) -> None:
        """
        :param state: KubeVirt's health now.
        :param where: how messages name the KubeVirt object.
        :param note: what the error ends with.
        :raises ClusterError: when KubeVirt has been Degraded for too long.
        """
        if not self._degraded.lasts(state.degraded is not None):
            return
        problem, remedy = str(state.degraded), "Read virt-operator's log, repair the cause and run again"
        if state.refused_by_guard:
            problem = f"it asks for a {names.HANDLER} that would also run on pool nodes, which the guard refuses"
            remedy = "See which client has removed the exclusion, such as a GitOps tool, and make it keep that, then run again"
        raise ClusterError(f"{where} stays degraded: {problem}. {remedy}{note}")


def await_primary(
    cluster: Cluster, snapshot: Snapshot, timeout: float, clock: Clock, *, excluded: bool, edit: Edit | None = None
) -> None:
    """Wait until the live primary has the exclusion (``excluded``) or has it no more, and KubeVirt has settled.

    :param edit: what brought the exclusion; then also until the primary has all terms of that edit.
    :raises ClusterError: after ``timeout`` seconds, when KubeVirt stays Degraded, or when another client undoes what was written.
    """
    namespace, name = snapshot.namespace, snapshot.kubevirt["metadata"]["name"]
    watch = _HealthWatch(cluster, namespace, name, clock, guarded=excluded)
    stall, hco = _Stall(clock), _HcoWatch(snapshot.hyperconverged, clock)
    undone = Persistence(clock, _UNDONE_SECONDS)

    def pending() -> str | None:
        problem = watch.problem()
        waiting = exclusion.exclusion_requested(watch.kubevirt) != excluded
        if undone.lasts(waiting):
            _refuse_undone(cluster, watch.kubevirt, snapshot.hyperconverged, excluded=excluded)
        hco.refuse(
            waiting,
            f"{'brought the exclusion to' if excluded else 'removed the exclusion from'} KubeVirt {namespace}/{name}",
        )
        daemonset = cluster.existing(kinds.DAEMON_SET, names.HANDLER, namespace)
        if stall.lasts(daemonset):
            _refuse_dead_nodes(cluster, namespace)
            _refuse_broken_handlers(cluster, namespace)
        followed = edit is None or exclusion.primary_after(daemonset, edit) == daemonset
        if exclusion.has_exclusion(daemonset) != excluded or not followed:
            return "virt-operator has not changed its DaemonSet yet."
        if health.primary_rolled_out(daemonset, watch.dead_handlers):
            return problem
        return _rollout_progress(daemonset)

    problem = clock.wait(pending, timeout)
    if problem is not None:
        raise ClusterError(
            f"KubeVirt {namespace}/{name} did not settle within {timeout:.0f} s: {problem} KubeVirt goes on by itself; run "
            "again when it has settled, or with a longer virtpools_settle_timeout."
        )


def _refuse_undone(cluster: Cluster, kubevirt: Object, hyperconverged: KubeObject | None, *, excluded: bool) -> None:
    """Stop waiting for an exclusion that another client has removed or restored, such as a GitOps tool.

    :param hyperconverged: what the run has written to; None where that is the KubeVirt object.
    :raises ClusterError: when the object that was written asks for the opposite.
    """
    if hyperconverged is not None:
        hyperconverged = live.find_hyperconverged(cluster, kubevirt)
    if exclusion.is_asked_for(kubevirt, hyperconverged) != excluded:
        what = "removed the exclusion from" if excluded else "added the exclusion again to"
        raise ClusterError(
            f"Another client has {what} {title(hyperconverged or kubevirt)} while this run waited for KubeVirt. See who did "
            f"that, such as a GitOps tool, and make it {'keep' if excluded else 'leave out'} the exclusion, then run again."
        )


def await_settled(cluster: Cluster, namespace: str, name: str, timeout: float, clock: Clock) -> None:
    """Wait until KubeVirt has settled: nodes that come and go make it unavailable for some seconds.

    :raises ClusterError: after ``timeout`` seconds; at once during an upgrade of KubeVirt; when it stays Degraded.
    """
    problem = clock.wait(_HealthWatch(cluster, namespace, name, clock).problem, timeout)
    if problem is not None:
        raise ClusterError(
            f"KubeVirt {namespace}/{name} did not settle within {timeout:.0f} s: {problem} Nothing was changed; see why, then "
            "run again."
        )


def await_version(
    cluster: Cluster, namespace: str, name: str, version: str, timeout: float, clock: Clock
) -> str | None:
    """Wait until KubeVirt has been upgraded to a version and has settled.

    :param timeout: in seconds; with 0 it looks only once.
    :returns: what is still to come after that time, as a sentence; None when it is done.
    """

    def pending() -> str | None:
        found = cluster.existing(kinds.KUBEVIRT, name, namespace)
        present, state = health.version_of(found), health.Health.from_kubevirt(found)
        if state.upgrading or not health.same_version(present, version):
            return f"KubeVirt {namespace}/{name} is at {present}, not at {version} yet."
        return None if state.settled else f"KubeVirt {namespace}/{name}: {' and '.join(state.problems())}."

    return clock.wait(pending, timeout)


def await_gates(cluster: Cluster, kubevirt: Object, gates: Gates, timeout: float, clock: Clock) -> None:
    """Wait until KubeVirt has the feature gates that were written, which HCO may have to bring it, and has settled.

    :raises ClusterError: after ``timeout`` seconds; at once during an upgrade of KubeVirt; when it stays Degraded.
    """
    namespace, name = kubevirt["metadata"]["namespace"], kubevirt["metadata"]["name"]
    watch = _HealthWatch(cluster, namespace, name, clock)
    hco = _HcoWatch(live.find_hyperconverged(cluster, kubevirt), clock)

    def pending() -> str | None:
        arrived = gates.are_set(cluster.existing(kinds.KUBEVIRT, name, namespace))
        hco.refuse(not arrived, f"brought the feature gates to KubeVirt {namespace}/{name}")
        if not arrived:
            return "HCO has not brought the gates to the KubeVirt object yet."
        return watch.problem()

    problem = clock.wait(pending, timeout)
    if problem is not None:
        raise ClusterError(
            f"The feature gates were written, but KubeVirt {namespace}/{name} did not settle within {timeout:.0f} s: {problem} "
            "See why, then run again; nothing else was changed."
        )


class _HcoWatch:
    """Ends a wait when HCO does not act on its annotation, as when its operator is down."""

    def __init__(self, hyperconverged: KubeObject | None, clock: Clock) -> None:
        self._hyperconverged = hyperconverged
        self._idle = Persistence(clock, _HCO_SECONDS)

    def refuse(self, waiting: bool, what: str) -> None:
        """
        :param waiting: whether the KubeVirt object is not as the annotation asks.
        :param what: what HCO should have done, as a participle.
        :raises ClusterError: when HCO has not done it for too long.
        """
        if self._hyperconverged is not None and self._idle.lasts(waiting):
            namespace = self._hyperconverged["metadata"]["namespace"]
            raise ClusterError(
                f"HCO has not {what} within {_HCO_SECONDS:.0f} s, although {title(self._hyperconverged)} was changed. See whether its "
                f"operator works (Deployment hco-operator in namespace {namespace}), then run again."
            )


class _Stall:
    """Notices when a rollout of the primary makes no progress."""

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
    """Stop waiting when nodes have died: one of their handlers can hold up the whole rollout (see preflight).

    :raises ClusterError: when there are such nodes.
    """
    dead = sorted(_lost_nodes(cluster, _handlers_not_ready(cluster, namespace)))
    if dead:
        raise ClusterError(
            f"KubeVirt's rollout of virt-handler makes no progress, and {counted(len(dead), 'node with a handler is', 'nodes with a handler are')} "
            f"not Ready ({listed(dead)}), which can hold it up forever; bring them back, or delete the Node objects of machines "
            "that no longer exist, then run again. No node was handed over."
        )


def _refuse_broken_handlers(cluster: Cluster, namespace: str) -> None:
    """Stop waiting when handlers do not start: virt-operator waits for them.

    :raises ClusterError: when there are such handlers.
    """
    pods = _handlers_not_ready(cluster, namespace)
    broken = sorted((pod.node, pod.name, printable(pod.fault)) for pod in pods if pod.fault)
    if broken:
        raise ClusterError(
            f"KubeVirt's rollout of virt-handler makes no progress, because {counted(len(broken), 'handler does', 'handlers do')} not "
            f"start: {listed(f'{node} (pod {pod}: {problem})' for node, pod, problem in broken)}; repair that, then run again. No node "
            "was handed over."
        )


class _HealthWatch:
    """KubeVirt's health while we wait. ``dead_handlers`` counts primary handlers on nodes that are not Ready, when all were last read."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, clock: Clock, *, guarded: bool = True) -> None:
        """``guarded``: whether a refusal by the guard counts; it is stale once a removal has deleted the guard."""
        self._guarded = guarded
        self.kubevirt: Object = {}
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._degraded = DegradedWatch(clock)
        self._read_at: float | None = None
        self.dead_handlers = 0

    def problem(self) -> str | None:
        """Why KubeVirt has not settled; None when it has.

        :raises ClusterError: during an upgrade of KubeVirt, or when it stays Degraded.
        """
        self.kubevirt = kubevirt = self._cluster.existing(kinds.KUBEVIRT, self._name, self._namespace)
        state = health.Health.from_kubevirt(kubevirt)
        where = f"KubeVirt {self._namespace}/{self._name}"
        if self._guarded or not state.refused_by_guard:
            self._degraded.refuse(state, where, "; no further node was touched.")
        upgrade = health.upgrade_under_way(kubevirt)
        if upgrade is not None:
            raise ClusterError(upgrade.message)
        if state.settled:
            self.dead_handlers = 0
            return None
        if self._only_dead_handlers_are_missing(state):
            return None
        return f"{'; '.join(state.problems())}."

    def _only_dead_handlers_are_missing(self, state: health.Health) -> bool:
        """Whether KubeVirt has not settled only because of nodes that are not Ready. Reads all handlers, but seldom while the primary's
        status tells that more of them are missing: those of 3,000 nodes are 30 MB."""
        primary = self._cluster.existing(kinds.DAEMON_SET, names.HANDLER, self._namespace)
        now = self._clock.now()
        recent = self._read_at is not None and now - self._read_at < _HANDLERS_SECONDS
        if recent and health.handlers_missing(primary) > self.dead_handlers:
            return False
        self._read_at = now
        unready = _handlers_not_ready(self._cluster, self._namespace)
        lost = _lost_nodes(self._cluster, unready)
        self.dead_handlers = sum(pod.node in lost for pod in unready)
        new = bool(state.rolling_out) and health.primary_is_new(self.kubevirt, primary, self.dead_handlers)
        return health.waits_only_for_unready_nodes(
            state, {pod.name: pod.node for pod in unready}, lost, primary_new=new
        )


def await_own_change(cluster: Cluster, snapshot: Snapshot, timeout: float, clock: Clock) -> None:
    """Wait until KubeVirt has rolled out the exclusion that an interrupted run added or removed.

    :raises ClusterError: after ``timeout`` seconds, or when KubeVirt stays Degraded.
    """
    wanted = exclusion.is_asked_for(snapshot.kubevirt, snapshot.hyperconverged)
    await_primary(cluster, snapshot, timeout, clock, excluded=wanted)


def _lost_nodes(cluster: Cluster, handlers: t.Iterable[HandlerPod]) -> frozenset[str]:
    """The nodes of these handlers that are not Ready, or no longer exist."""
    nodes = {pod.node for pod in handlers}
    there = map(Node.from_object, live.nodes_named(cluster, nodes))
    return frozenset(nodes - {node.name for node in there if node.ready})


def _handlers_not_ready(cluster: Cluster, namespace: str) -> list[HandlerPod]:
    """The primary's pods that are not Ready. A pod that was only just created has no node yet, and is left out."""
    handlers = live.handlers(cluster, namespace)
    return [pod for pod in handlers if pod.node and pod.daemonset == names.HANDLER and not pod.ready]


def _rollout_progress(daemonset: Object) -> str:
    status = daemonset.get("status") or {}
    return (
        f"{status.get('updatedNumberScheduled', 0)} of {status.get('desiredNumberScheduled', 0)} primary handlers are "
        f"restarted and {status.get('numberReady', 0)} are Ready."
    )


def require_no_migrations(cluster: Cluster, timeout: float, clock: Clock, because: str) -> None:
    """Wait until no live migration runs anywhere.

    :param because: why nothing may be changed while some run, as a clause.
    :raises ClusterError: when some still run after ``timeout`` seconds.
    """
    problem = await_migrations(cluster, None, timeout, clock)
    if problem is not None:
        raise ClusterError(
            f"Nothing was changed: live migrations did not end within {timeout:.0f} s, and {because}: {problem}"
        )


def await_migrations(cluster: Cluster, nodes: t.Collection[str] | None, timeout: float, clock: Clock) -> str | None:
    """Wait until no live migration has pods on these nodes (None: on any node).

    After ``timeout`` seconds, returns the VMs whose migrations have not ended, and what to do.
    """
    running: tuple[Migration, ...] = ()
    seen: set[Migration] = set()

    def pending() -> str | None:
        nonlocal running
        everywhere = live.migrations(cluster)
        running = tuple(m for m in everywhere if (m.nodes if nodes is None else m.nodes & set(nodes)))
        seen.update(running)
        return f"live migrations run: {listed(map(str, running))}" if running else None

    if clock.wait(pending, timeout) is None:
        return None
    there = {(m.namespace, m.name) for m in running}
    ended = len({(m.namespace, m.name) for m in seen} - there)
    again = (
        f" While the run waited, {counted(ended, 'other one', 'others')} ended: if a descheduler or another tool starts new ones all the "
        "time, stop it first."
        if ended
        else ""
    )
    first = running[0]
    return (
        f"{listed(map(str, running))}. Wait for them, or cancel them (`kubectl delete vmim {first.name} -n "
        f"{first.namespace}`), then run again.{again}"
    )


def await_evacuations(cluster: Cluster, nodes: t.Collection[str], timeout: float, clock: Clock) -> str | None:
    """Wait until no VM is to leave one of these nodes because its pod was evicted. KubeVirt migrates such a VM again and again.

    After ``timeout`` seconds, returns the VMs that are still there, and what to do.
    """
    leaving: list[tuple[str, str, str]] = []

    def pending() -> str | None:
        leaving[:] = sorted(
            (vmi["metadata"]["namespace"], vmi["metadata"]["name"], vmi["status"]["nodeName"])
            for vmi in live.vmis_on(cluster, nodes)
            if is_evacuated(vmi)
        )
        return f"VMs are leaving: {listed(vm for _namespace, vm, _node in leaving)}" if leaving else None

    if clock.wait(pending, timeout) is None:
        return None
    vms = listed(f"VM {namespace}/{name} on {node}" for namespace, name, node in leaving)
    return (
        f"{vms}. See why its migrations fail (`kubectl get vmim -n {leaving[0][0]}`), or end its eviction (`virtctl evacuate-cancel`), then "
        "run again."
    )


def is_daemonset_observed(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether the DaemonSet controller creates pods from the DaemonSet as it is now."""
    daemonset = cluster.existing(kinds.DAEMON_SET, name, namespace)
    observed: int = (daemonset.get("status") or {}).get("observedGeneration", 0)
    return observed >= daemonset["metadata"].get("generation", 0)


def await_daemonset_observed(cluster: Cluster, namespace: str, name: str, timeout: float, clock: Clock) -> None:
    """Wait until the DaemonSet controller has seen the DaemonSet as it is now.

    :raises ClusterError: after ``timeout`` seconds.
    """

    def pending() -> str | None:
        observed = is_daemonset_observed(cluster, namespace, name)
        return None if observed else f"the DaemonSet controller has not noticed DaemonSet {namespace}/{name} yet"

    if clock.wait(pending, timeout) is not None:
        raise ClusterError(
            f"The DaemonSet controller has not noticed DaemonSet {namespace}/{name} within {timeout:.0f} s; check that "
            "kube-controller-manager works, then run again."
        )


def await_daemonset_gone(cluster: Cluster, daemonset: KubeObject, timeout: float, clock: Clock) -> None:
    """Wait until a deleted DaemonSet and its pods no longer exist.

    :raises ClusterError: after ``timeout`` seconds; it names the pods that are left. At once when another client has created the
        DaemonSet again.
    """
    metadata = daemonset["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]

    def pending() -> str | None:
        live = cluster.get(kinds.DAEMON_SET, name, namespace)
        if live is not None and live["metadata"].get("uid") != metadata.get("uid"):
            raise ClusterError(
                f"DaemonSet {namespace}/{name} was deleted, and another client has created it again. See who did that, such as a "
                "GitOps tool, and make it leave the DaemonSet out, then run again."
            )
        return f"DaemonSet {namespace}/{name} is being deleted" if live is not None else None

    if clock.wait(pending, timeout) is not None:
        left = _pods_left(cluster, namespace, name)
        raise ClusterError(
            f"DaemonSet {namespace}/{name} was deleted but still exists after {timeout:.0f} s; its pods that have not ended: "
            f"{left or 'none'}. See what holds it, then run again."
        )


def _pods_left(cluster: Cluster, namespace: str, daemonset: str) -> str:
    """Name the pods of a DaemonSet. Kubernetes' pod garbage collector deletes those of a node 40 to 60 s after the node."""
    pods = [pod for pod in live.handlers(cluster, namespace) if pod.daemonset == daemonset]
    there = {node["metadata"]["name"] for node in live.nodes_named(cluster, {pod.node for pod in pods})}
    return listed(
        f"{pod.name} (on node {pod.node}{'' if pod.node in there else ', which no longer exists: Kubernetes will delete it'})"
        for pod in pods
    )
