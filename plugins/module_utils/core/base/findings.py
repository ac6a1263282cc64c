# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Findings, which plans and checks report to the user, the error for bad input, and helpers for the text of messages."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

Severity = t.Literal["error", "warning", "note"]
_HARM_NOW = ("two_handlers", "exclusion_overwritten")
_ORDER: dict[str, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Finding:
    """One thing that the user should know."""

    severity: Severity
    code: str
    """Stable and documented."""
    message: str
    """A sentence for a person."""

    def to_dict(self) -> dict[str, str]:
        return {"severity": self.severity, "code": self.code, "message": self.message}


def in_order(findings: t.Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings by severity (errors first), code and message, without duplicates. What harms VMs now, or is about to,
    comes before all."""
    return tuple(sorted(set(findings), key=lambda f: (f.code not in _HARM_NOW, _ORDER[f.severity], f.code, f.message)))


def error(code: str, message: str) -> Finding:
    return Finding("error", code, message)


def warning(code: str, message: str) -> Finding:
    return Finding("warning", code, message)


def note(code: str, message: str) -> Finding:
    return Finding("note", code, message)


class InputErrors(ValueError):
    """All problems of bad input, each a sentence that names the object, the field, the value and the fix."""

    def __init__(self, messages: t.Sequence[str]) -> None:
        self.messages = tuple(messages)
        super().__init__("; ".join(self.messages))


def listed(items: t.Iterable[str], most: int = 5) -> str:
    """``a, b, c and 7 more``: sorted names, shortened for a message."""
    names = sorted(items)
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun, and the verb where there is one: ``1 node has``, ``3 nodes have``. By default several take an s."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def printable(text: object) -> str:
    """Text from a cluster, made safe for files that people and tools read: one line, in which characters that XML forbids,
    that cannot be encoded, or that reverse text are escaped."""
    line = str(text)
    if line.isprintable():
        return line
    line = " ".join(line.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
