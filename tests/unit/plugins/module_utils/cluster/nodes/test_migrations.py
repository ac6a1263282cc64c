# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import migrations
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.migrations import (
    Limits,
    MigrationOutcome,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.relocation import Relocation
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_migrations import Kubevirt, vm


def relocation(vmi, node):
    return Relocation(namespace="plain", vmi=vmi, uid=f"uid-{vmi}", node=node, how="migrate")


class OffNode:
    """VMs have to leave this node."""

    def __init__(self, node):
        self.node = node

    def relocation_for(self, pod):
        if pod.node != self.node or pod.phase != "Running":
            return None
        return relocation(pod.vmi, pod.node)

    def problem(self, moved, pod, node):
        return f"it is still on {self.node}" if pod.node == self.node else None


RULE = OffNode("n1")


@pytest.fixture
def world():
    nodes = [builders.node(name) for name in ("n1", "n2", "n3")]
    return World(kinds.NAMESPACE.object("plain"), *nodes, *vm("a", "n1"), *vm("b", "n1"), *vm("c", "n3"))


def find(world, **options):
    return migrations.find(world.client(), RULE, **options)


def carry_out(world, **limits):
    return list(migrations.carry_out(world.client(), RULE, find(world), Limits(**limits), world.clock()))


def results(outcomes):
    return {outcome.relocation.vmi: outcome.result for outcome in outcomes}


class TestFind:
    def test_has_the_vms_that_the_rule_applies_to(self, world):
        assert [str(found) for found in find(world)] == ["VM plain/a", "VM plain/b"]

    def test_has_only_those_of_the_given_namespaces_and_nodes(self, world):
        assert find(world, namespaces=["elsewhere"]) == []
        assert find(world, nodes=["n3"]) == []

    def test_of_a_vm_that_cannot_be_migrated_says_why(self, world):
        for obj in vm("d", "n1", migratable=False):
            world.put(obj)
        found = find(world)[-1]
        assert (found.vmi, found.how, found.reason) == ("d", "restart", "it cannot be migrated (because of its GPU)")


class TestCarryOut:
    def test_moves_the_vms(self, world):
        Kubevirt(world)
        assert results(carry_out(world)) == {"a": "done", "b": "done"}
        assert find(world) == []

    @pytest.mark.parametrize("batch", [1, 2])
    def test_has_no_more_migrations_at_once_than_asked_for(self, world, batch):
        kubevirt = Kubevirt(world)
        carry_out(world, batch=batch)
        assert kubevirt.most_at_once == batch

    def test_starts_no_more_after_too_many_failures(self, world):
        Kubevirt(world, fail=["a"])
        failed, rest = carry_out(world, batch=1)
        assert (failed.result, rest.result) == ("failed", "not_started")
        assert "the target ran out of memory" in failed.message
        assert rest.message == "1 update failed before"

    def test_starts_none_in_place_of_one_that_failed(self, world):
        for obj in vm("d", "n1"):
            world.put(obj)
        kubevirt = Kubevirt(world, fail=["a"], seconds=20)
        assert results(carry_out(world, batch=2)) == {"a": "failed", "b": "done", "d": "not_started"}
        assert kubevirt.most_at_once == 2, "b was still running"

    def test_goes_on_while_failures_are_allowed(self, world):
        Kubevirt(world, fail=["a"])
        assert results(carry_out(world, batch=1, max_failures=2)) == {"a": "failed", "b": "done"}

    def test_of_a_group_waits_for_its_first_success(self, world):
        world.put(builders.node("n4"))
        for name in ("d", "e"):
            for obj in vm(name, "n1"):
                world.put(obj)
        groups = {"a": "one", "b": "one", "d": "one", "e": "other"}
        kubevirt = Kubevirt(world, fail=["a"])
        limits = Limits(batch=9, max_failures=2)
        carried_out = migrations.carry_out(
            world.client(), RULE, find(world), limits, world.clock(), lambda each: groups[each.vmi]
        )
        outcomes = [(outcome.relocation.vmi, outcome.result) for outcome in carried_out]
        assert sorted(outcomes[:2]) == [("a", "failed"), ("e", "done")]
        assert outcomes[2:] == [("b", "done"), ("d", "done")]
        assert kubevirt.most_at_once == 2

    def test_of_a_group_comes_side_by_side_after_its_first(self, world):
        for obj in vm("d", "n1"):
            world.put(obj)
        kubevirt = Kubevirt(world)
        wanted, clock = find(world), world.clock()
        outcomes = migrations.carry_out(world.client(), RULE, wanted, Limits(batch=9), clock, lambda _each: "one")
        assert next(outcomes).relocation.vmi == "a"
        assert kubevirt.most_at_once == 1
        assert results(outcomes) == {"b": "done", "d": "done"}
        assert kubevirt.most_at_once == 2

    @pytest.mark.parametrize(("late", "result"), [(25, "done"), (35, "failed")])
    def test_waits_until_the_vm_names_its_new_node(self, world, late, result):
        kubevirt = Kubevirt(world)
        switch = kubevirt._switch

        def switch_late(namespace, name, migration):
            switch(namespace, name, migration)
            status = world.find(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)["status"]
            status["nodeName"] = "n1"
            world.at[world.now + late] = lambda: status.update(nodeName="n2")

        kubevirt._switch = switch_late
        (outcome,) = migrations.carry_out(world.client(), RULE, find(world)[:1], Limits(), world.clock())
        assert outcome.result == result
        assert ("but it has no running launcher pod" in outcome.message) is (result == "failed")

    def test_gives_up_a_migration_that_finds_no_node(self, world):
        Kubevirt(world, stick=["a"])
        outcomes = {outcome.relocation.vmi: outcome for outcome in carry_out(world, timeout=30)}
        assert outcomes["a"].result == "failed"
        assert Kubevirt.NO_NODE in outcomes["a"].message
        assert world.find(kinds.VIRTUAL_MACHINE_INSTANCE, "a", "plain")["status"]["nodeName"] == "n1"

    def test_that_waits_says_so_with_the_reason(self, world):
        Kubevirt(world, stick=["a"])
        carry_out(world, batch=1, timeout=40)
        waits = [line for line in world.shown if line.startswith("Waiting for migrations: ")]
        assert waits[0].startswith("Waiting for migrations: plain/a (3")
        assert f"s of at most 40 s): it is Scheduling, and the scheduler reports: {Kubevirt.NO_NODE}" in waits[0]
        assert waits[0].endswith("; 1 VM to come.")

    def test_that_ends_is_told(self, world):
        Kubevirt(world)
        carry_out(world)
        assert sorted(line.partition(",")[0] for line in world.shown) == ["VM plain/a", "VM plain/b"]


class TestOutcome:
    MOVED = relocation("a", "n1")

    def test_is_one_line(self):
        assert str(MigrationOutcome(self.MOVED, "done", seconds=1.23)) == "VM plain/a, 1.2 s"
        assert str(MigrationOutcome(self.MOVED, "failed", "it broke")) == "VM plain/a: failed: it broke"

    def test_is_published_with_the_vm(self):
        published = MigrationOutcome(self.MOVED, "done", seconds=1.23).to_dict()
        assert published == {**self.MOVED.to_dict(), "result": "done", "message": "", "seconds": 1.2}
