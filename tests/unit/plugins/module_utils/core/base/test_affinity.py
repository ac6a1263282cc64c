# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Required node-affinity terms: the table was checked against Kubernetes 1.36's own Go packages."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import affinity, names

TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
OTHER = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}


def expressions(*found: tuple[str, str, list[str]]) -> list[dict[str, t.Any]]:
    return [{"key": key, "operator": operator, "values": values} for key, operator, values in found]


class TestIsMet:
    @pytest.mark.parametrize(
        ("node_selector", "expected"),
        [
            (None, True),
            ({}, False),
            ({"nodeSelectorTerms": None}, False),
            ({"nodeSelectorTerms": []}, False),
            ({"nodeSelectorTerms": [{}]}, False),
            ({"nodeSelectorTerms": [{"matchExpressions": [], "matchFields": None}]}, False),
            ({"nodeSelectorTerms": [{}, {"matchExpressions": expressions(("zone", "In", ["a"]))}]}, True),
            ({"nodeSelectorTerms": [{"matchExpressions": expressions(("zone", "In", ["b"]))}]}, False),
            (
                {
                    "nodeSelectorTerms": [
                        {"matchExpressions": expressions(("zone", "In", ["a"]), ("gpu", "Exists", []))}
                    ]
                },
                False,
            ),
            (
                {
                    "nodeSelectorTerms": [
                        {"matchExpressions": expressions(("gpu", "Exists", []))},
                        {"matchExpressions": expressions(("gpu", "DoesNotExist", []))},
                    ]
                },
                True,
            ),
            ({"nodeSelectorTerms": [{"matchFields": expressions(("metadata.name", "In", ["n1"]))}]}, True),
            ({"nodeSelectorTerms": [{"matchFields": expressions(("metadata.name", "In", ["n2"]))}]}, False),
            ({"nodeSelectorTerms": [{"matchFields": expressions(("metadata.name", "NotIn", ["n1"]))}]}, False),
            ({"nodeSelectorTerms": [{"matchFields": expressions(("metadata.name", "NotIn", ["n2"]))}]}, True),
            (
                {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": expressions(("metadata.name", "In", ["n1"])),
                            "matchExpressions": expressions(("zone", "In", ["b"])),
                        }
                    ]
                },
                False,
            ),
            # A label cannot stand in for a field.
            ({"nodeSelectorTerms": [{"matchExpressions": expressions(("metadata.name", "Exists", []))}]}, False),
        ],
    )
    def test_terms_are_met_as_in_kubernetes(self, node_selector: dict[str, t.Any] | None, expected: bool) -> None:
        required = {"nodeAffinity": {names.REQUIRED_AFFINITY: node_selector}}
        assert affinity.is_met(affinity.required_terms(required), {"zone": "a"}, "n1") is expected


class TestTerms:
    @pytest.mark.parametrize(
        "without",
        [None, {}, {"nodeAffinity": None}, {"nodeAffinity": PREFERRED}, {"podAffinity": {}, "nodeAffinity": PREFERRED}],
    )
    def test_terms_put_in_are_read_and_taken_out_again(self, without: dict[str, t.Any] | None) -> None:
        before = copy.deepcopy(without)
        with_terms = affinity.with_required_terms(without, [TERM, OTHER])
        assert affinity.required_terms(without) is None
        assert affinity.required_terms(with_terms) == [TERM, OTHER]
        left = affinity.without_required_terms(with_terms)
        assert left == {key: value for key, value in (without or {}).items() if value is not None}
        assert without == before

    def test_new_terms_replace_the_old_ones(self) -> None:
        with_terms = affinity.with_required_terms({"nodeAffinity": PREFERRED}, [TERM])
        assert affinity.with_required_terms(with_terms, [OTHER]) == {
            "nodeAffinity": {**PREFERRED, names.REQUIRED_AFFINITY: {"nodeSelectorTerms": [OTHER]}}
        }

    def test_requirements_are_added_behind_those_of_the_term(self) -> None:
        (added,) = expressions(("gpu", "Exists", []))
        assert affinity.with_requirements(TERM, [added]) == {"matchExpressions": [*TERM["matchExpressions"], added]}
        assert affinity.with_requirements(OTHER, [added]) == {**OTHER, "matchExpressions": [added]}
