# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Epochs let a running VM stay on a node that got another owner since the VM started.

A kubelet that starts ends pods whose required node affinity does not fit its node (Kubernetes, ``predicateAdmitHandler``).
So every term that asks for an owner has a second one beside it, which a node fits that the owner left after the pod was
admitted. docs/design/epochs.md explains this.
"""

from __future__ import annotations

import typing as t

from . import names
from .objects import KubeObject
from .selectors import Requirement, integer


def until_label(owner: str) -> str:
    """The label of a node that this owner has left; its value is the epoch in which it did. VMs of no pool are
    treated as those of ``primary``."""
    return names.UNTIL_PREFIX + owner


def stay_requirement(owner: str, epoch: int) -> Requirement:
    """What a node fulfils that this owner left after ``epoch``, so that VMs which the owner had then may stay."""
    return Requirement(until_label(owner), "Gt", (str(epoch),))


def is_stay_term(term: KubeObject) -> bool:
    """Whether a node-affinity term is the second one of a launcher pod, which only lets it stay where it is."""
    return any(_is_until(expression["key"]) for expression in term.get("matchExpressions") or ())


def until_keys(term: KubeObject) -> set[str]:
    """The keys of the labels by which a stay term holds."""
    return {expression["key"] for expression in term.get("matchExpressions") or () if _is_until(expression["key"])}


def stay_epochs(term: KubeObject) -> set[int]:
    """The epochs by which a stay term holds."""
    own = (each for each in term.get("matchExpressions") or () if _is_until(each["key"]))
    return {integer(value) or 0 for expression in own for value in expression.get("values") or ()}


def until_labels(labels: t.Mapping[str, str]) -> dict[str, str]:
    """The labels of a node that say until when owners had it."""
    return {key: value for key, value in labels.items() if _is_until(key)}


def newest(labels: t.Mapping[str, str]) -> int:
    """The newest epoch in the labels of a node; 0 when they name none."""
    return max((integer(value) or 0 for value in until_labels(labels).values()), default=0)


def _is_until(key: str) -> bool:
    return key.startswith(names.UNTIL_PREFIX)
