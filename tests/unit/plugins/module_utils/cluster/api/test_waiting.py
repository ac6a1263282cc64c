# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import (
    Clock,
    Persistence,
    StatusLines,
)


class Time:
    def __init__(self):
        self.now = 100.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def clock(self, beat=lambda: None, show=lambda line: None):
        status = StatusLines(show, lambda: self.now)
        return Clock(beat=beat, now=lambda: self.now, sleep=self.sleep, status=status)


class TestWait:
    def test_does_not_sleep_when_nothing_is_pending(self):
        time = Time()
        assert time.clock().wait(lambda: None, 10) is None
        assert time.slept == []

    def test_ends_as_soon_as_nothing_is_pending(self):
        time = Time()
        assert time.clock().wait(lambda: None if time.now >= 105 else "not yet", 60) is None
        assert time.now < 108

    def test_gives_up_and_says_what_is_left(self):
        time = Time()
        assert time.clock().wait(lambda: f"{time.now:.0f}", 60) is not None
        assert 160 <= time.now <= 163

    def test_asks_at_least_once(self):
        assert Time().clock().wait(lambda: None, 0) is None
        assert Time().clock().wait(lambda: "left", 0) == "left"

    def test_keeps_the_lease_alive(self):
        time = Time()
        beats = []
        time.clock(lambda: beats.append(time.now)).wait(lambda: "left", 60)
        assert all(later - earlier < 10 for earlier, later in itertools.pairwise(beats))
        assert len(beats) > 10

    def test_says_every_half_minute_what_it_waits_for(self):
        time, shown = Time(), []
        time.clock(show=lambda line: shown.append((time.now, line))).wait(lambda: "the kubelet is away.", 100)
        assert [line.replace(f"{at - 100:.0f} s", "N s", 1) for at, line in shown] == [
            "Waiting, N s of at most 100 s: the kubelet is away."
        ] * 3
        assert all(30 <= later - earlier <= 33 for (earlier, _), (later, _) in itertools.pairwise([(100, ""), *shown]))

    def test_says_nothing_while_something_happens(self):
        time, shown = Time(), []
        clock = time.clock(show=shown.append)

        def pending():
            clock.status.say(f"at {time.now:.0f}")
            return "more is to come" if time.now < 200 else None

        assert clock.wait(pending, 200) is None
        assert shown == clock.status.events
        assert len(shown) > 30

    def test_does_not_ask_what_it_waits_for_before_it_says_it(self):
        time, asked = Time(), []
        clock = time.clock()
        for _second in range(29):
            clock.status.remind(lambda: asked.append(time.now) or "x")
            time.sleep(1)
        assert asked == []
        time.sleep(1)
        clock.status.remind(lambda: asked.append(time.now) or "x")
        assert asked == [130.0]

    def test_ends_when_the_lease_is_lost(self):
        def lost():
            raise RuntimeError("lost")

        with pytest.raises(RuntimeError):
            Time().clock(lost).wait(lambda: None, 10)


def test_pauses_grow_up_to_a_limit():
    time = Time()
    pauses = time.clock().pauses(longest=1.0)
    for _ in range(8):
        next(pauses)
    assert time.slept[0] == 0.5
    assert time.slept == sorted(time.slept)
    assert time.slept[-1] == 1.0


@pytest.mark.parametrize(("seconds", "stale"), [(0, False), (10, False), (11, True)])
def test_what_was_read_some_time_ago_is_stale(seconds, stale):
    time = Time()
    read_at = time.now
    time.now += seconds
    assert time.clock().is_stale(read_at) is stale


class TestPersistence:
    def test_of_a_problem_that_lasts(self):
        time = Time()
        problem = Persistence(time.clock(), 15)
        assert not problem.lasts(True)
        time.now += 14
        assert not problem.lasts(True)
        time.now += 1
        assert problem.lasts(True)

    def test_begins_anew_after_a_moment_without(self):
        time = Time()
        problem = Persistence(time.clock(), 15)
        problem.lasts(True)
        time.now += 14
        assert not problem.lasts(False)
        time.now += 14
        assert not problem.lasts(True)
        time.now += 14
        assert not problem.lasts(True)
