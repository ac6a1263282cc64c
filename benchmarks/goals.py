# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Says what a figure is measured against, what was hoped for, and whether that was reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Figure:
    """A figure, and the most that it should be. ``unit`` follows the number, as `` s``, `` ms`` or `` x`` for a ratio."""

    what: str
    limit: str
    """What it cannot be less than, or what does the same work."""
    value: float
    goal: float
    unit: str = " x"

    @property
    def reached(self) -> bool:
        """Whether the figure, as it is printed, is within the goal."""
        return round(self.value, 2) <= self.goal

    def row(self) -> str:
        """Return a row of the table."""
        cells = (self.what, self.limit, f"{self.value:.2f}{self.unit}", f"{self.goal:g}{self.unit}")
        return f"| {' | '.join(cells)} | {'yes' if self.reached else 'no'} |"


def show(figures: Iterable[Figure]) -> None:
    """Print a table of figures and goals."""
    print("\n| what | limit or peer | today | goal: at most | reached |\n|---|---|---:|---:|---|")
    for figure in figures:
        print(figure.row())
    print(flush=True)
