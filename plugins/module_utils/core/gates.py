# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout looks at before it goes on from one wave to the next: what is wrong with these nodes and their VMs."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass
from datetime import datetime, timezone

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names, preflight, state
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.matching import words
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import Term
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import KubeObject, Node, Snapshot

_SILENT_SECONDS = 180.0
"""Without a heartbeat for so long something is wrong: virt-handler sends one every 60 to 130 seconds, and after 300 KubeVirt
lets no VM onto the node any more."""


@dataclass(frozen=True)
class Trouble:
    """``code`` and ``subject`` tell it from others, before a wave and after it. One that is ``final`` does not go away by
    itself; one that is ``starting`` is a VM on its way, which may only not take too long."""

    code: str
    subject: str
    message: str
    final: bool = False
    starting: bool = False

    @property
    def key(self) -> str:
        return f"{self.code} {self.subject}"


def of_cluster(snapshot: Snapshot, nodes: t.Collection[str], now: float) -> t.Iterator[Trouble]:
    """What is wrong with KubeVirt and with these nodes.

    :param snapshot: with these nodes at least.
    :param now: seconds since 1970. A clock that is wrong finds the same wrong before the wave.
    """
    for finding in preflight.fitness(snapshot):
        if finding.severity == "error":
            yield Trouble(finding.code, snapshot.kubevirt_name, finding.message)
    problems = state.node_problems(snapshot)
    for name in nodes:
        node = snapshot.nodes.get(name)
        if node is None:
            yield Trouble("node_gone", name, f"Node {name} is gone.")
            continue
        code = problems.get(name) or _of_node(node, snapshot, now)
        if code is not None:
            yield Trouble(code, name, f"{_SENTENCES[code].format(name)}{_reason(code, snapshot, name)}.")


_SENTENCES = {
    "two_handlers": "Node {} has two handler pods",
    "no_handler": "Node {} has no handler pod",
    "wrong_handler": "Node {} runs the handler of another owner than its own",
    "handler_not_ready": "The handler on node {} is not Ready",
    "in_transit": "Node {} is in transit, owned by nobody",
    "owner_unknown": "Node {} has an owner that is no pool",
    "node_not_ready": "Node {} is not Ready",
    "no_heartbeat": f"The handler on node {{}} has never reported (annotation {names.HEARTBEAT_ANNOTATION})",
    "heartbeat_old": f"The handler on node {{}} has sent no heartbeat for more than {_SILENT_SECONDS:.0f} seconds",
    "not_schedulable": f"Node {{}} takes no VMs (its label {names.SCHEDULABLE_LABEL} is not true)",
}


def _of_node(node: Node, snapshot: Snapshot, now: float) -> str | None:
    """What is wrong with a node whose handler is as it should be."""
    if not node.ready:
        return "node_not_ready"
    if not snapshot.handlers.get(node.name):
        return None  # none belongs there
    if node.heartbeat is None:
        return "no_heartbeat"
    if now - _when(node.heartbeat, now) > _SILENT_SECONDS:
        return "heartbeat_old"
    return None if node.schedulable else "not_schedulable"


def _when(heartbeat: str, unknown: float) -> float:
    """The time in the annotation, a JSON string with one as RFC 3339 (KubeVirt)."""
    try:
        found = datetime.strptime(json.loads(heartbeat), "%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, TypeError):
        return unknown
    return found.replace(tzinfo=timezone.utc).timestamp()


def _reason(code: str, snapshot: Snapshot, node: str) -> str:
    problem = snapshot.handlers[node][0].problem if code == "handler_not_ready" else None
    return f" ({problem})" if problem else ""


def of_vmi(vmi: KubeObject) -> Trouble | None:
    """What is wrong with a VM instance on a node of the wave."""
    status = vmi.get("status") or {}
    title, subject = _named(vmi)
    what = f"{title} on node {status.get('nodeName')}"
    if status.get("phase") == "Failed":
        return Trouble("vmi_failed", subject, f"{what} has failed.", final=True)
    if status.get("phase") == "Scheduled":  # its pod runs
        return Trouble("vmi_starting", subject, f"{what} stays Scheduled.", starting=True)
    return None


def orphan(vmi: KubeObject) -> Trouble | None:
    """A VM instance that runs on a node without a Ready handler, where nobody manages it."""
    status = vmi.get("status") or {}
    if status.get("phase") != "Running":
        return None
    title, subject = _named(vmi)
    return Trouble("orphan", subject, f"{title} runs on node {status.get('nodeName')}, which has no Ready handler.")


def _named(vmi: KubeObject) -> tuple[str, str]:
    """How messages name a VM instance, and what tells it from others."""
    metadata = vmi["metadata"]
    where = f"{metadata['namespace']}/{metadata['name']}"
    return f"VM instance {where}", f"{where} {metadata.get('uid', '')}"


def without_handler(snapshot: Snapshot) -> frozenset[str]:
    """The nodes on which no handler is Ready, be one to run there or not."""
    return frozenset(name for name in snapshot.nodes if not any(pod.ready for pod in snapshot.handlers.get(name, ())))


def of_pending(
    pods: t.Iterable[LauncherPod], wave: t.Collection[str], nodes: t.Callable[[], t.Collection[Node]]
) -> t.Iterator[Trouble]:
    """What is wrong with launcher pods that do not run yet: those on nodes of the wave, and those that find no node
    only because of the requirement that the launcher policy adds.

    :param nodes: all nodes; asked only when there are such pods.
    """
    for pod in pods:
        if pod.terminating or pod.migration is not None:
            continue  # the VM of a migration runs
        vmi, subject = f"VM instance {pod.namespace}/{pod.vmi}", f"{pod.namespace}/{pod.vmi} {pod.vmi_uid}"
        if pod.node in wave:
            yield Trouble("vmi_starting", subject, f"{vmi} on node {pod.node} stays Scheduling.", starting=True)
        elif pod.unschedulable is not None and (asked := pod.placement.owner) is not None:
            # As far as labels and taints say: who fits the VM itself, and not the pod.
            own, mapped = pod.placement.without_owner(), pod.placement
            open_nodes = (node for node in nodes() if node.ready and node.schedulable)
            fitting = [node.name for node in open_nodes if own.unfit(node) is None and mapped.unfit(node) is not None]
            if fitting:
                yield Trouble(
                    "vmi_kept_off",
                    subject,
                    f"{vmi} finds no node because it must go to one with {words(Term((asked,)))}, while {listed(fitting)} "
                    f"would take it; the scheduler says: {pod.unschedulable.rstrip('.')}.",
                )


class Gate:
    """Passes when nothing is wrong that was not before.

    VMs that begin to start while the gate looks are not waited for: there may always be some.
    """

    def __init__(self, baseline: t.Iterable[str]) -> None:
        self._known = set(baseline)
        self._starting: set[str] | None = None

    def new(self, found: t.Iterable[Trouble]) -> list[Trouble]:
        """Those that are in the way; called again until there are none."""
        fresh = [trouble for trouble in found if trouble.key not in self._known]
        if self._starting is None:
            self._starting = {trouble.key for trouble in fresh if trouble.starting}
        return [trouble for trouble in fresh if not trouble.starting or trouble.key in self._starting]
