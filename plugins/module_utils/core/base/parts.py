# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A part of a run: objects of one concern that a run writes besides handlers and nodes, such as the guard or the alerts.

A plan, its digest, the rights that it needs and the module ``run_part`` treat all parts alike. A new part is one class.
"""

from __future__ import annotations

import typing as t

from .findings import Finding
from .permissions import Permission

LAST: t.Final = "last"
"""The step after the last batch, once DaemonSets are deleted."""

Step: t.TypeAlias = "int | t.Literal['last']"
"""When a run writes a part: after this number of batches (0: before the first), or ``LAST``."""


class Part(t.Protocol):
    """What one part of a run does to the cluster."""

    @property
    def name(self) -> str:
        """The name by which roles and modules call it."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """When the run writes it, in order. Empty when there is nothing to write."""

    def changes(self, step: Step) -> tuple[str, ...]:
        """What the run writes at this step, one line each."""

    def findings(self) -> t.Iterable[Finding]:
        """What the user should know about it, or what prevents it."""

    @property
    def rights(self) -> tuple[Permission, ...]:
        """What the run needs for it, besides what every run needs."""

    @property
    def approved(self) -> object:
        """What the approval of a plan covers; None when the part does not matter to it."""

    def facts(self, step: Step) -> t.Mapping[str, t.Any]:
        """What to return about its state after this step, for people."""
