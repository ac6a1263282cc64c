# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Kubernetes quantities (``apimachinery/pkg/api/resource``), and percentages.

The API server does not keep every spelling of a quantity: ``1000m`` comes back as ``1``, ``1024Mi`` as ``1Gi``, ``0.5``
as ``500m``. We write the canonical spelling, which it keeps, so that what we want equals what it serves.
"""

from __future__ import annotations

import math
import re
import typing as t
from dataclasses import dataclass
from fractions import Fraction

_GRAMMAR = re.compile(
    r"""\+?(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?
        (?: (?P<binary>[KMGTPE])i | [eE](?P<exponent>[+-]?[0-9]{1,2}) | (?P<decimal>[numkMGTPE]?) )""",
    re.ASCII | re.VERBOSE,
)
_LONGEST = 64
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXPONENTS = {suffix: exponent for exponent, suffix in _DECIMAL.items()}
_MAX = 2**63 - 1

_PERCENTAGE = re.compile(r"([1-9][0-9]?|100)%", re.ASCII)

Notation = t.Literal["binary", "decimal", "exponent"]


def percentage(text: str) -> int | None:
    """The number in a percentage from ``1%`` to ``100%``; None when ``text`` is none."""
    match = _PERCENTAGE.fullmatch(text)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class Quantity:
    """An amount of a resource, in thousandths: the API server rounds the resources of containers up to these."""

    thousandths: int
    notation: Notation

    @classmethod
    def parse(cls, text: str) -> Quantity | None:
        """A quantity from 0 to the largest 64-bit integer; None when ``text`` is none."""
        match = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None or not (match["whole"] or match["part"]):
            return None
        part = match["part"] or ""
        notation, factor = _unit(match)
        amount = Fraction(int(match["whole"] + part), 10 ** len(part)) * factor
        return cls(math.ceil(amount * 1000), notation) if amount <= _MAX else None

    def __str__(self) -> str:
        """``Quantity.CanonicalizeBytes``: the shortest number without a fraction, in the notation it was written in."""
        if self.thousandths == 0:
            return "0"
        whole, rest = divmod(self.thousandths, 1000)
        if self.notation == "binary" and whole >= 1024 and not rest:
            number, power = _without_factor(whole, 1024)
            if power:
                return f"{number}{_BINARY[power]}"
            # The server would write a plain number, read that as decimal and shorten it; it keeps the shortened number.
        number, power = _without_factor(self.thousandths, 10)
        power -= 3
        number *= 10 ** (power % 3)
        power -= power % 3
        if self.notation == "exponent":
            return f"{number}e{power}" if power else str(number)
        return f"{number}{_DECIMAL[power]}"


def _unit(match: re.Match[str]) -> tuple[Notation, Fraction]:
    if match["binary"]:
        return "binary", Fraction(1024 ** _BINARY.index(match["binary"] + "i"))
    if match["exponent"]:
        return "exponent", Fraction(10) ** int(match["exponent"])
    return "decimal", Fraction(10) ** _EXPONENTS[match["decimal"] or ""]


def _without_factor(number: int, factor: int) -> tuple[int, int]:
    """``number`` divided by ``factor`` as often as it divides evenly, and how often that was."""
    times = 0
    while number % factor == 0:
        number //= factor
        times += 1
    return number, times
