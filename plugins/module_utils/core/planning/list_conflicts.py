# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Pool lists that contradict the history: one that the cluster does not have, and an earlier one that would come back."""

from __future__ import annotations

import typing as t

from ..base import names
from ..base.findings import Finding, error, listed, warning
from ..pools.model import Pool
from .batching import Move
from .history import Entry, History, same_pools


def not_applied(
    known: History, given: t.Sequence[Pool], recorded: t.Sequence[Pool], build: str | None
) -> Finding | None:
    """An error when the cluster has the newest list of the history and a check is given another one. To call every node and VM
    wrong would advise to undo the run that brought the newest list.

    While a run is unfinished, the list that it brings is the one to compare with, so there is none.

    :param given: the list, with the pools that a run of it would keep.
    :param recorded: the pools that the cluster has.
    :param build: the build of KubeVirt whose pools these are; None for collection pools.
    """
    unfinished = known.is_unfinished or known.going_to or known.waves
    if not given or not known.entries or unfinished:
        return None
    newest = known.entries[-1]
    has_newest = newest.build == build and same_pools(newest.pools, recorded)
    if not has_newest or same_pools(newest.pools, given):
        return None
    earlier = _earlier(known, given, build)
    age = f" The given list is older, of {earlier.applied}." if earlier else ""
    return error(
        "list_not_applied",
        f"The given list is not the one that the cluster has, which {newest.by} applied on {newest.applied}: "
        f"{_differences(given, newest.pools)}.{age} Decide which of them is to apply: bring the given list with site or a workflow, "
        "or put the list that the cluster has (the module pool_history shows it) where the given one comes from. "
        "Everything else is compared with the list that the cluster has.",
    )


def is_under_way(given: t.Iterable[Pool], moves: t.Iterable[Move]) -> bool:
    """Whether a run has begun to take pools away that are not in the given list. It deletes them last, so before that only their
    nodes tell.

    :param moves: what a run of the list that the cluster has would do.
    """
    listed_names = {pool.name for pool in given}
    return any(move.source != move.target and move.target not in {*listed_names, names.PRIMARY} for move in moves)


def brings_back(known: History, given: t.Sequence[Pool], build: str | None) -> Finding | None:
    """A warning when a list is an earlier one of the history, so that a run of it takes back what others applied since.

    :param given: the list, with the pools that a run of it keeps.
    :param build: that of a run of this list.
    """
    earlier = _earlier(known, given, build)
    if earlier is None:
        return None
    newest = known.entries[-1]
    return warning(
        "older_list",
        f"This list is the one of {earlier.applied} ({earlier.digest}): a run brings it back in place of the list that {newest.by} "
        f"applied on {newest.applied}: {_differences(given, newest.pools)}.",
    )


def _earlier(known: History, given: t.Sequence[Pool], build: str | None) -> Entry | None:
    """The latest entry of the history with these pools, unless the newest entry has them."""
    having = [entry for entry in known.entries if entry.build == build and same_pools(entry.pools, given)]
    return having[-1] if having and having[-1] is not known.entries[-1] else None


def _differences(given: t.Sequence[Pool], has: t.Sequence[Pool]) -> str:
    """In which pools, and fields of these, two lists differ, in words."""
    ours, theirs = ({pool.name: pool.to_object() for pool in pools} for pools in (given, has))
    parts = []
    for name in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(name), theirs.get(name)
        if one is None:
            parts.append(f"pool {name} is not in the given list")
        elif other is None:
            parts.append(f"pool {name} is only in the given list")
        elif one != other:
            fields = [field for field in dict.fromkeys((*one, *other)) if one.get(field) != other.get(field)]
            parts.append(f"pool {name} has another {listed(fields)}")
    return listed(parts)
