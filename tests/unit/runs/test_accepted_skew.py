# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs with a pool whose images may be of another version than KubeVirt: that is part of its list, wherever the list goes."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support.operated_pools import kubevirt, make
from ansible_collections.virtpools.kubevirt.tests.unit.support.operated_pools import pool as operator_pool
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play, TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, stock

OLD = {**GPU, "virtHandlerImage": "registry.example/virt-handler:v1.8.2-gpu"}
ACCEPTED = {**OLD, "allowSkew": True}
REFUSED = (
    r"Pool gpu: virtHandlerImage \S+:v1.8.2-gpu is of another version than KubeVirt v1.9.0; .* set allowSkew: true"
)


class Runs:
    def __init__(self, run, monkeypatch):
        self.module, self._stage = run, Stage(run, monkeypatch)
        self.world, self.disturbance = self._stage.on(stock())

    def site(self, *pools, **variables):
        self._stage.run("pools", {"virtpools_pools": list(pools), **variables})

    def role(self, name, **variables):
        self._stage.run(name, variables)

    def codes(self, severity):
        """What plain verification reports on skew."""
        found = self.module("verification_info")["findings"]
        return [each["code"] for each in found if each["severity"] == severity and "skew" in each["code"]]


@pytest.fixture
def runs(run, monkeypatch):
    return Runs(run, monkeypatch)


def test_verify_without_a_list_accepts_what_site_accepted(runs):
    runs.site(ACCEPTED, RT)
    assert (runs.codes("error"), runs.codes("warning")) == ([], ["version_skew"])
    assert not runs.module("plan_info", pools=[ACCEPTED, RT])["pending"]


def test_a_list_without_it_is_refused(runs):
    with pytest.raises(TaskFailed, match=REFUSED):
        runs.site(OLD, RT)


def test_one_canary_does_not_accept_the_skew_of_others(runs):
    canary = {**RT, "virtHandlerImage": "registry.example/virt-handler:v1.9.1", "allowSkew": True}
    with pytest.raises(TaskFailed, match=REFUSED):
        runs.site(OLD, canary)


def test_a_rollback_brings_the_list_back_that_had_it(runs):
    runs.site(ACCEPTED, RT)
    runs.site(GPU, RT)
    assert runs.codes("warning") == []
    runs.role("rollback")
    assert runs.world.handlers("n1") == ["virt-handler-gpu"]
    assert (runs.codes("error"), runs.codes("warning")) == ([], ["version_skew"])


def test_other_pools_can_be_removed(runs):
    runs.site(ACCEPTED, RT)
    runs.role("remove", virtpools_remove="rt")
    assert runs.codes("error") == []


def test_to_accept_it_later_replaces_nothing_and_is_recorded(runs):
    runs.site(GPU, RT)
    pods = {pod["metadata"]["uid"] for pod in runs.world.all(kinds.POD)}
    templates = [each["spec"] for each in runs.world.all(kinds.DAEMON_SET)]
    plan = runs.module("plan_info", pools=[{**GPU, "allowSkew": True}, RT])
    assert plan["batches"] == []
    runs.site({**GPU, "allowSkew": True}, RT)
    assert {pod["metadata"]["uid"] for pod in runs.world.all(kinds.POD)} == pods
    assert [each["spec"] for each in runs.world.all(kinds.DAEMON_SET)] == templates
    newest = runs.module("pool_history")["entries"][-1]
    assert [pool.get("allowSkew") for pool in newest["pools"]] == [True, None]


@pytest.mark.parametrize("build", ["A", "B", "C"])
def test_operator_mode_keeps_it_in_the_history(run, build):
    run.world = make(build)
    run.world.sleep(5)
    play = Play(run)
    old = {**operator_pool(build), "virtHandlerImage": "registry.example/virt-handler:v1.8.2-gpu"}
    with pytest.raises(TaskFailed, match="set allowSkew: true in the pool"):
        play.role("pools", virtpools_mode="operator", virtpools_pools=[old])
    play.role("pools", virtpools_mode="operator", virtpools_pools=[{**old, "allowSkew": True}])
    assert "allowSkew" not in str(kubevirt(run.world)["spec"])
    found = run("verification_info")["findings"]
    assert [each["severity"] for each in found if each["code"] == "version_skew"] == ["warning"]
    assert run("pool_info")["healthy"]
    play.role("pools", virtpools_pools=[operator_pool(build)])
    play.role("pools", virtpools_pools_from_history=run("pool_history")["target"])
    assert run.world.handlers("n1") == ["virt-handler-gpu"]
