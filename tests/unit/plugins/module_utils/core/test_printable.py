# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.printable import printable


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
    assert printable(text) == shown
    printable(text).encode("utf-8")
