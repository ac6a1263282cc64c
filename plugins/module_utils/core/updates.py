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

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    launcher_backends,
    matching,
    names,
    outdated_policy,
    plan,
    preflight,
    removal,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors, listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_backends import Backend
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_images import LauncherImages
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.places import Places
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import (
    Admission,
    KubeObject,
    Node,
    Snapshot,
)

How = t.Literal["migrate", "restart"]


@dataclass(frozen=True, kw_only=True)
class Relocation:
    """A VM that is to leave its launcher pod. ``reason``: why no migration will do."""

    namespace: str
    vmi: str
    uid: str
    node: str
    how: How
    reason: str = ""

    @property
    def vm(self) -> str:
        return f"{self.namespace}/{self.vmi}"

    def __str__(self) -> str:
        return f"VM {self.vm}"

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "namespace": self.namespace,
            "name": self.vmi,
            "node": self.node,
            "how": self.how,
            "reason": self.reason,
        }


AnyRelocation = t.TypeVar("AnyRelocation", bound=Relocation)


class Need(t.Protocol[AnyRelocation]):
    """Why VMs are migrated: it tells which, and whether one came out as it should."""

    def update(self, pod: LauncherPod) -> AnyRelocation | None:
        """What the VM of this pod needs, as far as its pod tells; None for nothing."""

    def problem(self, moved: AnyRelocation, pod: LauncherPod, node: Node | None) -> str | None:
        """What is wrong with a VM that was migrated, by the pod and the node where it is now; None for nothing."""


@dataclass(frozen=True, kw_only=True)
class Update(Relocation):
    """What one outdated VM needs. ``images`` are the wrong ones by place."""

    pool: str
    expected_image: str
    images: t.Mapping[str, str]

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

    def __init__(self, table: Table, stock: str, nodes: t.Iterable[Node], *, compute_only: bool = False) -> None:
        """``table``: the one in effect. ``stock``: KubeVirt's own launcher image. ``compute_only``: whether the back end
        changes the image of no other container."""
        self._table = table
        self._images = LauncherImages(table, stock)
        self._places = Places(table, nodes)
        self._compute_only = compute_only

    @classmethod
    def in_effect(cls, snapshot: Snapshot, removed: removal.Removed | None = None) -> Mapping:
        """What the live launcher policy gives VMs.

        :param removed: pools that are being taken away.
        :raises InputErrors: when that is not what the pools need, or when KubeVirt is not fit for migrations: a VM that is
            migrated now could come out wrong.
        """
        admission = snapshot.admission or Admission()
        backend = launcher_backends.in_use(admission)
        table = launcher_backends.recorded(admission) or Table(())
        stock = outdated_policy.stock_image(snapshot)
        checks = (*preflight.fitness(snapshot), *outdated_policy.examine(snapshot, table))
        problems = [f.message for f in checks if f.severity == "error" and f.code not in preflight.TRANSIENT]
        problems += _policy_problems(snapshot, admission, backend, table, removed)
        if problems or stock is None:
            raise InputErrors(problems)
        return cls(table, stock, snapshot.nodes.values(), compute_only=backend == "aie_webhook")

    def update(self, pod: LauncherPod) -> Update | None:
        """What the VM of this pod needs, as far as its pod tells; None when its images are right.

        Nothing, too, for a pod that has ended or that virt-controller did not make.
        """
        if pod.ended or pod.terminating or pod.vmi_uid is None:
            return None
        winner = matching.winner(self._table, pod.asked)
        expected = self._images.expected(winner)
        wrong = self._images.wrong(self._looked_at(pod), expected)
        if not wrong:
            return None
        pool = winner.name if winner is not None else names.PRIMARY
        room = any(node.ready and node.name != pod.node for node in self._places.mapped(pod, winner))
        return Update(
            namespace=pod.namespace,
            vmi=pod.vmi,
            uid=pod.vmi_uid,
            pool=pool,
            expected_image=expected,
            images=FrozenMap(wrong),
            node=pod.node,
            how="migrate" if room else "restart",
            reason="" if room else f"no other Ready node of {pool} fits it",
        )

    def _looked_at(self, pod: LauncherPod) -> t.Mapping[str, str]:
        if not self._compute_only:
            return pod.launcher_images
        compute = f"container {names.COMPUTE}"
        return {place: image for place, image in pod.launcher_images.items() if place == compute}

    def problem(self, moved: Update, pod: LauncherPod, node: Node | None) -> str | None:
        again = self.update(pod)
        if again is not None:
            return f"its pod {pod.name} has {', '.join(sorted(set(again.images.values())))} again"
        if node is None or self.misplaced(pod, node):
            return f"it is on node {pod.node}, which is not of {moved.pool}"
        return None

    def misplaced(self, pod: LauncherPod, node: Node) -> bool:
        """Whether a VM may not be on the node that it is on."""
        return not self._table.requirement(matching.winner(self._table, pod.asked)).matches(node.labels)


def _policy_problems(
    snapshot: Snapshot,
    admission: Admission,
    backend: Backend | None,
    table: Table,
    removed: removal.Removed | None,
) -> t.Iterator[str]:
    if backend is None:
        leaving = removal.leaving(removed, snapshot) if removed else frozenset()
        staying = [pool for pool in plan.recorded(snapshot) if pool.name not in leaving]
        pools = [pool.name for pool in staying if pool.selector and pool.virt_launcher_image]
        if pools:
            yield (
                f"{len(pools)} pool(s) have launcher images ({listed(pools)}), but no launcher policy is in force: a VM that is "
                "migrated now would get KubeVirt's own; run site first."
            )
        return
    wanted = launcher_backends.desired(backend, table, snapshot.namespace, admission)
    found = [str(difference) for difference in launcher_backends.drift(wanted, admission)]
    if found or not wanted:
        what = found[0] if found else f"its annotation {names.MAPPING_ANNOTATION} does not say what it maps"
        yield f"The launcher policy was changed by hand: {what}; run site first."


def with_vmi(update: AnyRelocation, vmi: KubeObject | None) -> AnyRelocation | None:
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
