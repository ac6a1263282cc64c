# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import collections
import copy
import dataclasses
import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors, error
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verdicts import VERDICTS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verification import Verifier, read_fail_on
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.outcome import RunOutcome
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import page, prometheus, terminal
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.vms import EARLIER, launcher, vmi


def verified(pods=(), vmis=(), *, made=None, **options):
    verifier = Verifier(made or vms.plan_of(), **options)
    for found in vmis:
        verifier.add_vmi(found)
    for pod in pods:
        verifier.add_pod(LauncherPod.from_object(pod))
    return verifier.report()


def problems(*args, **kwargs):
    return verified(*args, **kwargs).problems


def message(found, code):
    return builders.message(found.findings, code)


def told(found):
    return [(vm.name, vm.verdict) for vm in found.vms]


# In order -----------------------------------------------------------------------------------------------------------


def test_a_cluster_in_order_has_no_findings():
    pods = [launcher(), launcher("other", "rest", "primary", device=False)]
    found = verified(pods, [vmi(), vmi("other", "rest")])
    assert (found.healthy, found.findings, found.vms, found.left_out, found.unjudged) == (True, (), (), 0, 0)
    assert found.summary == "Everything is in order: 2 VMs on 3 nodes with 1 pool."


def with_idle_node(name, pool=None):
    """The plan of a cluster that also has a node with a taint, and without a handler."""
    pool, nodes, stock = pool or vms.gpu(), vms.nodes(), builders.primary()
    pods = builders.handlers_of(nodes, [stock, builders.pool_daemonset(pool, stock)])
    tainted = vms.node(name, taints=[{"key": "control-plane", "effect": "NoSchedule"}], heartbeat=None)
    return vms.plan_of(pool, of_nodes=[*nodes, tainted], pods=pods)


def test_a_node_of_the_control_plane_does_not_count():
    found = verified([launcher()], [vmi()], made=with_idle_node("master"))
    assert found.summary == "Everything is in order: 1 VM on 3 nodes with 1 pool."
    assert [(pool["name"], pool["nodes"]) for pool in found.pools] == [("primary", 1), ("gpu", 2)]
    assert [node["name"] for node in found.nodes] == ["gpu-0", "gpu-1", "rest"]


def test_a_listed_pool_that_no_run_has_made_has_nothing():
    new = builders.pool("fpga", selector={"deviceNames": ["vendor.example/fpga"]})
    found = verified([launcher()], [vmi()], made=plan.make_plan(vms.plan_of().snapshot, [vms.gpu(), new], Options()))
    rows = {pool["name"]: (pool["nodes"], pool["ready"], pool["daemonset"]) for pool in found.pools}
    assert rows["fpga"] == (0, 0, "virt-handler-fpga")
    assert 'virtpools_pool_nodes{pool="fpga"} 0\n' in prometheus.render(found.to_dict(), timestamp=0)


def test_a_node_without_a_handler_counts_if_a_pool_wants_it():
    found = verified(made=with_idle_node("gpu-2", vms.gpu(tolerations=[{"operator": "Exists"}])))
    assert found.problems == {"wrong_owner": 1}
    assert {node["name"]: node["problem"] for node in found.nodes}["gpu-2"] == "wrong_owner"


def test_a_vm_on_a_node_without_a_handler_is_always_a_problem():
    pods, vmis = [launcher("vm", "master", "primary", device=False)], [vmi("vm", "master")]
    assert problems(pods, vmis, made=with_idle_node("master")) == {"no_ready_handler": 1}


def test_says_what_is_in_launcher_images():
    made = vms.plan_of()
    state = builders.looked_into(made.snapshot, vms.IMAGE, qemu="10.1.0", libvirt="11.9.0")
    found = verified([launcher()], [vmi()], made=dataclasses.replace(made, snapshot=state))
    assert [pool["launcher_contents"] for pool in found.pools] == ["", "QEMU 10.1.0, libvirt 11.9.0"]
    assert f"Pool gpu has launcher image {vms.IMAGE} (QEMU 10.1.0, libvirt 11.9.0)." in terminal.verification_lines(
        found
    )


def test_an_image_that_was_not_looked_into_is_listed():
    made = vms.plan_of()
    state = builders.looked_into(made.snapshot, vms.IMAGE, unchecked="it has no /bin/sh")
    found = verified([launcher()], [vmi()], made=dataclasses.replace(made, snapshot=state))
    assert (found.problems, found.listed) == ({}, {"image_unchecked": 1})


class TestLaunchersThatRefuseWhatKubeVirtPasses:
    OLD = "registry.example/virt-launcher:v1.7.0-gpu"

    def failed(self, name, *, exit_code=2, **fields):
        ended = {"containerStatuses": [{"name": "compute", "state": {"terminated": {"exitCode": exit_code}}}]}
        return launcher(name, phase="Failed", status=ended, **fields)

    def found(self, *pods, image=OLD):
        return verified(pods, made=vms.plan_of(vms.gpu(virtLauncherImage=image)))

    def test_are_counted_by_the_pods_that_failed_for_it(self):
        found = self.found(
            self.failed("a", image=self.OLD),
            self.failed("b", image=f"mirror.example/{self.OLD.partition('/')[2]}"),
            self.failed("another image", image=vms.IMAGE),
            self.failed("another reason", image=self.OLD, exit_code=1),
            self.failed("of no pool", pool="primary", device=False),
            launcher("runs", image=self.OLD),
        )
        assert "virt-launcher:v1.7.0-gpu refuses: 2 launcher pods have failed for it." in message(
            found, "launcher_refuses_arguments"
        )
        assert found.problems["launcher_refuses_arguments"] == 1
        assert [(pool["starts_fail"], pool["failed_launchers"]) for pool in found.pools] == [(False, 0), (True, 2)]

    def test_are_named_before_a_pod_has_failed(self):
        assert "v1.7.0-gpu refuses. Run site" in message(self.found(), "launcher_refuses_arguments")

    def test_other_images_have_no_such_pods(self):
        found = self.found(self.failed("a"), image=vms.IMAGE)
        assert (found.problems, found.pools[1]["failed_launchers"]) == ({}, 0)


def test_the_report_as_data():
    found = verified([launcher()], [vmi()]).to_dict()
    assert found["counts"] == {"vms": 1, "unjudged": 0, "nodes": 3, "pools": 1, "problems": 0, "listed": 0}
    assert found["verdicts"] == {**dict.fromkeys(VERDICTS, 0), "correct": 1}
    assert [pool["name"] for pool in found["pools"]] == ["primary", "gpu"]
    assert found["pools"][1] == {
        "name": "gpu",
        "nodes": 2,
        "ready": 1,
        "daemonset": "virt-handler-gpu",
        "handler_image": builders.GPU_IMAGE,
        "launcher_image": vms.IMAGE,
        "launcher_contents": "",
        "active": True,
        "starts_fail": False,
        "failed_launchers": 0,
        "vms": {**dict.fromkeys(VERDICTS, 0), "correct": 1},
    }
    assert found["pools"][0]["launcher_image"] == vms.STOCK
    assert found["nodes"][0] == {
        "name": "gpu-0",
        "owner": "gpu",
        "wanted": "gpu",
        "problem": None,
        "handlers": 1,
        "ready": True,
    }
    assert found["daemonsets"][0] == {
        "name": "virt-handler",
        "pool": "primary",
        "desired": 3,
        "ready": 3,
        "problems": [],
    }
    assert found["policy"]["state"] == "live"


def test_a_pool_that_waits_for_its_nodes_takes_no_vm_yet():
    pool = vms.gpu(activation="all_moved")
    nodes = [vms.node("gpu-0", "gpu"), vms.node("gpu-1"), vms.node("rest")]
    made = vms.plan_of(pool, of_nodes=nodes, objects=[])
    found = verified([launcher(on="rest", pool="primary")], [vmi(on="rest")], made=made).to_dict()
    assert [(each["name"], each["active"], each["vms"]["correct"]) for each in found["pools"]] == [
        ("primary", True, 1),
        ("gpu", False, 0),
    ]


# Which pod counts ---------------------------------------------------------------------------------------------------


def migration():
    """A VM that is being migrated from gpu-0 to gpu-1: its target is in order, its source is not."""
    source = launcher(pool=None, uid="source", created="2026-11-02T10:00:00Z")
    target = launcher(on="gpu-1", uid="target", created="2026-11-02T11:00:00Z")
    target["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = "job"
    return source, target


@pytest.mark.parametrize("pods", [migration(), migration()[::-1]], ids=["source first", "target first"])
def test_during_a_migration_the_pod_on_the_vmis_node_counts(pods):
    assert told(verified(pods, [vmi(on="gpu-0")])) == [("vm", "wrong_image")]
    assert told(verified(pods, [vmi(on="gpu-1")])) == []
    assert told(verified(pods)) == [("vm", "wrong_image")]


def test_a_source_that_has_ended_does_not_count():
    source, target = migration()
    source["status"]["phase"] = "Succeeded"
    assert told(verified([source, target], [vmi(on="gpu-0")])) == []
    assert sum(verified([source, target]).verdicts.values()) == 1


def test_a_vmi_that_was_read_before_its_pod_was_bound():
    found = verified([launcher(pool=None)], [vmi(on="", migratable=False)])
    assert told(found) == [("vm", "wrong_image")]


@pytest.mark.parametrize(
    "fields",
    [{"phase": "Failed"}, {"deletionTimestamp": "2026-11-02T12:00:00Z"}, {"ownerReferences": []}],
    ids=["failed", "terminating", "not virt-controller's"],
)
def test_pods_that_do_not_count(fields):
    found = verified([launcher(pool=None, **fields)], [vmi()])
    assert (sum(found.verdicts.values()), found.unjudged) == (0, 1)
    assert found.summary.endswith("with 1 pool, and 1 more without a launcher pod yet.")


def test_a_pod_of_a_former_vmi_of_that_name():
    pod = launcher(pool=None, created=EARLIER)
    pod["metadata"]["ownerReferences"][0]["uid"] = "uid-former"
    found = verified([pod], [vmi()])
    assert found.vms[0].remedy == "restart"


def test_vms_without_a_pod():
    refused = {"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": "denied"}
    waiting = [
        vmi("refused", on="", phase="Pending", conditions=[refused]),
        vmi("new", on="", phase="Pending"),
        vmi("over", phase="Succeeded"),
    ]
    found = verified((), waiting)
    assert told(found) == [("refused", "pending")]
    assert (found.unjudged, found.problems) == (1, {"pending": 1})


# Verdicts -----------------------------------------------------------------------------------------------------------


def test_wrong_vms_are_problems():
    found = verified([launcher(pool=None), launcher("b", "rest")], [vmi(), vmi("b", "rest")])
    assert found.problems == {"wrong_image": 1, "wrong_node": 1}
    assert message(found, "wrong_image").endswith("other than the expected one: plain/vm.")
    assert found.summary.startswith("Problems found: 1 wrong_image, 1 wrong_node; checked 2 VMs")


def test_outdated_vms_are_listed():
    found = verified([launcher(pool=None, created=EARLIER)], [vmi()])
    assert (found.healthy, found.problems, found.listed) == (True, {}, {"outdated": 1})
    assert told(found) == [("vm", "outdated")]
    assert found.summary.endswith("with 1 pool; listed: 1 outdated.")


@pytest.mark.parametrize("limit", [0, 3, 100])
def test_of_many_only_some_are_listed_and_all_are_counted(limit):
    wrong = [launcher(f"w{number}", pool=None) for number in range(6)]
    old = [launcher(f"o{number}", pool=None, created=EARLIER) for number in range(4)]
    found = verified([*old, *wrong], limit=limit)
    assert (len(found.vms), found.left_out) == (min(limit, 10), 10 - min(limit, 10))
    assert [vm.verdict for vm in found.vms] == (["wrong_image"] * 6 + ["outdated"] * 4)[:limit]
    assert (found.problems, found.listed) == ({"wrong_image": 6}, {"outdated": 4})
    assert message(found, "wrong_image").endswith("plain/w0, plain/w1, plain/w2, plain/w3, plain/w4 and 1 more.")


def test_counts_are_those_of_judging_one_by_one():
    rng = random.Random(7)
    kinds = {
        "correct": launcher,
        "wrong_image": lambda name: launcher(name, pool=None),
        "outdated": lambda name: launcher(name, pool=None, created=EARLIER),
        "wrong_node": lambda name: launcher(name, "rest"),
        "pending": lambda name: launcher(name, "", status=vms.unschedulable()),
    }
    chosen = [rng.choice(list(kinds)) for _ in range(200)]
    found = verified(kinds[kind](f"vm-{number}") for number, kind in enumerate(chosen))
    assert {verdict: count for verdict, count in found.verdicts.items() if count} == collections.Counter(chosen)
    assert sum(sum(pool["vms"].values()) for pool in found.pools) == 200


# Nodes on which no VM starts ----------------------------------------------------------------------------------------


def test_a_node_of_a_pool_that_takes_no_vms_is_a_problem():
    now = builders.heartbeat(builders.STARTED + 200)
    nodes = [vms.node("gpu-0", "gpu", schedulable=False), vms.node("gpu-1", "gpu"), vms.node("rest", heartbeat=now)]
    found = verified(made=vms.plan_of(of_nodes=nodes))
    assert (found.healthy, found.problems) == (False, {"not_schedulable": 1})
    assert {node["name"]: node["problem"] for node in found.nodes if node["problem"]} == {"gpu-0": "not_schedulable"}
    assert 'virtpools_node_problems{code="not_schedulable"} 1' in prometheus.render(found.to_dict(), timestamp=0)
    assert "not schedulable" in page.render(found.to_dict())


def test_a_vm_whose_image_cannot_be_pulled_is_a_problem():
    waiting = {"name": "compute", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    found = verified([launcher(status={"phase": "Pending", "containerStatuses": [waiting]})], [vmi()])
    assert (found.healthy, found.problems) == (False, {"pending": 1})
    assert 'virtpools_vms{pool="gpu",verdict="pending"} 1' in prometheus.render(found.to_dict(), timestamp=0)
    assert "waits with ImagePullBackOff (not found)" in page.render(found.to_dict())


def test_an_active_pool_without_nodes_is_listed():
    found = verified(made=vms.plan_of(of_nodes=[vms.node("rest")]))
    assert (found.healthy, found.listed["pool_without_nodes"]) == (True, 1)
    assert "takes VMs and has no node" in message(found, "pool_without_nodes")
    metrics = prometheus.render(found.to_dict(), timestamp=0)
    assert 'virtpools_findings{severity="warning",code="pool_without_nodes"} 1' in metrics
    assert "Pool gpu takes VMs and has no node" in page.render(found.to_dict())


# Nodes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "pods", "code", "node"),
    [
        ([("gpu-0", "gpu")], [], "no_handler", "gpu-0"),
        ([("gpu-0", "gpu")], ["virt-handler-gpu", "virt-handler"], "two_handlers", "gpu-0"),
        ([("gpu-0", "gpu")], ["virt-handler"], "wrong_handler", "gpu-0"),
        ([("gpu-0", names.IN_TRANSIT)], [], "in_transit", "gpu-0"),
        ([("gpu-0", "ghost")], [], "owner_unknown", "gpu-0"),
        ([("gpu-0", None)], ["virt-handler"], "wrong_owner", "gpu-0"),
    ],
)
def test_what_is_wrong_with_a_node(nodes, pods, code, node):
    of_nodes = [*(vms.node(name, owner) for name, owner in nodes), vms.node("rest")]
    handlers = [builders.handler_pod("gpu-0", of, template=template_of(of)) for of in pods]
    made = vms.plan_of(of_nodes=of_nodes, pods=[*handlers, builders.handler_pod("rest")])
    found = verified(made=made)
    assert code in found.problems
    assert node in message(found, code)
    assert [(each["name"], each["problem"]) for each in found.nodes if each["problem"]] == [(node, code)]


def template_of(daemonset):
    if daemonset == "virt-handler":
        return None
    live = builders.pool_daemonset(vms.gpu())
    return live["spec"]["template"]["metadata"]["annotations"][names.TEMPLATE_ANNOTATION]


def test_a_handler_that_is_not_ready():
    pods = [
        builders.handler_pod(
            "gpu-0", "virt-handler-gpu", ready=False, waiting="CrashLoopBackOff", template=template_of("x")
        ),
        builders.handler_pod("rest"),
    ]
    found = verified(made=vms.plan_of(of_nodes=[vms.node("gpu-0", "gpu"), vms.node("rest")], pods=pods))
    assert found.problems == {"handler_not_ready": 1}
    assert "gpu-0 (container virt-handler: CrashLoopBackOff" in message(found, "handler_not_ready")


def test_a_handler_from_an_earlier_template():
    pods = [builders.handler_pod("gpu-0", "virt-handler-gpu", template="former"), builders.handler_pod("rest")]
    found = verified(made=vms.plan_of(of_nodes=[vms.node("gpu-0", "gpu"), vms.node("rest")], pods=pods))
    assert found.problems == {"handler_outdated": 1}
    assert "gpu-0" in message(found, "handler_outdated")


@pytest.mark.parametrize(
    ("image", "problems"),
    [
        ("registry.example/virt-handler:v1.9.0-hotfix", {"handler_image": 1}),
        (builders.GPU_IMAGE, {}),
        (f"mirror.example/kubevirt-{builders.GPU_IMAGE.rpartition('/')[2]}", {}),
        (f"{builders.GPU_IMAGE}@sha256:{64 * 'a'}", {}),
        (f"registry.example/virt-handler@sha256:{64 * 'a'}", {}),
    ],
    ids=["another", "the same", "a mirror's", "pinned", "a digest alone"],
)
def test_a_handler_made_while_its_daemonset_was_edited(image, problems):
    pod = builders.handler_pod("gpu-0", "virt-handler-gpu", template=template_of("x"))
    pod["spec"]["containers"] = [{"name": "virt-handler", "image": image}, {"name": "sidecar", "image": "other:v2"}]
    of_nodes = [vms.node("gpu-0", "gpu"), vms.node("rest")]
    found = verified(made=vms.plan_of(of_nodes=of_nodes, pods=[pod, builders.handler_pod("rest")]))
    assert found.problems == problems
    if problems:
        assert f"gpu-0 ({image}); delete" in message(found, "handler_image")


def test_a_node_that_cannot_move_now_is_listed():
    dead = [vms.node("gpu-0", "gpu"), vms.node("gpu-1", ready=False), vms.node("rest")]
    found = verified(made=vms.plan_of(of_nodes=dead))
    assert found.problems == {}
    assert found.listed == {"node_held_back": 1}
    assert [each["problem"] for each in found.nodes] == [None, "node_held_back", None]


# DaemonSets, policy, KubeVirt ---------------------------------------------------------------------------------------


def changed(daemonset, change):
    """A snapshot's plan where a DaemonSet was changed after it was made."""
    pool = vms.gpu()
    stock, ours = builders.primary(), builders.pool_daemonset(pool)
    found = {"virt-handler": stock, "virt-handler-gpu": ours}
    change(found[daemonset])
    return vms.plan_of(pool, of_primary=stock, more=[ours], pods=builders.handlers_of(vms.nodes(), [stock, ours]))


def test_a_daemonset_that_was_edited():
    def edit(daemonset):
        daemonset["spec"]["template"]["spec"]["containers"][0]["args"] = ["--by-hand"]

    found = verified(made=changed("virt-handler-gpu", edit))
    assert set(found.problems) == {"daemonset_drift"}
    assert "virt-handler-gpu is not what pool gpu derives" in message(found, "daemonset_drift")
    assert found.daemonsets[1]["problems"] == [message(found, "daemonset_drift")]


@pytest.mark.parametrize(("daemonset", "owner"), [("virt-handler", 0), ("virt-handler-gpu", 1)])
def test_a_daemonset_that_is_not_ready(daemonset, owner):
    found = verified(
        made=changed(daemonset, lambda found: found["status"].update(desiredNumberScheduled=9, numberReady=2))
    )
    assert found.problems == {"daemonset_not_ready": 1}
    assert message(found, "daemonset_not_ready") == f"DaemonSet {daemonset} should have 9 Ready pods, and has 2."
    assert found.daemonsets[owner]["problems"]


def test_pods_on_dead_nodes_are_excused():
    nodes = [vms.node("gpu-0", "gpu", ready=False), vms.node("gpu-1", "gpu"), vms.node("rest")]
    stock, ours = builders.primary(), builders.pool_daemonset(vms.gpu())
    ours["status"].update(desiredNumberScheduled=2, numberReady=1)
    made = vms.plan_of(of_nodes=nodes, of_primary=stock, more=[ours], pods=builders.handlers_of(nodes, [stock, ours]))
    assert problems(made=made) == {}


def test_a_pool_without_its_daemonset():
    pool = vms.gpu()
    made = vms.plan.make_plan(
        builders.snapshot_of([vms.node("rest")], admission=vms.admission(*vms.policy())), [pool], Options()
    )
    found = verified(made=made)
    assert found.problems["daemonset_missing"] == 1
    assert found.pools[1]["handler_image"] == builders.GPU_IMAGE


def test_a_daemonset_whose_pool_is_gone_from_the_list():
    pools = [vms.gpu(), builders.pool("former")]
    snapshot = builders.snapshot_of(vms.nodes(), pools, admission=vms.admission(*vms.policy()))
    made = vms.plan.make_plan(snapshot, pools[:1], Options(prune=True))
    found = verified(made=made)
    assert found.problems == {"daemonset_left": 1}
    assert "virt-handler-former" in message(found, "daemonset_left")
    assert problems(made=vms.plan.make_plan(snapshot, pools[:1], Options())).get("daemonset_left") is None
    pause = RunOutcome("site", "", changed=True, failed=False, nodes=2, done=1, stop="after wave 1", later=("gpu-1",))
    assert problems(made=made, pause=pause) == {}


def test_nodes_that_a_pause_left_for_later_are_no_problem():
    """Another node of the list is one."""
    left, lost = vms.node("gpu-0"), vms.node("gpu-1")
    pause = RunOutcome("site", "", changed=True, failed=False, nodes=2, done=1, stop="after wave 1", later=("gpu-0",))
    made = vms.plan_of(of_nodes=[left, lost, vms.node("rest")])
    assert {node["name"]: node["problem"] for node in verified(made=made, pause=pause).nodes} == {
        "gpu-0": None,
        "gpu-1": "wrong_owner",
        "rest": None,
    }


@pytest.mark.parametrize("accepted", [False, True])
def test_skew(accepted):
    pool = vms.gpu(virtHandlerImage="registry.example/virt-handler:v1.8.0-gpu", allowSkew=accepted)
    found = verified(made=vms.plan_of(pool))
    assert (found.problems, found.listed) == (({}, {"version_skew": 1}) if accepted else ({"version_skew": 1}, {}))
    assert "virt-handler:v1.8.0-gpu" in message(found, "version_skew")
    assert bool(found.daemonsets[1]["problems"]) is not accepted


def test_the_policy():
    assert problems(made=vms.plan_of(objects=[])) == {"policy_missing": 1}
    edited = copy.deepcopy(vms.policy())
    edited[0]["spec"]["failurePolicy"] = "Ignore"
    assert problems(made=vms.plan_of(objects=edited)) == {"policy_edited": 1}


def test_a_kubevirt_that_is_not_fit():
    degraded = builders.excluding_kubevirt(conditions={"Degraded": "True"})
    assert problems(made=vms.plan_of(of_kubevirt=degraded)) == {"kubevirt_degraded": 1}


def test_an_exclusion_that_is_gone():
    made = vms.plan_of(of_kubevirt=builders.kubevirt(), of_primary=builders.primary(excluded=False))
    assert "exclusion_missing" in problems(made=made)


def test_updates_that_never_end():
    endless = builders.excluding_kubevirt()
    endless["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
    assert problems(made=vms.plan_of(of_kubevirt=endless)) == {"workload_updates_never_end": 1}


# What a check fails on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "failing"),
    [
        ("problems", {"wrong_image": 1}),
        ("any", {"wrong_image": 1, "outdated": 1}),
        ("none", {}),
        (["outdated", "no_handler"], {"outdated": 1}),
        ("outdated, wrong_image", {"wrong_image": 1, "outdated": 1}),
        ([], {}),
    ],
)
def test_what_a_check_fails_on(raw, failing):
    found = verified([launcher(pool=None), launcher("old", pool=None, created=EARLIER)])
    assert found.failing(read_fail_on(raw)) == failing


def test_why_a_check_fails_is_said_in_words():
    found = verified([launcher(pool=None), launcher("old", pool=None, created=EARLIER)])
    assert found.failure() == f"{found.summary} Failed because of: wrong_image (virtpools_fail_on)."
    assert found.failure(read_fail_on("none")) == ""


@pytest.mark.parametrize("raw", ["problems", "any", "none", ["no_handler"]])
def test_a_missing_approved_list_fails_every_check(raw):
    missing = error("approved_list_missing", "The approved list is missing.")
    found = verified(conflict=missing)
    assert found.failing(read_fail_on(raw)) == {"approved_list_missing": 1}
    assert found.failure(read_fail_on(raw)) == "The approved list is missing. Everything else is in order."
    found = verified([launcher(pool=None)], conflict=missing)
    assert found.failure().startswith(f"The approved list is missing. {found.summary}")


@pytest.mark.parametrize("raw", [3, None, {"a": 1}, [1], ["Wrong Image"], "wrong image", ""])
def test_anything_else_is_refused(raw):
    with pytest.raises(InputErrors, match=r"give problems, any, none, or verdicts"):
        read_fail_on(raw)


@pytest.mark.parametrize(
    ("raw", "meant"), [(["two_handlers", "wrong_imge"], "wrong_image"), ("problem", "problems"), (["any"], "any")]
)
def test_a_code_that_does_not_exist_is_refused(raw, meant):
    with pytest.raises(InputErrors, match=rf"^virtpools_fail_on has \w+, .* reports; perhaps you mean {meant}\.$"):
        read_fail_on(raw)


# As text ------------------------------------------------------------------------------------------------------------


def test_the_report_as_text():
    lines = terminal.verification_lines(verified([launcher(f"vm-{number:02}", pool=None) for number in range(22)]))
    assert lines[0].startswith("Problems found: 22 wrong_image")
    assert lines[1].startswith("ERROR wrong_image: 22 VMs with a launcher image")
    assert lines[2] == "POOL     NODES  READY  CORRECT  WRONG IMAGE"
    assert lines[4].split() == ["gpu", "2", "1", "0", "22"]
    assert lines[5].startswith("wrong_image plain/vm-00 (pool gpu): it has ")
    assert lines[5].endswith("; remedy: restart")
    assert lines[-1] == "2 more VMs are not correct."
