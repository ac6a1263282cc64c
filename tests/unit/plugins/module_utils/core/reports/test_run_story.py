# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports.run_story import RunStory
from ansible_collections.virtpools.kubevirt.tests.unit.support import run_records
from ansible_collections.virtpools.kubevirt.tests.unit.support.run_records import GO_ON, Recorder, node, outcome, plan

GATE = {"baseline": [], "soak": 0}


def story(recorder, completed=True):
    return RunStory(recorder.record, recorder.now, completed)


def planned(check=False, nodes=4, **fields):
    recorder = Recorder(check)
    recorder.ran("plan_info", **plan(nodes, **fields))
    return recorder


def verdict(recorder, completed=True):
    found = story(recorder, completed).verdict
    return found.tone, found.words


class TestVerdict:
    def test_of_a_run_that_changed_nodes(self):
        assert verdict(planned(nodes=3000)) == ("ok", "Finished: 3,000 nodes changed")
        assert verdict(planned(nodes=1)) == ("ok", "Finished: 1 node changed")

    def test_of_a_run_that_changed_no_node(self):
        assert verdict(planned(nodes=0)) == ("ok", "Finished: policies and records changed")

    def test_of_a_run_with_nothing_to_do_has_the_reason(self):
        none = outcome(0, changed=False)
        assert verdict(planned(outcome=none, text=["No change: everything matches the pools."])) == (
            "ok",
            "Nothing to do: everything matches the pools",
        )
        assert verdict(planned(outcome=none, text=[])) == ("ok", "Nothing to do")

    def test_of_a_run_that_stops_as_asked(self):
        paused = outcome(60, 20, stop="The rollout stops after wave 1.")
        assert verdict(planned(outcome=paused)) == ("warn", "Paused as asked: 20 of 60 nodes changed")

    def test_of_check_mode(self):
        assert verdict(planned(check=True)) == ("info", "Only a plan: 4 nodes would change")
        assert verdict(planned(check=True, nodes=0)) == ("info", "Only a plan: policies and records would change")

    def test_of_a_refused_run(self):
        refused = planned(errors=["KubeVirt is Degraded.", "No such pool."])
        assert verdict(refused, completed=False) == ("bad", "Refused with 2 errors: nothing was changed")
        assert story(refused, completed=False).error == "", "the findings have it"

    def test_of_a_second_part_that_is_refused_tells_why(self):
        """The first part of a move has changed the cluster."""
        recorder = planned()
        recorder.ran("operator_pools", 9, changes=["KubeVirt kubevirt/kubevirt: no pools"])
        recorder.ran("plan_info", **plan(4, errors=["No such pool.", "No such node."]))
        assert verdict(recorder, completed=False) == ("bad", "Failed")
        assert story(recorder, completed=False).error == "No such pool.\nNo such node."

    def test_of_a_run_that_came_to_no_plan(self):
        recorder = Recorder()
        recorder.ran("plan_info", error="The API server cannot be reached.")
        assert verdict(recorder, completed=False) == ("bad", "Failed at the plan")
        assert story(recorder, completed=False).error == "The API server cannot be reached."

    def test_of_a_cleanup_without_a_plan(self):
        recorder = Recorder()
        recorder.ran("leftovers", changes=["DaemonSet kubevirt/virt-handler-gpu: delete"])
        assert verdict(recorder) == ("ok", "Finished")

    def test_of_a_failed_batch_names_its_wave(self):
        found = story(run_records.rollout(60, failing=26), completed=False)
        assert found.verdict.words == "Failed at batch 10 of wave 2 of 3 (platform-a): 28 of 60 nodes changed"
        assert found.ending[-1] == GO_ON

    @pytest.mark.parametrize(
        ("module", "params", "place"),
        [
            ("run_lease", {"state": "present"}, "the Lease"),
            ("primary_exclusion", {}, "the exclusion"),
            ("run_part", {"part": "launcher_policy"}, "the launcher policy"),
            ("pool_daemonsets", {}, "the DaemonSets of the pools"),
            ("something_new", {}, "something new"),
        ],
    )
    def test_names_the_step_that_failed(self, module, params, place):
        recorder = planned()
        recorder.ran(module, 1, params, "It failed.")
        assert verdict(recorder, completed=False) == ("bad", f"Failed at {place}")

    def test_of_a_run_whose_record_failed_after_it_completed(self):
        recorder = planned()
        recorder.ran("pool_history", 1, {"record": "completed"}, "Conflict.")
        assert verdict(recorder) == ("bad", "Failed at the record of the pool list: 4 of 4 nodes changed")

    def test_a_failure_to_read_how_far_it_came_is_not_the_error(self):
        recorder = planned()
        recorder.ran("run_part", 1, {"part": "guard"}, "It failed.")
        recorder.ran("plan_info", 1, {"planned_batches": []}, "No answer.")
        found = story(recorder, completed=False)
        assert (found.error, found.ending) == ("It failed.", ())


class TestWaves:
    def test_have_their_batches_and_gates(self):
        stages = story(run_records.rollout(60)).stages
        assert [stage.title for stage in stages] == [
            "Wave 1 of 3 (canary)",
            "Wave 2 of 3 (platform-a)",
            "Wave 3 of 3 (platform-b)",
        ]
        assert [batch.number for stage in stages for batch in stage.batches] == [*range(1, 22)]
        assert [len(stage.nodes) for stage in stages] == [2, 29, 29]
        gates = [(gate.title, gate.failed, gate.soak) for gate in stages[0].gates]
        assert gates == [("Gate", False, 0), ("Canary VMs", False, 0), ("Gate after the soak", False, 120)]
        assert stages[0].gates[1].vms[0]["vm"] == "default/virt-canary-gpu"

    def test_of_a_run_without_waves_are_all_nodes(self):
        stages = story(run_records.rollout(6, waves=("all",))).stages
        assert [stage.title for stage in stages] == ["All nodes"]

    def test_a_removal_has_none_and_is_one_stage(self):
        recorder = planned()
        for name in ("n1", "n2"):
            recorder.ran("pool_nodes", 9, nodes=[node(name, recorder.now)])
        recorder.ran("pool_nodes", 1, nodes=[])
        (stage,) = story(recorder).stages
        assert (stage.title, len(stage.batches)) == ("All nodes", 2)

    def test_what_is_wrong_before_a_wave_is_no_gate(self):
        recorder = planned()
        recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": "b"}})
        recorder.ran("wave_gate", 1, {"baseline": None, "soak": 0})
        recorder.ran("wave_gate", 1, GATE)
        (stage,) = story(recorder).stages
        assert (stage.title, len(stage.gates)) == ("Wave b", 1)

    def test_a_wave_in_which_nothing_happened_is_none(self):
        recorder = planned()
        recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": "b"}})
        recorder.ran("run_part", 1, {"part": "guard"}, "It failed.")
        assert story(recorder, completed=False).stages == []


class TestGatesOfTheUser:
    def recorder(self):
        recorder = planned()
        recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": "b"}})
        recorder.ran("wave_gate", 1, GATE)
        recorder.ran("run_lease", 1, {"state": "renewed"})
        recorder.now += 30
        return recorder

    def test_that_pass_are_gates(self):
        recorder = self.recorder()
        recorder.ran("pool_info", 1)
        recorder.ran("pool_history", 1, {"record": "wave_done"})
        gate = story(recorder).stages[0].gates[-1]
        assert (gate.title, gate.failed, gate.ended - gate.began) == ("Your own gates", False, 30)

    def test_that_fail_are_the_error(self):
        recorder = self.recorder()
        recorder.ran("run_lease", 1, {"state": "absent"})
        recorder.ran("plan_info", 1, {"planned_batches": []}, **plan(4, outcome=outcome(4, 1, failed=True)))
        found = story(recorder, completed=False)
        assert found.verdict.words == "Failed at your own gates after wave b: 1 of 4 nodes changed"
        assert found.error.startswith("A gate of your own did not pass")
        assert found.stages[0].gates[-1].failed

    def test_that_fail_with_a_way_back(self):
        recorder = self.recorder()
        recorder.ran("plan_info", 1, **plan(1))
        recorder.ran("pool_nodes", 9, nodes=[node("n1", recorder.now)])
        found = story(recorder, completed=False)
        assert found.verdict.words == "Failed at your own gates after wave b, and 1 node went back"


class TestWayBack:
    def test_is_a_stage_of_its_own(self):
        recorder = planned()
        recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": "b"}})
        failed = node("n2", recorder.now, result="returned", message="late")
        recorder.ran("pool_nodes", 9, {}, "1 of 1 node failed.", nodes=[failed])
        recorder.ran("plan_info", 1, **plan(9))
        for name in ("n1", "n3"):
            recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": "all"}})
            recorder.ran("pool_nodes", 9, nodes=[node(name, recorder.now)])
        found = story(recorder, completed=False)
        assert [(stage.title, len(stage.nodes), stage.failed) for stage in found.stages] == [
            ("Wave b", 1, True),
            ("Way back", 2, False),
        ]
        assert found.verdict.words == "Failed at batch 1 of wave b, and 2 nodes went back"
        assert found.outcome == {}, "nothing told how far it came"


def test_the_first_plan_is_the_one_that_was_shown():
    recorder = planned(nodes=4)
    recorder.ran("plan_info", **plan(5))
    found = story(recorder)
    assert found.plan["outcome"] == outcome(4)
    assert found.outcome["nodes"] == 5
    assert found.published["server"] == "https://west.example:6443"
