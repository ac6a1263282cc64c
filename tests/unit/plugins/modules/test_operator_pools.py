# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operator mode against the operators of the three builds: bringing pools, changing them, taking them away."""

from __future__ import annotations

import copy
import itertools
import json
import typing as t

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names, permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import edits
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode
from ansible_collections.virtpools.kubevirt.tests.unit.support.disturbance import is_write
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour, Refused
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator_mode import GATES
from ansible_collections.virtpools.kubevirt.tests.unit.support.operated_pools import (
    HANDLER,
    LAUNCHER,
    SELECTOR,
    kubevirt,
    make,
    operator,
    pool,
)

BUILDS = ("A", "B", "C")
THEIRS = {"op": "add", "path": "/spec/configuration/evictionStrategy", "value": "LiveMigrate"}
"""An operation in HCO's annotation that is somebody else's."""


@pytest.fixture(params=BUILDS)
def build(request):
    return request.param


@pytest.fixture
def world(build):
    made = make(build)
    made.sleep(5)
    made.writes.clear()
    return made


def images(world, node):
    (pod,) = world.pods(node)
    return {each["name"]: each["image"] for each in pod["spec"]["containers"]}


class TestBrings:
    def test_the_pool_to_its_nodes(self, run, world, build):
        found = operator(run, build)
        assert found["changed"]
        assert [world.handlers(node) for node in ("n1", "n2", "n3", "n4")] == [
            *[["virt-handler-gpu"]] * 2,
            *[["virt-handler"]] * 2,
        ]
        assert images(world, "n1")["virt-handler"] == HANDLER
        holder = images(world, "n1")[fake_operator_mode.HOLDER]
        assert holder == (builders.LAUNCHER_IMAGE if build == "C" else LAUNCHER)
        assert GATES[build] in kubevirt(world)["spec"]["configuration"]["developerConfiguration"]["featureGates"]

    def test_nothing_a_second_time(self, run, world, build):
        operator(run, build)
        world.writes.clear()
        found = operator(run, build)
        assert (found["changed"], found["changes"], world.writes) == (False, [], [])
        assert not run("plan_info", mode="auto", pools=[pool(build)])["pending"]

    def test_and_notes_that_virt_operator_goes_on_by_itself(self, run, build, monkeypatch):
        notes = []
        monkeypatch.setattr(module_base, "note", lambda lines: notes.append(lines[:1]))
        operator(run, build)
        assert notes == [["The run was interrupted. virt-operator goes on with what it has begun."], []]

    def test_nothing_in_check_mode(self, run, world, build):
        found = operator(run, build, check=True)
        assert found["changed"]
        assert world.writes == []
        assert found["diff"][0]["after"] != {}

    def test_says_which_nodes_had_no_handler(self, run, world, build):
        found = operator(run, build)
        assert found["without_handler"].keys() <= world.bare.keys()
        assert {"n1", "n2"} <= found["without_handler"].keys()
        assert any("had no handler for a while" in line for line in found["text"])

    def test_another_image(self, run, world, build):
        operator(run, build)
        found = operator(run, build, pool(build, virtHandlerImage=f"{HANDLER}-2"))
        assert found["changed"]
        assert images(world, "n1")["virt-handler"] == f"{HANDLER}-2"

    def test_a_second_pool(self, run, world, build):
        operator(run, build)
        operator(run, build, pool(build), pool(build, "fpga"))
        assert world.handlers("n3") == ["virt-handler-fpga"]
        assert world.handlers("n1") == ["virt-handler-gpu"]

    def test_keeps_a_pool_that_is_not_listed_unless_told(self, run, world, build):
        operator(run, build, pool(build), pool(build, "fpga"))
        operator(run, build)
        assert world.handlers("n3") == ["virt-handler-fpga"]
        operator(run, build, prune=True)
        assert world.handlers("n3") == ["virt-handler"]
        assert world.find(kinds.DAEMON_SET, "virt-handler-fpga", builders.NAMESPACE) is None


class TestMirror:
    """Admission gives every handler its image from a mirror."""

    @pytest.fixture(autouse=True)
    def mirror(self, world):
        def rewritten(daemonset):
            for container in daemonset["spec"]["template"]["spec"]["containers"]:
                container["image"] = f"mirror.example/cache/{container['image'].rpartition('/')[2]}"
            return daemonset

        world.rewritten = rewritten

    def test_is_not_waited_for(self, run, world, build):
        operator(run, build)
        assert images(world, "n1")["virt-handler"].startswith("mirror.example/cache/")
        operator(run, build, pool(build, virtHandlerImage=f"{HANDLER}-2"))
        assert images(world, "n1")["virt-handler"].endswith("-2")

    def test_is_nothing_to_do_and_no_drift(self, run, world, build):
        operator(run, build)
        world.writes.clear()
        found = operator(run, build)
        assert (found["changed"], world.writes) == (False, [])
        assert run("verification_info")["problems"] == {}

    def test_another_image_is_still_noticed(self, run, world, build):
        operator(run, build)
        live = world.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
        live["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example/cache/virt-handler:other"
        assert "daemonset_drift" in run("verification_info", fail_on="none")["problems"]


class TestLabels:
    """Once the list is there, nodes change owners by their labels: Kubernetes ends one handler and starts the other at once."""

    def test_let_one_node_join_and_the_run_waits_for_it(self, run, world, build):
        operator(run, build)
        world.writes.clear()
        world.find(kinds.NODE, "n4")["metadata"]["labels"]["hw"] = "gpu"
        found = run("plan_info", mode="auto", pools=[pool(build)])
        assert (found["pending"], found["changes"]) == (True, ["Node n4: primary -> gpu"])
        (waits,) = [line for line in found["text"] if "have exactly one Ready handler" in line]
        assert waits.startswith(
            "virt-operator has not finished: 1 node does not have exactly one Ready handler yet: n4."
        )
        before = kubevirt(world)["metadata"]["generation"]
        found = operator(run, build)
        assert (found["changed"], found["changes"]) == (False, [])
        assert [world.handlers(f"n{number}") for number in (1, 4, 5)] == [
            *[["virt-handler-gpu"]] * 2,
            ["virt-handler"],
        ]
        assert kubevirt(world)["metadata"]["generation"] == before

    def test_a_former_handler_that_still_ends_is_waited_for(self, run, world, build):
        """Both DaemonSets are rolled out by then: neither counts a pod that ends on a node that is not its own."""
        operator(run, build)
        world.find(kinds.NODE, "n4")["metadata"]["labels"]["hw"] = "gpu"
        world.behave["virt-handler", "n4"] = Behaviour(stop=60.0)
        world.sleep(30)
        assert sorted(world.handlers("n4")) == ["virt-handler", "virt-handler-gpu"]
        found = run("plan_info", mode="auto", pools=[pool(build)])
        assert (found["pending"], found["changes"]) == (True, ["Node n4: gpu and primary -> gpu"])
        operator(run, build)
        assert world.handlers("n4") == ["virt-handler-gpu"]


class TestTakesAway:
    @pytest.mark.parametrize("gates", [None, [], ["LiveMigration"]])
    def test_everything_that_it_brought(self, run, world, build, gates):
        world.put(fake_operator_mode.kubevirt(gates=gates))
        world.synced = None
        world.sleep(5)
        before = copy.deepcopy(kubevirt(world)["spec"])
        operator(run, build)
        found = run("operator_pools", remove_pools="all")
        assert found["changed"], found
        assert kubevirt(world)["spec"] == before
        assert world.all(kinds.WORKER_POOL) == []
        assert {tuple(world.handlers(f"n{number}")) for number in range(1, 6)} == {("virt-handler",)}
        assert world.find(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE) is None
        world.writes.clear()
        assert not run("plan_info", mode="operator", remove_pools="all")["pending"]

    def test_but_not_a_gate_that_was_on_before(self, run, world, build):
        world.put(fake_operator_mode.kubevirt(gates=[GATES[build]]))
        world.synced = None
        world.sleep(5)
        operator(run, build)
        run("operator_pools", remove_pools="all")
        assert kubevirt(world)["spec"]["configuration"]["developerConfiguration"]["featureGates"] == [GATES[build]]
        assert {tuple(world.handlers(f"n{number}")) for number in range(1, 6)} == {("virt-handler",)}

    def test_and_names_the_install_strategies_that_stay(self, run, world, build):
        """Those of lists; not the one of KubeVirt as it is, nor another ConfigMap."""
        for name, deployment in (("of-list", "a list"), ("in-use", "d1"), ("of-nothing", None)):
            strategy = kinds.CONFIG_MAP.object(f"strategy-{name}", builders.NAMESPACE)
            strategy["metadata"]["labels"] = {"kubevirt.io/install-strategy": ""}
            strategy["metadata"]["annotations"] = {names.DEPLOYMENT_ANNOTATION: deployment} if deployment else {}
            world.put(strategy)
        world.put(kinds.CONFIG_MAP.object("other", builders.NAMESPACE))
        assert operator(run, build)["install_strategies"] == []
        found = run("operator_pools", remove_pools="all")
        command = "kubectl delete configmap -n kubevirt strategy-of-list"
        assert found["install_strategies"] == (["strategy-of-list"] if build == "A" else [])
        assert any(line.endswith(command) for line in found["text"]) == (build == "A")
        assert world.find(kinds.CONFIG_MAP, "strategy-of-list", builders.NAMESPACE) is not None

    def test_one_of_two(self, run, world, build):
        operator(run, build, pool(build), pool(build, "fpga"))
        run("operator_pools", remove_pools=["gpu"])
        assert world.handlers("n1") == ["virt-handler"]
        assert world.handlers("n3") == ["virt-handler-fpga"]

    def test_no_pool_that_is_not_there(self, run, world, build):
        operator(run, build)
        assert "has no pool fgpa; its pools are: gpu" in run.failure("operator_pools", remove_pools=["fgpa"])


class TestInterrupted:
    @pytest.mark.parametrize("writes", range(1, 6))
    def test_run_is_completed_by_the_next_and_taken_back_whole(self, run, world, build, writes):
        """The run dies after so many writes: of the Lease, the history, the pools, the gate or touch, and the history again."""

        def dies(_request):
            if len(world.writes) >= writes:
                raise KeyboardInterrupt

        world.after = dies
        with pytest.raises(KeyboardInterrupt):
            run("operator_pools", mode="operator", pools=[pool(build)])
        world.after = lambda _request: None
        world.drop(kinds.LEASE, names.LEASE_NAME, builders.NAMESPACE)
        operator(run, build)
        assert world.handlers("n1") == ["virt-handler-gpu"]
        assert world.handlers("n4") == ["virt-handler"]
        run("operator_pools", remove_pools="all")
        assert kubevirt(world)["spec"] == fake_operator_mode.kubevirt()["spec"]
        assert world.all(kinds.WORKER_POOL) == []


class TestRefused:
    def test_with_a_pool_without_a_node(self, run, world, build):
        text = run.failure("operator_pools", mode="operator", pools=[pool(build), pool(build, "none")])
        assert (
            "Pool none would have no node, and KubeVirt becomes available only when each of its DaemonSets has one"
            in text
        )
        assert world.writes == []

    def test_with_what_the_build_cannot_say_all_at_once(self, run, world, build):
        pools = [pool(build, unmatched="keep_off"), pool(build, "fpga", activation="all_moved")]
        text = run.failure("operator_pools", mode="operator", pools=pools)
        assert "Pool gpu: unmatched is set" in text
        assert "Pool fpga: activation is set" in text
        assert world.writes == []


class TestHco:
    @pytest.fixture
    def world(self, build):
        """A cluster whose HCO knows the build's field."""
        managed, hyperconverged = builders.under_hco(fake_operator_mode.kubevirt(gates=[]), operations=[THEIRS])
        made = make(build, of_kubevirt=managed)
        made.rendered = copy.deepcopy(managed["spec"])
        made.put(hyperconverged)
        made.sleep(10)
        made.writes.clear()
        return made

    @staticmethod
    def operations(world):
        stored = world.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE)
        return json.loads(stored["metadata"]["annotations"][names.HCO_PATCH_ANNOTATION])

    def test_brings_changes_and_takes_away_by_the_annotation(self, run, world, build):
        before = copy.deepcopy(kubevirt(world)["spec"])
        operator(run, build)
        assert world.handlers("n1") == ["virt-handler-gpu"]
        assert not [write for write in world.writes if "/kubevirts/" in write], "HCO would revert it"
        world.writes.clear()
        operator(run, build)
        assert world.writes == []
        operator(run, build, pool(build, virtHandlerImage=f"{HANDLER}-2"))
        assert images(world, "n1")["virt-handler"] == f"{HANDLER}-2"
        run("operator_pools", remove_pools="all")
        assert world.handlers("n1") == ["virt-handler"]
        assert self.operations(world) == [THEIRS]
        world.sleep(5)  # nobody waits for HCO to take the gate away
        assert kubevirt(world)["spec"] == before


def add(world, build, name="fpga"):
    """Another user adds a pool."""
    entry = {"name": name, "nodeSelector": {"hw": name}, "virtHandlerImage": HANDLER}
    if build != "A":
        entry["selector"] = SELECTOR
    if build == "C":
        world.put(fake_operator_mode.worker_pool(name, **{key: entry[key] for key in entry if key != "name"}))
        return
    changed = copy.deepcopy(kubevirt(world))
    changed["spec"].setdefault(fake_operator_mode.FIELDS[build], []).append(entry)
    world.put(changed)


def added(world, build):
    if build == "C":
        return [obj["metadata"]["name"] for obj in world.all(kinds.WORKER_POOL)]
    return [entry["name"] for entry in kubevirt(world)["spec"].get(fake_operator_mode.FIELDS[build]) or []]


def test_handlers_are_reminded_of_vms_before_they_restart(run, world, build):
    node = world.handler_pods()[0]["spec"]["nodeName"]
    world.put(builders.migrated_vmi(node))
    world.writes.clear()
    assert operator(run, build)["changed"]
    assert builders.reminders(world.writes) == [0, 1]


def test_the_cluster_is_checked_again_after_a_wait(run, world, build):
    """Another user labels a node of one pool for the other pool while the run waits for a live migration."""
    world.find(kinds.NODE, "n4")["metadata"]["labels"]["disk"] = "big"
    large = pool(build, "large", nodeSelector={"disk": "big"})
    world.put(kinds.VIRTUAL_MACHINE_INSTANCE.object("vm", "vms", status={"nodeName": "n5"}))
    migration = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION.object("m1", "vms", spec={"vmiName": "vm"})
    world.put({**migration, "status": {"phase": "Running"}})

    def label():
        world.find(kinds.NODE, "n1")["metadata"]["labels"]["disk"] = "big"
        world.drop(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION, "m1", "vms")

    world.at[world.now + 60] = label
    text = run.failure("operator_pools", mode="operator", settle_timeout=10, pools=[pool(build), large])
    assert "1 node would get a handler of each of gpu, large (n1): make the nodeSelectors exclude each other." in text
    assert added(world, build) == []


class TestAnotherUser:
    """Adds a pool after the plan was made. A run waits for live migrations before its first write, up to 900 s."""

    @pytest.fixture(autouse=True)
    def pooled(self, run, world, build):
        operator(run, build)
        world.writes.clear()

    def adds_while_the_run_waits(self, world, build):
        def adds(request):
            if request.method != "GET" and f"configmaps/{names.HISTORY}" in request.path:
                world.after = lambda _request: None
                add(world, build)

        world.after = adds

    @pytest.mark.parametrize("prune", [False, True])
    def test_is_not_overwritten(self, run, world, build, prune):
        self.adds_while_the_run_waits(world, build)
        wanted = pool(build, virtHandlerImage=f"{HANDLER}-2")
        text = run.failure("operator_pools", mode="operator", pools=[wanted], prune=prune)
        assert text.startswith("Another user has changed ")
        assert text.endswith("since this run was planned (pool fpga), and the run would undo that: plan again.")
        assert sorted(added(world, build)) == ["fpga", "gpu"]
        operator(run, build, wanted)
        assert sorted(added(world, build)) == ["fpga", "gpu"]

    def test_keeps_its_pool_in_a_removal_of_all(self, run, world, build):
        self.adds_while_the_run_waits(world, build)
        assert "(pool fpga)" in run.failure("operator_pools", remove_pools="all")
        assert sorted(added(world, build)) == ["fpga", "gpu"]

    @pytest.mark.parametrize("removes", [False, True])
    def test_ends_the_wait_for_virt_operator(self, run, world, build, removes):
        """virt-operator follows the list with that pool, and never the run's."""
        asked = {"remove_pools": "all"} if removes else {"pools": [pool(build, virtHandlerImage=f"{HANDLER}-2")]}
        kind, verb = ("workerpools/", "DELETE" if removes else "PUT") if build == "C" else ("kubevirts/", "PUT")

        def adds(request):
            if request.method == verb and kind in request.path and is_write(request):
                world.after = lambda _request: None
                world.at[world.now + 1] = lambda: add(world, build)

        world.after = adds
        began = world.now
        text = run.failure("operator_pools", mode="operator", settle_timeout=1800, **asked)
        assert "(pool fpga) while this run waited for virt-operator, which now follows that change: plan again." in text
        assert world.now - began < 120
        assert "fpga" in added(world, build)

    @pytest.mark.parametrize("place", ["featureGates", "disabledFeatureGates"])
    def test_turns_the_gate_off_and_the_wait_ends(self, run, world, build, place):
        """Without the gate virt-operator ignores the pools, so the run would wait for ever, with two handlers on nodes."""

        def turn_off():
            gates = {"featureGates": []} if place == "featureGates" else {place: [GATES[build]], "featureGates": []}
            kubevirt(world)["spec"]["configuration"]["developerConfiguration"] = gates
            kubevirt(world)["metadata"]["generation"] += 1
            world.touch(kubevirt(world))

        world.at[world.now + 1] = turn_off
        began = world.now
        pools = [pool(build, virtHandlerImage=f"{HANDLER}-2")]
        text = run.failure("operator_pools", mode="operator", settle_timeout=1800, pools=pools)
        assert text.startswith(
            f"Another user has turned off the feature gate {GATES[build]} of KubeVirt kubevirt/kubevirt while this run waited for "
            "virt-operator, which ignores pools without it."
        )
        assert world.now - began < 120

    def test_is_noticed_between_the_plan_and_the_module(self, run, world, build):
        found = run("plan_info", pools=[pool(build, virtHandlerImage=f"{HANDLER}-2")], prune=True)["found_list"]
        add(world, build)
        asked = {"pools": [pool(build)], "prune": True, "mode": "operator"}
        assert "plan again" in run.failure("operator_pools", **asked, found_list=found)
        assert sorted(added(world, build)) == ["fpga", "gpu"]
        now = run("plan_info", **asked)["found_list"]
        assert run("operator_pools", **asked, found_list=now)["changed"]
        assert added(world, build) == ["gpu"]

    def test_a_list_that_did_not_change_is_written(self, run, world, build):
        found = run("plan_info", pools=[pool(build)])["found_list"]
        wanted = pool(build, virtHandlerImage=f"{HANDLER}-2")
        assert run("operator_pools", mode="operator", pools=[wanted], found_list=found)["changed"]


class TestAnotherUserUnderHco:
    @pytest.fixture
    def world(self):
        managed, hyperconverged = builders.under_hco(fake_operator_mode.kubevirt(gates=[]))
        made = make("B", of_kubevirt=managed)
        made.rendered = copy.deepcopy(managed["spec"])
        made.put(hyperconverged)
        made.sleep(10)
        return made

    def test_keeps_an_operation_on_the_list(self, run, world):
        operator(run, "B")
        stored = world.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE)
        annotations = stored["metadata"]["annotations"]

        def adds(request):
            if request.method != "GET" and f"configmaps/{names.HISTORY}" in request.path:
                world.after = lambda _request: None
                operations = json.loads(annotations[names.HCO_PATCH_ANNOTATION])
                operations[0]["value"].append({"name": "fpga", "nodeSelector": {"hw": "fpga"}})
                changed = copy.deepcopy(stored)
                changed["metadata"]["annotations"][names.HCO_PATCH_ANNOTATION] = json.dumps(operations)
                world.put(changed)

        world.after = adds
        text = run.failure("operator_pools", mode="operator", pools=[pool("B", virtHandlerImage=f"{HANDLER}-2")])
        assert "has changed the operation on /spec/virtHandlerPools in the annotation" in text
        now = world.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE)
        assert "fpga" in now["metadata"]["annotations"][names.HCO_PATCH_ANNOTATION]


class TestOnB:
    """What one build is enough for."""

    @pytest.fixture
    def world(self):
        made = make("B")
        made.sleep(5)
        made.writes.clear()
        return made

    def test_the_builds_webhook_refuses_before_anything_is_written(self, run):
        def says_no(request):
            if request.method == "PUT" and ("dryRun", "All") in request.query:
                raise Refused(403, "Forbidden", 'admission webhook "x" denied the request: this build says no')

        run.world.before = says_no
        assert "this build says no" in run.failure("operator_pools", mode="operator", pools=[pool("B")])
        assert run.world.writes == []

    def test_a_crd_without_the_field_is_refused(self, run):
        run.world = make("B", fields=())
        text = run.failure("operator_pools", mode="operator", pools=[pool("B")])
        assert "is a build without pools of its own" in text
        assert "no pools of its own now" in run.failure("operator_pools", pools=[pool("B")])

    def test_an_operator_that_does_not_follow_is_named(self, run):
        run.world.behave["virt-handler-gpu", None] = Behaviour(start=None, broken="ImagePullBackOff")
        text = run.failure("operator_pools", mode="operator", pools=[pool("B")], settle_timeout=60)
        assert "virt-operator did not follow the pools within 60 s: DaemonSet virt-handler-gpu: " in text
        assert "nodes do not have exactly one Ready handler yet: n1, n2 (virt-handler-gpu-" in text
        assert ": container virt-handler: ImagePullBackOff" in text
        run.world.behave.clear()
        for node in ("n1", "n2"):
            for stuck in run.world.pods(node):
                run.world.drop(kinds.POD, stuck["metadata"]["name"], builders.NAMESPACE)
        operator(run, "B")
        assert run.world.handlers("n1") == ["virt-handler-gpu"]

    def test_a_failed_rollout_is_told_by_its_handler(self, run):
        """virt-operator's condition, and its event, say no more than that the rollout failed."""
        failed = {
            "status": "True",
            "reason": "DeploymentFailed",
            "message": "daemonSet virt-handler-gpu rollout failed",
        }
        operate = run.world._operate

        def operate_in_vain():
            operate()
            degraded = next(each for each in kubevirt(run.world)["status"]["conditions"] if each["type"] == "Degraded")
            degraded.update(failed)

        run.world._operate = operate_in_vain
        run.world.behave["virt-handler-gpu", None] = Behaviour(start=None, broken="CrashLoopBackOff")
        text = run.failure("operator_pools", mode="operator", pools=[pool("B")])
        assert "stays degraded: daemonSet virt-handler-gpu rollout failed." in text
        assert ": container virt-handler: CrashLoopBackOff" in text

    def test_each_look_costs_the_same(self, run):
        """However often the wait looks: nodes are read twice a minute, the rest each time."""
        operate, began, asked = run.world._operate, run.world.now, []

        def operate_late():
            asked.append((run.world.now - began, len(run.world.requests)))
            if run.world.now - began > 600:
                operate()

        run.world._operate = operate_late
        operator(run, "B", settle_timeout=1800)
        by_minute = [next(requests for at, requests in asked if at >= 60 * minute) for minute in (2, 4, 6, 8)]
        costs = [after - before for before, after in itertools.pairwise(by_minute)]
        assert max(costs) - min(costs) <= 2, (
            costs
        )  # a look or a renewal of the Lease may fall into the next two minutes

    def test_an_operator_that_does_not_start_is_named(self, run):
        broken = builders.handler_pod("n1", "none", name="virt-operator-1", ready=False)
        broken["metadata"]["labels"] = {names.KUBEVIRT_LABEL: "virt-operator"}
        waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "name": "virt-operator"}
        broken["status"]["containerStatuses"] = [{**waiting, "ready": False, "restartCount": 3}]
        run.world.put(broken)
        run.world._operate = lambda: None
        text = run.failure("operator_pools", mode="operator", pools=[pool("B")], settle_timeout=1800)
        assert text.startswith("virt-operator does not work, so nothing follows the pools: virt-operator-1: ")

    def test_an_hco_that_loses_the_field_is_named(self, run):
        managed, hyperconverged = builders.under_hco(fake_operator_mode.kubevirt())
        run.world = make("B", of_kubevirt=managed)
        run.world.put(hyperconverged)
        run.world._render = lambda: None  # this HCO's type has no such field
        text = run.failure("operator_pools", mode="operator", pools=[pool("B")], settle_timeout=30)
        assert "this HCO was built without that field and loses it" in text
        stored = run.world.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE)
        operations = json.loads(stored["metadata"]["annotations"][names.HCO_PATCH_ANNOTATION])
        assert [operation["path"].rsplit("/", 2)[-2:] for operation in operations] == [
            ["spec", "virtHandlerPools"],
            ["featureGates", "-"],
        ]


class TestRights:
    """A cluster asks for the right before it answers; the fake one does not, so requests are compared with the table."""

    VERBS: t.ClassVar = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

    @pytest.fixture
    def world(self):
        made = make("C")
        made.sleep(5)
        return made

    def test_on_its_own_objects_are_in_the_table(self, run):
        operator(run, "C")
        operator(run, "C", pool("C", virtHandlerImage=f"{HANDLER}-2"))
        run("operator_pools", remove_pools="all")
        asked = {self._verb(each) for each in run.world.requests if "/workerpools" in each.path}
        assert asked == {each.verb for each in permissions.OPERATOR}

    def _verb(self, request):
        named = not request.path.endswith("/workerpools")
        return self.VERBS.get(request.method) or ("get" if named else "list")


class TestOnC:
    @pytest.fixture
    def world(self):
        made = make("C", of_kubevirt=fake_operator_mode.kubevirt(gates=[GATES["C"]]))
        made.sleep(5)
        return made

    def test_says_which_nodes_had_two(self, run):
        found = operator(run, "C")
        assert found["with_two_handlers"].keys() == {node for _now, node in run.world.doubled} == {"n1", "n2"}
        assert run.world.handlers("n1") == ["virt-handler-gpu"]
        assert kubevirt(run.world)["spec"] == fake_operator_mode.kubevirt(gates=[GATES["C"]])["spec"]

    def _by_hand(self, world, *, objects):
        """Turn the gate off, and maybe delete the objects: virt-operator leaves the DaemonSet behind."""
        changed = copy.deepcopy(kubevirt(world))
        changed["spec"].pop("configuration")
        changed["metadata"]["generation"] += 1
        world.put(changed)
        for obj in [] if objects else world.all(kinds.WORKER_POOL):
            world.drop(kinds.WORKER_POOL, obj["metadata"]["name"])
        world.sleep(30)
        assert sorted(world.handlers("n1")) == ["virt-handler", "virt-handler-gpu"]
        world.bare.clear()

    @pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "unrecorded"])
    @pytest.mark.parametrize("objects", [True, False], ids=["objects", "no objects"])
    def test_removes_what_the_gate_left_behind(self, run, objects, recorded):
        operator(run, "C")
        self._by_hand(run.world, objects=objects)
        before = copy.deepcopy(kubevirt(run.world)["spec"])
        if not recorded:
            run.world.drop(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE)
        run("operator_pools", remove_pools="all", mode="auto")
        assert {tuple(run.world.handlers(f"n{number}")) for number in range(1, 6)} == {("virt-handler",)}
        assert (kubevirt(run.world)["spec"], run.world.all(kinds.WORKER_POOL)) == (before, [])
        assert not run.world.bare.keys() & {"n1", "n2"}
        assert not run("plan_info", remove_pools="all", mode="operator")["pending"]

    def test_takes_a_pool_away_with_the_gate_off(self, run):
        operator(run, "C", pool("C"), pool("C", "fpga"))
        self._by_hand(run.world, objects=True)
        operator(run, "C", pool("C", "fpga"), prune=True)
        assert [run.world.handlers(node) for node in ("n1", "n3")] == [["virt-handler"], ["virt-handler-fpga"]]

    def test_counts_while_it_waits_for_a_deletion(self, run):
        operator(run, "C")
        world, delete = run.world, run.world._delete
        began, primary = world.now, world.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)

        def delete_late(daemonset):
            # virt-operator follows another change of the KubeVirt object first.
            primary["spec"]["template"]["spec"].pop("affinity", None)
            if world.now - began > 60:
                delete(daemonset)

        world._delete = delete_late
        assert {"n1", "n2"} <= run("operator_pools", remove_pools="all")["with_two_handlers"].keys()

    def test_a_pool_that_is_being_deleted_is_refused(self, run):
        """By another client, with a finalizer: it will go, and cannot stay."""
        operator(run, "C")
        run.world.find(kinds.WORKER_POOL, "gpu")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        run.world.writes.clear()
        text = run.failure("operator_pools", mode="operator", pools=[pool("C")])
        assert "WorkerPool gpu is being deleted" in text
        assert run.world.writes == []
        assert run("operator_pools", remove_pools="all")["changed"]


class TestOnCUnderHco:
    @pytest.fixture
    def world(self):
        """The gate is on, so that only the touch makes virt-operator look at the objects."""
        managed, hyperconverged = builders.under_hco(fake_operator_mode.kubevirt(gates=[GATES["C"]]))
        made = make("C", of_kubevirt=managed)
        made.rendered = copy.deepcopy(managed["spec"])
        made.put(hyperconverged)
        made.sleep(10)
        return made

    @pytest.fixture
    def touched(self, run, world):
        """A run died after it had written the touch, and HCO has not followed yet."""
        operator(run, "C")
        hyperconverged = copy.deepcopy(world.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE))
        touch = {"op": "add", "path": f"/{'/'.join(edits._TO_GATES)}/-", "value": edits.TOUCH}
        hyperconverged["metadata"].setdefault("annotations", {})[names.HCO_PATCH_ANNOTATION] = json.dumps([touch])
        world.put(hyperconverged)
        return world

    def test_an_unfinished_touch_goes(self, run, touched):
        operator(run, "C")
        stored = touched.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE)
        assert edits.TOUCH not in json.dumps(stored["metadata"])
        touched.sleep(5)
        assert edits.TOUCH not in json.dumps(kubevirt(touched))

    def test_an_unfinished_touch_loses_no_change(self, run, touched):
        operator(run, "C", pool("C", virtHandlerImage=f"{HANDLER}-2"))
        assert images(touched, "n1")["virt-handler"] == f"{HANDLER}-2"
        touched.sleep(5)
        assert edits.TOUCH not in json.dumps([kubevirt(touched), touched.all(kinds.HYPER_CONVERGED)])
