# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout looks at before it goes on from one wave to the next: what is wrong with these nodes and their VMs."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names, preflight, state
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import KubeObject, Node, Snapshot


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


def of_cluster(snapshot: Snapshot, nodes: t.Collection[str]) -> t.Iterator[Trouble]:
    """What is wrong with KubeVirt and with these nodes.

    :param snapshot: with these nodes at least.
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
        code = problems.get(name) or _of_node(node, snapshot)
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
    "not_schedulable": f"Node {{}} takes no VMs (its label {names.SCHEDULABLE_LABEL} is not true)",
}


def _of_node(node: Node, snapshot: Snapshot) -> str | None:
    """What is wrong with a node whose handler is as it should be."""
    if not node.ready:
        return "node_not_ready"
    if not snapshot.handlers.get(node.name):
        return None  # none belongs there
    if node.heartbeat is None:
        return "no_heartbeat"
    return None if node.schedulable else "not_schedulable"


def _reason(code: str, snapshot: Snapshot, node: str) -> str:
    problem = snapshot.handlers[node][0].problem if code == "handler_not_ready" else None
    return f" ({problem})" if problem else ""


_STARTING = ("Scheduling", "Scheduled")


def of_vmi(vmi: KubeObject, nodes: t.Collection[str]) -> Trouble | None:
    """What is wrong with a VM instance that has its pod on one of these nodes."""
    status, metadata = vmi.get("status") or {}, vmi["metadata"]
    phase = status.get("phase")
    if phase != "Failed" and phase not in _STARTING:
        return None
    # Its own field names the node only once the pod runs.
    where = [status.get("nodeName"), *(status.get("activePods") or {}).values()]
    node = next((name for name in where if name in nodes), None)
    if node is None:
        return None
    what = f"VM instance {metadata['namespace']}/{metadata['name']} on node {node}"
    subject = f"{metadata['namespace']}/{metadata['name']} {metadata.get('uid', '')}"
    if phase == "Failed":
        return Trouble("vmi_failed", subject, f"{what} has failed.", final=True)
    return Trouble("vmi_starting", subject, f"{what} stays {phase}.", starting=True)


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
