# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A play with the keyword ``check_mode: true`` around a role. The variable ``ansible_check_mode`` stays false there."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, stock

ONE, TWO = {"virtpools_pools": [RT]}, {"virtpools_pools": [GPU, RT]}
WAVES = {"virtpools_waves": [{"match": {"hw": "gpu"}, "count": 1}, {}], "virtpools_soak_seconds": 60}
CASES = {
    "pools": ([ONE], TWO),
    "rollout": ([ONE], {**TWO, **WAVES, "virtpools_canary_vm": True}),
    "rollback": ([ONE, TWO], {}),
    "remove": ([TWO], {"virtpools_remove": "all", "virtpools_remove_vms": "migrate"}),
}


@pytest.mark.parametrize("role", CASES)
def test_nothing_is_written(run, monkeypatch, role):
    before, variables = CASES[role]
    stage = Stage(run, monkeypatch)
    world, _disturbance = stage.on(stock())
    for each in before:
        stage.run("pools", each)
    world.writes.clear()
    published = stage.job(role, variables, check=True)
    assert world.writes == []
    (plan,) = published["virtpools_plan"].values()
    assert [each["pending"] for each in plan.values()] == [True]
