# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waves: which nodes of the pools come first, and which later.

What wave a node is in depends on the pools and on the nodes' labels, never on what is done already: an interrupted
rollout goes on with the same waves.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import inputs, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, listed, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.inputs import Place, Problems
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import (
    NODE_OPERATORS,
    Requirement,
    Term,
    label_key_problem,
    subdomain_problem,
)

ALL = "all"
"""The one wave where none are asked for."""
REST = "rest"
"""The last wave: what no entry takes."""


# What users write ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WaveSpec:
    """One entry of ``virtpools_waves``: of the nodes that no earlier entry took, those that fit all that is said here.

    ``per``: one wave for every value of this label. ``count`` and ``percent``: so many of the nodes (of every wave).
    """

    name: str | None = None
    nodes: tuple[str, ...] = ()
    labels: Term = field(default_factory=Term)
    pools: tuple[str, ...] = ()
    per: str | None = None
    count: int | None = None
    percent: int | None = None

    def fits(self, member: Member) -> bool:
        return (
            (not self.nodes or member.name in self.nodes)
            and (not self.pools or member.pool in self.pools)
            and self.labels.matches(member.labels)
            # A node that went back to the primary is not seen to have been of a pool: the others' share would change.
            and not (member.leaving and self.shares)
        )

    @property
    def shares(self) -> bool:
        """Whether it takes only some of the nodes that fit."""
        return self.count is not None or self.percent is not None

    def share(self, nodes: int) -> int:
        """How many of so many nodes it takes; of a percentage rounded up, which is at least one."""
        if self.count is not None:
            return self.count
        return nodes if self.percent is None else -(-nodes * self.percent // 100)

    @property
    def title(self) -> str:
        """The name that it was given, or else what it asks for."""
        if self.name is not None:
            return self.name
        asked = [_words(requirement) for requirement in self.labels.requirements]
        asked += [f"pool {listed(self.pools)}"] if self.pools else []
        asked += [listed(self.nodes)] if self.nodes else []
        asked += [f"{self.percent}%"] if self.percent is not None else []
        asked += [f"first {self.count}"] if self.count is not None else []
        return ", ".join(asked)

    def to_object(self) -> dict[str, t.Any]:
        """All that says which nodes it takes, canonical."""
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
    """The entries of ``virtpools_waves``; none for nothing said.

    :raises InputErrors: with every problem of every entry.
    """
    if raw is None or raw in ([], ""):
        return ()
    problems = Problems()
    found = inputs.items(Place(problems, "virtpools_waves"), raw, "waves") or []
    specs = [_read(Place(problems, f"Wave {number}"), item) for number, (_at, item) in enumerate(found, 1)]
    given = [spec.name for spec in specs if spec is not None and spec.name is not None]
    for name in sorted({name for name in given if given.count(name) > 1}):
        problems.add(f"virtpools_waves: the name {inputs.shown(name)} is given to several waves; give each its own.")
    problems.raise_if_any()
    return tuple(spec for spec in specs if spec is not None)


_FIELDS = ("name", "nodes", "match", "matchExpressions", "pools", "per", "count", "percent")
_PERCENT = re.compile(r"([1-9][0-9]?|100)%", re.ASCII)
_NAME = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,61}[^\s\x00-\x1f\x7f])?")


def _read(place: Place, value: object) -> WaveSpec | None:
    before = place.problems.count
    given = inputs.mapping(place, value, _FIELDS)
    if given is None:
        return None
    read = {name: _READERS[name](place.field(name), item) for name, item in given.items()}
    if "count" in given and "percent" in given:
        place.say("has both count and percent; keep one of them")
    if place.problems.count != before:
        return None
    labels = Term.of_labels(t.cast("dict[str, str]", read.pop("match", {})))
    expressions = t.cast("tuple[Requirement, ...]", read.pop("matchExpressions", ()))
    return WaveSpec(labels=Term((*labels.requirements, *expressions)), **t.cast("dict[str, t.Any]", read))


def _name_problem(name: str) -> str | None:
    if name.isdigit():
        return "is a number, which virtpools_stop_after_wave would take for that of a wave; add a word"
    return None if _NAME.fullmatch(name) else "is no name of at most 63 characters on one line"


def _key_problem(key: str) -> str | None:
    if key == names.OWNER_LABEL:
        return "changes during a rollout; use pools, or a label of your own"
    return label_key_problem(key)


def _names_of(what: str) -> t.Callable[[Place, object], object | None]:
    def read(place: Place, value: object) -> object | None:
        found = inputs.each(place, value, what, inputs.checked(subdomain_problem))
        return tuple(found) if found is not None else None

    return read


def _labels(place: Place, value: object) -> object | None:
    found = inputs.labels(place, value)
    _refuse_owner_label(place, found or ())
    return found


def _expressions(place: Place, value: object) -> object | None:
    found = inputs.requirements(place, value, NODE_OPERATORS)
    _refuse_owner_label(place, [requirement.key for requirement in found or ()])
    return found


def _refuse_owner_label(place: Place, keys: t.Collection[str]) -> None:
    if names.OWNER_LABEL in keys:
        place.say(f"asks for {names.OWNER_LABEL}, which {_key_problem(names.OWNER_LABEL)}")


def _count(place: Place, value: object) -> object | None:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    place.refuse(value, "; give a number of nodes from 1")
    return None


def _percent(place: Place, value: object) -> object | None:
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found:
        return int(found[1])
    place.refuse(value, "; give a percentage from 1% to 100%, as in 10%")
    return None


_READERS: dict[str, t.Callable[[Place, object], object | None]] = {
    "name": inputs.checked(_name_problem),
    "nodes": _names_of("names of nodes"),
    "match": _labels,
    "matchExpressions": _expressions,
    "pools": _names_of("names of pools"),
    "per": inputs.checked(_key_problem),
    "count": _count,
    "percent": _percent,
}


def _words(requirement: Requirement) -> str:
    """A requirement as kubectl's ``-l`` has it."""
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


# What becomes of them -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """A node that pools have or will have. ``leaving``: it goes back to the primary, and ``pool`` is the one it leaves."""

    name: str
    labels: t.Mapping[str, str]
    pool: str
    leaving: bool = False


@dataclass(frozen=True)
class Group:
    """The nodes of one wave, in order."""

    name: str
    nodes: tuple[str, ...]


def group(specs: t.Sequence[WaveSpec], members: t.Iterable[Member]) -> tuple[Group, ...]:
    """The waves that have nodes, in order: every node is in exactly one."""
    left = sorted(members, key=lambda member: natural(member.name))
    found: list[tuple[str, list[Member]]] = []
    for spec in specs:
        taken = _take(spec, left)
        found += taken
        gone = {member.name for _name, wave in taken for member in wave}
        left = [member for member in left if member.name not in gone]
    found.append((REST if specs else ALL, left))
    groups: list[Group] = []
    for name, wave in found:
        if wave:
            groups.append(Group(unused(name, [known.name for known in groups]), tuple(m.name for m in wave)))
    return tuple(groups)


def check(specs: t.Sequence[WaveSpec], members: t.Collection[Member]) -> t.Iterator[Finding]:
    """Entries that do not take what they seem to."""
    known = {member.name for member in members}
    left = list(members)
    for number, spec in enumerate(specs, 1):
        taken = {member.name for _name, wave in _take(spec, left) for member in wave}
        left = [member for member in left if member.name not in taken]
        title = f"Wave {number} ({spec.title})" if spec.title else f"Wave {number}"
        strangers = set(spec.nodes) - known
        if not taken:
            yield warning(
                "wave_empty",
                f"{title} of virtpools_waves takes no node, so what comes after it comes first: no node of the pools fits, or "
                "earlier waves take them all.",
            )
        elif strangers:
            yield warning(
                "wave_node_unknown",
                f"{title} of virtpools_waves names {len(strangers)} node(s) that no pool has or will have: "
                f"{listed(strangers)}.",
            )


def _take(spec: WaveSpec, left: t.Iterable[Member]) -> list[tuple[str, list[Member]]]:
    """The waves of an entry, by name."""
    fitting = sorted((member for member in left if spec.fits(member)), key=lambda member: natural(member.name))
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
    """The name itself, or with a number when another wave has it: waves are stopped at by name."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts node-9 before node-10."""
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name))
