# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs and rollbacks: a cluster goes back to the list it had, and says what it had."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import (
    GPU,
    NEXT_GPU,
    RT,
    Stage,
    state,
    stock,
)

FORMER = [GPU, RT]
EDITED = [NEXT_GPU, {**RT, "name": "real-time"}]


class Scenario:
    def __init__(self, stage):
        self._stage = stage
        self.begin(stock())

    def begin(self, objects):
        """Go on with a cluster that has these objects."""
        self.cuts = []
        self.world, self.disturbance = self._stage.on(copy.deepcopy(list(objects)), cuts=self.cuts)

    def site(self, pools, **variables):
        self._stage.run("pools", {"virtpools_pools": pools, "virtpools_prune": True, **variables})

    def remove(self, removed):
        self._stage.run("remove", {"virtpools_remove": removed})

    def rollback(self, **variables):
        self._stage.run("rollback", variables)

    def state(self):
        """What a user could see, but for the history itself."""
        return {key: value for key, value in state(self.world).items() if names.HISTORY not in key}

    def history(self):
        """The pools of the lists that the cluster had."""
        live = self.world.find(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE)
        return [[pool["name"] for pool in entry["pools"]] for entry in json.loads(live["data"]["entries"])]


@pytest.fixture
def scenario(run, monkeypatch):
    return Scenario(Stage(run, monkeypatch))


@pytest.fixture
def edited(scenario):
    """Two lists were applied."""
    scenario.site(FORMER)
    scenario.former = scenario.state()
    scenario.site(EDITED)
    scenario.edited = scenario.state()
    assert scenario.edited != scenario.former
    assert scenario.history() == [["gpu", "rt"], ["gpu", "real-time"]]
    return scenario


def test_unanswered_questions_of_a_survey_change_nothing(edited):
    edited.rollback(**{option.variable: "" for option in option_table.TABLE if option.roles})
    assert edited.state() == edited.former


def test_there_and_back_again(edited):
    edited.rollback()
    assert edited.state() == edited.former
    edited.rollback(virtpools_pools=FORMER, virtpools_pools_from_cluster=True)
    assert edited.state() == edited.edited
    assert len(edited.history()) == 4


def test_a_run_with_nothing_to_do_writes_nothing(edited):
    before = len(edited.disturbance.writes)
    edited.site(EDITED)
    assert len(edited.disturbance.writes) == before


def test_no_earlier_list(scenario):
    with pytest.raises(TaskFailed, match="There is no earlier pool list to go back to"):
        scenario.rollback()
    assert scenario.disturbance.writes == []


UNFINISHED = {
    "other images": lambda scenario: scenario.site([GPU, EDITED[1]]),
    "a pool less": lambda scenario: scenario.site([NEXT_GPU]),
    # The pools' DaemonSets go last: until then they alone tell nothing of the removal.
    "all pools removed": lambda scenario: scenario.remove("all"),
    "one pool removed": lambda scenario: scenario.remove(["real-time"]),
}


@pytest.mark.parametrize("carry_out", UNFINISHED.values(), ids=UNFINISHED)
def test_an_interrupted_run_is_undone(edited, carry_out):
    edited.begin(edited.world.objects.values())
    carry_out(edited)
    cuts = [cut for cut in edited.cuts if is_unfinished(cut)][::8]
    assert len(cuts) > 1
    for cut in cuts:
        edited.begin(cut)
        edited.rollback()
        assert edited.state() == edited.edited


def is_unfinished(objects):
    known = [obj["data"] for obj in objects if obj["metadata"]["name"] == names.HISTORY]
    return any(not data.keys().isdisjoint({"applying", "removing"}) for data in known)


def test_an_interrupted_rollback_goes_on(edited):
    edited.begin(edited.world.objects.values())
    edited.rollback()
    # The first two writes are the Lease and the note of where the run goes, the last two that it is there, and the Lease.
    cuts = edited.cuts[1:-2:8]
    assert len(cuts) > 1
    for cut in cuts:
        edited.begin(cut)
        edited.rollback()
        assert edited.state() == edited.former
    edited.rollback()
    assert edited.state() == edited.edited


@pytest.mark.parametrize("named", [False, True])
def test_a_list_that_another_run_applied_meanwhile_is_not_undone(edited, run, named):
    """Which list is the previous one is read before the Lease; a list that the user names stays what it is."""
    former = run("pool_history")["target"]
    taken = []

    def before(request):
        if request.method == "POST" and request.path.endswith("/leases") and not taken:
            taken.append(request)
            assert run("pool_history", pools=[GPU], record="completed")["changed"]

    edited.world.before = before
    if named:
        edited.rollback(virtpools_rollback_to=former)
        assert edited.state() == edited.former
    else:
        with pytest.raises(TaskFailed, match="another run has applied its pool list"):
            edited.rollback()
        assert edited.state() == edited.edited
