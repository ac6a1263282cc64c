# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Finds and deletes what is left of pools on a cluster that no longer has KubeVirt. There, no node can be handed over."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

from ...core.admission import guard, launcher_rollout, node_policy, policy_objects
from ...core.base import kinds, names
from ...core.base.kinds import Kind
from ...core.base.objects import Change, Object, change_line, is_managed
from ...core.monitoring import alerts
from ...core.observed.nodes import Node
from ...core.observed.snapshot import is_pool_daemonset
from ...core.planning import removal
from ..api.client import Cluster, DeleteOptions
from ..api.waiting import Clock
from ..reading import live
from . import node_owner, policies, settle

_USUAL_NAMESPACE = "kubevirt"


@dataclass(frozen=True)
class Leftovers:
    """What is left of pools after KubeVirt was deleted."""

    namespace: str
    """Where KubeVirt was."""
    locked: bool
    """Whether a run can hold a Lease there."""
    policies: tuple[Change, ...]
    objects: tuple[tuple[Kind, Object], ...]
    """Alerts, DaemonSets, pods that pull images, and the ConfigMap with the history, in the order to delete them."""
    nodes: tuple[Object, ...]
    lease: Object | None

    @property
    def lines(self) -> tuple[str, ...]:
        """What ``delete`` does, one line for each object, in this order."""
        deleted = [change_line(obj, "delete") for _kind, obj in self.objects]
        forgotten = [
            f"Node {node['metadata']['name']}: forget its owner {removal.owner_noted(node)}" for node in self.nodes
        ]
        lease = [change_line(self.lease, "delete")] if self.lease else []
        return (*map(str, self.policies), *deleted, *forgotten, *lease)


def has_kubevirt(cluster: Cluster) -> bool:
    """Whether the cluster has a KubeVirt object, in whatever state."""
    return any(True for _kubevirt in cluster.list(kinds.KUBEVIRT, missing_ok=True))


def find(cluster: Cluster, namespace: str | None, *, with_lease: bool = True) -> Leftovers:
    """Find what is left.

    :param namespace: where KubeVirt was; by default the namespace of our DaemonSets, or else ``kubevirt``.
    :param with_lease: whether a Lease is left there, and not one that the caller has created.
    """
    daemonsets = [ds for ds in cluster.list(kinds.DAEMON_SET, label_selector=names.OURS) if is_pool_daemonset(ds)]
    home = namespace or next((ds["metadata"]["namespace"] for ds in daemonsets), _USUAL_NAMESPACE)
    admission = live.admission(cluster, home)
    history = admission.objects.get((kinds.CONFIG_MAP.name, names.HISTORY))
    home_object = cluster.get(kinds.NAMESPACE, home)
    return Leftovers(
        namespace=home,
        # No client can create an object in a namespace that is being deleted.
        locked=home_object is not None and not home_object["metadata"].get("deletionTimestamp"),
        policies=(
            *policy_objects.removals(guard.live_objects(admission)),
            *launcher_rollout.removal_of_all(admission),
            *policy_objects.removals(node_policy.live_objects(admission)),
        ),
        objects=(
            *((kinds.PROMETHEUS_RULE, dict(rule)) for rule in alerts.live_objects(live.monitoring(cluster))),
            *((kinds.DAEMON_SET, ds) for ds in daemonsets),
            *((kinds.POD, pod) for pod in live.pull_pods(cluster)),
            *(((kinds.CONFIG_MAP, dict(history)),) if history and is_managed(history) else ()),
        ),
        nodes=tuple(node for node in live.all_nodes(cluster) if removal.owner_noted(node) is not None),
        lease=cluster.get(kinds.LEASE, names.LEASE_NAME, home) if with_lease else None,
    )


def delete(cluster: Cluster, leftovers: Leftovers, timeout: float, clock: Clock) -> None:
    """Delete everything but the Lease, which its holder deletes.

    :param timeout: seconds that the pods of a DaemonSet may take to end.
    :raises ClusterError: when they take longer.
    """
    policies.remove(cluster, leftovers.policies, None, timeout, clock)
    for kind, obj in leftovers.objects:
        delete_object(cluster, kind, obj)
    for kind, obj in leftovers.objects:
        if kind == kinds.DAEMON_SET:
            settle.await_daemonset_gone(cluster, obj, timeout, clock)
    for node in leftovers.nodes:
        with contextlib.suppress(node_owner.NodeGone):  # an autoscaler has deleted it
            node_owner.write_owner(cluster, node, Node.from_object(node).owner, names.PRIMARY, None)


def delete_object(cluster: Cluster, kind: Kind, obj: t.Mapping[str, t.Any]) -> None:
    """Delete this very object, and a DaemonSet with its pods: any other that selects orphaned pods would adopt them."""
    metadata = obj["metadata"]
    # Deleted in the foreground, an object is there for some time, and what another run writes into it is lost.
    propagation: t.Literal["Background", "Foreground"] = "Foreground" if kind == kinds.DAEMON_SET else "Background"
    options = DeleteOptions(uid=metadata.get("uid"), propagation=propagation)
    cluster.delete(kind, metadata["name"], metadata.get("namespace"), options, dry_run=False)
