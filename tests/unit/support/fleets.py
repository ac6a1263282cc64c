# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random clusters and pool lists for property tests, with an oracle for who should own a node."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

SETTINGS = settings(max_examples=60, deadline=None)
"""No deadline: an example makes a whole plan, which takes long on a busy machine."""

KEYS = ("hw", "disk")
VALUES = ("a", "b")
POOLS = ("p1", "p2", "p3")
KEPT = ("k1", "k2")
TAINT = {"key": "special", "effect": "NoSchedule"}
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True)
class Fleet:
    """Nodes as the API serves them, the listed pools, and the names of pools that exist but are no longer listed."""

    nodes: list
    pools: list
    kept: list


def expected_owner(node, pools, kept):
    """Who should own a node by docs/: the first pool that matches, else the kept pool that has it, else the primary."""
    labels = node["metadata"]["labels"]
    for pool in pools:
        if all(labels.get(key) == value for key, value in pool.node_selector.items()) and all(
            _holds(expression, labels) for expression in pool.node_expressions
        ):
            return pool.name
    owner = labels.get(names.OWNER_LABEL)
    if owner == names.IN_TRANSIT:
        owner = node["metadata"].get("annotations", {}).get(names.FORMER_OWNER_ANNOTATION)
    return owner if owner in kept else names.PRIMARY


def _holds(expression, labels):
    value = labels.get(expression.key)
    if expression.operator == "In":
        return value in expression.values
    if expression.operator == "NotIn":
        return value is None or value not in expression.values
    return (value is not None) == (expression.operator == "Exists")


def _expressions():
    def with_values(operator):
        values = st.just([]) if "xist" in operator else st.lists(st.sampled_from(VALUES), min_size=1, unique=True)
        return st.builds(
            lambda key, chosen: {"key": key, "operator": operator, **({"values": chosen} if chosen else {})},
            st.sampled_from(KEYS),
            values,
        )

    return st.sampled_from(OPERATORS).flatmap(with_values)


@st.composite
def _pools(draw, name):
    selector = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=1))
    fields = {}
    # Only keys that nodeSelector does not use, so that the two do not contradict each other.
    free = [e for e in draw(st.lists(_expressions(), max_size=1)) if e["key"] not in selector]
    if free:
        fields["nodeExpressions"] = free
    return builders.pool(name, nodeSelector=selector, **fields)


@st.composite
def _nodes(draw, name):
    owner = draw(st.sampled_from([None, None, *POOLS, *KEPT, names.IN_TRANSIT, "ghost", ""]))
    return builders.node(
        name,
        owner=owner,
        former=draw(st.sampled_from([None, None, names.PRIMARY, *POOLS, *KEPT, "ghost"])),
        labels=draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))),
        ready=draw(st.sampled_from([True, True, True, False])),
        taints=draw(st.sampled_from([(), (), (TAINT,)])),
    )


@st.composite
def fleets(draw):
    """Any mixture of nodes: handed over, half handed over, dead, tainted, owned by pools that no longer exist."""
    chosen = draw(st.lists(st.sampled_from(POOLS), unique=True, min_size=1))
    return Fleet(
        nodes=[draw(_nodes(f"n{index}")) for index in range(draw(st.integers(0, 8)))],
        pools=[draw(_pools(name)) for name in chosen],
        kept=draw(st.lists(st.sampled_from(KEPT), unique=True)),
    )
