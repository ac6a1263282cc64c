# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VMs that the mapping keeps off the nodes they run on, or the only ones they select: they could not start there again."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import matching, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, in_order, note, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import canonical_json
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.places import Places
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node

_MOST_EXAMPLES = 5


@dataclass
class _Vms:
    """How many there are, and the first few names: of thousands nobody reads more."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(name)

    def __str__(self) -> str:
        more = self.count - len(self.examples)
        return ", ".join(self.examples) + (f" and {more} more" if more else "")


def kept_off(table: Table, nodes: t.Mapping[str, Node], pods: t.Iterable[LauncherPod]) -> tuple[Finding, ...]:
    """A finding for every pool whose nodes some VMs have, or need, without being its VMs.

    :param nodes: all nodes, with the owners that they will have.
    :param pods: the launcher pods of the cluster, read once and not kept.
    """
    labelled = {name: _labelled(node) for name, node in nodes.items()}
    stranded = _Stranded(Places(table, labelled.values()))
    elsewhere: dict[str, _Vms] = {}
    nowhere: dict[tuple[str, tuple[str, ...]], _Vms] = {}
    for pod in pods:
        if pod.ended or pod.terminating or pod.vmi_uid is None:
            continue
        winner = matching.winner(table, pod.asked)
        node = labelled.get(pod.node)
        if node is not None and table.requirement(winner).matches(node.labels):
            continue
        name = f"{pod.namespace}/{pod.vmi}"
        owners = stranded.owners(pod, winner)
        if owners:
            nowhere.setdefault((winner.name if winner is not None else "", owners), _Vms()).add(name)
        elif winner is None and node is not None:
            elsewhere.setdefault(node.owner, _Vms()).add(name)
    return in_order((*_elsewhere(elsewhere), *_nowhere(nowhere)))


def _elsewhere(groups: t.Mapping[str, _Vms]) -> t.Iterator[Finding]:
    for pool, vms in groups.items():
        yield note(
            "kept_off",
            f"{vms.count} VM(s) run on nodes of pool {pool} without belonging to it ({vms}): they go on running, and start "
            "on other nodes next time.",
        )


def _nowhere(groups: t.Mapping[tuple[str, tuple[str, ...]], _Vms]) -> t.Iterator[Finding]:
    for (pool, owners), vms in groups.items():
        if pool:
            yield warning(
                "kept_off_nowhere",
                f"{vms.count} VM(s) belong to pool {pool}, but their own nodeSelector, node affinity and tolerations let "
                f"them onto none of its nodes, only onto those of {', '.join(owners)} ({vms}): once stopped they find no "
                "node. Change that in the VMs, or the pool's selector.",
            )
        else:
            yield warning(
                "kept_off_nowhere",
                f"{vms.count} VM(s) belong to no pool, but their own nodeSelector, node affinity and tolerations let them "
                f"only onto nodes of {', '.join(owners)} ({vms}): once stopped they find no node. Change that in the VMs, "
                "let the pool's selector match them, or set unmatched: allow for the pool.",
            )


def _labelled(node: Node) -> Node:
    """The node with the label of the owner it will have."""
    labels = {key: value for key, value in node.labels.items() if key != names.OWNER_LABEL}
    if node.owner != names.PRIMARY:
        labels[names.OWNER_LABEL] = node.owner
    return replace(node, labels=labels)


class _Stranded:
    """Finds VMs that fit some nodes, none of which the mapping gives them. Answers are kept: most VMs ask for the same."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._known: dict[tuple[str, str | None], tuple[str, ...]] = {}

    def owners(self, pod: LauncherPod, winner: Pool | None) -> tuple[str, ...]:
        """Who owns the nodes that such a VM fits; nobody for any other VM."""
        asked = canonical_json([dict(pod.node_selector), pod.terms, pod.tolerations])
        key = asked, winner.name if winner is not None else None
        if key not in self._known:
            mapped = any(True for _node in self._places.mapped(pod, winner))
            found = () if mapped else sorted({node.owner for node in self._places.of_vm(pod)})
            self._known[key] = tuple(found)
        return self._known[key]
