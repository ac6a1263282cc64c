# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole batch: what it checks and prepares before it touches the first node."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import LeaseLost
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import batch_run
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.batch_run import BatchOptions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import image_contents
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.image_contents import Contents
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.batching import Move
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour, Refused, World

POOL = builders.pool("gpu")
GPU = builders.pool_daemonset(POOL)
IMAGES = (f"{builders.HANDLER_IMAGE}-gpu", builders.HANDLER_IMAGE, builders.LAUNCHER_IMAGE)
OPTIONS = BatchOptions(handler_timeout=60, pull_timeout=30, migration_timeout=30)


def gpu_node(name="n1", owner=None, former=None, images=IMAGES, **fields):
    return builders.node(name, owner, former, {"hw": "gpu"}, images=images, **fields)


def make_world(*nodes, of_kubevirt=None, sets=None, pods=None):
    sets = [builders.primary(), GPU] if sets is None else sets
    nodes = [*nodes, builders.node("stays")]
    handlers = builders.handlers_of(nodes, sets) if pods is None else pods
    return World(of_kubevirt or builders.excluding_kubevirt(), *sets, *nodes, *handlers)


def carry_out(world, *only, pools=(POOL,), prepull=True, **options):
    def planned():
        return plan.make_plan(live.take_snapshot(world.client(), nodes=only or None), pools, Options(**options))

    made, given = planned(), replace(OPTIONS, prepull=prepull)
    outcomes = list(batch_run.carry_out(world.client(), made, made.moves, given, world.clock(), planned))
    assert world.doubled == []
    return {outcome.move.node: outcome.result for outcome in outcomes}


def refusal(world, *only, **options):
    """The message of a refused batch, which touched no node."""
    with pytest.raises(ClusterError) as caught:
        carry_out(world, *only, **options)
    assert not [path for verb, path in world.writes if "/nodes/" in path]
    return str(caught.value)


def live_template(world):
    return world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)["spec"]["template"]


VMI = kinds.VIRTUAL_MACHINE_INSTANCE.object("vm", "vms", status={"phase": "Running", "nodeName": "n1"})


def migration(phase="Running", name="m1", **spec):
    status = {"phase": phase, "migrationState": {"sourceNode": "n1"}}
    kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
    return kind.object(name, "vms", spec={"vmiName": "vm", **spec}, status=status)


class TestDone:
    def test_moves_nodes(self):
        world = make_world(gpu_node("n1"), gpu_node("n2"))
        assert carry_out(world) == {"n1": "done", "n2": "done"}
        assert world.handlers("n1") == world.handlers("n2") == ["virt-handler-gpu"]
        assert world.handlers("stays") == ["virt-handler"]

    def test_gives_back(self):
        world = make_world(builders.node("n1", "gpu", images=IMAGES))
        assert carry_out(world) == {"n1": "done"}
        assert world.handlers("n1") == ["virt-handler"]

    def test_restores_nodes_while_kubevirt_is_unfit(self):
        unfit = builders.excluding_kubevirt(conditions={"Degraded": "True"})
        world = make_world(builders.node("n1", "gpu", images=IMAGES), of_kubevirt=unfit)
        assert carry_out(world, pools=(), restore_nodes=frozenset({"n1"})) == {"n1": "done"}

    def test_removes_what_an_earlier_run_left(self):
        world = make_world(gpu_node())
        pod = builders.pull_pod("n1")
        world.put(pod)
        world.put(vms.canary_vm())
        carry_out(world)
        assert not world.find(kinds.POD, builders.PULL_POD, builders.NAMESPACE)
        assert not world.all(kinds.VIRTUAL_MACHINE)

    def test_reminds_handlers_of_vms_before_it_ends_them(self):
        world = make_world(gpu_node(), gpu_node("n2"))
        world.put(builders.migrated_vmi("n2"))
        assert carry_out(world) == {"n1": "done", "n2": "done"}
        changed = [path.rsplit("/", 1)[-1] for verb, path in world.writes if verb == "patch"]
        assert changed[:3] == ["migrated", "migrated", "n1"]
        assert changed.count("migrated") == 2

    def test_waits_for_migrations_through_its_nodes(self):
        world = make_world(gpu_node())
        world.put(VMI)
        world.put(migration())
        world.at[world.now + 20] = lambda: world.put(migration(phase="Succeeded"))
        began = world.now
        assert carry_out(world) == {"n1": "done"}
        assert world.now - began > 20

    def test_leaves_out_a_node_that_is_deleted_while_it_waits(self):
        world = make_world(gpu_node("n1"), gpu_node("n2"))
        world.put(VMI)
        world.put(migration())
        world.at[world.now + 15] = lambda: world.drop(kinds.NODE, "n2")
        world.at[world.now + 20] = lambda: world.put(migration(phase="Succeeded"))
        assert carry_out(world) == {"n2": "gone", "n1": "done"}
        assert world.shown[0] == "Node n2: primary -> gpu: gone: the node was deleted"

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"labels": {}}, "the pools give it to primary now"),
            ({"labels": {"hw": "fpga"}}, "the pools give it to fpga now"),
            ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, "it need not or cannot change now"),
        ],
        ids=["no pool", "another pool", "tainted"],
    )
    def test_leaves_a_node_alone_that_changes_while_it_waits(self, changes, why):
        world, both = self.waiting(gpu_node("n2"), builders.node("n2", **{"labels": {"hw": "gpu"}, **changes}))
        assert carry_out(world, pools=both) == {"n1": "done"}
        assert world.shown[0] == f"Node n2: primary -> gpu: left alone: {why}"
        assert world.handlers("n2") == ["virt-handler"]

    def test_gives_a_node_without_a_handler_to_another_pool(self):
        begun = (names.IN_TRANSIT, names.PRIMARY)
        world, both = self.waiting(gpu_node("n2", *begun), builders.node("n2", *begun, {"hw": "fpga"}))
        assert carry_out(world, pools=both) == {"n1": "done", "n2": "done"}
        assert world.handlers("n2") == ["virt-handler-fpga"]

    def test_gives_no_node_to_another_pool_without_a_daemonset(self):
        begun = (names.IN_TRANSIT, names.PRIMARY)
        world, both = self.waiting(gpu_node("n2", *begun), builders.node("n2", *begun, {"hw": "fpga"}))
        world.at[world.now + 18] = lambda: world.drop(kinds.DAEMON_SET, "virt-handler-fpga", builders.NAMESPACE)
        assert "DaemonSet kubevirt/virt-handler-fpga does not exist" in refusal(world, pools=both)
        assert world.handlers("n2") == []

    def waiting(self, node, later):
        """A batch of n1 and this node waits for a migration, and the node changes in between. Returns the pools, too."""
        both = (POOL, builders.pool("fpga"))
        world = make_world(gpu_node(), node, sets=[builders.primary(), *map(builders.pool_daemonset, both)])
        world.put(VMI)
        world.put(migration())
        world.at[world.now + 15] = lambda: world.put(later)
        world.at[world.now + 20] = lambda: world.put(migration(phase="Succeeded"))
        return world, both

    @pytest.mark.parametrize(
        ("phase", "spec"),
        [("WaitingForSync", {"receive": {"migrationID": "x"}}), ("Synchronizing", {"sendTo": {"migrationID": "x"}})],
    )
    def test_does_not_wait_for_the_other_half_of_a_migration(self, phase, spec):
        world = make_world(gpu_node())
        world.put(VMI)
        world.put(migration(phase, **spec))
        began = world.now
        assert carry_out(world) == {"n1": "done"}
        assert world.now - began < 20

    def test_does_not_wait_for_a_migration_of_a_deleted_vm(self):
        world = make_world(gpu_node())
        world.put(migration(phase="Scheduling"))
        assert carry_out(world) == {"n1": "done"}

    def test_a_failed_node_goes_back_to_its_pool(self):
        world = make_world(builders.node("n1", "gpu", images=IMAGES))
        world.behave["virt-handler", "n1"] = Behaviour(broken="ImagePullBackOff")
        assert carry_out(world) == {"n1": "returned"}
        assert world.node("n1").owner == "gpu"
        assert world.handlers("n1") == ["virt-handler-gpu"]

    def test_a_failed_node_of_no_pool_goes_to_the_primary(self):
        """The node cannot go back to an owner that has no DaemonSet."""
        world = make_world(gpu_node("n1", "ghost"))
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="ImagePullBackOff")
        assert carry_out(world) == {"n1": "returned"}
        assert world.node("n1").owner == names.PRIMARY
        assert world.handlers("n1") == ["virt-handler"]

    @pytest.mark.parametrize("excluded", [True, False])
    def test_of_a_removed_pool_to_where_the_primary_does_not_run(self, excluded):
        taint = {"key": "a", "effect": "NoSchedule"}
        tolerant = builders.pool_daemonset(replace(POOL, tolerations=({"key": "a", "operator": "Exists"},)))
        node = builders.node("n1", "gpu", images=IMAGES, taints=[taint])
        world = make_world(node, sets=[builders.primary(excluded=excluded), tolerant])
        assert carry_out(world, pools=(), remove_pools="all") == {"n1": "done"}
        assert world.pods("n1") == []

    def test_goes_on_without_dead_nodes_elsewhere(self):
        world = make_world(gpu_node(), of_kubevirt=builders.excluding_kubevirt(conditions={"Available": "False"}))
        world.put(builders.node("dead", ready=False))
        world.put(builders.handler_pod("dead", ready=False))
        assert carry_out(world, "n1") == {"n1": "done"}


class TestRefused:
    @pytest.mark.parametrize(
        ("fields", "excluded"),
        [({"conditions": {"Degraded": "True"}}, True), ({"targetKubeVirtVersion": "v9.9.9"}, False)],
        ids=["degraded", "upgraded without the exclusion"],
    )
    def test_while_kubevirt_is_unfit(self, fields, excluded):
        sets = [builders.primary(excluded=excluded), GPU]
        world = make_world(gpu_node(), of_kubevirt=builders.excluding_kubevirt(**fields), sets=sets)
        assert "No node of this batch was touched, because KubeVirt" in refusal(world)

    def test_without_the_exclusion(self):
        world = make_world(gpu_node(), sets=[builders.primary(excluded=False), GPU], of_kubevirt=builders.kubevirt())
        assert "run primary_exclusion first" in refusal(world)

    def test_of_a_removal_where_the_primary_runs_as_well(self):
        """Its handler would not end, and the nodes would wait for that without the pool's."""
        nodes = [builders.node(name, "gpu", images=IMAGES) for name in ("n2", "n1")]
        sets = [builders.primary(excluded=False), GPU]
        pods = [*builders.handlers_of(nodes, sets), builders.handler_pod("n1"), builders.handler_pod("n2")]
        world = make_world(*nodes, of_kubevirt=builders.kubevirt(), sets=sets, pods=pods)
        text = refusal(world, pools=(), remove_pools="all")
        assert "2 nodes have two handler pods" in text
        assert "n1, n2. The exclusion is missing, so the run could not take the pool's handler away: run site" in text
        assert world.handlers("n1") == ["virt-handler-gpu", "virt-handler"]

    def test_without_the_pools_daemonset(self):
        assert "DaemonSet kubevirt/virt-handler-gpu does not exist" in refusal(
            make_world(gpu_node(), sets=[builders.primary()])
        )

    def test_while_the_controller_has_not_seen_the_daemonset(self):
        world = make_world(gpu_node())
        world._control = lambda: None
        world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)["metadata"]["generation"] = 9
        assert "kube-controller-manager" in refusal(world)

    def test_when_images_do_not_come(self):
        text = refusal(make_world(gpu_node(images=())))
        assert "1 of 1 cannot get the images of their next handler. n1: images were not pulled within 30 s" in text

    @staticmethod
    def changed(world, *tags):
        """Give pool gpu images with these tags, one after the other. Returns the pool, and the template that it had."""
        world.sleep(1)
        former = copy.deepcopy(live_template(world))
        for tag in tags:
            newer = builders.pool("gpu", virtHandlerImage=f"{builders.HANDLER_IMAGE}-{tag}")
            daemonset = world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
            world.put({**daemonset, "spec": builders.pool_daemonset(newer)["spec"]})
            world.sleep(1)
        assert live_template(world) != former
        return newer, former

    @pytest.mark.parametrize("tags", [["newer"], ["unused", "newer"]], ids=["the one before", "an older one"])
    def test_when_a_later_batch_cannot_pull_a_new_image(self, tags):
        """The DaemonSet has the template of its nodes again, so that a node that restarts gets an image that it has."""
        leaves = gpu_node("n2", "fpga")
        fpga = builders.pool("fpga")
        sets = [builders.primary(), GPU, builders.pool_daemonset(fpga)]
        world = make_world(gpu_node("n1", "gpu", images=()), leaves, sets=sets)
        newer, former = self.changed(world, *tags)
        text = refusal(world, pools=[newer, fpga])
        assert text.endswith("DaemonSet kubevirt/virt-handler-gpu has its former template again, until the next run.")
        assert live_template(world) == former

    def test_by_a_lost_lease_although_a_node_was_deleted(self):
        """The run asks for nothing more, not even which nodes are left."""
        world = make_world(gpu_node("n1"), gpu_node("n2"))
        world.put(VMI)
        world.put(migration())
        lost = []

        def lose():
            world.drop(kinds.NODE, "n2")
            lost.append(len(world.requests))
            raise LeaseLost("The run has lost its Lease.")

        world.at[world.now + 5] = lambda: setattr(world, "beat", lose)
        with pytest.raises(LeaseLost):
            carry_out(world)
        assert lost == [len(world.requests)]

    def test_for_another_reason_keeps_the_new_template(self):
        world = make_world(gpu_node("n1", "gpu", images=(f"{builders.HANDLER_IMAGE}-newer", *IMAGES)))
        newer, _former = self.changed(world, "newer")
        world.put(VMI)
        world.put(migration())
        assert "live migrations through its nodes did not end" in refusal(world, pools=[newer], prepull=False)
        assert live_template(world)["spec"]["containers"][0]["image"] == f"{builders.HANDLER_IMAGE}-newer"

    def test_when_migrations_do_not_end(self):
        world = make_world(gpu_node())
        world.put(VMI)
        world.put(migration())
        text = refusal(world)
        assert "live migrations through its nodes did not end within 30 s" in text
        assert (
            "VM vms/vm (migration m1, Running). Wait for them, or cancel them (`kubectl delete vmim m1 -n vms`)" in text
        )
        assert "While the run waited" not in text

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (builders.excluding_kubevirt(targetKubeVirtVersion="v1.9.1"), "is being upgraded"),
            (builders.primary(excluded=False), "the primary virt-handler may still run on pool nodes"),
        ],
        ids=["an upgrade begins", "the exclusion is removed"],
    )
    def test_when_something_forbids_it_while_it_waits(self, changed, message):
        world = make_world(gpu_node())
        world.put(VMI)
        world.put(migration())
        world.at[world.now + 15] = lambda: world.put(changed)
        world.at[world.now + 20] = lambda: world.put(migration(phase="Succeeded"))
        assert message in refusal(world)

    def test_when_new_migrations_begin_all_the_time(self):
        """As with a descheduler: whenever one has ended, there is another."""
        world = make_world(gpu_node())
        world.put(VMI)
        world.put(migration())

        def again():
            world.put(migration(phase="Succeeded"))
            world.put(migration(name="m2"))

        world.at[world.now + 15] = again
        text = refusal(world)
        assert "VM vms/vm (migration m2, Running)" in text
        assert (
            "While the run waited, 1 other one ended: if a descheduler or another tool starts new ones all the time, stop it"
            in text
        )


class TestPull:
    SECRET: t.ClassVar = {"imagePullSecrets": [{"name": "registry"}]}

    def pulled(self, world):
        return [r.body["spec"]["nodeName"] for r in world.requests if r.method == "POST" and r.path.endswith("/pods")]

    def test_can_be_left_out(self):
        world = make_world(gpu_node(images=()))
        assert carry_out(world, prepull=False) == {"n1": "done"}
        assert self.pulled(world) == []

    @pytest.mark.parametrize(
        ("fields", "tried"),
        [
            ({}, []),
            (SECRET, [None]),
            ({"virtLauncherPullSecrets": [{"name": "launchers"}]}, ["launchers"]),
        ],
        ids=["no secrets", "of the handler", "of launchers"],
    )
    def test_is_tried_as_by_launcher_pods_where_pull_secrets_exist(self, fields, tried):
        pool = builders.pool("gpu", virtLauncherImage=IMAGES[2], selector={"deviceNames": ["a.example/b"]}, **fields)
        given_back = builders.node("n0", "gpu", images=IMAGES)
        world = make_world(given_back, gpu_node(), sets=[builders.primary(), builders.pool_daemonset(pool)])
        world.after = lambda request: world.end_pulls()
        assert carry_out(world, pools=(pool,)) == {"n0": "done", "n1": "done"}
        pods = [r.body["spec"] for r in world.requests if r.method == "POST" and r.path.endswith("/pods")]
        started = [pod for pod in pods if pod["serviceAccountName"] == "default"]
        assert [pod.get("imagePullSecrets", [{"name": None}])[0]["name"] for pod in started] == tried
        assert all(pod["containers"][0]["image"] == IMAGES[2] for pod in started)

    def test_when_launcher_pods_would_not_start(self):
        pool = builders.pool(
            "gpu", virtLauncherImage=IMAGES[2], selector={"deviceNames": ["a.example/b"]}, **self.SECRET
        )
        world = make_world(gpu_node(), sets=[builders.primary(), builders.pool_daemonset(pool)])
        text = refusal(world, pools=(pool,))
        assert (
            "launcher pods would not start on 1 of 1: they do not have the pull secrets of their pool's handler" in text
        )
        assert "only those of its virtLauncherPullSecrets (none). n1: images were not pulled within 30 s." in text

    def test_is_not_tried_where_handlers_run_kubevirts_launcher(self):
        pool = builders.pool("gpu", **self.SECRET)
        world = make_world(gpu_node(), sets=[builders.primary(), builders.pool_daemonset(pool)])
        assert carry_out(world, pools=(pool,)) == {"n1": "done"}
        assert self.pulled(world) == []

    def looking(self, looks, *nodes, move="gpu"):
        """A world in whose images no run has looked; ``looks``: what a look finds."""
        unknown = copy.deepcopy(GPU)
        del unknown["metadata"]["annotations"][names.CONTENTS_ANNOTATION]
        world = make_world(*nodes, sets=[builders.primary(), unknown])
        world.after = lambda request: world.end_pulls(looks=looks)
        return world

    def test_an_image_that_lacks_something(self):
        world = self.looking("missing virt-chroot\nlooked", gpu_node())
        text = refusal(world)
        assert f"No node of this batch was touched, because image {IMAGES[0]} lacks virt-chroot. Build pool" in text
        assert image_contents.recorded(self.daemonset(world)) == {}

    def test_what_was_found_is_noted(self):
        world = self.looking("qemu 10.1.0\nlibvirt 11.9.0\nlooked", gpu_node("n1"), gpu_node("n2"))
        assert carry_out(world, "n1") == {"n1": "done"}
        found = image_contents.recorded(self.daemonset(world))
        assert found == {IMAGES[0]: Contents("10.1.0", "11.9.0")}
        assert carry_out(world, "n2") == {"n2": "done"}
        assert self.pulled(world) == ["n1"]

    def daemonset(self, world):
        return world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)

    def test_is_of_the_primarys_images_on_the_way_back(self):
        world = make_world(builders.node("n1", "gpu", images=IMAGES[:1]))
        refusal(world)
        assert self.pulled(world) == ["n1"]

    def test_is_not_needed_to_finish(self):
        world = make_world(gpu_node("n1", "gpu", "primary", images=()))
        assert carry_out(world) == {"n1": "done"}
        assert self.pulled(world) == []


TO_GPU = Move("n2", names.PRIMARY, "gpu", "move")


class Pulling(World):
    """Its kubelets pull images within some seconds."""

    seconds = 5.0
    complaint = ""
    """What they say instead."""

    def _tick(self):
        super()._tick()
        for pod in self.all(kinds.POD):
            if names.PULL_LABEL in pod["metadata"]["labels"]:
                self._pull(pod)

    def _pull(self, pod):
        if self.complaint:
            state = {"waiting": {"reason": "ErrImagePull", "message": self.complaint}}
            containers = [{"image": each["image"], "state": state} for each in pod["spec"]["containers"]]
            pod["status"] = {"phase": "Pending", "containerStatuses": containers}
        elif self._lasts(("pull", pod["metadata"]["uid"]), self.seconds):
            pod["status"] = builders.pulled(pod)
            node = self.find(kinds.NODE, pod["spec"]["nodeName"])
            there = node["status"].setdefault("images", [])
            there += [{"names": [container["image"]]} for container in pod["spec"]["containers"]]


def pods_created(world):
    return [path for verb, path in world.writes if verb == "create" and path.endswith("/pods")]


class TestNextBatch:
    """Its images are pulled while a batch is handed over."""

    def world(self, **fields):
        nodes = [gpu_node("n1"), gpu_node("n2", images=(), **fields)]
        sets = [builders.primary(), GPU]
        return Pulling(builders.excluding_kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets))

    def run(self, world, ahead, **options):
        made = plan.make_plan(live.take_snapshot(world.client(), nodes=["n1"]), (POOL,), Options())
        given = replace(OPTIONS, **options)
        return list(batch_run.carry_out(world.client(), made, made.moves, given, world.clock(), ahead=ahead))

    def seconds(self, world, *ahead):
        """How long a batch with n1, and then one with n2, take."""
        began = world.now
        self.run(world, ahead)
        assert carry_out(world, "n2") == {"n2": "done"}
        return world.now - began

    def test_need_not_wait_for_its_images(self):
        waits, pulled = self.seconds(self.world()), self.seconds(self.world(), TO_GPU)
        assert waits - pulled >= Pulling.seconds

    def test_has_its_images_when_pulls_take_longer(self):
        world = self.world()
        world.seconds = 20.0
        self.run(world, [TO_GPU])
        assert set(IMAGES) & world.node("n2").images
        assert not [pod for pod in world.all(kinds.POD) if names.PULL_LABEL in pod["metadata"]["labels"]]

    def test_is_left_alone_when_a_node_of_this_one_fails(self):
        world = self.world()
        world.seconds = None
        world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="ImagePullBackOff")
        began = world.now
        (outcome,) = self.run(world, [TO_GPU], pull_timeout=600)
        assert outcome.result == "returned"
        assert world.now - began < 600
        assert not [pod for pod in world.all(kinds.POD) if names.PULL_LABEL in pod["metadata"]["labels"]]

    def test_reports_itself_what_cannot_be_pulled(self):
        world = self.world()
        world.seconds = None
        (outcome,) = self.run(world, [TO_GPU])
        assert outcome.result == "done"
        with pytest.raises(ClusterError, match="images were not pulled within 30 s"):
            carry_out(world, "n2")

    def test_does_not_wait_for_what_a_kubelet_complains_about(self):
        """The next batch waits for it, as long as it may take."""
        world = self.world()
        world.complaint = "connection refused"
        began = world.now
        (outcome,) = self.run(world, [TO_GPU], pull_timeout=600)
        assert outcome.result == "done"
        assert world.now - began < 60

    def test_is_not_pulled_on_a_node_that_is_not_ready(self):
        world = self.world(ready=False)
        self.run(world, [TO_GPU])
        assert not pods_created(world)

    def test_of_deleted_nodes(self):
        world = self.world()
        world.drop(kinds.NODE, "n2")
        (outcome,) = self.run(world, [TO_GPU])
        assert outcome.result == "done"

    def test_is_left_alone_when_its_nodes_cannot_be_read(self):
        world = self.world()

        def forbid(request):
            if request.path.endswith("/nodes") and "n2" in str(request.query):
                raise Refused(403, "Forbidden", "cannot get nodes")

        world.before = forbid
        (outcome,) = self.run(world, [TO_GPU])
        assert outcome.result == "done"

    def test_is_not_pulled_where_nothing_is(self):
        world = self.world()
        self.run(world, [TO_GPU], prepull=False)
        assert not pods_created(world)
