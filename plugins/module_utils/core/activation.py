# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a pool starts to take VMs, and when they get its new launcher image: what the mapping table is, batch by batch.

A pool is active, once it has been it stays so (a node's reboot unmaps nothing), and before that its VMs are unmatched, so that nothing
waits for nodes that nobody has handed over yet. A new launcher image of an active pool takes effect after the last of
its nodes got the handler that goes with it; once the first has it, canary VMs get the image.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Activation, Pool


class Move(t.Protocol):
    """What happens to a node: the part of a plan's move that counts here."""

    @property
    def node(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...


@dataclass(frozen=True)
class Progress:
    """Where the handovers stand: ``done`` are the nodes that each pool serves, ``wanted`` how many it can have."""

    done: t.Mapping[str, t.Collection[str]]
    wanted: t.Mapping[str, int]


def is_active(activation: Activation, done: int, wanted: int) -> bool:
    """Whether a pool that serves ``done`` of ``wanted`` nodes takes VMs, provided that it does not yet."""
    if done == 0:
        return False
    if activation == "first_node":
        return True
    percent = 100 if activation == "all_moved" else activation
    return done * 100 >= percent * wanted


def stages(
    pools: t.Sequence[Pool],
    retired: t.Sequence[Pool],
    recorded: t.Mapping[str, str | None],
    progress: Progress,
    batches: t.Sequence[t.Sequence[Move]],
    canaries: t.Mapping[str, str | None] = FrozenMap(),
) -> tuple[Table, ...]:
    """The table now, and after every batch.

    :param pools: those that are there after the run, in order.
    :param retired: those that go: they take no VM any more, and keep unmatched ones off while they own a node.
    :param recorded: the pools that are active according to the cluster, with the launcher images in effect.
    :param canaries: the images that canary VMs get according to the cluster.
    """
    done = {pool: set(nodes) for pool, nodes in progress.done.items()}
    left = collections.Counter(move.target for batch in batches for move in batch)
    pending = {move.node for batch in batches for move in batch}
    images: dict[str, str | None] = {pool.name: recorded[pool.name] for pool in pools if pool.name in recorded}
    begun = {pool.name for pool in pools if canaries.get(pool.name, "") == pool.virt_launcher_image}
    # Each batch is planned anew: a node with nothing left to do has the new handler.
    begun |= {pool.name for pool in pools if not pending.issuperset(done.get(pool.name, ()))}
    found: list[Table] = []
    key: object = None
    for batch in ((), *batches):
        for move in batch:
            done.get(move.source, set()).discard(move.node)
            done.setdefault(move.target, set()).add(move.node)
            left[move.target] -= 1
            begun.add(move.target)
        for pool in pools:
            served, wanted = len(done.get(pool.name, ())), progress.wanted.get(pool.name, 0)
            activated = pool.name not in images and is_active(pool.activation, served, wanted)
            if activated or (pool.name in images and left[pool.name] <= 0):
                images[pool.name] = pool.virt_launcher_image
        leaving = [pool for pool in retired if done.get(pool.name)]
        new = {
            pool.name: pool.virt_launcher_image
            for pool in pools
            if pool.name in begun and images.get(pool.name, pool.virt_launcher_image) != pool.virt_launcher_image
        }
        present = (tuple(images.items()), tuple(new), len(leaving))
        if present == key:
            found.append(found[-1])
        else:
            found.append(Table.of((*pools, *leaving), images, new))
            key = present
    return tuple(found)
