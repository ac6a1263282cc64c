# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import inputs
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.inputs import FieldPath, Problems


@pytest.fixture
def problems():
    return Problems()


@pytest.fixture
def place(problems):
    return FieldPath(problems, "Pool gpu", "field")


def told(problems):
    with pytest.raises(InputErrors) as raised:
        problems.raise_if_any()
    return list(raised.value.messages)


class TestProblems:
    def test_none_raise_nothing(self, problems):
        problems.raise_if_any()

    def test_many_are_cut_and_counted(self, problems):
        for number in range(inputs.MOST_PROBLEMS + 3):
            problems.add(f"Problem {number}.")
        messages = told(problems)
        assert (len(messages), messages[0], messages[-1]) == (inputs.MOST_PROBLEMS + 1, "Problem 0.", "And 3 more.")


class TestFieldPath:
    def test_names_the_item_and_the_way_to_the_value(self, problems):
        FieldPath(problems, "Pool gpu").field("selector").key("a.b/c").nth(2).error("is wrong")
        assert told(problems) == ["Pool gpu: selector[a.b/c][2] is wrong."]

    def test_of_the_item_itself_makes_it_the_subject(self, problems):
        FieldPath(problems, "pools").error("is missing")
        assert told(problems) == ["pools is missing."]


class TestShown:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (None, "null"),
            (True, "true"),
            (1.5, "1.5"),
            ([], "an empty list"),
            ({"a": 1}, "a mapping"),
            ("ä", '"ä"'),
            pytest.param(10**5000, "a huge number", id="huge"),
            (object(), "a value of type object"),
        ],
    )
    def test_is_short_and_as_in_yaml(self, value, text):
        assert inputs.shown(value) == text

    def test_cuts_long_text(self):
        assert len(inputs.shown("x" * 10_000)) < 100


def test_a_similar_word_is_suggested():
    assert inputs.suggestion("nodeselector", ["nodeSelector", "name"]) == "; perhaps you mean nodeSelector"
    assert inputs.suggestion("zzz", ["nodeSelector", "name"]) == ""


@pytest.mark.parametrize(("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_alternatives_are_listed_with_or(words, text):
    assert inputs.either(words) == text


class TestText:
    @pytest.mark.parametrize(("value", "why"), [(True, "true or false"), (1, "a number"), (None, "give text")])
    def test_that_yaml_does_not_read_as_text_is_refused_with_the_fix(self, problems, place, value, why):
        assert inputs.text(place, value) is None
        assert why in told(problems)[0]


class TestLabels:
    def test_are_returned_if_all_are_valid(self, problems, place):
        assert inputs.labels(place, {"a.example/b": "c", "d": ""}) == {"a.example/b": "c", "d": ""}
        problems.raise_if_any()

    @pytest.mark.parametrize("value", [{}, {"-a": "b"}, {"a": "b c"}, {"a": 1}, ["a"]])
    def test_that_are_invalid_are_refused(self, problems, place, value):
        assert inputs.labels(place, value) is None
        assert told(problems)


class TestResources:
    def test_are_spelled_as_the_api_server_serves_them(self, problems, place):
        assert inputs.resources(place, {"requests": {"cpu": "0.5"}}) == {"requests": {"cpu": "500m"}}
        problems.raise_if_any()

    def test_with_a_request_above_the_limit_are_refused(self, problems, place):
        assert inputs.resources(place, {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}) is None
        assert "field.requests.cpu is 2, more than the limit 1" in told(problems)[0]
