# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing CEL, the expression language of admission policies: values as literals, requirements as conditions."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import Requirement, Term

_T = t.TypeVar("_T")

MOST_TEXT = 6_000
"""Of characters in one expression: an API server takes far more, but needs ever longer to check it."""


def literal(value: t.Any) -> str:
    """A value as a literal, in ASCII. Values of mappings may be of different types: CEL is told so (``dyn``)."""
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
    """CEL knows no surrogate pairs: what JSON escapes as two, it escapes as one."""
    character = match[0]
    if character in '"\\':
        return f"\\{character}"
    return f"\\u{ord(character):04x}" if character <= "\uffff" else f"\\U{ord(character):08x}"


def label(of: str, key: str) -> str:
    """The label of the object ``of``, an optional value."""
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
    """The condition that they meet all requirements of a term."""
    return all_of(meets(requirement, labels) for requirement in term.requirements)


def _compares(requirement: Requirement, value: str) -> t.Iterator[str]:
    """That a label's value, which cannot begin with a sign, is a number of 64 bits and as Gt or Lt ask. Other numbers would
    fail to convert, so each condition needs those before it."""
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
    """The texts in order, in groups of at most ``most`` characters (or of one text that is longer)."""
    return grouped(texts, len, most)


def grouped(items: t.Iterable[_T], length: t.Callable[[_T], int], most: int = MOST_TEXT) -> t.Iterator[list[_T]]:
    """The items in order, in groups whose texts have at most ``most`` characters (or of one item that has more)."""
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
