# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs, disturbed at each single write they send: the next run ends where an undisturbed one does."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._transport import Response
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.lease import RunLease
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.modules import run_lease
from ansible_collections.virtpools.kubevirt.tests.unit import builders
from ansible_collections.virtpools.kubevirt.tests.unit.admission import Admission
from ansible_collections.virtpools.kubevirt.tests.unit.fake_cluster import LOST
from ansible_collections.virtpools.kubevirt.tests.unit.fake_operator import OperatedWorld
from ansible_collections.virtpools.kubevirt.tests.unit.roles import Play, TaskFailed

NEW = f"{builders.VERSION}-new"
GPU = {
    **builders.RAW_POOL,
    "virtLauncherImage": builders.GPU_LAUNCHER_IMAGE,
    "selector": {"vmLabels": {"matchLabels": {"class": "gpu"}}},
}
RT = {"name": "rt", "nodeSelector": {"hw": "rt"}, "virtHandlerImage": f"{builders.HANDLER_IMAGE}-rt"}
NEXT_GPU = {
    **GPU,
    "virtHandlerImage": f"registry.example/virt-handler:{NEW}",
    "virtLauncherImage": f"registry.example/virt-launcher:{NEW}",
}
SMALL = {"key": "disk", "operator": "DoesNotExist"}
BIG = {**GPU, "name": "big", "nodeSelector": {"disk": "big"}, "selector": {"vmLabels": {"matchLabels": {"class": "b"}}}}
SITE = ("handler_pools", {"virtpools_pools": [GPU, RT]})
RUNS = {
    "first site": SITE,
    "new images": ("handler_pools", {"virtpools_pools": [NEXT_GPU, RT]}),
    "pools changed": ("handler_pools", {"virtpools_pools": [BIG, {**GPU, "nodeExpressions": [SMALL]}, RT]}),
    "prune": ("handler_pools", {"virtpools_pools": [GPU], "virtpools_prune": True}),
    "remove": ("remove_pools", {"virtpools_remove": "all"}),
}
LIVELY = (names.HEARTBEAT_ANNOTATION, names.SCHEDULABLE_LABEL)


def _status(code, reason, **headers):
    body = {"kind": "Status", "code": code, "reason": reason, "message": "it said so", "details": {"name": "it"}}
    return Response(code, json.dumps(body).encode(), headers)


ANSWERS = {
    "409": _status(409, "Conflict"),
    "429": _status(429, "TooManyRequests", **{"retry-after": "2"}),
    "500": _status(500, "InternalError"),
    "503": _status(503, "ServiceUnavailable"),
}
FAULTS = ("lost before", "lost after", "500 after", *ANSWERS)
ALL = bool(os.environ.get("VIRTPOOLS_TEST_ALL_CRASHES"))
"""Each fault at each write; else each write meets one fault, and any fault many writes."""


UNFINISHED = {
    f"coordination.k8s.io/v1/leases/{builders.NAMESPACE}/{names.LEASE_NAME}",
    f"v1/configmaps/{builders.NAMESPACE}/{names.HISTORY}",
}
"""What a run cut off after its last change leaves undone for good: the next has nothing to do, so it writes nothing.
The dead Lease has expired; the list is missing from the history."""


class Disturbance:
    """Sits before a server; its ``number``th write meets ``fault``, once.

    ``writes`` are all there were, ``cuts`` the objects as each of them left them: what a power cut leaves.
    """

    def __init__(self, server, number=0, fault=""):
        self.writes = []
        self.cuts = []
        self._number, self._fault = number, fault
        self._server = server
        self._send = server.send
        server.send = self.send

    def send(self, request):
        if not _writes(request):
            return self._send(request)
        self.writes.append(f"{request.method} {request.path}")
        if len(self.writes) == self._number:
            return self._disturbed(request)
        answer = self._send(request)
        if self._number == 0:
            self.cuts.append(copy.deepcopy(list(self._server.objects.values())))
        return answer

    def _disturbed(self, request):
        if self._fault in ANSWERS:
            return ANSWERS[self._fault]
        if self._fault.endswith("after"):
            self._send(request)
        if self._fault == "500 after":
            return ANSWERS["500"]
        raise LOST


def _writes(request):
    dry = ("dryRun", "All") in request.query or bool(isinstance(request.body, dict) and request.body.get("dryRun"))
    return request.method != "GET" and not dry and "reviews" not in request.path


class Stage:
    """Makes runs on clusters that begin as they are told."""

    def __init__(self, runner, monkeypatch):
        self._runner = runner
        self._monkeypatch = monkeypatch

    def on(self, objects, number=0, fault=""):
        """A cluster, and what disturbs it from now on."""
        world = OperatedWorld(*objects)
        Admission(world)
        self._runner.world = world
        lease = functools.partial(RunLease, clock=lambda: world.now, sleep=world.sleep)
        self._monkeypatch.setattr(_module, "RunLease", lease)
        self._monkeypatch.setattr(run_lease, "RunLease", lease)
        connected = Cluster(world, clock=lambda: world.now, sleep=world.sleep)
        self._monkeypatch.setattr(Cluster, "connect", lambda params: copy.copy(connected))
        return world, Disturbance(world, number, fault)

    def run(self, role, variables):
        Play(self._runner).role(role, **{**variables, "virtpools_max_unavailable": 2})


@pytest.fixture
def stage(run, monkeypatch):
    return Stage(run, monkeypatch)


def stock():
    nodes = [
        builders.node("n1", labels={"hw": "gpu"}),
        builders.node("n2", labels={"hw": "gpu", "disk": "big"}),
        builders.node("n3", labels={"hw": "rt"}),
        builders.node("n4"),
    ]
    sets = [builders.primary(excluded=False, desired=4)]
    return [builders.kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets)]


def state(world):
    """All that a user could see afterwards, but not what changes by itself."""
    return {"/".join(map(str, key)): _lasting(obj) for key, obj in world.objects.items() if not _handler(obj)}


def _handler(obj):
    return (obj["metadata"].get("labels") or {}).get(names.KUBEVIRT_LABEL) == names.HANDLER and obj["kind"] == "Pod"


def _lasting(obj):
    metadata = {
        part: {key: value for key, value in (obj["metadata"].get(part) or {}).items() if key not in LIVELY}
        for part in ("labels", "annotations")
    }
    history = (obj["kind"], obj["metadata"]["name"]) == (kinds.CONFIG_MAP.name, names.HISTORY)
    return {**metadata, "spec": obj.get("spec"), "data": None if history else obj.get("data")}


def handlers(world):
    return {node["metadata"]["name"]: world.handlers(node["metadata"]["name"]) for node in world.all(kinds.NODE)}


_before = {}


def before(stage, kind):
    """The objects of a cluster before a run of that kind."""
    if kind == "first site":
        return stock()
    if "site" not in _before:
        world, _none = stage.on(stock())
        stage.run(*SITE)
        _before["site"] = list(world.objects.values())
    return copy.deepcopy(_before["site"])


def undisturbed(stage, kind):
    """The writes of a run of that kind, each with what a power cut after it would leave, and what the run leaves."""
    world, disturbance = stage.on(before(stage, kind))
    stage.run(*RUNS[kind])
    steps, left = list(zip(disturbance.writes, disturbance.cuts, strict=True)), outcome(world)
    world.writes.clear()
    stage.run(*RUNS[kind])
    assert world.writes == [], "nothing was left to do"
    assert world.doubled == []
    return steps, left


def outcome(world):
    return {**state(world), "handlers": handlers(world)}


def different(world, wanted):
    """What is not as it should be, by object."""
    found = outcome(world)
    return {key: (found.get(key), wanted.get(key)) for key in {*found, *wanted} if found.get(key) != wanted.get(key)}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_cut_off_after_any_write_is_finished_by_the_next(stage, kind):
    steps, wanted = undisturbed(stage, kind)
    for write, cut in steps:
        world, _disturbance = stage.on(cut)
        with told(f"The power fails after {write}"):
            stage.run(*RUNS[kind])
            assert different(world, wanted).keys() <= (set() if world.writes else UNFINISHED)
            assert world.doubled == []


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_disturbed_at_any_write_ends_as_an_undisturbed_one(stage, kind):
    steps, wanted = undisturbed(stage, kind)
    for number, (write, _cut) in enumerate(steps, 1):
        for fault in FAULTS if ALL else [FAULTS[number % len(FAULTS)]]:
            with told(f"{fault} at write {number} of {len(steps)}, {write}"):
                survives(stage, kind, number, fault, wanted)


def survives(stage, kind, number, fault, wanted):
    world, disturbance = stage.on(before(stage, kind), number, fault)
    try:
        stage.run(*RUNS[kind])
    except TaskFailed:
        assert fault == "409", "what passes by itself is to be waited for"
        stage.run(*RUNS[kind])
    assert len(disturbance.writes) >= number
    assert different(world, wanted) == {}
    assert world.doubled == []


@contextlib.contextmanager
def told(where):
    try:
        yield
    except (AssertionError, TaskFailed) as error:
        raise AssertionError(f"{where}: {error}") from error
