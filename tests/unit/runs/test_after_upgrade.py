# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role upgrade once KubeVirt has the new version: pools follow, and VMs are migrated only where the user asks for it."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_migrations
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, NEXT_GPU, RT, Stage, stock

VMI = kinds.VIRTUAL_MACHINE_INSTANCE


class Scenario:
    """A cluster whose pool gpu runs a VM on n2."""

    def __init__(self, run, monkeypatch):
        self.calls = {}
        self._run = run
        stage = Stage(run, monkeypatch)
        self.world, _disturbance = stage.on(stock(), migrated={"image": NEXT_GPU["virtLauncherImage"], "to": "n1"})
        stage.run("pools", {"virtpools_pools": [GPU, RT]})
        pool_vm = fake_migrations.vm("vm", "n2", GPU["virtLauncherImage"], labels={"class": "gpu"})
        for obj in (kinds.NAMESPACE.object("plain"), *pool_vm):
            self.world.put(obj)

    def upgrade(self, **variables):
        """Run the role after KubeVirt was upgraded."""
        version, pools = builders.VERSION, [NEXT_GPU, RT]
        Play(self._called).role("upgrade", virtpools_upgrade_to=version, virtpools_pools=pools, **variables)

    def _called(self, name, **arguments):
        self.calls[name] = self._run(name, **arguments)
        return self.calls[name]

    @property
    def node(self):
        """Where the VM runs."""
        return self.world.find(VMI, "vm", "plain")["status"]["nodeName"]


@pytest.fixture
def scenario(run, monkeypatch):
    return Scenario(run, monkeypatch)


def test_vms_stay_and_are_counted(scenario):
    scenario.upgrade()
    assert scenario.world.all(fake_migrations.MIGRATION) == []
    assert scenario.calls["workload_update"]["text"][0] == "1 VM is outdated: 1 to migrate, 0 to restart."
    assert (scenario.node, scenario.world.all(kinds.LEASE)) == ("n2", [])


def test_vms_move_with_their_nodes_where_the_user_asks_for_it(scenario):
    scenario.upgrade(virtpools_drain="migrate")
    assert scenario.node == "n1"
    assert "canary_vm" not in scenario.calls


def test_each_pool_starts_a_canary_vm_where_one_is_asked_for(scenario):
    scenario.upgrade(virtpools_canary_vm=True)
    (passed,) = scenario.calls["canary_vm"]["vms"]
    assert (passed["pool"], passed["image"]) == ("gpu", NEXT_GPU["virtLauncherImage"])


def test_a_reason_why_vms_cannot_be_updated_does_not_fail_it(scenario):
    scenario.upgrade(virtpools_launcher_backend="none")
    assert scenario.calls["workload_update"]["failed"]
