# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import findings
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import node_checks, verdicts

CORE = Path(findings.__file__).parents[1]
PAGE = CORE.parents[2] / "docs/findings.md"

MADE = re.compile(r'\b(error|warning|note)\(\s*"([a-z_]+)"')
SEVERITY = re.compile(r"\b(error|warning|note)\b")
RETURNED = re.compile(r'return "([a-z_]+)", (?:f"|message)')
LISTED = re.compile(r"`([a-z]+(?:_[a-z]+)*)`")


def sources() -> list[str]:
    return [path.read_text("utf-8") for path in CORE.rglob("*.py")]


def codes_in_the_code() -> set[str]:
    found = {code for source in sources() for _severity, code in MADE.findall(source)}
    found |= {code for source in sources() for code in RETURNED.findall(source)}
    checks = (*node_checks.STATE, node_checks.HANDOVER_UNFINISHED, *node_checks.VERIFICATION)
    return found | {check.code for check in checks} | {*verdicts.FINDINGS}


def severities_on_the_page() -> dict[str, set[str]]:
    """The severities that the rows of each code name."""
    found: dict[str, set[str]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| `"):
            _start, codes, severity, _rest = line.split("|", 3)
            for code in LISTED.findall(codes):
                found.setdefault(code, set()).update(SEVERITY.findall(severity))
    return found


def test_every_code_is_documented_and_no_other():
    assert len(codes_in_the_code()) > 40
    assert codes_in_the_code() == severities_on_the_page().keys() == findings.CODES


def test_every_severity_is_documented():
    """So no error, which refuses a plan, becomes a warning unnoticed."""
    made = [each for source in sources() for each in MADE.findall(source)]
    page = severities_on_the_page()
    assert [(severity, code) for severity, code in made if severity not in page[code]] == []
    assert len(made) > 150


def test_errors_come_first_and_once():
    found = [findings.note("b", "n"), findings.error("z", "e"), findings.warning("a", "w"), findings.error("z", "e")]
    assert [each.code for each in findings.in_order(found)] == ["z", "a", "b"]


def test_long_lists_are_counted():
    assert findings.listed(["b", "a"]) == "a, b"
    assert findings.listed([f"n{number}" for number in range(7)], most=5) == "n0, n1, n2, n3, n4 and 2 more"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("node-0 ü 日本", "node-0 ü 日本"),
        ("two\nlines\tof it", "two lines of it"),
        ("a\x00b\x1bc", r"a\x00b\x1bc"),
        ("gpu\u202eupg", r"gpu\u202eupg"),
        ("half\ud800", r"half\ud800"),
        ("last\ufffe", r"last\ufffe"),
        (None, "None"),
        (7, "7"),
    ],
)
def test_text_is_one_line_without_anything_invisible(text, shown):
    assert findings.printable(text) == shown
    findings.printable(text).encode("utf-8")
