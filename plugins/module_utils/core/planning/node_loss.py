# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The brake for a pool that would lose its nodes by accident: a misspelt label, or labels that vanish for minutes."""

from __future__ import annotations

import difflib
import typing as t

from ..base import names
from ..base.findings import Finding, counted, error, listed
from ..base.selectors import Requirement
from ..observed.nodes import Node
from ..pools.model import Pool

_ALIKE = 0.75
"""How similar a label must be to be the one that was meant."""


def check(
    nodes: t.Mapping[str, Node],
    wanted: t.Mapping[str, str],
    pools: t.Sequence[Pool],
    recorded: t.Iterable[Pool],
    limit: int | str,
    *,
    returning: bool,
) -> t.Iterator[Finding]:
    """Errors about pools of the list that would lose more nodes than the user allows.

    Pools that are taken down are not in the list, and nodes that were deleted are not in ``nodes``: neither counts.

    :param wanted: the owner that every node should have.
    :param recorded: the pools as the cluster has them.
    :param limit: how many nodes a pool may lose: a number, or a percentage of its nodes.
    :param returning: whether the list is an earlier one. Then a selector that differs from the recorded one was meant.
    """
    selectors = {pool.name: pool.nodes for pool in recorded}
    for pool in pools:
        changed = pool.name in selectors and selectors[pool.name] != pool.nodes
        held = [node for node in nodes.values() if _holder(node) == pool.name]
        lost = [node for node in held if wanted[node.name] != pool.name]
        if len(lost) <= allowed(limit, len(held)) or (returning and changed):
            continue
        share = (
            f"all of its {counted(len(held), 'node')}"
            if len(lost) == len(held)
            else f"{len(lost)} of its {len(held)} nodes"
        )
        why = (
            f"Its selector changes from {selectors[pool.name]} to {pool.nodes}."
            if changed
            else f"Its selector ({pool.nodes}) is the same as before, so labels of these nodes have changed, or another client "
            f"has given them to the pool (label {names.OWNER_LABEL})."
        )
        yield error(
            "pool_loses_nodes",
            f"Pool {pool.name} would lose {share} ({listed(node.name for node in lost)}). "
            f"{' '.join((why, *hints(pool, lost, nodes)))} Correct the selector or the labels or, if the pool is to lose these nodes, "
            "set virtpools_max_nodes_lost: 100% for this run.",
        )


def allowed(limit: int | str, held: int) -> int:
    """How many of its nodes a pool may lose. Only 100% allows all."""
    if limit == "100%":
        return held
    number = limit if isinstance(limit, int) else max(1, held * int(limit.rstrip("%")) // 100)
    return min(number, max(held - 1, 0))


def hints(pool: Pool, missed: t.Sequence[Node], nodes: t.Mapping[str, Node]) -> t.Iterator[str]:
    """What the labels of nodes say about the selector that none of them meets, a sentence for each label.

    :param missed: the nodes that the pool probably means.
    """
    for requirement in pool.nodes.requirements:
        if not requirement.needs_label or any(requirement.matches(node.labels) for node in missed):
            continue
        values = sorted({node.labels[requirement.key] for node in missed if requirement.key in node.labels})
        if values:
            yield f"The pool selects {requirement}, and the nodes have {requirement.key}={listed(values)}."
            continue
        meant = _meant(requirement, missed)
        yield f"None of the nodes has the label {requirement.key}." + (
            f" Perhaps you mean {meant} ({_extent(meant, pool.name, nodes)})?" if meant else ""
        )


def _meant(requirement: Requirement, missed: t.Sequence[Node]) -> str | None:
    """The label of these nodes that is written most alike, of those with a value that the requirement accepts."""
    keys = {key for node in missed for key, value in node.labels.items() if requirement.matches_value(value)}
    alike = difflib.get_close_matches(requirement.key, sorted(keys), 1, _ALIKE)
    return alike[0] if alike else None


def _extent(key: str, pool: str, nodes: t.Mapping[str, Node]) -> str:
    """How many nodes have a label, and whether they are just the nodes of the pool."""
    having = {node.name for node in nodes.values() if key in node.labels}
    held = {node.name for node in nodes.values() if _holder(node) == pool}
    number = counted(len(having), "node")
    return f"{number}, all of this pool" if having and having <= held else number


def _holder(node: Node) -> str | None:
    return node.former_owner if node.owner == names.IN_TRANSIT else node.owner
