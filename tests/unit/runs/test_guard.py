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


def test_is_deleted_when_it_is_no_longer_asked_for(run, written):
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
