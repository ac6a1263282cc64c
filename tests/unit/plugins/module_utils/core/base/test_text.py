# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import note, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.text import finding_lines, table


def test_a_finding_is_one_line_with_its_severity_and_code():
    assert finding_lines([warning("skew", "It differs."), note("done", "It is done.")]) == [
        "WARNING skew: It differs.",
        "NOTE done: It is done.",
    ]


def test_a_table_aligns_its_columns_and_ends_no_line_with_blanks():
    assert table(["POOL", "NODES"], [["gpu", "12"], ["memory", ""]]) == ["POOL    NODES", "gpu     12", "memory"]
