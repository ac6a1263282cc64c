# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Drains the nodes of a batch before their handlers go: a live migration needs the handlers of both its nodes.

We do not cordon the nodes: a cordon would outlive an interrupted run, and look like any other cordon. So KubeVirt may
migrate a VM to another node of the batch, from where we migrate it again. With such plans, a batch has one node.
"""

from __future__ import annotations

import collections
import typing as t

from ...core.base.findings import listed
from ...core.planning.options import Drain
from ...core.planning.relocation import Evacuation, Relocation
from ..api.client import Cluster, ClusterError
from ..api.waiting import Clock
from . import migrations

_AT_ONCE = 2
"""Migrations per node at once: KubeVirt's default limit of outgoing migrations, beyond which they only queue."""

_MOST_MIGRATIONS = 3
"""Maximum migrations of one VM per batch."""


def carry_out(cluster: Cluster, drain: Drain, evacuation: Evacuation, timeout: float, clock: Clock) -> None:
    """Make VMs leave the nodes of ``evacuation`` as ``drain`` says.

    :param timeout: seconds for each migration, and for VMs to end.
    :raises ClusterError: when VMs stay that should leave.
    """
    if drain.vms == "leave" or not evacuation.ready:
        return
    migrated: collections.Counter[str] = collections.Counter()
    give_up = clock.now() + timeout
    for _pause in clock.pauses():
        movable: list[Relocation] = []
        staying: list[Relocation] = []
        for vm in migrations.find(cluster, evacuation, nodes=evacuation.ready):
            (movable if drain.vms == "migrate" and vm.how == "migrate" else staying).append(vm)
        if drain.vms == "migrate":
            staying = _awaited(drain, staying)
        late = clock.now() >= give_up
        if staying or movable:
            clock.remind(give_up, timeout, f"VMs are to leave the nodes: {_described([*staying, *movable])}")
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


def _awaited(drain: Drain, non_migratable: list[Relocation]) -> list[Relocation]:
    """The VMs among those that cannot be migrated that the batch waits for."""
    if non_migratable and drain.on_non_migratable == "fail":
        raise _refusal(
            f"VMs on its nodes cannot be migrated: {_described(non_migratable)}; stop them, or choose another "
            "virtpools_on_non_migratable."
        )
    return non_migratable if drain.on_non_migratable == "wait" else []


def _migrate(
    cluster: Cluster,
    evacuation: Evacuation,
    movable: t.Sequence[Relocation],
    migrated: collections.Counter[str],
    timeout: float,
    clock: Clock,
) -> bool:
    """Migrate these VMs. Returns False when no VM had to be migrated any more, and only old pods are left."""
    restless = [each for each in movable if migrated[each.uid] >= _MOST_MIGRATIONS]
    if restless:
        raise _refusal(
            f"{_MOST_MIGRATIONS} migrations each have taken VMs from one of its nodes to another: {_described(restless)}; make "
            "room elsewhere, or name fewer nodes at once."
        )
    limits = migrations.Limits(batch=_AT_ONCE * len(evacuation.ready), timeout=timeout)
    outcomes = list(migrations.carry_out(cluster, evacuation, movable, limits, clock))
    moved = [outcome.relocation.uid for outcome in outcomes if outcome.seconds is not None]
    migrated.update(moved)
    failed = [str(outcome) for outcome in outcomes if outcome.result == "failed"]
    if failed:
        raise _refusal(f"VMs could not be migrated from its nodes: {listed(failed)}; see why, then run again.")
    return bool(moved)


def _described(vms: t.Iterable[Relocation]) -> str:
    return listed(f"{each} on {each.node}" + (f", since {each.reason}" if each.reason else "") for each in vms)


def _refusal(why: str) -> ClusterError:
    return ClusterError(f"No node of this batch was touched, because {why}")
