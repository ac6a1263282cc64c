# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What happens to VMs on the nodes of a batch: migrated, waited for, or left, as the user says."""

from __future__ import annotations

from typing import get_args

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import batch_run, drain
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.batch_run import BatchOptions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import (
    LEAVE,
    Drain,
    DrainMode,
    Options,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.relocation import Evacuation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_migrations import MIGRATION, VMI, Kubevirt, vm

MIGRATE = Drain("migrate")
STUCK = {"migratable": False}
NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def world():
    return World(kinds.NAMESPACE.object("plain"), *(builders.node(name) for name in NODES))


@pytest.fixture
def add(world):
    def add(name, on="n1", **fields):
        for obj in vm(name, on, **fields):
            world.put(obj)

    return add


def end(world, name):
    world.drop(VMI, name, "plain")
    world.find(kinds.POD, f"virt-launcher-{name}", "plain")["status"]["phase"] = "Succeeded"


def carry_out(world, vms, *nodes, handled=True, timeout=30, **rule):
    evacuation = Evacuation(dict.fromkeys(nodes or ["n1"], handled), **rule)
    drain.carry_out(world.client(), vms, evacuation, timeout, world.clock())


def refusal(world, *arguments, **options):
    with pytest.raises(ClusterError) as caught:
        carry_out(world, *arguments, **options)
    return str(caught.value).removeprefix("No node of this batch was touched, because ")


def where(world):
    return {obj["metadata"]["name"]: obj["status"]["nodeName"] for obj in world.all(VMI)}


def migrations(world):
    return sorted(found["spec"]["vmiName"] for found in world.all(MIGRATION))


class TestLaunchersThatRefuseWhatKubeVirtPasses:
    """A migration to such an image fails, and KubeVirt would try an eviction again for ever."""

    OLD = "registry.example/virt-launcher:v1.7.0-gpu"

    @pytest.fixture
    def rule(self):
        pool = builders.pool("gpu", virtLauncherImage=self.OLD, selector={"vmLabels": {"matchLabels": {"for": "gpu"}}})
        return {"table": Table.for_pools([pool]), "kubevirt": builders.kubevirt()}

    @pytest.fixture
    def add_gpu(self, add):
        return lambda name: add(name, labels={"for": "gpu"}, image=self.OLD)

    def test_are_the_target_of_no_migration(self, world, add_gpu, rule):
        Kubevirt(world)
        add_gpu("a")
        text = refusal(world, Drain("migrate", on_non_migratable="fail"), **rule)
        assert f"VM plain/a on n1, since virt-launcher of {self.OLD}, which a migration would start, refuses" in text
        assert "--hypervisor of KubeVirt v1.9.0" in text
        assert migrations(world) == []

    def test_their_vms_may_stay(self, world, add_gpu, rule):
        add_gpu("a")
        carry_out(world, Drain("migrate", on_non_migratable="leave"), **rule)
        assert migrations(world) == []

    def test_vms_of_others_are_migrated(self, world, add, rule):
        Kubevirt(world, to="n3")
        add("b")
        carry_out(world, MIGRATE, **rule)
        assert migrations(world) == ["b"]


class TestMigrate:
    def test_vms_of_these_nodes_and_no_others(self, world, add):
        Kubevirt(world, to="n3")
        add("a", "n1")
        add("b", "n2")
        add("c", "n4")
        carry_out(world, MIGRATE, "n1", "n2")
        assert where(world) == {"a": "n3", "b": "n3", "c": "n4"}
        assert migrations(world) == ["a", "b"]
        assert {m["metadata"]["labels"][names.MANAGED_BY_LABEL] for m in world.all(MIGRATION)} == {names.MANAGED_BY}

    def test_vms_where_all_of_them_must_be_migratable(self, world, add):
        Kubevirt(world, to="n3")
        add("a")
        carry_out(world, Drain("migrate", on_non_migratable="fail"))
        assert where(world) == {"a": "n3"}

    def test_without_vms_nothing_is_written(self, world, add):
        add("elsewhere", "n4")
        carry_out(world, MIGRATE)
        assert world.writes == []

    def test_one_that_has_ended_is_no_matter(self, world, add):
        add("a")
        end(world, "a")
        carry_out(world, MIGRATE)
        assert world.writes == []

    def test_nodes_are_not_cordoned(self, world, add):
        Kubevirt(world)
        add("a")
        carry_out(world, MIGRATE)
        assert not [path for _verb, path in world.writes if "/nodes/" in path]

    def test_one_that_comes_to_another_of_the_nodes_goes_on(self, world, add):
        kubevirt = Kubevirt(world, to="n2")
        add("a")
        world.at[world.now + 3] = lambda: setattr(kubevirt, "to", "n3")
        carry_out(world, MIGRATE, "n1", "n2")
        assert where(world) == {"a": "n3"}
        assert migrations(world) == ["a", "a"]

    def test_one_that_never_gets_off_them(self, world, add):
        kubevirt = Kubevirt(world, to="n2")
        switch = kubevirt._switch

        def back_and_forth(*arguments):
            switch(*arguments)
            kubevirt.to = "n1" if kubevirt.to == "n2" else "n2"

        kubevirt._switch = back_and_forth
        add("a")
        message = refusal(world, MIGRATE, "n1", "n2")
        assert "3 migrations each have taken VMs from one of its nodes to another: VM plain/a on n2" in message
        assert migrations(world) == ["a"] * 3

    @pytest.mark.parametrize("ours", [True, False])
    def test_a_source_pod_that_ends_slowly_is_waited_for(self, world, add, ours):
        kubevirt = Kubevirt(world, seconds=25)
        switch = kubevirt._switch

        def leave_source(namespace, name, migration):
            switch(namespace, name, migration)
            source = world.find(kinds.POD, "virt-launcher-a", "plain")
            source["status"]["phase"] = "Running"
            world.at[world.now + 12] = lambda: source["status"].update(phase="Succeeded")

        kubevirt._switch = leave_source
        add("a")
        if not ours:
            world.put(MIGRATION.object("other", "plain", spec={"vmiName": "a"}))
        began = world.now
        carry_out(world, MIGRATE)
        assert world.now - began > 37
        assert migrations(world) == ["a"]

    def test_a_source_pod_that_never_ends(self, world, add):
        add("a")
        world.find(VMI, "a", "plain")["status"]["nodeName"] = "n2"
        world.put({**vm("a", "n2")[1], "metadata": {**vm("a", "n2")[1]["metadata"], "name": "target", "uid": "target"}})
        message = refusal(world, MIGRATE)
        assert "launcher pods of VMs that have left its nodes did not end within 30 s: VM plain/a on n1" in message
        assert migrations(world) == []

    def test_a_migration_that_fails(self, world, add):
        Kubevirt(world, fail={"a"})
        add("a")
        message = refusal(world, MIGRATE)
        assert message.startswith(
            "VMs could not be migrated from its nodes: VM plain/a: failed: its migration virtpools-"
        )
        assert "failed: the target ran out of memory" in message

    def test_a_migration_without_room(self, world, add):
        Kubevirt(world, stick={"a"})
        add("a")
        assert (
            "did not end within 30 s and was cancelled: it is Scheduling, and the scheduler reports: 0/4 nodes are"
            in refusal(world, MIGRATE)
        )
        assert migrations(world) == []

    def test_as_many_at_once_as_kubevirt_lets_leave_the_nodes(self, world, add):
        kubevirt = Kubevirt(world, to="n3")
        for number in range(9):
            add(f"vm-{number}", "n1" if number % 2 else "n2")
        carry_out(world, MIGRATE, "n1", "n2", timeout=60)
        assert kubevirt.most_at_once == 4
        assert set(where(world).values()) == {"n3"}


class TestNonMigratable:
    def test_left(self, world, add):
        Kubevirt(world)
        add("a")
        add("pinned", **STUCK)
        carry_out(world, MIGRATE)
        assert where(world) == {"a": "n2", "pinned": "n1"}

    def test_refused_before_any_other_is_migrated(self, world, add):
        Kubevirt(world)
        add("a")
        add("pinned", **STUCK)
        message = refusal(world, Drain("migrate", "fail"))
        assert (
            "cannot be migrated: VM plain/pinned on n1, since it cannot be migrated (because of its GPU); stop"
            in message
        )
        assert world.writes == []

    def test_waited_for_before_any_other_is_migrated(self, world, add):
        Kubevirt(world)
        add("a")
        add("pinned", **STUCK)
        seen = []
        world.at[world.now + 20] = lambda: (seen.extend(world.all(MIGRATION)), end(world, "pinned"))
        carry_out(world, Drain("migrate", "wait"))
        assert (seen, where(world)) == ([], {"a": "n2"})

    def test_waited_for_in_vain(self, world, add):
        Kubevirt(world)
        add("pinned", **STUCK)
        message = refusal(world, Drain("migrate", "wait"))
        assert "VMs on its nodes did not end within 30 s: VM plain/pinned on n1, since it cannot be migrated" in message

    @pytest.mark.parametrize("phase", ["Scheduling", "Scheduled"])
    def test_one_that_starts_is_migrated_when_it_runs(self, world, add, phase):
        Kubevirt(world)
        add("a", phase=phase)
        world.at[world.now + 5] = lambda: world.find(VMI, "a", "plain")["status"].update(phase="Running")
        carry_out(world, Drain("migrate", "wait"))
        assert where(world) == {"a": "n2"}

    def test_without_a_handler_none_can_be_migrated(self, world, add):
        Kubevirt(world)
        add("a")
        carry_out(world, MIGRATE, handled=False)
        assert where(world) == {"a": "n1"}
        message = refusal(world, Drain("migrate", "fail"), handled=False)
        assert "VM plain/a on n1, since virt-handler is not Ready on node n1" in message


class TestWait:
    def test_until_they_have_ended(self, world, add):
        for name in ("a", "b"):
            add(name)
        world.at[world.now + 5] = lambda: end(world, "a")
        world.at[world.now + 15] = lambda: end(world, "b")
        began = world.now
        carry_out(world, Drain("wait"))
        assert world.now - began > 15
        assert world.writes == []

    def test_that_takes_long_shows_for_what(self, world, add):
        add("a")
        world.at[world.now + 50] = lambda: end(world, "a")
        carry_out(world, Drain("wait"), timeout=60)
        assert any("of at most 60 s: VMs are to leave the nodes: VM plain/a on n1" in line for line in world.shown)

    def test_in_vain(self, world, add):
        add("a")
        message = refusal(world, Drain("wait"))
        assert message.startswith("VMs on its nodes did not end within 30 s: VM plain/a on n1; stop them")


def test_left_without_a_look(world, add):
    add("a")
    carry_out(world, LEAVE)
    assert world.requests == []


class TestBatch:
    """As part of a batch: after images, before the first node is touched."""

    POOL = builders.pool("gpu")

    def run(
        self,
        vms,
        *,
        vm_fields=None,
        owner=None,
        former=None,
        policy=(),
        hw="gpu",
        of_pools=LEAVE,
        ready=True,
        handlers_on=("n1", "n2"),
    ):
        sets = [builders.primary(), builders.pool_daemonset(self.POOL)]
        images = (f"{builders.HANDLER_IMAGE}-gpu", builders.HANDLER_IMAGE, builders.LAUNCHER_IMAGE)
        nodes = [
            builders.node("n1", owner, former, {"hw": hw}, images=images),
            builders.node("n2"),
        ]
        with_handler = [node for node in nodes if node["metadata"]["name"] in handlers_on]
        world = World(builders.excluding_kubevirt(), *sets, *nodes, *builders.handlers_of(with_handler, sets))
        if not ready:
            world.put(builders.handler_pod("n1", ready=False))
        world.put(kinds.NAMESPACE.object("plain"))
        for obj in vm("a", "n1", **(vm_fields or {})):
            world.put(obj)
        for obj in policy:
            world.put(obj)
        Kubevirt(world)
        made = plan.make_plan(live.take_snapshot(world.client(), nodes={"n1"}), [self.POOL], Options(drain=vms))
        options = BatchOptions(
            handler_timeout=60, pull_timeout=30, migration_timeout=30, drain=vms, drain_of_pools=of_pools
        )
        try:
            found = list(batch_run.carry_out(world.client(), made, made.moves, options, world.clock()))
        except ClusterError as error:
            return world, str(error)
        return world, [outcome.result for outcome in found]

    def test_the_vm_is_gone_before_the_handler(self):
        world, results = self.run(MIGRATE)
        assert (results, where(world)) == (["done"], {"a": "n2"})
        writes = [path.rsplit("/", 2)[1] for _verb, path in world.writes]
        created = next(i for i, (verb, path) in enumerate(world.writes) if path.endswith(MIGRATION.plural))
        assert created < writes.index("nodes")

    def test_no_node_is_touched_when_vms_stay(self):
        world, message = self.run(Drain("migrate", "fail"), vm_fields=STUCK)
        assert message.startswith(
            "No node of this batch was touched, because VMs on its nodes cannot be migrated: VM plain/a"
        )
        assert world.node("n1").owner == names.PRIMARY
        assert world.handlers("n1") == ["virt-handler"]

    def test_no_vm_is_migrated_to_an_image_that_cannot_start(self):
        old = "registry.example/virt-launcher:v1.7.0-gpu"
        pool = builders.pool("gpu", virtLauncherImage=old, selector={"vmLabels": {"matchLabels": {"for": "gpu"}}})
        table, kind = Table.for_pools([pool]), kinds.MUTATING_ADMISSION_POLICIES[0]
        policy = [obj for _kind, obj in launcher_policy.derive(table, builders.NAMESPACE, kind)]
        world, message = self.run(Drain("migrate", "fail"), vm_fields={"labels": {"for": "gpu"}}, policy=policy)
        assert f"virt-launcher of {old}, which a migration would start, refuses --hypervisor" in message
        assert (migrations(world), world.handlers("n1")) == ([], ["virt-handler"])

    @pytest.mark.parametrize("handler", ["none", "ending"])
    @pytest.mark.parametrize("vms", get_args(DrainMode))
    def test_an_interrupted_handover_is_finished_at_once(self, vms, handler):
        ready = handler == "none"
        world, results = self.run(Drain(vms, "fail"), owner=names.IN_TRANSIT, former=names.PRIMARY, ready=ready)
        assert (results, where(world), migrations(world)) == (["done"], {"a": "n1"}, [])

    def test_vms_on_a_node_without_a_handler_stay(self):
        """None ends there, and a migration needs one."""
        world, results = self.run(Drain("migrate", "fail"), handlers_on=("n2",))
        assert (results, where(world), migrations(world)) == (["done"], {"a": "n1"}, [])

    def test_an_unproven_handover_migrates_no_vm(self):
        world, results = self.run(MIGRATE, owner="gpu", former=names.PRIMARY)
        assert (results, where(world), migrations(world)) == (["done"], {"a": "n1"}, [])

    @pytest.mark.parametrize(("vms", "of_pools", "node"), [(LEAVE, MIGRATE, "n2"), (MIGRATE, LEAVE, "n1")])
    def test_vms_of_a_pool_have_an_option_of_their_own(self, vms, of_pools, node):
        world, results = self.run(vms, owner="gpu", hw="other", of_pools=of_pools)
        assert (results, where(world)) == (["done"], {"a": node})

    def test_no_vm_is_migrated_by_a_handler_that_is_not_ready(self):
        world, message = self.run(Drain("migrate", "fail"), ready=False)
        assert "virt-handler is not Ready on node n1" in message
        assert migrations(world) == []


def test_the_digest_covers_what_becomes_of_vms():
    def digest(vms):
        return plan.make_plan(
            builders.snapshot_of([builders.node("n1"), builders.node("n2")]), [], Options(drain=vms)
        ).digest

    assert digest(LEAVE) != digest(MIGRATE) != digest(Drain("migrate", "wait"))


@pytest.mark.parametrize(("vms", "batches"), [(LEAVE, 1), (Drain("wait"), 1), (MIGRATE, 3)])
def test_where_vms_are_migrated_nodes_move_one_at_a_time(vms, batches):
    nodes = [*(builders.node(name, labels={"hw": "gpu"}) for name in NODES[:3]), builders.node("stays")]
    snapshot = builders.snapshot_of(nodes, [builders.pool("gpu")])
    made = plan.make_plan(snapshot, [builders.pool("gpu")], Options(max_unavailable="100%", drain=vms))
    assert (len(made.moves), len(made.batches)) == (3, batches)
