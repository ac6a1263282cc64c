# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Readers of what people wrote: each takes any value that YAML can make, and reports what is wrong with it.

A reader gets a ``FieldPath`` (where the value stands, and where problems go) and the value. It returns what it read, or
None after it reported a problem. Readers go only as deep as the form, and look at no more of a text than its allowed
length, so that cyclic, deep or huge values cost nothing.
"""

from __future__ import annotations

import difflib
import json
import re
import typing as t
from dataclasses import dataclass
from decimal import Decimal

from ..base.findings import InputErrors
from ..base.frozen import FrozenMap
from ..base.selectors import Operator, Requirement, integer, label_key_problem, label_value_problem, subdomain_problem
from .quantities import Quantity

_T = t.TypeVar("_T", bound=t.Hashable)

MOST_PROBLEMS = 50
_MOST_SHOWN = 80

TextProblem = t.Callable[[str], "str | None"]
"""Returns what is wrong with a text, as a clause after ``which``, or None."""


# Where problems go --------------------------------------------------------------------------------------------------


class Problems:
    """What is wrong with the input: the first ``MOST_PROBLEMS`` messages, and the number of all."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self.count = 0

    def add(self, message: str) -> None:
        self.count += 1
        if len(self._messages) < MOST_PROBLEMS:
            self._messages.append(message)

    def raise_if_any(self) -> None:
        more = self.count - len(self._messages)
        if self.count:
            raise InputErrors([*self._messages, f"And {more} more."] if more else self._messages)


@dataclass(frozen=True)
class FieldPath:
    """Where a value stands."""

    problems: Problems
    item: str
    """What it belongs to, as messages name it."""
    path: str = ""
    """Its place in there."""

    def field(self, name: str) -> FieldPath:
        return FieldPath(self.problems, self.item, f"{self.path}.{name}" if self.path else name)

    def key(self, key: str) -> FieldPath:
        """The path of the value under a key that the user chose."""
        return FieldPath(self.problems, self.item, f"{self.path}[{_short(key)}]")

    def nth(self, index: int) -> FieldPath:
        return FieldPath(self.problems, self.item, f"{self.path}[{index}]")

    def error(self, what: str) -> None:
        """Report a problem: ``what`` is a clause, and this place is its subject."""
        self.problems.add(f"{self.item}: {self.path} {what}." if self.path else f"{self.item} {what}.")

    def invalid(self, value: object, why: str) -> None:
        """Report that the value here is wrong. ``why`` continues the sentence and begins with a comma or semicolon."""
        self.error(f"is {shown(value)}{why}")


def shown(value: object) -> str:
    """A value as YAML writes it, short enough for a message; lists and mappings are only called so."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(_short(value), ensure_ascii=False)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        # Python refuses to write numbers of thousands of digits.
        return str(value) if value.bit_length() < 4 * _MOST_SHOWN else "a huge number"
    if isinstance(value, t.Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return f"a value of type {type(value).__name__}"


def _short(text: str) -> str:
    cut = text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"
    # Half a surrogate pair cannot be printed.
    return cut.encode("utf-8", "backslashreplace").decode("utf-8")


def suggestion(word: str, known: t.Iterable[str]) -> str:
    """``; perhaps you mean X``; empty when no known word is similar."""
    if len(word) > _MOST_SHOWN:
        return ""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return f"; perhaps you mean {by_lower[near[0]]}" if near else ""


def either(words: t.Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# Values of any kind -------------------------------------------------------------------------------------------------


def text(place: FieldPath, value: object) -> str | None:
    """A string. Numbers and booleans are refused, since YAML does not keep how they were written."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        place.invalid(value, ", which YAML reads as true or false; put what you mean in quotes")
    elif isinstance(value, (int, float)):
        place.invalid(value, ", which YAML reads as a number; put it in quotes")
    else:
        place.invalid(value, "; give text")
    return None


def checked(problem: TextProblem) -> t.Callable[[FieldPath, object], str | None]:
    """A reader of a string that ``problem`` finds nothing wrong with."""

    def read(place: FieldPath, value: object) -> str | None:
        written = text(place, value)
        if written is None:
            return None
        wrong = problem(written)
        if wrong is not None:
            place.invalid(written, f", which {wrong}")
            return None
        return written

    return read


def choice(place: FieldPath, value: object, allowed: t.Sequence[str]) -> str | None:
    """One of a few words."""
    if isinstance(value, str) and value in allowed:
        return value
    hint = suggestion(value, allowed) if isinstance(value, str) else ""
    place.invalid(value, f"; give {either(allowed)}{hint}")
    return None


def boolean(place: FieldPath, value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    place.invalid(value, "; give true or false, without quotes")
    return None


def items(place: FieldPath, value: object, of_what: str) -> list[tuple[FieldPath, object]] | None:
    """The items of a list, each with its place; an empty list is refused."""
    if not isinstance(value, (list, tuple)):
        place.invalid(value, f"; give a list of {of_what}")
        return None
    if not value:
        place.invalid(value, f"; give at least one of the {of_what}, or leave the field out")
        return None
    return [(place.nth(index), item) for index, item in enumerate(value)]


def each(
    place: FieldPath, value: object, of_what: str, read: t.Callable[[FieldPath, object], _T | None]
) -> tuple[_T, ...] | None:
    """A list whose items ``read`` reads; an item that occurs twice is refused."""
    listed = items(place, value, of_what)
    if listed is None:
        return None
    before = place.problems.count
    first_at: dict[_T, FieldPath] = {}
    for at, item in listed:
        result = read(at, item)
        if result is not None and first_at.setdefault(result, at) is not at:
            at.error(f"repeats {first_at[result].path}; keep one of them")
    return tuple(first_at) if place.problems.count == before else None


def texts(of_what: str, problem: TextProblem) -> t.Callable[[FieldPath, object], tuple[str, ...] | None]:
    """A reader of a list of strings that ``problem`` finds nothing wrong with."""
    return lambda place, value: each(place, value, of_what, checked(problem))


def mapping(place: FieldPath, value: object, known: t.Collection[str] | None = None) -> dict[str, object] | None:
    """The fields of a mapping that have a value; null is treated as absent, as in Kubernetes.

    :param known: the fields that are allowed, others are refused; None when the user chooses the keys (null is a
        value then).
    """
    if not isinstance(value, t.Mapping):
        place.invalid(value, "; give a mapping" + (f" with {either(list(known))}" if known else ""))
        return None
    fields: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            place.error(f"has the key {shown(key)}, which YAML does not read as text; put it in quotes")
        elif known is not None and key not in known:
            hint = suggestion(key, known) or f"; known here: {', '.join(known)}"
            place.error(f"has an unknown field {shown(key)}{hint}")
        elif item is not None or known is None:
            fields[key] = item
    return fields


# Kubernetes' own values ---------------------------------------------------------------------------------------------


def labels(place: FieldPath, value: object) -> dict[str, str] | None:
    """At least one label, each with a valid key and value."""
    before = place.problems.count
    given = mapping(place, value)
    if given is None:
        return None
    if not given and place.problems.count == before:
        place.invalid(value, "; give at least one label with its value")
    for key, item in given.items():
        wrong = label_key_problem(key)
        if wrong is not None:
            place.error(f"has the label {shown(key)}, which {wrong}")
        _label_value(place.key(key), item)
    return t.cast("dict[str, str]", given) if place.problems.count == before else None


def requirements(place: FieldPath, value: object, operators: t.Sequence[Operator]) -> tuple[Requirement, ...] | None:
    """``matchExpressions`` with these operators, as the API server validates them."""
    return each(place, value, "requirements", lambda at, item: _requirement(at, item, operators))


def tolerations(place: FieldPath, value: object) -> tuple[FrozenMap[t.Any], ...] | None:
    """Tolerations of a pod, as the API server validates them, without empty fields."""
    return each(place, value, "tolerations", _toleration)


def pull_secrets(place: FieldPath, value: object) -> tuple[FrozenMap[str], ...] | None:
    """``imagePullSecrets`` of a pod, in order."""
    return each(place, value, "image pull secrets", _pull_secret)


def resources(place: FieldPath, value: object) -> FrozenMap[FrozenMap[str]] | None:
    """``requests`` and ``limits`` of a container, with quantities spelled as the API server serves them."""
    before = place.problems.count
    given = mapping(place, value, ("requests", "limits"))
    if given is None:
        return None
    if not given and place.problems.count == before:
        place.invalid(value, "; give requests, limits or both")
    amounts = {kind: _amounts(place.field(kind), item) for kind, item in given.items()}
    requests, limits = amounts.get("requests", {}), amounts.get("limits", {})
    for name in sorted(requests.keys() & limits.keys()):
        if requests[name].thousandths > limits[name].thousandths:
            place.field("requests").field(name).error(
                f"is {requests[name]}, more than the limit {limits[name]}; raise the limit or lower the request"
            )
    if place.problems.count != before:
        return None
    return FrozenMap(
        {kind: FrozenMap({name: str(amount) for name, amount in of_kind.items()}) for kind, of_kind in amounts.items()}
    )


def image_problem(image: str) -> str | None:
    """What is wrong with an image reference, ``[host[:port]/]path[:tag][@digest]`` (``distribution/reference``)."""
    if not image:
        return "is empty; name an image, or leave the field out"
    if any(character.isspace() for character in image[:_LONGEST_IMAGE]):
        return "has white space; remove it"
    if len(image) > _LONGEST_IMAGE:
        return f"has {len(image)} characters, at most {_LONGEST_IMAGE} are allowed"
    if "://" in image:
        return "is a URL; leave out what ends in ://"
    rest, at, digest = image.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return "has no digest like sha256:… after the @"
    slash = rest.rfind("/")
    name, colon, tag = rest[slash + 1 :].partition(":")
    if colon and not _TAG.fullmatch(tag):
        return "has no valid tag after the colon (letters, digits, '_', '.' and '-', at most 128)"
    *host, path = _host_and_path(rest[: slash + 1] + name)
    if host and not _HOST.fullmatch(host[0]):
        return f"begins with {shown(host[0])}, which is not a host name with an optional port"
    if not _PATH.fullmatch(path):
        return (
            f"has the path {shown(path)}, which is not made of lower case letters and digits with single '.', '_', '/' "
            "or any number of '-' between them"
        )
    return None


# Parts of these values ----------------------------------------------------------------------------------------------

_LONGEST_IMAGE = 512
_DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?)*|\[[0-9A-Fa-f:]+\])"
    r"(?::[0-9]+)?",
    re.ASCII,
)
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*", re.ASCII)

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_COMPUTE_RESOURCES = ("cpu", "memory", "ephemeral-storage")

_label_value = checked(label_value_problem)
_label_key = checked(label_key_problem)
_object_name = checked(subdomain_problem)


def _host_and_path(name: str) -> list[str]:
    """The host, if there is one, and the path. To container runtimes the first part is a host if it cannot be a path."""
    first, slash, rest = name.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    return [first, rest] if is_host else [name]


def _requirement(place: FieldPath, value: object, operators: t.Sequence[Operator]) -> Requirement | None:
    before = place.problems.count
    given = mapping(place, value, ("key", "operator", "values"))
    if given is None:
        return None
    for missing in [field for field in ("key", "operator") if field not in given]:
        place.error(f"has no {missing}; give one, as in {{key: zone, operator: In, values: [a]}}")
    key = _label_key(place.field("key"), given["key"]) if "key" in given else None
    operator = choice(place.field("operator"), given["operator"], operators) if "operator" in given else None
    values = _values(place.field("values"), given.get("values"), t.cast("Operator", operator)) if operator else None
    if place.problems.count != before or key is None or operator is None or values is None:
        return None
    return Requirement(key, t.cast("Operator", operator), values)


def _values(place: FieldPath, value: object, operator: Operator) -> tuple[str, ...] | None:
    if operator in ("Exists", "DoesNotExist"):
        if value in (None, [], ()):
            return ()
        place.error(f"is not allowed with the operator {operator}; remove it, or use In or NotIn")
        return None
    if value is None:
        place.error(f"is missing, the operator {operator} needs it; give a list")
        return None
    values = each(place, value, "values", _label_value)
    if values is not None and operator in ("Gt", "Lt") and (len(values) != 1 or integer(values[0]) is None):
        place.error(f"must be exactly one integer in quotes with the operator {operator}, as in ['8']")
        return None
    return values


def _toleration(place: FieldPath, value: object) -> FrozenMap[t.Any] | None:
    before = place.problems.count
    given = mapping(place, value, ("key", "operator", "value", "effect", "tolerationSeconds"))
    if given is None:
        return None
    # The API server leaves out empty texts.
    given = {field: item for field, item in given.items() if item != ""}
    operator = (
        choice(place.field("operator"), given["operator"], ("Exists", "Equal")) if "operator" in given else "Equal"
    )
    if "key" in given:
        _label_key(place.field("key"), given["key"])
    elif operator == "Equal" and place.problems.count == before:
        place.error("has no key; give the key of the taint, or operator: Exists alone to tolerate every taint")
    if "value" in given and operator == "Exists":
        place.field("value").error("is not allowed with the operator Exists; remove it, or use Equal")
    elif "value" in given:
        _label_value(place.field("value"), given["value"])
    effect = choice(place.field("effect"), given["effect"], _EFFECTS) if "effect" in given else None
    if "tolerationSeconds" in given:
        _seconds(place.field("tolerationSeconds"), given["tolerationSeconds"], effect)
    return FrozenMap(given) if place.problems.count == before else None


def _seconds(place: FieldPath, value: object, effect: str | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        place.invalid(value, "; give a whole number of seconds, without quotes")
    elif effect != "NoExecute":
        place.error("is only for effect: NoExecute; remove it, or set that effect")


def _pull_secret(place: FieldPath, value: object) -> FrozenMap[str] | None:
    if isinstance(value, str):
        place.invalid(value, f"; write it as {{name: {_short(value)}}}")
        return None
    given = mapping(place, value, ("name",))
    if given is None:
        return None
    if "name" not in given:
        place.error("has no name; give that of a Secret")
        return None
    name = _object_name(place.field("name"), given["name"])
    return FrozenMap({"name": name}) if name is not None else None


def _amounts(place: FieldPath, value: object) -> dict[str, Quantity]:
    given = mapping(place, value, _COMPUTE_RESOURCES) or {}
    amounts = {}
    for name, item in given.items():
        amount = _quantity(item)
        if amount is None:
            place.field(name).invalid(item, ", which is not a quantity; give one like 500m, 2 or 1Gi, not below 0")
        else:
            amounts[name] = amount
    return amounts


def _quantity(value: object) -> Quantity | None:
    """A quantity. Numbers are accepted, as in Kubernetes: YAML's rounding of them cannot change an amount."""
    if isinstance(value, str):
        return Quantity.parse(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**63:
        return None
    return Quantity.parse(f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value))
