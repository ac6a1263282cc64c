# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Fleets: the nodes of a local cluster, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import yaml

from .errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ARCHITECTURES = ("amd64", "arm64", "s390x")
# The last four are those that virt-handler's device plugins register with a real kubelet.
CAPACITY = {
    "cpu": "64",
    "memory": "512Gi",
    "ephemeral-storage": "1Ti",
    "pods": "250",
    "devices.kubevirt.io/kvm": "1k",
    "devices.kubevirt.io/tun": "1k",
    "devices.kubevirt.io/vhost-net": "1k",
    "devices.kubevirt.io/vhost-vsock": "1k",
}
# The labels of CPU and machine types that virt-handler's node labeller sets, and launcher pods select.
LABELLER = {
    "amd64": {
        "machine-type.node.kubevirt.io/q35": "true",
        "cpu-model.node.kubevirt.io/Cascadelake-Server": "true",
        "cpu-model-migration.node.kubevirt.io/Cascadelake-Server": "true",
        "host-model-cpu.node.kubevirt.io/Cascadelake-Server": "true",
        "cpu-vendor.node.kubevirt.io/Intel": "true",
    },
    "arm64": {"machine-type.node.kubevirt.io/virt": "true"},
    "s390x": {"machine-type.node.kubevirt.io/s390-ccw-virtio": "true"},
}


@dataclass(frozen=True)
class Nodes:
    """Nodes that differ only in their names: one with a name, or ``count`` many with a common prefix."""

    name: str = ""
    prefix: str = ""
    count: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    capacity: Mapping[str, Any] = field(default_factory=dict)
    arch: str = "amd64"

    def __post_init__(self) -> None:
        """Refuse values that cannot become a node."""
        if bool(self.name) == bool(self.prefix):
            raise ClusterError(
                f"A fleet's nodes need either a name or a prefix, not {self.name!r} and {self.prefix!r}."
            )
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", self.names()[0] if self.count > 0 else self.name):
            raise ClusterError(
                f"{self.name or self.prefix!r} cannot name a node, or its count {self.count} is not positive."
            )
        if self.name and self.count != 1:
            raise ClusterError(f"Node {self.name!r} has a count: give a prefix instead of a name.")
        if self.arch not in ARCHITECTURES:
            raise ClusterError(
                f"Nodes {self.name or self.prefix!r} have arch {self.arch!r}: use {', '.join(ARCHITECTURES)}."
            )

    def names(self) -> list[str]:
        """Return the names of the nodes, numbered from 00."""
        if self.name:
            return [self.name]
        width = max(2, len(str(self.count - 1)))
        return [f"{self.prefix}{number:0{width}}" for number in range(self.count)]


@dataclass(frozen=True)
class Fleet:
    """All nodes of a cluster."""

    groups: tuple[Nodes, ...] = ()

    @classmethod
    def from_groups(cls, *groups: Nodes) -> Fleet:
        """Make a fleet of groups of nodes."""
        names = [name for group in groups for name in group.names()]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ClusterError(f"The fleet names {', '.join(twice)} more than once.")
        return cls(groups)

    @classmethod
    def plain(cls, count: int) -> Fleet:
        """Make a fleet of nodes without special properties, named node-00 and so on."""
        return cls.from_groups(Nodes(prefix="node-", count=count)) if count else cls()

    @classmethod
    def load(cls, path: Path) -> Fleet:
        """Read a fleet file."""
        try:
            content = yaml.safe_load(path.read_text("utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise ClusterError(f"Fleet file {path} cannot be read: {error}") from error
        groups = content.get("nodes") if isinstance(content, dict) else None
        if not isinstance(groups, list):
            raise ClusterError(f"Fleet file {path} needs a list 'nodes'.")
        return cls.from_groups(*(_nodes(group, path) for group in groups))

    def objects(self) -> list[dict[str, Any]]:
        """Return the Node objects as kubelets would register them."""
        named = [(group, name) for group in self.groups for name in group.names()]
        return [_node(group, name, number) for number, (group, name) in enumerate(named)]

    def devices(self) -> set[str]:
        """Return the devices of its nodes that virtual machines can have."""
        return {resource for group in self.groups for resource in group.capacity if "/" in resource}


def _nodes(group: object, path: Path) -> Nodes:
    known = {each.name for each in fields(Nodes)}
    if not isinstance(group, dict) or not known.issuperset(group):
        raise ClusterError(f"Fleet file {path} has nodes {group!r}: known keys are {', '.join(sorted(known))}.")
    return Nodes(**group)


def _node(group: Nodes, name: str, number: int) -> dict[str, Any]:
    well_known = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": group.arch}
    capacity = {**CAPACITY, **{resource: str(amount) for resource, amount in group.capacity.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**well_known, "node-role.kubernetes.io/worker": "", **LABELLER[group.arch], **group.labels},
            "annotations": dict(group.annotations),
        },
        "spec": {"taints": [dict(taint) for taint in group.taints]},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": _node_info(group.arch),
            "phase": "Running",
        },
    }


def _node_info(arch: str) -> dict[str, str]:
    return {
        "architecture": arch,
        "operatingSystem": "linux",
        "osImage": "none (simulated by kwok)",
        "containerRuntimeVersion": "none://0",
        "kernelVersion": "6.12.0",
        "kubeletVersion": "",
        "kubeProxyVersion": "",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }
