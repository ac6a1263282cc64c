# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import interruption


@pytest.mark.parametrize(
    ("half_way", "said"),
    [
        ((), "No node is half way."),
        (None, "virt-operator goes on with what it has begun."),
        (
            ["n1"],
            "Half way: n1. VMs keep running there, but may not be managed until the next run has finished this node.",
        ),
        (
            [f"n{number}" for number in range(7)],
            (
                "Half way: n0, n1, n2, n3, n4 and 2 more. VMs keep running there, but may not be managed until the next run has "
                "finished these nodes."
            ),
        ),
    ],
)
def test_what_is_half_done_and_how_to_go_on(half_way, said):
    assert interruption.lines(half_way, 30) == [
        f"The run was interrupted. {said}",
        "To go on, run the same command again. It waits for up to 30 s until this run's Lease has expired.",
    ]
