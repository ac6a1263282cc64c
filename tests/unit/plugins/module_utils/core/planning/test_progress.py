# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan, plan_text, progress, waves
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.progress import Progress, RolloutScope
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

CANARY = [{"name": "canary", "match": {"role": "canary"}}]


@pytest.fixture
def made():
    """A canary that is to move, a node that is done, and two more to go."""
    nodes = [
        builders.node("n1", labels={"hw": "gpu", "role": "canary"}),
        builders.node("n2", "gpu", labels={"hw": "gpu"}),
        builders.node("n3", labels={"hw": "gpu"}),
        builders.node("n4", labels={"hw": "gpu"}),
        builders.node("stays"),
    ]
    pools = [builders.pool("gpu")]
    return plan.make_plan(builders.snapshot_of(nodes, pools), pools, Options(waves=waves.parse(CANARY)))


def test_all_waves_unless_one_is_the_last(made):
    due = RolloutScope.for_plan(made, None)
    assert [wave.name for wave in due.waves] == ["canary", "rest"]
    assert (due.later, due.stop) == ((), None)
    assert [(wave["number"], wave["left"], wave["done"], wave["batches"], wave["due"]) for wave in due.to_list()] == [
        (1, 1, 0, [0], True),
        (2, 2, 1, [1, 2], True),
    ]


@pytest.mark.parametrize("stop", ["canary", "1", 1, " canary "])
def test_stops_after_a_wave_by_name_or_number(made, stop):
    due = RolloutScope.for_plan(made, stop)
    assert [wave.name for wave in due.waves] == ["canary"]
    assert [wave["due"] for wave in due.to_list()] == [True, False]
    assert "stops after wave 1 of 2 (canary)" in due.stop
    assert "with 2 nodes in 1 wave left" in due.stop
    assert plan_text.plan_lines(made, due)[-6:-2] == [
        due.stop,
        "Wave 2 of 2 (rest): 1 of 3 nodes done, 2 to go, 2 batches",
        "Batches 2 to 3 of 3: 2 nodes",
        "  primary -> gpu: n3, n4",
    ]


def test_nothing_is_pending_where_all_before_the_stop_is_done(made):
    assert RolloutScope.for_plan(made, 1).pending
    moved = [
        builders.node("n1", "gpu", labels={"hw": "gpu", "role": "canary"}),
        builders.node("n2", labels={"hw": "gpu"}),
    ]
    pools = [builders.pool("gpu")]
    options = Options(waves=waves.parse(CANARY))
    state = builders.snapshot_of([*moved, builders.node("stays")], pools)
    after = plan.make_plan(state, pools, options)
    assert (RolloutScope.for_plan(after, 1).pending, RolloutScope.for_plan(after, None).pending) == (False, True)
    assert RolloutScope.for_plan(
        plan.make_plan(builders.snapshot_of([*moved, builders.node("stays")]), pools, options), 1
    ).pending


def test_stopping_after_the_last_wave_is_no_stop(made):
    assert RolloutScope.for_plan(made, "rest").stop is None


def test_no_such_wave(made):
    with pytest.raises(
        InputErrors, match=r"is 'canery', which is not a wave of this rollout.* The waves are: 1 \(canary\), 2 \(rest\)"
    ):
        RolloutScope.for_plan(made, "canery")


def test_no_batch_follows_the_last_of_its_wave(made):
    assert RolloutScope.for_plan(made, None).next_batches() == [(), made.batches[2], ()]


def test_progress_follows_the_batches(made):
    stands = [
        Progress.from_argument(json.loads(json.dumps(each.to_dict())))
        for each in RolloutScope.for_plan(made, None).progress(100)
    ]
    assert stands == RolloutScope.for_plan(made, None).progress(100)
    found = [
        each.line(1, 0, 100 + seconds, 110).split("; ") for each, seconds in zip(stands, (30, 80, 7320), strict=True)
    ]
    assert found == [
        [f"Progress: {done}", "0 nodes without a Ready handler", f"{elapsed} elapsed", *expected]
        for done, elapsed, *expected in (
            ("1 of 3 nodes done, 1 of 1 in wave 1 of 2 (canary)", "30 s", "about 40 s to go"),
            ("2 of 3 nodes done, 1 of 2 in wave 2 of 2 (rest)", "80 s", "about 35 s to go"),
            ("3 of 3 nodes done, 2 of 2 in wave 2 of 2 (rest)", "2 h 2 min"),
        )
    ]


def test_the_estimate_counts_batches_and_not_nodes():
    """A batch of one canary takes as long as a batch of nine nodes."""
    nodes = [builders.node(f"n{number}", labels={"hw": "gpu"}) for number in range(10)]
    nodes[0] = builders.node("n0", labels={"hw": "gpu", "role": "canary"})
    options = Options(waves=waves.parse(CANARY), max_unavailable=9)
    made = plan.make_plan(builders.snapshot_of([*nodes, builders.node("stays")]), [builders.pool("gpu")], options)
    first, second = RolloutScope.for_plan(made, None).progress(0)
    assert first.line(1, 0, 60, 0).endswith("60 s elapsed; about 60 s to go")
    assert second.line(9, 0, 120, 0).endswith("2 min elapsed")


def test_a_removal_has_progress_and_no_wave():
    nodes = [builders.node(f"n{number}", "gpu", labels={"hw": "gpu"}) for number in range(3)]
    state = builders.snapshot_of([*nodes, builders.node("stays")], [builders.pool("gpu")])
    made = plan.make_plan(state, (), Options(remove_pools="all", max_unavailable=2))
    stands = RolloutScope.for_plan(made, None).progress(0)
    assert [each.line(moved, 0, 60, 0) for each, moved in zip(stands, (2, 1), strict=True)] == [
        "Progress: 2 of 3 nodes done; 0 nodes without a Ready handler; 60 s elapsed; about 60 s to go",
        "Progress: 3 of 3 nodes done; 0 nodes without a Ready handler; 60 s elapsed",
    ]


def test_batches_are_counted_up_to_the_stop(made):
    line = RolloutScope.for_plan(made, 1).progress(0)[0].line(1, 1, 10, 0)
    assert line.endswith("; 1 node without a Ready handler; 10 s elapsed")


def test_a_batch_that_fails_gives_no_estimate(made):
    assert "to go" not in RolloutScope.for_plan(made, None).progress(0)[0].line(0, 1, 10, 0)


@pytest.mark.parametrize("given", [{}, [], None, {"wave": "x"}])
def test_other_values_are_refused(given):
    with pytest.raises(InputErrors, match="progress is not what plan_info returned"):
        Progress.from_argument(given)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (121, "2 min"), (7140, "119 min"), (12000, "3 h 20 min")]
)
def test_durations(seconds, text):
    assert progress.duration(seconds) == text
