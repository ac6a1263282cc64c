# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs on a cluster where KubeVirt's own handler does not start on the nodes that a pool is for."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, stock

POOLS = {"virtpools_pools": [GPU, RT], "virtpools_waves": [{"name": "rt", "pools": ["rt"]}, {"name": "gpu"}]}


@pytest.fixture
def broken(run, monkeypatch):
    """A function that makes the primary's handler on some nodes end again and again."""
    stage = Stage(run, monkeypatch)

    def on(*nodes):
        objects = stock()
        for obj in objects:
            if obj["kind"] == "Pod" and obj["spec"]["nodeName"] in nodes:
                obj["status"]["conditions"][0]["status"] = "False"
                builders.broken(obj)
        world, disturbance = stage.on(objects)
        for node in nodes:
            world.behave[names.HANDLER, node] = Behaviour(broken="CrashLoopBackOff")
        world.sleep(5)
        return stage, world, disturbance

    return on


def test_the_pool_is_the_cure(broken):
    stage, world, _ = broken("n1", "n2")
    stage.run("pools", POOLS)
    assert [world.handlers(node) for node in ("n1", "n2", "n3", "n4")] == [
        ["virt-handler-gpu"],
        ["virt-handler-gpu"],
        ["virt-handler-rt"],
        ["virt-handler"],
    ]
    assert world.doubled == []
    stage.run("pools", POOLS)


def test_a_run_that_was_killed_after_the_release_goes_on(broken):
    stage, world, _ = broken("n1")
    world.send_before = world.send

    def killed(request):
        if request.method == "PUT" and request.path.endswith("/kubevirts/kubevirt"):
            raise KeyboardInterrupt
        return world.send_before(request)

    world.send = killed
    with pytest.raises(KeyboardInterrupt):
        stage.run("pools", POOLS)
    assert world.node("n1").owner == names.IN_TRANSIT
    world.send = world.send_before
    world.sleep(60)
    stage.run("pools", POOLS)
    assert world.handlers("n1") == ["virt-handler-gpu"]


def test_a_node_that_stays_is_named_with_its_reason(broken):
    stage, world, disturbance = broken("n1", "n4")
    with pytest.raises(TaskFailed, match=r"n4 \(pod virt-handler-n4: container virt-handler: CrashLoopBackOff"):
        stage.run("pools", POOLS)
    assert disturbance.writes == []
    assert world.find(kinds.NODE, "n1")["metadata"]["labels"].get(names.OWNER_LABEL) is None


def test_a_handler_that_breaks_once_there_are_pools(broken):
    stage, world, _ = broken()
    stage.run("pools", {"virtpools_pools": [RT]})
    (pod,) = world.pods("n1")
    pod["status"]["conditions"][0]["status"] = "False"
    world.behave[names.HANDLER, "n1"] = Behaviour(broken="CrashLoopBackOff")
    world.sleep(5)
    with pytest.raises(TaskFailed, match=r"n1 \(pod virt-handler-\d+: container virt-handler: CrashLoopBackOff"):
        stage.run("pools", {"virtpools_pools": [RT, {**GPU, "nodeSelector": {"hw": "none"}}]})
    stage.run("pools", {"virtpools_pools": [RT, GPU]})
    assert world.handlers("n1") == ["virt-handler-gpu"]
