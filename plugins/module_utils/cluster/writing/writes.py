# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Writes desired objects: ours by server-side apply, other people's by reading, merging and writing them."""

from __future__ import annotations

import copy
import typing as t

from ...core.base import kinds
from ...core.base.objects import Object
from ...core.kubevirt import daemonsets
from ...core.kubevirt.hco import Edit
from ...core.planning.plan import DaemonSetChange
from ..api.client import Cluster, DeleteOptions


def _kind_of(obj: t.Mapping[str, t.Any]) -> kinds.Kind:
    """KubeVirt, or HyperConverged in the API version that it was read in."""
    if obj["kind"] == kinds.KUBEVIRT.name:
        return kinds.KUBEVIRT
    versions = (kinds.HYPER_CONVERGED, kinds.HYPER_CONVERGED_V1BETA1)
    return next(kind for kind in versions if kind.api_version == obj["apiVersion"])


def edit_object(
    cluster: Cluster, edit: Edit, edit_of: t.Callable[[Object], Edit], *, dry_run: bool
) -> tuple[Object, Object]:
    """Carry out an edit of the KubeVirt or HyperConverged object.

    :param edit_of: makes the same edit of the object as it is at the moment of writing: others write it, too.
    :returns: the object before and after.
    """
    metadata = edit.before["metadata"]
    kind = _kind_of(edit.before)

    def change(live: Object) -> Object | None:
        wanted = edit_of(live)
        return t.cast(Object, wanted.after) if wanted.changed else None

    return cluster.edit(kind, metadata["name"], metadata["namespace"], change, dry_run=dry_run)


def apply_daemonset(cluster: Cluster, change: DaemonSetChange, *, dry_run: bool) -> Object:
    """Create or update a pool's DaemonSet; returns it as stored, or with ``dry_run`` as it would be stored.

    Server-side apply keeps what another manager added, such as an env variable by ``kubectl edit``. When that is drift,
    we replace the whole spec.
    """
    desired = t.cast(Object, change.desired)
    stored = cluster.apply(kinds.DAEMON_SET, desired, dry_run=dry_run)
    if dry_run or not daemonsets.drift(desired, stored):
        return stored

    def with_ours(live: Object) -> Object:
        ours = {field: copy.deepcopy(desired["spec"][field]) for field in ("template", "updateStrategy")}
        return {**live, "spec": {**live["spec"], **ours}}

    # The DaemonSet controller notes at once, in its status, that it has seen what was applied.
    metadata = stored["metadata"]
    return cluster.edit(kinds.DAEMON_SET, metadata["name"], metadata["namespace"], with_ours, dry_run=False)[1]


def delete_daemonset(cluster: Cluster, change: DaemonSetChange, *, dry_run: bool) -> bool:
    """Delete a pool's DaemonSet with its pods. Orphaned pods would be adopted and deleted by the primary."""
    options = DeleteOptions(uid=t.cast(Object, change.live)["metadata"].get("uid"), propagation="Foreground")
    return cluster.delete(kinds.DAEMON_SET, change.name, change.namespace, options, dry_run=dry_run)
