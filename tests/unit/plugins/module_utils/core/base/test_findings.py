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

MADE = re.compile(r'\b(?:error|warning|note)\(\s*"([a-z_]+)"')
RETURNED = re.compile(r'return "([a-z_]+)", (?:f"|message)')
LISTED = re.compile(r"`([a-z]+(?:_[a-z]+)*)`")


def codes_in_the_code() -> set[str]:
    sources = [path.read_text("utf-8") for path in CORE.rglob("*.py")]
    found = {code for source in sources for pattern in (MADE, RETURNED) for code in pattern.findall(source)}
    checks = (*node_checks.STATE, node_checks.HANDOVER_UNFINISHED, *node_checks.VERIFICATION)
    return found | {check.code for check in checks} | {*verdicts.FINDINGS}


def codes_on_the_page() -> set[str]:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    return {code for row in rows for code in LISTED.findall(row.split("|")[1])}


def test_every_code_is_documented_and_no_other():
    assert len(codes_in_the_code()) > 40
    assert codes_in_the_code() == codes_on_the_page()


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
