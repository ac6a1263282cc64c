# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pool list in a file that is not the one that a run has brought: verify and plan say so, and advise to undo nothing."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, NEXT_GPU, RT, Stage, stock

IN_FILE, APPLIED = [GPU, RT], [NEXT_GPU, RT]


class Cluster:
    """A cluster with the list APPLIED, while a file still has IN_FILE, the list before."""

    def __init__(self, stage, run):
        self._stage, self._module = stage, run
        self.begin(stock())
        for pools in (IN_FILE, APPLIED):
            self.site(pools)

    def begin(self, objects):
        """Go on with a cluster that has these objects."""
        self.cuts = []
        self.world, _disturbance = self._stage.on(copy.deepcopy(list(objects)), cuts=self.cuts)

    def site(self, pools, **variables):
        self._stage.run("pools", {"virtpools_pools": pools, "virtpools_prune": True, **variables})

    def verify(self, pools=None, **variables):
        """The error of the playbook verify; empty when it succeeds."""
        try:
            self._stage.job("verify", {"virtpools_pools": pools, "virtpools_prune": True, **variables})
        except TaskFailed as error:
            return str(error)
        return ""

    def report(self, pools):
        return self._module("verification_info", pools=pools, prune=True)

    def edit(self):
        """Change the DaemonSet of a pool by hand."""
        edited = copy.deepcopy(self.world.find(kinds.DAEMON_SET, "virt-handler-rt", "kubevirt"))
        edited["spec"]["template"]["spec"]["containers"][0]["image"] = "edited"
        self.world.put(edited)


@pytest.fixture
def cluster(run, monkeypatch):
    return Cluster(Stage(run, monkeypatch), run)


def test_a_list_that_is_not_applied_is_said_in_words(cluster):
    """Both ways out are named, and every node and VM is as the cluster's own list has it."""
    told = cluster.verify(IN_FILE)
    assert told.startswith("The given list is not the one that the cluster has, which ")
    assert "pool gpu has another virtHandlerImage, virtLauncherImage. The given list is older, of " in told
    assert "bring the given list with site or a workflow, or put the list that the cluster has" in told
    assert told.endswith("Everything else is in order.")
    found = cluster.report(IN_FILE)
    assert found["problems"] == {"list_not_applied": 1}
    assert found["findings"][0]["code"] == "list_not_applied"
    assert not any("run site" in line for line in found["text"])


def test_what_the_cluster_has_is_in_order(cluster):
    assert cluster.verify(APPLIED) == cluster.verify([RT, NEXT_GPU]) == cluster.verify() == ""


def test_no_advice_undoes_the_list_of_a_newer_run(cluster):
    cluster.edit()
    found = cluster.report(IN_FILE)
    assert found["problems"] == {"daemonset_drift": 1, "list_not_applied": 1}
    advice = [line for line in (*found["text"], found["daemonsets"][2]["problems"][0]) if "run site" in line]
    assert len(advice) > 1
    assert all("run site with the list that the cluster has" in line for line in advice)


def test_what_fails_is_for_the_user_to_say(cluster):
    assert cluster.verify(IN_FILE, virtpools_fail_on="none") == ""


def test_a_pool_that_the_file_lacks_is_not_called_left(cluster):
    assert "pool rt is not in the given list" in cluster.verify([NEXT_GPU])
    assert cluster.verify([NEXT_GPU], virtpools_prune=False) == ""  # a run would keep it


@pytest.mark.parametrize("pools", [[GPU, RT], [NEXT_GPU], [NEXT_GPU, {**RT, "name": "real-time"}]])
def test_while_a_run_is_unfinished_its_list_is_right(cluster, pools):
    """From its first change of a pool until its list is recorded."""
    cluster.begin(cluster.world.objects.values())
    before = _pools(cluster.world.objects.values())
    cluster.site(pools)
    cuts = [cut for cut in cluster.cuts if _pools(cut) != before]
    assert len(cuts) > 5
    for cut in cuts:
        cluster.begin(cut)
        assert "list_not_applied" not in cluster.report(pools)["problems"]


def _pools(objects):
    """What the pools' DaemonSets say of them, and the owner of each node."""
    found = {(obj["kind"], obj["metadata"]["name"]): obj["metadata"] for obj in objects}
    sets = {name: data.get("annotations", {}).get(names.POOL_ANNOTATION) for name, data in found.items()}
    return {
        name: (sets[name], data.get("labels", {}).get(names.OWNER_LABEL))
        for name, data in found.items()
        if name[0] in ("DaemonSet", "Node")
    }


def test_an_earlier_list_comes_back_only_with_a_warning(cluster, run):
    found = run("plan_info", pools=IN_FILE, prune=True)
    (warning,) = (each for each in found["findings"] if each["code"] == "older_list")
    assert warning["severity"] == "warning"
    assert "a run brings it back" in warning["message"]
    assert any("older_list" in line or "brings it back" in line for line in found["text"])
    cluster.site(IN_FILE)
    assert "older_list" not in _codes(run("plan_info", pools=IN_FILE, prune=True))


def test_a_rollback_needs_no_such_warning(cluster, run):
    target = run("pool_history")["target"]
    assert "older_list" not in _codes(run("plan_info", pools_from_history=target))


def _codes(found):
    return [each["code"] for each in found["findings"]]


def test_a_list_is_recorded_only_while_the_cluster_has_it(cluster, run, monkeypatch):
    """All that is left of a run is to record its list. While the same run waits for the Lease, another one dies in its wave."""
    call, deaths = type(run).__call__, []

    def module(runner, name, **arguments):
        record = arguments.get("record")
        if not deaths and record == "completed":
            deaths.append(record)
            raise KeyboardInterrupt
        takes_lease = name == "run_lease" and "state" not in arguments
        if len(deaths) == 1 and (takes_lease or (record and "run_id" not in arguments)):
            deaths.append("")
            with pytest.raises(KeyboardInterrupt):
                cluster.site(IN_FILE)
        if deaths[1:] == [""] and record == "wave_done":
            deaths[1] = record
            raise KeyboardInterrupt
        return call(runner, name, **arguments)

    newer = [{**NEXT_GPU, "resources": {"requests": {"cpu": "1"}}}, RT]
    monkeypatch.setattr(type(run), "__call__", module)
    with pytest.raises(KeyboardInterrupt):
        cluster.site(newer)
    found = run("plan_info", pools=newer, prune=True)
    assert (found["pending"], found["recorded"]) == (False, False)
    cluster.site(newer)
    assert deaths == ["completed", "wave_done"]
    assert cluster.verify(newer) == ""
    found = run("plan_info", pools=newer, prune=True)
    assert (found["pending"], found["recorded"]) == (False, True)
