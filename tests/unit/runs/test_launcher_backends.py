# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs with kubevirt-aie-webhook and Kyverno, from nothing to nothing, and from one back end to another."""

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import aie_config
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import BINDING, POLICY, Admission

RAW = {
    **builders.RAW_POOL,
    "virtLauncherImage": builders.GPU_LAUNCHER_IMAGE,
    "selector": {"deviceNames": ["nvidia.com/A100"]},
    "unmatched": "allow",
}
RULE = {
    "name": "gpu",
    "image": builders.GPU_LAUNCHER_IMAGE,
    "selector": {"deviceNames": ["nvidia.com/A100"]},
}
AIE, TO_AIE = "ConfigMap kubevirt/kubevirt-aie-launcher-config", {"pools": [RAW], "launcher_backend": "aie_webhook"}


@pytest.fixture(autouse=True)
def admission(excluded):
    """Acts by policies; the pool has its node."""
    excluded.put(builders.node("n1", "gpu", labels={"hw": "gpu"}))
    return Admission(excluded)


@pytest.fixture
def webhook(world):
    """The ConfigMap as the webhook's chart makes it."""
    obj = kinds.CONFIG_MAP.object(names.AIE_CONFIG, builders.NAMESPACE, data={aie_config.KEY: "rules:\n", "more": "1"})
    obj["metadata"]["labels"] = {names.MANAGED_BY_LABEL: "Helm"}
    return world.put(obj)


def config_map(world):
    return world.find(kinds.CONFIG_MAP, names.AIE_CONFIG, builders.NAMESPACE)


def rules(world):
    return json.loads(config_map(world)["data"][aie_config.KEY])["rules"]


@pytest.mark.usefixtures("webhook")
class TestWebhook:
    def test_gets_its_rules_once(self, run, world):
        found = run("run_part", part="launcher_policy", **TO_AIE)
        assert found["changes"][0] == f"{AIE}: update"
        assert found["backend"] == "aie_webhook"
        assert found["digest"] == config_map(world)["metadata"]["annotations"][names.POLICY_ANNOTATION]
        assert rules(world) == [RULE]
        assert world.all(POLICY) == []
        world.writes.clear()
        assert run("run_part", part="launcher_policy", **TO_AIE) == {
            **found,
            "changed": False,
            "changes": [],
            "diff": [],
        }
        assert world.writes == []

    def test_check_mode_predicts_and_writes_nothing(self, run, world):
        predicted = run("run_part", part="launcher_policy", check=True, **TO_AIE)
        assert world.writes == []
        done = run("run_part", part="launcher_policy", **TO_AIE)
        assert [predicted[key] for key in ("changes", "digest", "diff")] == [
            done[key] for key in ("changes", "digest", "diff")
        ]

    def test_keeps_its_config_map_when_our_rules_go(self, run, world, webhook):
        run("run_part", part="launcher_policy", **TO_AIE)
        found = run("run_part", part="launcher_policy", state="absent")
        assert found["changes"] == [f"{AIE}: update"]
        after = config_map(world)
        assert rules(world) == []
        assert (after["metadata"]["labels"], after["data"]["more"]) == (webhook["metadata"]["labels"], "1")
        assert not after["metadata"].get("annotations")
        assert run("run_part", part="launcher_policy", state="absent")["changed"] is False

    def test_rules_of_others_are_refused(self, run, world, webhook):
        world.put({**webhook, "data": {aie_config.KEY: "rules: [{name: theirs, image: i, selector: {}}]"}})
        assert "holds rules of others" in run.failure("run_part", part="launcher_policy", **TO_AIE)
        assert world.writes == []

    def test_pools_it_cannot_serve_are_refused(self, run, world):
        pools = [{**RAW, "unmatched": "keep_off"}]
        assert "cannot keep VMs that match no pool off" in run.failure(
            "run_part", part="launcher_policy", **{**TO_AIE, "pools": pools}
        )
        assert world.writes == []

    def test_gives_way_to_another_back_end_and_comes_back(self, run, world):
        run("run_part", part="launcher_policy", **TO_AIE)
        to_policies = run("run_part", part="launcher_policy", pools=[RAW])
        assert to_policies["backend"] == "admission_policy"
        assert f"{AIE}: update" in to_policies["changes"]
        assert (rules(world), len(world.all(POLICY))) == ([], 1)
        back = run("run_part", part="launcher_policy", **TO_AIE)
        assert f"{POLICY} {names.POLICY}: delete" in back["changes"]
        assert (rules(world), world.all(POLICY), world.all(BINDING)) == ([RULE], [], [])


def test_a_kyverno_that_does_not_act_gets_no_policy(run, world, admission):
    admission.idle.add(names.CANDIDATE_POLICY)
    message = run.failure("run_part", part="launcher_policy", pools=[RAW], launcher_backend="kyverno")
    assert message.startswith("MutatingPolicy virtpools-launcher was not activated, nothing has changed for VMs: ")
    assert "does not act on launcher pods" in message
    assert world.all(kinds.KYVERNO_MUTATING_POLICY) == []
