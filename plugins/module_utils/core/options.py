# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user may say beside the pools."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    assignment,
    launcher_backends,
    launchers,
    removal,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.drain import LEAVE, Drain
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.waves import WaveSpec

_PERCENT = re.compile(r"([1-9][0-9]?|100)%")


@dataclass(frozen=True)
class Options:
    """What the user may say beside the pools.

    ``max_unavailable``: nodes per pool without a Ready handler at once because of us, a number from 1 or a percentage
    (``10%``, rounded down, at least 1) of the pool's nodes.
    """

    overlap: assignment.Overlap = "error"
    prune: bool = False
    max_unavailable: int | str = 1
    allow_skew: bool = False
    prepull: bool = True
    launcher_backend: launcher_backends.Wanted = "auto"
    outdated: launchers.Outdated = "refuse"
    assign_new_nodes: bool = False
    """Whether nodes that join get the owner that the pools say at once."""
    guard: bool = False
    """Whether others are kept from changing owners of nodes and the exclusion."""
    removed: removal.Removed | None = None
    """The pools that go. Then those that the cluster records count, and no list."""
    waves: tuple[WaveSpec, ...] = ()
    """Which nodes come first; all at once where nothing is said."""
    drain: Drain = LEAVE
    """What becomes of VMs on a node before its handler goes."""
    only: frozenset[str] | None = None
    """The nodes that go back to what a former list makes of them: the pools given or, with ``removed``, no pools."""
    back_to: str | None = None
    """The digest of the former list that a rollback brings back, or ``history.NO_POOLS``."""
    accept_closed_gates: bool = False
    """Whether waves that an earlier run began need not pass their gates any more."""

    def __post_init__(self) -> None:
        value = self.max_unavailable
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
            object.__setattr__(self, "max_unavailable", int(value))
        if isinstance(value, bool) or (self._number() < 1 and not _PERCENT.fullmatch(str(value))):
            raise InputErrors(
                [f"max_unavailable is {value!r}; give a number from 1, or a percentage from 1% to 100% like 10%."]
            )

    def at_once(self, nodes: int) -> int:
        """How many of a pool's ``nodes`` may be without a handler at once."""
        number = self._number()
        return number or max(1, nodes * int(str(self.max_unavailable)[:-1]) // 100)

    def _number(self) -> int:
        return self.max_unavailable if isinstance(self.max_unavailable, int) else 0
