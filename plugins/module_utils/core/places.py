# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the VM of a launcher pod could go when it starts again, or is migrated."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod, Placement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node


class Places:
    """Nodes, for launcher pods under a mapping table. Labels and taints count; free room the scheduler alone knows."""

    def __init__(self, table: Table, nodes: t.Iterable[Node]) -> None:
        self._table = table
        self._nodes = tuple(nodes)
        self._by_hostname: dict[str | None, list[Node]] = {}
        for node in self._nodes:
            self._by_hostname.setdefault(node.labels.get(names.HOSTNAME_LABEL), []).append(node)

    def of_vm(self, pod: LauncherPod) -> t.Iterator[Node]:
        """The nodes that fit what the VM itself asks for, whatever the mapping says."""
        return self._fitting(pod.placement.without_owner())

    def mapped(self, pod: LauncherPod, winner: Pool | None) -> t.Iterator[Node]:
        """Those that a new pod of the VM can go to, which this pool, or none, wins."""
        placement = pod.placement.without_owner()
        if winner is not None:
            placement = replace(placement, tolerations=(*placement.tolerations, *winner.tolerations))
        requirement = self._table.requirement(winner)
        return (node for node in self._fitting(placement) if requirement.matches(node.labels))

    def _fitting(self, placement: Placement) -> t.Iterator[Node]:
        # Thousands of VMs, each with the name of its node in its nodeSelector, would take minutes otherwise.
        pinned = placement.node_selector.get(names.HOSTNAME_LABEL)
        nodes = self._nodes if pinned is None else self._by_hostname.get(pinned, ())
        return (node for node in nodes if placement.unfit(node) is None)
