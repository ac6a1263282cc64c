# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole run in which a pool would lose its nodes by a misspelt label."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, stock

MISSPELT = {**GPU, "nodeSelector": {"wh": "gpu"}}


def test_is_refused_until_it_is_confirmed(run, monkeypatch):
    stage = Stage(run, monkeypatch)
    world, disturbance = stage.on(stock())
    stage.run("pools", {"virtpools_pools": [GPU, RT]})
    disturbance.writes.clear()
    with pytest.raises(TaskFailed, match=r"Pool gpu would lose all of its 2 nodes \(n1, n2\)"):
        stage.run("pools", {"virtpools_pools": [MISSPELT, RT]})
    assert disturbance.writes == []
    stage.run("pools", {"virtpools_pools": [MISSPELT, RT], "virtpools_max_nodes_lost": "100%"})
    assert world.handlers("n1") == world.handlers("n2") == ["virt-handler"]
    # Its selector was recorded with that list, so going back is no accident.
    stage.run("rollback", {})
    assert world.handlers("n1") == ["virt-handler-gpu"]
