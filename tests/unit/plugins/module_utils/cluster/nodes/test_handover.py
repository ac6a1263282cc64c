# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Handovers in a cluster that changes meanwhile: a node never has two handlers, and every outcome is true."""

from __future__ import annotations

import contextlib
import copy
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import at_once
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError, NotFound
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import LeaseLost
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.handover import Batch
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.node_handover import (
    HandoverOutcome,
    NodeView,
    Target,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading.handler_work import HandlerWork
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import handler_memory, settle
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing.epochs import Epochs
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing.node_owner import NodeGone
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import epochs, kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import daemonsets, handler_fit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.migrations import Arrival
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.batching import Move
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import SITE
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import LOST, Behaviour, Refused, World

GPU = builders.pool_daemonset(builders.pool("gpu"))
FPGA = builders.pool_daemonset(builders.pool("fpga"))
TARGETS = {
    "primary": Target("primary", "virt-handler"),
    "gpu": Target("gpu", "virt-handler-gpu", daemonsets.template_of(GPU)),
    "fpga": Target("fpga", "virt-handler-fpga", daemonsets.template_of(FPGA)),
}
TIMEOUT = 60.0
NEVER = None


@pytest.fixture(
    scope="module",
    autouse=True,
    params=[(True, 1), (False, 1), (None, 1), (True, 8)],
    ids=["followed", "not followed", "kept back", "requests side by side"],
)
def followed(request):
    """Every test runs with a watch of handler pods, without one, with one that says nothing, and with several threads."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(World, "FOLLOWED", request.param[0])
        patched.setattr(at_once, "MOST", request.param[1])
        yield


@pytest.fixture
def world():
    """Three nodes of the primary, which has handlers on them."""
    return make_world(*(builders.node(name) for name in ("n1", "n2", "n3")))


def make_world(*nodes, **options):
    sets = [builders.primary(), GPU, FPGA]
    return World(*sets, *nodes, *builders.handlers_of(nodes, sets), **options)


def batch_of(world, cluster=None):
    cluster = cluster or world.client()
    return Batch(cluster, builders.NAMESPACE, world.clock(), TIMEOUT, Epochs(cluster, lambda: SITE))


def hand_over(world, *moves, action="move", targets=TARGETS):
    """Carry out moves given as (node, from, to). Returns the outcomes by node; no node ever has two handlers."""
    batch = batch_of(world)
    found = list(
        batch.run([(Move(node, source, to, action), targets[to], targets[source]) for node, source, to in moves])
    )
    assert world.doubled == []
    assert sorted(outcome.move.node for outcome in found) == sorted(node for node, _source, _to in moves)
    return {outcome.move.node: outcome for outcome in found}


def owners_written(world, node):
    """The values of the owner label that we wrote to a node, in order."""
    values = []
    for request in world.requests:
        if request.method == "PATCH" and request.path.endswith(f"/{node}"):
            path = "/metadata/labels/virtpools.io~1pool"
            values += [
                operation.get("value")
                for operation in request.body
                if operation["op"] != "test" and path == operation["path"]
            ]
    return values


def silent_from(world, seconds):
    """Make every handler of gpu stop sending heartbeats."""
    silent = {("virt-handler-gpu", "n1"): Behaviour(heartbeat=NEVER)}
    world.at[world.now + seconds] = lambda: world.behave.update(silent)


def beat(world, name):
    """The handler on a node sends a heartbeat."""
    world.find(kinds.NODE, name)["metadata"]["annotations"][names.HEARTBEAT_ANNOTATION] = builders.heartbeat(world.now)


class TestMove:
    def test_is_proven_by_a_heartbeat_during_a_lost_answer(self, world):
        def lose(request):
            if request.method == "PATCH" and request.body[-1].get("value") == "gpu":
                world.after = lambda request: None
                silent_from(world, 20)
                world.sleep(30)
                raise LOST

        world.after = lose
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"

    def test_ends_with_the_new_handler_and_nothing_left_over(self, world):
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert (outcome.result, outcome.message) == ("done", "")
        assert (world.node().owner, world.node().former_owner) == ("gpu", None)
        assert world.handlers() == ["virt-handler-gpu"]

    def test_goes_on_once_the_old_handler_has_ended(self, world):
        """Its object may stay a moment longer."""
        world.behave["virt-handler", None] = Behaviour(stop=10)

        def end():
            world.find(kinds.POD, "virt-handler-n1", builders.NAMESPACE)["status"]["phase"] = "Succeeded"
            owners.append(world.node().owner)

        owners, world.at[world.now + 5] = [], end
        world.at[world.now + 7] = lambda: owners.append(world.node().owner)
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"
        assert owners == [names.IN_TRANSIT, "gpu"]

    def test_goes_through_in_transit(self, world):
        hand_over(world, ("n1", "primary", "gpu"))
        assert owners_written(world, "n1") == [names.IN_TRANSIT, "gpu"]

    def test_tells_how_long_the_node_had_no_handler(self, world):
        world.behave["virt-handler", None] = Behaviour(stop=10)
        world.behave["virt-handler-gpu", None] = Behaviour(start=20, heartbeat=15)
        gap = hand_over(world, ("n1", "primary", "gpu"))["n1"].gap
        assert 30 <= gap <= 36, "stop and start, without the time until the heartbeat"

    @pytest.mark.parametrize("killed", [False, True])
    def test_waits_for_a_heartbeat_of_the_new_handler(self, world, killed):
        world.behave["virt-handler", None] = Behaviour(killed=killed)
        world.behave["virt-handler-gpu", None] = Behaviour(start=1, heartbeat=25)
        began = world.now
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"
        assert world.now - began > 25
        assert world.node().heartbeat > builders.heartbeat(began + 25)

    def test_is_not_proven_by_the_last_heartbeat_of_the_old_handler(self, world):
        def last_words():
            annotations = world.find(kinds.NODE, "n1")["metadata"]["annotations"]
            annotations[names.HEARTBEAT_ANNOTATION] = builders.heartbeat(world.now)

        world.behave["virt-handler", None] = Behaviour(stop=5, killed=True)
        world.behave["virt-handler-gpu", None] = Behaviour(start=1, heartbeat=25)
        began = world.now
        world.at[began + 4] = last_words
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"
        assert world.now - began > 30

    def test_outlives_a_node_that_cannot_be_read_for_a_while(self, world):
        """A restarted API server may forbid everything until it has read its RBAC rules."""

        def forbid(request):
            if request.method == "GET" and request.path.endswith("/nodes/n1"):
                raise Refused(403, "Forbidden", "cannot get nodes")

        def allow(_request):
            """As before."""

        world.at[world.now + 3] = lambda: setattr(world, "before", forbid)
        world.at[world.now + 20] = lambda: setattr(world, "before", allow)
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"

    def test_asks_the_server_seldom_where_handlers_can_be_followed(self, world):
        world.behave["virt-handler", None] = Behaviour(stop=5)
        world.behave["virt-handler-gpu", None] = Behaviour(start=15, heartbeat=0)
        hand_over(world, ("n1", "primary", "gpu"))
        # What a batch asks once, about the launcher policy, does not count.
        asked = sum(not request.path.startswith("/apis") for request in world.requests)
        assert (asked <= 11) == bool(World.FOLLOWED), [f"{each.method} {each.path}" for each in world.requests]

    def test_back_to_the_primary(self):
        world = make_world(builders.node("n1", "gpu"))
        assert hand_over(world, ("n1", "gpu", "primary"))["n1"].result == "done"
        assert names.OWNER_LABEL not in world.node().labels
        assert world.handlers() == ["virt-handler"]

    def test_from_pool_to_pool(self):
        world = make_world(builders.node("n1", "gpu"))
        assert hand_over(world, ("n1", "gpu", "fpga"))["n1"].result == "done"
        assert world.handlers() == ["virt-handler-fpga"]

    def test_to_no_handler_is_done_when_the_old_one_is_deleted(self):
        world = make_world(builders.node("n1", "gpu", taints=[{"key": "a", "effect": "NoSchedule"}]))
        targets = {**TARGETS, "primary": Target("primary", None)}
        assert hand_over(world, ("n1", "gpu", "primary"), targets=targets)["n1"].result == "done"
        assert world.pods() == []
        assert world.node().owner == "primary"

    def test_of_a_node_that_an_earlier_run_left_in_transit(self):
        world = make_world(builders.node("n1", names.IN_TRANSIT, "primary"))
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"
        assert owners_written(world, "n1") == ["gpu"]
        assert not [each for each in world.requests if f"until.virtpools.io~1{names.IN_TRANSIT}" in str(each.body)]

    def test_of_a_node_left_in_transit_that_would_get_none_goes_back(self):
        """It has no handler: its former owner's comes only if the handover goes on."""
        world = make_world(builders.node("n1", names.IN_TRANSIT, "primary"))
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="CreateContainerError")
        template = copy.deepcopy(GPU["spec"]["template"])
        template["spec"]["nodeSelector"] = {"not": "here"}
        targets = {**TARGETS, "gpu": replace(TARGETS["gpu"], pod=template)}
        assert hand_over(world, ("n1", "primary", "gpu"), targets=targets)["n1"].result == "returned"
        assert world.handlers("n1") == ["virt-handler"]

    def test_side_by_side(self, world):
        began = world.now
        found = hand_over(world, ("n1", "primary", "gpu"), ("n2", "primary", "fpga"), ("n3", "primary", "gpu"))
        assert {outcome.result for outcome in found.values()} == {"done"}
        assert world.now - began < 15
        assert [world.handlers(n) for n in ("n1", "n2", "n3")] == [
            ["virt-handler-gpu"],
            ["virt-handler-fpga"],
            ["virt-handler-gpu"],
        ]

    def test_of_more_nodes_than_are_read_one_by_one(self):
        nodes = [builders.node(f"n{index}") for index in range(120)]
        world = make_world(*nodes, builders.node("other"))
        found = hand_over(world, *((f"n{index}", "primary", "gpu") for index in range(120)))
        assert {outcome.result for outcome in found.values()} == {"done"}
        assert world.handlers("other") == ["virt-handler"]
        handlers = kinds.POD.path(builders.NAMESPACE)
        assert not [each for each in world.requests if each.path == handlers and "fieldSelector" in dict(each.query)]

    def test_of_nothing(self, world):
        assert hand_over(world) == {}
        assert world.writes == []


class TestStartingVms:
    """A handler that ends in the middle of a start may leave the VM Failed."""

    @staticmethod
    def starts(world, node, seconds=NEVER, name="vm", **status):
        """A VM that the handler of a node is starting, and that runs after so many seconds."""
        metadata = {"namespace": "vms", "name": name, "labels": {names.NODE_NAME_LABEL: node}}
        vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
        world.put({**vmi, "status": {"phase": "Scheduled", **status}})
        if seconds is not NEVER:
            world.at[world.now + seconds] = lambda: world.put({**vmi, "status": {"phase": "Running"}})

    @staticmethod
    def began(world, *moves, **options):
        """After how many seconds each node's old handler was told to end."""
        begin = world.now
        found = hand_over(world, *moves, **options)
        assert {outcome.result for outcome in found.values()} == {"done"}
        return {name: outcome.began - begin for name, outcome in found.items()}

    def test_are_waited_for_before_a_node_leaves(self, world):
        self.starts(world, "n1", 20)
        world.at[world.now + 15] = lambda: seen.append((world.node().owner, world.handlers()))
        seen = []
        began = self.began(world, ("n1", "primary", "gpu"), ("n2", "primary", "gpu"))
        assert seen == [("primary", ["virt-handler"])]
        assert began["n2"] < 1
        assert 20 <= began["n1"] < 22

    def test_that_begin_meanwhile_are_waited_for(self, world):
        self.starts(world, "n1", 10)
        world.at[world.now + 9] = lambda: self.starts(world, "n1", 10, "other")
        assert 19 <= self.began(world, ("n1", "primary", "gpu"))["n1"] < 21

    def test_are_waited_for_before_a_handler_is_replaced(self):
        world = TestReplace().outdated()
        self.starts(world, "n1", 20)
        assert 20 <= self.began(world, ("n1", "gpu", "gpu"), action="replace")["n1"] < 22

    def test_are_waited_for_before_an_unproven_handler_is_replaced(self):
        world = World(
            *(builders.primary(), GPU, FPGA, builders.node("n1", "gpu", "primary")),
            builders.handler_pod("n1", "virt-handler-gpu", template="old"),
        )
        self.starts(world, "n1", 20)
        assert 20 <= self.began(world, ("n1", "primary", "gpu"), action="finish")["n1"] < 22

    def test_are_not_waited_for_where_no_handler_ends(self):
        world = make_world(builders.node("n1", "gpu", "primary"))
        self.starts(world, "n1")
        begin = world.now
        assert hand_over(world, ("n1", "primary", "gpu"), action="finish")["n1"].began is None
        assert world.now - begin < 5

    def test_do_not_hold_up_a_run_for_ever(self, world):
        self.starts(world, "n1")
        assert 60 <= self.began(world, ("n1", "primary", "gpu"))["n1"] < 62
        waits = [line for line in world.shown if " not done: " in line]
        assert waits[0] == "1 node is not done: n1: its handler is starting VM vms/vm"

    def test_are_not_waited_for_after_a_step_has_failed(self, world):
        self.starts(world, "n1", conditions=[{"type": "Synchronized", "status": "False"}])
        assert self.began(world, ("n1", "primary", "gpu"))["n1"] < 1

    @pytest.mark.parametrize(("action", "owner"), [("move", None), ("replace", "gpu")])
    def test_of_a_node_created_again_spare_the_other_machine(self, world, action, owner):
        if action == "replace":
            world = TestReplace().outdated()
        self.starts(world, "n1", 20)
        again = builders.node_created_again("n1", owner)

        def create_again():
            world.drop(kinds.NODE, "n1")
            world.put(again)

        world.at[world.now + 10] = create_again
        assert hand_over(world, ("n1", owner or "primary", "gpu"), action=action)["n1"].result == "gone"
        assert world.writes == []

    def test_wait_for_no_handler_that_is_not_ready(self):
        node = builders.node("n1")
        world = World(builders.primary(), GPU, FPGA, node, builders.handler_pod("n1", ready=False))
        world.behave["virt-handler", "n1"] = Behaviour(start=NEVER)
        self.starts(world, "n1")
        assert self.began(world, ("n1", "primary", "gpu"))["n1"] < 1

    def test_that_cannot_be_read_for_a_while_hide_no_taint(self, world):
        """The node is looked at right before its old handler ends."""

        def down(request):
            if request.path.endswith("/virtualmachineinstances"):
                raise LOST

        def up():
            world.before = lambda request: None

        world.before = down
        taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
        world.at[world.now + 20] = lambda: world.find(kinds.NODE, "n1")["spec"].update(taints=[taint])
        world.at[world.now + 30] = up
        targets = {**TARGETS, "gpu": replace(TARGETS["gpu"], pod=GPU["spec"]["template"])}
        batch = batch_of(world, world.client(retry_seconds=5))
        (outcome,) = batch.run([(Move("n1", "primary", "gpu", "move"), targets["gpu"], targets["primary"])])
        assert (outcome.result, world.handlers()) == ("untouched", ["virt-handler"])


class TestMigratingVms:
    """An eviction may begin a migration after the batch has waited for others."""

    @staticmethod
    def reminders(world, name):
        """After how many seconds the VM is changed, each time; filled while the world goes on."""
        begin, found = world.now, []
        world.before = lambda request: found.append(world.now - begin) if request.path.endswith(f"/{name}") else None
        return found

    def test_are_waited_for_before_a_node_leaves(self, world):
        world.put(builders.migrating_vmi("n1", "n3"))
        world.at[world.now + 20] = lambda: world.put(builders.migrated_vmi("n3", "moving"))
        began = TestStartingVms.began(world, ("n1", "primary", "gpu"), ("n2", "primary", "gpu"))
        assert 20 <= began["n1"] < 22
        assert began["n2"] < 1

    def test_that_failed_are_not_waited_for(self, world):
        world.put(builders.migrating_vmi("n1", "n2", completed=True, failed=True))
        began = TestStartingVms.began(world, ("n1", "primary", "gpu"), ("n2", "primary", "gpu"))
        assert max(began.values()) < 1

    @pytest.mark.parametrize(
        "state", [{"endTimestamp": "2026-11-30T12:00:00Z"}, {"completed": True}], ids=["ended", "completed"]
    )
    def test_are_recorded_once_their_node_has_taken_them_over(self, world, state):
        """The handler deletes its record after it removed the label of the target: a reminder before would be in vain."""
        world.put(builders.migrating_vmi("n3", "n1"))
        taking_over = builders.migrating_vmi("n1", "n1", **state)
        world.at[world.now + 10] = lambda: world.put(taking_over)
        world.at[world.now + 20] = lambda: world.put(builders.migrated_vmi("n1", "moving"))
        reminders = self.reminders(world, "moving")
        began = TestStartingVms.began(world, ("n1", "primary", "gpu"))["n1"]
        assert [25 <= reminded < 27 for reminded in reminders] == [True, True]
        assert 30 <= began < 33

    def test_that_ended_before_the_first_look_are_recorded(self, world):
        world.put(builders.migrated_vmi("n1"))
        assert 10 <= TestStartingVms.began(world, ("n1", "primary", "gpu"))["n1"] < 12
        assert [verb for verb, path in world.writes if path.endswith("/migrated")] == ["patch", "patch"]

    def test_that_ended_right_before_the_run_gives_up_are_recorded(self, world):
        """Another one never ends."""
        world.put(builders.migrating_vmi("n3", "n1"))
        world.at[world.now + 57] = lambda: world.put(builders.migrated_vmi("n1"))
        reminders = self.reminders(world, "migrated")
        began = TestStartingVms.began(world, ("n1", "primary", "gpu"))["n1"]
        assert [62 <= reminded < 64 for reminded in reminders] == [True, True]
        assert 67 <= began < 70

    def test_of_which_the_batch_reminded_handlers_are_left_alone(self, world):
        vmi = builders.migrated_vmi("n1")
        world.put(vmi)
        batch = replace(batch_of(world), reminded=frozenset({Arrival.of(vmi).key}))
        (outcome,) = batch.run([(Move("n1", "primary", "gpu", "move"), TARGETS["gpu"], TARGETS["primary"])])
        assert outcome.result == "done"
        assert not [path for _verb, path in world.writes if "virtualmachineinstances" in path]

    def test_that_came_before_their_handler_are_left_alone(self, world):
        world.put(builders.migrated_vmi("n1", endTimestamp=builders.heartbeat(builders.STARTED - 100)))
        assert TestStartingVms.began(world, ("n1", "primary", "gpu"))["n1"] < 1

    def test_that_cannot_be_recorded_leave_their_node_alone(self, world):
        world.put(builders.migrated_vmi("n1"))

        def refuse(request):
            if request.method == "PATCH" and request.path.endswith("/migrated"):
                raise Refused(403, "Forbidden", "no")

        world.before = refuse
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "interrupted"
        assert world.node().owner == "primary"

    def test_do_not_hold_up_a_run_for_ever(self, world):
        world.put(builders.migrating_vmi("n3", "n1"))
        assert 60 <= TestStartingVms.began(world, ("n1", "primary", "gpu"))["n1"] < 62
        waits = [line for line in world.shown if " not done: " in line]
        assert waits[0] == "1 node is not done: n1: its handler is migrating VM vms/moving"

    def test_that_come_all_the_time_are_not_waited_for_for_ever(self, world):
        world.put(builders.migrated_vmi("n1"))
        for number in range(1, 25):
            vmi = builders.migrated_vmi("n1", f"vm-{number}")
            world.at[world.now + 4 * number] = lambda vmi=vmi: world.put(vmi)
        most = 60 + handler_memory.LATE_SECONDS
        assert most <= TestStartingVms.began(world, ("n1", "primary", "gpu"))["n1"] < most + 2


class TestFailure:
    def without_exclusion(self, source, to, seconds):
        """The outcome of a move during which another client removes the exclusion after so many seconds, and what was seen."""
        world = make_world(builders.node("n1", None if source == "primary" else source))
        unbound = builders.primary(excluded=False)["spec"]

        def lose():
            world.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)["spec"] = unbound

        world.at[world.now + seconds] = lose
        (found,) = batch_of(world).run([(Move("n1", source, to, "move"), TARGETS[to], TARGETS[source])])
        return found, world

    @pytest.mark.parametrize(("source", "seconds"), [("primary", 0.0), ("fpga", 1.5)])
    def test_a_lost_exclusion_is_named(self, source, seconds):
        """The primary does not leave its node, or comes to one that goes from pool to pool."""
        found, world = self.without_exclusion(source, "gpu", seconds)
        assert (found.result, world.node().owner) == ("returned", source)
        assert (
            "runs there while the node is in transit: another client has removed the exclusion from the KubeVirt object, which site "
            "restores; the node stays with"
        ) in found.message
        assert world.now < 1000 + 70

    def test_a_primary_that_comes_too_early_stays_the_only_handler(self):
        """Going back would bring that of the pool beside it."""
        found, world = self.without_exclusion("gpu", "primary", 1.5)
        assert (found.result, world.node().owner, world.handlers("n1")) == ("done", "primary", [names.HANDLER])
        assert world.now < 1000 + 15

    def test_an_old_handler_that_never_ends_keeps_its_node(self, world):
        world.behave["virt-handler", "n1"] = Behaviour(stop=NEVER)
        found = hand_over(world, ("n1", "primary", "gpu"), ("n2", "primary", "gpu"))
        assert found["n1"].result == "returned"
        assert "virt-handler-n1 did not end within 60 s" in found["n1"].message
        assert "the node stays with primary" in found["n1"].message
        assert (world.node("n1").owner, world.node("n1").former_owner) == ("primary", None)
        assert not epochs.until_labels(world.node("n1").labels), "VMs that wait must not start there by it later"
        assert found["n2"].result == "done"

    def test_a_new_handler_that_never_gets_ready_gives_the_node_back(self, world):
        world.behave["virt-handler-gpu", "n1"] = Behaviour(start=NEVER)
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "returned"
        assert outcome.message.endswith("was not Ready after 60 s; it went back to primary")
        assert (world.node().owner, world.node().former_owner) == ("primary", None)
        assert world.handlers() == ["virt-handler"]
        assert owners_written(world, "n1") == [names.IN_TRANSIT, "gpu", names.IN_TRANSIT, None]

    def test_nodes_that_wait_are_named_with_what_they_wait_for(self, world):
        world.behave["virt-handler", "n1"] = Behaviour(stop=NEVER)
        world.behave["virt-handler-gpu", "n2"] = Behaviour(start=NEVER)
        found = hand_over(world, *((node, "primary", "gpu") for node in ("n1", "n2", "n3")))
        assert world.shown[0] == str(found["n3"])
        waits = [line for line in world.shown if " not done: " in line]
        assert waits[0].startswith("2 nodes are not done: n1: its old handler is ending (")
        assert " s of at most 60 s), n2: handler pod virt-handler-gpu-" in waits[0]
        assert waits[0].split(", n2: ")[1].partition(" (")[0].endswith("was not Ready")

    def test_the_gap_counts_until_the_former_handler_is_ready_again(self, world):
        world.behave["virt-handler-gpu", "n1"] = Behaviour(start=2, heartbeat=NEVER)
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "returned"
        assert outcome.gap > TIMEOUT

    def test_a_handler_that_sends_no_heartbeat_gives_the_node_back(self, world):
        world.behave["virt-handler-gpu", "n1"] = Behaviour(heartbeat=NEVER)
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "returned"
        assert "was Ready, but the node was not kubevirt.io/schedulable=true" in outcome.message

    def test_a_handler_that_cannot_start_gives_the_node_back_early(self, world):
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="ImagePullBackOff")
        began = world.now
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "returned"
        assert "does not start: container virt-handler: ImagePullBackOff (it says why)" in outcome.message
        assert world.now - began < 35, "15 s of patience, and the two ways"

    def test_a_problem_that_passes_by_itself_is_none(self, world):
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="ErrImagePull")
        world.at[world.now + 14] = lambda: world.behave.pop(("virt-handler-gpu", "n1"))
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"

    def test_no_pod_at_all_gives_the_node_back(self, world):
        world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)["spec"]["template"]["spec"][
            "nodeSelector"
        ]["paused"] = "true"
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "returned"
        assert "DaemonSet virt-handler-gpu had created no pod for the node after 60 s" in outcome.message

    @pytest.mark.parametrize(("comes_back", "result"), [(None, "returned"), (15, "done")])
    def test_a_deleted_daemonset_gives_the_node_back_early(self, world, comes_back, result):
        live = world.drop(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
        if comes_back:
            world.at[world.now + comes_back] = lambda: world.put(live)
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == result
        if not comes_back:
            assert "DaemonSet virt-handler-gpu no longer exists, so another client has deleted it" in outcome.message
            assert outcome.gap < 50, "20 s of patience, or the next look, and the two ways"

    def test_a_broken_handler_that_stays_keeps_a_node_in_transit(self, world):
        world.behave["virt-handler-gpu", "n1"] = Behaviour(start=NEVER, stop=NEVER)
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "stuck"
        assert "on the way back to primary, handler pod virt-handler-gpu-" in outcome.message
        assert (world.node().owner, world.node().former_owner) == (names.IN_TRANSIT, "primary")

    def test_a_former_handler_that_never_returns_is_unfinished(self, world):
        world.behave["virt-handler-gpu", "n1"] = Behaviour(start=NEVER)
        world.at[world.now + 20] = lambda: world.behave.update({("virt-handler", "n1"): Behaviour(start=NEVER)})
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "stuck"
        assert "it went back to primary, but handler pod virt-handler-" in outcome.message
        assert (world.node().owner, world.node().former_owner) == ("primary", "primary")

    def test_a_node_stays_where_its_former_handler_would_not_start(self, world):
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="CreateContainerError")
        taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
        world.at[world.now + 15] = lambda: world.find(kinds.NODE, "n1")["spec"].update(taints=[taint])
        template = handler_fit.primary_template(builders.primary())
        targets = {**TARGETS, "primary": replace(TARGETS["primary"], pod=template)}
        outcome = hand_over(world, ("n1", "primary", "gpu"), targets=targets)["n1"]
        assert outcome.result == "stuck"
        assert "it cannot go back to primary, because taint a=b:NoSchedule is not tolerated" in outcome.message
        assert (world.node().owner, len(world.pods())) == ("gpu", 1)

    def test_one_bad_node_does_not_hold_up_the_others(self, world):
        world.behave["virt-handler-gpu", "n2"] = Behaviour(broken="CreateContainerError")
        found = hand_over(world, ("n1", "primary", "gpu"), ("n2", "primary", "gpu"), ("n3", "primary", "gpu"))
        assert {name: outcome.result for name, outcome in found.items()} == {
            "n1": "done",
            "n2": "returned",
            "n3": "done",
        }


SLOW = ClusterError("The API server takes more than 10 s to renew the Lease virtpools.")


class TestOutage:
    """What fails half-way is tried again for as long as a handler may take."""

    MOVES = (("n1", "primary", "gpu"), ("n2", "primary", "gpu"))

    def during(self, world, begin, end):
        """Raise while the time is between these, in seconds from now."""
        now = world.now
        self.felt = 0

        def fail():
            if now + begin < world.now < now + end:
                self.felt += 1
                raise SLOW

        return fail

    def run(self, world, cluster):
        batch = batch_of(world, cluster)
        found = batch.run([(Move(*each, "move"), TARGETS[each[2]], TARGETS[each[1]]) for each in self.MOVES])
        return {outcome.move.node: outcome for outcome in found}

    def ends_well(self, outcomes):
        assert self.felt
        assert {name: outcome.result for name, outcome in outcomes.items()} == {"n1": "done", "n2": "done"}

    def test_of_the_lease_keep_leases_ends_well(self, world):
        cluster = world.client()
        cluster.keep_lease = self.during(world, 0.1, 50)
        self.ends_well(self.run(world, cluster))

    def test_of_the_lease_in_waits_ends_well(self, world):
        world.beat = self.during(world, 0.1, 50)
        self.ends_well(self.run(world, world.client()))

    def test_of_the_lease_hides_no_handler_that_ends(self, world):
        world.behave["virt-handler", None] = Behaviour(stop=5)
        began = world.now
        world.beat = self.during(world, 4.5, 7)
        self.ends_well(self.run(world, world.client()))
        assert world.now < began + 15, "not until nodes are looked at without an event"

    def test_that_comes_twice_ends_well(self, world):
        world.behave.update(
            {("virt-handler", None): Behaviour(stop=20), ("virt-handler-gpu", None): Behaviour(start=50)}
        )
        first, second = self.during(world, 1, 5), self.during(world, 62, 64)

        def beat():
            first()
            second()

        world.beat = beat
        self.ends_well(self.run(world, world.client()))

    def break_webhook(self, world, end):
        """Refuse every write to a node, until so many seconds from now."""
        broken = self.during(world, 0.1, end)

        def before(request):
            if request.method == "PATCH" and "/nodes/" in request.path:
                try:
                    broken()
                except ClusterError:
                    raise Refused(500, "InternalError", "failed calling webhook nodes.example.com") from None

        world.before = before

    def test_of_a_webhook_ends_well(self, world):
        self.break_webhook(world, 50)
        self.ends_well(self.run(world, world.client(retry_seconds=5)))

    def no_answers(self, world, begin, end):
        """For ``world.before``: the API server is down then."""
        gone = self.during(world, begin, end)

        def before(_request):
            try:
                gone()
            except ClusterError:
                raise LOST from None

        return before

    def test_of_the_api_server_ends_well(self, world):
        world.before = self.no_answers(world, 0.1, 45)
        self.ends_well(self.run(world, world.client(retry_seconds=10)))

    @pytest.mark.parametrize("then", ["down", "refuses"])
    def test_that_begins_when_a_node_is_taken_ends_well(self, world, then):
        """The server takes the node from its owner, and goes down before it can answer, or a webhook refuses from then on."""

        def refuse(taken):
            self.felt = 1
            world.at[world.now + 30] = lambda: setattr(world, "before", lambda request: None)
            return lambda request: self.refuse_writes(request) if request.path == taken.path else None

        def after(request):
            if request.method == "PATCH" and "/nodes/" in request.path:
                world.after = lambda request: None
                world.before = self.no_answers(world, 0, 30) if then == "down" else refuse(request)
                raise LOST

        world.after = after
        self.ends_well(self.run(world, world.client(retry_seconds=10)))

    def test_is_told_at_once_where_nothing_was_written(self, world):
        world.before = self.refuse_writes
        began = world.now
        outcomes = self.run(world, world.client(retry_seconds=5))
        assert {outcome.result for outcome in outcomes.values()} == {"interrupted"}
        assert world.now - began < TIMEOUT
        assert world.handlers("n1") == world.handlers("n2") == ["virt-handler"]

    @staticmethod
    def refuse_writes(request):
        if request.method == "PATCH" and "/nodes/" in request.path:
            raise Refused(403, "Forbidden", 'admission webhook "nodes.example.com" denied the request: no')

    def test_that_lasts_is_told_with_what_heals_it(self, world):
        self.break_webhook(world, 1000)
        outcomes = self.run(world, world.client(retry_seconds=5))
        assert outcomes
        for outcome in outcomes.values():
            assert (outcome.result, outcome.ends_run, outcome.node_failed) == ("interrupted", True, False)
            assert "failed calling webhook nodes.example.com" in outcome.message
            assert outcome.message.endswith("The node's owner is in_transit now: run the same playbook again to finish")

    def test_of_reads_that_lasts_ends_the_batch_and_names_its_nodes(self, world):
        world.beat = self.during(world, 0.1, 1000)
        left = "The handover of n1, n2 was not finished, and they may have no virt-handler: run the same playbook again"
        with pytest.raises(ClusterError, match=left):
            self.run(world, world.client())


class TestWayBackWithEpochs:
    """A node that goes back gets labels by which VMs may stay, in an epoch that no pod has when they are written."""

    class Epochs:
        """In which the policy goes on before each attempt."""

        def __init__(self):
            self.epoch = 0

        @contextlib.contextmanager
        def leaving(self, _node, owner):
            self.epoch += 1
            yield {f"until.virtpools.io/{owner}": str(self.epoch)}

        def settle(self, _node, _owner):
            return {}

    def go_back(self, world, cluster):
        """The handler of gpu does not start on n1. Returns the labels by which VMs of gpu may stay."""
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="ImagePullBackOff")
        batch = Batch(cluster, builders.NAMESPACE, world.clock(), TIMEOUT, self.Epochs())
        (outcome,) = batch.run([(Move("n1", "primary", "gpu", "move"), TARGETS["gpu"], TARGETS["primary"])])
        assert outcome.result == "returned"
        return world.node().labels["until.virtpools.io/gpu"]

    @staticmethod
    def is_of_leaving_gpu(request):
        return request.method == "PATCH" and any(
            each["path"].endswith("until.virtpools.io~1gpu") for each in request.body
        )

    def test_an_attempt_that_failed_is_repeated_in_the_present_epoch(self, world):
        failing = [LOST]

        def before(request):
            if self.is_of_leaving_gpu(request) and failing:
                raise failing.pop()

        world.before = before
        assert self.go_back(world, world.client(retry_seconds=0)) == "3", "1 was the primary's, and 2 failed"

    def test_an_attempt_that_only_lost_its_answer_stands(self, world):
        lost = [LOST]

        def after(request):
            if self.is_of_leaving_gpu(request) and lost:
                raise lost.pop()

        world.after = after
        assert self.go_back(world, world.client(retry_seconds=0)) == "2"
        assert lost == []


class TestInterference:
    @pytest.mark.parametrize("after_seconds", [0, 1, 4], ids=["before", "in transit", "with its new owner"])
    def test_a_deleted_node_is_gone_and_the_others_finish(self, world, after_seconds):
        self.finishes_without_n1(world, after_seconds, lambda: None)

    @pytest.mark.parametrize("owner", [None, "gpu"], ids=["of the primary", "by the policy for new nodes"])
    @pytest.mark.parametrize("after_seconds", [1, 4, 5], ids=["in transit", "with its new owner", "with its handler"])
    def test_a_node_that_is_created_again_is_another_one(self, world, after_seconds, owner):
        """Clouds replace a machine by one of the same name. This handover does not go on there, nor is its pool to blame."""
        again = builders.node_created_again("n1", owner, heartbeat=None, schedulable=False)
        self.finishes_without_n1(world, after_seconds, lambda: world.put(again))
        assert (world.node("n1").owner, world.node("n1").former_owner) == (owner or "primary", None)

    def finishes_without_n1(self, world, after_seconds, replace_it):
        def delete():
            world.drop(kinds.NODE, "n1")
            for pod in world.pods("n1"):
                world.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE)
            replace_it()

        began = world.now
        world.at[began + after_seconds] = delete
        found = hand_over(world, ("n1", "primary", "gpu"), ("n2", "primary", "gpu"))
        assert (found["n1"].result, found["n1"].ends_run, found["n1"].node_failed) == ("gone", False, False)
        assert found["n2"].result == "done"
        assert world.now - began < TIMEOUT, "it is not waited for"

    @pytest.mark.parametrize("created_again", [False, True])
    def test_a_node_deleted_during_a_replacement_is_gone(self, world, created_again):
        world.put(builders.node("n1", "gpu"))
        world.put(builders.handler_pod("n1", "virt-handler-gpu", template="old"))
        world.drop(kinds.POD, "virt-handler-n1", builders.NAMESPACE)
        again = builders.node_created_again("n1")

        def delete():
            world.drop(kinds.NODE, "n1")
            for pod in world.pods("n1"):
                world.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE)
            if created_again:
                world.put(again)

        began = world.now
        world.at[began + 1] = delete
        assert hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"].result == "gone"
        assert world.now - began < TIMEOUT, "it is not waited for"

    def test_a_policy_deleted_during_a_handover_is_not_the_node(self, world, monkeypatch):
        missing = [NotFound("Could not replace MutatingAdmissionPolicy virtpools: not found.")]
        settle = Epochs.settle

        def settle_later(*given):
            if missing:
                raise missing.pop()
            return settle(*given)

        monkeypatch.setattr(Epochs, "settle", settle_later)
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"

    def test_a_policy_that_takes_no_effect_is_told(self, world, monkeypatch):
        monkeypatch.setattr(Epochs, "settle", lambda *_given: None)
        began = world.now
        outcome = hand_over(world, ("n1", "primary", "gpu"))["n1"]
        assert outcome.result == "interrupted"
        assert outcome.message.startswith(
            "The launcher policy did not take effect within 60 s. The node's owner is in_transit"
        )
        assert world.now - began < 2 * TIMEOUT
        assert (world.node().owner, world.node().former_owner) == (names.IN_TRANSIT, "primary")

    @pytest.mark.parametrize("after_seconds", [1, 4], ids=["in transit", "with its new owner"])
    def test_an_owner_that_somebody_else_sets_is_not_overwritten(self, world, after_seconds):
        began = world.now
        world.at[began + after_seconds] = lambda: relabel(world, "n1", "somebody")
        found = hand_over(world, ("n1", "primary", "gpu"), ("n2", "primary", "gpu"))
        assert world.now - began < TIMEOUT + 10, "it is not tried again"
        assert found["n1"].result == "interrupted"
        assert "another client has changed its label virtpools.io/pool: it is somebody now" in found["n1"].message
        assert world.node("n1").owner == "somebody"
        assert found["n2"].result == "done"

    @pytest.mark.parametrize("action", ["move", "replace"])
    def test_an_owner_that_changes_while_no_handler_comes_is_told(self, action):
        """No handler comes then, and neither the former owner nor the former template would help."""
        world = make_world(builders.node("n1", "gpu" if action == "replace" else None))
        for pod in world.pods():
            pod["metadata"]["annotations"] = {names.TEMPLATE_ANNOTATION: "old"}
        world.at[world.now + 3] = lambda: relabel(world, "n1", "junk")
        began, source = world.now, "gpu" if action == "replace" else "primary"
        outcome = hand_over(world, ("n1", source, "gpu"), action=action)["n1"]
        assert (outcome.result, world.now - began < 45) == ("interrupted", True)
        assert "another client has changed its label virtpools.io/pool: it is junk now" in outcome.message

    def test_an_owner_that_changed_since_the_plan_is_not_overwritten(self, world):
        relabel(world, "n1", "somebody")
        found = hand_over(world, ("n1", "primary", "gpu"))
        assert found["n1"].result == "interrupted"
        assert world.node("n1").owner == "somebody"
        assert world.writes == []

    def test_a_lost_lease_stops_every_write(self, world):
        cluster = world.client()

        def lose():
            if world.now > 1001:
                raise LeaseLost("The run has lost its Lease.")

        cluster.keep_lease = lose
        batch = batch_of(world, cluster)
        moves = [(Move(n, "primary", "gpu", "move"), TARGETS["gpu"], TARGETS["primary"]) for n in ("n1", "n2")]
        with pytest.raises(LeaseLost):
            list(batch.run(moves))
        assert {world.node(n).owner for n in ("n1", "n2")} == {names.IN_TRANSIT}
        assert {world.node(n).former_owner for n in ("n1", "n2")} == {"primary"}

    def test_a_lost_lease_is_noticed_while_nothing_is_written(self, world):
        world.behave["virt-handler", None] = Behaviour(stop=NEVER)
        began = world.now

        def lose():
            if world.now > began + 5:
                raise LeaseLost("The run has lost its Lease.")

        world.beat = lose
        with pytest.raises(LeaseLost):
            hand_over(world, ("n1", "primary", "gpu"))
        assert world.now < began + 8

    def test_a_write_whose_answer_is_lost_counts(self, world):
        lost = []

        def lose_each_first(request):
            if request.method == "PATCH" and request.body not in lost:
                lost.append(request.body)
                raise LOST

        world.after = lose_each_first
        assert hand_over(world, ("n1", "primary", "gpu"))["n1"].result == "done"
        assert len(lost) == 3
        assert (world.node().owner, world.node().former_owner) == ("gpu", None)


class TestFinish:
    def unfinished(self, **options):
        return make_world(builders.node("n1", "gpu", "primary", **options))

    def test_proves_the_new_handler_and_forgets_the_former_owner(self):
        world = self.unfinished()
        outcome = hand_over(world, ("n1", "primary", "gpu"), action="finish")["n1"]
        assert (outcome.result, outcome.gap) == ("done", None)
        assert (world.node().owner, world.node().former_owner) == ("gpu", None)
        assert owners_written(world, "n1") == []

    def test_is_not_proven_by_a_heartbeat_older_than_the_handler(self):
        """The run before it has died, so nobody knows any more what the heartbeat was when the old handler ended."""
        world = self.unfinished(heartbeat=builders.heartbeat(builders.STARTED - 1))
        world.behave["virt-handler-gpu", "n1"] = Behaviour(heartbeat=NEVER)
        outcome = hand_over(world, ("n1", "primary", "gpu"), action="finish")["n1"]
        assert outcome.result == "returned"
        assert "had sent no heartbeat since it started" in outcome.message

    def test_is_not_proven_by_a_handler_that_is_ending(self):
        world = self.unfinished()
        (old,) = world.pods()
        old["metadata"]["deletionTimestamp"] = "now"
        world.behave["virt-handler-gpu", "n1"] = Behaviour(stop=10)
        assert hand_over(world, ("n1", "primary", "gpu"), action="finish")["n1"].result == "done"
        assert world.handlers() == ["virt-handler-gpu"]
        assert old not in world.pods()

    def test_is_not_proven_by_the_handler_of_another_owner(self):
        """The DaemonSet controller has neither ended that handler nor created the right one."""
        pod = builders.handler_pod("n1", "virt-handler-gpu", template=daemonsets.template_of(GPU))
        world = World(builders.primary(), GPU, FPGA, builders.node("n1", None, "gpu"), pod, lag=NEVER)
        outcome = hand_over(world, ("n1", "gpu", "primary"), action="finish")["n1"]
        assert outcome.result == "stuck"
        assert outcome.message.startswith("DaemonSet virt-handler had created no pod for the node after 60 s")
        assert world.handlers() == ["virt-handler-gpu"], "which is not ours to end"

    def test_takes_the_node_back_when_it_cannot(self):
        world = self.unfinished(schedulable=False)
        world.behave["virt-handler-gpu", "n1"] = Behaviour(heartbeat=NEVER)
        outcome = hand_over(world, ("n1", "primary", "gpu"), action="finish")["n1"]
        assert outcome.result == "returned"
        assert outcome.gap is not None
        assert (world.node().owner, world.node().former_owner) == ("primary", None)
        assert world.handlers() == ["virt-handler"]

    def test_does_not_touch_a_node_that_somebody_else_relabelled(self):
        world = self.unfinished()
        relabel(world, "n1", "somebody")
        outcome = hand_over(world, ("n1", "primary", "gpu"), action="finish")["n1"]
        assert outcome.result == "interrupted"
        assert world.node().owner == "somebody"


class TestReplace:
    def outdated(self, *names_of_nodes):
        nodes = [builders.node(name, "gpu") for name in names_of_nodes or ("n1",)]
        pods = [builders.handler_pod(n["metadata"]["name"], "virt-handler-gpu", template="old") for n in nodes]
        return World(builders.primary(), GPU, FPGA, *nodes, *pods)

    def test_makes_a_handler_from_the_present_template(self):
        world = self.outdated()
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "done"
        (pod,) = world.pods()
        assert pod["metadata"]["annotations"][names.TEMPLATE_ANNOTATION] == daemonsets.template_of(GPU)
        assert 5 <= outcome.gap <= 9
        assert owners_written(world, "n1") == []
        assert [verb for verb, _path in world.writes][:2] == ["patch", "delete"], "a killed run is noticed"

    def test_that_somebody_did_already(self):
        world = make_world(builders.node("n1", "gpu"))
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "done"
        assert world.writes == []

    def test_that_was_done_already_is_proven_on_a_tainted_node(self):
        world = make_world(builders.node("n1", "gpu", taints=[{"key": "a", "effect": "NoSchedule"}]))
        targets = {**TARGETS, "gpu": replace(TARGETS["gpu"], pod=GPU["spec"]["template"])}
        assert hand_over(world, ("n1", "gpu", "gpu"), action="replace", targets=targets)["n1"].result == "done"

    def test_whose_only_heartbeat_came_before_we_looked_is_proven(self):
        world = self.outdated()
        world.behave["virt-handler-gpu", "n1"] = Behaviour(stop=0, start=0, heartbeat=0)
        world.lag = 0
        silent_from(world, 0.75)
        assert hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"].result == "done"

    def test_that_is_ready_once_the_old_one_is_gone_takes_no_longer(self):
        world = self.outdated()
        world.behave["virt-handler-gpu", "n1"] = Behaviour(stop=NEVER, start=0, heartbeat=0)

        def replaced_at_once():
            (old,) = world.pods()
            world.drop(kinds.POD, old["metadata"]["name"], builders.NAMESPACE)
            new = builders.handler_pod("n1", "virt-handler-gpu", template=daemonsets.template_of(GPU), name="new")
            new["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = builders.heartbeat(world.now)
            world.put(new)
            beat(world, "n1")

        world.at[world.now + 2] = replaced_at_once
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "done"
        assert outcome.gap < 4

    def test_is_not_proven_by_the_last_heartbeat_of_the_old_handler(self):
        """It came after the run had looked, and the old handler was killed before it could say that it ends."""
        world = self.outdated()
        world.behave["virt-handler-gpu", "n1"] = Behaviour(stop=10, start=1, heartbeat=NEVER, killed=True)
        world.at[world.now + 5] = lambda: beat(world, "n1")
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "failed"
        assert "had sent no heartbeat since it started" in outcome.message

    def test_that_does_not_come_up_has_failed(self):
        world = self.outdated()
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="ImagePullBackOff")
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "failed"
        assert "its handler was replaced, but the handler of gpu does not start" in outcome.message
        assert (world.node().owner, world.node().former_owner) == ("gpu", "gpu"), "for the next run to prove"

    def test_whose_old_handler_never_ends_has_failed(self):
        world = self.outdated()
        world.behave["virt-handler-gpu", "n1"] = Behaviour(stop=NEVER)
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "failed"
        assert "handler pod virt-handler-gpu-n1 did not end within 60 s" in outcome.message
        assert (world.node().owner, world.node().former_owner) == ("gpu", "gpu"), "for the next run to prove"

    @pytest.mark.parametrize(("behaviour", "result"), [(Behaviour(), "done"), (Behaviour(broken="Error"), "failed")])
    def test_that_a_run_before_did_not_prove(self, behaviour, result):
        world = World(builders.primary(), GPU, FPGA, builders.node("n1", "gpu", "gpu"))
        world.behave["virt-handler-gpu", "n1"] = behaviour
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="finish")["n1"]
        assert outcome.result == result
        assert world.node().owner == "gpu"
        assert (world.node().former_owner is None) == (result == "done")

    def test_of_a_broken_handler_judges_the_new_one(self):
        """The old pod, which has the old image's problem, may end slowly."""
        world = self.outdated()
        (pod,) = world.pods()
        pod["status"]["containerStatuses"] = [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
        world.behave["virt-handler-gpu", "n1"] = Behaviour(stop=20)
        assert hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"].result == "done"


class TestWayBackToTheFormerHandler:
    """The new handler of a pool that stays does not start: its DaemonSet gets the former template back."""

    FORMER = builders.pool_daemonset(
        builders.pool("gpu", virtHandlerImage="registry.example/virt-handler:v1.9.0-before")
    )

    BROKEN = Behaviour(broken="CrashLoopBackOff")

    def changed(self, *nodes, broken=("n1",), lag=None, new=BROKEN, unused=()):
        """Pool gpu just got a new template, from which handlers on the ``broken`` nodes do not start.

        :param unused: templates that it had in between, from which no handler was created.
        """
        objects = [builders.node(name, "gpu") for name in nodes or ("n1",)]
        sets = [builders.primary(), self.FORMER, FPGA]
        world = World(*sets, *objects, *builders.handlers_of(objects, sets))
        world.sleep(1)
        for daemonset in (*unused, GPU):
            live = world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
            world.put({**live, "spec": daemonset["spec"]})
            if daemonset is not GPU:
                world.sleep(1)
        if lag is not None:
            world.lag = lag
        usual = world.behaviour

        def behaviour(pod):
            is_new = self.templates(pod) == [daemonsets.template_of(GPU)]
            return new if is_new and pod["spec"]["nodeName"] in broken else usual(pod)

        world.behaviour = behaviour
        return world

    @staticmethod
    def templates(*pods):
        return [pod["metadata"]["annotations"][names.TEMPLATE_ANNOTATION] for pod in pods]

    def template(self, world):
        return daemonsets.template_of(world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE))

    def test_ends_with_the_former_handler_and_template(self):
        world = self.changed()
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "returned"
        assert outcome.message.endswith("it has the former handler of gpu again")
        former = daemonsets.template_of(self.FORMER)
        assert (self.templates(*world.pods()), self.template(world)) == ([former], former)
        assert (world.node().owner, world.node().former_owner) == ("gpu", None)
        assert world.handlers() == ["virt-handler-gpu"]
        assert outcome.gap > 15, "from the end of the former handler to its return"

    def test_brings_back_what_ran_and_no_newer_template(self):
        unused = builders.pool_daemonset(builders.pool("gpu", virtHandlerImage="registry.example/virt-handler:unused"))
        world = self.changed(unused=[unused])
        assert hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"].result == "returned"
        assert self.templates(*world.pods()) == [daemonsets.template_of(self.FORMER)]

    def test_counts_the_gap_until_the_former_handler_is_ready_again(self):
        world = self.changed(new=Behaviour(heartbeat=NEVER))
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "returned"
        assert outcome.gap > TIMEOUT

    def test_waits_for_the_daemonset_controller(self, monkeypatch):
        """Until then it would create another pod from the new template."""
        world, looks = self.changed(), []

        def observed(*_daemonset):
            looks.append([pod["metadata"]["name"] for pod in world.pods()])
            return len(looks) == 3

        monkeypatch.setattr(settle, "is_daemonset_observed", observed)
        assert hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"].result == "returned"
        assert looks == [looks[0]] * 3
        assert [pod["metadata"]["name"] for pod in world.pods()] != looks[0]

    def test_ends_also_a_handler_that_comes_until_then(self, monkeypatch):
        """From the new template, for example because a person has deleted the pod before."""
        world, looks = self.changed(), []

        def observed(*_daemonset):
            looks.append(world.now)
            if len(looks) == 1:
                (broken,) = world.pods()
                world.drop(kinds.POD, broken["metadata"]["name"], builders.NAMESPACE)
                again = copy.deepcopy(broken)
                again["metadata"].update(name="again", uid="again")
                world.put(again)
            return len(looks) == 3

        monkeypatch.setattr(settle, "is_daemonset_observed", observed)
        assert hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"].result == "returned"
        assert self.templates(*world.pods()) == [daemonsets.template_of(self.FORMER)]

    def test_outlives_a_while_in_which_no_pod_can_be_deleted(self):
        world = self.changed()

        def refuse(request):
            if request.method == "DELETE":
                raise Refused(403, "Forbidden", 'admission webhook "pods.example.com" denied the request: no')

        world.at[world.now + 10] = lambda: setattr(world, "before", refuse)
        world.at[world.now + 50] = lambda: setattr(world, "before", lambda request: None)
        assert hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"].result == "returned"
        assert self.templates(*world.pods()) == [daemonsets.template_of(self.FORMER)]

    @pytest.mark.parametrize("start", [2, 30], ids=["before", "later"])
    def test_leaves_nodes_whose_new_handler_works(self, start):
        world = self.changed("n1", "n2")
        world.behave["virt-handler-gpu", "n2"] = Behaviour(start=start)
        found = hand_over(world, ("n1", "gpu", "gpu"), ("n2", "gpu", "gpu"), action="replace")
        assert {node: outcome.result for node, outcome in found.items()} == {"n1": "returned", "n2": "done"}
        assert self.templates(*world.pods("n2")) == [daemonsets.template_of(GPU)]

    def test_comes_at_once_where_the_new_one_cannot_come(self):
        world = self.changed("n1", "n2")
        world.behave["virt-handler-gpu", "n2"] = Behaviour(stop=40)
        began = world.now
        found = hand_over(world, ("n1", "gpu", "gpu"), ("n2", "gpu", "gpu"), action="replace")
        assert {outcome.result for outcome in found.values()} == {"returned"}
        assert world.now - began < 40 + TIMEOUT
        pods = [*world.pods("n1"), *world.pods("n2")]
        assert self.templates(*pods) == [daemonsets.template_of(self.FORMER)] * 2

    def test_of_an_unproven_replacement(self):
        """A run before was killed once the new handler had been created: only the revision tells what was there."""
        world = self.changed()
        (old,) = world.pods()
        world.drop(kinds.POD, old["metadata"]["name"], builders.NAMESPACE)
        world.sleep(5)
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="finish")["n1"]
        assert outcome.result == "returned"
        assert self.templates(*world.pods()) == [daemonsets.template_of(self.FORMER)]

    def test_overwrites_nobody_elses_template(self):
        world = self.changed()
        another = builders.pool_daemonset(
            builders.pool("gpu", virtHandlerImage="registry.example/virt-handler:v1.9.0-z")
        )

        def write():
            live = world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
            world.put({**live, "spec": another["spec"]})

        world.at[world.now + 10] = write
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert self.template(world) == daemonsets.template_of(another)
        assert outcome.result == "returned"
        assert self.templates(*world.pods()) == [daemonsets.template_of(another)]

    def without_daemonset(self, comes_back=None):
        """Another client deletes the DaemonSet before the way back, and creates it again after so many seconds."""
        world = self.changed()
        live = world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)

        def delete():
            world.drop(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
            for pod in world.pods():
                world.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE)

        world.at[world.now + 10] = delete
        if comes_back is not None:
            world.at[world.now + comes_back] = lambda: world.put({**live, "spec": self.FORMER["spec"]})
        return world

    def test_with_a_deleted_daemonset_is_interrupted(self):
        world = self.without_daemonset()
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert (outcome.result, outcome.ends_run) == ("interrupted", True)
        assert re.search("DaemonSet virt-handler-gpu .*not found", outcome.message)
        assert "The node's owner is gpu now: run the same playbook again" in outcome.message

    def test_goes_on_when_the_daemonset_comes_back(self):
        world = self.without_daemonset(comes_back=60)
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "returned"
        assert self.templates(*world.pods()) == [daemonsets.template_of(self.FORMER)]

    def test_that_does_not_become_ready_either_is_stuck(self):
        world = self.changed()
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="CreateContainerError")
        outcome = hand_over(world, ("n1", "gpu", "gpu"), action="replace")["n1"]
        assert outcome.result == "stuck"
        assert "gpu got its former handler back, but the handler of gpu does not start" in outcome.message
        assert (world.node().owner, world.node().former_owner) == ("gpu", "gpu"), "for the next run to prove"


def test_a_view_of_a_deleted_node_fails_only_its_reader():
    """Else one deleted node, whose Ready handler is still there for a while, would end the round of all nodes."""

    def gone():
        raise NodeGone("Node n1 was not found.")

    view = NodeView((), gone, HandlerWork)
    assert view.read() is None
    with pytest.raises(NodeGone):
        _ = view.node


class TestOutcome:
    MOVE = Move("n1", "primary", "gpu", "move")

    def test_for_people(self):
        assert str(HandoverOutcome(self.MOVE, "done", gap=31.44)) == "Node n1: primary -> gpu, 31.4 s without a handler"
        assert str(HandoverOutcome(self.MOVE, "done")) == "Node n1: primary -> gpu"
        assert str(HandoverOutcome(self.MOVE, "stuck", "no kubelet")) == "Node n1: primary -> gpu: stuck: no kubelet"

    @pytest.mark.parametrize(
        ("result", "ends_run", "node_failed", "changed"),
        [
            ("done", False, False, True),
            ("gone", False, False, False),
            ("untouched", True, False, False),
            ("returned", True, True, False),
            ("stuck", True, True, True),
            ("failed", True, True, True),
            ("interrupted", True, False, True),
        ],
    )
    def test_decides_what_becomes_of_the_run(self, result, ends_run, node_failed, changed):
        outcome = HandoverOutcome(self.MOVE, result)
        assert (outcome.ends_run, outcome.node_failed, outcome.changed) == (ends_run, node_failed, changed)

    def test_of_a_node_that_lost_its_handler_is_a_change(self):
        assert HandoverOutcome(self.MOVE, "returned", gap=4.0).changed

    def test_for_programs(self):
        assert HandoverOutcome(self.MOVE, "returned", "late", 3.14159, began=7.0).to_dict(clock_began=1000.04) == {
            "node": "n1",
            "from": "primary",
            "to": "gpu",
            "action": "move",
            "result": "returned",
            "message": "late",
            "seconds_without_handler": 3.1,
            "began": 1007.0,
        }
        nothing_ended = HandoverOutcome(self.MOVE, "untouched").to_dict(1000)
        assert (nothing_ended["seconds_without_handler"], nothing_ended["began"]) == (None, None)


SECONDS = st.one_of(st.floats(0, 25), st.just(NEVER))
BEHAVIOURS = st.builds(
    Behaviour,
    stop=SECONDS,
    start=SECONDS,
    heartbeat=SECONDS,
    broken=st.sampled_from([None, None, None, "ImagePullBackOff"]),
)
FAULTS = st.sampled_from(["delete the node", "relabel it", "delete its pods"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["primary", "fpga"]), BEHAVIOURS, BEHAVIOURS), min_size=1, max_size=3),
    st.lists(st.tuples(st.floats(0, 90), FAULTS, st.integers(0, 2)), max_size=2),
    st.floats(0, 3),
)
def test_no_node_ever_has_two_handlers_and_outcomes_are_true(nodes, faults, lag):
    objects = [
        builders.node(f"n{i}", None if source == "primary" else source) for i, (source, _, _) in enumerate(nodes)
    ]
    world = make_world(*objects, lag=lag)
    for index, (source, old, new) in enumerate(nodes):
        world.behave[TARGETS[source].daemonset, f"n{index}"] = old
        world.behave["virt-handler-gpu", f"n{index}"] = new
    touched = set()
    for moment, fault, index in faults:
        if index < len(nodes):
            touched.add(f"n{index}")
            world.at[world.now + moment] = lambda fault=fault, name=f"n{index}": happen(world, fault, name)

    batch = batch_of(world)
    moves = [(f"n{index}", source) for index, (source, _, _) in enumerate(nodes)]
    outcomes = list(batch.run([(Move(n, s, "gpu", "move"), TARGETS["gpu"], TARGETS[s]) for n, s in moves]))

    ours = [(moment, node) for moment, node in world.doubled if node not in touched]
    assert ours == []
    assert sorted(outcome.move.node for outcome in outcomes) == [node for node, _ in moves]
    for outcome in outcomes:
        if outcome.move.node not in touched:
            agrees(world, outcome)
        elif outcome.result != "done":
            assert outcome.message


def happen(world, fault, name):
    if world.find(kinds.NODE, name) is None:
        return
    if fault == "delete the node":
        world.drop(kinds.NODE, name)
    elif fault == "relabel it":
        relabel(world, name, "somebody")
    else:
        for pod in world.pods(name):
            pod["metadata"].setdefault("deletionTimestamp", "now")


def agrees(world, outcome):
    """The outcome of an undisturbed node agrees with the state of the node."""
    move, node = outcome.move, world.node(outcome.move.node)
    if outcome.result == "done":
        assert (node.owner, node.former_owner) == ("gpu", None)
        assert world.handlers(move.node) == ["virt-handler-gpu"]
    elif outcome.result == "returned":
        assert (node.owner, node.former_owner) == (move.source, None)
        if "it went back" in outcome.message:
            assert world.handlers(move.node) == [TARGETS[move.source].daemonset]
    else:
        assert outcome.result in ("stuck", "interrupted")
        assert node.owner in (names.IN_TRANSIT, move.source)
        assert node.former_owner == move.source, "the next run finds it"


def relabel(world, name, owner):
    node = world.find(kinds.NODE, name)
    node["metadata"]["labels"][names.OWNER_LABEL] = owner
    world.touch(node)
