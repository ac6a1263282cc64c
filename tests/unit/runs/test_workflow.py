# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AWX's workflow "rollout with approval", with the roles that its jobs run: each gets what the jobs before it published."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.option_table.surveys import ROLLOUT_WORKFLOW
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_objects import WORKFLOWS, Job, Secrets, objects
from ansible_collections.virtpools.kubevirt.tests.unit.support.awx_rules import run_workflow
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, NEXT_GPU, RT, Stage, state, stock

FIRST, SECOND, THIRD = [RT], [GPU, RT], [NEXT_GPU, RT]
WAVES = [{"nodes": ["n1"]}, {"nodes": ["n2", "n3"]}]
(WORKFLOW,) = (each for each in WORKFLOWS if each.survey == ROLLOUT_WORKFLOW)
OF_TEMPLATE = {
    pool_list: {
        each["playbook"]: each["variables"]
        for each in objects(
            option_table.resolve("awx", {"virtpools_awx_pool_list": pool_list}), Secrets({}, {}, {}, {})
        )["templates"]
    }
    for pool_list in ("project", "survey")
}
"""The variables of each job template, by where pool lists come from."""
TO_THE_END = {"plan", "approve", "rollout", "verify"}
BACK = {"plan_rollback", "approve_rollback", "rollback", "verify_rollback"}


class Workflow:
    """A workflow on a cluster, which has had some lists."""

    def __init__(self, stage, *lists):
        self._stage = stage
        self.begin(stock())
        for pools in lists:
            self.apply(pools)
        self.before = self.state()
        self.inventory = {"virtpools_waves": WAVES}
        self.of_template = OF_TEMPLATE["survey"]
        self.published, self.errors = {}, {}
        """The artifacts and the errors of its jobs, by node."""

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

    def launch(self, *, denied=(), meanwhile=None, **variables):
        """Launch the workflow with these answers to its survey. Returns its status, and that of each node that ran.

        :param denied: approvals that are denied.
        :param meanwhile: what happens before the job of a node, by node.
        """
        jobs = {job.node: job for job in WORKFLOW.jobs}
        if self.of_template is OF_TEMPLATE["survey"]:
            variables = {"virtpools_pools": THIRD, "virtpools_prune": True, **variables}

        def run(node, given):
            (meanwhile or {}).get(node, lambda: None)()
            if node not in jobs:
                return node not in denied, {}
            return self._run(jobs[node], given)

        return run_workflow(WORKFLOW, run, variables)

    def _run(self, job, given):
        variables = {**self.inventory, **self.of_template[job.playbook], **given}
        try:
            self.published[job.node] = self._stage.job(job.playbook, variables, check=job.check)
        except TaskFailed as error:
            self.published[job.node], self.errors[job.node] = error.artifacts, str(error)
            return False, error.artifacts
        return True, self.published[job.node]

    def scheduled(self, playbook):
        """Run a job template by its schedule, and return its error."""
        self._run(Job(playbook, playbook), {})
        return self.errors.pop(playbook, "")

    def break_node(self):
        """From now on, new handlers do not start on a node of the second wave."""
        usual, known = self.world.behaviour, {None, *map(_template, self.world.pods("n2"))}

        def behaviour(pod):
            new = pod["spec"]["nodeName"] == "n2" and _template(pod) not in known
            return Behaviour(broken="ImagePullBackOff") if new else usual(pod)

        self.world.behaviour = behaviour

    def result(self, node):
        return self.published[node]["virtpools_result"]["localhost"]

    def plan(self, node, run):
        return self.published[node]["virtpools_plan"]["localhost"][run]


def _template(pod):
    return pod["metadata"].get("annotations", {}).get(names.TEMPLATE_ANNOTATION)


@pytest.fixture
def workflow(run, monkeypatch):
    return Workflow(Stage(run, monkeypatch), FIRST, SECOND)


def test_ends_well_where_the_approved_list_is_there(workflow):
    status, nodes = workflow.launch()
    assert (status, nodes.keys(), workflow.errors) == ("successful", TO_THE_END, {})
    result = workflow.result("rollout")
    assert (result["failed"], result["nodes"], result["done"]) == (False, 2, 2)
    assert result["summary"] == "completed, with 2 nodes changed"


def test_without_waves_the_plan_is_refused_as_rollout_would_be(workflow):
    assert workflow.launch(virtpools_waves=[]) == ("failed", {"plan": "failed"})
    assert "virtpools_waves is missing or empty" in workflow.errors["plan"]


def test_a_denied_plan_changes_nothing(workflow):
    assert workflow.launch(denied={"approve"}) == ("failed", {"plan": "successful", "approve": "failed"})
    assert workflow.state() == workflow.before


def test_a_rollout_that_failed_tells_how_far_it_came(workflow):
    """AWX's notification has the artifacts of the job."""
    status, nodes = workflow.launch(meanwhile={"rollout": workflow.break_node}, denied={"approve_rollback"})
    assert (status, nodes["rollout"]) == ("failed", "failed")
    result = workflow.result("rollout")
    assert (result["run"], result["failed"], result["changed"]) == ("site", True, True)
    assert (result["nodes"], result["done"], result["stop"]) == (2, 1, "")
    assert result["summary"] == "failed, with 1 of 2 nodes changed"
    assert result["digest"] == workflow.plan("plan", "site")["digest"]


def test_a_rollout_that_failed_and_was_undone_fails_the_workflow(workflow):
    status, nodes = workflow.launch(meanwhile={"rollout": workflow.break_node})
    assert (status, nodes.keys()) == ("failed", {"plan", "approve", "rollout"} | BACK)
    assert workflow.state() == workflow.before
    assert workflow.result("rollback")["summary"] == "completed, with 1 node changed"
    assert workflow.errors.keys() == {"rollout", "verify_rollback"}
    entry = workflow.plan("plan", "site")
    assert workflow.errors["verify_rollback"] == (
        f"The cluster does not have the approved list {entry['list']}, but what it had before: the run was refused or failed, or a "
        "rollback undid it. Everything else is in order."
    )
    verified = workflow.published["verify_rollback"]["virtpools_verified"]["localhost"]
    assert verified["summary"] == workflow.errors["verify_rollback"]


@pytest.mark.parametrize("fail_on", ["none", "wrong_image"])
def test_an_undone_change_fails_whatever_else_may_fail(workflow, fail_on):
    status, _nodes = workflow.launch(meanwhile={"rollout": workflow.break_node}, virtpools_fail_on=fail_on)
    assert status == "failed"
    assert "does not have the approved list" in workflow.errors["verify_rollback"]


def test_after_a_refused_run_nothing_is_undone(workflow):
    """The list that the cluster has stays, and no earlier one comes back."""
    changed = {"virtpools_max_unavailable": 1}
    status, nodes = workflow.launch(meanwhile={"rollout": lambda: workflow.inventory.update(changed)})
    assert (status, nodes.keys()) == ("failed", {"plan", "approve", "rollout"} | BACK)
    assert "The plan is not the approved one" in workflow.errors["rollout"]
    assert workflow.result("rollout")["summary"] == "refused, with nothing changed"
    assert workflow.result("rollout")["nodes"] == 0
    entry = workflow.plan("plan_rollback", "rollback")
    assert (entry["pending"], entry["nodes"], entry["summary"]) == (False, 0, "no change")
    assert workflow.state() == workflow.before


def test_after_a_run_that_died_its_own_change_is_undone(workflow):
    workflow.launch(denied={"approve"})
    workflow.begin(workflow.world.objects.values())

    def die():
        workflow.begin(workflow.cuts[len(workflow.cuts) // 2])
        assert workflow.state() != workflow.before

    status, _nodes = workflow.launch(meanwhile={"verify": die}, virtpools_fail_on="any")
    assert status == "failed"
    assert workflow.plan("plan_rollback", "rollback")["pending"] is True
    assert workflow.state() == workflow.before


def test_a_list_that_failed_its_verification_is_undone(workflow):

    def edit():
        sets = {each["metadata"]["name"]: each for each in workflow.world.all(kinds.DAEMON_SET)}
        edited = copy.deepcopy(sets["virt-handler-rt"])
        edited["spec"]["template"]["spec"]["containers"][0]["image"] = "edited"
        workflow.world.put(edited)

    status, nodes = workflow.launch(meanwhile={"verify": edit})
    assert (status, nodes.keys()) == ("failed", TO_THE_END | BACK)
    assert "Failed because of: daemonset_drift (virtpools_fail_on)." in workflow.errors["verify"]
    assert workflow.plan("plan_rollback", "rollback")["nodes"] == 2
    assert workflow.state() == workflow.before


def test_what_somebody_else_has_applied_since_is_not_undone(workflow):
    status, nodes = workflow.launch(
        meanwhile={"rollout": workflow.break_node, "plan_rollback": lambda: workflow.apply(FIRST)}
    )
    assert (status, nodes["plan_rollback"]) == ("failed", "failed")
    assert "Another run has applied list" in workflow.errors["plan_rollback"]


def test_the_first_list_has_none_before_it(run, monkeypatch):
    workflow = Workflow(Stage(run, monkeypatch))
    status, nodes = workflow.launch(meanwhile={"rollout": workflow.break_node})
    assert (status, nodes["plan_rollback"]) == ("failed", "failed")
    assert "Before the approved plan the cluster had no pools" in workflow.errors["plan_rollback"]


def test_a_pause_that_was_asked_for_is_no_failure(workflow):
    status, nodes = workflow.launch(virtpools_stop_after_wave=1)
    assert (status, nodes.keys(), workflow.errors) == ("successful", TO_THE_END, {})
    result = workflow.result("rollout")
    assert (result["nodes"], result["done"], result["later"]) == (2, 1, ["n2"])
    assert result["summary"] == "stopped as asked, with 1 of 2 nodes changed"


# Where the list comes from --------------------------------------------------------------------------------------------


def test_lists_of_surveys_are_verified_by_the_clusters_record(workflow):
    """The project's list is still there, and no job reads it."""
    workflow.inventory.update(virtpools_pools=FIRST, virtpools_prune=True)
    assert workflow.launch()[0] == "successful"
    assert workflow.scheduled("verify") == ""


def test_without_an_answer_the_projects_list_is_not_brought(workflow):
    workflow.inventory.update(virtpools_pools=FIRST)
    assert workflow.launch(virtpools_pools="") == ("failed", {"plan": "failed"})
    assert "No pool list is given" in workflow.errors["plan"]
    assert workflow.state() == workflow.before


def test_the_projects_list_is_that_of_all_jobs(workflow):
    workflow.of_template = OF_TEMPLATE["project"]
    workflow.inventory.update(virtpools_pools=THIRD, virtpools_prune=True)
    assert workflow.launch()[0] == "successful"
    assert workflow.scheduled("verify") == ""


def test_a_projects_list_that_is_not_rolled_out_is_said(workflow):
    """As when a list was committed, or a rollback brought an earlier one."""
    workflow.of_template = OF_TEMPLATE["project"]
    workflow.inventory.update(virtpools_pools=THIRD, virtpools_prune=True)
    assert workflow.scheduled("verify").startswith("The given list is not the one that the cluster has")


def test_a_cluster_without_pools_says_what_to_do_first(run, monkeypatch):
    workflow = Workflow(Stage(run, monkeypatch))
    assert "the cluster has none: bring a list with site or rollout first" in workflow.scheduled("verify")
