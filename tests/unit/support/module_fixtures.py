# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules in this process, against a cluster in memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import client, lease, waiting
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.modules import wave_gate
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World
from ansible_collections.virtpools.kubevirt.tests.unit.support.in_process import run_module

IMAGES = (f"{builders.HANDLER_IMAGE}-gpu", builders.HANDLER_IMAGE, builders.LAUNCHER_IMAGE)


class Runner:
    """Runs modules on ``world``, which tests fill; ``connected`` says whether any module looked for a cluster. ``guarded``: whether
    they write a guard where a test does not ask for one, as they do for users."""

    def __init__(self, world):
        self.world = world
        self.connected = False
        self.guarded = False

    def __call__(self, module, *, check=False, **arguments):
        """The module's result."""
        return run_module(module, check=check, guarded=self.guarded, **arguments)

    def failure(self, module, **arguments):
        """The sentence a module fails with."""
        result = self(module, **arguments)
        assert result.get("failed"), result
        assert "does not expect" not in result["msg"]
        return result["msg"]


@pytest.fixture
def world():
    """Stock KubeVirt with one node for a pool and one that stays."""
    nodes = [builders.node("n1", labels={"hw": "gpu"}, images=IMAGES), builders.node("stays", images=IMAGES)]
    sets = [builders.primary(excluded=False, desired=2)]
    return World(builders.kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets))


@pytest.fixture
def run(world, monkeypatch):
    runner = Runner(world)

    def connect(params):
        runner.connected = True
        return runner.world

    def clock(beat=lambda: None, status=None):
        told = {} if status is None else {"status": status}
        return waiting.Clock(beat=beat, now=lambda: runner.world.now, sleep=runner.world.sleep, **told)

    monkeypatch.setattr(client.transport, "connect", connect)
    monkeypatch.setattr(module_base, "Clock", clock)
    monkeypatch.setattr(
        module_base, "StatusLines", lambda show, note: waiting.StatusLines(show, lambda: runner.world.now, note)
    )
    monkeypatch.setattr(waiting, "seconds_since_1970", lambda: int(runner.world.now))
    monkeypatch.setattr(wave_gate, "time", SimpleNamespace(time=lambda: runner.world.now))
    return runner


@pytest.fixture
def excluded(world):
    """The same cluster after primary_exclusion and pool_daemonsets."""
    world.put(builders.excluding_kubevirt())
    world.put(builders.primary(desired=2))
    world.put(builders.pool_daemonset(builders.pool("gpu"), desired=0))
    return world


@pytest.fixture
def other_run(run, world, monkeypatch):
    """Has another run hold the Lease for 10 seconds, change the cluster by ``change``, and give the Lease back."""
    monkeypatch.setattr(lease, "Clock", lambda now: waiting.Clock(now=lambda: world.now, sleep=world.sleep))

    def begin(change):
        def end():
            change()
            world.drop(kinds.LEASE, names.LEASE_NAME, builders.NAMESPACE)

        held = {"holderIdentity": "other", "leaseDurationSeconds": 30}
        world.put(kinds.LEASE.object(names.LEASE_NAME, builders.NAMESPACE, spec=held))
        world.at[world.now + 10] = end

    return begin
