# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check of the width of Markdown pages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "ci/check_docs.py"
LONG = "word " * 30


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("check_docs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("line", [LONG, f"- {LONG}", f"> {LONG}", f"```\ncode\n```\n{LONG}"])
def test_long_prose_is_reported(check, line):
    assert list(check.too_long(line)) == [len(line.splitlines())]


@pytest.mark.parametrize(
    "text", ["short", f"| {LONG}|", f"# {LONG}", f"```\n{LONG}\n```", "- " + "x" * 200, f"![{LONG}](a.svg)"]
)
def test_tables_code_and_what_cannot_be_wrapped_may_be_long(check, text):
    assert list(check.too_long(text)) == []
