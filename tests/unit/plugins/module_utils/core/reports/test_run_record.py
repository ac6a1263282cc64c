# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import run_record
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports.run_record import Handover
from ansible_collections.virtpools.kubevirt.tests.unit.support import run_records
from ansible_collections.virtpools.kubevirt.tests.unit.support.run_records import BEGAN, Recorder


def test_a_record_reads_as_it_was_written():
    recorder = run_records.rollout(6)
    record = recorder.record
    assert (record.began, record.by, record.host, record.check) == (BEGAN, "admin on bastion", "west", False)
    assert run_record.read([record.opening, *(step.to_line() for step in record.steps)]) == record


def test_a_node_keeps_its_time_and_its_gap():
    recorder = Recorder()
    recorder.ran("pool_nodes", 3, {"nodes": ["n1"]}, nodes=[run_records.node("n1", BEGAN + 1, 2.5)], text=["long"])
    (step,) = recorder.record.steps
    assert step.nodes == (Handover("n1", "primary", "gpu", "done", "", 2.5, BEGAN + 1),)
    assert (step.began, step.ended, step.kept, step.asked) == (BEGAN, BEGAN + 3, {}, {})
    assert not step.nodes[0].failed


def test_only_nodes_that_were_deleted_count_as_done():
    failed = {result: Handover("n", "a", "b", result).failed for result in ("done", "gone", "stuck", "untouched")}
    assert failed == {"done": False, "gone": False, "stuck": True, "untouched": True}


def test_a_failure_keeps_its_message():
    recorder = Recorder()
    recorder.ran("run_part", 1, {"part": "guard"}, error="The API server refused it.", changes=["x"])
    recorder.ran("run_part", 1, {"part": "guard"}, changes=["y"], msg="no failure")
    first, second = recorder.record.steps
    assert (first.error, first.kept, first.asked) == (
        "The API server refused it.",
        {"changes": ["x"]},
        {"part": "guard"},
    )
    assert second.error == ""


def test_long_lists_are_only_noted_as_given():
    recorder = Recorder()
    recorder.ran("wave_gate", 1, {"baseline": [], "soak": 5, "nodes": ["n1"]}, problems=[])
    recorder.ran("wave_gate", 1, {"baseline": None, "soak": 0})
    recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": "canary", "nodes": ["n1"]}})
    recorder.ran("pool_history", 1, {"record": "wave_done", "wave": {"open": "0a"}})
    assert [step.asked for step in recorder.record.steps] == [
        {"baseline": True, "soak": 5},
        {"soak": 0},
        {"record": "wave_begun", "wave": "canary"},
        {"record": "wave_done", "wave": ""},
    ]


def test_a_line_that_was_cut_is_left_out():
    opening = run_record.RunRecord(BEGAN).opening
    line = run_record.step_of("run_part", {}, {"changes": ["x"]}, BEGAN, BEGAN + 1).to_line()
    assert len(run_record.read([opening, line, line[:-4], "7", line]).steps) == 2


@pytest.mark.parametrize("lines", [[], ["x"], [json.dumps({"module": "run_part", "began": 1.0, "ended": 1.0})]])
def test_a_record_without_its_beginning_is_refused(lines):
    with pytest.raises(ValueError, match="first line"):
        run_record.read(lines)


def test_the_record_of_3000_nodes_is_small():
    record = run_records.rollout(3000, batch=10).record
    assert sum(len(step.to_line()) for step in record.steps) < 500_000
