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
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import daemonsets, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import Edit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import DaemonSetChange
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node

Object = dict[str, t.Any]


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
    try:
        return Node.of(cluster.json_patch(kinds.NODE, node.name, _owner_patch(node, owner, former), dry_run=False))
    except Conflict:
        obj = cluster.existing(kinds.NODE, node.name)
    live = Node.of(obj)
    if (live.owner, live.former_owner) == (owner, former):
        # Our own write, whose answer was lost; or the wish of somebody who wants the same.
        return live
    if live.owner == node.owner:
        # Only the annotations are not as they were: go by what is there now.
        patch = _owner_patch(live, owner, former)
        if not obj["metadata"].get("annotations"):
            patch.insert(0, {"op": "add", "path": "/metadata/annotations", "value": {}})
        return Node.of(cluster.json_patch(kinds.NODE, node.name, patch, dry_run=False))
    raise ClusterError(
        f"Node {node.name} was to go from {node.owner} to {owner}, but somebody else changed its label "
        f"{names.OWNER_LABEL} meanwhile: it is {live.owner} now. See who does that, then run again."
    )


def _owner_patch(node: Node, owner: str, former: str | None) -> list[Object]:
    """``test`` with null holds where the label is absent: the primary's nodes (as the API server's patch library has it)."""
    return [
        {"op": "test", "path": _LABEL, "value": None if node.owner == names.PRIMARY else node.owner},
        *_put(_LABEL, None if owner == names.PRIMARY else owner, present=node.owner != names.PRIMARY),
        *_put(_ANNOTATION, former, present=node.former_owner is not None),
    ]


def _pointer(field: str, key: str) -> str:
    return f"/metadata/{field}/{key.replace('~', '~0').replace('/', '~1')}"


_LABEL = _pointer("labels", names.OWNER_LABEL)
_ANNOTATION = _pointer("annotations", names.FORMER_OWNER_ANNOTATION)


def _put(path: str, value: str | None, *, present: bool) -> list[Object]:
    """JSON patch operations that make ``path`` have ``value``; None removes it."""
    if value is not None:
        return [{"op": "add", "path": path, "value": value}]
    return [{"op": "remove", "path": path}] if present else []
