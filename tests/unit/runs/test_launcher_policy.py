# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import BINDING, KYVERNO, POLICY, Admission

RAW = {
    **builders.RAW_POOL,
    "virtLauncherImage": builders.GPU_LAUNCHER_IMAGE,
    "selector": {"vmLabels": {"matchLabels": {"class": "gpu"}}},
}
ACTIVE = Table.for_pools(read_dialect(OWN, [RAW]))
INACTIVE = Table.for_pools(read_dialect(OWN, [RAW]), {})
MEANING = f"VMs that match pool gpu start with {builders.GPU_LAUNCHER_IMAGE} on its nodes"


@pytest.fixture(autouse=True)
def admission(world):
    return Admission(world)


@pytest.fixture
def owned(excluded):
    """The pool has its node."""
    excluded.put(builders.node("n1", "gpu", labels={"hw": "gpu"}))
    return excluded


def live(world):
    return [world.find(kind, names.POLICY) for kind in (POLICY, BINDING)]


def digest(of):
    return launcher_policy.digest_of(of, builders.NAMESPACE)


class TestPresent:
    @pytest.mark.usefixtures("owned")
    def test_maps_vms_to_a_pool_that_has_its_nodes(self, run, world):
        found = run("run_part", part="launcher_policy", pools=[RAW])
        assert found["changes"] == [
            "MutatingAdmissionPolicy virtpools-launcher: create",
            "MutatingAdmissionPolicyBinding virtpools-launcher: create",
            MEANING,
            "VMs that match no pool start on no node of gpu",
        ]
        assert (found["changed"], found["backend"], found["digest"]) == (True, "admission_policy", digest(ACTIVE))
        epoch = launcher_policy.epoch_of(live(world)[0])
        assert live(world)[0]["spec"] == launcher_policy.spec(ACTIVE, builders.NAMESPACE, epoch=epoch)

    @pytest.mark.usefixtures("excluded")
    def test_keeps_vms_off_a_pool_before_it_takes_any(self, run):
        found = run("run_part", part="launcher_policy", pools=[RAW])
        assert (found["digest"], MEANING in found["changes"]) == (digest(INACTIVE), False)

    @pytest.mark.usefixtures("owned")
    def test_twice_changes_nothing_and_takes_no_lease(self, run, world):
        first = run("run_part", part="launcher_policy", pools=[RAW])
        world.writes.clear()
        assert run("run_part", part="launcher_policy", pools=[RAW]) == {
            **first,
            "changed": False,
            "changes": [],
            "diff": [],
        }
        assert world.writes == []

    @pytest.mark.usefixtures("owned")
    def test_check_mode_predicts_and_writes_nothing(self, run, world):
        predicted = run("run_part", part="launcher_policy", pools=[RAW], check=True)
        assert world.writes == []
        done = run("run_part", part="launcher_policy", pools=[RAW])
        assert [predicted[key] for key in ("changes", "digest", "diff")] == [
            done[key] for key in ("changes", "digest", "diff")
        ]

    @pytest.mark.usefixtures("excluded")
    def test_check_mode_at_a_later_stage_knows_the_nodes_that_moved(self, run, world):
        run("run_part", part="launcher_policy", pools=[RAW])
        found = run("run_part", part="launcher_policy", pools=[RAW], step=1, check=True)
        assert found["changes"] == ["MutatingAdmissionPolicy virtpools-launcher: update", MEANING]
        assert found["digest"] == digest(ACTIVE)
        assert run("run_part", part="launcher_policy", pools=[RAW], step=1)["changed"] is False, (
            "nodes are where they are"
        )

    @pytest.mark.usefixtures("excluded")
    def test_no_such_stage(self, run):
        message = run.failure("run_part", part="launcher_policy", pools=[RAW], step=2, check=True)
        assert message == "step is 2; give last, or a number from 0 to 1, the plan's batches."

    @pytest.mark.usefixtures("owned")
    def test_the_diff_can_be_read(self, run):
        run("run_part", part="launcher_policy", pools=[RAW])
        changed = {**RAW, "selector": {"deviceNames": ["vendor.example/a", "vendor.example/b"]}}
        diffs = run("run_part", part="launcher_policy", pools=[changed])["diff"]
        (diff,) = (each for each in diffs if each["after_header"] == "MutatingAdmissionPolicy/virtpools-launcher")
        assert (
            diff["after"]["spec"]["variables"]["hit0"][0]
            == '[("vendor.example/a" in variables.asked || "vendor.example/b" in variables.asked)].indexOf(true)'
        )
        assert names.MAPPING_ANNOTATION not in json.dumps(diffs)

    @pytest.mark.usefixtures("owned")
    @pytest.mark.parametrize(
        ("recorded", "shown"),
        [
            (replace(ACTIVE, keep_off=("gpu", "former")).to_text(), {"keepOff": ["gpu", "former"]}),
            ("edited", "edited"),
        ],
    )
    def test_a_diff_shows_the_table_where_nothing_else_differs(self, run, world, recorded, shown):
        run("run_part", part="launcher_policy", pools=[RAW])
        live(world)[0]["metadata"]["annotations"][names.MAPPING_ANNOTATION] = recorded
        (diff,) = run("run_part", part="launcher_policy", pools=[RAW])["diff"]
        assert diff["before"]["metadata"]["annotations"] == {names.MAPPING_ANNOTATION: shown}
        assert diff["after"]["metadata"]["annotations"] != diff["before"]["metadata"]["annotations"]

    @pytest.mark.usefixtures("owned")
    def test_the_diff_of_a_new_policy_has_a_line_for_each_expression(self, run):
        diffs = run("run_part", part="launcher_policy", pools=[RAW])["diff"]
        (diff,) = (each for each in diffs if each["after_header"] == "MutatingAdmissionPolicy/virtpools-launcher")
        assert diff["before"] == {}
        assert all(isinstance(expression, str) for expression in diff["after"]["spec"]["variables"].values())
        assert len(json.dumps(diff["after"], indent=4).splitlines()) < 100

    @pytest.mark.usefixtures("owned")
    def test_the_diff_of_a_deleted_policy_is_short(self, run):
        run("run_part", part="launcher_policy", pools=[RAW])
        diffs = run("run_part", part="launcher_policy", state="absent")["diff"]
        assert len(diffs) == 2
        for diff in diffs:
            assert diff["before"].keys() == {"apiVersion", "kind", "metadata"}
            assert diff["after"] == {}

    @pytest.mark.usefixtures("owned")
    def test_a_policy_that_fails_is_not_put_live(self, run, world, admission):
        admission.failing.add(names.CANDIDATE_POLICY)
        assert "was not activated" in run.failure("run_part", part="launcher_policy", pools=[RAW])
        assert live(world) == [None, None]

    @pytest.mark.usefixtures("owned")
    def test_never_takes_over_somebody_elses(self, run, world):
        foreign = POLICY.object(names.POLICY, spec={})
        world.put(foreign)
        assert "exists but is not ours" in run.failure("run_part", part="launcher_policy", pools=[RAW])
        assert world.writes == []

    @pytest.mark.usefixtures("owned")
    def test_what_no_pool_needs_is_deleted(self, run, world):
        run("run_part", part="launcher_policy", pools=[RAW])
        handler_only = {**builders.RAW_POOL, "unmatched": "allow"}
        found = run("run_part", part="launcher_policy", pools=[handler_only])
        assert live(world) == [None, None]
        assert found["changes"][:2] == [
            "MutatingAdmissionPolicyBinding virtpools-launcher: delete",
            "MutatingAdmissionPolicy virtpools-launcher: delete",
        ]
        assert (found["backend"], found["digest"]) == ("none", None)


class TestBackends:
    @pytest.mark.usefixtures("owned")
    def test_kyverno_takes_over_and_hands_back(self, run, world):
        run("run_part", part="launcher_policy", pools=[RAW])
        found = run("run_part", part="launcher_policy", pools=[RAW], launcher_backend="kyverno")
        assert (found["backend"], found["digest"]) == ("kyverno", digest(ACTIVE))
        assert live(world) == [None, None]
        assert world.find(KYVERNO, names.POLICY) is not None
        run("run_part", part="launcher_policy", pools=[RAW], launcher_backend="admission_policy")
        assert None not in live(world)
        assert world.all(KYVERNO) == []


class TestAbsent:
    @pytest.mark.usefixtures("owned")
    def test_deletes_all_of_ours_and_needs_no_pools(self, run, world):
        run("run_part", part="launcher_policy", pools=[RAW], outdated="correct")
        predicted = run("run_part", part="launcher_policy", state="absent", check=True)
        assert None not in live(world)
        found = run("run_part", part="launcher_policy", state="absent")
        assert (
            found["changes"]
            == predicted["changes"]
            == [
                "MutatingAdmissionPolicyBinding virtpools-launcher: delete",
                "MutatingAdmissionPolicy virtpools-launcher: delete",
                "MutatingAdmissionPolicyBinding virtpools-outdated: delete",
                "MutatingAdmissionPolicy virtpools-outdated: delete",
            ]
        )
        assert world.all(POLICY) == world.all(BINDING) == []
        assert run("run_part", part="launcher_policy", state="absent")["changed"] is False

    def test_leaves_others_alone(self, run, world):
        foreign = world.put(kinds.MUTATING_ADMISSION_POLICIES[0].object(names.POLICY, spec={}))
        assert run("run_part", part="launcher_policy", state="absent")["changed"] is False
        assert world.find(POLICY, names.POLICY) == foreign
