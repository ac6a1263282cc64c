# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may happen to requests between a client and an API server, in memory or real."""

from __future__ import annotations

import json
import time

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._transport import NoAnswer, Response


def _status(code, reason, **headers):
    body = {"kind": "Status", "code": code, "reason": reason, "message": "it said so", "details": {"name": "it"}}
    return Response(code, json.dumps(body).encode(), headers)


ANSWERS = {
    "409": _status(409, "Conflict"),
    "429": _status(429, "TooManyRequests", **{"retry-after": "2"}),
    "500": _status(500, "InternalError"),
    "503": _status(503, "ServiceUnavailable"),
}
FAULTS = ("lost before", "lost after", "500 after", "stale", *ANSWERS)
STALE_SECONDS = 1.5
"""For so long after a write is a read answered as the same one was before it, if there was one.

An API server does not do that: it answers reads like ours, without resourceVersion=0, with what was written last. A cache
that somebody put between may, and then we must come to no harm.
"""


class Disturbance:
    """Between a client and a server: lets requests through, but the ``number``th write meets ``fault``, once.

    ``lost`` requests are carried out, or not, and get no answer; a ``slow`` answer comes after ``slow_seconds``; the
    client is ``killed`` by a call of ``kill``. ``writes`` are all there were.
    """

    def __init__(self, number=0, fault="", *, kill=None, slow_seconds=0.0, clock=time.monotonic, sleep=time.sleep):
        self.writes = []
        self._number, self._fault = number, fault
        self._kill = kill
        self._slow_seconds = slow_seconds
        self._clock, self._sleep = clock, sleep
        self._read = {}
        self._stale_until = 0.0

    def __call__(self, request, forward):
        """The answer to a request that ``forward()`` carries out.

        :raises NoAnswer: where there is none.
        """
        if not is_write(request):
            return self._reading(request, forward)
        self.writes.append(f"{request.method} {request.path}")
        return self._disturbed(forward) if len(self.writes) == self._number else forward()

    def _reading(self, request, forward):
        what = (request.method, request.path, request.query)
        if request.method == "GET" and self._clock() < self._stale_until and what in self._read:
            return self._read[what]
        answer = forward()
        if self._fault == "stale":
            self._read[what] = answer
        return answer

    def _disturbed(self, forward):
        if self._fault in ANSWERS:
            return ANSWERS[self._fault]
        answer = None if self._fault.endswith("before") else forward()
        if self._fault == "stale":
            self._stale_until = self._clock() + STALE_SECONDS
            return answer
        if self._fault == "slow":
            self._sleep(self._slow_seconds)
            return answer
        if self._fault == "500 after":
            return ANSWERS["500"]
        if self._fault.startswith("killed"):
            self._kill()
        raise NoAnswer("Connection reset by peer", sent=True)


def is_write(request):
    """Whether a request changes what is stored."""
    dry = ("dryRun", "All") in request.query or bool(isinstance(request.body, dict) and request.body.get("dryRun"))
    return request.method != "GET" and not dry and "reviews" not in request.path
