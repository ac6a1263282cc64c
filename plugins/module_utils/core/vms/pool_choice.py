# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Explains why a VM gets its launcher image and its nodes: pool by pool, criterion by criterion."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..base import names
from ..base.findings import counted, listed
from ..base.selectors import Requirement, Term
from ..kubevirt.image_contents import Contents
from ..observed.nodes import Node
from ..pools.criteria import PodAttributes
from ..pools.model import Pool
from . import matching
from .launcher_pods import PodPlacement
from .mapping import Table
from .matching import CriterionResult
from .node_fit import NodeFit, Room

AnswerState = t.Literal["wins", "matches", "no match", "not active", "no selector"]

STOCK = "KubeVirt's own launcher image"

_MOST_NAMES = 20
_MOST_LOSERS = 30
"""Maximum number of non-matching pools in the text; the data lists all."""


@dataclass(frozen=True)
class Answer:
    """Whether one pool takes a VM, and why. The restriction to namespaces, if any, is the first of ``criteria``."""

    pool: str
    state: AnswerState
    why: str
    criteria: tuple[CriterionResult, ...] = ()

    def to_dict(self) -> dict[str, t.Any]:
        criteria = [criterion.to_dict() for criterion in self.criteria]
        return {"pool": self.pool, "state": self.state, "why": self.why, "criteria": criteria}


@dataclass(frozen=True)
class Nodes:
    """The nodes that a launcher pod can go to (``fit``), and the others by reason."""

    fit: tuple[str, ...]
    unfit: tuple[tuple[str, tuple[str, ...]], ...]
    """Reasons with the names of the nodes, the most frequent reason first."""

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "count": len(self.fit),
            "names": list(self.fit[:_MOST_NAMES]),
            "against": [
                {"reason": reason, "count": len(nodes), "names": list(nodes[:_MOST_NAMES])}
                for reason, nodes in self.unfit
            ],
        }

    def __str__(self) -> str:
        if self.fit:
            return f"{counted(len(self.fit), 'node fits', 'nodes fit')}: {listed(self.fit)}"
        if not self.unfit:
            return "no node is known"
        return "no node fits: " + "; ".join(f"{len(nodes)} because {reason}" for reason, nodes in self.unfit)


@dataclass(frozen=True)
class Explanation:
    """Which pool a launcher pod belongs to, and what follows from it."""

    attributes: PodAttributes
    answers: tuple[Answer, ...]
    pool: str
    """``primary`` when no pool takes the VM."""
    own_image: bool
    image: str | None
    """None when it is KubeVirt's own and not known here."""
    hypervisor: str | None
    """That of the pool; None when it is that of KubeVirt's configuration."""
    requirement: str | None
    """The table's requirement on the node's owner label, in words."""
    nodes: Nodes | None = None
    """None if not asked for."""
    contents: str = ""
    """What the image contains, in words; empty when no run looked into it."""
    advice: str = ""
    """What helps where the VM itself asks for nodes of another owner only; empty where it does not."""

    def to_dict(self) -> dict[str, t.Any]:
        return {
            "asked": {
                "namespace": self.attributes.namespace,
                "devices": sorted(self.attributes.devices),
                "labels": dict(self.attributes.labels),
                "node_selector": dict(self.attributes.node_selector),
            },
            "pools": [answer.to_dict() for answer in self.answers],
            "pool": self.pool,
            "image": self.image or STOCK,
            "image_contents": self.contents,
            "hypervisor": self.hypervisor,
            "requirement": self.requirement,
            "nodes": None if self.nodes is None else self.nodes.to_dict(),
            "advice": self.advice,
        }

    def lines(self) -> list[str]:
        """The explanation for a person, line by line."""
        return [
            "Its launcher pod asks for:",
            *(f"  {line}" for line in _attribute_lines(self.attributes)),
            "Pools (the first that matches wins):",
            *(f"  {line}" for line in _answer_lines(self.answers)),
            f"Result: {self.result()}",
            *([f"Advice: {self.advice}"] if self.advice else ()),
        ]

    def result(self) -> str:
        """Pool, image, hypervisor and nodes as one sentence."""
        owner = f"pool {self.pool} wins" if self.pool != names.PRIMARY else "no pool takes it"
        image = f"{STOCK} {self.image or ''}".rstrip() if self.own_image else str(self.image)
        image += f" ({self.contents})" if self.contents else ""
        image += f" with {self.hypervisor}" if self.hypervisor else ""
        where = "any node" if self.requirement is None else f"nodes with {self.requirement}"
        fit = "" if self.nodes is None else f"; {self.nodes}"
        return f"{owner}: {image} on {where}{fit}."


@dataclass(frozen=True)
class Rules:
    """What decides about launcher pods."""

    table: Table
    pools: tuple[Pool, ...] = ()
    """All pools, also those that the table does not map."""
    stock_image: str | None = None
    places: bool = True
    """Whether the launcher policy sends pods to nodes; kubevirt-aie-webhook only changes the image."""
    by_node_labels: bool = False
    """Whether it does so by the labels of the pool's nodes."""
    contents: t.Mapping[str, Contents] = field(default_factory=dict)
    """What images contain, where a run has looked into them."""

    def requirements(self, winner: Pool | None) -> tuple[Requirement, ...]:
        """What a launcher pod then requires of its node."""
        if not self.table.needed or not self.places:
            return ()
        if self.by_node_labels:
            return () if winner is None else Term.from_labels(winner.node_selector).requirements
        return (self.table.requirement(winner),)


def explain(
    rules: Rules,
    attributes: PodAttributes,
    placement: PodPlacement | None = None,
    nodes: t.Mapping[str, Node] | None = None,
) -> Explanation:
    """Explain what these rules give a launcher pod.

    :param placement: what the pod asks of its node without the table's requirement; with ``nodes``, it says which fit.
    """
    table = rules.table
    winner = matching.winner(table, attributes)
    owner = winner.name if winner is not None else names.PRIMARY
    mapped = {rule.name for rule in table.rules}
    unmapped = [pool for pool in rules.pools if pool.name not in mapped]
    requirements = rules.requirements(winner)
    fitting, advice = None, ""
    if placement is not None and nodes is not None:
        # Where KubeVirt itself makes the pools, a pod does not show what its VM asks for, and what KubeVirt added.
        if requirements and not rules.by_node_labels:
            advice = _advice(owner, NodeFit(table, nodes.values()).room(placement, winner))
        tolerations = winner.tolerations if winner is not None else ()
        for requirement in requirements:
            placement = placement.with_pool(requirement, tolerations)
            tolerations = ()
        fitting = fitting_nodes(placement, attributes, nodes)
    image = (winner and winner.virt_launcher_image) or rules.stock_image
    return Explanation(
        attributes=attributes,
        answers=(
            *_mapped_answers(table, attributes, owner),
            *(_unmapped_answer(pool, attributes, rules) for pool in unmapped),
        ),
        pool=owner,
        own_image=winner is None or winner.virt_launcher_image is None,
        image=image,
        hypervisor=winner.hypervisor if winner is not None else None,
        requirement=", ".join(map(str, requirements)) or None,
        nodes=fitting,
        contents=str(rules.contents.get(image or "", "")),
        advice=advice,
    )


def _advice(owner: str, room: Room) -> str:
    """What helps a VM that itself asks for nodes of other owners only; empty for any other."""
    if room.remedy != "change placement":
        return ""
    pools = [other for other in room.elsewhere if other != names.PRIMARY]
    give = f"give such a node to pool {owner}" if owner != names.PRIMARY else "take such a node out of its pool"
    let = (
        f"let the selector of pool {' or '.join(pools)} match the VM"
        if pools
        else "let no pool's selector match the VM"
    )
    allow = f", or set unmatched: allow for pool {' or '.join(pools)}" if owner == names.PRIMARY else ""
    return (
        f"The VM itself asks, by its nodeSelector, node affinity or tolerations, for nodes that only {listed(room.elsewhere)} has. "
        f"Change that in the VM; or {give}; or {let}{allow}."
    )


def fitting_nodes(placement: PodPlacement, attributes: PodAttributes, nodes: t.Mapping[str, Node]) -> Nodes:
    """The nodes that a launcher pod can go to by labels, taints and devices; how many devices are free is not known."""
    fit, unfit = [], dict[str, list[str]]()
    for node in nodes.values():
        reason = placement.unfit(node)
        if reason is None and (missing := missing_devices(attributes, node)):
            reason = f"the node offers no {listed(missing)}"
        if reason is None:
            fit.append(node.name)
        else:
            unfit.setdefault(reason, []).append(node.name)
    grouped = sorted(((reason, tuple(sorted(group))) for reason, group in unfit.items()), key=lambda g: (-len(g[1]), g))
    return Nodes(tuple(sorted(fit)), tuple(grouped))


def missing_devices(attributes: PodAttributes, node: Node) -> list[str]:
    """The devices that a launcher pod asks for and the node does not have, not even taken ones."""
    return [device for device in _devices(attributes) if not node.devices.get(device)]


def _devices(attributes: PodAttributes) -> list[str]:
    """The devices that the VM's owner decides on: KubeVirt gives every pod its own."""
    return sorted(device for device in attributes.devices if "/" in device and not _of_kubevirt(device))


# Pool by pool -------------------------------------------------------------------------------------------------------


def _mapped_answers(table: Table, attributes: PodAttributes, winner: str) -> t.Iterator[Answer]:
    """The answers of the pools in the table."""
    for rule in table.rules:
        criteria = _criteria(rule, attributes)
        if rule.name == winner:
            why = f"it is the first that matches{_as_canary(table, rule, attributes)}"
            yield Answer(rule.name, "wins", why, criteria)
        elif matching.matches(rule, attributes):
            yield Answer(rule.name, "matches", f"but pool {winner} comes first", criteria)
        else:
            yield Answer(rule.name, "no match", _why_no_match(rule, attributes), criteria)


def _as_canary(table: Table, rule: Pool, attributes: PodAttributes) -> str:
    if not matching.is_canary(table, rule, attributes):
        return ""
    return f", and the label {names.CANARY_LABEL} gives the VM its new launcher image before other VMs get it"


def _unmapped_answer(pool: Pool, attributes: PodAttributes, rules: Rules) -> Answer:
    """The answer of a pool that takes no VM."""
    if pool.selector is None:
        return Answer(pool.name, "no selector", "it changes the handler of its nodes, and takes no VM by itself")
    unused = (
        "KubeVirt does not use it now" if rules.by_node_labels else "the launcher policy does not map it, or not yet"
    )
    would = "it would match" if matching.matches(pool, attributes) else "it would not match either"
    return Answer(
        pool.name,
        "not active",
        f"{unused}; {would}",
        _criteria(pool, attributes),
    )


def _criteria(pool: Pool, attributes: PodAttributes) -> tuple[CriterionResult, ...]:
    namespaces = matching.namespace_criterion(pool, attributes)
    return (*((namespaces,) if namespaces is not None else ()), *matching.criteria(pool, attributes))


def _why_no_match(rule: Pool, attributes: PodAttributes) -> str:
    namespaces = matching.namespace_criterion(rule, attributes)
    if namespaces is not None and not namespaces.met:
        return "it does not take VMs of this namespace"
    return "no criterion is met"


# For people ---------------------------------------------------------------------------------------------------------


def _attribute_lines(attributes: PodAttributes) -> t.Iterator[str]:
    """What the VM's owner decides, without what KubeVirt adds to every pod."""
    yield f"namespace {attributes.namespace}{_labelled(attributes.namespace_labels)}"
    yield f"devices: {', '.join(_devices(attributes)) or 'none'}"
    yield f"labels: {_pairs(attributes.labels) or 'none of its own'}"
    yield f"nodeSelector: {_pairs(attributes.node_selector) or 'none of its own'}"


def _labelled(labels: t.Mapping[str, str]) -> str:
    pairs = _pairs({key: value for key, value in labels.items() if key != "kubernetes.io/metadata.name"})
    return f" ({pairs})" if pairs else ""


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


def _criterion(criterion: CriterionResult) -> str:
    mark = "yes" if criterion.met else "no"
    return f"{mark}: {criterion.field} asks for {criterion.wanted}; the VM has {criterion.found}"
