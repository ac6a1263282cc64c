# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Makes several calls at the same time, each in a thread: the API server answers one while it works on another."""

from __future__ import annotations

import typing as t
from collections import deque
from concurrent import futures

Item = t.TypeVar("Item")
"""What a call is about."""
Result = t.TypeVar("Result")
"""What a call returns."""

MOST = 8
"""How many calls are under way at the same time: enough that no one notices the wait, and few for an API server."""


def results(call: t.Callable[[Item], Result], items: t.Sequence[Item]) -> t.Iterator[Result]:
    """What a call returns for each item, in the order of the items. No more than ``MOST`` results wait to be taken.

    :raises Exception: an error of a call in place of its result. Nothing begins after that.
    """
    going: deque[futures.Future[Result]] = deque()
    with _executor(min(MOST, len(items))) as executor:
        for item in items:
            if len(going) >= MOST:
                yield going.popleft().result()
            going.append(executor.submit(call, item))
        while going:
            yield going.popleft().result()


def for_each(call: t.Callable[[Item], None], items: t.Sequence[Item]) -> None:
    """Make a call for each item.

    :raises Exception: the error of a call. Nothing begins after that.
    """
    for _done in results(call, items):
        pass


def each(
    call: t.Callable[[Item], Result], waiting: deque[Item], most: int
) -> t.Iterator[tuple[Item, futures.Future[Result]]]:
    """Make a call for each item, and yield the item when its call has ended. An item that is taken out of ``waiting`` is not
    begun.

    :param most: how many calls are made at the same time. A single one is made in the caller's thread.
    """
    going: dict[futures.Future[Result], Item] = {}
    with _executor(min(most, len(waiting))) as executor:
        while waiting or going:
            while waiting and len(going) < most:
                item = waiting.popleft()
                going[executor.submit(call, item)] = item
            done = futures.wait(going, return_when=futures.FIRST_COMPLETED).done
            for future in [each for each in going if each in done]:
                yield going.pop(future), future


def _executor(most: int) -> futures.Executor:
    """What makes calls, in so many threads."""
    return futures.ThreadPoolExecutor(most) if most > 1 else _Here()


class _Here(futures.Executor):
    """Makes each call at once, in the caller's thread."""

    def submit(self, fn: t.Callable[..., t.Any], /, *args: t.Any, **kwargs: t.Any) -> futures.Future[t.Any]:
        future: futures.Future[t.Any] = futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 (as a thread keeps it for the caller)
            future.set_exception(error)
        return future
