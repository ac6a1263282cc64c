# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import printable
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import page, run_page
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports.run_record import RunRecord
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports.run_story import RunStory
from ansible_collections.virtpools.kubevirt.tests.unit.support import reports, run_records
from ansible_collections.virtpools.kubevirt.tests.unit.support.pages import HOSTILE, Parsed
from ansible_collections.virtpools.kubevirt.tests.unit.support.run_records import BEGAN, GO_ON, Recorder, node, plan

MEGABYTE = 1_000_000


def rendered(recorder, completed=True):
    return run_page.render(RunStory(recorder.record, recorder.now, completed))


def parsed(recorder, completed=True):
    return Parsed(rendered(recorder, completed))


class TestTop:
    def test_has_the_verdict_the_cluster_and_the_times(self):
        found = parsed(run_records.rollout(60))
        assert found.text("title").startswith("Finished: 60 nodes changed")
        assert "Finished: 60 nodes changed" in found.text("span")
        eyebrow = found.text("p").partition("UTC")[0]
        assert eyebrow.startswith(
            "Pools applied · west · https://west.example:6443 · UID 5e1f-77 · 2026-11-18 11:06:40 to "
        )
        assert "by admin on bastion" in found.text("p")
        assert found.all("header", **{"class": "ok"})

    def test_has_the_most_important_numbers(self):
        found = parsed(run_records.rollout(60, slow=(17,)))
        assert found.text("b").startswith("60")
        assert "gpu-017" in found.text("small")
        assert "all passed" in found.text("small")
        assert "21 batches" in found.text("small")

    def test_a_run_over_midnight_has_both_days(self):
        recorder = Recorder()
        recorder.ran("plan_info", 100_000, **plan(1))
        assert re.search(r"2026-11-18 11:06:40 to 2026-11-19 [\d:]+ UTC", parsed(recorder).text("p"))

    def test_a_page_of_localhost_does_not_name_it(self):
        record = RunRecord(BEGAN, host="localhost")
        assert "localhost" not in run_page.render(RunStory(record, BEGAN + 1, True))


class TestSections:
    def test_of_a_rollout(self):
        found = parsed(run_records.rollout(60))
        assert found.text("h2") == "HandoversWaves and gatesFindingsWhat the run was to changeWhat it did"

    def test_of_a_failed_run_begin_with_why_and_how_to_go_on(self):
        found = parsed(run_records.rollout(60, failing=26), completed=False)
        assert found.text("h2").startswith("Why it failed, and how to go onHandovers")
        assert "1 of 3 nodes failed, and the run stops here." in found.text("p")
        assert GO_ON in found.text("li")
        assert found.all("header", **{"class": "bad"})

    def test_of_a_run_whose_end_is_unknown(self):
        recorder = Recorder()
        recorder.ran("run_part", 1, {"part": "guard"}, "It failed.")
        found = parsed(recorder, completed=False)
        assert "How far the run came is unknown: run plan." in found.text("li")
        assert "The run failed before it had a plan." in found.text("p")

    def test_of_a_plan_have_no_handovers(self):
        recorder = Recorder(check=True)
        recorder.ran("plan_info", **plan(4))
        assert parsed(recorder).text("h2") == "FindingsWhat the run was to change"

    def test_the_plan_has_its_total_and_its_lines_without_findings(self):
        found = parsed(run_records.rollout(6))
        assert "Every primary virt-handler restarts; 1 DaemonSet changes" in found.text("p")
        assert "Plan digest: 9d3c52e7ab10-4be2a0fcd1c1" in found.text("pre")
        assert "WARNING" not in found.text("pre")
        assert "KubeVirt restarts its virt-handlers once." in found.text("p")

    def test_waves_have_gates_and_canary_vms(self):
        found = parsed(run_records.rollout(60))
        assert found.text("p").count("Gate after the soak") == 3
        assert "gpu: default/virt-canary-gpu on gpu-000, 14 s" in found.text("small")
        assert "29 of 29 done" in found.text("td")

    def test_a_gate_that_has_not_passed_is_marked(self):
        recorder = Recorder()
        recorder.ran("plan_info", **plan(4))
        recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": "b"}})
        recorder.ran("wave_gate", 1, {"baseline": []}, "The gate has not passed.", problems=["n1 has no handler."])
        found = parsed(recorder, completed=False)
        assert found.text("title") == "Failed at the gate after wave b"
        assert "not passed" in found.text("span")

    def test_steps_are_those_that_changed_something(self):
        found = parsed(run_records.rollout(60))
        steps = found.text("td")
        for words in ("The exclusion", "The launcher policy", "The handovers", "60 nodes in 21 batches"):
            assert words in found.text("td", "li"), steps

    def test_many_changes_of_a_step_are_counted(self):
        recorder = Recorder()
        recorder.ran("run_part", 1, {"part": "alerts"}, changes=[f"Object {number}: create" for number in range(20)])
        assert "and 8 more" in parsed(recorder).text("li")
        assert "Object 12:" not in parsed(recorder).text("li")

    def test_operator_mode_tells_which_nodes_had_no_handler(self):
        recorder = Recorder()
        windows = ["1 node had no handler for a while, at most 12 s: n1"]
        recorder.ran("operator_pools", 9, changes=["1 pool: gpu"], text=["1 pool: gpu", *windows])
        assert windows[0] in parsed(recorder).text("li")


class TestSafety:
    def hostile(self, text):
        recorder = Recorder()
        findings = [{"severity": text, "code": text, "message": text}]
        recorder.ran("plan_info", **plan(1, text=[text], findings=findings))
        recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": text}})
        nodes = [node(text, BEGAN, 5.0, "stuck", text), *(node(f"n{number}", BEGAN, 1.0) for number in range(5))]
        recorder.ran("pool_nodes", 9, {"progress": {"wave": text, "number": 1, "waves": 2}}, nodes=nodes)
        vm = {"pool": text, "vm": text, "node": text, "seconds": 1.0}
        recorder.ran("canary_vm", 9, {}, vms=[vm])
        recorder.ran("run_part", 1, {"part": text}, f"{text}.", changes=[text])
        recorder.ran("plan_info", 1, {"planned_batches": []}, **plan(1, ending=[text]))
        return recorder

    def test_hostile_text_stays_text(self):
        found = rendered(self.hostile(HOSTILE), completed=False)
        assert not Parsed(found).all("script")
        assert not Parsed(found).all("img")
        assert "\u202e" not in found
        assert "\x00" not in found

    @given(st.text(max_size=40))
    @example("all")
    def test_any_text_comes_out_as_it_is(self, text):
        found = parsed(self.hostile(text), completed=False)
        assert printable(f"{text}.") in found.text("p")
        assert printable(text) in found.text("li")
        assert f"{printable(text)} · 5.0 s" in found.text("b")
        assert "None" not in found.text().replace(printable(text), "")

    def test_nothing_is_loaded_and_nothing_runs(self):
        shown = rendered(run_records.rollout(60, failing=26), completed=False)
        found = Parsed(shown)
        assert {tag for tag, _attrs in found.elements}.isdisjoint({"script", "link", "img", "iframe", "object", "a"})
        assert not [
            name for _tag, attrs in found.elements for name in attrs if name in ("src", "href") or name[:2] == "on"
        ]
        assert not re.search(r"url\(|@import", shown)


class TestSize:
    @pytest.mark.parametrize(("count", "most"), [(6, 30_000), (60, 60_000), (3000, 300_000)])
    def test_grows_little_with_the_nodes(self, count, most):
        assert len(rendered(run_records.rollout(count, batch=10, slow=(3,)))) < most

    def test_stays_below_a_megabyte(self):
        long = "x" * 250
        recorder = Recorder()
        findings = [{"severity": "error", "code": "a_code", "message": f"{long}{number}"} for number in range(2000)]
        recorder.ran("plan_info", **plan(3000, text=[f"{long}{number}" for number in range(4000)], findings=findings))
        for number in range(3000):
            recorder.ran("pool_history", 1, {"record": "wave_begun", "wave": {"name": f"{long}{number}"}})
            failed = node(f"{long}{number}", recorder.now, 9.0, "stuck", long)
            recorder.ran("pool_nodes", 9, {}, nodes=[failed])
            recorder.ran("run_part", 1, {"part": "alerts"}, changes=[long] * 20)
        recorder.ran("run_part", 1, {"part": "guard"}, long * 1000)
        shown = rendered(recorder, completed=False)
        assert len(shown.encode()) < MEGABYTE
        assert "more than this page has room for" in shown


class TestEverybodyCanReadIt:
    def test_tables_name_their_columns_and_the_picture_its_content(self):
        found = parsed(run_records.rollout(60, slow=(17,)))
        assert found.all("html", lang="en")
        assert all(attrs.get("scope") in ("col", "row") for attrs in found.all("th"))
        (label,) = [attrs["aria-label"] for attrs in found.all("svg", role="img")]
        assert label.startswith("60 nodes over time; the longest was ")
        assert len(found.all("h1")) == 1

    def test_it_looks_as_the_page_of_a_verification_does(self):
        style = page.render(reports.report()).partition("<style>")[2].partition("</style>")[0]
        assert style in rendered(run_records.rollout(6))
