# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the reading modules, and the roles, say about pools that KubeVirt itself makes."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator_mode import GATES, LABELS
from ansible_collections.virtpools.kubevirt.tests.unit.support.operated_pools import (
    HANDLER,
    LAUNCHER,
    kubevirt,
    make,
    operator,
    pool,
)
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play, TaskFailed

NAMES = {"A": "additionalVirtHandlers", "B": "virtHandlerPools", "C": "WorkerPool"}
LATER = "2999-01-01T00:00:00Z"


@pytest.fixture(params=["A", "B", "C"])
def build(request):
    return request.param


@pytest.fixture
def world(build):
    """A cluster that has settled, without pools."""
    made = make(build)
    made.sleep(5)
    made.writes.clear()
    return made


@pytest.fixture
def pooled(build, run, world):
    """The same cluster with the pool."""
    operator(run, build)
    world.writes.clear()
    return world


def error_codes(found):
    return [each["code"] for each in found["findings"] if each["severity"] == "error"]


def vm(world, build, name="vm", *, on="n1", image=LAUNCHER, noted="gpu", by="gpus", **fields):
    """A VM that asks for the device and the nodes of the pool, as virt-controller of the build makes its pod."""
    pod = vms.launcher(name, on, None, image=image, node_selector={"hw": "gpu"}, **fields)
    if noted:
        pod["metadata"].setdefault("annotations", {})[LABELS[build]] = noted
    running = vms.vmi(name, on)
    # Builds look at the VM instance. Its pod has the device in limits in any case.
    running["spec"] = {
        "nodeSelector": {"hw": "gpu"},
        "domain": {"devices": {by: [{"deviceName": vms.DEVICE}]} if by else {}},
    }
    if not by:
        del running["spec"]["nodeSelector"]
    pod["metadata"]["labels"][names.CREATED_BY_LABEL] = running["metadata"]["uid"]
    world.put(pod)
    world.put(running)
    return pod


def verdicts(found):
    return {name: count for name, count in found["verdicts"].items() if count}


def codes(found):
    return [finding["code"] for finding in found["findings"]]


class TestPlan:
    def test_says_what_is_written_and_what_happens_on_each_node(self, run, build):
        found = run("plan_info", mode="operator", pools=[pool(build)])
        assert (found["mode"], found["build"], found["errors"]) == ("operator", NAMES[build], [])
        assert found["changes"][-2:] == ["Node n1: primary -> gpu", "Node n2: primary -> gpu"]
        assert found["owners"] == {"primary": {"now": 5, "after": 3}, "gpu": {"now": 0, "after": 2}}
        assert {"operator_window", "operator_restarts"} <= set(codes(found))
        assert found["published"]["localhost"]["site"]["digest"] == found["digest"]
        assert run.world.writes == []

    def test_of_nothing(self, run, pooled, build):
        found = run("plan_info", pools=[pool(build)])
        assert (found["mode"], found["pending"], found["recorded"], found["changes"]) == ("operator", False, True, [])
        assert "No change: everything matches the pools." in found["text"]
        assert found["state"] == run("pool_info")["text"]

    def test_is_approved_by_its_digest(self, run, pooled, build):
        asked = {"pools": [pool(build), pool(build, "fpga")]}
        digest = run("plan_info", **asked)["digest"]
        assert run("plan_info", expected_plan=digest, **asked)["digest"] == digest
        text = run.failure("plan_info", expected_plan=digest, pools=[pool(build)])
        assert "The plan is not the approved one: the desired objects" in text
        operator(run, build, *asked["pools"])
        assert run("plan_info", expected_plan=digest, **asked)["pending"] is False

    def test_refuses_over_exclusion_and_names_the_nodes(self, run, build):
        run.world.find(kinds.NODE, "n1")["metadata"]["labels"]["disk"] = "ssd"
        run.world.find(kinds.NODE, "n4")["metadata"]["labels"]["disk"] = "ssd"
        run.world.writes.clear()
        wanted = pool(build, nodeSelector={"hw": "gpu", "disk": "ssd"})
        (text,) = [t for t in run("plan_info", mode="operator", pools=[wanted])["errors"] if "n4" in t]
        assert "would have no handler (n2): " in "".join(run("plan_info", mode="operator", pools=[wanted])["errors"])
        assert "would have no handler (n4): this build keeps the primary off every node with disk=ssd" in text
        assert "n4" in run.failure("operator_pools", mode="operator", pools=[wanted])
        assert run.world.writes == []

    @pytest.mark.parametrize(
        "options",
        [
            {"waves": [{"match": {"hw": "gpu"}}]},
            {"overlap": "first_wins"},
            {"max_unavailable": 2},
            {"launcher_backend": "kyverno"},
            {"outdated": "correct"},
            {"assign_new_nodes": True},
            {"guard": True},
            {"alerts": True},
            {"drain": "wait"},
            {"canary_vm": True},
            {"stop_after_wave": "1"},
        ],
        ids=lambda options: next(iter(options)),
    )
    def test_refuses_options_that_it_cannot_keep(self, run, build, options):
        (text,) = run("plan_info", mode="operator", pools=[pool(build)], **options)["errors"]
        (option,) = options
        assert text.startswith(f"virtpools_{option}")
        assert "cannot be kept in operator mode" in text

    def test_warns_of_labels_that_only_pods_have(self, run, build):
        selector = {"vmLabels": {"matchLabels": {"vm.kubevirt.io/name": "one"}}}
        found = run("plan_info", mode="operator", pools=[pool(build, selector=selector)])
        assert "operator_label_of_pod" in codes(found), codes(found)

    def test_a_refused_plan_changes_no_owner(self, run, pooled, build):
        found = run("plan_info", pools=[pool(build)], waves=[{"match": {"hw": "gpu"}}])
        assert found["owners"] == {"primary": {"now": 3, "after": 3}, "gpu": {"now": 2, "after": 2}}

    @pytest.mark.parametrize("build", ["C"], indirect=True)
    def test_tells_what_joining_nodes_have_by_the_gate(self, run, world, build):
        def window(*pools):
            found = run("plan_info", mode="operator", pools=list(pools))
            return next(each["message"] for each in found["findings"] if each["code"] == "operator_window")

        assert "no handler in between" in window(pool(build))
        operator(run, build)
        assert "Nodes that join a pool have two handlers" in window(pool(build), pool(build, "fpga"))

    @pytest.mark.parametrize("build", ["A"], indirect=True)
    def test_tells_what_a_removal_restarts_and_leaves(self, run, pooled, build):
        said = {each["code"]: each["message"] for each in run("plan_info", remove_pools="all")["findings"]}
        assert "a second time when the feature gate is turned off" in said["operator_restarts"]
        assert "at its end the run names those that nothing needs" in said["operator_strategies_stay"]
        assert "two handlers for some seconds" in said["operator_window"]

    def test_the_refusal_of_waves_says_what_to_do_instead(self, run, build):
        (text,) = run("plan_info", mode="operator", pools=[pool(build)], waves=[{"match": {"hw": "gpu"}}])["errors"]
        assert "label the nodes wave by wave and run site after each" in text

    def test_of_a_removal_names_the_vms(self, run, pooled, build):
        vm(pooled, build)
        found = run("plan_info", remove_pools="all", vms=True)
        assert "1 VM runs with the launcher image of pool gpu" in found["errors"][0]
        assert run("plan_info", remove_pools="all", vms=True, remove_vms="leave")["errors"] == []
        assert (
            "virtpools_remove_vms: migrate" in run("plan_info", remove_pools="all", remove_vms="migrate")["errors"][0]
        )

    @pytest.mark.parametrize("name", ["fpga", "gpu"], ids=["pruned", "selector"])
    def test_names_the_vms_that_lose_their_pool(self, run, pooled, build, name):
        vm(pooled, build)
        arguments = {"mode": "operator", "pools": [pool(build, name, nodeSelector={"hw": "fpga"})], "prune": True}
        assert "vms_of_pool" in error_codes(run("plan_info", **arguments))
        assert "vms_of_pool" not in error_codes(run("plan_info", remove_vms="leave", **arguments))
        assert "operator_option_refused" in error_codes(run("plan_info", remove_vms="wait", **arguments))

    def test_names_missing_rights(self, run, build):
        right = "worker" if build == "C" else "kubevirts"
        run.world.denied = {("create", "workerpools"), ("update", "kubevirts")}
        assert right in run.failure("plan_info", mode="operator", pools=[pool(build)], for_run=True)


class TestVerify:
    def test_all_is_well(self, run, pooled, build):
        vm(pooled, build, created=LATER)
        found = run("verification_info")
        assert (found["mode"], found["build"], found["problems"]) == ("operator", NAMES[build], {})
        assert verdicts(found) == {"correct": 1}
        assert {each["name"]: each["nodes"] for each in found["pools"]} == {"primary": 3, "gpu": 2}
        assert found["policy"]["name"] == NAMES[build]
        assert ("operator_images_left" in codes(found)) == (build != "A")

    @pytest.mark.parametrize(
        ("fields", "verdict"),
        [
            ({"image": vms.STOCK, "noted": None, "created": vms.EARLIER}, "outdated"),
            ({"image": vms.STOCK, "created": LATER}, "wrong_image"),
            ({"on": "n4", "created": LATER}, "wrong_node"),
        ],
    )
    def test_the_launcher_pod_decides(self, run, pooled, build, fields, verdict):
        vm(pooled, build, **fields)
        assert verdicts(run("verification_info", fail_on="none")) == {verdict: 1}

    def test_a_device_in_limits_alone_is_of_no_pool(self, run, pooled, build):
        vm(pooled, build, image=vms.STOCK, noted=None, created=LATER, by=None)
        assert verdicts(run("verification_info")) == {"correct": 1}
        assert run("explanation_info", vmi="plain/vm")["pool"] == "primary"

    def test_an_empty_pool_is_named_as_the_cause(self, run, pooled, build):
        for node in ("n1", "n2"):
            del pooled.find(kinds.NODE, node)["metadata"]["labels"]["hw"]
        pooled.sleep(60)
        found = run("verification_info", fail_on="none")
        assert "operator_owner_empty" in found["problems"]
        assert any("Pool gpu would have no node" in each["message"] for each in found["findings"])

    def test_an_image_volume_counts_only_where_the_build_changes_it(self, run, pooled, build):
        pod = vm(pooled, build, created=LATER)
        pod["spec"]["volumes"] = [{"name": "launcher-volume", "image": {"reference": vms.STOCK}}]
        pooled.put(pod)
        found = run("verification_info", fail_on="none")
        assert verdicts(found) == ({"wrong_image": 1} if build == "A" else {"correct": 1})

    def test_hotplug_pods_do_not_count(self, run, pooled, build):
        vm(pooled, build, created=LATER)
        hotplug = builders.handler_pod("n1", "none", name="hp-volume-1")
        hotplug["metadata"].update(namespace="plain", labels={names.KUBEVIRT_LABEL: "hotplug-disk"})
        hotplug["spec"]["containers"] = [{"name": "hotplug-disk", "image": vms.STOCK}]
        pooled.put(hotplug)
        found = run("verification_info")
        assert verdicts(found) == {"correct": 1}
        told = [each["message"] for each in found["findings"] if each["code"] == "operator_images_left"]
        assert all("hotplug pods and image volumes of its VMs" in message for message in told)
        assert bool(told) == (build != "A")

    def test_a_list_that_is_not_applied(self, run, pooled, build):
        found = run("verification_info", pools=[pool(build), pool(build, "fpga")])
        assert found["problems"] == {"list_not_applied": 1}
        assert "pool fpga is only in the given list." in found["failure"]

    def test_another_list(self, run, pooled, build):
        """Where no history tells which list the cluster has."""
        pooled.drop(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE)
        found = run("verification_info", pools=[pool(build), pool(build, "fpga")], fail_on="none")
        assert {"daemonset_missing", "wrong_owner"} <= set(found["problems"])
        assert [node["name"] for node in found["nodes"]] == ["n3"]

    def test_a_pool_daemonset_that_is_gone(self, run, pooled, build):
        pooled.drop(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
        for node in ("n1", "n2"):
            for pod in pooled.pods(node):
                pooled.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE)
        found = run("verification_info", fail_on="none")
        assert {"daemonset_missing", "no_handler"} <= set(found["problems"])

    def test_an_exclusion_that_an_upgrade_lost_is_found_and_healed(self, run, pooled, build):
        stock = pooled.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)
        del stock["spec"]["template"]["spec"]["affinity"]
        pooled.sleep(20)
        assert len(pooled.pods("n1")) == 2
        found = run("verification_info", fail_on="none")
        assert {"operator_nodes_wrong", "two_handlers"} <= set(found["problems"])
        assert not run("pool_info")["healthy"]
        planned = run("plan_info", pools=[pool(build)])
        assert planned["changes"][1:] == [f"Node n{number}: gpu and primary -> gpu" for number in (1, 2)]
        assert "operator_window" not in codes(planned), "these nodes have their handler all the time"
        before = copy.deepcopy(kubevirt(pooled)["spec"])
        operator(run, build)
        assert [len(pooled.pods(f"n{number}")) for number in range(1, 6)] == [1] * 5
        assert kubevirt(pooled)["spec"] == before
        assert run("pool_info")["healthy"]


class TestPoolInfo:
    def test_shows_virt_operators_daemonsets(self, run, pooled, build):
        found = run("pool_info")
        assert (found["mode"], found["healthy"], found["excluded"]) == ("operator", True, True)
        owners = {each["name"]: (each["nodes"], each["ready"], each["handler_image"]) for each in found["owners"]}
        assert owners == {"primary": (3, 3, builders.HANDLER_IMAGE), "gpu": (2, 2, HANDLER)}


class TestExplain:
    def test_by_the_rule_of_the_build(self, run, pooled, build):
        vm(pooled, build, created=LATER)
        found = run("explanation_info", vmi="plain/vm")
        assert (found["mode"], found["pool"], found["image"]) == ("operator", "gpu", LAUNCHER)
        assert "Mapping: in effect now, by " in found["text"][1]
        assert any("KubeVirt's own pool gpu matched it" in line for line in found["text"])
        assert found["cases"][0]["requirement"] == (None if build == "A" else "hw=gpu")
        assert found["pods"][0]["verdict"] == "correct"

    def test_a_feature_gate_that_is_off_makes_kubevirt_ignore_pools(self, run, pooled, build):
        gates = kubevirt(pooled)["spec"]["configuration"]["developerConfiguration"]["featureGates"]
        gates.remove(GATES[build])
        vm(pooled, build, created=LATER)
        found = run("explanation_info", vmi="plain/vm")
        assert (found["pool"], found["image"]) == ("primary", vms.STOCK)
        assert found["text"][1].startswith(
            f"Mapping: none is in effect: feature gate {GATES[build]} is off, so KubeVirt "
        )
        assert any("not active, KubeVirt does not use it now; it would match" in line for line in found["text"])
        for said in (found, run("verification_info", fail_on="none"), run("pool_info")):
            assert "operator_gate_off" in error_codes(said)
        given = run("explanation_info", vmi="plain/vm", mode="operator", pools=[pool(build)])
        assert given["pool"] == "gpu"

    def test_a_pod_that_is_older_than_the_pool(self, run, pooled, build):
        vm(pooled, build, image=vms.STOCK, noted=None, created=vms.EARLIER)
        found = run("explanation_info", vmi="plain/vm")
        assert found["pods"][0]["verdict"] == "outdated"
        assert "  KubeVirt recorded none of its own pools in it" in found["text"]
        assert "older than the last change of KubeVirt's pools" in found["pods"][0]["reason"]

    def test_a_vm_of_no_pool_should_have_kubevirts_own_image(self, run, pooled, build):
        for name, image in (("right", vms.STOCK), ("wrong", LAUNCHER)):
            running = vms.vmi(name, "n4")
            pod = vms.launcher(name, "n4", None, image=image, device=False, created=LATER)
            pod["metadata"]["labels"][names.CREATED_BY_LABEL] = running["metadata"]["uid"]
            pooled.put(running)
            pooled.put(pod)
        judged = {name: run("explanation_info", vmi=f"plain/{name}")["pods"][0] for name in ("right", "wrong")}
        assert {name: found["verdict"] for name, found in judged.items()} == {
            "right": "correct",
            "wrong": "wrong_image",
        }
        assert vms.STOCK in judged["wrong"]["reason"]


class TestUpgrade:
    def test_tells_what_the_build_loses(self, run, pooled, build):
        found = run("upgrade_info", version="v1.9.1")
        assert ("operator_upgrade" in codes(found)) == (build == "B")
        assert found["verdict"] == ("prepare" if build == "B" else found["verdict"])
        assert {each["pool"] for each in found["images"]} == {"gpu"}

    def test_says_that_vms_cannot_start_and_what_helps_before_it(self, run, world, build):
        operator(
            run,
            build,
            {**pool(build), "virtLauncherImage": LAUNCHER.replace("v1.9.0", "v1.7.0"), "allowSkew": True},
        )
        found = run("upgrade_info", version="v1.9.1")
        (text,) = [each["message"] for each in found["findings"] if each["code"] == "upgrade_breaks_vm_starts"]
        assert "Before the upgrade, run site with a list in which only virtLauncherImage is of the new version" in text
        for module, options in (("pool_info", {}), ("verification_info", {"fail_on": "none"})):
            assert codes(run(module, **options)).count("launcher_refuses_arguments") == 1

    def test_cannot_be_prepared_and_says_the_shortest_way(self, run, pooled, build):
        newer = {**pool(build), "virtLauncherImage": LAUNCHER.replace("v1.9.0", "v1.10.0"), "allowSkew": True}
        text = run.failure("upgrade_preparation", pools=[newer], version="v1.10.0")
        assert "run site with a list in which only virtLauncherImage is of the new version" in text
        assert pooled.writes == []
        assert operator(run, build, newer)["changed"]

    @pytest.fixture
    def upgrading(self, pooled):
        """The cluster once an upgrade has begun: the primary has lost its exclusion, where the build's way of upgrades does that."""
        kubevirt(pooled)["status"].update(targetKubeVirtVersion="v1.9.1", targetDeploymentID="d2")
        for daemonset in pooled.all(kinds.DAEMON_SET):
            daemonset["metadata"].setdefault("annotations", {})[names.VERSION_ANNOTATION] = "v1.9.0"
        return pooled

    def _second_handlers(self, world):
        del world.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)["spec"]["template"]["spec"]["affinity"]
        world.sleep(20)

    def refusal(self, run, build):
        (text,) = run("plan_info", pools=[pool(build)])["errors"]
        assert "is being upgraded from v1.9.0 to v1.9.1; wait until that is done, then run again." in text
        return text

    def test_that_does_not_end_says_what_ends_it(self, run, upgrading, build):
        self._second_handlers(upgrading)
        text = self.refusal(run, build)
        assert ("kubectl delete daemonset -n kubevirt -l kubevirt.io/handler-pool" in text) == (build == "B")
        assert ("waits for the handlers of pool gpu" in text) == (build == "B")
        assert "lack" not in text

    def test_names_the_nodes_that_would_be_left_without_a_handler(self, run, upgrading, build):
        text = self.refusal(run, build)
        assert ("2 nodes lack one (n1, n2)" in text) == (build == "B")

    @pytest.mark.parametrize(
        "ends",
        [
            lambda world: world.drop(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE),
            lambda world: kubevirt(world)["status"].update(observedKubeVirtVersion="v1.9.2"),
            lambda world: kubevirt(world)["status"].update(observedKubeVirtVersion="v1.9.1"),
        ],
        ids=["without DaemonSets of pools", "a way back", "the same version"],
    )
    def test_that_ends_by_itself_says_nothing_more(self, run, upgrading, build, ends):
        ends(upgrading)
        errors = run("plan_info", pools=[pool(build)])["errors"]
        (text,) = [each for each in errors if "upgraded" in each or "another deployment of the same version" in each]
        assert text.endswith("wait until that is done, then run again.")


@pytest.mark.parametrize("build", ["A"], indirect=True)
def test_degraded_until_a_slow_list_is_rolled_out_is_no_failure(run, world, build):
    """With this build the list is a part of the deployment, so each change of it is an update to virt-operator."""
    world.lag = 120
    began = world.now
    operator(run, build)
    assert world.now - began > 120


@pytest.mark.parametrize("build", ["A"], indirect=True)
@pytest.mark.parametrize("names_of", [["gpu"], ["gpu", "fpga"]], ids=["the same list", "another list"])
def test_the_tail_of_an_earlier_run_is_waited_for(run, world, build, names_of):
    """What virt-operator still rolls out is this collection's own change, not an upgrade of KubeVirt."""
    world.lag = 100
    run.failure("operator_pools", mode="operator", pools=[pool(build)], settle_timeout=30)
    status = kubevirt(world)["status"]
    assert status["targetDeploymentID"] != status["observedDeploymentID"]
    pools = [pool(build, name) for name in names_of]
    planned = run("plan_info", mode="operator", pools=pools, for_run=True, settle_timeout=900)
    assert (planned["errors"], planned["pending"]) == ([], True)
    operator(run, build, *pools)
    assert [world.handlers(node) for node in ("n1", "n3")] == [
        ["virt-handler-gpu"],
        ["virt-handler-fpga" if "fpga" in names_of else "virt-handler"],
    ]


def test_workload_update_leaves_it_to_kubevirt(run, pooled, build):
    assert "creates the pools itself" in run.failure("workload_update")


def test_collection_pools_are_not_there_where_operator_ones_are(run, pooled, build):
    found = run("verification_info", mode="collection", pools=[builders.RAW_POOL], fail_on="none")
    assert "operator_pools_in_use" in found["problems"]


def test_operator_pools_need_the_mode_or_pools_in_use(run, build):
    assert "set mode: operator" in run.failure("operator_pools", pools=[pool(build)])


class TestRoles:
    @pytest.fixture
    def play(self, run):
        return Play(run)

    def test_site_a_second_time_and_remove(self, run, play, build):
        before = copy.deepcopy(kubevirt(run.world)["spec"])
        site = {"virtpools_mode": "operator", "virtpools_pools": [pool(build)]}
        play.role("pools", **site)
        assert run.world.handlers("n1") == ["virt-handler-gpu"]
        run.world.writes.clear()
        play.role("pools", **site)
        assert run.world.writes == []
        play.role("remove", virtpools_remove="all")
        assert kubevirt(run.world)["spec"] == before
        assert run.world.handlers("n1") == ["virt-handler"]
        assert run.world.all(kinds.LEASE) == []

    def test_a_slow_operator_is_reported_round_by_round(self, run, monkeypatch, build):
        shown, calls = [], []
        monkeypatch.setattr(module_base, "show", shown.append)

        def module(name, **arguments):
            calls.append(name)
            return run(name, **arguments)

        run.world.behave["virt-handler-gpu", None] = Behaviour(start=150.0)
        Play(module).role("pools", virtpools_mode="operator", virtpools_pools=[pool(build)])
        assert len(shown) >= 2
        assert shown[0].startswith("Waiting for virt-operator: ")
        assert calls.count("operator_pools") == 1, "Ansible's work would grow with the square of the rounds"
        assert run.world.handlers("n1") == ["virt-handler-gpu"]
        assert not run("plan_info", pools=[pool(build)])["pending"]

    def test_a_run_that_takes_too_long_fails(self, run, play, build):
        run.world.behave["virt-handler-gpu", None] = Behaviour(start=None)
        with pytest.raises(TaskFailed, match="virt-operator did not follow the pools within 100 s"):
            play.role("pools", virtpools_mode="operator", virtpools_pools=[pool(build)], virtpools_settle_timeout=100)

    def test_site_in_check_mode(self, run, build):
        checking = Play(run, check=True)
        checking.role("pools", virtpools_mode="operator", virtpools_pools=[pool(build)])
        assert run.world.writes == []

    def test_rollback(self, run, play, build):
        play.role("pools", virtpools_mode="operator", virtpools_pools=[pool(build)])
        play.role("pools", virtpools_pools=[pool(build), pool(build, "fpga")])
        assert run.world.handlers("n3") == ["virt-handler-fpga"]
        target = run("pool_history")["target"]
        play.role("pools", virtpools_pools_from_history=target)
        assert run.world.handlers("n3") == ["virt-handler"]

    def test_what_is_about_waves_is_refused(self, run, play, build):
        with pytest.raises(TaskFailed, match="operator mode has none"):
            play.role("pools", virtpools_mode="operator", virtpools_pools=[pool(build)], virtpools_soak_seconds=5)
        assert run.world.writes == []
