# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selectors, taints and syntax: the tables were checked against Kubernetes 1.36's own Go packages."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.selectors import (
    NODE_OPERATORS,
    Operator,
    Requirement,
    Term,
    TermIndex,
    device_name_problem,
    dns_label_problem,
    example_labels,
    integer,
    label_key_problem,
    label_value_problem,
    subdomain_problem,
    tolerates,
    untolerated,
)

MAX_INT64 = "9223372036854775807"


class TestRequirement:
    @pytest.mark.parametrize(
        ("operator", "values", "value", "expected"),
        [
            ("In", ("a", "b"), "b", True),
            ("In", ("a", "b"), "c", False),
            ("In", ("a",), None, False),
            ("In", (), "a", False),
            ("In", ("",), "", True),
            ("NotIn", ("a",), "a", False),
            ("NotIn", ("a",), "b", True),
            ("NotIn", ("a",), None, True),
            ("Exists", (), "", True),
            ("Exists", (), None, False),
            ("DoesNotExist", (), "", False),
            ("DoesNotExist", (), None, True),
            ("Gt", ("5",), "6", True),
            ("Gt", ("5",), "5", False),
            ("Gt", ("5",), None, False),
            ("Gt", ("5",), "six", False),
            ("Gt", ("5",), "", False),
            ("Gt", ("five",), "6", False),
            ("Gt", (), "6", False),
            ("Gt", ("1", "2"), "6", False),
            ("Gt", ("5",), "007", True),
            ("Gt", ("5",), MAX_INT64, True),
            ("Gt", ("5",), "9223372036854775808", False),
            ("Lt", ("5",), "4", True),
            ("Lt", ("5",), "5", False),
            ("Lt", ("5",), "-1", True),
            ("Lt", ("5",), None, False),
            # Python takes these for integers, Go does not.
            ("Gt", ("5",), "1_0", False),
            ("Gt", ("5",), " 10", False),
            ("Gt", ("5",), "٩", False),
        ],
    )
    def test_matches(self, operator: Operator, values: tuple[str, ...], value: str | None, expected: bool) -> None:
        labels = {} if value is None else {"key": value}
        assert Requirement("key", operator, values).matches({**labels, "other": "5"}) is expected

    def test_the_order_of_values_has_no_meaning(self) -> None:
        one, other = Requirement("k", "In", ("b", "a", "b")), Requirement("k", "In", ("a", "b"))
        assert one == other
        assert one.to_object() == {"key": "k", "operator": "In", "values": ["a", "b"]}

    def test_there_and_back(self) -> None:
        for obj in ({"key": "k", "operator": "Exists"}, {"key": "k", "operator": "Gt", "values": ["5"]}):
            assert Requirement.from_object(obj).to_object() == obj


class TestTerm:
    def test_all_requirements_must_hold(self) -> None:
        term = Term((Requirement("a", "In", ("1",)), Requirement("b", "DoesNotExist")))
        assert term.matches({"a": "1"})
        assert not term.matches({"a": "1", "b": ""})
        assert not term.matches({})

    def test_without_requirements_it_matches_all(self) -> None:
        assert Term().matches({})

    def test_of_labels(self) -> None:
        assert Term.from_labels({"b": "2", "a": "1"}).to_object() == {
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["1"]},
                {"key": "b", "operator": "In", "values": ["2"]},
            ]
        }

    def test_is_made_of_a_label_selector(self) -> None:
        selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
        assert Term.from_selector(selector) == Term((Requirement("a", "In", ("b",)), Requirement("c", "Exists")))
        assert Term.from_selector({}).matches({})

    def test_the_order_of_requirements_has_no_meaning(self) -> None:
        first, second = Requirement("a", "Exists"), Requirement("b", "Exists")
        assert Term((second, first, second)) == Term((first, second))


class TestTaints:
    TAINT: t.ClassVar = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}

    @pytest.mark.parametrize(
        ("toleration", "expected"),
        [
            ({"key": "gpu", "value": "a100", "effect": "NoSchedule"}, True),
            ({"key": "gpu", "operator": "Equal", "value": "a100"}, True),
            ({"key": "gpu", "value": "h100"}, False),
            ({"key": "gpu"}, False),
            ({"key": "gpu", "operator": "Exists"}, True),
            ({"key": "gpu", "operator": "Exists", "effect": ""}, True),
            ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"key": "cpu", "operator": "Exists"}, False),
            ({"operator": "Exists"}, True),
            ({"key": "", "operator": "Exists", "effect": "NoSchedule"}, True),
            ({"operator": "Exists", "effect": "NoExecute"}, False),
            ({"key": "gpu", "operator": "exists"}, False),
            ({"key": "gpu", "operator": "Gt", "value": "1"}, False),
        ],
    )
    def test_tolerates(self, toleration: dict[str, str], expected: bool) -> None:
        assert tolerates([toleration], self.TAINT) is expected
        assert tolerates([{"key": "other"}, toleration], self.TAINT) is expected

    @pytest.mark.parametrize(
        ("operator", "bound", "value", "expected"),
        [
            ("Gt", "750", "900", True),
            ("Gt", "750", "750", False),
            ("Lt", "750", "-1", True),
            ("Lt", "750", "750", False),
            ("Gt", "750", "0900", False),
            ("Gt", "+7", "9", False),
            ("Gt", "7", "nine", False),
            ("Lt", "7", "", False),
            ("Gt", "7", "9223372036854775808", False),
        ],
    )
    def test_tolerates_by_comparison(self, operator: str, bound: str, value: str, expected: bool) -> None:
        toleration = {"key": "sla", "operator": operator, "value": bound}
        assert tolerates([toleration], {"key": "sla", "value": value, "effect": "NoSchedule"}) is expected
        assert not tolerates([toleration], {"key": "other", "value": value, "effect": "NoSchedule"})

    def test_a_taint_without_a_value(self) -> None:
        assert tolerates([{"key": "gpu"}], {"key": "gpu", "effect": "NoSchedule"})
        assert tolerates([{"key": "gpu", "value": ""}], {"key": "gpu", "effect": "NoSchedule", "value": None})

    def test_only_two_effects_keep_a_pod_off(self) -> None:
        taints = [{"key": effect, "effect": effect} for effect in ("NoSchedule", "PreferNoSchedule", "NoExecute")]
        assert untolerated([], taints) == [taints[0], taints[2]]
        assert untolerated(iter([{"key": "NoSchedule"}]), taints) == [taints[2]]
        assert untolerated([{"operator": "Exists"}], taints) == []


# example_labels -----------------------------------------------------------------------------------------------------

VALUES = ("", "0", "1", "3", "03", "4", "5", "05", "x", "y", "not valid", "-1")
BOUNDS = ("0", "2", "3", "5", "-1", "x")

values_of: dict[str, st.SearchStrategy[tuple[str, ...]]] = {
    "In": st.lists(st.sampled_from(VALUES), min_size=1, max_size=4).map(tuple),
    "NotIn": st.lists(st.sampled_from(VALUES), min_size=1, max_size=5).map(tuple),
    "Exists": st.just(()),
    "DoesNotExist": st.just(()),
    "Gt": st.sampled_from(BOUNDS).map(lambda bound: (bound,)),
    "Lt": st.sampled_from(BOUNDS).map(lambda bound: (bound,)),
}
requirements = st.sampled_from(NODE_OPERATORS).flatmap(
    lambda operator: st.builds(Requirement, st.sampled_from(("a", "b")), st.just(operator), values_of[operator])
)
terms = st.lists(requirements, max_size=4).map(lambda found: Term(tuple(found)))

labels = st.dictionaries(st.sampled_from(("a", "b", "c")), st.sampled_from(VALUES))


class TestTermIndex:
    @given(st.lists(terms, max_size=6), st.lists(labels, max_size=4))
    @settings(max_examples=500, deadline=None)
    def test_finds_what_asking_every_term_finds(self, found: list[Term], asked: list[dict[str, str]]) -> None:
        index = TermIndex({str(number): term for number, term in enumerate(found)})
        for each in asked:
            assert index.matching(each) == [str(number) for number, term in enumerate(found) if term.matches(each)]

    def test_asks_only_terms_that_could_match(self, monkeypatch: pytest.MonkeyPatch) -> None:
        index = TermIndex({f"{number}": Term.from_labels({"hw": f"{number}"}) for number in range(100)})
        asked = []
        matches = Term.matches
        monkeypatch.setattr(Term, "matches", lambda term, labels: asked.append(term) or matches(term, labels))
        assert index.matching({"hw": "7", "zone": "a"}) == ["7"]
        assert len(asked) == 1


EVERY_VALUE = sorted(
    {
        *(value for value in VALUES if label_value_problem(value) is None),
        *("z", "true"),
        # Every spelling of every number near the bounds.
        *(str(number).zfill(width) for number in range(8) for width in range(1, 64)),
        # More numbers and other values than can be forbidden.
        *(str(number) for number in range(8, 30)),
        *(f"v{number}" for number in range(30)),
    }
)


def satisfiable(found: t.Iterable[Term]) -> bool:
    """Brute force: keys do not depend on each other, so it is enough to try all values of each."""
    by_key: dict[str, list[Requirement]] = {}
    for term in found:
        for requirement in term.requirements:
            by_key.setdefault(requirement.key, []).append(requirement)
    candidates: list[dict[str, str]]
    for key, asked in by_key.items():
        candidates = [{}, *({key: value} for value in EVERY_VALUE)]
        if not any(all(requirement.matches(labels) for requirement in asked) for labels in candidates):
            return False
    return True


class TestExampleLabels:
    @given(st.lists(terms, max_size=3))
    @settings(max_examples=1000, deadline=None)
    def test_exact(self, found: list[Term]) -> None:
        labels = example_labels(*found)
        assert (labels is not None) is satisfiable(found)
        if labels is not None:
            assert all(term.matches(labels) for term in found)
            assert all(label_value_problem(value) is None for value in labels.values())

    @given(st.lists(terms, max_size=3))
    def test_the_order_of_terms_has_no_meaning(self, found: list[Term]) -> None:
        assert (example_labels(*found) is None) is (example_labels(*reversed(found)) is None)
        assert example_labels(*found) == example_labels(*found)

    @pytest.mark.parametrize(
        ("found", "expected"),
        [
            ([], {}),
            ([("a", "DoesNotExist", []), ("b", "NotIn", ["x"])], {}),
            ([("a", "Exists", [])], {"a": "true"}),
            ([("a", "Exists", []), ("a", "NotIn", ["true", "0"])], {"a": "1"}),
            ([("a", "In", ["y", "x"])], {"a": "x"}),
            ([("a", "In", ["y", "x"]), ("a", "NotIn", ["x"])], {"a": "y"}),
            ([("a", "In", ["x"]), ("a", "In", ["y"])], None),
            ([("a", "In", ["x"]), ("a", "DoesNotExist", [])], None),
            ([("a", "In", ["x"]), ("a", "Gt", ["1"])], None),
            ([("a", "In", ["1", "9"]), ("a", "Gt", ["5"])], {"a": "9"}),
            ([("a", "Gt", ["5"])], {"a": "6"}),
            ([("a", "Lt", ["5"])], {"a": "0"}),
            ([("a", "Gt", ["5"]), ("a", "Lt", ["7"])], {"a": "6"}),
            ([("a", "Gt", ["5"]), ("a", "Lt", ["6"])], None),
            # No integer in a valid label is negative.
            ([("a", "Lt", ["0"])], None),
            ([("a", "Gt", ["5"]), ("a", "Lt", ["7"]), ("a", "NotIn", ["6"])], {"a": "06"}),
            ([("a", "Gt", [MAX_INT64])], None),
            ([("a", "Gt", ["9223372036854775806"])], {"a": MAX_INT64}),
            ([("a", "Gt", ["six"])], None),
            # No node can have these.
            ([("a", "In", ["not valid"])], None),
            ([("not valid", "Exists", [])], None),
            ([("not valid", "DoesNotExist", [])], {}),
        ],
    )
    def test_examples(self, found: list[tuple[str, Operator, list[str]]], expected: dict[str, str] | None) -> None:
        term = Term(tuple(Requirement(key, operator, tuple(values)) for key, operator, values in found))
        assert example_labels(term) == expected

    def test_a_number_with_every_spelling_forbidden(self) -> None:
        spellings = tuple("6".zfill(width) for width in range(1, 64))
        six = (Requirement("a", "Gt", ("5",)), Requirement("a", "Lt", ("7",)))
        assert example_labels(Term((*six, Requirement("a", "NotIn", spellings)))) is None
        assert example_labels(Term((*six, Requirement("a", "NotIn", spellings[:-1])))) == {"a": spellings[-1]}

    def test_terms_are_taken_together(self) -> None:
        one, other = Term.from_labels({"a": "1", "b": "2"}), Term.from_labels({"a": "1", "c": "3"})
        assert example_labels(one, other) == {"a": "1", "b": "2", "c": "3"}
        assert example_labels(one, Term.from_labels({"b": "3"})) is None


# Syntax -------------------------------------------------------------------------------------------------------------


def test_integers_are_those_of_64_bits() -> None:
    assert integer("-9223372036854775808") == -(2**63)
    assert integer("-9223372036854775809") is None
    assert integer(MAX_INT64) == 2**63 - 1
    assert integer("+7") == 7
    assert integer("9" * 10_000_000) is None


@pytest.mark.parametrize(
    "key",
    [
        "a",
        "A.b_c-d",
        "9",
        "x" * 63,
        "example.com/a",
        "a.b-c.d/E",
        "a" * 253 + "/x",
        ".".join(["a"] * 127) + "/" + "x" * 63,
    ],
)
def test_valid_keys(key: str) -> None:
    assert label_key_problem(key) is None


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "is empty"),
        ("x" * 64, "64 characters"),
        ("-a", "letters, digits"),
        ("a-", "letters, digits"),
        ("a b", "letters, digits"),
        ("ä", "letters, digits"),
        ("a\n", "letters, digits"),
        ("/a", "nothing before the '/'"),
        ("a/", "after the '/' that is empty"),
        ("a/b/c", "more than one '/'"),
        ("Example.com/a", "before the '/' that is not a DNS name"),
        ("a..b/c", "before the '/'"),
        ("a" * 254 + "/c", "254 characters"),
        ("example.com/" + "x" * 64, "after the '/' that has 64 characters"),
    ],
)
def test_invalid_keys(key: str, problem: str) -> None:
    assert problem in (label_key_problem(key) or "")


def test_values() -> None:
    for value in ("", "a", "A_b.c-d", "0", "x" * 63):
        assert label_value_problem(value) is None
    for value in ("x" * 64, "-a", "a.", "a b", "a/b", "ä", "a\n"):
        assert label_value_problem(value) is not None


def test_names_of_objects() -> None:
    for name in ("a", "a.b", "a-b.c", "0", "a" * 253):
        assert subdomain_problem(name) is None
    for name in ("", "A", "a.", ".a", "a..b", "-a", "a_b", "a" * 254):
        assert subdomain_problem(name) is not None
    assert dns_label_problem("a-b") is None
    for name in ("", "a.b", "A", "a-", "a" * 64):
        assert dns_label_problem(name) is not None


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        (Requirement("a", "In", ("b",)), "a=b"),
        (Requirement("a", "In", ("c", "b")), "a in (b, c)"),
        (Requirement("a", "NotIn", ("b",)), "a not in (b)"),
        (Requirement("a", "Exists"), "a"),
        (Requirement("a", "DoesNotExist"), "no a"),
        (Requirement("a", "Gt", ("1",)), "a > 1"),
        (Requirement("a", "Lt", ("1",)), "a < 1"),
    ],
)
def test_requirements_in_words(requirement: Requirement, words: str) -> None:
    assert str(requirement) == words
    assert str(Term((requirement, Requirement("z", "Exists")))) == f"{words}, z"


def test_device_names() -> None:
    for name in ("nvidia.com/GA100_A100_PCIE_40GB", "devices.kubevirt.io/kvm", "intel.com/fpga-arria10"):
        assert device_name_problem(name) is None
    for name, problem in {
        "A100": "no vendor's domain",
        "": "no vendor's domain",
        "kubernetes.io/gpu": "kubernetes.io",
        "x.kubernetes.io/gpu": "kubernetes.io",
        "requests.nvidia.com/gpu": "quotas",
        "nvidia.com/": "is empty",
        "nvidia.com/a b": "letters, digits",
        # With the prefix of quotas it would be too long.
        ".".join(["a"] * 124) + "/gpu": "253",
    }.items():
        assert problem in (device_name_problem(name) or ""), name
