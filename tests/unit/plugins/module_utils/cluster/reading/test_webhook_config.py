# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text in the ConfigMap of kubevirt-aie-webhook: its rules, and the lines of each."""

from __future__ import annotations

import textwrap

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import webhook_config

TWO = """\
# before
version: 1
rules:  # in this order
# the first
- name: a
  image: i # its image
  selector:
    deviceNames:
      - x
      - y

# the second
-
  name: "b"
  image: >-
    i2
  selector: {vmLabels: {matchLabels: {k: "v"}}}
# after
more: [1]
"""


def lines_of(text):
    found = webhook_config.read(text)
    assert found.problem is None
    return [text[rule.start : rule.end] for rule in found.rules]


@pytest.mark.parametrize("indent", ["", "  "])
def test_each_rule_has_its_lines_and_no_comment_around_them(indent):
    head, _, body = TWO.partition("# the first\n")
    items, _, tail = body.partition("# after\n")
    text = f"{head}{textwrap.indent('# the first' + chr(10) + items, indent)}# after\n{tail}"
    first, second = lines_of(text)
    assert first.splitlines()[0] == f"{indent}- name: a"
    assert first.splitlines()[-1] == f"{indent}      - y"
    assert second.splitlines()[0] == f"{indent}-"
    assert second.splitlines()[-1].endswith('{matchLabels: {k: "v"}}}')
    found = webhook_config.read(text)
    at, column = found.place
    assert text[:at].endswith("rules:  # in this order\n")
    assert column == len(indent)
    assert found.more == {"version": 1, "more": [1]}
    assert [rule.name for rule in found.rules] == ["a", "b"]
    assert [sorted(rule.devices) for rule in found.rules] == [["x", "y"], []]
    assert [rule.takes((), {"k": "v", "l": "w"}) for rule in found.rules] == [False, True]
    assert [rule.takes(["y"], {"k": "w"}) for rule in found.rules] == [True, False]


def test_a_last_value_in_lines_of_its_own_belongs_to_its_rule():
    text = "rules:\n- name: a\n  image: |\n    i\n- name: b\n  selector: {}\n  image: |\n    i\n"
    assert lines_of(text) == ["- name: a\n  image: |\n    i\n", "- name: b\n  selector: {}\n  image: |\n    i\n"]


@pytest.mark.parametrize("text", ["rules:\n", "rules:   # none\n", "a: 1\nrules:\nb: 2\n"])
def test_without_rules_there_is_a_place_for_them(text):
    found = webhook_config.read(text)
    assert (found.rules, found.place[1]) == ((), 0)
    assert text[: found.place[0]].splitlines()[-1].startswith("rules:")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# none\n",
        "rules:",
        "rules: []\n",
        "rules: null\n",
        "rules:\n  null\n",
        "rules:\n  []\n",
        '{"rules":[]}',
        "a: 1\n",
    ],
)
def test_other_forms_have_no_place(text):
    found = webhook_config.read(text)
    assert (found.rules, found.place, found.problem) == ((), None, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rules: {", "expected"),
        ("- a\n", "it is not a mapping"),
        ("rules: 5\n", "rules is not a list"),
        ("rules: [5]\n", "rules[0] is not a rule"),
        ("rules: [{name: 5}]\n", "rules[0] is not a rule"),
        ("rules: [{selector: []}]\n", "rules[0] is not a rule"),
        ("rules: [{selector: {deviceNames: a}}]\n", "rules[0] is not a rule"),
        ("rules: [{}, {selector: {vmLabels: {matchLabels: {a: true}}}}]\n", "rules[1] is not a rule"),
        ("a: 1\n---\nb: 2\n", "single document"),
    ],
)
def test_what_the_webhook_cannot_read_is_a_problem(text, problem):
    found = webhook_config.read(text)
    assert problem in found.problem
    assert (found.rules, found.text) == ((), text)


def test_without_pyyaml_nothing_is_known(monkeypatch):
    monkeypatch.setattr(webhook_config, "yaml", None)
    assert "PyYAML is missing" in webhook_config.read("rules:\n").problem
