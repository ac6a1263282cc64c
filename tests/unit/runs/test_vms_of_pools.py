# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every way that takes a pool from under running VMs asks the same, by one finding, and is confirmed by one option."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_migrations, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, stock

ELSEWHERE = {**GPU, "nodeSelector": {"hw": "gpu", "disk": "big"}}
GONE = r"1 VM runs with the launcher image of pool gpu or on its nodes \(plain/vm\); stop these VMs, or set virtpools_remove_vms"
LEAVING = r"1 VM runs on nodes that leave pool gpu \(plain/vm\); stop these VMs, or set virtpools_remove_vms"

WAYS = {
    "prune": ("pools", {"virtpools_pools": [RT], "virtpools_prune": True}, GONE),
    "rollout": (
        "rollout",
        {"virtpools_pools": [RT], "virtpools_prune": True, "virtpools_waves": [{"nodes": ["n1"]}]},
        GONE,
    ),
    "selector": ("pools", {"virtpools_pools": [ELSEWHERE, RT]}, LEAVING),
    "without the plan's other findings": (
        "pools",
        {"virtpools_pools": [RT], "virtpools_prune": True, "virtpools_plan_vms": False},
        GONE,
    ),
    "rollback": ("rollback", {}, GONE),
    "removal": ("remove", {"virtpools_remove": "gpu"}, GONE),
}


class Scenario:
    """A cluster whose pool gpu runs a VM on n1."""

    def __init__(self, stage):
        self._stage = stage
        self.world, self.disturbance = stage.on(stock())
        self.run("pools", virtpools_pools=[RT])
        self.run("pools", virtpools_pools=[GPU, RT])
        self.disturbance.writes.clear()

    def start_vm(self):
        self.world.put(vms.launcher(on="n1"))

    def start_vmi(self, on, image=builders.LAUNCHER_IMAGE):
        """A VM that a drain finds."""
        for obj in (kinds.VIRTUAL_MACHINE.object("vm", "plain"), *fake_migrations.vm("vm", on, image)):
            self.world.put(obj)

    def run(self, role, **variables):
        self.shown = self._stage.run(role, variables)

    def owners(self):
        return {name: self.world.handlers(name) for name in ("n1", "n2")}


@pytest.fixture
def scenario(run, monkeypatch):
    return Scenario(Stage(run, monkeypatch))


@pytest.mark.parametrize(("role", "variables", "message"), WAYS.values(), ids=WAYS)
def test_a_way_is_refused_before_it_writes(scenario, role, variables, message):
    scenario.start_vm()
    with pytest.raises(TaskFailed, match=message):
        scenario.run(role, **variables)
    assert scenario.disturbance.writes == []


@pytest.mark.parametrize(("role", "variables", "_message"), WAYS.values(), ids=WAYS)
def test_a_way_goes_on_when_its_vms_are_left(scenario, role, variables, _message):
    scenario.start_vm()
    scenario.run(role, virtpools_remove_vms="leave", **variables)
    assert scenario.owners()["n1"] != ["virt-handler-gpu"]
    assert scenario.world.find(kinds.POD, "virt-launcher-vm", "plain")


@pytest.mark.parametrize(("role", "variables", "_message"), WAYS.values(), ids=WAYS)
def test_a_way_is_not_asked_about_without_vms(scenario, role, variables, _message):
    scenario.run(role, **variables)
    assert scenario.owners()["n1"] != ["virt-handler-gpu"]


@pytest.mark.parametrize("option", ["virtpools_remove_vms", "virtpools_drain"])
def test_a_node_leaves_its_pool_when_its_vms_have_ended(scenario, option):
    scenario.start_vmi("n1", builders.GPU_LAUNCHER_IMAGE)
    variables = {"virtpools_pools": [ELSEWHERE, RT], option: "wait", "virtpools_migration_timeout": 60}
    with pytest.raises(TaskFailed, match=r"VMs on its nodes did not end within 60 s"):
        scenario.run("pools", **variables)
    assert scenario.owners()["n1"] == ["virt-handler-gpu"]


def test_a_node_that_leaves_no_pool_does_not_wait(scenario):
    scenario.world.put(builders.node("n5", labels={"hw": "rt"}))
    scenario.world.sleep(5)
    scenario.start_vmi("n5")
    scenario.run("pools", virtpools_pools=[GPU, RT], virtpools_remove_vms="wait")
    assert scenario.world.handlers("n5") == ["virt-handler-rt"]


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
def test_the_way_back_leaves_vms_that_started_meanwhile(scenario, on_failure):
    scenario.run("rollback")
    usual = scenario.world.behaviour

    def behaviour(pod):
        """The second wave's handler does not start; by then a VM of the new pool runs on the first wave's node."""
        if pod["spec"]["nodeName"] != "n2" or not pod["metadata"]["name"].startswith("virt-handler-gpu"):
            return usual(pod)
        scenario.start_vm()
        return Behaviour(broken="ImagePullBackOff")

    scenario.world.behaviour = behaviour
    waves = [{"nodes": ["n1"]}, {"nodes": ["n2"]}]
    with pytest.raises(TaskFailed, match=r"nodes went back to: [0-9a-f]+\."):
        scenario.run("pools", virtpools_pools=[GPU, RT], virtpools_waves=waves, virtpools_on_failure=on_failure)
    canary = "virt-handler" if on_failure == "rollback_all" else "virt-handler-gpu"
    assert scenario.owners() == {"n1": [canary], "n2": ["virt-handler"]}


def test_a_removal_ends_with_the_vms_that_keep_a_pools_image(scenario):
    scenario.start_vmi("n1", builders.GPU_LAUNCHER_IMAGE)
    scenario.run("remove", virtpools_remove="gpu", virtpools_remove_vms="leave")
    assert scenario.shown[-3:] == [
        "1 VM still runs with an image or on a node that it would not get now:",
        f"  {builders.GPU_LAUNCHER_IMAGE}: 1 VM (plain/vm)",
        "To change that: ansible-playbook virtpools.kubevirt.workload_update live-migrates 1.",
    ]


def test_a_removal_that_leaves_no_vm_behind_says_so(scenario):
    scenario.run("remove", virtpools_remove="all")
    assert scenario.shown[-1] == "Every VM has the launcher image that it would get now."


def test_a_removal_does_not_fail_where_it_cannot_tell_of_vms(scenario):
    scenario.world.put(builders.excluding_kubevirt(conditions={"Degraded": "True"}))
    scenario.run("remove", virtpools_remove="gpu")
    assert scenario.shown[-1].startswith("Which VMs still have images of these pools is unknown: KubeVirt")
