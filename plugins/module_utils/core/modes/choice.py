# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which mode a run works in. The only file that names both modes."""

from __future__ import annotations

from ..observed.snapshot import Snapshot
from ..operator_mode import detection
from ..operator_mode.mode import OperatorMode
from ..planning.departure import Departure
from ..planning.proposal import AskedMode
from ..planning.request import PlanRequest
from .collection import CollectionMode
from .mode import Mode


def choose(asked: AskedMode, snapshot: Snapshot, *, moving: bool = False) -> Mode:
    """The mode in which a run works on this cluster.

    :param moving: whether the run brings a list, and so may take the pools of the other mode down first.
    :raises InputErrors: when the mode that is asked for is not possible here, or when both modes are in use.
    """
    build = detection.choose_build(asked, snapshot, moving=moving)
    return CollectionMode() if build is None else OperatorMode(build)


def in_use(snapshot: Snapshot) -> Mode:
    """The mode whose pools the cluster has; that of this collection where it has none."""
    build = detection.in_use(snapshot)
    return CollectionMode() if build is None else OperatorMode(build)


def departure(chosen: Mode, snapshot: Snapshot, request: PlanRequest) -> Departure | None:
    """What has to go before a run in this mode can bring pools; None when nothing of the other mode is there."""
    if isinstance(chosen, OperatorMode):
        return CollectionMode().takedown(snapshot, request)
    build = detection.in_use(snapshot)
    # Where both are in use, the plan refuses the run.
    return None if build is None or snapshot.pools else OperatorMode(build).takedown(snapshot, request)
