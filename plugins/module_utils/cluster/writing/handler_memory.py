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
from ..api import at_once
from ..api.client import Cluster, Conflict, NotFound
from ..api.waiting import Clock, seconds_since_1970
from ..reading import live
from . import settle

_SECONDS = 5.0
"""How long handlers get to write their records, of which the API shows nothing. Even with busy nodes they were there by then. They
get as long to delete the former record, which they do right after they have removed the label of the target: a reminder before
that is in vain."""

LATE_SECONDS = 2 * _SECONDS
"""How long a handler gets for the record of a VM that has just come."""

_CLEANUP_SECONDS = 30.0
"""How long handlers get to clean up after a migration: they may delete a record right after that."""


_Key: t.TypeAlias = "tuple[str, str, str | None]"
Reminded: t.TypeAlias = "frozenset[_Key]"
"""The keys of the arrivals of which handlers were reminded."""


def before_restarts(cluster: Cluster, namespace: str, timeout: float, clock: Clock, because: str) -> None:
    """Wait until no live migration runs, and remind all handlers, so that their restart loses no VM.

    :param because: why no migration may run, as a clause.
    :raises ClusterError: when some still run after ``timeout`` seconds, or when a VM cannot be changed.
    """
    settle.require_no_migrations(cluster, timeout, clock, because)
    remind(cluster, live.handlers(cluster, namespace), clock)


def remind(cluster: Cluster, handlers: t.Iterable[HandlerPod], clock: Clock) -> Reminded:
    """Remind these handlers, and wait until they have had time to act.

    :param handlers: all of their nodes. After hours of migrations read them again: nodes may have joined.
    :raises ClusterError: when a VM cannot be changed.
    """
    by_node: dict[str, list[HandlerPod]] = {}
    for pod in handlers:
        by_node.setdefault(pod.node, []).append(pod)
    since = {node: started(pods) for node, pods in by_node.items() if node}
    forgotten = _forgotten(cluster, since, clock)
    if not forgotten:
        return frozenset()

    changed: list[Arrival] = []
    vms = counted(len(forgotten), "VM", "VMs")

    def change(arrival: Arrival) -> None:
        clock.beat()
        _remind_of(cluster, arrival)
        changed.append(arrival)

    def progress() -> str:
        return f"{len(changed)} of {vms} were changed for a moment"

    for _done in at_once.results(change, forgotten):
        clock.status.remind(progress)
    clock.status.say(f"Handlers were made to record {vms} again, for VMs may be lost that came by live migration.")
    clock.sleep(_SECONDS)
    return frozenset(arrival.key for arrival in changed)


class LateArrivals:
    """The VMs that came to a node after the handlers of its batch were reminded."""

    def __init__(self, cluster: Cluster, clock: Clock, reminded: Reminded) -> None:
        self._cluster = cluster
        self._clock = clock
        self._reminded = set(reminded)
        self._seen_at: dict[_Key, float] = {}
        self._recorded_at = clock.now()

    def recorded(self, arrivals: t.Iterable[Arrival]) -> bool:
        """Whether the node's handler has had time to record all of these. Call it again until then: it reminds the handler of each.

        :raises ClusterError: when a VM cannot be changed.
        """
        now = self._clock.now()
        late = [arrival for arrival in arrivals if arrival.key not in self._reminded]
        for arrival in late:
            if now - self._seen_at.setdefault(arrival.key, now) >= _SECONDS:
                _remind_of(self._cluster, arrival)
                self._reminded.add(arrival.key)
                self._recorded_at = now + _SECONDS
        return now >= self._recorded_at and all(arrival.key in self._reminded for arrival in late)


def started(handlers: t.Iterable[HandlerPod]) -> float:
    """When the newest of a node's handlers started, in seconds since 1970; 0 when that is not known."""
    return max((pod.started or 0.0 for pod in handlers), default=0.0)


def _remind_of(cluster: Cluster, arrival: Arrival) -> None:
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
    waited, now = clock.now() > began, seconds_since_1970()
    # The record goes after the label of the target, which a VM that came just now may have lost just now.
    if any(waited or arrival.came_after(now) for arrival in found):
        clock.sleep(_SECONDS)
    return found
