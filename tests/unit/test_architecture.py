# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page for contributors names every file of ours that Ansible ships, once, and no other."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", ["core", "cluster"])
def test_the_tree_on_the_page_is_that_of_the_repository(package):
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    part = page[page.index(f"plugins/module_utils/{package}/") :]
    lines = part.splitlines()[1:]
    end = next(number for number, line in enumerate(lines) if not line.startswith("  "))
    named = Counter(re.findall(r"(?<![\w/])\w+\.py\b", "\n".join(lines[:end])))
    there = {file.name for file in (ROOT / "plugins/module_utils" / package).glob("*.py")} - {"__init__.py"}
    assert set(named) == there
    assert max(named.values()) == 1
