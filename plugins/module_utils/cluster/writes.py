# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing desired objects: ours by server-side apply, other people's by read, merge and write."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import (
    Cluster,
    ClusterError,
    Conflict,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import daemonsets, kinds, names, objects
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import Edit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import DaemonSetChange
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node

Object = dict[str, t.Any]

_MOST_TRIES = 10


def _kind_of(obj: t.Mapping[str, t.Any]) -> kinds.Kind:
    """KubeVirt, or HyperConverged in the version it was read in."""
    if obj["kind"] == kinds.KUBEVIRT.name:
        return kinds.KUBEVIRT
    versions = (kinds.HYPER_CONVERGED, kinds.HYPER_CONVERGED_V1BETA1)
    return next(kind for kind in versions if kind.api_version == obj["apiVersion"])


def edit_object(
    cluster: Cluster, edit: Edit, again: t.Callable[[Object], Edit], *, dry_run: bool
) -> tuple[Object, Object]:
    """Carry out an edit of the KubeVirt or HyperConverged object.

    :param again: the same edit for the object as it is when it is written: others write there, too.
    :returns: the object before and after.
    """
    metadata = edit.before["metadata"]
    kind = _kind_of(edit.before)

    def change(live: Object) -> Object | None:
        wanted = again(live)
        return t.cast(Object, wanted.after) if wanted.changed else None

    return cluster.edit(kind, metadata["name"], metadata["namespace"], change, dry_run=dry_run)


def apply_daemonset(cluster: Cluster, change: DaemonSetChange, *, dry_run: bool) -> Object:
    """Create a pool's DaemonSet, or make it what it should be; returns it as stored (or as it would be).

    Server-side apply leaves what another manager added (an env variable by ``kubectl edit``); where that is drift, the
    spec is written as a whole.
    """
    desired = t.cast(Object, change.desired)
    stored = cluster.apply(kinds.DAEMON_SET, desired, dry_run=dry_run)
    if dry_run or not daemonsets.drift(desired, stored):
        return stored
    whole = copy.deepcopy(stored)
    for field in ("template", "updateStrategy"):
        whole["spec"][field] = copy.deepcopy(desired["spec"][field])
    return cluster.replace(kinds.DAEMON_SET, whole, dry_run=False)


def delete_daemonset(cluster: Cluster, change: DaemonSetChange, *, dry_run: bool) -> bool:
    """Delete a pool's DaemonSet with its pods (never orphan them: the primary would adopt and delete them)."""
    uid = t.cast(Object, change.live)["metadata"].get("uid")
    return cluster.delete(
        kinds.DAEMON_SET, change.name, change.namespace, uid=uid, propagation="Foreground", dry_run=dry_run
    )


def write_owner(cluster: Cluster, node: Node, owner: str, former: str | None) -> Node:
    """Give the node an owner, provided that it still has the one in ``node``; note or forget the former one.

    :raises ClusterError: when somebody else changed the owner label meanwhile.
    """
    labels = {names.OWNER_LABEL: None if owner == names.PRIMARY else owner}
    annotations = {names.FORMER_OWNER_ANNOTATION: former}
    for attempt in range(1, _MOST_TRIES + 1):
        obj = cluster.existing(kinds.NODE, node.name)
        live = Node.of(obj)
        if (live.owner, live.former_owner) == (owner, former):
            # Our own write, whose answer was lost; or somebody wants the same.
            return live
        if live.owner != node.owner:
            raise ClusterError(
                f"Node {node.name} was to go from {node.owner} to {owner}, but somebody else changed its label "
                f"{names.OWNER_LABEL} meanwhile: it is {live.owner} now. See who does that, then run again."
            )
        patch = objects.metadata_patch(obj, labels=labels, annotations=annotations)
        try:
            return Node.of(cluster.json_patch(kinds.NODE, node.name, patch, dry_run=False))
        except Conflict:  # its labels or annotations were changed since we read it: read again
            if attempt == _MOST_TRIES:
                raise
    raise AssertionError("the last attempt returns or raises")
