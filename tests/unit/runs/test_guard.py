# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import answers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import GUARD_KINDS, GuardAdmission

GPU = builders.pool("gpu")
WANTED = {"pools": [builders.RAW_POOL | {"virtHandlerImage": GPU.virt_handler_image}], "guard": True}
LINES = [f"{kind} {name}" for name in names.GUARDS for kind in GUARD_KINDS]


def live(world):
    return [world.find(kind, name) for name in names.GUARDS for kind in GUARD_KINDS]


@pytest.fixture
def written(excluded):
    for _kind, obj in guard.derive(builders.NAMESPACE, ()):
        excluded.put(copy.deepcopy(obj))
    return excluded


@pytest.fixture
def acting(world, monkeypatch):
    monkeypatch.setattr(answers, "_REFUSAL_SECONDS", 0)
    return GuardAdmission(world)


def test_in_check_mode_says_what_it_would_write(run, excluded):
    found = run("run_part", part="guard", check=True, **WANTED)
    assert (found["changed"], found["changes"]) == (True, [f"{line}: create" for line in LINES])
    assert excluded.writes == []


@pytest.mark.usefixtures("acting")
def test_is_written_and_proven(run, excluded):
    found = run("run_part", part="guard", **WANTED)
    assert found["changes"] == [f"{line}: create" for line in LINES]
    assert None not in live(excluded)
    assert run("run_part", part="guard", **WANTED)["changed"] is False


def test_one_that_does_nothing_is_taken_away_again(run, excluded):
    message = run.failure("run_part", part="guard", **WANTED)
    assert message.startswith("The guard was deleted again: a node that names its owner is not refused by")
    assert live(excluded) == [None] * len(LINES)


def test_one_is_withdrawn_if_another_policy_refuses_everything(run, excluded, acting):
    acting.others_refuse = True
    message = run.failure("run_part", part="guard", **WANTED)
    assert "deleted again: a node without an owner is refused (" in message
    assert live(excluded) == [None] * len(LINES)


def test_comes_after_the_exclusion(run, world):
    message = run.failure("run_part", part="guard", **WANTED)
    assert "install the exclusion first" in message
    assert world.writes == []


NOT_ASKED = {**WANTED, "guard": None}


@pytest.mark.usefixtures("acting")
def test_is_written_unless_it_is_switched_off(run, excluded):
    plan = run("plan_info", for_run=True, **NOT_ASKED)
    assert plan["steps"]["0"] == ["guard"]
    assert run("run_part", part="guard", **NOT_ASKED)["changes"] == [f"{line}: create" for line in LINES]
    assert None not in live(excluded)


@pytest.mark.usefixtures("written")
def test_a_run_that_would_delete_it_says_so(run):
    codes = [finding["code"] for finding in run("plan_info", **WANTED | {"guard": False})["findings"]]
    assert "guard_deleted" in codes
    assert not [line for line in run("plan_info", **NOT_ASKED)["changes"] if "guard" in line]


@pytest.mark.parametrize("without", ["policies", "rights"])
def test_a_run_that_cannot_write_it_does_everything_else(run, excluded, without):
    if without == "policies":
        excluded.unserved |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    else:
        excluded.denied |= {("create", "validatingadmissionpolicies"), ("assign", "nodeowners")}
    plan = run("plan_info", for_run=True, **NOT_ASKED)
    assert not plan.get("failed"), plan
    (said,) = [each for each in plan["findings"] if each["code"] == "guard_unavailable"]
    assert (said["severity"], plan["errors"]) == ("note", [])
    assert not [line for line in plan["changes"] if "guard" in line]
    assert plan["changes"], "everything else"
    refused = run("plan_info", for_run=True, **WANTED)  # with virtpools_guard: true
    assert refused.get("failed") or refused["errors"]


def test_a_plan_names_nodes_with_two_handlers_first(run, excluded):
    """Something has reset spec.customizeComponents, and virt-operator has followed."""
    excluded.put(builders.node("n1", "gpu", labels={"hw": "gpu"}))
    excluded.put(builders.handler_pod("n1", "virt-handler-gpu"))
    excluded.put(builders.kubevirt())
    excluded.put(builders.primary(excluded=False, desired=2))
    first = run("plan_info", **NOT_ASKED)["findings"][0]
    assert (first["severity"], first["code"]) == ("warning", "two_handlers")
    assert (
        "1 node has two handler pods, and pause, console and VNC fail there: n1. The exclusion is missing"
        in first["message"]
    )
    assert "this run restores it" in first["message"]


def test_is_deleted_when_it_is_switched_off(run, written):
    found = run("run_part", part="guard", **{**WANTED, "guard": False})
    assert sorted(found["changes"]) == sorted(f"{line}: delete" for line in LINES)
    assert live(written) == [None] * len(LINES)


@pytest.mark.usefixtures("written")
def test_one_that_still_acts_after_it_was_deleted_is_told(run, acting):
    acting._wrong = lambda sent: True
    acting.others_refuse = True
    assert run.failure("run_part", part="guard", **{**WANTED, "guard": False}).startswith("The guard was deleted, but ")


def test_the_exclusion_does_not_go_before_it(run, written):
    assert "delete it first, with run_part (part: guard)" in run.failure("primary_exclusion", state="absent")
    foretold = run("primary_exclusion", state="absent", after_nodes=True, check=True)
    assert foretold["changed"], "by then it will be gone"
    assert written.writes == []


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("guarded", [True, False])
def test_a_run_without_the_right_is_refused_before_it_begins(run, world, guarded):
    world.denied = {("assign", "nodeowners")}
    message = run.failure("plan_info", for_run=True, **{**WANTED, "guard": guarded})
    assert "The user tester lacks 1 permission on" in message
    assert "assign nodeowners.virtpools.io. Bind it to the ClusterRole" in message
