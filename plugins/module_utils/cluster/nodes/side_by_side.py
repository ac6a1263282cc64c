# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Runs several jobs side by side, such as the handovers of many nodes.

A job is one generator that reads from top to bottom. It yields wherever it must wait, is sent what it waits for in a
later round, and returns its outcome. The requests of a round go out side by side, each job's own one after the other.
"""

from __future__ import annotations

import typing as t
from collections import deque

from ..api import at_once
from ..api.client import ClusterError
from ..api.lease import LeaseLost

Wait = t.TypeVar("Wait")
"""What a job yields: how it waits."""
View = t.TypeVar("View")
"""What a job is sent in a round: what it can see now."""
Outcome = t.TypeVar("Outcome")
"""What a job returns."""
Key = t.TypeVar("Key")
"""What a job is about."""


class Job(t.Generic[Wait, View, Outcome]):
    """One job, which has not begun yet."""

    def __init__(
        self,
        steps: t.Generator[Wait, View, Outcome],
        on_error: t.Callable[[ClusterError], Outcome],
        passes_on: tuple[type[ClusterError], ...] = (LeaseLost,),
    ) -> None:
        """
        :param on_error: the outcome of a job whose steps fail: an error of one job must not stop the others half-way.
        :param passes_on: the errors that concern all jobs, and so stop them.
        """
        self._steps = steps
        self._on_error = on_error
        self._passes_on = passes_on
        self.wait: Wait | None = None
        """What it yielded last, while it waits."""
        self.ended = False
        self.outcome: Outcome | None = None
        """What it returned, once it has ended."""
        self.error: ClusterError | None = None
        """The error that ended it."""
        self._failure: Exception | None = None
        """What its steps raised that concerns all jobs: it cannot go on, and has no outcome."""

    def begin(self) -> None:
        """Go to the first wait, for a job that must see something before it can do anything."""
        self.go_on(None)

    def go_on(self, view: View | None) -> None:
        """Go to the next wait, or to the end.

        :raises ClusterError: one that concerns all jobs; the same again when it is to go on after that.
        """
        if self._failure is not None:
            raise self._failure
        try:
            self.wait = self._steps.send(t.cast("View", view))
        except StopIteration as end:
            self._end(end.value)
        except Exception as error:
            if isinstance(error, self._passes_on) or not isinstance(error, ClusterError):
                self._failure = error
                raise
            self.error = error
            self._end(self._on_error(error))

    def _end(self, outcome: Outcome) -> None:
        self.ended, self.outcome, self.wait = True, outcome, None


def one_round(
    jobs: dict[Key, Job[Wait, View, Outcome]],
    due: t.Iterable[Key],
    view_of: t.Callable[[Key], View],
    *,
    most: int = 1,
    ends_round: t.Callable[[Job[Wait, View, Outcome]], bool] = lambda _job: False,
) -> t.Iterator[tuple[Key, Job[Wait, View, Outcome]]]:
    """Let each of these jobs go on once. Yields each right after that; one that has ended is no longer among ``jobs``.

    :param view_of: what a job is sent, read in the job's thread right before the job goes on; None for one that has not begun.
    :param most: how many jobs go on at the same time, each in a thread.
    :param ends_round: whether no other job is to begin after this one. Those that are going on are yielded as well.
    :raises ClusterError: one that concerns all jobs, or that ``view_of`` raises, after those that are going on were
        yielded. The jobs that are left have not gone on.
    """
    waiting = deque(due)
    failure: BaseException | None = None
    for key, future in at_once.each(lambda key: jobs[key].go_on(view_of(key)), waiting, most):
        job, error = jobs[key], future.exception()
        failure = failure or error
        if failure is not None or ends_round(job):
            waiting.clear()
        if error is not None:
            continue
        if job.ended:
            del jobs[key]
        yield key, job
    if failure is not None:
        raise failure
