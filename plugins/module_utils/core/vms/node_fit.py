# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The nodes that launcher pods can go to under a mapping table, and the VMs that would lose their nodes on restart."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, field, replace

from ..base import epochs, names
from ..base.findings import Finding, counted, in_order, note, warning
from ..base.frozen import FrozenMap
from ..observed.nodes import Node
from ..pools.model import Pool
from . import matching
from .launcher_pods import LauncherPod, PodPlacement
from .mapping import Table

_MOST_EXAMPLES = 5


_PASSING_TAINTS = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists"}
    for name in ("unschedulable", "not-ready", "unreachable")
)
"""Tolerations of what a node gets when it is cordoned or down."""


@dataclass(frozen=True)
class Room:
    """Where a new launcher pod of a VM can go under a mapping table."""

    ready: tuple[str, ...]
    """The first two Ready nodes that fit."""
    later: bool
    """Whether a node fits, also one that is down or cordoned, whose handler takes no VMs now, or that has no owner yet."""
    elsewhere: tuple[str, ...] = ()
    """The owners of the nodes that fit what the VM itself asks for, when the mapping allows none of them."""
    allowed: bool = True
    """Whether the mapping allows any node, whatever the VM asks for."""

    @property
    def remedy(self) -> str:
        """What must happen before the VM finds a node, as the remedy of a verdict; empty when it finds one."""
        if self.ready:
            return ""
        if self.later:
            return "repair node"
        return "change placement" if self.elsewhere and self.allowed else "add node"


class NodeFit:
    """Finds the nodes that fit a launcher pod under a mapping table.

    Only labels and taints count: which nodes have room, the scheduler alone knows.
    """

    def __init__(self, table: Table, nodes: t.Iterable[Node]) -> None:
        self._table = table
        self._nodes = tuple(nodes)
        self._rooms: dict[tuple[str, str | None], Room] = {}
        self._by_hostname: dict[str | None, list[Node]] = {}
        for node in self._nodes:
            self._by_hostname.setdefault(node.labels.get(names.HOSTNAME_LABEL), []).append(node)

    def mapped(self, placement: PodPlacement, winner: Pool | None) -> t.Iterator[Node]:
        """The nodes that a new pod of a VM with this placement can go to when ``winner`` (None: no pool) gets the VM."""
        placement = placement.without_owner()
        if winner is not None:
            placement = replace(placement, tolerations=(*placement.tolerations, *winner.tolerations))
        requirement = self._table.requirement(winner)
        return (node for node in self._fitting(placement) if requirement.matches(node.labels))

    def room(self, placement: PodPlacement, winner: Pool | None) -> Room:
        """Where such a pod can go. Most VMs ask for the same."""
        key = placement.key, winner.name if winner is not None else None
        if key not in self._rooms:
            self._rooms[key] = self._find_room(placement, winner)
        return self._rooms[key]

    def _find_room(self, placement: PodPlacement, winner: Pool | None) -> Room:
        ready = tuple(itertools.islice((node.name for node in self.mapped(placement, winner) if node.ready), 2))
        if ready:
            return Room(ready, later=True)
        own = _whenever(placement.without_owner())
        requirement = self._table.requirement(winner)
        tolerant = replace(own, tolerations=(*own.tolerations, *(winner.tolerations if winner is not None else ())))
        later = any(
            requirement.matches(node.labels) or node.owner == names.IN_TRANSIT for node in self._fitting(tolerant)
        )
        elsewhere = () if later else sorted({node.owner for node in self._fitting(own)})
        allowed = any(requirement.matches(node.labels) for node in self._nodes)
        return Room((), later, tuple(elsewhere), allowed)

    def _fitting(self, placement: PodPlacement) -> t.Iterator[Node]:
        # Thousands of VMs, each with the name of its node in its nodeSelector, would take minutes otherwise.
        pinned = placement.node_selector.get(names.HOSTNAME_LABEL)
        nodes = self._nodes if pinned is None else self._by_hostname.get(pinned, ())
        return (node for node in nodes if placement.unfit(node) is None)


def _whenever(placement: PodPlacement) -> PodPlacement:
    """The placement without what keeps a pod off a node only for some time."""
    selector = {key: value for key, value in placement.node_selector.items() if key != names.SCHEDULABLE_LABEL}
    return replace(placement, node_selector=FrozenMap(selector), tolerations=(*placement.tolerations, *_PASSING_TAINTS))


# Restart findings ---------------------------------------------------------------------------------------------------


class KubeletRestarts:
    """Finds the VMs that a run leaves on nodes whose kubelets, when they restart, end them.

    That are VMs whose launcher pods ask for an owner and have no stay terms, which earlier policies did not give.
    """

    def __init__(self, before: t.Mapping[str, Node], after: t.Mapping[str, Node]) -> None:
        """``before`` and ``after``: all nodes by name, now and with the owners that the run gives them."""
        self._after = {}
        for name, node in before.items():
            then = after.get(name, node)
            if then.owner != node.owner:
                # The run writes the label for VMs of no pool only where one needs it.
                until = {epochs.until_label(owner): str(_NEVER) for owner in (node.owner, names.PRIMARY)}
                self._after[name] = replace(then, labels={**then.labels, **until})
        self._before = before
        self._vms = _VmNames()

    def passing(self, pods: t.Iterable[LauncherPod]) -> t.Iterator[LauncherPod]:
        """The same pods, each looked at on its way."""
        for pod in pods:
            node = self._after.get(pod.node)
            if node is not None and not pod.ended and self._ends(pod, node):
                self._vms.add(f"{pod.namespace}/{pod.vmi}")
            yield pod

    def _ends(self, pod: LauncherPod, node: Node) -> bool:
        return pod.placement.misfit(node) is not None and pod.placement.misfit(self._before[node.name]) is None

    def findings(self) -> t.Iterator[Finding]:
        if self._vms.count:
            yield warning(
                "ends_on_kubelet_restart",
                f"{counted(self._vms.count, 'VM runs', 'VMs run')} on nodes that get another owner, with launcher pods that ask "
                f"for the present one ({self._vms}): after the run, a restart of the kubelet of their node ends them. Migrate "
                "or restart them first, or run workload_update right afterwards.",
            )


_NEVER = 2**62
"""An epoch that no pod reaches."""


def restart_findings(table: Table, nodes: t.Mapping[str, Node], pods: t.Iterable[LauncherPod]) -> tuple[Finding, ...]:
    """A finding for each pool on whose nodes VMs run, or need to run, that do not belong to the pool.

    :param nodes: all nodes, with the owners and labels that they will have.
    :param pods: the launcher pods of the cluster, read once and not kept.
    """
    node_fit = NodeFit(table, nodes.values())
    rescheduled_vms: dict[str, _VmNames] = {}
    unschedulable_vms: dict[tuple[str, tuple[str, ...]], _VmNames] = {}
    for pod in pods:
        if pod.ended or pod.terminating or pod.vmi_uid is None:
            continue
        winner = matching.winner(table, pod.attributes)
        node = nodes.get(pod.node)
        if node is not None and table.requirement(winner).matches(node.labels):
            continue
        name = f"{pod.namespace}/{pod.vmi}"
        room = node_fit.room(pod.placement, winner)
        if room.elsewhere:
            pool = winner.name if winner is not None else ""
            unschedulable_vms.setdefault((pool, room.elsewhere if room.allowed else ()), _VmNames()).add(name)
        elif winner is None and node is not None:
            rescheduled_vms.setdefault(node.owner, _VmNames()).add(name)
    return in_order((*_rescheduled_findings(rescheduled_vms), *_unschedulable_findings(unschedulable_vms)))


def _rescheduled_findings(vms_by_pool: t.Mapping[str, _VmNames]) -> t.Iterator[Finding]:
    for pool, vms in vms_by_pool.items():
        yield note(
            "rescheduled_on_restart",
            f"{counted(vms.count, 'VM runs', 'VMs run')} on nodes of pool {pool} without belonging to it ({vms}); "
            f"after a restart, such VMs run on other nodes.",
        )


def _unschedulable_findings(groups: t.Mapping[tuple[str, tuple[str, ...]], _VmNames]) -> t.Iterator[Finding]:
    for (pool, owners), vms in groups.items():
        if pool and not owners:
            yield warning(
                "unschedulable_on_restart",
                f"{counted(vms.count, 'VM belongs', 'VMs belong')} to pool {pool}, which has no node after this run ({vms}): once "
                "the pool takes VMs, such a VM cannot start again after it was stopped. Give the pool a node, or change its selector.",
            )
        elif pool:
            yield warning(
                "unschedulable_on_restart",
                f"{counted(vms.count, f'VM belongs to pool {pool}, but its', f'VMs belong to pool {pool}, but their')} "
                "own nodeSelector, node affinity and tolerations allow "
                f"none of its nodes, only those of {', '.join(owners)} ({vms}): once stopped, such a VM cannot start "
                f"again. Change that in the VMs, or the pool's selector.",
            )
        else:
            yield warning(
                "unschedulable_on_restart",
                f"{counted(vms.count, 'VM belongs to no pool, but its', 'VMs belong to no pool, but their')} "
                "own nodeSelector, node affinity and tolerations allow "
                f"only nodes of {', '.join(owners)} ({vms}): once stopped, such a VM cannot start again. Change that in the VMs, "
                "let the pool's selector match them, or set unmatched: allow for the pool.",
            )


@dataclass
class _VmNames:
    """The number of VMs and the first few names: thousands would be unreadable."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(name)

    def __str__(self) -> str:
        more = self.count - len(self.examples)
        return ", ".join(self.examples) + (f" and {more} more" if more else "")
