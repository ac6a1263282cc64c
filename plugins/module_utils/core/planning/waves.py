# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Waves: which nodes of the pools come first, and which later.

The wave of a node depends on the pools and on node labels, never on what is done already: a rollout that was interrupted
goes on with the same waves.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ..base import names
from ..base.findings import Finding, counted, listed, warning
from ..base.selectors import NODE_OPERATORS, Requirement, Term, label_key_problem, subdomain_problem
from ..pools import inputs
from ..pools.inputs import FieldPath, Problems
from ..pools.quantities import percentage

ALL = "all"
"""Name of the wave when none are configured."""
REST = "rest"
"""Name of the last wave: the nodes that no entry takes."""


# What users write ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WaveSpec:
    """One entry of ``virtpools_waves``. It takes the nodes that meet all its criteria and that no earlier entry
    took."""

    name: str | None = None
    nodes: tuple[str, ...] = ()
    labels: Term = field(default_factory=Term)
    pools: tuple[str, ...] = ()
    per: str | None = None
    """One wave for every value of this label."""
    count: int | None = None
    """How many of these nodes (of every wave)."""
    percent: int | None = None
    """How many percent of these nodes (of every wave)."""

    def fits(self, member: Member) -> bool:
        return (
            (not self.nodes or member.name in self.nodes)
            and (not self.pools or member.pool in self.pools)
            and self.labels.matches(member.labels)
            # Where no history tells of it, a node that is back is not a member: the share of the others would change.
            and not (member.leaving and self.takes_share)
        )

    @property
    def takes_share(self) -> bool:
        """Whether it takes only some of the nodes that fit."""
        return self.count is not None or self.percent is not None

    def share(self, nodes: int) -> int:
        """How many of so many nodes it takes; a percentage is rounded up, so it takes at least one."""
        if self.count is not None:
            return self.count
        return nodes if self.percent is None else -(-nodes * self.percent // 100)

    @property
    def title(self) -> str:
        """The name that the user gave it, or else its criteria."""
        if self.name is not None:
            return self.name
        criteria = [_words(requirement) for requirement in self.labels.requirements]
        criteria += [f"pool {listed(self.pools)}"] if self.pools else []
        criteria += [listed(self.nodes)] if self.nodes else []
        criteria += [f"{self.percent}%"] if self.percent is not None else []
        criteria += [f"first {self.count}"] if self.count is not None else []
        return ", ".join(criteria)

    def to_object(self) -> dict[str, t.Any]:
        """Everything that decides which nodes it takes, in canonical form."""
        return {
            "name": self.name,
            "nodes": sorted(self.nodes),
            "labels": self.labels.to_object(),
            "pools": sorted(self.pools),
            "per": self.per,
            "count": self.count,
            "percent": self.percent,
        }


def parse(raw: object) -> tuple[WaveSpec, ...]:
    """The entries of ``virtpools_waves``; none for None, an empty list and an empty text.

    :raises InputErrors: with every problem of every entry.
    """
    if raw is None or raw in ([], ""):
        return ()
    problems = Problems()
    items = inputs.items(FieldPath(problems, "virtpools_waves"), raw, "waves") or []
    specs = [_read(FieldPath(problems, f"Wave {number}"), item) for number, (_at, item) in enumerate(items, 1)]
    given = [spec.name for spec in specs if spec is not None and spec.name is not None]
    for name in sorted({name for name in given if given.count(name) > 1}):
        problems.add(f"virtpools_waves: several waves have the name {inputs.shown(name)}; give each its own name.")
    problems.raise_if_any()
    return tuple(spec for spec in specs if spec is not None)


_FIELDS = ("name", "nodes", "match", "matchExpressions", "pools", "per", "count", "percent")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,61}[^\s\x00-\x1f\x7f])?")


def _read(place: FieldPath, value: object) -> WaveSpec | None:
    before = place.problems.count
    given = inputs.mapping(place, value, _FIELDS)
    if given is None:
        return None
    read = {name: _READERS[name](place.field(name), item) for name, item in given.items()}
    if "count" in given and "percent" in given:
        place.error("has both count and percent; keep one of them")
    if place.problems.count != before:
        return None
    labels = Term.from_labels(t.cast("dict[str, str]", read.pop("match", {})))
    expressions = t.cast("tuple[Requirement, ...]", read.pop("matchExpressions", ()))
    return WaveSpec(labels=Term((*labels.requirements, *expressions)), **t.cast("dict[str, t.Any]", read))


def _name_problem(name: str) -> str | None:
    if name.isdigit():
        return "is a number, which virtpools_stop_after_wave would read as the number of a wave; add a word"
    return None if _NAME.fullmatch(name) else "is not one line of at most 63 characters"


def _key_problem(key: str) -> str | None:
    if key == names.OWNER_LABEL:
        return "changes during a rollout; use pools, or a label of your own"
    return label_key_problem(key)


def _labels(place: FieldPath, value: object) -> object | None:
    labels = inputs.labels(place, value)
    _refuse_owner_label(place, labels or ())
    return labels


def _expressions(place: FieldPath, value: object) -> object | None:
    requirements = inputs.requirements(place, value, NODE_OPERATORS)
    _refuse_owner_label(place, [requirement.key for requirement in requirements or ()])
    return requirements


def _refuse_owner_label(place: FieldPath, keys: t.Collection[str]) -> None:
    if names.OWNER_LABEL in keys:
        place.error(f"asks for {names.OWNER_LABEL}, which {_key_problem(names.OWNER_LABEL)}")


def _count(place: FieldPath, value: object) -> object | None:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    place.invalid(value, "; give a number of nodes from 1")
    return None


def _percent(place: FieldPath, value: object) -> object | None:
    percent = percentage(value) if isinstance(value, str) else None
    if percent is None:
        place.invalid(value, "; give a percentage from 1% to 100%, such as 10%")
    return percent


_READERS: dict[str, t.Callable[[FieldPath, object], object | None]] = {
    "name": inputs.checked(_name_problem),
    "nodes": inputs.texts("names of nodes", subdomain_problem),
    "match": _labels,
    "matchExpressions": _expressions,
    "pools": inputs.texts("names of pools", subdomain_problem),
    "per": inputs.checked(_key_problem),
    "count": _count,
    "percent": _percent,
}


def _words(requirement: Requirement) -> str:
    """A requirement as ``kubectl -l`` takes it."""
    key, values = requirement.key, ",".join(requirement.values)
    if requirement.operator == "In":
        return f"{key}={values}" if len(requirement.values) == 1 else f"{key} in ({values})"
    if requirement.operator == "NotIn":
        return f"{key}!={values}" if len(requirement.values) == 1 else f"{key} notin ({values})"
    if requirement.operator == "Exists":
        return key
    if requirement.operator == "DoesNotExist":
        return f"!{key}"
    return f"{key}{'>' if requirement.operator == 'Gt' else '<'}{values}"


# Which nodes they take ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """A node that a pool has or will have."""

    name: str
    labels: t.Mapping[str, str]
    pool: str
    leaving: bool = False
    """Whether the pool loses it to the primary."""


@dataclass(frozen=True)
class Group:
    """The nodes of one wave, in order."""

    name: str
    nodes: tuple[str, ...]


def group(specs: t.Sequence[WaveSpec], members: t.Iterable[Member]) -> tuple[Group, ...]:
    """The waves that have nodes, in order: every node is in exactly one."""
    remaining = sorted(members, key=lambda member: natural(member.name))
    waves: list[tuple[str, list[Member]]] = []
    for spec in specs:
        of_spec = _take(spec, remaining)
        waves += of_spec
        taken = {member.name for _name, wave in of_spec for member in wave}
        remaining = [member for member in remaining if member.name not in taken]
    waves.append((REST if specs else ALL, remaining))
    groups: list[Group] = []
    for name, wave in waves:
        if wave:
            groups.append(Group(unused(name, [other.name for other in groups]), tuple(m.name for m in wave)))
    return tuple(groups)


def check(specs: t.Sequence[WaveSpec], members: t.Collection[Member]) -> t.Iterator[Finding]:
    """Warnings for entries that take no node, or name a node that is not of any pool."""
    known = {member.name for member in members}
    remaining = list(members)
    for number, spec in enumerate(specs, 1):
        taken = {member.name for _name, wave in _take(spec, remaining) for member in wave}
        remaining = [member for member in remaining if member.name not in taken]
        title = f"Wave {number} ({spec.title})" if spec.title else f"Wave {number}"
        strangers = set(spec.nodes) - known
        names_strangers = f"names {counted(len(strangers), 'node')} that no pool has or will have: {listed(strangers)}"
        if not taken:
            no_match = "no node of the pools meets its criteria, or earlier waves take all that do"
            yield warning(
                "wave_empty",
                f"{title} of virtpools_waves takes no node, so the rollout begins with later waves: "
                f"{f'it {names_strangers}' if strangers else no_match}.",
            )
        elif strangers:
            yield warning("wave_node_unknown", f"{title} of virtpools_waves {names_strangers}.")


def _take(spec: WaveSpec, remaining: t.Iterable[Member]) -> list[tuple[str, list[Member]]]:
    """The waves of an entry, by name."""
    fitting = sorted((member for member in remaining if spec.fits(member)), key=lambda member: natural(member.name))
    if spec.per is None:
        return [(spec.title or REST, fitting[: spec.share(len(fitting))])] if fitting else []
    by_value: dict[str | None, list[Member]] = {}
    for member in fitting:
        by_value.setdefault(member.labels.get(spec.per), []).append(member)
    waves = []
    for value in sorted(by_value, key=lambda value: (value is None, natural(value or ""))):
        named = f"{spec.per}={value}" if value is not None else f"without {spec.per}"
        nodes = by_value[value]
        waves.append((f"{spec.title}, {named}" if spec.title else named, nodes[: spec.share(len(nodes))]))
    return waves


def unused(name: str, taken: t.Collection[str]) -> str:
    """The name, with a number when another wave has it: users stop a rollout at a wave by its name."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts node-9 before node-10."""
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name))
