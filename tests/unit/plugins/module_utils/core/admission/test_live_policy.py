# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import kyverno_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.live_policy import Policy, leftovers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms


def policy(objects=None, pool=None):
    return Policy.from_rollout(vms.plan_of(pool, objects=objects).launcher_rollout)


def only(found):
    (finding,) = found.findings()
    return finding.code, finding.message


def test_in_order():
    found = policy()
    assert (found.state, found.problem, found.digest, found.in_order) == ("live", None, vms.digest(), True)
    assert found.to_dict()["backend"] == "admission_policy"
    assert list(found.findings()) == []


def test_missing():
    found = policy([])
    assert (found.state, found.created, found.in_order) == ("missing", None, False)
    code, message = only(found)
    assert code == "policy_missing"
    assert "there is no MutatingAdmissionPolicy virtpools-launcher and no MutatingAdmissionPolicyBinding" in message


def test_without_its_binding_it_is_not_in_force():
    found = policy(vms.policy()[:1])
    assert (found.state, found.created) == ("missing", None)
    assert "there is no MutatingAdmissionPolicyBinding virtpools-launcher" in only(found)[1]


def test_somebody_elses_is_none():
    objects = vms.policy()
    for obj in objects:
        del obj["metadata"]["labels"]
    assert only(policy(objects)) == (
        "policy_missing",
        "Launcher policy virtpools-launcher is not in force, it is not ours; run site.",
    )


@pytest.mark.parametrize(
    "edit",
    [
        lambda spec: spec.update(failurePolicy="Ignore"),
        lambda spec: spec["matchConditions"].append({"name": "never", "expression": "false"}),
        lambda spec: spec["variables"].pop(),
        lambda spec: spec["matchConstraints"].update(namespaceSelector={"matchLabels": {"a": "b"}}),
    ],
    ids=["failure policy", "condition", "variable", "namespaces"],
)
def test_edited(edit):
    objects = vms.policy()
    edit(objects[0]["spec"])
    found = policy(objects)
    assert (found.state, found.in_order) == ("edited", False)
    assert found.created == vms.POLICY_MADE
    assert only(found)[0] == "policy_edited"


def test_an_edited_binding():
    objects = vms.policy()
    objects[1]["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": {"only": "here"}}}
    assert only(policy(objects))[0] == "policy_edited"


def test_made_for_other_pools():
    code, message = only(policy(vms.policy(vms.gpu(selector={"deviceNames": ["vendor.example/other"]}))))
    assert code == "policy_outdated"
    assert message.endswith("run site.")


def test_not_needed():
    pool = builders.pool(unmatched="allow")
    assert list(policy([], pool).findings()) == []
    code, message = only(policy(vms.policy(), pool))
    assert code == "policy_not_needed"
    assert "MutatingAdmissionPolicy virtpools-launcher exists, and no pool needs it" in message


def test_failing():
    found = policy().failing("the probe gpu was refused")
    assert (found.state, found.in_order) == ("failing", True)
    assert only(found) == (
        "policy_failing",
        "Launcher policy virtpools-launcher does not do what it should: the probe gpu was refused; run site.",
    )


def test_without_a_plan_for_launcher_pods():
    found = Policy.from_rollout(None)
    assert (found.backend, found.state, list(found.findings())) == ("none", "not_needed", [])
    assert list(leftovers(None)) == []


def test_the_webhooks_config_map_has_its_own_name():
    assert dataclasses.replace(policy(), backend="aie_webhook").name == names.AIE_CONFIG


def test_a_candidate_that_was_left():
    candidate = vms.policy()[0]
    candidate["metadata"]["name"] = names.CANDIDATE_POLICY
    (finding,) = leftovers(vms.plan_of(objects=[*vms.policy(), candidate]).launcher_rollout)
    assert (finding.code, finding.severity) == ("policy_candidate_left", "warning")
    assert "MutatingAdmissionPolicy virtpools-launcher-candidate" in finding.message


def of_kyverno():
    (_kind, obj) = kyverno_policy.derive(Table.for_pools([vms.gpu()]), builders.NAMESPACE)
    return obj


def of_webhook():
    (*_policy, config_map) = vms.beside_webhook()
    config_map["metadata"]["annotations"] = {names.POLICY_ANNOTATION: "digest"}
    return config_map


@pytest.mark.parametrize(
    ("left", "what"),
    [
        (of_kyverno, "MutatingPolicy virtpools-launcher is left from another back end"),
        (of_webhook, f"ConfigMap {names.AIE_CONFIG} is left from another back end"),
    ],
)
def test_rules_of_another_back_end_act_as_well(left, what):
    rollout = vms.plan_of(objects=[*vms.policy(), left()]).launcher_rollout
    assert Policy.from_rollout(rollout).state == "live"
    assert rollout.to_remove(0)
    (finding,) = leftovers(rollout)
    assert (finding.code, finding.severity) == ("policy_not_needed", "error")
    assert what in finding.message
