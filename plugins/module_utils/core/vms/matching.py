# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which pool a launcher pod belongs to, and why."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base import names
from ..pools.criteria import PodAttributes
from ..pools.model import Pool
from .mapping import Table


@dataclass(frozen=True)
class CriterionResult:
    """Whether a VM meets a criterion of a pool's selector, or its restriction to namespaces, and why."""

    field: str
    """Its place in our form."""
    met: bool
    wanted: str
    """What is wanted, in words."""
    found: str
    """What the VM has of that, in words."""

    def to_dict(self) -> dict[str, t.Any]:
        return {"field": self.field, "met": self.met, "wanted": self.wanted, "found": self.found}


def winner(table: Table, attributes: PodAttributes) -> Pool | None:
    """The first rule that matches. To a canary VM it gives the new launcher image, before other VMs get that."""
    rule = next((rule for rule in table.candidates(attributes) if matches(rule, attributes)), None)
    if rule is not None and is_canary(table, rule, attributes):
        return replace(rule, virt_launcher_image=table.canaries[rule.name])
    return rule


def is_canary(table: Table, winner: Pool, attributes: PodAttributes) -> bool:
    """Whether a VM that this pool wins gets the pool's new launcher image before it is in effect."""
    return winner.name in table.canaries and attributes.labels.get(names.CANARY_LABEL) == winner.name


def matches(pool: Pool, attributes: PodAttributes) -> bool:
    """Whether a pool's selector takes a VM: its namespace is among the pool's, and it meets any criterion."""
    in_namespaces = pool.namespaces is None or pool.namespaces.met(attributes)
    return in_namespaces and any(criterion.met(pool.selection, attributes) for criterion in pool.criteria)


def criteria(pool: Pool, attributes: PodAttributes) -> tuple[CriterionResult, ...]:
    """The results of every criterion that the pool has, any of which is enough."""
    own = pool.selection
    return tuple(
        CriterionResult(c.path, c.met(own, attributes), c.wanted(own), c.present(own, attributes))
        for c in pool.criteria
    )


def namespace_criterion(pool: Pool, attributes: PodAttributes) -> CriterionResult | None:
    """The result of the restriction to namespaces, which must be met besides; None where the pool has none."""
    own = pool.namespaces
    if own is None:
        return None
    return CriterionResult(own.path, own.met(attributes), own.wanted(), attributes.namespace)
