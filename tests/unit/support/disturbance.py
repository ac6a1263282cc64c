# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults that a request can meet between a client and an API server, in memory or real."""

from __future__ import annotations

import json
import time

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import NoAnswer, Response


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
"""For this long after the write, a repeated read gets the answer that it got before the write.

An API server does not do that: it answers reads without resourceVersion=0, such as ours, with the newest state. A cache
in between may do it, and must not make a run do harm.
"""


class Disturbance:
    """Stands between a client and a server and passes requests on, but the ``number``th write of a kind meets ``fault``.

    ``kind`` is a part of the method and path of a request; by default all are of the kind. ``met`` tells whether the write came.
    A ``lost`` request gets no answer, whether the server carried it out (``after``) or not (``before``). A ``slow``
    answer comes after ``slow_seconds``. ``killed`` calls ``kill``, which ends the client. ``writes`` lists all writes.
    """

    def __init__(
        self, number=0, fault="", *, kind="", kill=None, slow_seconds=0.0, clock=time.monotonic, sleep=time.sleep
    ):
        self.writes = []
        self.met = False
        self._number, self._fault, self._kind = number, fault, kind
        self._kill = kill
        self._slow_seconds = slow_seconds
        self._clock, self._sleep = clock, sleep
        self._read = {}
        self._stale_until = 0.0

    def __call__(self, request, forward):
        """The answer to a request, which ``forward()`` sends to the server.

        :raises NoAnswer: if the client gets no answer.
        """
        if not is_write(request):
            return self._reading(request, forward)
        self.writes.append(f"{request.method} {request.path}")
        if self.met or sum(self._kind in write for write in self.writes) != self._number:
            return forward()
        self.met = True
        return self._disturbed(forward)

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
