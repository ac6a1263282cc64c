# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import itertools
import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import cel
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.selectors import Requirement

DIGITS = 'm["a"].find("[1-9][0-9]*$")'
IN_64_BITS = f'(size({DIGITS}) < 19 || (size({DIGITS}) == 19 && {DIGITS} <= "9223372036854775807"))'


class TestLiteral:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("plain", '"plain"'),
            ('say "no" \\ ', r'"say \"no\" \\ "'),
            ("line\nbreak\x00", r'"line\u000abreak\u0000"'),
            ("\u00e4\u2028\uffff", r'"\u00e4\u2028\uffff"'),
            ("\U0001f600", r'"\U0001f600"'),
            (True, "true"),
            (False, "false"),
            (-300, "-300"),
            (["a", "b"], '["a", "b"]'),
            ((), "[]"),
            ({"key": "gpu", "seconds": 5}, '{"key": dyn("gpu"), "seconds": dyn(5)}'),
            ([{"a": ["b"]}], '[{"a": dyn(["b"])}]'),
        ],
    )
    def test_is_written_as_cel_reads_it(self, value, text):
        assert cel.literal(value) == text

    def test_any_text_is_ascii_and_stays_inside_its_quotes(self):
        rng = random.Random(4)
        pieces = ['"', "\\", "\\u0022", "'", "\n", "}", '" || true || "', "\x7f", "\u00e9", "\u2029", "\U00010348", "a"]
        for _ in range(500):
            text = "".join(rng.choices(pieces, k=rng.randrange(12)))
            written = cel.literal(text)
            assert written.isascii()
            assert written.isprintable()
            # Python's literals have the same escapes as CEL's.
            assert ast.literal_eval(written) == text


class TestMeets:
    @pytest.mark.parametrize(
        ("requirement", "condition"),
        [
            (Requirement("a", "In", ("x", "y")), '("a" in m && m["a"] in ["x", "y"])'),
            (Requirement("a", "NotIn", ("x",)), '!("a" in m && m["a"] in ["x"])'),
            (Requirement("a", "Exists"), '"a" in m'),
            (Requirement("a", "DoesNotExist"), '!("a" in m)'),
            (Requirement("a", "Gt", ("x",)), '("a" in m && false)'),
            (
                Requirement("a", "Lt", ("7",)),
                f'("a" in m && m["a"].matches("^[0-9]+$") && {IN_64_BITS} && int("0" + {DIGITS}) < 7)',
            ),
        ],
    )
    def test_as_a_label_selector(self, requirement, condition):
        assert cel.meets(requirement, "m") == condition


def test_conditions_are_joined_so_that_they_can_be_joined_again():
    assert cel.any_of([cel.all_of(["a", "b"]), "c"]) == "((a && b) || c)"
    assert (cel.all_of(["a"]), cel.all_of([]), cel.any_of([])) == ("a", "true", "false")


class TestShards:
    def test_keep_the_order_and_the_limit(self):
        texts = [str(number) * (number % 7 + 1) for number in range(200)]
        found = list(cel.shards(texts, 30))
        assert [text for group in found for text in group] == texts
        assert max(len(", ".join(group)) for group in found) <= 30
        # As few as can be: no group had room for the next text.
        assert all(len(", ".join([*a, b[0]])) > 30 for a, b in itertools.pairwise(found))

    def test_a_text_beyond_the_limit_is_alone(self):
        assert list(cel.shards(["a", "b" * 40, "c"], 30)) == [["a"], ["b" * 40], ["c"]]

    def test_of_nothing_are_none(self):
        assert list(cel.shards([])) == []
