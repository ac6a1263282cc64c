# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Reminds handlers of VMs that they may have forgotten, before they end.

A handler that has received a VM by live migration may delete its record of it (``may_be_forgotten``), and goes on as if nothing had
happened. The next handler on that node does not find the VM and marks it Failed, and KubeVirt deletes its pod, with a guest that
worked. A handler that has to look at the VM again writes the record again, so we change the VM, and change it back.
"""

from __future__ import annotations

import contextlib
import typing as t

from ...core.base import kinds, names
from ...core.base.findings import counted, listed
from ...core.base.objects import metadata_patch
from ...core.observed.handlers import HandlerPod
from ...core.observed.migrations import Arrival, is_taking_over
from ...core.observed.snapshot import Snapshot
from ..api import at_once
from ..api.client import Cluster, Conflict, NotFound
from ..api.waiting import Clock, seconds_since_1970
from ..reading import live

SECONDS = 5.0
"""How long handlers get to write their records, of which the API shows nothing. Even with busy nodes they were there by then."""

_CLEANUP_SECONDS = 30.0
"""How long handlers get to clean up after a migration: they may delete a record right after that."""


Reminded: t.TypeAlias = "frozenset[tuple[str, str, str | None]]"
"""The keys of the arrivals of which handlers were reminded."""


def remind(cluster: Cluster, snapshot: Snapshot, nodes: t.Collection[str], clock: Clock) -> Reminded:
    """Remind the handlers of these nodes, and wait until they have had time to act.

    :raises ClusterError: when a VM cannot be changed.
    """
    handlers = {node: pods for node in nodes if (pods := snapshot.handlers.get(node))}
    since = {node: started(pods) for node, pods in handlers.items()}
    forgotten = _forgotten(cluster, since, clock)
    if not forgotten:
        return frozenset()

    changed: list[Arrival] = []
    vms = counted(len(forgotten), "VM", "VMs")

    def change(arrival: Arrival) -> None:
        clock.beat()
        remind_of(cluster, arrival)
        changed.append(arrival)

    def progress() -> str:
        return f"{len(changed)} of {vms} were changed for a moment"

    for _done in at_once.results(change, forgotten):
        clock.status.remind(progress)
    clock.status.say(f"Handlers were made to record {vms} again, for VMs may be lost that came by live migration.")
    clock.sleep(SECONDS)
    return frozenset(arrival.key for arrival in changed)


def started(handlers: t.Iterable[HandlerPod]) -> float:
    """When the newest of a node's handlers started, in seconds since 1970; 0 when that is not known."""
    return max((pod.started or 0.0 for pod in handlers), default=0.0)


def remind_of(cluster: Cluster, arrival: Arrival) -> None:
    """Make a handler look at a VM again: change an annotation of the VM, and change it back.

    :raises ClusterError: when it cannot be changed.
    """
    vmi = {"metadata": {"annotations": arrival.annotations}}
    ours = {names.REMINDER_ANNOTATION: str(seconds_since_1970())}
    add = metadata_patch(vmi, annotations=ours)
    remove = metadata_patch({"metadata": {"annotations": ours}}, annotations=dict.fromkeys(ours))
    for patch in (add, remove):
        # Conflict: another client has just changed it, which reminds the handler as well.
        with contextlib.suppress(NotFound, Conflict):
            cluster.json_patch(kinds.VIRTUAL_MACHINE_INSTANCE, arrival.name, patch, arrival.namespace, dry_run=False)


def _forgotten(cluster: Cluster, since: t.Mapping[str, float], clock: Clock) -> list[Arrival]:
    """The VMs that may be forgotten, once the handlers have cleaned up after their migrations."""
    found: list[Arrival] = []

    def cleaning_up() -> str | None:
        found.clear()
        vms = []
        for vmi in live.vmis_on(cluster, since.keys()):
            arrival = Arrival.of(vmi)
            if arrival is None or not arrival.may_be_forgotten(since[vmi["metadata"]["labels"][names.NODE_NAME_LABEL]]):
                continue
            found.append(arrival)
            if is_taking_over(vmi):
                vms.append(str(arrival))
        return f"handlers clean up after the migration of {listed(vms)}" if vms else None

    began = clock.now()
    clock.wait(cleaning_up, _CLEANUP_SECONDS)
    if found and clock.now() > began:
        clock.sleep(SECONDS)  # the record goes after the label
    return found
