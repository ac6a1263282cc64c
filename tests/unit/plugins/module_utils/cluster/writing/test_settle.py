# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import settle
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.feature_gates import Gates
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour, World

NS = builders.NAMESPACE


@pytest.fixture
def world():
    return World(builders.excluding_kubevirt(), builders.primary())


def later(world, seconds, *objects):
    for obj in objects:
        world.at[world.now + seconds + len(world.at) / 100] = lambda obj=obj: world.put(obj)


def not_ready_yet():
    return builders.excluding_kubevirt(conditions={"Available": "False", "Progressing": "True"})


class TestPrimary:
    def settle(self, world, *, excluded=True, timeout=100, **more):
        began = world.now
        settle.await_primary(world.client(), builders.snapshot_of(), timeout, world.clock(), excluded=excluded, **more)
        return world.now - began

    def test_that_is_as_asked_is_not_waited_for(self, world):
        assert self.settle(world) == 0

    def test_is_awaited_until_the_exclusion_is_rolled_out(self, world):
        world.put(builders.primary(excluded=False))
        later(world, 20, builders.primary(ready=1), not_ready_yet())
        later(world, 50, builders.primary(), builders.excluding_kubevirt())
        assert 50 <= self.settle(world) < 56

    def test_is_awaited_until_it_has_the_terms_that_hco_renders(self, world):
        zone = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
        edit = exclusion.with_exclusion(*builders.under_hco(builders.kubevirt(), zone))
        later(world, 20, builders.primary(terms=[zone]))
        assert self.settle(world) == 0
        assert 20 <= self.settle(world, edit=edit) < 26

    def test_is_waited_for_until_the_exclusion_is_gone(self, world):
        world.put(builders.kubevirt())
        later(world, 20, builders.primary(excluded=False))
        assert 20 <= self.settle(world, excluded=False) < 26

    def test_a_refusal_by_a_deleted_guard_ends_no_wait(self, world):
        """virt-operator tries again at longer and longer intervals, also once a removal has deleted the guard."""
        conditions = {"Available": "False", "Degraded": "True"}
        refused, asks = builders.kubevirt(conditions=conditions), builders.excluding_kubevirt(conditions=conditions)
        for condition in (*refused["status"]["conditions"], *asks["status"]["conditions"]):
            condition["message"] = f"ValidatingAdmissionPolicy '{names.EXCLUSION_GUARD}' denied request"
        world.put(refused)
        later(world, 150, builders.primary(excluded=False), builders.kubevirt())
        assert 150 <= self.settle(world, excluded=False, timeout=300) < 160
        world.put(asks)
        told = "stays degraded: it asks for a virt-handler .* the guard refuses. See which client has removed the exclusion"
        with pytest.raises(ClusterError, match=told):
            self.settle(world, timeout=300)

    def test_of_a_removal_stays_degraded_for_another_reason(self, world):
        world.put(builders.kubevirt(conditions={"Degraded": "True"}))
        with pytest.raises(ClusterError, match="stays degraded"):
            self.settle(world, excluded=False, timeout=300)

    @pytest.mark.parametrize("seconds", [60, 300])
    def test_an_hco_that_does_not_act_is_named(self, world, seconds):
        kubevirt, hyperconverged = builders.under_hco(builders.kubevirt(), operations=[builders.hco_exclusion()])
        world.put(kubevirt)
        world.put(hyperconverged)
        world.put(builders.primary(excluded=False))
        later(world, seconds, builders.excluding_kubevirt(), builders.primary())
        snapshot = builders.snapshot_of(of_kubevirt=kubevirt, hyperconvergeds=[hyperconverged])
        began = world.now
        with (
            contextlib.nullcontext()
            if seconds == 60
            else pytest.raises(
                ClusterError,
                match=r"HCO has not brought the exclusion .* \(Deployment hco-operator in namespace kubevirt\)",
            )
        ):
            settle.await_primary(world.client(), snapshot, 1800, world.clock(), excluded=True)
        assert world.now - began < 120

    @pytest.mark.parametrize("excluded", [True, False])
    @pytest.mark.parametrize("hco", [False, True], ids=["KubeVirt", "HCO"])
    def test_that_another_client_undoes_ends_the_wait(self, world, hco, excluded):
        asks, other = builders.excluding_kubevirt(), builders.kubevirt()
        found, name = {}, "KubeVirt kubevirt/kubevirt"
        if hco:
            operations = [] if excluded else [builders.hco_exclusion()]
            (asks, _hco), (other, hyperconverged) = (
                builders.under_hco(each, operations=operations) for each in (asks, other)
            )
            found, name = {"hyperconvergeds": [hyperconverged]}, "HyperConverged kubevirt/kubevirt-hyperconverged"
            world.put(hyperconverged)
        world.put(asks if excluded else other)
        world.put(builders.primary(excluded=not excluded))
        later(world, 5, other if excluded else asks)
        began, snapshot = world.now, builders.snapshot_of(of_kubevirt=other, **found)
        done = "removed the exclusion from" if excluded else "added the exclusion again to"
        with pytest.raises(ClusterError, match=f"Another client has {done} {name} while .* GitOps"):
            settle.await_primary(world.client(), snapshot, 1800, world.clock(), excluded=excluded)
        assert 15 <= world.now - began < 20

    def test_that_takes_too_long_is_said_with_how_far_it_is(self, world):
        world.put(not_ready_yet())
        world.put(builders.primary(ready=1))
        with pytest.raises(
            ClusterError, match=r"did not settle within 100 s: .*1 are Ready\. KubeVirt goes on by itself"
        ):
            self.settle(world)

    def test_stays_degraded(self, world):
        world.put(builders.excluding_kubevirt(conditions={"Degraded": "True"}))
        began = world.now
        with pytest.raises(ClusterError, match=r"stays degraded: Degraded\?"):
            self.settle(world, timeout=1000)
        assert 45 <= world.now - began < 50

    def test_degraded_for_a_moment_only(self, world):
        world.put(builders.excluding_kubevirt(conditions={"Degraded": "True"}))
        later(world, 30, builders.excluding_kubevirt())
        assert 30 <= self.settle(world) < 36

    def test_an_upgrade_ends_the_wait(self, world):
        world.put(builders.excluding_kubevirt(targetKubeVirtVersion="v1.9.1"))
        with pytest.raises(ClusterError, match=r"is being upgraded from v1.9.0 to v1.9.1"):
            self.settle(world)

    def test_handlers_of_dead_nodes_are_not_waited_for(self, world):
        world.put(builders.excluding_kubevirt(conditions={"Available": "False"}))
        world.put(builders.primary(desired=3, ready=2))
        world.put(builders.node("dead", ready=False))
        world.put(builders.handler_pod("dead", ready=False))
        world.put(builders.node("n1", "gpu"))
        world.put(builders.handler_pod("n1", "virt-handler-gpu", ready=False))
        assert self.settle(world) == 0, "nor are those of pools"

    @pytest.mark.parametrize("dead", [30, 150])
    def test_the_nodes_of_many_dead_handlers_are_read_at_once(self, world, dead):
        """HCO lets a tenth of all handlers restart at the same time."""
        world.put(builders.excluding_kubevirt(conditions={"Available": "False"}))
        world.put(builders.primary(desired=dead + 2, ready=2))
        for number in range(dead):
            world.put(builders.node(f"dead-{number}", ready=False))
            world.put(builders.handler_pod(f"dead-{number}", ready=False))
        assert self.settle(world) == 0
        assert 1 <= sum("/nodes" in request.path for request in world.requests) <= 2

    def test_a_rollout_held_up_by_a_broken_handler_names_it(self, world):
        world.put(builders.primary(desired=2, ready=1))
        world.put(builders.node("bad"))
        world.put(builders.broken(builders.handler_pod("bad", ready=False)))
        world.behave["virt-handler", "bad"] = Behaviour(start=None)
        with pytest.raises(ClusterError, match=r"1 handler does not start: bad \(pod virt-handler-bad: container"):
            self.settle(world, timeout=1000)

    def test_a_rollout_held_up_by_dead_nodes_fails_with_their_names(self, world):
        """KubeVirt says that it has settled; its canary rollout allows one unavailable handler at a time."""
        world.put(builders.primary(desired=3, ready=1))
        world.put(builders.node("dead", ready=False))
        world.put(builders.handler_pod("dead", ready=False))
        world.behave["virt-handler", "dead"] = Behaviour(start=None)
        began = world.now
        with pytest.raises(ClusterError, match=r"no progress, and 1 node with a handler is not Ready \(dead\)"):
            self.settle(world, timeout=1000)
        assert 180 <= world.now - began < 190

    def test_a_rollout_that_goes_on_slowly_is_not_held_up(self, world):
        world.put(builders.primary(desired=6, ready=1))
        for ready in range(2, 6):
            later(world, 100 * (ready - 1), builders.primary(desired=6, ready=ready))
        later(world, 500, builders.primary(desired=6, ready=6))
        world.put(builders.node("dead", ready=False))
        world.put(builders.handler_pod("dead", ready=False))
        world._tick = lambda: None
        assert 500 <= self.settle(world, timeout=1000) < 520

    def test_a_rollout_held_up_by_nothing_that_shows_is_awaited(self, world):
        world.put(builders.primary(desired=2, ready=1))
        world._tick = lambda: None
        later(world, 300, builders.primary(desired=2, ready=2))
        assert 300 <= self.settle(world, timeout=1000) < 310

    def test_the_handler_of_a_node_that_came_back_is_awaited(self, world):
        world._tick = lambda: None
        world.put(builders.excluding_kubevirt(conditions={"Available": "False"}))
        world.put(builders.primary(excluded=False, desired=3, ready=2))
        world.put(builders.node("dead", ready=False))
        world.put(builders.handler_pod("dead", ready=False))
        later(world, 20, builders.node("dead"), builders.excluding_kubevirt(), builders.primary(desired=3, ready=2))
        later(world, 50, builders.primary(desired=3, ready=3))
        assert 50 <= self.settle(world) < 56

    def test_handlers_that_start_on_good_nodes_are(self, world):
        world.put(builders.excluding_kubevirt(conditions={"Available": "False"}))
        world.put(builders.primary(desired=3, ready=2))
        world.put(builders.node("n1"))
        world.behave["virt-handler", "n1"] = Behaviour(start=None)
        with pytest.raises(ClusterError, match="did not settle"):
            self.settle(world)

    @pytest.mark.parametrize("pod", [builders.handler_pod(""), builders.handler_pod("gone")], ids=["unbound", "gone"])
    def test_pods_on_no_node_do_no_harm(self, pod):
        """A new pod has no node yet, and the pod of a deleted node stays for a while."""
        pod["status"]["conditions"][0]["status"] = "False"
        world = World(not_ready_yet(), builders.primary(ready=1), pod)
        world._tick = lambda: None
        later(world, 10, builders.primary(), builders.excluding_kubevirt())
        assert 10 <= self.settle(world) < 14


class TestVersion:
    @pytest.mark.parametrize(
        ("fields", "pending"),
        [
            ({}, None),
            ({"targetKubeVirtVersion": "v1.9.1"}, "is at v1.9.0, not at v1.9.0 yet"),
            ({"conditions": {"Available": "False"}}, "kubevirt/kubevirt: "),
        ],
        ids=["settled", "being upgraded", "not available"],
    )
    def test_is_there_once_kubevirt_has_settled(self, world, fields, pending):
        world.put(builders.kubevirt(**fields))
        found = settle.await_version(world.client(), NS, "kubevirt", "v1.9.0", 0, world.clock())
        assert pending in found if pending else found is None

    def test_before_it_is_awaited(self, world):
        assert "is at v1.9.0, not at v1.9.1 yet" in settle.await_version(
            world.client(), NS, "kubevirt", "v1.9.1", 0, world.clock()
        )


class TestGates:
    def test_are_awaited_until_kubevirt_has_them(self, world):
        present = builders.kubevirt()
        world.put(present)
        arrived = copy.deepcopy(present)
        arrived["spec"].setdefault("configuration", {})["developerConfiguration"] = {"featureGates": ["Sidecar"]}
        later(world, 20, arrived)
        began = world.now
        settle.await_gates(world.client(), present, Gates(present=("Sidecar",)), 100, world.clock())
        assert 20 <= world.now - began < 26


class TestFit:
    def test_is_waited_for(self, world):
        world.put(not_ready_yet())
        later(world, 10, builders.excluding_kubevirt())
        began = world.now
        settle.await_settled(world.client(), NS, "kubevirt", 60, world.clock())
        assert 10 <= world.now - began < 16

    def test_is_not_waited_for_without_end(self, world):
        world.put(not_ready_yet())
        with pytest.raises(
            ClusterError, match=r"did not settle within 60 s: it is not available .*Nothing was changed"
        ):
            settle.await_settled(world.client(), NS, "kubevirt", 60, world.clock())

    def test_a_dead_node_hides_no_handler_that_starts(self, world):
        world.put(builders.excluding_kubevirt(conditions={"Available": "False"}))
        world.put(builders.primary(desired=3, ready=1))
        for node in ("dead", "n1"):
            world.put(builders.node(node, ready=node == "n1"))
            world.put(builders.handler_pod(node, ready=False))
        world.behave["virt-handler", "dead"] = Behaviour(start=None)
        world.behave["virt-handler", "n1"] = Behaviour(start=20)
        later(world, 20.5, builders.primary(desired=3, ready=2))
        began = world.now
        settle.await_settled(world.client(), NS, "kubevirt", 60, world.clock())
        assert 20 <= world.now - began < 24

    def test_handlers_are_read_seldom_while_many_restart(self, world):
        world.put(not_ready_yet())
        world.put(builders.primary(desired=3000, ready=2700))
        later(world, 58, builders.excluding_kubevirt())
        settle.await_settled(world.client(), NS, "kubevirt", 60, world.clock())
        assert sum(request.path.endswith("/pods") for request in world.requests) == 4

    @pytest.mark.parametrize("deployment", ["new", "7094f6"])
    def test_another_deployment_is_waited_for_but_not_on_dead_nodes(self, world, deployment):
        world.put(builders.excluding_kubevirt(targetDeploymentID="new", conditions={"Progressing": "True"}))
        primary = builders.primary(desired=3, ready=2)
        primary["metadata"].setdefault("annotations", {}).update(
            {
                names.VERSION_ANNOTATION: builders.VERSION,
                names.DEPLOYMENT_ANNOTATION: deployment,
                names.GENERATION_ANNOTATION: "2",
            }
        )
        world.put(primary)
        world.put(builders.node("dead", ready=False))
        world.put(builders.handler_pod("dead", ready=False))
        if deployment == "new":
            settle.await_settled(world.client(), NS, "kubevirt", 60, world.clock())
        else:
            with pytest.raises(ClusterError, match="another deployment of the same version"):
                settle.await_settled(world.client(), NS, "kubevirt", 60, world.clock())


class TestMigrations:
    def put(self, world, name="m1", node="n1", phase="Running"):
        world.put(kinds.VIRTUAL_MACHINE_INSTANCE.object(name, "vms", status={"phase": "Running", "nodeName": node}))
        state = {"sourceNode": node} if node else {}
        kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
        status = {"phase": phase, "migrationState": state}
        world.put(kind.object(name, "vms", spec={"vmiName": name}, status=status))

    def running(self, world, nodes, timeout=60):
        return settle.await_migrations(world.client(), nodes, timeout, world.clock())

    def test_through_a_node_are_waited_for(self, world):
        self.put(world)
        world.at[world.now + 20] = lambda: self.put(world, phase="Succeeded")
        assert self.running(world, ["n1", "n2"]) is None
        assert 1020 <= world.now < 1026

    def test_that_never_end_are_named(self, world):
        self.put(world)
        assert self.running(world, ["n1"]) == (
            "VM vms/m1 (migration m1, Running). Wait for them, or cancel them (`kubectl delete vmim m1 -n vms`), then run again."
        )

    def test_that_are_started_again_and_again_are_told(self, world):
        self.put(world, "m0")
        self.put(world)
        world.at[world.now + 20] = lambda: self.put(world, "m0", phase="Succeeded")
        assert "While the run waited, 1 other one ended: if a descheduler" in self.running(world, ["n1"])

    def test_elsewhere_do_not_matter(self, world):
        self.put(world, node="n9")
        assert self.running(world, ["n1"]) is None
        assert world.now == 1000

    def test_of_all_nodes(self, world):
        self.put(world, node="n9")
        assert "migration m1" in self.running(world, None)

    def test_of_a_vm_that_is_on_no_node_yet_hold_none(self, world):
        self.put(world, node=None)
        assert self.running(world, ["n1"]) is None


class TestDaemonSet:
    def test_is_observed_once_the_controller_saw_this_generation(self, world):
        live = builders.pool_daemonset(builders.pool("gpu"), generation=3)
        live["status"]["observedGeneration"] = 2
        world.put(live)
        settle.await_daemonset_observed(world.client(), NS, "virt-handler-gpu", 60, world.clock())
        assert 1000 < world.now < 1005

    def test_is_not_observed_without_a_controller(self, world):
        live = builders.pool_daemonset(builders.pool("gpu"))
        del live["status"]
        world.put(live)
        world._tick = lambda: None
        with pytest.raises(ClusterError, match="kube-controller-manager"):
            settle.await_daemonset_observed(world.client(), NS, "virt-handler-gpu", 60, world.clock())

    def test_is_gone(self, world):
        deleted = world.put(builders.pool_daemonset(builders.pool("gpu")))
        world.at[world.now + 5] = lambda: world.drop(kinds.DAEMON_SET, "virt-handler-gpu", NS)
        settle.await_daemonset_gone(world.client(), deleted, 60, world.clock())
        assert 1005 <= world.now < 1010

    def test_is_not_gone_when_another_client_creates_it_again(self, world):
        """As a GitOps tool does that has it in its repository: nothing holds it."""
        deleted, another = (builders.pool_daemonset(builders.pool("gpu")) for _each in range(2))
        another["metadata"]["uid"] = "uid-of-another"
        world.put(deleted)
        world.at[world.now + 5] = lambda: world.put(another)
        with pytest.raises(
            ClusterError, match="was deleted, and another client has created it again. See who did that"
        ):
            settle.await_daemonset_gone(world.client(), deleted, 60, world.clock())
        assert world.now < 1010

    def test_is_not_gone_while_its_pods_do_not_end(self, world):
        of = "virt-handler-gpu"
        pods = (builders.handler_pod(node, of=of, terminating=True, name=f"h-{node}") for node in ("n1", "left"))
        deleted = world.put(builders.pool_daemonset(builders.pool("gpu")))
        for obj in (builders.node("n1"), *pods, builders.handler_pod("n1")):
            world.put(obj)
        world._tick = lambda: None
        with pytest.raises(ClusterError) as raised:
            settle.await_daemonset_gone(world.client(), deleted, 60, world.clock())
        assert str(raised.value) == (
            f"DaemonSet {NS}/{of} was deleted but still exists after 60 s; its pods that have not ended: h-left (on node left, "
            "which no longer exists: Kubernetes will delete it), h-n1 (on node n1). See what holds it, then run again."
        )


def test_a_daemonset_controller_that_is_behind_has_not_seen_it():
    gpu = builders.pool_daemonset(builders.pool("gpu"))
    world = World(builders.excluding_kubevirt(), builders.primary(), gpu)
    world.sleep(1)
    assert settle.is_daemonset_observed(world.client(), NS, "virt-handler-gpu")
    world.find(kinds.DAEMON_SET, "virt-handler-gpu", NS)["metadata"]["generation"] = 99
    assert not settle.is_daemonset_observed(world.client(), NS, "virt-handler-gpu")
