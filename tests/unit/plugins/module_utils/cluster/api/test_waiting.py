# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import Clock, Persistence


class Time:
    def __init__(self):
        self.now = 100.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def clock(self, beat=lambda: None):
        return Clock(beat=beat, now=lambda: self.now, sleep=self.sleep)


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
