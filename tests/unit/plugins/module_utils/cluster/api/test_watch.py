# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a watch says reaches the one who waits, until the watch ends for whatever reason."""

from __future__ import annotations

import json
import queue

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.transport import NoAnswer, Request
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.watch import Event, ThreadWatch
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import ApiServer

LONG = 30.0
POD = {"metadata": {"name": "p"}}


class Stream:
    """A stream whose lines the test says; an exception breaks it, None ends it."""

    def __init__(self):
        self.said = queue.SimpleQueue()
        self.closed = False

    def say(self, kind, obj):
        self.said.put(json.dumps({"type": kind, "object": obj}).encode())

    def lines(self):
        while (line := self.said.get(timeout=LONG)) is not None:
            if isinstance(line, Exception):
                raise line
            yield line

    def close(self):
        self.closed = True
        self.said.put(None)


class Transport:
    def __init__(self, stream):
        self.stream = stream
        self.opened = []

    def open(self, request):
        self.opened.append(request)
        if self.stream is None:
            raise NoAnswer("status 403", sent=True)
        return self.stream


@pytest.fixture
def stream():
    return Stream()


@pytest.fixture
def follower(stream):
    return ThreadWatch(Transport(stream), Request("GET", "/api/v1/pods"))


def test_events_come_as_they_happen(stream, follower):
    stream.say("ADDED", POD)
    assert follower.wait(LONG) == [Event(POD, gone=False)]
    stream.say("BOOKMARK", {})
    stream.say("DELETED", POD)
    assert follower.wait(LONG) == [Event(POD, gone=True)]


def test_a_wait_without_events_ends(follower):
    assert follower.wait(0.01) == []


@pytest.mark.parametrize(
    "end",
    [
        None,
        NoAnswer("Connection reset by peer", sent=True),
        b"<html>",
        b"[]",
        b"{}",
        b'{"type": "ERROR", "object": {"code": 410}}',
    ],
)
def test_what_ends_it_is_told_after_the_last_event(stream, follower, end):
    stream.say("ADDED", POD)
    stream.said.put(end)
    events = follower.wait(LONG)
    while events == [Event(POD, gone=False)]:
        events = follower.wait(LONG)
    assert events is None
    assert follower.wait(LONG) is None


def test_that_is_not_allowed_has_ended():
    assert ThreadWatch(Transport(None), Request("GET", "/api/v1/pods")).wait(LONG) is None


def test_closing_ends_the_stream(stream, follower):
    stream.say("ADDED", POD)
    follower.wait(LONG)
    follower.close()
    assert stream.closed
    assert follower.wait(LONG) is None


def test_it_begins_where_the_list_ended(stream):
    server = ApiServer()
    opened = []
    server.open = lambda request: opened.append(request) or stream
    following = server.client().follow(kinds.POD, "kubevirt", label_selector="a=b", seconds=60)
    stream.say("ADDED", POD)
    assert following.wait(LONG) == [Event(POD, gone=False)]
    following.close()
    (request,) = opened
    assert dict(request.query)["resourceVersion"] == "1000"
    assert dict(request.query)["labelSelector"] == "a=b"
