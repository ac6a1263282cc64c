# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import (
    Options,
    read_share,
)


@pytest.mark.parametrize("value", [1, 5, "1%", "100%"])
def test_a_good_max_unavailable_stays_as_it_is(value):
    assert read_share(value, "max_unavailable") == value


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("3", 3), ("17", 17)])
def test_a_number_as_text_is_a_number(text, number):
    assert read_share(text, "max_unavailable") == number


@pytest.mark.parametrize(
    "value", [0, -1, "0", "-1", "0%", "101%", "10 %", "", "ten", 1.5, True, None, [], "²", "9" * 5000]
)
def test_a_bad_max_unavailable_is_refused(value):
    with pytest.raises(InputErrors, match="virtpools_max_unavailable is .*give a number from 1, or a percentage"):
        read_share(value, "max_unavailable")


@pytest.mark.parametrize(("value", "nodes", "expected"), [("50%", 4, 2), ("50%", 1, 1), ("100%", 7, 7), (3, 1, 3)])
def test_unavailable_of(value, nodes, expected):
    assert Options(max_unavailable=value).unavailable_of(nodes) == expected
