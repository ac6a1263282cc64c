# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Feature gates belong to the plan, to its digest and to the run: none is written before a plan is accepted."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.operated_pools import make, pool
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play, TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, stock

WITH_GATE = {"virtpools_pools": [GPU, RT], "virtpools_feature_gates_present": ["Root"]}
PLANNED = {"pools": [GPU, RT], "max_unavailable": 2}
LINE = "KubeVirt kubevirt/kubevirt: feature gates: enable Root (spec.configuration.developerConfiguration)"


class Scenario:
    """A cluster without pools, and runs of a user who asks for feature gates."""

    def __init__(self, run, stage, cluster=""):
        self.module = run
        self._stage = stage
        self.world, self._disturbance = stage.on(stock(cluster))

    def run(self, role, **variables):
        self._stage.run(role, variables)

    def plan(self, **arguments):
        return self.module("plan_info", **{**PLANNED, "feature_gates_present": ["Root"], **arguments})

    @property
    def writes(self):
        return self._disturbance.writes

    @property
    def kubevirt(self):
        return self.world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)

    @property
    def gates(self):
        lists = self.kubevirt["spec"].get("configuration", {}).get("developerConfiguration", {})
        return lists.get("featureGates", []), lists.get("disabledFeatureGates", [])


@pytest.fixture
def scenario(run, monkeypatch):
    return Scenario(run, Stage(run, monkeypatch))


def test_the_plan_names_them_first(scenario):
    found = scenario.plan()
    assert (found["feature_gates"], found["changes"][0]) == (True, LINE)
    assert f"  ~ {LINE}" in found["text"]
    assert LINE in found["published"]["localhost"]["site"]["summary"]


def test_the_digest_covers_them_before_and_after(scenario):
    digest = scenario.plan()["digest"]
    assert digest != scenario.plan(feature_gates_present=[])["digest"]
    scenario.run("pools", **WITH_GATE, virtpools_expected_plan=digest)
    assert scenario.plan(expected_plan=digest)["pending"] is False


def test_an_approval_of_another_plan_writes_none(scenario):
    digest = scenario.plan(feature_gates_present=[])["digest"]
    with pytest.raises(TaskFailed, match=r"the options \(.*feature_gates_present.*\) changed since"):
        scenario.run("pools", **WITH_GATE, virtpools_expected_plan=digest)
    assert scenario.writes == []


def test_a_refused_plan_writes_none(scenario):
    misspelt = {**GPU, "nodeSelector": {"hw": "gpuu"}}
    with pytest.raises(TaskFailed):
        scenario.run("pools", **{**WITH_GATE, "virtpools_pools": [misspelt, {**RT, "nodeSelector": {}}]})
    assert scenario.writes == []


def test_none_is_written_during_an_upgrade(scenario):
    upgrading = copy.deepcopy(scenario.kubevirt)
    upgrading["status"]["targetKubeVirtVersion"] = "v9.9.9"
    upgrading["status"]["targetDeploymentID"] = "another"
    scenario.world.put(upgrading)
    with pytest.raises(TaskFailed, match="is being upgraded from"):
        scenario.run("pools", **WITH_GATE)
    assert scenario.writes == []
    assert "is being upgraded from" in scenario.module.failure("feature_gate", present=["Root"])


class TestAnotherDeploymentOfTheSameVersion:
    """What a gate that changes virt-operator's deployment causes, and other images or another version of HCO."""

    @pytest.fixture
    def rolling_out(self, scenario):
        began = copy.deepcopy(scenario.kubevirt)
        began["status"]["targetDeploymentID"] = "another"
        for each in began["status"]["conditions"]:
            each.update(status="True", reason="UpdateInProgress")
        return scenario, began

    def test_is_waited_for(self, rolling_out):
        scenario, began = rolling_out
        done, world = copy.deepcopy(scenario.kubevirt), scenario.world
        world.put(began)
        ends = world.now + 300  # longer than what passes by itself, and than a KubeVirt that stays Degraded
        world.at[ends] = lambda: world.put(done)
        scenario.run("pools", **WITH_GATE)
        assert scenario.gates == (["Root"], [])
        assert world.now > ends

    def test_that_does_not_end_is_named_and_nothing_is_written(self, rolling_out):
        scenario, began = rolling_out
        scenario.world.put(began)
        with pytest.raises(TaskFailed, match="replaces v1.9.0 by another deployment of the same version"):
            scenario.run("pools", **WITH_GATE, virtpools_settle_timeout=100)
        assert scenario.writes == []


def test_they_come_before_the_pools_and_under_the_lease(scenario):
    scenario.run("pools", **WITH_GATE)
    assert scenario.gates == (["Root"], [])
    first, *rest = scenario.writes
    assert first.endswith("/leases")
    others = [write for write in rest if "/leases" not in write]
    assert others[0].endswith("/kubevirts/kubevirt")
    assert sum("/kubevirts/" in write for write in others) == 2  # and the exclusion


def test_a_gate_alone_is_a_change(scenario):
    scenario.run("pools", virtpools_pools=[GPU, RT])
    assert scenario.plan()["changes"] == [LINE]
    scenario.run("pools", **WITH_GATE)
    assert scenario.gates[0] == ["Root"]
    assert scenario.plan()["pending"] is False


def test_check_mode_writes_none(scenario):
    Play(scenario.module, check=True).role("pools", **WITH_GATE)
    assert scenario.writes == []


def test_a_removal_turns_them_off_last(scenario):
    scenario.run("pools", **WITH_GATE)
    found = scenario.module("plan_info", remove_pools="all", feature_gates_absent=["Root"])
    assert found["changes"][-1] == LINE.replace("enable", "disable")
    scenario.run("remove", virtpools_remove="all", virtpools_feature_gates_absent=["Root"])
    assert scenario.gates == ([], []), "it is off by default"


def test_a_rollback_leaves_them(scenario):
    scenario.run("pools", virtpools_pools=[RT])
    scenario.run("pools", **WITH_GATE)
    scenario.run("rollback", virtpools_feature_gates_absent=["Root"])
    assert scenario.gates == (["Root"], [])


def test_what_hco_forbids_is_an_error_of_the_plan(run, monkeypatch):
    scenario = Scenario(run, Stage(run, monkeypatch), "HCO")
    disabling = copy.deepcopy(scenario.kubevirt)
    disabling["spec"]["configuration"] = {"developerConfiguration": {"disabledFeatureGates": ["Root"]}}
    scenario.world.put(disabling)
    (message,) = scenario.plan()["errors"]
    assert message.startswith(f"HyperConverged kubevirt/{names.HCO_NAME}: HCO disables the feature gate Root, ")


@pytest.mark.parametrize("build", ["A", "B", "C"])
def test_the_gate_that_operator_pools_need_is_not_turned_off(run, build):
    run.world = make(build)
    run.world.sleep(5)
    gate = {"A": "AdditionalVirtHandlers", "B": "VirtHandlerPools", "C": "WorkerPools"}[build]
    found = run("plan_info", mode="operator", pools=[pool(build)], feature_gates_absent=[gate])
    (message,) = found["errors"]
    assert message.startswith(
        f"Feature gate {gate} is to be absent, and this build of KubeVirt needs it for its pools;"
    )
