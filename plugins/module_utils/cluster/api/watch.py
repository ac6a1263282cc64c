# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Follows what happens to objects, by a watch in a thread, so that a wait ends with the event it waits for.

Events only wake us up; decisions use what is read afterwards: a watch may lag, and it may end at any time. Then
the one who waits looks once a second, as without it.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import typing as t
from dataclasses import dataclass

from ...core.base.objects import Object
from .transport import CannotConnect, NoAnswer, Request, Stream, Transport

_ENDED = None


@dataclass(frozen=True)
class Event:
    """What happened to an object."""

    object: Object
    """Its last state, if it was deleted."""
    gone: bool
    """Whether it was deleted."""


class Watch(t.Protocol):
    """What happens to some objects."""

    def wait(self, seconds: float, /) -> list[Event] | None:
        """The events since the last call, and where there are none, those that come next, within ``seconds``. None when
        the watch has ended, at once."""

    def close(self) -> None:
        """End it."""


class NoWatch:
    """Where nothing can be followed."""

    def wait(self, _seconds: float) -> list[Event] | None:
        return None

    def close(self) -> None:
        pass


class ThreadWatch:
    """Follows a watch in a thread of its own."""

    def __init__(self, transport: Transport, request: Request) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._stream: Stream | None = None
        self._closed = self._ended = False
        threading.Thread(target=self._run, args=(transport, request), daemon=True).start()

    def _run(self, transport: Transport, request: Request) -> None:
        try:
            self._stream = transport.open(request)
            for line in self._stream.lines() if not self._closed else ():
                if self._closed:
                    break
                told = json.loads(line)
                if told["type"] == "ERROR":  # the server has forgotten where we began
                    break
                if told["type"] != "BOOKMARK":
                    self._events.put(Event(told["object"], told["type"] == "DELETED"))
        except (NoAnswer, CannotConnect, LookupError, TypeError, ValueError):
            pass  # whatever it is: the watch has ended
        finally:
            self._events.put(_ENDED)

    def wait(self, seconds: float) -> list[Event] | None:
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            while not self._ended:
                event = self._events.get(block=not events, timeout=seconds)
                if event is _ENDED:
                    self._ended = True
                else:
                    events.append(event)
        return None if self._ended and not events else events

    def close(self) -> None:
        self._closed = True
        if self._stream is not None:
            self._stream.close()
