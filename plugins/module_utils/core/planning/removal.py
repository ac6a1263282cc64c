# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Removing pools: which ones, what happens to their VMs, and what is left of them in a cluster without KubeVirt."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ..admission import launcher_backends
from ..base import names
from ..base.findings import Finding, InputErrors, counted, error, listed, note, warning
from ..base.objects import KubeObject, is_managed
from ..kubevirt import preflight
from ..kubevirt.hco import Edit
from ..observed.nodes import Node
from ..observed.snapshot import Admission, Snapshot
from ..pools.model import Pool
from ..vms.launcher_pods import LauncherPod
from ..vms.mapping import Table
from . import history as histories

Removed: t.TypeAlias = "tuple[str, ...] | t.Literal['all']"
"""Names of pools, or all pools that the cluster has."""

Vms = t.Literal["refuse", "leave", "migrate", "wait"]

ALL: t.Final = "all"

UNKNOWN: t.Final = "removed_pool_unknown"
"""The code of the error about a name that no pool has. A run that has removed the pool itself ignores it."""

_FORBIDDING = frozenset(
    {"kubevirt_not_found", "kubevirt_not_deployed", "kubevirt_deleted", "kubevirt_upgrading", preflight.ROLLOUT}
)
"""With these errors no node can go back: there is no primary that takes it, or KubeVirt is replacing the primary."""


def parse(value: t.Any) -> Removed | None:
    """The pools that the user wants removed: ``all``, a list of names, or names separated by commas; None for None.

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
    """Whether no pool stays. Then everything that was made for pools goes too."""
    return removed == ALL or set(snapshot.pools) <= set(removed)


def leaving(removed: Removed, snapshot: Snapshot) -> frozenset[str]:
    """The owners that lose their nodes. When no pool stays, these are all but the primary, also those that are not pools."""
    if not is_last(removed, snapshot):
        return frozenset(removed)
    held = {owner for node in snapshot.nodes.values() for owner in (node.owner, node.former_owner) if owner}
    return frozenset({*held, *snapshot.pools, names.IN_TRANSIT} - {names.PRIMARY})


def changing(owners: t.Collection[str], snapshot: Snapshot) -> frozenset[str]:
    """The nodes that a removal may change: those of the owners that lose them, and those on their way from or to the primary.

    :param owners: those that lose their nodes.
    """
    half_way = (
        name
        for name, node in snapshot.nodes.items()
        if node.unfinished
        and node.owner in (names.PRIMARY, names.IN_TRANSIT)
        and node.former_owner not in snapshot.pools.keys() - owners
    )
    return frozenset((*nodes_of(snapshot.nodes, owners), *half_way))


def nodes_of(nodes: t.Mapping[str, Node], owners: t.Collection[str]) -> tuple[str, ...]:
    """The nodes that these owners have, and those whose handover from them is not proven."""
    return tuple(name for name, node in nodes.items() if node.owner in owners or node.former_owner in owners)


def history(snapshot: Snapshot) -> tuple[KubeObject, ...]:
    """The history ConfigMap, which is useless without pools; nothing when it does not exist or is not ours."""
    config_map = snapshot.admission and snapshot.admission.objects.get(("ConfigMap", names.HISTORY))
    return (config_map,) if config_map and is_managed(config_map) else ()


def moving(snapshot: Snapshot) -> frozenset[str]:
    """The pools that an unfinished move between the modes brings back."""
    return histories.recorded_in(snapshot).moving_back


def leaves_moving(removed: Removed | None, snapshot: Snapshot) -> bool:
    """Whether a move brings back other pools than these, so that the history is needed without pools, too."""
    return removed is not None and removed != ALL and not moving(snapshot) <= set(removed)


def is_recorded(removed: Removed | None, snapshot: Snapshot) -> bool:
    """Whether neither a move nor a return to the newest list brings these pools back."""
    if removed is None or removed == ALL:
        return True
    known = histories.recorded_in(snapshot)
    if known.moving is not None:
        return known.moving_back.isdisjoint(removed)
    return not known.has_some_of({*removed} - snapshot.pools.keys())


def fitness(snapshot: Snapshot, edit: Edit) -> t.Iterator[Finding]:
    """Findings on KubeVirt: what forbids that nodes go back, and what the user must know first.

    KubeVirt need not be healthy: the DaemonSet controller and the handler take a node back, and each handover is proven.
    Only the exclusion needs virt-operator; it goes last, and the run waits for it.
    """
    for finding in preflight.for_removal(snapshot, edit):
        if finding.severity != "error" or finding.code in _FORBIDDING:
            yield finding
        else:
            later = "; the exclusion is removed only once that is repaired" if edit.changed else ""
            yield warning(
                "kubevirt_unhealthy",
                f"{finding.message} Nodes are still handed back, and each handover is verified{later}.",
            )


def check(snapshot: Snapshot, removed: Removed, edit: Edit) -> t.Iterator[Finding]:
    """What forbids a removal, or what its user must know."""
    yield from fitness(snapshot, edit)
    yield from _not_there(snapshot, removed)
    yield from _missing(snapshot, removed)
    yield from _left_in_transit(snapshot, removed)
    if is_last(removed, snapshot) and edit.changed:
        yield note(
            "feature_gates_stay",
            "KubeVirt's feature gates stay as they are, since the cluster does not record who set them; list those that only "
            "pools needed in virtpools_feature_gates_absent.",
        )


def _not_there(snapshot: Snapshot, removed: Removed) -> t.Iterator[Finding]:
    """Findings on pools that the cluster does not have: an error about a name that it never had."""
    if removed == ALL or not snapshot.complete:
        return
    missing = set(removed) - set(snapshot.pools) - _held(snapshot)
    # Without any pool there is no history either: the last one was removed.
    entries = histories.recorded_in(snapshot).entries
    known = {pool.name for entry in entries for pool in entry.pools} if snapshot.pools else missing
    if missing - known:
        yield error(
            "removed_pool_unknown",
            f"The cluster has no pool {listed(missing - known)} and its history names none; its pools are: "
            f"{listed(snapshot.pools)}. Correct virtpools_remove, then run again.",
        )
    if missing & known:
        yield note(
            "removed_pool_gone",
            f"The cluster no longer has pool {listed(missing & known)}, so nothing is left to remove.",
        )


def _missing(snapshot: Snapshot, removed: Removed) -> t.Iterator[Finding]:
    """An error about pools that stay and whose DaemonSets the cluster does not have, if only for a moment. Without it, the removal of
    another pool could be that of the last one, and delete all that pools need."""
    if removed == ALL or not snapshot.complete:
        return
    entries = histories.recorded_in(snapshot).entries
    table = launcher_backends.recorded_table(snapshot.admission or Admission()) or Table(())
    known = {*(pool.name for entry in entries[-1:] for pool in entry.pools), *table.pools}
    missing = (known & _held(snapshot)) - {*removed, *snapshot.pools}
    if missing:
        yield error(
            "kept_pool_missing",
            f"Nodes belong to pool {listed(missing)}, which is to stay, but its DaemonSet does not exist, or has lost labels by "
            "which this collection knows what it has created. Run site with the list of the pools that stay, then run again. Or name "
            "the pool in virtpools_remove, too.",
        )


def _held(snapshot: Snapshot) -> set[str | None]:
    """The owners and former owners of nodes."""
    return {owner for node in snapshot.nodes.values() for owner in (node.owner, node.former_owner)}


def _left_in_transit(snapshot: Snapshot, removed: Removed) -> t.Iterator[Finding]:
    """A warning about nodes in transit from a pool that stays: where they were to go, the cluster does not record."""
    kept = snapshot.pools.keys() - leaving(removed, snapshot)
    left = [
        node.name for node in snapshot.nodes.values() if node.owner == names.IN_TRANSIT and node.former_owner in kept
    ]
    if left:
        yield warning(
            "in_transit",
            f"{counted(len(left), 'node has', 'nodes have')} no virt-handler, because a run stopped in the middle of a handover from a "
            f"pool that stays: {listed(left)}. This run does not finish it; run site with the list of the pools that stay.",
        )


# VMs ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """What VMs lose by a run: any run, whether it removes pools, brings a list or goes back to one."""

    nodes: t.Mapping[str, str]
    """The nodes that leave a pool, with that pool."""
    gone: t.Collection[str]
    """The pools that go, with all that they have."""
    images: t.Mapping[str, str]
    """The launcher images of these, with their pool."""
    removing: bool
    """Whether the run is there to remove pools, so that a VM that loses its pool gets KubeVirt's own image."""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.gone)

    def pool_of(self, pod: LauncherPod) -> str | None:
        """The pool that is taken from under this VM; None for a VM that loses nothing."""
        if pod.ended or pod.terminating:
            return None
        if pod.pool_env in self.gone and not pod.has_stock_image:
            return pod.pool_env
        if pod.node in self.nodes:
            return self.nodes[pod.node]
        if pod.pool_env:
            return None  # another pool may have the same image
        return next((self.images[image] for image in pod.launcher_images.values() if image in self.images), None)


def loss_of(
    nodes: t.Mapping[str, Node],
    wanted: t.Mapping[str, str],
    gone: t.Collection[str],
    pools: t.Iterable[Pool],
    *,
    removing: bool,
) -> Loss:
    """What VMs lose by a run. A node in transit has left its pool already.

    :param wanted: the owner that every node should have.
    :param gone: the pools that go.
    :param pools: those that the cluster records.
    """
    leaving = {
        name: node.owner
        for name, node in nodes.items()
        if node.owner not in (names.PRIMARY, names.IN_TRANSIT, wanted.get(name, node.owner))
    }
    images = {pool.virt_launcher_image: pool.name for pool in pools if pool.virt_launcher_image and pool.name in gone}
    return Loss(leaving, gone, images, removing)


class LosingVms:
    """The VMs from under which a run takes their pool."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._by_pool: dict[str, list[str]] = collections.defaultdict(list)

    def noting(self, pods: t.Iterable[LauncherPod]) -> t.Iterator[LauncherPod]:
        """The same pods, each looked at as it is read: they are read once and not kept."""
        for pod in pods:
            pool = self._loss.pool_of(pod)
            if pool is not None:
                self._by_pool[pool].append(f"{pod.namespace}/{pod.vmi}")
            yield pod

    def findings(self, vms: Vms) -> t.Iterator[Finding]:
        """What happens to them.

        :param vms: what the user wants to happen to them.
        """
        for pool, names_of_vms in sorted(self._by_pool.items()):
            yield self._finding(pool, names_of_vms, vms)

    def _finding(self, pool: str, names_of_vms: t.Sequence[str], vms: Vms) -> Finding:
        where = (
            f"with the launcher image of pool {pool} or on its nodes"
            if pool in self._loss.gone
            else f"on nodes that leave pool {pool}"
        )
        running = f"{counted(len(names_of_vms), 'VM runs', 'VMs run')} {where} ({listed(names_of_vms)})"
        start = "start with KubeVirt's own image" if self._loss.removing else "start by the new list"
        if vms == "refuse":
            return error(
                "vms_of_pool",
                f"{running}; stop these VMs, or set virtpools_remove_vms to leave (they keep running where they are, and {start} "
                "next time), migrate, or wait (until they end).",
            )
        if vms == "migrate":
            return note("vms_migrated", f"{running}: {self._migrated}")
        if vms == "wait":
            return note(
                "vms_awaited",
                f"{running}: they {start} next time, and each node {'goes back' if self._loss.removing else 'leaves'} when its "
                "VMs have ended.",
            )
        return note("vms_left", f"{running}: they keep running where they are, and {start} next time.")

    @property
    def _migrated(self) -> str:
        if self._loss.removing:
            return (
                "those with its image that can be live-migrated are first migrated to other nodes, where they get "
                "KubeVirt's own image; the others keep running where they are."
            )
        return (
            "before a node leaves its pool, those that can be live-migrated are migrated to other nodes; for the others, "
            "virtpools_on_non_migratable applies."
        )


# Without KubeVirt ---------------------------------------------------------------------------------------------------


WITHOUT_KUBEVIRT: t.Final = (
    "The cluster no longer has KubeVirt: no node can be handed back to a primary virt-handler, and the run deletes what "
    "pools left behind."
)
NO_POOL_STAYS: t.Final = (
    "The cluster no longer has KubeVirt, so no pool can stay: set virtpools_remove: all to delete what is left of them."
)
NOTHING_LEFT: t.Final = "The cluster no longer has KubeVirt, and nothing of the pools is left."


def owner_noted(node: KubeObject) -> str | None:
    """The owner that a node's label or, without one, its annotation names; None for a node that has neither."""
    metadata = node["metadata"]
    for field, key in (("labels", names.OWNER_LABEL), ("annotations", names.FORMER_OWNER_ANNOTATION)):
        owner = (metadata.get(field) or {}).get(key)
        if owner is not None:
            return str(owner)
    return None
