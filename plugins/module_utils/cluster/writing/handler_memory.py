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
from ...core.base.objects import Object, metadata_patch
from ...core.observed.migrations import may_be_forgotten
from ...core.observed.snapshot import Snapshot
from ..api import at_once
from ..api.client import Cluster, Conflict, NotFound
from ..api.waiting import Clock, seconds_since_1970
from ..reading import live

_SECONDS = 5.0
"""How long handlers get to write their records, of which the API shows nothing. Even with busy nodes they were there by then."""

_CLEANUP_SECONDS = 30.0
"""How long handlers get to clean up after a migration: they may delete a record right after that."""


def remind(cluster: Cluster, snapshot: Snapshot, nodes: t.Collection[str], clock: Clock) -> int:
    """Remind the handlers of these nodes, and wait until they have had time to act. Returns of how many VMs.

    :raises ClusterError: when a VM cannot be changed.
    """
    handlers = {node: pods for node in nodes if (pods := snapshot.handlers.get(node))}
    since = {node: max(pod.started or 0.0 for pod in pods) for node, pods in handlers.items()}
    forgotten = _forgotten(cluster, since, clock)
    if not forgotten:
        return 0

    changed: list[str] = []
    vms = counted(len(forgotten), "VM", "VMs")

    def change(vmi: Object) -> None:
        clock.beat()
        _change(cluster, vmi)
        changed.append(vmi["metadata"]["name"])

    def progress() -> str:
        return f"{len(changed)} of {vms} were changed for a moment"

    for _done in at_once.results(change, forgotten):
        clock.status.remind(progress)
    clock.status.say(f"Handlers were made to record {vms} again, for VMs may be lost that came by live migration.")
    clock.sleep(_SECONDS)
    return len(forgotten)


def _forgotten(cluster: Cluster, since: t.Mapping[str, float], clock: Clock) -> list[Object]:
    """The VMs that may be forgotten, once the handlers have cleaned up after their migrations."""
    found: list[Object] = []

    def cleaning_up() -> str | None:
        found.clear()
        vms = []
        for vmi in live.vmis_on(cluster, since.keys()):
            metadata = vmi["metadata"]
            if not may_be_forgotten(vmi, since[metadata["labels"][names.NODE_NAME_LABEL]]):
                continue
            found.append({"metadata": {key: metadata.get(key) for key in ("name", "namespace", "annotations")}})
            if names.MIGRATION_TARGET_LABEL in metadata["labels"]:
                vms.append(f"VM {metadata['namespace']}/{metadata['name']}")
        return f"handlers clean up after the migration of {listed(vms)}" if vms else None

    began = clock.now()
    clock.wait(cleaning_up, _CLEANUP_SECONDS)
    if found and clock.now() > began:
        clock.sleep(_SECONDS)  # the record goes after the label
    return found


def _change(cluster: Cluster, vmi: Object) -> None:
    """Change an annotation of a VM, and change it back."""
    name, namespace = vmi["metadata"]["name"], vmi["metadata"]["namespace"]
    ours = {names.REMINDER_ANNOTATION: str(seconds_since_1970())}
    add = metadata_patch(vmi, annotations=ours)
    remove = metadata_patch({"metadata": {"annotations": ours}}, annotations=dict.fromkeys(ours))
    for patch in (add, remove):
        # Conflict: another client has just changed it, which reminds the handler as well.
        with contextlib.suppress(NotFound, Conflict):
            cluster.json_patch(kinds.VIRTUAL_MACHINE_INSTANCE, name, patch, namespace, dry_run=False)
