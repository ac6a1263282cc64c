# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Findings, changes and tables as lines of text."""

from __future__ import annotations

import re
import typing as t

from .findings import Finding


def finding_lines(findings: t.Iterable[Finding]) -> list[str]:
    """One line for each finding, with its severity and code."""
    return [f"{finding.severity.upper()} {finding.code}: {finding.message}" for finding in findings]


_CHANGE = re.compile(r"(?P<object>(?!Node )[A-Z]\w+ \S+): (?P<what>.+)")
"""A line of ``objects.change_line``, or of an edit of an object that is not ours; but not what happens on a node."""
_SIGNS = {"create": "+", "update": "~", "delete": "-"}


def signed(change: str) -> str:
    """A change of an object with a sign in front: ``+`` create, ``~`` update, ``-`` delete. Any other line as it is."""
    found = _CHANGE.fullmatch(change)
    if found is None:
        return change
    sign = _SIGNS.get(found["what"])
    return f"~ {change}" if sign is None else f"{sign} {found['object']}"


def table(head: t.Sequence[str], rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    """Aligned columns below their headings."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
