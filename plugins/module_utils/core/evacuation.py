# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The need of VMs to leave nodes whose handler is about to go."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.updates import Relocation


@dataclass(frozen=True)
class Evacuation:
    """A ``Need``. ``handled``: the nodes, and whether each has a Ready virt-handler."""

    handled: t.Mapping[str, bool]

    def update(self, pod: LauncherPod) -> Relocation | None:
        if pod.node not in self.handled or pod.ended or pod.terminating or pod.vmi_uid is None:
            return None
        able = self.handled[pod.node]
        return Relocation(
            namespace=pod.namespace,
            vmi=pod.vmi,
            uid=pod.vmi_uid,
            node=pod.node,
            how="migrate" if able else "restart",
            reason="" if able else f"virt-handler is not Ready on node {pod.node}",
        )

    def problem(self, moved: Relocation, pod: LauncherPod, node: Node | None) -> str | None:
        """Nothing for one that came to another of these nodes: it is found there, and migrated again."""
        if node is None or pod.node == moved.node:
            return f"it is on node {pod.node}, which {'is gone' if node is None else 'it was to leave'}"
        return None
