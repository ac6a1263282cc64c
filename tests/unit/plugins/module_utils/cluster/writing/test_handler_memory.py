# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import at_once
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import handler_memory
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.handlers import HandlerPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.migrations import Arrival
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Refused, World

VMI = kinds.VIRTUAL_MACHINE_INSTANCE
REMINDER = names.REMINDER_ANNOTATION
OTHERS = {"kubevirt.io/latest-observed-api-version": "v1"}
NODES = ("n1", "n2")


@pytest.fixture
def world():
    """A VM that came to each node by migration, and one that was always there."""
    nodes = [builders.node(name) for name in NODES]
    world = World(builders.kubevirt(), builders.primary(), *nodes, *builders.handlers_of(nodes, [builders.primary()]))
    for node in NODES:
        put(world, f"came-to-{node}", node, {"completed": True, "targetNode": node})
        put(world, f"born-on-{node}", node)
    return world


def put(world, name, node, migration=None, annotations=OTHERS):
    vmi = VMI.object(name, "vms", status={"phase": "Running", "nodeName": node, "migrationState": migration})
    vmi["metadata"].update(labels={names.NODE_NAME_LABEL: node}, annotations=annotations)
    world.put(vmi)


def remind(world, nodes=NODES):
    handlers = [pod for pod in live.handlers(world.client(), builders.NAMESPACE) if pod.node in nodes]
    world.requests.clear()
    return handler_memory.remind(world.client(), handlers, world.clock())


def patched(world):
    """What was done to each VM's annotation, in order."""
    values = {}
    for request in world.requests:
        if request.method == "PATCH":
            (change,) = [each for each in request.body if each["op"] != "test"]
            values.setdefault(request.path.rsplit("/", 1)[-1], []).append(change["op"])
    return values


def test_a_vm_that_migrated_is_changed_and_changed_back(world):
    began = world.now
    assert len(remind(world)) == 2
    assert patched(world) == {f"came-to-{node}": ["add", "remove"] for node in NODES}
    assert {frozenset(vmi["metadata"]["annotations"].items()) for vmi in world.all(VMI)} == {frozenset(OTHERS.items())}
    assert world.now - began >= 5
    assert world.shown == ["Handlers were made to record 2 VMs again, for VMs may be lost that came by live migration."]


def test_side_by_side(world, monkeypatch):
    monkeypatch.setattr(at_once, "MOST", 8)
    for number in range(50):
        put(world, f"many-{number}", "n1", {"completed": True, "targetNode": "n1"})
    assert len(remind(world)) == 52
    assert set(map(len, patched(world).values())) == {2}


def test_that_takes_long_shows_how_far_it_is(world):
    for number in range(20):
        put(world, f"many-{number}", "n1", {"completed": True, "targetNode": "n1"})
    world.before = lambda request: world.sleep(1) if request.method == "PATCH" else None
    assert len(remind(world)) == 22
    assert world.shown[0] == "13 of 22 VMs were changed for a moment"


@pytest.mark.parametrize("ended", [{}, {"endTimestamp": builders.heartbeat(builders.STARTED + 400)}])
def test_a_handler_cleans_up_first(world, monkeypatch, ended):
    """It may delete its record right after that, so that a reminder before would be in vain."""
    monkeypatch.setattr(handler_memory, "seconds_since_1970", lambda: builders.STARTED + 500)
    vmi = world.find(VMI, "came-to-n1", "vms")
    vmi["metadata"]["labels"][names.MIGRATION_TARGET_LABEL] = "n1"
    vmi["status"]["migrationState"].update(ended)
    world.put(vmi)
    world.at[world.now + 10] = lambda: put(world, "came-to-n1", "n1", {"completed": True, "targetNode": "n1", **ended})
    began = world.now
    first = []
    world.before = lambda request: first.append(world.now) if request.method == "PATCH" and not first else None
    assert len(remind(world, ["n1"])) == 1
    assert 15 <= first[0] - began < 19
    assert patched(world) == {"came-to-n1": ["add", "remove"]}


@pytest.mark.parametrize(("ago", "seconds"), [(None, 5), (0, 5), (50, 5), (100, 0)])
def test_a_handler_may_have_cleaned_up_just_now(world, monkeypatch, ago, seconds):
    """It removes the label, and then its record. Only the end of the migration tells how long ago that was."""
    ended = {} if ago is None else {"endTimestamp": builders.heartbeat(builders.STARTED + 500 - ago)}
    monkeypatch.setattr(handler_memory, "seconds_since_1970", lambda: builders.STARTED + 500)
    put(world, "came-to-n1", "n1", {"completed": True, "targetNode": "n1", **ended})
    began = world.now
    first = []
    world.before = lambda request: first.append(world.now) if request.method == "PATCH" and not first else None
    assert len(remind(world, ["n1"])) == 1
    assert seconds <= first[0] - began < seconds + 2


def test_a_handler_that_never_cleans_up_is_reminded_all_the_same(world):
    vmi = world.find(VMI, "came-to-n1", "vms")
    vmi["metadata"]["labels"][names.MIGRATION_TARGET_LABEL] = "n1"
    world.put(vmi)
    began = world.now
    assert len(remind(world, ["n1"])) == 1
    assert 40 <= world.now - began < 45


def test_without_such_a_vm_nothing_is_written_and_waited_for(world):
    for node in NODES:
        world.drop(VMI, f"came-to-{node}", "vms")
    began = world.now
    assert len(remind(world)) == 0
    assert (patched(world), world.shown, world.now) == ({}, [], began)


def test_a_vm_that_was_there_before_the_handler_is_left_alone(world):
    before = builders.heartbeat(builders.STARTED - 2 * 86400)
    put(world, "came-to-n1", "n1", {"completed": True, "targetNode": "n1", "endTimestamp": before})
    remind(world)
    assert patched(world) == {"came-to-n2": ["add", "remove"]}


def test_the_newest_handler_of_a_node_decides_what_is_recorded():
    old, new = (HandlerPod.from_object(builders.handler_pod("n1", name=name)) for name in ("old", "new"))
    pods = [replace(new, started=200.0), replace(old, started=100.0), replace(old, started=None)]
    assert handler_memory.started(pods) == 200


def test_of_other_nodes_is_left_alone(world):
    assert len(remind(world, ["n2", "n3"])) == 1
    assert list(patched(world)) == ["came-to-n2"]


def test_what_a_killed_run_left_is_removed(world):
    put(world, "came-to-n1", "n1", {"completed": True, "targetNode": "n1"}, {REMINDER: "5", **OTHERS})
    remind(world, ["n1"])
    assert patched(world) == {"came-to-n1": ["add", "remove"]}
    assert world.find(VMI, "came-to-n1", "vms")["metadata"]["annotations"] == OTHERS


def test_a_change_by_another_client_is_kept(world):
    def interfere(request):
        if request.method == "PATCH":
            world.before = lambda request: None
            put(world, "came-to-n1", "n1", annotations={REMINDER: "theirs", **OTHERS})

    world.before = interfere
    assert len(remind(world, ["n1"])) == 1
    assert world.find(VMI, "came-to-n1", "vms")["metadata"]["annotations"][REMINDER] == "theirs"


def test_a_vm_that_is_deleted_meanwhile_is_no_error(world):
    def delete(request):
        if request.method == "PATCH":
            world.before = lambda request: None
            world.drop(VMI, "came-to-n1", "vms")

    world.before = delete
    assert len(remind(world, ["n1"])) == 1


def test_a_refused_change_is_an_error_that_names_the_vm(world):
    def refuse(request):
        if request.method == "PATCH":
            raise Refused(403, "Forbidden", "no")

    world.before = refuse
    with pytest.raises(ClusterError, match="came-to-n1"):
        remind(world, ["n1"])


class TestLateArrivals:
    """VMs that came after the handlers of the batch were reminded."""

    def recorded_after(self, world, comes, reminded=()):
        """How many seconds pass until all VMs are recorded. ``comes``: after how many seconds each comes to n1."""
        late = handler_memory.LateArrivals(world.client(), world.clock(), frozenset(reminded))
        began = world.now
        for second in range(60):
            if late.recorded(self.arrival(world, name) for name, after in comes.items() if after <= second):
                return world.now - began
            world.sleep(1)
        return None

    def arrival(self, world, name):
        return Arrival.of(world.find(VMI, name, "vms"))

    @pytest.mark.parametrize(("second", "seconds"), [({}, 10), ({"came-to-n2": 3}, 13)], ids=["one", "two"])
    def test_are_reminded_once_the_handler_may_have_cleaned_up(self, world, second, seconds):
        comes = {"came-to-n1": 0, **second}
        assert seconds <= self.recorded_after(world, comes) < seconds + 2
        assert patched(world) == {name: ["add", "remove"] for name in comes}

    def test_that_were_reminded_with_the_batch_hold_nothing_up(self, world):
        key = self.arrival(world, "came-to-n1").key
        assert self.recorded_after(world, {"came-to-n1": 0}, [key]) == 0
        assert patched(world) == {}
