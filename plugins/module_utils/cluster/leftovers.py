# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What is left of pools on a cluster whose KubeVirt is gone. No node can be handed over any more: all of it just goes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import live, policies, settle, writes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.policies import Change
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    guard,
    kinds,
    launchers,
    names,
    node_policy,
    removal,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import Kind
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node, is_ours

Object = dict[str, t.Any]

_USUAL_NAMESPACE = "kubevirt"
_OURS = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"


@dataclass(frozen=True)
class Leftovers:
    """``namespace`` is where KubeVirt was; ``locked`` whether a Lease can be held there."""

    namespace: str
    locked: bool
    policies: tuple[Change, ...]
    objects: tuple[tuple[Kind, Object], ...]
    """DaemonSets, pods that pull images, and the ConfigMap with the history; in the order to delete them."""
    nodes: tuple[Object, ...]
    lease: Object | None

    @property
    def lines(self) -> tuple[str, ...]:
        """What is done to each, in the order of doing it."""
        deleted = [launchers.line(obj, "delete") for _kind, obj in self.objects]
        forgotten = [
            f"Node {node['metadata']['name']}: forget its owner {removal.owner_noted(node)}" for node in self.nodes
        ]
        lease = [launchers.line(self.lease, "delete")] if self.lease else []
        return (*map(str, self.policies), *deleted, *forgotten, *lease)


def has_kubevirt(cluster: Cluster) -> bool:
    """Whether the cluster has a KubeVirt object, in whatever state."""
    return any(True for _kubevirt in cluster.list(kinds.KUBEVIRT, missing_ok=True))


def find(cluster: Cluster, namespace: str | None) -> Leftovers:
    """What is left.

    :param namespace: where KubeVirt was; by default where our DaemonSets are, or else the usual one.
    """
    daemonsets = [ds for ds in cluster.list(kinds.DAEMON_SET, label_selector=_OURS) if is_ours(ds)]
    home = namespace or next((ds["metadata"]["namespace"] for ds in daemonsets), _USUAL_NAMESPACE)
    admission = live.admission(cluster, home)
    history = admission.objects.get((kinds.CONFIG_MAP.name, names.HISTORY))
    found = cluster.get(kinds.NAMESPACE, home)
    return Leftovers(
        namespace=home,
        # Nothing can be created in a namespace that is being deleted.
        locked=found is not None and not found["metadata"].get("deletionTimestamp"),
        policies=tuple(
            policies.removal([*guard.live(admission), *launchers.live(admission), *node_policy.live(admission)])
        ),
        objects=(
            *((kinds.DAEMON_SET, ds) for ds in daemonsets),
            *((kinds.POD, pod) for pod in cluster.list(kinds.POD, label_selector=names.PULL_LABEL)),
            *(((kinds.CONFIG_MAP, dict(history)),) if history and removal.is_managed(history) else ()),
        ),
        nodes=tuple(node for node in cluster.list(kinds.NODE) if removal.owner_noted(node) is not None),
        lease=cluster.get(kinds.LEASE, names.LEASE_NAME, home),
    )


def delete(cluster: Cluster, left: Leftovers, timeout: float, clock: Clock) -> None:
    """Delete it all but the Lease, which its holder deletes.

    :param timeout: seconds for the pods of a DaemonSet to end.
    :raises ClusterError: when they do not.
    """
    policies.remove(cluster, left.policies, None, timeout, clock)
    for kind, obj in left.objects:
        delete_object(cluster, kind, obj)
    for kind, obj in left.objects:
        if kind == kinds.DAEMON_SET:
            settle.daemonset_gone(cluster, obj["metadata"]["namespace"], obj["metadata"]["name"], timeout, clock)
    for node in left.nodes:
        writes.write_owner(cluster, Node.of(node), names.PRIMARY, None)


def delete_object(cluster: Cluster, kind: Kind, obj: t.Mapping[str, t.Any]) -> None:
    """Delete this very object, with what it made."""
    metadata = obj["metadata"]
    cluster.delete(
        kind,
        metadata["name"],
        metadata.get("namespace"),
        uid=metadata.get("uid"),
        # Pods that are left behind would be adopted by any DaemonSet that selects them.
        propagation="Foreground",
        dry_run=False,
    )
