# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a VM gets the launcher image and the nodes that it gets: pool by pool, criterion by criterion."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import matching, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import Placement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.matching import Asked, Criterion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import Term
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node

State = t.Literal["wins", "matches", "no match", "not active", "no selector"]

STOCK = "KubeVirt's own launcher image"

_MOST_NAMES = 20
_MOST_LOSERS = 30
"""Of pools that do not match so many are shown to people; the data has all."""


@dataclass(frozen=True)
class Answer:
    """What one pool says of a VM. ``criteria`` begin with the restriction to namespaces, where there is one."""

    pool: str
    state: State
    why: str
    criteria: tuple[Criterion, ...] = ()

    def to_dict(self) -> dict[str, t.Any]:
        criteria = [criterion.to_dict() for criterion in self.criteria]
        return {"pool": self.pool, "state": self.state, "why": self.why, "criteria": criteria}


@dataclass(frozen=True)
class Nodes:
    """The nodes that a launcher pod may go to, and why not to the others: reason and names, the most frequent first."""

    fit: tuple[str, ...]
    unfit: tuple[tuple[str, tuple[str, ...]], ...]

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "count": len(self.fit),
            "names": list(self.fit[:_MOST_NAMES]),
            "against": [
                {"reason": reason, "count": len(found), "names": list(found[:_MOST_NAMES])}
                for reason, found in self.unfit
            ],
        }

    def __str__(self) -> str:
        if self.fit:
            return f"{len(self.fit)} node(s) fit: {listed(self.fit)}"
        if not self.unfit:
            return "no node is known"
        return "no node fits: " + "; ".join(f"{len(found)} because {reason}" for reason, found in self.unfit)


@dataclass(frozen=True)
class Explanation:
    """Which pool a launcher pod belongs to, and what follows from it.

    ``pool`` is ``primary`` where none takes the VM. ``image`` is None for KubeVirt's own that is not known here.
    ``nodes`` is None where nobody asked.
    """

    asked: Asked
    answers: tuple[Answer, ...]
    pool: str
    own_image: bool
    image: str | None
    requirement: str | None
    nodes: Nodes | None = None

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "asked": {
                "namespace": self.asked.namespace,
                "devices": sorted(self.asked.devices),
                "labels": dict(self.asked.labels),
                "node_selector": dict(self.asked.node_selector),
            },
            "pools": [answer.to_dict() for answer in self.answers],
            "pool": self.pool,
            "image": self.image or STOCK,
            "requirement": self.requirement,
            "nodes": None if self.nodes is None else self.nodes.to_dict(),
        }

    def lines(self) -> list[str]:
        """The same for a person."""
        return [
            "Its launcher pod asks for:",
            *(f"  {line}" for line in _asked_lines(self.asked)),
            "Pools, of which the first that matches wins:",
            *(f"  {line}" for line in _answer_lines(self.answers)),
            f"Result: {self.result()}",
        ]

    def same_pools(self, other: Explanation) -> bool:
        """Whether every pool answers the same, for the same reasons."""
        return self.answers == other.answers

    def result(self) -> str:
        """Pool, image and nodes as one sentence."""
        owner = f"pool {self.pool} wins" if self.pool != names.PRIMARY else "no pool takes it"
        image = f"{STOCK} {self.image or ''}".rstrip() if self.own_image else str(self.image)
        where = "any node" if self.requirement is None else f"nodes with {self.requirement}"
        fit = "" if self.nodes is None else f"; {self.nodes}"
        return f"{owner}: {image} on {where}{fit}."


def explain(
    table: Table,
    asked: Asked,
    *,
    pools: t.Iterable[Pool] = (),
    stock_image: str | None = None,
    placement: Placement | None = None,
    nodes: t.Mapping[str, Node] | None = None,
    places: bool = True,
) -> Explanation:
    """Why this table gives a launcher pod what it gives it.

    :param pools: all there are, those that are not in the table included.
    :param placement: what the pod asks of its node without the table's requirement; with ``nodes``, it says which fit.
    :param places: whether the table leads pods to nodes, too; kubevirt-aie-webhook only changes the image.
    """
    winner = matching.winner(table, asked)
    first = winner.name if winner is not None else names.PRIMARY
    mapped = {rule.name for rule in table.rules}
    others = [pool for pool in pools if pool.name not in mapped]
    requirement = table.requirement(winner) if table.needed and places else None
    found = None
    if placement is not None and nodes is not None:
        if requirement is not None:
            placement = placement.with_pool(requirement, winner.tolerations if winner is not None else ())
        found = fitting(placement, asked, nodes)
    own_image = winner is None or winner.virt_launcher_image is None
    return Explanation(
        asked=asked,
        answers=(*_ruled(table, asked, first), *(_unmapped(pool, asked) for pool in others)),
        pool=first,
        own_image=own_image,
        image=(winner and winner.virt_launcher_image) or stock_image,
        requirement=None if requirement is None else matching.words(Term((requirement,))),
        nodes=found,
    )


def fitting(placement: Placement, asked: Asked, nodes: t.Mapping[str, Node]) -> Nodes:
    """The nodes that a launcher pod may go to: labels, taints and devices; how much of each is free is not known."""
    devices = sorted(device for device in asked.devices if "/" in device and not _of_kubevirt(device))
    fit, unfit = [], dict[str, list[str]]()
    for node in nodes.values():
        reason = placement.unfit(node)
        missing = [device for device in devices if not node.devices.get(device)]
        if reason is None and missing:
            reason = f"the node offers no {listed(missing)}"
        if reason is None:
            fit.append(node.name)
        else:
            unfit.setdefault(reason, []).append(node.name)
    grouped = sorted(((reason, tuple(sorted(found))) for reason, found in unfit.items()), key=lambda g: (-len(g[1]), g))
    return Nodes(tuple(sorted(fit)), tuple(grouped))


# Pool by pool -------------------------------------------------------------------------------------------------------


def _ruled(table: Table, asked: Asked, first: str) -> t.Iterator[Answer]:
    """The answers of the pools in the table, of which ``first`` wins."""
    for rule in table.rules:
        criteria = _criteria(rule, asked)
        if rule.name == first:
            yield Answer(rule.name, "wins", f"it is the first that matches{_as_canary(table, rule, asked)}", criteria)
        elif matching.matches(rule, asked):
            yield Answer(rule.name, "matches", f"but pool {first} comes first", criteria)
        else:
            yield Answer(rule.name, "no match", _missing(rule, asked), criteria)


def _as_canary(table: Table, rule: Pool, asked: Asked) -> str:
    if not matching.is_canary(table, rule, asked):
        return ""
    return f", and the label {names.CANARY_LABEL} gives the VM its new launcher image before other VMs get it"


def _unmapped(pool: Pool, asked: Asked) -> Answer:
    """The answer of a pool that takes no VM."""
    if pool.selector is None:
        return Answer(pool.name, "no selector", "it changes the handler of its nodes, and takes no VM by itself")
    would = "it would match" if matching.matches(pool, asked) else "it would not match either"
    return Answer(
        pool.name, "not active", f"the launcher policy does not map it, or not yet; {would}", _criteria(pool, asked)
    )


def _criteria(pool: Pool, asked: Asked) -> tuple[Criterion, ...]:
    namespaces = matching.namespace_criterion(pool, asked)
    return (*((namespaces,) if namespaces is not None else ()), *matching.criteria(pool, asked))


def _missing(rule: Pool, asked: Asked) -> str:
    namespaces = matching.namespace_criterion(rule, asked)
    if namespaces is not None and not namespaces.met:
        return "it does not take VMs of this namespace"
    return "no criterion is met"


# For people ---------------------------------------------------------------------------------------------------------


def _asked_lines(asked: Asked) -> t.Iterator[str]:
    """What the owner of the VM decides; what KubeVirt adds to every pod would only hide it."""
    devices = sorted(device for device in asked.devices if "/" in device and not _of_kubevirt(device))
    yield f"namespace {asked.namespace}{_labelled(asked.namespace_labels)}"
    yield f"devices: {', '.join(devices) or 'none'}"
    yield f"labels: {_pairs(asked.labels) or 'none of its own'}"
    yield f"nodeSelector: {_pairs(asked.node_selector) or 'none of its own'}"


def _labelled(labels: t.Mapping[str, str]) -> str:
    found = _pairs({key: value for key, value in labels.items() if key != "kubernetes.io/metadata.name"})
    return f" ({found})" if found else ""


def _pairs(labels: t.Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()) if not _of_kubevirt(key))


def _of_kubevirt(key: str) -> bool:
    """Whether a label or device is KubeVirt's own."""
    domain = key.partition("/")[0]
    return domain == "kubevirt.io" or domain.endswith(".kubevirt.io")


def _answer_lines(answers: t.Sequence[Answer]) -> list[str]:
    lines, left_out = [], 0
    for number, answer in enumerate(answers, 1):
        if answer.state == "no match" and number > _MOST_LOSERS:
            left_out += 1
            continue
        order = f"{number}." if answer.state in ("wins", "matches", "no match") else "-"
        state = "WINS" if answer.state == "wins" else answer.state
        lines.append(f"{order} {answer.pool}: {state}, {answer.why}")
        lines += [f"     {_criterion(criterion)}" for criterion in answer.criteria]
    if left_out:
        lines.append(f"and {left_out} more pools that do not match")
    return lines or ["there are none"]


def _criterion(criterion: Criterion) -> str:
    mark = "yes" if criterion.met else "no"
    return f"{mark}: {criterion.field} asks for {criterion.wanted}; the VM has {criterion.found}"
