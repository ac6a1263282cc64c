# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which VMs are outdated, and how each gets what the mapping gives it now: by a live migration, or only by a restart.

A VM is outdated when its launcher pod has other launcher images than a new one would get. KubeVirt's own label and
status say something else: whether the image is KubeVirt's own.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import matching, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_images import LauncherImages
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import KubeObject, Node

How = t.Literal["migrate", "restart"]


@dataclass(frozen=True)
class Update:
    """What one outdated VM needs. ``images`` are the wrong ones by place, ``reason`` why no migration will do."""

    namespace: str
    vmi: str
    uid: str
    pool: str
    expected_image: str
    images: t.Mapping[str, str]
    node: str
    how: How
    reason: str = ""

    @property
    def vm(self) -> str:
        return f"{self.namespace}/{self.vmi}"

    def __str__(self) -> str:
        if self.how == "migrate":
            return f"VM {self.vm}: migrate for {self.expected_image} of {self.pool}"
        return f"VM {self.vm}: restart for {self.expected_image} of {self.pool}, since {self.reason}"

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "namespace": self.namespace,
            "name": self.vmi,
            "pool": self.pool,
            "expected_image": self.expected_image,
            "images": dict(self.images),
            "node": self.node,
            "how": self.how,
            "reason": self.reason,
        }


class Mapping:
    """What the mapping gives VMs now."""

    def __init__(self, table: Table, stock: str, nodes: t.Mapping[str, Node]) -> None:
        """``table``: the one in effect. ``stock``: KubeVirt's own launcher image."""
        self._table = table
        self._images = LauncherImages(table, stock)
        self._nodes = nodes

    def update(self, pod: LauncherPod) -> Update | None:
        """What the VM of this pod needs, as far as its pod tells; None when its images are right.

        Nothing, too, for a pod that has ended or that virt-controller did not make.
        """
        if pod.ended or pod.terminating or pod.vmi_uid is None:
            return None
        winner = matching.winner(self._table, pod.asked)
        expected = self._images.expected(winner)
        wrong = self._images.wrong(pod.launcher_images, expected)
        if not wrong:
            return None
        pool = winner.name if winner is not None else names.PRIMARY
        placement = pod.placement.without_owner().with_pool(
            self._table.requirement(winner), winner.tolerations if winner is not None else ()
        )
        others = (node for node in self._nodes.values() if node.ready and node.name != pod.node)
        room = any(placement.unfit(node) is None for node in others)
        return Update(
            namespace=pod.namespace,
            vmi=pod.vmi,
            uid=pod.vmi_uid,
            pool=pool,
            expected_image=expected,
            images=wrong,
            node=pod.node,
            how="migrate" if room else "restart",
            reason="" if room else f"no other Ready node of {pool} fits it",
        )

    def misplaced(self, pod: LauncherPod, node: Node) -> bool:
        """Whether a VM may not be on the node that it is on."""
        return not self._table.requirement(matching.winner(self._table, pod.asked)).matches(node.labels)


def with_vmi(update: Update, vmi: KubeObject | None) -> Update | None:
    """The same update, as far as the VMI allows a migration; None when the VM is gone or about to."""
    if vmi is None or vmi["metadata"].get("uid") != update.uid or vmi["metadata"].get("deletionTimestamp"):
        return None
    status = vmi.get("status") or {}
    phase = status.get("phase") or "Pending"
    if phase in ("Succeeded", "Failed"):
        return None
    conditions = {found.get("type"): found for found in status.get("conditions") or ()}
    reason = update.reason
    if phase != "Running":
        reason = f"it is {phase}, and only running VMs can be migrated"
    elif (conditions.get("Paused") or {}).get("status") == "True":
        reason = "it is paused"
    elif (conditions.get("LiveMigratable") or {}).get("status") != "True":
        said = conditions.get("LiveMigratable") or {}
        reason = f"it cannot be migrated ({said.get('message') or said.get('reason') or 'KubeVirt does not say why'})"
    return replace(update, how="restart" if reason else "migrate", reason=reason)
