# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bounded waiting that keeps the run's Lease alive."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 3.0


def _nothing() -> None:
    """No Lease to keep alive: nothing is written."""


@dataclass(frozen=True)
class Clock:
    """How waits see time; ``beat`` is called in every wait (it renews the Lease). Tests have their own."""

    beat: t.Callable[[], None] = _nothing
    now: t.Callable[[], float] = time.monotonic
    sleep: t.Callable[[float], None] = time.sleep

    def pauses(self, longest: float = _LONGEST_PAUSE_SECONDS) -> t.Iterator[None]:
        """Sleep between iterations, briefly at first and then up to ``longest`` seconds, for ever."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self.beat()
            yield
            self.sleep(pause)
            pause = min(pause * 1.2, longest)

    def wait(self, pending: t.Callable[[], str | None], timeout: float) -> str | None:
        """Ask ``pending`` until it says None, for ``timeout`` seconds; then return what is still pending."""
        give_up = self.now() + timeout
        for _pause in self.pauses():
            what = pending()
            if what is None or self.now() >= give_up:
                return what
        raise AssertionError("pauses never end")


class Persistence:
    """Notices a condition that lasts: a problem that goes away by itself within ``seconds`` is none."""

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
