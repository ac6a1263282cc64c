# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking pools away: which ones, what becomes of their VMs, and what is left of them where KubeVirt is gone."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names, preflight
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    InputErrors,
    error,
    listed,
    note,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import Edit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import KubeObject, Node, Snapshot

Removed: t.TypeAlias = "tuple[str, ...] | t.Literal['all']"
"""Names of pools, or all pools that the cluster has."""

Vms = t.Literal["refuse", "leave", "migrate", "wait"]
VMS: tuple[Vms, ...] = t.get_args(Vms)

ALL: t.Final = "all"

_FORBIDDING = frozenset({"kubevirt_not_found", "kubevirt_not_deployed", "kubevirt_deleted", "kubevirt_upgrading"})
"""What no node can go back in: there is no primary to take it, or it is just being replaced."""


def parse(value: t.Any) -> Removed | None:
    """What the user says is to go: ``all``, a list of names, or names with commas between them; None for nothing said.

    :raises InputErrors: for anything else, and for an empty list.
    """
    if value is None:
        return None
    if isinstance(value, str):
        if value.strip() == ALL:
            return ALL
        value = [part.strip() for part in value.split(",")]
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) and name for name in value):
        return tuple(dict.fromkeys(value))
    raise InputErrors([f"virtpools_remove is {value!r}; give the names of pools as a list, or all."])


def is_last(removed: Removed, snapshot: Snapshot) -> bool:
    """Whether no pool stays: then all that was made for pools goes, too."""
    return removed == ALL or set(snapshot.pools) <= set(removed)


def leaving(removed: Removed, snapshot: Snapshot) -> frozenset[str]:
    """The owners that lose their nodes. When no pool stays, all but the primary, be they pools or not."""
    if not is_last(removed, snapshot):
        return frozenset(removed)
    held = {owner for node in snapshot.nodes.values() for owner in (node.owner, node.former_owner) if owner}
    return frozenset({*held, *snapshot.pools, names.IN_TRANSIT} - {names.PRIMARY})


def concerned(nodes: t.Mapping[str, Node], owners: t.Collection[str]) -> tuple[str, ...]:
    """The nodes that these owners have, or have not handed over for good."""
    return tuple(name for name, node in nodes.items() if node.owner in owners or node.former_owner in owners)


def history(snapshot: Snapshot) -> tuple[KubeObject, ...]:
    """What runs noted in the cluster, and nobody needs without pools."""
    noted = snapshot.admission and snapshot.admission.objects.get(("ConfigMap", names.HISTORY))
    return (noted,) if noted and is_managed(noted) else ()


def is_managed(obj: KubeObject) -> bool:
    """Whether an object is ours."""
    return (obj["metadata"].get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY


def fitness(snapshot: Snapshot, edit: Edit) -> t.Iterator[Finding]:
    """What of the cluster forbids that nodes go back, or must be known before.

    KubeVirt need not be well: who takes a node back is the DaemonSet controller and the handler itself, and each handover
    is proven. Only the exclusion needs virt-operator; it comes last, and waits.
    """
    for found in preflight.for_removal(snapshot, edit):
        if found.severity != "error" or found.code in _FORBIDDING:
            yield found
        else:
            later = "; the exclusion goes only once that is repaired" if edit.changed else ""
            yield warning("removal_unfit", f"{found.message} Nodes go back all the same, each one proven{later}.")


def check(snapshot: Snapshot, removed: Removed, edit: Edit) -> t.Iterator[Finding]:
    """What forbids a removal, or what its user must know."""
    yield from fitness(snapshot, edit)
    unknown = set(() if removed == ALL else removed) - set(snapshot.pools)
    held = {owner for node in snapshot.nodes.values() for owner in (node.owner, node.former_owner)}
    if unknown - held:
        yield warning(
            "removed_pool_unknown",
            f"The cluster has no pool {listed(unknown - held)}, so there is nothing to remove of it; its pools are: "
            f"{listed(snapshot.pools) or 'none'}.",
        )
    if is_last(removed, snapshot) and edit.changed:
        yield note(
            "feature_gates_stay",
            "Feature gates of KubeVirt stay as they are, since the cluster does not say who set them; take those that only "
            "pools needed away with virtpools_feature_gates_absent.",
        )


# VMs ----------------------------------------------------------------------------------------------------------------


def of_vms(
    pods: t.Iterable[LauncherPod],
    nodes: t.Mapping[str, Node],
    pools: t.Iterable[Pool],
    owners: t.Collection[str],
    vms: Vms,
) -> t.Iterator[Finding]:
    """What becomes of the VMs that run with the images of these owners, or on their nodes.

    :param pods: the launcher pods of the cluster, read once and not kept.
    :param pools: those that the cluster records.
    """
    images = {pool.virt_launcher_image: pool.name for pool in pools if pool.name in owners}
    found: dict[str, list[str]] = collections.defaultdict(list)
    for pod in pods:
        if not pod.ended and not pod.terminating:
            pool = _pool_of(pod, nodes, images, owners)
            if pool is not None:
                found[pool].append(f"{pod.namespace}/{pod.vmi}")
    for pool, names_of_vms in sorted(found.items()):
        yield _told(pool, names_of_vms, vms)


def _told(pool: str, found: t.Sequence[str], vms: Vms) -> Finding:
    running = f"{len(found)} VM(s) run with the launcher image of pool {pool} or on its nodes ({listed(found)})"
    if vms == "refuse":
        return error(
            "vms_of_pool",
            f"{running}; stop them, or set virtpools_remove_vms: leave (they run on where they are, and start with "
            "KubeVirt's own image next time), migrate, or wait (for them to end).",
        )
    if vms == "migrate":
        return note(
            "vms_migrated",
            f"{running}: those with its image that can be live-migrated go to KubeVirt's own image on other nodes first, "
            "the others run on where they are.",
        )
    if vms == "wait":
        return note(
            "vms_awaited",
            f"{running}: they start with KubeVirt's own image next time, and each node goes back when those on it have ended.",
        )
    return note(
        "vms_left", f"{running}: they run on where they are, and start with KubeVirt's own launcher image next time."
    )


def _pool_of(
    pod: LauncherPod, nodes: t.Mapping[str, Node], images: t.Mapping[str | None, str], owners: t.Collection[str]
) -> str | None:
    """The pool that a VM is counted for; None for one that has nothing to do with these."""
    if pod.pool_env in owners:
        return pod.pool_env
    node = nodes.get(pod.node)
    if node is not None and node.owner in owners:
        return node.owner
    return next((images[image] for image in pod.launcher_images.values() if image in images), None)


# Where KubeVirt is gone ---------------------------------------------------------------------------------------------


WITHOUT_KUBEVIRT: t.Final = (
    "The cluster has no KubeVirt any more: no node can be handed back to a primary virt-handler, and what pools left behind "
    "is deleted."
)
NO_POOL_STAYS: t.Final = "The cluster has no KubeVirt any more, so no pool can stay: set virtpools_remove: all to delete what is left of them."
NOTHING_LEFT: t.Final = "The cluster has no KubeVirt any more, and nothing of pools is left."


def owner_noted(node: KubeObject) -> str | None:
    """The owner that a node's label or annotation names; None for a node that has neither."""
    metadata = node["metadata"]
    for field, key in (("labels", names.OWNER_LABEL), ("annotations", names.FORMER_OWNER_ANNOTATION)):
        noted = (metadata.get(field) or {}).get(key)
        if noted is not None:
            return str(noted)
    return None
