# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Selectors, taints and the syntax of labels, with the rules of Kubernetes' own packages.

These are ``apimachinery/pkg/labels`` (requirements), ``component-helpers/scheduling/corev1`` (node affinity, taints) and
``apimachinery/pkg/util/validation`` (syntax); their functions are named where a rule is used.
"""

from __future__ import annotations

import itertools
import re
import typing as t
from dataclasses import dataclass

from .objects import KubeObject

Operator = t.Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
NODE_OPERATORS: tuple[Operator, ...] = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
"""The operators of node selectors."""
LABEL_OPERATORS: tuple[Operator, ...] = ("In", "NotIn", "Exists", "DoesNotExist")
"""The operators of label selectors."""


_MAX_NAME = 63
"""Characters in a label's value, in its key without the prefix, and in a DNS label."""
_MAX_SUBDOMAIN = 253


# Requirements and terms ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Requirement:
    """A condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted, since their order has no meaning."""

    def __post_init__(self) -> None:
        if len(self.values) > 1:
            object.__setattr__(self, "values", tuple(sorted(set(self.values))))

    @classmethod
    def from_object(cls, obj: KubeObject) -> Requirement:
        """A requirement as the API serves it."""
        return cls(obj["key"], obj["operator"], tuple(obj.get("values") or ()))

    def __str__(self) -> str:
        """The requirement in words: ``a=b``, ``c in (d, e)``, ``no f``."""
        values = ", ".join(self.values)
        if self.operator == "In":
            return f"{self.key}={values}" if len(self.values) == 1 else f"{self.key} in ({values})"
        if self.operator in ("NotIn", "DoesNotExist"):
            return f"{self.key} not in ({values})" if self.operator == "NotIn" else f"no {self.key}"
        return self.key if self.operator == "Exists" else f"{self.key} {'>' if self.operator == 'Gt' else '<'} {values}"

    def to_object(self) -> dict[str, t.Any]:
        obj: dict[str, t.Any] = {"key": self.key, "operator": self.operator}
        return {**obj, "values": list(self.values)} if self.values else obj

    def matches(self, labels: t.Mapping[str, str]) -> bool:
        """``labels.Requirement.Matches``: an absent label satisfies NotIn and DoesNotExist, and nothing else."""
        value = labels.get(self.key)
        if value is None:
            return not self.needs_label
        return self.matches_value(value)

    @property
    def needs_label(self) -> bool:
        """Whether the label must exist."""
        return self.operator not in ("NotIn", "DoesNotExist")

    def matches_value(self, value: str) -> bool:
        """Whether an existing label may have this value."""
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        if self.operator == "Gt":
            number, bound = integer(value), self.bound
            return number is not None and bound is not None and number > bound
        if self.operator == "Lt":
            number, bound = integer(value), self.bound
            return number is not None and bound is not None and number < bound
        return self.operator == "Exists"

    @property
    def bound(self) -> int | None:
        """The integer that Gt and Lt compare with. None when there is not exactly one: then nothing matches."""
        return integer(self.values[0]) if len(self.values) == 1 else None


def _number_of_values(requirement: Requirement) -> int:
    return len(requirement.values)


@dataclass(frozen=True)
class Term:
    """Requirements that must all hold; without any, the term matches everything. They are sorted, as order has no meaning."""

    requirements: tuple[Requirement, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "requirements", tuple(sorted(set(self.requirements))))

    @classmethod
    def from_labels(cls, labels: t.Mapping[str, str]) -> Term:
        """The term of a ``nodeSelector`` or ``matchLabels``: every label must have its value."""
        return cls(tuple(Requirement(key, "In", (value,)) for key, value in labels.items()))

    @classmethod
    def from_selector(cls, selector: KubeObject) -> Term:
        """The term of a label selector (``matchLabels`` and ``matchExpressions``)."""
        labels = cls.from_labels(selector.get("matchLabels") or {})
        expressions = map(Requirement.from_object, selector.get("matchExpressions") or ())
        return cls((*labels.requirements, *expressions))

    def matches(self, labels: t.Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def narrowest(self) -> Requirement | None:
        """The In requirement with the fewest values; None when there is no In requirement."""
        return min((each for each in self.requirements if each.operator == "In"), key=_number_of_values, default=None)

    def __str__(self) -> str:
        return ", ".join(map(str, self.requirements))

    def to_object(self) -> dict[str, t.Any]:
        return {"matchExpressions": [requirement.to_object() for requirement in self.requirements]}


class TermIndex:
    """Finds the terms that match, without asking every term: with hundreds of terms and thousands of nodes that is most work.

    Each term is filed under its narrowest requirement. Labels can match only the terms that are filed under one of them, and
    those that have no such requirement.
    """

    def __init__(self, terms: t.Mapping[str, Term]) -> None:
        """``terms``: by the names that ``matching`` returns."""
        self._terms = tuple(terms.items())
        self._filed: dict[str, dict[str, list[int]]] = {}
        self._others: list[int] = []
        for number, (_name, term) in enumerate(self._terms):
            needed = term.narrowest
            if needed is None:
                self._others.append(number)
                continue
            by_value = self._filed.setdefault(needed.key, {})
            for value in set(needed.values):
                by_value.setdefault(value, []).append(number)

    def matching(self, labels: t.Mapping[str, str]) -> list[str]:
        """The names of the terms that match these labels, in their order."""
        candidates = list(self._others)
        for key, by_value in self._filed.items():
            value = labels.get(key)
            if value is not None:
                candidates += by_value.get(value, ())
        found = (self._terms[number] for number in sorted(candidates))
        return [name for name, term in found if term.matches(labels)]


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_INT64 = 2**63 - 1


def integer(text: str) -> int | None:
    """The number that Gt and Lt read in ``text`` (Go's ``ParseInt(text, 10, 64)``); None when it is not a number."""
    # No label value is longer, and no number of 64 bits without leading zeros.
    if len(text) > _MAX_NAME or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_MAX_INT64 - 1 <= number <= _MAX_INT64 else None


# Taints -------------------------------------------------------------------------------------------------------------

BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
"""The effects of taints that keep a pod off a node; PreferNoSchedule only makes other nodes likelier."""


def tolerates(tolerations: t.Iterable[KubeObject], taint: KubeObject) -> bool:
    """Whether one of the tolerations matches the taint (``Toleration.ToleratesTaint``)."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def untolerated(tolerations: t.Iterable[KubeObject], taints: t.Iterable[KubeObject]) -> list[KubeObject]:
    """The taints that keep a pod with these tolerations off a node."""
    known = tuple(tolerations)
    return [taint for taint in taints if taint.get("effect") in BLOCKING_EFFECTS and not tolerates(known, taint)]


def _tolerates(toleration: KubeObject, taint: KubeObject) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    operator, wanted, value = (
        toleration.get("operator") or "Equal",
        toleration.get("value") or "",
        taint.get("value") or "",
    )
    if operator in ("Gt", "Lt"):
        return _compares(operator, value, wanted)
    return operator == "Exists" or (operator == "Equal" and value == wanted)


_DECIMAL = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


def _compares(operator: str, value: str, bound: str) -> bool:
    """Whether a taint's value is on the right side of a toleration's. Both must be numbers as Kubernetes prints them. Only an API
    server with the feature gate TaintTolerationComparisonOperators lets such tolerations in."""
    number, limit = (integer(text) if _DECIMAL.fullmatch(text) else None for text in (value, bound))
    if number is None or limit is None:
        return False
    return number > limit if operator == "Gt" else number < limit


# Can a term match ------------------------------------------------------------------------------------------------


def example_labels(*terms: Term) -> dict[str, str] | None:
    """A smallest set of valid labels that satisfies all terms; None when no set of valid labels does.

    It is deterministic and exact: None proves that no node can match all the terms.
    """
    by_key: dict[str, list[Requirement]] = {}
    for term in terms:
        for requirement in term.requirements:
            by_key.setdefault(requirement.key, []).append(requirement)
    labels = {}
    for key, requirements in sorted(by_key.items()):
        if not any(requirement.needs_label for requirement in requirements):
            continue
        value = _example_value(requirements)
        if value is None or label_key_problem(key) is not None:
            return None
        labels[key] = value
    return labels


def _example_value(requirements: t.Sequence[Requirement]) -> str | None:
    """A value for a label that must exist."""
    for candidate in _candidates(requirements):
        if all(requirement.matches_value(candidate) for requirement in requirements):
            return candidate
    return None


def _candidates(requirements: t.Sequence[Requirement]) -> t.Iterator[str]:
    """Finitely many valid values. If any value satisfies all requirements, one of these does."""
    allowed = next((r.values for r in requirements if r.operator == "In"), None)
    if allowed is not None:
        return (value for value in allowed if label_value_problem(value) is None)
    # Each forbidden value rules out one candidate, so one candidate more than forbidden values is enough.
    enough = 1 + sum(len(r.values) for r in requirements if r.operator == "NotIn")
    if any(r.operator in ("Gt", "Lt") for r in requirements):
        return itertools.islice(_integers_between(requirements), enough)
    return itertools.islice(itertools.chain(("true",), (str(n) for n in itertools.count())), enough)


def _integers_between(requirements: t.Sequence[Requirement]) -> t.Iterator[str]:
    """Every spelling of every integer that a label can have and that Gt and Lt allow, plain spellings first.

    A label's value starts with a letter or digit, so no integer in a label is negative; it may have leading zeros.
    """
    low, high = 0, _MAX_INT64
    for requirement in requirements:
        if requirement.operator not in ("Gt", "Lt"):
            continue
        bound = requirement.bound
        if bound is None:
            return
        if requirement.operator == "Gt":
            low = max(low, bound + 1)
        else:
            high = min(high, bound - 1)
    for number in range(low, high + 1):
        yield str(number)
    for number in range(low, high + 1):
        plain = str(number)
        yield from (plain.zfill(width) for width in range(len(plain) + 1, _MAX_NAME + 1))


# Syntax -------------------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)


def label_key_problem(key: str) -> str | None:
    """What is wrong with the key of a label or annotation (``IsQualifiedName``), as the end of a sentence."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return "has more than one '/'"
    if slash and not prefix:
        return "has nothing before the '/'"
    if prefix and subdomain_problem(prefix) is not None:
        return f"has a part before the '/' that {subdomain_problem(prefix)}"
    problem = _name_problem(name)
    return f"has a part after the '/' that {problem}" if problem is not None and slash else problem


def label_value_problem(value: str) -> str | None:
    """What is wrong with a label's value (``IsValidLabelValue``), as the end of a sentence. An empty value is valid."""
    return _name_problem(value) if value else None


def subdomain_problem(text: str) -> str | None:
    """What is wrong with a DNS subdomain, as most objects' names must be (``IsDNS1123Subdomain``)."""
    if not text:
        return "is empty"
    if len(text) > _MAX_SUBDOMAIN:
        return f"has {len(text)} characters, at most {_MAX_SUBDOMAIN} are allowed"
    if not all(_SUBDOMAIN_LABEL.fullmatch(label) for label in text.split(".")):
        return "is not a DNS name (lower case letters, digits and '-' between dots, no '-' beside a dot or at an end)"
    return None


def dns_label_problem(text: str) -> str | None:
    """What is wrong with a DNS label, as a namespace's name must be (``IsDNS1123Label``)."""
    if not text:
        return "is empty"
    if len(text) > _MAX_NAME:
        return f"has {len(text)} characters, at most {_MAX_NAME} are allowed"
    if not _SUBDOMAIN_LABEL.fullmatch(text):
        return "is not made of lower case letters, digits and '-' with a letter or digit at both ends"
    return None


_QUOTA_PREFIX = "requests."


def device_name_problem(name: str) -> str | None:
    """What is wrong with a device's resource name, ``vendor.example/device`` (``IsExtendedResourceName``)."""
    if "/" not in name:
        return "has no vendor's domain, it should be like nvidia.com/A100"
    if "kubernetes.io/" in name:
        return "is in the domain kubernetes.io, which no device plugin can use"
    if name.startswith(_QUOTA_PREFIX):
        return f"begins with {_QUOTA_PREFIX}, which is kept for quotas"
    problem = label_key_problem(name)
    # The name of a quota for the device is this name with a prefix, and must be valid as well.
    return problem if problem is not None else label_key_problem(_QUOTA_PREFIX + name)


def _name_problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if len(name) > _MAX_NAME:
        return f"has {len(name)} characters, at most {_MAX_NAME} are allowed"
    if not _NAME.fullmatch(name):
        return "is not made of letters, digits, '-', '_' and '.' with a letter or digit at both ends"
    return None
