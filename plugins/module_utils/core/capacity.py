# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices on both sides of a move: while a pool has only some of its nodes, its VMs have only the devices on those."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node


@dataclass(frozen=True)
class Capacity:
    """How many of a device there are on the nodes that a pool serves, and on those still to move; with how many nodes."""

    pool: str
    device: str
    served: tuple[int, int]
    to_move: tuple[int, int]

    def __str__(self) -> str:
        (here, nodes), (there, others) = self.served, self.to_move
        return (
            f"Pool {self.pool} is partly moved: {here} of {self.device} on its {nodes} node(s), {there} on {others} node(s) "
            "still to move."
        )


def of(pools: t.Iterable[Pool], nodes: t.Iterable[Node], wanted: t.Mapping[str, str]) -> tuple[Capacity, ...]:
    """The devices that partly moved pools select VMs by.

    :param wanted: the owner that every node should have, by node.
    """
    served: dict[str, list[Node]] = {}
    to_move: dict[str, list[Node]] = {}
    for node in nodes:
        if node.former_owner is None and node.owner == wanted[node.name]:
            served.setdefault(node.owner, []).append(node)
        else:
            to_move.setdefault(wanted[node.name], []).append(node)
    return tuple(
        Capacity(pool.name, device, _count(device, served[pool.name]), _count(device, to_move[pool.name]))
        for pool in pools
        if pool.selector is not None and pool.name in served and pool.name in to_move
        for device in pool.selector.device_names
    )


def _count(device: str, nodes: t.Collection[Node]) -> tuple[int, int]:
    return sum(node.devices.get(device, 0) for node in nodes), len(nodes)
