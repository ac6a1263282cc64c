# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls at the same time: bounded, with results in order, and with one error that begins nothing more."""

from __future__ import annotations

import threading
from collections import deque

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import at_once
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError


class TestResults:
    @pytest.fixture(autouse=True)
    def four_at_once(self, monkeypatch):
        monkeypatch.setattr(at_once, "MOST", 4)

    def test_calls_do_not_wait_for_each_other(self):
        together = threading.Barrier(4, timeout=60)

        def call(number):
            together.wait()  # fails unless four are here
            return number * 2

        assert list(at_once.results(call, range(8))) == [0, 2, 4, 6, 8, 10, 12, 14]

    def test_come_in_the_order_of_the_items(self):
        last = threading.Event()

        def call(number):
            if number == 3:
                last.set()
            assert last.wait(60)
            return number

        assert list(at_once.results(call, range(4))) == [0, 1, 2, 3]

    @pytest.mark.parametrize("most", [1, 4])
    def test_after_an_error_no_other_call_begins(self, monkeypatch, most):
        monkeypatch.setattr(at_once, "MOST", most)
        seen = []

        def call(number):
            seen.append(number)
            raise ClusterError(f"no answer for {number}")

        with pytest.raises(ClusterError, match="^no answer for 0$"):
            at_once.for_each(call, range(100))
        assert sorted(seen) == [*range(most)]

    def test_few_wait_to_be_taken(self):
        """Each may be the pods of a node."""
        seen = []
        taken = at_once.results(seen.append, range(100))
        for _each in range(10):
            next(taken)
        assert len(seen) <= 13

    def test_of_nothing(self):
        at_once.for_each(pytest.fail, ())


class TestEach:
    def test_no_more_calls_at_once_than_asked_for(self):
        lock, going, most = threading.Lock(), set(), []

        def call(number):
            with lock:
                going.add(number)
                most.append(len(going))
            threading.Event().wait(0.01)
            with lock:
                going.remove(number)

        ended = [number for number, _future in at_once.each(call, deque(range(20)), 3)]
        assert (sorted(ended), max(most)) == ([*range(20)], 3)

    def test_a_single_one_is_made_in_the_callers_thread(self):
        threads = []
        list(at_once.each(lambda _item: threads.append(threading.current_thread()), deque("a"), 4))
        assert threads == [threading.current_thread()]

    def test_what_is_taken_out_is_not_begun(self):
        waiting = deque(range(10))
        seen = []
        for number, _future in at_once.each(seen.append, waiting, 1):
            if number == 2:
                waiting.clear()
        assert seen == [0, 1, 2]
