# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules in this process, from arguments to the JSON they answer, against a cluster in memory."""

from __future__ import annotations

import contextlib
import importlib
import json

import pytest
from ansible.module_utils import basic

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import _client, waiting
from ansible_collections.virtpools.kubevirt.tests.unit import builders
from ansible_collections.virtpools.kubevirt.tests.unit.fake_cluster import World

MODULES = "ansible_collections.virtpools.kubevirt.plugins.modules"
IMAGES = (f"{builders.HANDLER_IMAGE}-gpu", builders.HANDLER_IMAGE, builders.LAUNCHER_IMAGE)


def _arguments(arguments):
    try:
        from ansible.module_utils.testing import patch_module_args
    except ImportError:  # ansible-core before 2.18
        monkeypatch = pytest.MonkeyPatch()
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
        return contextlib.closing(type("Undo", (), {"close": staticmethod(monkeypatch.undo)}))
    return patch_module_args(arguments)


class Runner:
    """Runs modules on ``world``, which tests fill; ``connected`` says whether any module looked for a cluster."""

    def __init__(self, world, capsys):
        self.world = world
        self.connected = False
        self._capsys = capsys

    def __call__(self, module, *, check=False, **arguments):
        """The module's result."""
        self._capsys.readouterr()
        found = importlib.import_module(f"{MODULES}.{module}")
        with _arguments({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit) as caught:
            found.main()
        result = json.loads(self._capsys.readouterr().out)
        assert bool(result.get("failed")) == bool(caught.value.code)
        assert "Traceback" not in result.get("msg", "")
        return result

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
def run(world, capsys, monkeypatch):
    runner = Runner(world, capsys)

    def connect(params):
        runner.connected = True
        return runner.world

    def clock(beat=lambda: None):
        return waiting.Clock(beat=beat, now=lambda: runner.world.now, sleep=runner.world.sleep)

    monkeypatch.setattr(_client._transport, "connect", connect)
    monkeypatch.setattr(_module, "Clock", clock)
    return runner


@pytest.fixture
def excluded(world):
    """The same cluster after primary_exclusion and pool_daemonsets."""
    world.put(builders.excluding_kubevirt())
    world.put(builders.primary(desired=2))
    world.put(builders.pool_daemonset(builders.pool("gpu"), desired=0))
    return world
