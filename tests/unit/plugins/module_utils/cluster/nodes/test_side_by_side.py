# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that run side by side: each goes on once per round, and the error of one does not stop the others."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError, Unreachable
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import LeaseLost
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.side_by_side import Job, one_round


def count(rounds, log=None, error=None):
    """A job that waits this many rounds, then fails or returns what it was sent."""
    seen = []
    for number in range(rounds):
        seen.append((yield f"wait {number}"))
        if log is not None:
            log.append(seen[-1])
    if error is not None:
        raise error
    return seen


def job(*args, **options):
    return Job(count(*args, **options), lambda error: f"failed: {error}")


def go_round(jobs, due=None):
    return [key for key, _job in one_round(jobs, list(jobs) if due is None else due, lambda key: f"view of {key}")]


class TestJob:
    def test_waits_until_it_ends_with_an_outcome(self):
        one = job(2)
        one.begin()
        assert (one.wait, one.ended, one.outcome) == ("wait 0", False, None)
        one.go_on("first")
        assert (one.wait, one.ended) == ("wait 1", False)
        one.go_on("second")
        assert (one.wait, one.ended, one.outcome, one.error) == (None, True, ["first", "second"], None)

    def test_an_error_is_its_outcome(self):
        error = ClusterError("no answer")
        one = job(0, error=error)
        one.begin()
        assert (one.ended, one.outcome, one.error) == (True, "failed: no answer", error)

    def test_a_lost_lease_concerns_all_jobs(self):
        one = job(0, error=LeaseLost("another run has it"))
        with pytest.raises(LeaseLost):
            one.begin()

    def test_further_errors_can_concern_all_jobs(self):
        one = Job(count(0, error=Unreachable("down")), str, passes_on=(LeaseLost, Unreachable))
        with pytest.raises(Unreachable):
            one.begin()

    def test_other_exceptions_are_not_swallowed(self):
        with pytest.raises(ZeroDivisionError):
            job(0, error=ZeroDivisionError()).begin()


class TestRound:
    def test_each_job_goes_on_once_with_its_own_view(self):
        log = []
        jobs = {"a": job(2, log), "b": job(2, log)}
        for each in jobs.values():
            each.begin()
        assert go_round(jobs) == ["a", "b"]
        assert log == ["view of a", "view of b"]
        assert {key: each.wait for key, each in jobs.items()} == {"a": "wait 1", "b": "wait 1"}

    def test_jobs_that_are_not_due_stay_where_they_are(self):
        jobs = {"a": job(2), "b": job(2)}
        for each in jobs.values():
            each.begin()
        assert go_round(jobs, due=["b"]) == ["b"]
        assert (jobs["a"].wait, jobs["b"].wait) == ("wait 0", "wait 1")

    def test_a_job_that_ends_is_yielded_and_leaves_the_others(self):
        jobs = {"a": job(0), "b": job(0, error=ClusterError("no answer")), "c": job(1)}
        ended = {key: each.outcome for key, each in one_round(jobs, list(jobs), lambda _key: None) if each.ended}
        assert ended == {"a": [], "b": "failed: no answer"}
        assert list(jobs) == ["c"]

    def test_a_caller_can_leave_a_round_early(self):
        log = []
        jobs = {key: job(2, log) for key in "abc"}
        for each in jobs.values():
            each.begin()
        for key, _job in one_round(jobs, list(jobs), str):
            if key == "b":
                break
        assert log == ["a", "b"]

    def test_an_unreadable_view_leaves_the_rest_where_they_are(self):
        log = []
        jobs = {key: job(2, log) for key in "abc"}
        for each in jobs.values():
            each.begin()

        def view_of(key):
            if key == "b":
                raise ClusterError("no answer")
            return key

        with pytest.raises(ClusterError):
            list(one_round(jobs, list(jobs), view_of))
        assert log == ["a"]
        assert {key: each.wait for key, each in jobs.items()} == {"a": "wait 1", "b": "wait 0", "c": "wait 0"}


class TestAtOnce:
    """Jobs that go on at the same time."""

    def go(self, jobs, view_of=str, most=4, **options):
        return [key for key, _job in one_round(jobs, list(jobs), view_of, most=most, **options)]

    def test_jobs_do_not_wait_for_each_other(self):
        together = threading.Barrier(4, timeout=60)

        def meet(_key):
            together.wait()  # fails unless all four are here

        jobs = {key: job(1) for key in "abcd"}
        for each in jobs.values():
            each.begin()
        assert sorted(self.go(jobs, meet)) == ["a", "b", "c", "d"]
        assert jobs == {}

    @staticmethod
    def without_a():
        """Views of all but ``a``, which cannot be read; the others only after that."""
        failed = threading.Event()

        def view_of(key):
            if key == "a":
                failed.set()
                raise ClusterError("no answer")
            assert failed.wait(60)

        return view_of

    def test_those_that_are_going_on_end_well_when_one_fails(self):
        jobs = {key: job(1) for key in "abc"}
        for each in jobs.values():
            each.begin()
        seen = []
        with pytest.raises(ClusterError):
            seen.extend(key for key, _job in one_round(jobs, list(jobs), self.without_a(), most=2))
        assert {key: each.wait for key, each in jobs.items()} == {"a": "wait 0", "c": "wait 0"}

    def test_a_lost_lease_is_raised_after_the_outcomes(self):
        jobs = {"a": job(0, error=LeaseLost("another run has it")), "b": job(0)}
        ended = []
        going = one_round(jobs, list(jobs), lambda _key: None, most=2)
        with pytest.raises(LeaseLost):
            ended.extend((key, each.outcome) for key, each in going)
        assert ended == [("b", [])]

    @pytest.mark.parametrize("error", [LeaseLost("another run has it"), KeyError("spec")], ids=["lease", "fault"])
    def test_what_ends_a_job_is_raised_again_after_another_error(self, error):
        """Else the round that goes on after an unreadable view would drop the job without an outcome."""
        jobs = {"a": job(1), "b": job(1, error=error)}
        for each in jobs.values():
            each.begin()
        with pytest.raises(ClusterError, match="no answer"):
            self.go(jobs, self.without_a(), most=2)
        with pytest.raises(type(error)):
            self.go(jobs, most=2)

    @pytest.mark.parametrize("most", [1, 2])
    def test_no_job_begins_after_the_one_that_ends_the_round(self, most):
        log = []
        jobs = {key: job(2, log) for key in "abcd"}
        for each in jobs.values():
            each.begin()
        assert self.go(jobs, most=most, ends_round=lambda _job: True) == ["a", "b"][:most]
        assert sorted(log) == ["a", "b"][:most]
