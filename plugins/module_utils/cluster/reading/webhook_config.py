# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Reads the YAML in the ConfigMap of kubevirt-aie-webhook, and where each rule stands in it."""

from __future__ import annotations

import typing as t

from ...core.base.findings import printable
from ...core.observed.webhook import Config, Rule

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]


def read(text: str) -> Config:
    """The rules in this text."""
    if yaml is None:
        return Config(text, problem="the Python package PyYAML is missing where the module runs")
    try:
        root: t.Any = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return Config(text, problem=printable(" ".join(str(error).split()))[:200])
    problem = _problem(value)
    if problem is not None:
        return Config(text, problem=problem)
    value = value or {}
    key, listed = _rules_node(root)
    rules = value.get("rules") or ()
    more = {name: each for name, each in value.items() if name != "rules"}
    if root is None or root.flow_style or key is None or not _in_lines(text, key, listed):
        return Config(text, tuple(map(Rule, rules)), more)
    column = listed.start_mark.column if rules else key.start_mark.column
    placed = (
        Rule(rule, _line_of_dash(text, node.start_mark.index, column), _next_line(text, _end(node)))
        for rule, node in zip(rules, listed.value if rules else (), strict=True)
    )
    return Config(text, tuple(placed), more, place=(_next_line(text, key.end_mark.index), column))


def _problem(value: t.Any) -> str | None:
    """Why a parsed text does not configure the webhook."""
    if not isinstance(value, (dict, type(None))):
        return "it is not a mapping"
    rules = (value or {}).get("rules")
    if not isinstance(rules, (list, type(None))):
        return "rules is not a list"
    for number, rule in enumerate(rules or ()):
        if not _is_rule(rule):
            return f"rules[{number}] is not a rule: it needs a name and an image, and a selector with deviceNames or vmLabels.matchLabels"
    return None


def _is_rule(rule: t.Any) -> bool:
    if not isinstance(rule, dict) or not all(isinstance(rule.get(key, ""), str) for key in ("name", "image")):
        return False
    selector = rule.get("selector")
    if not isinstance(selector, (dict, type(None))):
        return False
    devices, by_labels = ((selector or {}).get(key) for key in ("deviceNames", "vmLabels"))
    if not isinstance(devices, (list, type(None))) or not isinstance(by_labels, (dict, type(None))):
        return False
    labels = (by_labels or {}).get("matchLabels") or {}
    if not isinstance(labels, dict):
        return False
    return all(isinstance(text, str) for text in (*(devices or ()), *labels, *labels.values()))


def _rules_node(root: t.Any) -> tuple[t.Any, t.Any]:
    """The nodes of the key ``rules`` and of its value."""
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    return next(((key, value) for key, value in pairs if key.value == "rules"), (None, None))


def _in_lines(text: str, key: t.Any, listed: t.Any) -> bool:
    """Whether each rule has lines of its own, or would have them: nothing follows the key in its line but a comment."""
    line = text[key.end_mark.index : _next_line(text, key.end_mark.index)]
    rest = line.partition(":")[2].strip()
    in_lines = not listed.flow_style if isinstance(listed, yaml.SequenceNode) else not listed.value
    return line.endswith("\n") and (not rest or rest.startswith("#")) and in_lines


def _line_of_dash(text: str, index: int, column: int) -> int:
    """The beginning of the line with the dash of an entry whose content is at ``index``."""
    start = text.rfind("\n", 0, index) + 1
    while start > 0 and text[start : start + column + 1] != " " * column + "-":
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _end(node: t.Any) -> int:
    """Where the last value in a node ends. The mark of a block is behind the comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    end = int(node.end_mark.index)
    behind_break = node.end_mark.column == 0 and end > node.start_mark.index
    return end - 1 if behind_break else end


def _next_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end + 1
