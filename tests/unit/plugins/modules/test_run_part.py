# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all parts share. Each part has a file of its own in tests/unit/runs."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import run_parts
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

POOLS = {"pools": [builders.RAW_POOL]}


@pytest.mark.parametrize("step", ["x", "-1", "1.5"])
def test_a_step_is_a_number_or_the_last(run, step):
    message = run.failure("run_part", part="guard", step=step, **POOLS)
    assert message.startswith(f"step is {step}; give last, or a number from 0 to ")


def test_in_check_mode_a_step_is_one_of_the_plan(run):
    assert "step is 99; give last, or a number from 0 to " in run.failure(
        "run_part", part="guard", step="99", check=True, **POOLS
    )


@pytest.mark.parametrize("part", run_parts.NAMES)
@pytest.mark.usefixtures("excluded")
def test_a_part_that_is_absent_stays_so(run, world, part):
    found = run("run_part", part=part, state="absent")
    assert (found["changed"], found["changes"], found["diff"]) == (False, [], [])
    assert world.writes == []
