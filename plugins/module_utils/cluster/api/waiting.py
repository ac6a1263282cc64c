# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Waiting with a time limit that keeps the run's Lease alive, and what a person reads until it is over."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass, field

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 3.0
_SILENCE_SECONDS = 30.0
_STALE_SECONDS = 10.0


def seconds_since_1970() -> int:
    """The time of day, for what outlives a run; waits have their ``Clock``."""
    return int(time.time())


def seconds_since_boot() -> float:
    """A clock that goes on while the machine is suspended; ``time.monotonic`` stands still then on Linux and macOS."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _nothing() -> None:
    """The beat of a run that writes nothing, and so has no Lease to keep alive."""


def _unseen(_line: str) -> None:
    """Where no person watches."""


def _unnoted(_nodes: t.Collection[str]) -> None:
    """Where nothing can be kept."""


class StatusLines:
    """What a person reads while a module works: a line when something has happened and, while nothing does, one every 30 s."""

    events: list[str]
    """What has happened so far."""

    def __init__(
        self,
        show: t.Callable[[str], None] = _unseen,
        now: t.Callable[[], float] = time.monotonic,
        note: t.Callable[[t.Collection[str]], None] = _unnoted,
    ) -> None:
        """:param note: keeps the names of nodes for a person who interrupts the run."""
        self._show = show
        self._now = now
        self._note = note
        self._last = now()
        self.events = []

    def say(self, event: str) -> None:
        """Say what has happened."""
        self.events.append(event)
        self._write(event)

    def say_all(self, events: t.Iterable[str]) -> None:
        """Say several things that have happened."""
        for event in events:
            self.say(event)

    def half_way(self, nodes: t.Collection[str]) -> None:
        """Note the nodes that would be half way if the run were interrupted from now on."""
        self._note(nodes)

    def remind(self, waiting_for: t.Callable[[], str]) -> None:
        """Say what is waited for, if nothing has been said for a while. It is asked for only then."""
        if self._now() - self._last >= _SILENCE_SECONDS:
            self._write(waiting_for())

    def _write(self, line: str) -> None:
        self._show(line)
        self._last = self._now()


@dataclass(frozen=True)
class Clock:
    """The time for waits. Every wait calls ``beat`` again and again, which renews the Lease. Tests have their own."""

    beat: t.Callable[[], None] = _nothing
    now: t.Callable[[], float] = time.monotonic
    sleep: t.Callable[[float], None] = time.sleep
    status: StatusLines = field(default_factory=StatusLines)

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

    def is_stale(self, read_at: float) -> bool:
        """Whether what was read then is read again before it decides a write: pulls, drains and migrations may take an hour."""
        return self.now() - read_at > _STALE_SECONDS

    def wait(self, pending: t.Callable[[], str | None], timeout: float) -> str | None:
        """Call ``pending`` until it returns None, for at most ``timeout`` seconds. Returns its last result, which says what it waits
        for."""
        give_up = self.now() + timeout
        for _pause in self.pauses():
            problem = pending()
            if problem is None or self.now() >= give_up:
                return problem
            self.remind(give_up, timeout, problem)
        raise AssertionError("pauses never end")

    def remind(self, give_up: float, timeout: float, problem: str) -> None:
        """Say, where nothing else was said for a while, what a wait that ends at ``give_up`` waits for."""

        def sentence() -> str:
            waited = self.now() - give_up + timeout
            return f"Waiting, {waited:.0f} s of at most {timeout:.0f} s: {problem}"

        self.status.remind(sentence)


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
