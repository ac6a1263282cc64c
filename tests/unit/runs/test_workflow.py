# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The jobs of AWX's workflow "rollout with approval": each gets what the jobs before it published."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, NEXT_GPU, RT, Stage, state, stock

FIRST, SECOND, THIRD = [RT], [GPU, RT], [NEXT_GPU, RT]
WAVES = [{"count": 1}]


class Workflow:
    """A workflow on a cluster, which has had some lists."""

    def __init__(self, stage, *lists):
        self._stage, self.artifacts = stage, {}
        self.begin(stock())
        for pools in lists:
            self.apply(pools)
        self.before = self.state()

    def begin(self, objects):
        """Go on with a cluster that has these objects."""
        self.cuts = []
        self.world, _disturbance = self._stage.on(list(objects), cuts=self.cuts)

    def state(self):
        """What a user could see, but for the history."""
        return {key: value for key, value in state(self.world).items() if names.HISTORY not in key}

    def apply(self, pools):
        """A run of somebody else."""
        self._stage.run("pools", {"virtpools_pools": pools, "virtpools_prune": True})

    def job(self, role, *, check=False, **variables):
        """Run a role as the workflow's job does, and hand on what it publishes."""
        asked = {"virtpools_pools": THIRD, "virtpools_prune": True}
        waves = {} if role == "verify" else {"virtpools_waves": WAVES}
        published = self._stage.job(role, {**self.artifacts, **asked, **waves, **variables}, check=check)
        self.artifacts = {**self.artifacts, **published}

    def plan(self, **variables):
        self.job("rollout", check=True, **variables)

    def roll_out(self, **variables):
        self.job("rollout", virtpools_require_approval=True, **variables)

    def go_back(self):
        """The branch for a failure: what would be undone, the same undone, and verified."""
        self.job("rollback", check=True)
        entry = self.artifacts["virtpools_plan"]["localhost"]["rollback"]
        self.job("rollback", virtpools_require_approval=True)
        return entry

    def verify(self):
        self.job("verify")


@pytest.fixture
def workflow(run, monkeypatch):
    found = Workflow(Stage(run, monkeypatch), FIRST, SECOND)
    found.plan()
    return found


def test_ends_well_where_the_approved_list_is_there(workflow):
    workflow.roll_out()
    workflow.verify()


def test_without_waves_the_plan_is_refused_as_rollout_would_be(workflow):
    workflow.artifacts = {}
    with pytest.raises(TaskFailed, match="virtpools_waves is missing or empty"):
        workflow.plan(virtpools_waves=[])
    assert workflow.artifacts == {}


def test_after_a_refused_run_nothing_is_undone(workflow):
    """The list that the cluster has stays, and no earlier one comes back."""
    with pytest.raises(TaskFailed, match="The plan is not the approved one"):
        workflow.roll_out(virtpools_max_unavailable=1)
    entry = workflow.go_back()
    assert (entry["pending"], entry["nodes"], entry["summary"]) == (False, 0, "no change")
    assert workflow.state() == workflow.before
    with pytest.raises(TaskFailed, match="approved_list_missing"):
        workflow.verify()


def test_after_a_run_that_died_its_own_change_is_undone(workflow):
    workflow.begin(workflow.world.objects.values())
    workflow.roll_out()
    workflow.begin(workflow.cuts[len(workflow.cuts) // 2])
    assert workflow.state() != workflow.before
    entry = workflow.go_back()
    assert entry["pending"] is True
    assert workflow.state() == workflow.before
    with pytest.raises(TaskFailed, match=r"Failed because of: approved_list_missing \(virtpools_fail_on\)"):
        workflow.verify()


def test_a_list_that_failed_its_verification_is_undone(workflow):
    workflow.roll_out()
    assert workflow.go_back()["nodes"] == 2
    assert workflow.state() == workflow.before


def test_what_somebody_else_has_applied_since_is_not_undone(workflow):
    workflow.apply(FIRST)
    with pytest.raises(TaskFailed, match="Another run has applied list .* since, and going back would undo that, too"):
        workflow.go_back()


def test_the_first_list_has_none_before_it(run, monkeypatch):
    workflow = Workflow(Stage(run, monkeypatch))
    workflow.plan()
    workflow.roll_out()
    with pytest.raises(TaskFailed, match="Before the approved plan the cluster had no pools.*the playbook remove"):
        workflow.go_back()


def test_a_pause_that_was_asked_for_needs_no_list(workflow):
    workflow.roll_out(virtpools_stop_after_wave=1)
    assert workflow.artifacts["virtpools_result"]["localhost"]["stop"]
    with pytest.raises(TaskFailed) as failed:
        workflow.verify()
    assert "approved_list_missing" not in str(failed.value)
