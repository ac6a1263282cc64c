# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Waiting with a time limit that keeps the run's Lease alive."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 3.0


def seconds_since_1970() -> int:
    """The time of day, for what outlives a run; waits have their ``Clock``."""
    return int(time.time())


def _nothing() -> None:
    """The beat of a run that writes nothing, and so has no Lease to keep alive."""


@dataclass(frozen=True)
class Clock:
    """The time for waits. Every wait calls ``beat`` again and again, which renews the Lease. Tests have their own."""

    beat: t.Callable[[], None] = _nothing
    now: t.Callable[[], float] = time.monotonic
    sleep: t.Callable[[float], None] = time.sleep

    def pauses(self, longest: float = _LONGEST_PAUSE_SECONDS) -> t.Iterator[None]:
        """Iterate forever and sleep in between: briefly at first, then up to ``longest`` seconds."""
        for _round in self.rounds(longest):
            self.beat()
            yield

    def rounds(self, longest: float) -> t.Iterator[None]:
        """The same without ``beat``, for a wait that goes on when it fails."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            yield
            self.sleep(pause)
            pause = min(pause * 1.2, longest)

    def wait(self, pending: t.Callable[[], str | None], timeout: float) -> str | None:
        """Call ``pending`` until it returns None, for at most ``timeout`` seconds. Returns its last result."""
        give_up = self.now() + timeout
        for _pause in self.pauses():
            problem = pending()
            if problem is None or self.now() >= give_up:
                return problem
        raise AssertionError("pauses never end")


class Persistence:
    """Notices when a condition lasts: a problem that passes by itself within ``seconds`` is ignored."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: float | None = None

    def lasts(self, condition: bool) -> bool:
        if not condition:
            self._since = None
            return False
        if self._since is None:
            self._since = self._clock.now()
        return self._clock.now() - self._since >= self._seconds
