# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs whose images are not complete."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion, health
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, stock

POOLS = {"virtpools_pools": [GPU, RT]}


def primary(world):
    return world.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)


def test_a_first_run_stops_while_kubevirt_restarts_its_handlers(run, monkeypatch):
    """The next run waits for these restarts, and does not cause them again."""
    stage = Stage(run, monkeypatch)
    world, _ = stage.on(stock())
    world.looks = "missing virt-chroot\nlooked"
    with pytest.raises(TaskFailed, match="virt-handler-gpu was not created, because image .* lacks virt-chroot"):
        stage.run("pools", POOLS)
    assert exclusion.exclusion_requested(world.all(kinds.KUBEVIRT)[0])
    assert not health.primary_rolled_out(primary(world))
    assert [world.node(name).owner for name in ("n1", "n2", "n3")] == [names.PRIMARY] * 3

    world.looks = builders.LOOKS
    stage.run("pools", POOLS)
    assert primary(world)["metadata"]["generation"] == 2
    assert [world.handlers(name) for name in ("n1", "n3")] == [["virt-handler-gpu"], ["virt-handler-rt"]]
