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
from ...core.base.findings import counted
from ...core.base.objects import Object, metadata_patch
from ...core.observed.migrations import may_be_forgotten
from ...core.observed.snapshot import Snapshot
from ..api import at_once
from ..api.client import Cluster, Conflict, NotFound
from ..api.waiting import Clock, seconds_since_1970
from ..reading import live

_SECONDS = 5.0
"""How long handlers get to write their records, of which the API shows nothing. On a busy machine it took less than one second."""


def remind(cluster: Cluster, snapshot: Snapshot, nodes: t.Collection[str], clock: Clock) -> int:
    """Remind the handlers of these nodes, and wait until they have had time to act. Returns of how many VMs.

    :raises ClusterError: when a VM cannot be changed.
    """
    handlers = {node: snapshot.handlers.get(node, ()) for node in nodes}
    since = {node: max((pod.started or 0.0 for pod in pods), default=0.0) for node, pods in handlers.items() if pods}
    forgotten = [
        {
            "metadata": {key: vmi["metadata"].get(key) for key in ("name", "namespace", "annotations")}
        }  # there may be 100,000
        for vmi in live.vmis_on(cluster, since.keys())
        if may_be_forgotten(vmi, since[vmi["metadata"]["labels"][names.NODE_NAME_LABEL]])
    ]

    def change(vmi: Object) -> None:
        clock.beat()
        _change(cluster, vmi)

    at_once.for_each(change, forgotten)
    if forgotten:
        vms = counted(len(forgotten), "VM", "VMs")
        clock.status.say(f"Handlers were made to record {vms} again, for VMs may be lost that came by live migration.")
        clock.sleep(_SECONDS)
    return len(forgotten)


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
