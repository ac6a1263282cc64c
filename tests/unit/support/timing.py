# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plugin of pytest: time-outs end every test, and at the end it shows where the time went."""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict

import pytest

MOST_FILES = 40


class TimedOut(BaseException):
    """Nobody catches it: Hypothesis takes a failure of pytest for one of the test, and tries the same example again."""


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(settings):
    """Let pytest-timeout raise TimedOut, and again later: what a test does in its end may hang as well."""
    result = yield
    fail = signal.getsignal(signal.SIGALRM)

    def stop(*signalled):
        try:
            fail(*signalled)
        except pytest.fail.Exception as failure:
            raise TimedOut(str(failure)) from None

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout)
    return result


class TimeSpent:
    """Adds up the reports of all workers."""

    def __init__(self, now=time.time):
        self._now = now
        self._began = now()
        self._files = defaultdict(Counter)
        self._workers = Counter()
        self._ended = {}

    def pytest_runtest_logreport(self, report):
        file = report.nodeid.partition("::")[0]
        self._files[file].update({report.when: report.duration, "total": report.duration})
        worker = getattr(report, "worker_id", "main")
        self._workers[worker] += report.duration
        self._ended[worker] = report.stop

    def lines(self):
        """The table, the file with the longest time first."""
        order = sorted(self._files, key=lambda file: -self._files[file]["total"])
        yield f"{'total':>9} {'setup':>9} {'call':>9}  seconds in each file"
        for file in order[:MOST_FILES]:
            yield _row(self._files[file], file)
        if rest := order[MOST_FILES:]:
            yield _row(sum((self._files[file] for file in rest), Counter()), f"{len(rest)} more files")
        yield _row(sum(self._files.values(), Counter()), "all")
        now = self._now()
        for worker in sorted(self._workers):
            idle = now - self._ended[worker]
            yield (
                f"{worker} was busy for {self._workers[worker]:.0f} of {now - self._began:.0f} s, "
                f"and had nothing left to do for the last {idle:.0f} s"
            )

    def pytest_terminal_summary(self, terminalreporter):
        if len(self._files) > 1:
            terminalreporter.section("where the time went")
            for line in self.lines():
                terminalreporter.write_line(line)


def _row(times, name):
    return f"{times['total']:9.1f} {times['setup']:9.1f} {times['call']:9.1f}  {name}"


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # workers report to the main process, which counts
        config.pluginmanager.register(TimeSpent())
