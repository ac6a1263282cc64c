# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs leave the nodes of a batch before their handlers go: a migration needs the handlers of both ends.

The nodes are not cordoned: a cordon would outlive a run that is interrupted, and be told from nobody else's. So a VM can
come to another node of the batch, and is then migrated again. A plan has one node in a batch where VMs are migrated.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import updates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster, ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.drain import Drain
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.evacuation import Evacuation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.updates import Relocation

_AT_ONCE = 2
"""Migrations at once for each node, as many as KubeVirt lets leave one by default; more would only queue there."""

_MOST_MIGRATIONS = 3
"""So often a VM is migrated for one batch."""


def carry_out(cluster: Cluster, drain: Drain, handled: t.Mapping[str, bool], timeout: float, clock: Clock) -> None:
    """Have VMs leave these nodes, as ``drain`` says; for every node, ``handled`` says whether it has a Ready handler.

    :param timeout: in seconds, for one migration, and for VMs to end.
    :raises ClusterError: when VMs stay that should not.
    """
    if drain.vms == "leave" or not handled:
        return
    evacuation = Evacuation(handled)
    migrated: collections.Counter[str] = collections.Counter()
    give_up = clock.now() + timeout
    for _pause in clock.pauses():
        movable: list[Relocation] = []
        staying: list[Relocation] = []
        for found in updates.find(cluster, evacuation, nodes=handled):
            (movable if drain.vms == "migrate" and found.how == "migrate" else staying).append(found)
        if drain.vms == "migrate":
            staying = _unmovable(drain, staying)
        late = clock.now() >= give_up
        if staying:
            if late:
                raise _refusal(
                    f"VMs on its nodes did not end within {timeout:.0f} s: {_described(staying)}; stop them, or run again "
                    "when they have ended."
                )
        elif not movable:
            return
        elif _migrate(cluster, evacuation, movable, migrated, timeout, clock):
            give_up = clock.now() + timeout
        elif late:
            raise _refusal(
                f"launcher pods of VMs that have left its nodes did not end within {timeout:.0f} s: {_described(movable)}; "
                "see why, then run again."
            )


def _unmovable(drain: Drain, found: list[Relocation]) -> list[Relocation]:
    """Those that are waited for, of VMs that cannot be migrated."""
    if found and drain.unmovable == "fail":
        raise _refusal(
            f"VMs on its nodes cannot be migrated: {_described(found)}; stop them, or choose another virtpools_unmovable."
        )
    return found if drain.unmovable == "wait" else []


def _migrate(
    cluster: Cluster,
    evacuation: Evacuation,
    movable: t.Sequence[Relocation],
    migrated: collections.Counter[str],
    timeout: float,
    clock: Clock,
) -> bool:
    """Migrate these VMs; False when none had to be any more, since only their old pods are still there."""
    restless = [each for each in movable if migrated[each.uid] >= _MOST_MIGRATIONS]
    if restless:
        raise _refusal(
            f"{_MOST_MIGRATIONS} migrations each have taken VMs from one of its nodes to another: {_described(restless)}; make "
            "room elsewhere, or name fewer nodes at once."
        )
    limits = updates.Limits(batch=_AT_ONCE * len(evacuation.handled), timeout=timeout)
    outcomes = list(updates.carry_out(cluster, evacuation, movable, limits, clock))
    moved = [outcome.update.uid for outcome in outcomes if outcome.seconds is not None]
    migrated.update(moved)
    failed = [str(outcome) for outcome in outcomes if outcome.result == "failed"]
    if failed:
        raise _refusal(f"VMs could not be migrated from its nodes: {listed(failed)}; see why, then run again.")
    return bool(moved)


def _described(vms: t.Iterable[Relocation]) -> str:
    return listed(f"{each} on {each.node}" + (f", since {each.reason}" if each.reason else "") for each in vms)


def _refusal(why: str) -> ClusterError:
    return ClusterError(f"No node of this batch was touched, because {why}")
