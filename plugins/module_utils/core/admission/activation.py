# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""When a pool starts to take VMs, and when they get its new launcher image: the mapping table after each batch.

Before a pool is active its VMs match no pool, so that no VM waits for nodes that have not been handed over yet. Once
active, a pool stays active: rebooting a node does not deactivate its pool. A new launcher image of an active pool takes effect after the
last node of the pool that takes VMs has the handler that goes with it; canary VMs get the image after the first node has it. Where VMs cannot
start with the former image, the new one takes effect at once: an older handler of the pool serves it (seen: 1.8 and 1.9).
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ..pools.model import Activation, Pool
from ..vms.mapping import Table


class NodeMove(t.Protocol):
    """The fields of a move used here: which node goes from which owner to which."""

    @property
    def node(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...


@dataclass(frozen=True)
class HandoverState:
    """The state of the handovers."""

    done: t.Mapping[str, t.Collection[str]]
    """The nodes that each pool serves."""
    wanted: t.Mapping[str, int]
    """How many nodes each pool can have."""
    behind: t.Collection[str] = ()
    """The pools with nodes that take VMs and keep an older handler, because they cannot get another one now."""


def is_active(activation: Activation, done: int, wanted: int) -> bool:
    """Whether a pool that is not active yet becomes active when it serves ``done`` of ``wanted`` nodes."""
    if done == 0:
        return False
    if activation == "first_node":
        return True
    percent = 100 if activation == "all_moved" else activation
    return done * 100 >= percent * wanted


def stages(
    pools: t.Sequence[Pool],
    retired: t.Sequence[Pool],
    before: Table,
    progress: HandoverState,
    batches: t.Sequence[t.Sequence[NodeMove]],
    at_once: t.Collection[str] = (),
) -> tuple[Table, ...]:
    """The table now and after each batch.

    :param pools: the pools that the run leaves, in order.
    :param retired: the pools that the run removes: they take no VMs, and keep unmatched VMs off while they own a node.
    :param before: the live table. What it holds for an upgrade stays for pools that stay.
    :param at_once: the pools whose VMs cannot start with the image in effect.
    """
    done = {pool: set(nodes) for pool, nodes in progress.done.items()}
    left = collections.Counter(move.target for batch in batches for move in batch)
    pending = {move.node for batch in batches for move in batch}
    recorded = before.images
    images: dict[str, str | None] = {pool.name: recorded[pool.name] for pool in pools if pool.name in recorded}
    begun = {pool.name for pool in pools if before.canaries.get(pool.name, "") == pool.virt_launcher_image}
    # Each batch is planned again, so a node without a pending move has the new handler.
    begun |= {pool.name for pool in pools if not pending.issuperset(done.get(pool.name, ()))}
    tables: list[Table] = []
    former: object = None
    for batch in ((), *batches):
        for move in batch:
            done.get(move.source, set()).discard(move.node)
            done.setdefault(move.target, set()).add(move.node)
            left[move.target] -= 1
            begun.add(move.target)
        for pool in pools:
            served, wanted = len(done.get(pool.name, ())), progress.wanted.get(pool.name, 0)
            activated = pool.name not in images and is_active(pool.activation, served, wanted)
            complete = left[pool.name] <= 0 and pool.name not in progress.behind
            if activated or (pool.name in images and (complete or pool.name in at_once)):
                images[pool.name] = pool.virt_launcher_image
        leaving = [pool for pool in retired if done.get(pool.name)]
        canary_images = {
            pool.name: pool.virt_launcher_image
            for pool in pools
            if pool.name in begun and images.get(pool.name, pool.virt_launcher_image) != pool.virt_launcher_image
        }
        present = (tuple(images.items()), tuple(canary_images), len(leaving))
        if present == former:
            tables.append(tables[-1])
        else:
            tables.append(Table.for_pools((*pools, *leaving), images, canary_images, before.upcoming))
        former = present
    return tuple(tables)
