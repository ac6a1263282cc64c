# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan or a check has to tell the user, and how bad input is refused."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

Severity = t.Literal["error", "warning", "note"]
_ORDER: dict[str, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Finding:
    """One thing to know. ``code`` is stable and documented; ``message`` is one sentence for a person."""

    severity: Severity
    code: str
    message: str

    def to_dict(self) -> dict[str, str]:
        return {"severity": self.severity, "code": self.code, "message": self.message}


def in_order(findings: t.Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then by code and message; duplicates once."""
    return tuple(sorted(set(findings), key=lambda f: (_ORDER[f.severity], f.code, f.message)))


def error(code: str, message: str) -> Finding:
    return Finding("error", code, message)


def warning(code: str, message: str) -> Finding:
    return Finding("warning", code, message)


def note(code: str, message: str) -> Finding:
    return Finding("note", code, message)


class InputErrors(ValueError):
    """Bad input: all problems at once, one sentence each, naming the object, the field, the value and the fix."""

    def __init__(self, messages: t.Sequence[str]) -> None:
        self.messages = tuple(messages)
        super().__init__("; ".join(self.messages))


def listed(items: t.Iterable[str], most: int = 5) -> str:
    """``a, b, c and 7 more``: a list of names short enough for a message."""
    found = sorted(items)
    if len(found) <= most:
        return ", ".join(found)
    return f"{', '.join(found[:most])} and {len(found) - most} more"
