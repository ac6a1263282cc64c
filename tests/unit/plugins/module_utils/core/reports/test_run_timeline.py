# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import run_timeline
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports.run_story import RunStory
from ansible_collections.virtpools.kubevirt.tests.unit.support import run_records
from ansible_collections.virtpools.kubevirt.tests.unit.support.pages import Parsed
from ansible_collections.virtpools.kubevirt.tests.unit.support.run_records import BEGAN, Recorder, node


def stages(recorder):
    return RunStory(recorder.record, recorder.now, True).stages


def picture(recorder):
    return Parsed(run_timeline.picture(stages(recorder), BEGAN, recorder.now))


def nodes(recorder):
    return Parsed(run_timeline.nodes(stages(recorder)))


def points(found, tone=""):
    """The places of points."""
    drawn = [attrs for attrs in found.all("path") if attrs["class"].startswith("p ") and tone in attrs["class"]]
    return [(float(x), float(y)) for attrs in drawn for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", attrs["d"])]


class TestPicture:
    def test_time_goes_right_and_seconds_go_up(self):
        recorder = Recorder()
        recorder.ran("pool_nodes", 50, nodes=[node("n1", BEGAN + 10, 5.0)])
        recorder.ran("pool_nodes", 50, nodes=[node("n2", BEGAN + 60, 20.0)])
        (first_x, first_y), (second_x, second_y) = points(picture(recorder))
        assert (first_x, second_x) == (100, 600)
        assert first_y > second_y > 0
        assert (200 - second_y) / (200 - first_y) == pytest.approx(4, abs=0.05)

    @pytest.mark.parametrize(("count", "batch"), [(1, 1), (6, 1), (60, 3), (150, 5), (151, 5), (501, 10), (3000, 10)])
    def test_every_node_is_a_point(self, count, batch):
        found = picture(run_records.rollout(count, batch=batch, waves=("all",)))
        assert len(points(found)) >= count * 0.95, "points at the same place are one"
        assert bool(found.all("path", **{"class": "stem ok"})) == (count <= 150)

    def test_a_slow_node_stands_out_by_name(self):
        for count in (60, 3000):
            found = picture(run_records.rollout(count, batch=10, slow=(17,)))
            assert len(points(found, "warn")) == 1
            assert found.text("b").startswith("gpu-017 · ")
            assert "much longer than the others" in found.text("li")
        assert "much longer" not in picture(run_records.rollout(60)).text("li")

    def test_a_failed_node_is_marked(self):
        found = picture(run_records.rollout(60, failing=26))
        assert len(points(found, "bad")) == 1
        assert found.text("b").startswith("gpu-026 · 74 s")
        assert found.all("rect", **{"class": "b bad"})

    def test_names_of_nodes_do_not_meet(self):
        recorder = Recorder()
        slow = [node(f"n{number}", BEGAN + 5, 100.0 + number) for number in range(9)]
        recorder.ran("pool_nodes", 200, nodes=[*slow, *(node(f"m{number}", BEGAN, 5.0) for number in range(30))])
        assert len(picture(recorder).all("b")) == 1

    def test_waves_have_their_names_where_there_is_room(self):
        found = picture(run_records.rollout(60))
        assert found.text("span").startswith("Wave 1 of 3 (canary)Wave 2 of 3 (platform-a)Wave 3 of 3 (platform-b)")
        assert "canary" not in picture(run_records.rollout(3000, batch=10)).text("span")

    def test_gates_and_soak_are_bands(self):
        found = picture(run_records.rollout(60))
        assert len(found.all("rect", **{"class": "s"})) == 3
        assert len(found.all("rect", **{"class": "b"})) == 21
        assert not picture(run_records.rollout(60, soak=0)).all("rect", **{"class": "s"})

    def test_many_batches_are_a_band_for_each_wave(self):
        assert len(picture(run_records.rollout(301, batch=1)).all("rect", **{"class": "b"})) == 3

    def test_times_are_those_of_the_run(self):
        assert picture(run_records.rollout(6)).text("span").count("11:06:40") == 1

    def test_without_times_there_is_none(self):
        recorder = Recorder()
        recorder.ran("pool_nodes", 5, nodes=[node("n1", None, None, "gone", "the node was deleted")])
        assert run_timeline.picture(stages(recorder), BEGAN, recorder.now) == ""
        assert "gone: the node was deleted" in nodes(recorder).text("p")

    def test_a_gap_of_no_time_is_drawn(self):
        recorder = Recorder()
        recorder.ran("pool_nodes", 0, nodes=[node("n1", BEGAN, 0.0)])
        assert points(picture(recorder)) == [(0, 200)]


class TestNodes:
    def test_a_small_run_has_a_row_for_each_by_batch(self):
        found = nodes(run_records.rollout(60, slow=(17,)))
        assert len(found.all("li")) == 60
        assert found.text("em") == "".join(map(str, range(1, 22)))
        assert len(found.all("li", **{"class": "warn first"})) + len(found.all("li", **{"class": "warn"})) == 1
        assert found.text("h3").startswith("Wave 1 of 3 (canary)")

    def test_a_large_run_has_the_slowest_and_all_to_open(self):
        found = nodes(run_records.rollout(3000, batch=10, slow=(17, 2222)))
        assert len(found.all("li")) == 20
        assert found.text("li", "span").startswith("gpu-2222gpu-017") or found.text("span").startswith("gpu-017")
        assert len(found.all("details")) == 3
        told = found.text("p")
        assert all(f"gpu-{number:03} " in told for number in range(3000))

    def test_a_large_run_that_failed_begins_with_what_failed(self):
        found = nodes(run_records.rollout(600, batch=10, failing=400))
        assert found.text("h3").startswith("FailedThe slowest")
        assert found.text("span").startswith("gpu-400")

    def test_a_run_without_nodes_has_none(self):
        assert run_timeline.nodes([]) == ""


def test_slow_is_relative_to_the_others():
    assert run_timeline.slow_from([]) == 10
    assert run_timeline.slow_from([10, 12, 14]) == 24
    assert run_timeline.slow_from([2, 2, 2]) == 12


@pytest.mark.parametrize(("number", "words"), [(0.04, "0.0 s"), (12.34, "12.3 s"), (75.2, "75 s"), (3600, "3,600 s")])
def test_seconds_in_words(number, words):
    assert run_timeline.seconds(number) == words
