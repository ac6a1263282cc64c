# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Writing CEL, the expression language of admission policies: values as literals, requirements as conditions."""

from __future__ import annotations

import re
import typing as t

from .selectors import Requirement, Term

_T = t.TypeVar("_T")

MOST_TEXT = 6_000
"""Characters in one expression. API servers accept far more, but the time to check it grows faster than its length."""


def literal(value: t.Any) -> str:
    """A value as a literal, in ASCII. ``dyn`` allows values of different types in a mapping."""
    if isinstance(value, str):
        return f'"{_SPECIAL.sub(_escaped, value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, t.Mapping):
        return f"{{{', '.join(f'{literal(key)}: dyn({literal(item)})' for key, item in value.items())}}}"
    return f"[{', '.join(map(literal, value))}]"


_MOST_INT64 = str(2**63 - 1)

_SPECIAL = re.compile(r'[^ -~]|["\\]')


def _escaped(match: re.Match[str]) -> str:
    """CEL has no surrogate pairs: a character that JSON escapes as two is one escape here."""
    character = match[0]
    if character in '"\\':
        return f"\\{character}"
    return f"\\u{ord(character):04x}" if character <= "\uffff" else f"\\U{ord(character):08x}"


def label(of: str, key: str) -> str:
    """The label of the object ``of``, as an optional value."""
    return f"{of}.metadata.?labels[?{literal(key)}]"


def meets(requirement: Requirement, labels: str) -> str:
    """The condition that the labels of an object, the expression ``labels``, meet a requirement."""
    key = literal(requirement.key)
    there = f"{key} in {labels}"
    if requirement.operator in ("Gt", "Lt"):
        return all_of([there, *_compares(requirement, f"{labels}[{key}]")])
    if requirement.operator == "Exists":
        return there
    if requirement.operator == "DoesNotExist":
        return f"!({there})"
    one_of = all_of([there, f"{labels}[{key}] in {literal(requirement.values)}"])
    return one_of if requirement.operator == "In" else f"!{one_of}"


def meets_term(term: Term, labels: str) -> str:
    """The condition that the labels meet all requirements of a term."""
    return all_of(meets(requirement, labels) for requirement in term.requirements)


def _compares(requirement: Requirement, value: str) -> t.Iterator[str]:
    """Conditions that a label's value is a number of 64 bits and that Gt or Lt allow it. A value cannot begin with a sign.
    The conversion of other values fails, so each condition needs those before it."""
    if requirement.bound is None:
        yield "false"
        return
    digits = f"{value}.find({literal('[1-9][0-9]*$')})"
    yield f"{value}.matches({literal('^[0-9]+$')})"
    most = len(_MOST_INT64)
    yield f"(size({digits}) < {most} || (size({digits}) == {most} && {digits} <= {literal(_MOST_INT64)}))"
    yield f"int({literal('0')} + {digits}) {'>' if requirement.operator == 'Gt' else '<'} {requirement.bound}"


def all_of(conditions: t.Iterable[str]) -> str:
    return _joined("&&", conditions, "true")


def any_of(conditions: t.Iterable[str]) -> str:
    return _joined("||", conditions, "false")


def _joined(operator: str, conditions: t.Iterable[str], nothing: str) -> str:
    parts = list(conditions)
    return f"({f' {operator} '.join(parts)})" if len(parts) > 1 else "".join(parts) or nothing


def shards(texts: t.Iterable[str], most: int = MOST_TEXT) -> t.Iterator[list[str]]:
    """The texts in order, in groups of at most ``most`` characters; a longer text is a group of its own."""
    return grouped(texts, len, most)


def grouped(items: t.Iterable[_T], length: t.Callable[[_T], int], most: int = MOST_TEXT) -> t.Iterator[list[_T]]:
    """The items in order, in groups of at most ``most`` characters (``length``); a longer item is a group of its own."""
    group: list[_T] = []
    size = 0
    for item in items:
        added = length(item)
        if group and size + added > most:
            yield group
            group, size = [], 0
        group.append(item)
        size += added + len(", ")
    if group:
        yield group
