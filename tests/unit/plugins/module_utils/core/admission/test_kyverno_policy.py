# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher policy as Kyverno takes it: the same CEL, and a header that switches off what Kyverno adds."""

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import kyverno_policy, launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

TABLE = Table.for_pools(
    [builders.pool("gpu", virtLauncherImage=builders.GPU_LAUNCHER_IMAGE, selector={"deviceNames": ["nvidia.com/A100"]})]
)
NEXT_IMAGE = "registry.example/virt-launcher:v1.10.0-gpu"
PREPARED = TABLE.prepared(Upcoming(builders.LAUNCHER_IMAGE, "v1.10.0", {"gpu": NEXT_IMAGE}))


@pytest.mark.parametrize("table", [TABLE, PREPARED], ids=["plain", "prepared for an upgrade"])
@pytest.mark.parametrize("name", [names.POLICY, names.CANDIDATE_POLICY])
def test_it_does_what_the_admission_policy_does(name, table):
    kind, made = kyverno_policy.derive(table, builders.NAMESPACE, name)
    (_kind, policy), _binding = launcher_policy.derive(
        table, builders.NAMESPACE, kinds.MUTATING_ADMISSION_POLICIES[0], name
    )
    assert (NEXT_IMAGE in json.dumps(made["spec"])) is (table is PREPARED)
    assert (kind, made["apiVersion"], made["kind"]) == (
        kinds.KYVERNO_MUTATING_POLICY,
        "policies.kyverno.io/v1",
        "MutatingPolicy",
    )
    assert made["metadata"] == policy["metadata"], "of the same table and with the same digest"
    own = ("autogen", "evaluation", "webhookConfiguration", "matchConditions")
    assert {key: value for key, value in made["spec"].items() if key not in own} == {
        key: value for key, value in policy["spec"].items() if key != "matchConditions"
    }
    assert made["spec"]["matchConditions"][1:] == policy["spec"]["matchConditions"]


def test_a_kyverno_that_does_not_know_the_user_fails_the_probes():
    """The policy acts on probes by their label: without this they would pass although it ignores virt-controller's pods."""
    spec = kyverno_policy.derive(TABLE, builders.NAMESPACE)[1]["spec"]
    assert spec["matchConditions"][0]["expression"] == 'request.userInfo.username != ""'


def test_kyverno_makes_nothing_else_of_it():
    spec = kyverno_policy.derive(TABLE, builders.NAMESPACE)[1]["spec"]
    assert spec["autogen"] == {
        "podControllers": {"controllers": []},
        "mutatingAdmissionPolicy": {"enabled": False},
    }
    assert spec["evaluation"] == {"admission": {"enabled": True}, "background": {"enabled": False}}
    assert spec["failurePolicy"] == "Fail"
