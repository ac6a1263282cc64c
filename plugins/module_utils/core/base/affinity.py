# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The required terms of a node affinity: reading them, replacing them, and whether a node meets them.

An affinity is the field ``affinity`` of a pod's spec, a VMI's spec or a nodePlacement.
"""

from __future__ import annotations

import typing as t

from . import names
from .objects import KubeObject, Object, field
from .selectors import Requirement


def required_terms(affinity: t.Any) -> list[Object] | None:
    """The terms of which a node must meet one; None when the affinity requires nothing."""
    required = field(affinity, "nodeAffinity", names.REQUIRED_AFFINITY)
    return None if required is None else list(required.get("nodeSelectorTerms") or ())


def with_required_terms(affinity: KubeObject | None, terms: t.Iterable[KubeObject]) -> Object:
    """The affinity with these required terms instead of its own; the rest of it stays."""
    rest = dict(affinity or {})
    node_affinity = rest.pop("nodeAffinity", None) or {}
    required = {**(node_affinity.get(names.REQUIRED_AFFINITY) or {}), "nodeSelectorTerms": list(terms)}
    return {**rest, "nodeAffinity": {**node_affinity, names.REQUIRED_AFFINITY: required}}


def without_required_terms(affinity: KubeObject) -> Object:
    """The affinity without required terms and without fields that held nothing else; empty when nothing is left."""
    rest = dict(affinity)
    node_affinity = dict(rest.pop("nodeAffinity", None) or {})
    node_affinity.pop(names.REQUIRED_AFFINITY, None)
    return {**rest, "nodeAffinity": node_affinity} if node_affinity else rest


def with_requirements(term: KubeObject, added: t.Iterable[KubeObject]) -> Object:
    """The term with further requirements on a node's labels."""
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *added]}


def is_met(terms: t.Iterable[KubeObject] | None, labels: t.Mapping[str, str], node_name: str) -> bool:
    """Whether required terms allow a pod on the node.

    ``nodeaffinity.NodeSelector.Match``: terms are ORed; a term without any requirement matches no node; no required
    terms at all (None) match every node. The only field is ``metadata.name``.
    """
    if terms is None:
        return True
    fields = {"metadata.name": node_name}
    return any(_term_matches(term, labels, fields) for term in terms)


def _term_matches(term: KubeObject | None, labels: t.Mapping[str, str], fields: t.Mapping[str, str]) -> bool:
    expressions = (term or {}).get("matchExpressions") or ()
    field_expressions = (term or {}).get("matchFields") or ()
    if not expressions and not field_expressions:
        return False
    return all(Requirement.from_object(e).matches(labels) for e in expressions) and all(
        Requirement.from_object(e).matches(fields) for e in field_expressions
    )
