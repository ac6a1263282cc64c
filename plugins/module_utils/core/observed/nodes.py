# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The parts of a node that planning, handovers and checks need, so that thousands of them stay small."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace
from datetime import datetime

from ..base import names
from ..base.objects import KubeObject, condition
from ..pools.quantities import Quantity

_PRESSURES = ("DiskPressure", "PIDPressure")
"""Under MemoryPressure the kubelet still starts pods that request resources (Kubernetes), as virt-handler does."""

_CORDON = "node.kubernetes.io/unschedulable"
"""The taint of a node that was cordoned."""


@dataclass(frozen=True)
class Node:
    """The parts of a node that planning needs."""

    name: str
    labels: t.Mapping[str, str]
    taints: tuple[KubeObject, ...]
    ready: bool
    owner: str
    """The value of the owner label, or ``primary`` without one. A label that is empty or ``primary`` was set by
    hand and keeps the primary off: then this is the value in quotes, which cannot be the name of a pool."""
    former_owner: str | None
    heartbeat: str | None
    images: frozenset[str]
    devices: t.Mapping[str, int] = field(default_factory=dict)
    """How many of each device (extended resource, such as ``nvidia.com/A100``) the node can give to pods."""
    allocatable: t.Mapping[str, str] = field(default_factory=dict)
    """How much CPU and memory the node can give to pods, in Kubernetes' notation; empty when it does not say."""
    pressure: str | None = None
    """The condition because of which the kubelet starts no ordinary pod; None when there is none."""
    uid: str | None = None
    """Another node of the same name has another one."""

    @property
    def schedulable(self) -> bool:
        """Whether virt-handler says that VMs may start here."""
        return self.labels.get(names.SCHEDULABLE_LABEL) == "true"

    @property
    def cordoned(self) -> bool:
        """Whether the scheduler is told to leave the node alone."""
        return any(taint.get("key") == _CORDON for taint in self.taints)

    @property
    def unfinished(self) -> bool:
        """Whether a run began to hand the node over, or to replace its handler, and has not proven the new one."""
        return self.owner == names.IN_TRANSIT or self.former_owner is not None

    @property
    def machine_types(self) -> frozenset[str]:
        """The machine types that QEMU has here, as virt-handler says; empty when it does not say."""
        prefix = names.MACHINE_TYPE_PREFIX
        return frozenset(label[len(prefix) :] for label in self.labels if label.startswith(prefix))

    @property
    def last_heartbeat(self) -> float | None:
        """When virt-handler last reported, in seconds since 1970 by the node's clock; None when it never did, or left no time.
        It writes RFC 3339 (KubeVirt's heartbeat.go); some tools show it in quotes."""
        return timestamp((self.heartbeat or "").strip('"'))

    def owned_by(self, owner: str) -> Node:
        """The node as it will be after its handover to this owner."""
        if owner == self.owner:
            return self
        labels = {key: value for key, value in self.labels.items() if key != names.OWNER_LABEL}
        if owner != names.PRIMARY:
            labels[names.OWNER_LABEL] = owner
        return replace(self, owner=owner, labels=labels)

    @classmethod
    def from_object(cls, obj: KubeObject) -> Node:
        metadata = obj.get("metadata") or {}
        labels = dict(metadata.get("labels") or {})
        annotations = metadata.get("annotations") or {}
        status = obj.get("status") or {}
        return cls(
            name=metadata["name"],
            labels=labels,
            taints=tuple((obj.get("spec") or {}).get("taints") or ()),
            ready=condition(obj, "Ready").get("status") == "True",
            owner=_owner(labels),
            former_owner=annotations.get(names.FORMER_OWNER_ANNOTATION),
            heartbeat=annotations.get(names.HEARTBEAT_ANNOTATION),
            images=frozenset(name for image in status.get("images") or () for name in image.get("names") or ()),
            devices=_devices(status.get("allocatable") or {}),
            allocatable=_amounts(status.get("allocatable") or {}),
            pressure=next((kind for kind in _PRESSURES if condition(obj, kind).get("status") == "True"), None),
            uid=metadata.get("uid"),
        )


def deleted_since(before: t.Iterable[Node], now: t.Iterable[Node]) -> frozenset[str]:
    """Which nodes were deleted, for example by an autoscaler. A cloud may have created another machine under the same name."""
    there = {(node.name, node.uid) for node in now}
    return frozenset(node.name for node in before if (node.name, node.uid) not in there)


def timestamp(time: str | None) -> float | None:
    """A time of Kubernetes in seconds since 1970; None when it is not a time."""
    try:
        return datetime.strptime(time or "", "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None


def _owner(labels: t.Mapping[str, str]) -> str:
    value = labels.get(names.OWNER_LABEL)
    if value is None:
        return names.PRIMARY
    return f"'{value}'" if value in ("", names.PRIMARY) else value


def _amounts(allocatable: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {name: str(allocatable[name]) for name in ("cpu", "memory", "ephemeral-storage") if name in allocatable}


def _devices(allocatable: t.Mapping[str, t.Any]) -> dict[str, int]:
    # A thousand devices are "1k".
    amounts = {name: Quantity.parse(str(amount)) for name, amount in allocatable.items() if "/" in name}
    return {name: amount.thousandths // 1000 for name, amount in amounts.items() if amount is not None}
