# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import lease, waiting
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.modules import pool_nodes
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour

RAW = builders.RAW_POOL
NOW = 1_800_000_000.0
pytestmark = pytest.mark.usefixtures("excluded")


def owner_writes(world):
    return [path for verb, path in world.writes if "/nodes/" in path]


def test_hands_nodes_over(run, world, monkeypatch):
    monkeypatch.setattr(pool_nodes, "time", types.SimpleNamespace(time=lambda: NOW))
    before = world.now
    found = run("pool_nodes", pools=[RAW])
    assert (found["changed"], found["changes"]) == (True, ["Node n1: primary -> gpu"])
    (node,) = found["nodes"]
    assert (node["node"], node["result"]) == ("n1", "done")
    assert node["seconds_without_handler"] > 0
    # The cluster in memory has a clock of its own, on which all waits take place. Both figures are rounded.
    assert 0 <= node["began"] - NOW <= world.now - before - node["seconds_without_handler"] + 0.2
    assert found["events"][0].startswith("Node n1: primary -> gpu, ")
    assert found["events"][1:] == ["1 of 1 node done."]
    assert (found["diff"]["before"], found["diff"]["after"]) == ({"n1": "primary"}, {"n1": "gpu"})
    assert world.handlers("n1") == ["virt-handler-gpu"]
    assert world.all(kinds.LEASE) == [], "the Lease is given back"


def test_notes_what_is_half_way_until_it_is_done(run, monkeypatch):
    notes = []
    monkeypatch.setattr(module_base, "note", lambda lines: notes.append(lines[0] if lines else "end"))
    run("pool_nodes", pools=[RAW])
    assert [note.removeprefix("The run was interrupted. ").partition(".")[0] for note in notes] == [
        "No node is half way",
        "Half way: n1",
        "No node is half way",
        "end",
    ]
    notes.clear()
    run("pool_nodes", pools=[RAW], check=True)
    assert notes == []


def test_check_mode_predicts_and_writes_nothing(run, world):
    predicted = run("pool_nodes", pools=[RAW], check=True)
    assert world.writes == []
    done = run("pool_nodes", pools=[RAW])
    assert {key: predicted[key] for key in ("changed", "changes", "diff")} == {
        key: done[key] for key in ("changed", "changes", "diff")
    }
    assert predicted["nodes"] == []


def test_a_second_run_changes_nothing_and_takes_no_lease(run, world):
    run("pool_nodes", pools=[RAW])
    world.writes.clear()
    assert run("pool_nodes", pools=[RAW])["changed"] is False
    assert world.writes == []


def test_only_the_nodes_asked_for(run, world):
    world.put(builders.node("n2", labels={"hw": "gpu"}, images=[builders.GPU_IMAGE, builders.LAUNCHER_IMAGE]))
    world.put(builders.handler_pod("n2"))
    assert run("pool_nodes", pools=[RAW], nodes=["n2"])["changes"] == ["Node n2: primary -> gpu"]
    assert world.node("n1").owner == names.PRIMARY


def test_no_nodes(run, world):
    assert run("pool_nodes", pools=[RAW], nodes=[])["changed"] is False
    assert world.writes == []


@pytest.mark.parametrize("check", [False, True])
def test_a_node_that_does_not_exist_is_refused(run, world, check):
    said = run("pool_nodes", pools=[RAW], nodes=["n1", "nl"], check=check)["msg"]
    assert said == "nodes has nl, which the cluster does not have: correct or omit the name."
    assert world.writes == []


def test_in_a_run_such_a_node_was_deleted(run, world):
    held = run("run_lease")["run_id"]
    found = run("pool_nodes", pools=[RAW], nodes=["n1", "deleted"], run_id=held)
    assert found["events"][0].endswith("Node deleted: gone: the node was deleted")
    assert {node["node"]: node["result"] for node in found["nodes"]} == {"n1": "done"}


def test_in_check_mode_a_node_of_the_plan_may_be_deleted(run):
    """A run in check mode has no Lease, and so no id. The last batch has an empty one after it."""
    assert run("pool_nodes", pools=[RAW], nodes=["deleted"], next_batch=[], check=True)["changed"] is False


@pytest.mark.parametrize("run_id", ["run-1", None])
def test_a_name_that_ansible_has_hidden_is_refused(run, world, run_id):
    said = run.failure("pool_nodes", pools=[RAW], nodes=["********-a"], run_id=run_id)
    assert said.startswith("nodes has ********-a, where Ansible has hidden a part")
    assert world.writes == []


@pytest.mark.parametrize("arguments", [{}, {"nodes": []}], ids=str)
def test_pull_pods_that_were_left_are_deleted_without_any_move(run, world, arguments):
    run("pool_nodes", pools=[RAW])
    pod = builders.pull_pod("n1")
    world.put(pod)
    found = run("pool_nodes", pools=[RAW], **arguments)
    assert (found["changed"], found["changes"]) == (True, [f"Pod kubevirt/{builders.PULL_POD}: delete"])
    assert run("pool_nodes", pools=[RAW], **arguments)["changed"] is False


def test_a_node_that_fails_fails_the_module_with_a_report(run, world):
    world.behave["virt-handler-gpu", "n1"] = Behaviour(broken="ImagePullBackOff")
    found = run("pool_nodes", pools=[RAW])
    assert found["failed"]
    assert found["msg"].startswith("1 of 1 node failed, and the run stops here. Node n1: primary -> gpu: returned: ")
    assert [node["result"] for node in found["nodes"]] == ["returned"]
    assert found["wave_failed"] is True
    assert world.all(kinds.LEASE) == []


def test_a_right_that_is_missing_stops_it_with_whole_sentences(run, world):
    world.denied = {("patch", "nodes")}
    found = run("pool_nodes", pools=[RAW])
    assert found["msg"].endswith(" or use other credentials.")
    assert (found["wave_failed"], found["changes"]) == (False, ["Node n1: primary -> gpu"])


def test_images_that_cannot_be_pulled_are_no_change(run, world):
    world.put(builders.node("n1", labels={"hw": "gpu"}, images=[]))
    found = run("pool_nodes", pools=[RAW], pull_timeout=5)
    assert "No node of this batch was touched" in found["msg"]
    assert (found["changed"], found["changes"], found["wave_failed"]) == (False, [], True)


@pytest.mark.parametrize("created_again", [False, True])
@pytest.mark.parametrize(
    ("pulls", "when"), [(30, 3), (12, 3), (None, 1)], ids=["in vain", "while it pulls", "in its handover"]
)
def test_a_node_that_is_deleted_does_not_fail_it(run, world, pulls, when, created_again):
    has = [builders.GPU_IMAGE, builders.LAUNCHER_IMAGE]
    world.put(builders.node("n1", labels={"hw": "gpu"}, images=[] if pulls else has))
    world.put(builders.node("n2", labels={"hw": "gpu"}, images=has))
    world.put(builders.handler_pod("n2"))

    def delete():
        world.drop(kinds.NODE, "n1")
        if created_again:
            world.put(builders.node_created_again("n1", labels={"hw": "gpu"}))

    world.at[world.now + when] = delete
    world.at[world.now + (pulls or 0)] = world.end_pulls
    found = run("pool_nodes", pools=[RAW], max_unavailable=2, pull_timeout=20)
    assert not found.get("failed"), found["msg"]
    assert {node["node"]: node["result"] for node in found["nodes"]} == {"n1": "gone", "n2": "done"}
    assert "Node n1: primary -> gpu: gone: the node was deleted" in found["events"]
    assert found["events"][-1] == "1 of 2 nodes done."


@pytest.mark.parametrize(
    ("labels", "taints", "results", "says"),
    [
        ({"hw": "none"}, [], {"n2": "done"}, "the pools give it to primary now"),
        ({"hw": "none", "of": "fpga"}, [], {"n2": "done"}, "the pools give it to fpga now"),
        ({"of": "fpga"}, [], {}, "Pools gpu, fpga select the same nodes (n1)"),
        ({}, [{"key": "retired", "effect": "NoExecute"}], {"n2": "done"}, "it need not or cannot change now"),
    ],
    ids=["no pool", "another pool", "two pools", "a taint"],
)
def test_a_node_that_changes_while_it_pulls_is_left_alone(run, world, labels, taints, results, says):
    """The pool's VMs would start on hardware that is not theirs, or the pool's handler would not start."""
    for name in ("n1", "n2"):
        world.put(builders.node(name, labels={"hw": "gpu"}))
    world.put(builders.handler_pod("n2"))
    fpga = {**RAW, "name": "fpga", "nodeSelector": {"of": "fpga"}}

    def change():
        node = world.find(kinds.NODE, "n1")
        node["metadata"]["labels"].update(labels)
        node["spec"]["taints"] = taints

    world.at[world.now + 5] = change
    world.at[world.now + 15] = world.end_pulls
    found = run("pool_nodes", pools=[RAW, fpga], max_unavailable=2)
    assert {node["node"]: node["result"] for node in found["nodes"]} == results
    assert bool(found.get("failed")) is not bool(results)
    assert says in " ".join([*found.get("events", ()), found.get("msg", "")])
    assert world.node("n1").owner == names.PRIMARY


def test_a_handover_that_has_begun_ends_on_a_relabelled_node(run, world):
    """It would be left without a handler."""
    world.put(builders.node("n1", names.IN_TRANSIT, labels={"hw": "gpu"}, former=names.PRIMARY))
    world.put(builders.node("n2", labels={"hw": "gpu"}))
    world.put(builders.handler_pod("n2"))
    world.at[world.now + 5] = lambda: world.find(kinds.NODE, "n1")["metadata"]["labels"].update(hw="none")
    world.at[world.now + 15] = world.end_pulls
    found = run("pool_nodes", pools=[RAW], max_unavailable=2)
    assert {node["node"]: node["result"] for node in found["nodes"]} == {"n1": "done", "n2": "done"}
    assert [world.node(name).owner for name in ("n1", "n2")] == [names.PRIMARY, "gpu"]
    assert world.handlers("n1") == ["virt-handler"]


def test_another_clients_change_is_no_failed_node(run, world):
    def before(request):
        if request.method == "PATCH" and "/nodes/" in request.path:
            world.find(kinds.NODE, "n1")["metadata"]["labels"][names.OWNER_LABEL] = "somebody"

    world.before = before
    found = run("pool_nodes", pools=[RAW])
    assert [node["result"] for node in found["nodes"]] == ["interrupted"]
    assert found["wave_failed"] is False


def test_a_batch_that_is_refused_does_not_hide_the_ones_before(run, world):
    images = [builders.GPU_IMAGE, builders.LAUNCHER_IMAGE]
    world.put(builders.node("n2", labels={"hw": "gpu"}, images=images))
    world.put(builders.handler_pod("n2"))
    upgrading = builders.excluding_kubevirt(targetKubeVirtVersion="v1.9.1")

    def upgrade(request):
        if request.method == "PATCH" and any(op.get("value") == "gpu" for op in request.body):
            world.put(upgrading)

    world.before = upgrade
    found = run("pool_nodes", pools=[RAW])
    assert found["failed"]
    assert "is being upgraded from v1.9.0 to v1.9.1" in found["msg"]
    assert [(node["node"], node["result"]) for node in found["nodes"]] == [("n1", "done")]
    assert world.node("n2").owner == names.PRIMARY


def test_a_batch_that_ends_half_way_tells_what_is_done(run, world, monkeypatch):
    monkeypatch.setattr(lease, "Clock", lambda now: waiting.Clock(now=lambda: world.now, sleep=world.sleep))
    world.put(builders.node("n2", labels={"hw": "gpu"}, images=[builders.GPU_IMAGE, builders.LAUNCHER_IMAGE]))
    world.put(builders.handler_pod("n2"))
    world.behave["virt-handler", "n2"] = Behaviour(stop=None)

    def take_lease():
        (held,) = world.all(kinds.LEASE)
        world.put({**held, "spec": {**held["spec"], "holderIdentity": "run-other"}})

    world.at[world.now + 60] = take_lease
    found = run("pool_nodes", pools=[RAW], max_unavailable=2, node_timeout=600)
    assert "has lost its Lease" in found["msg"]
    assert "The handover of n2 was not finished" in found["msg"]
    assert (found["changed"], found["changes"]) == (True, ["Node n1: primary -> gpu"])
    assert [(node["node"], node["result"]) for node in found["nodes"]] == [("n1", "done")]


class TestRun:
    def test_keeps_its_lease_while_kubevirt_settles(self, run, world, monkeypatch):
        """Another run takes it over when it has not changed for 30 seconds."""
        monkeypatch.setattr(lease, "Clock", lambda now: waiting.Clock(now=lambda: world.now, sleep=world.sleep))
        held, settled, versions = run("run_lease")["run_id"], world.all(kinds.KUBEVIRT)[0], []
        world.put({**settled, "status": {**settled["status"], "targetDeploymentID": "d2"}})

        def note_version():
            (live,) = world.all(kinds.LEASE)
            versions.append(live["metadata"]["resourceVersion"])

        for second in range(20, 100, 20):
            world.at[world.now + second] = note_version
        world.at[world.now + 90] = lambda: world.put(settled)
        assert run("pool_nodes", pools=[RAW], nodes=["n1"], run_id=held)["changed"]
        assert len(set(versions)) == 4

    def test_that_holds_the_lease_is_joined(self, run, world):
        held = run("run_lease")
        assert run("pool_nodes", pools=[RAW], run_id=held["run_id"])["changed"]
        assert len(world.all(kinds.LEASE)) == 1, "the run gives it back, not the module"

    def test_that_does_not_hold_it_changes_nothing(self, run, world):
        run("run_lease")
        world.writes.clear()
        assert "has lost its Lease" in run.failure("pool_nodes", pools=[RAW], run_id="run-other")
        assert world.writes == []

    def test_a_lease_that_cannot_be_given_back_is_only_a_warning(self, run, world):
        world.denied = {("delete", "leases")}
        found = run("pool_nodes", pools=[RAW])
        assert found["changed"]
        assert "Not allowed to delete Lease" in str(found["warnings"])


@pytest.mark.parametrize("before", ["exclusion", "daemonset"])
def test_what_must_come_before(run, world, before):
    if before == "exclusion":
        world.put(builders.primary(excluded=False, desired=2))
        world.put(builders.kubevirt())
    else:
        world.drop(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)
    text = run.failure("pool_nodes", pools=[RAW])
    assert ("run primary_exclusion first" if before == "exclusion" else "run pool_daemonsets first") in text
    changed = "removed the exclusion from KubeVirt kubevirt/kubevirt" if before == "exclusion" else "deleted it"
    assert f"If another client has {changed} during this run, see who did that, and run again" in text
    assert owner_writes(world) == []


def test_a_plan_with_errors_is_refused(run, world):
    text = run.failure("pool_nodes", pools=[{**RAW, "nodeSelector": {"kubernetes.io/os": "linux"}}])
    assert "leave the primary virt-handler without a node" in text
    assert world.writes == []


def test_a_batch_of_a_rollout_ends_with_its_progress(run):
    (stands,) = run("plan_info", pools=[RAW])["progress"]
    found = run("pool_nodes", pools=[RAW], nodes=["n1"], progress=stands)
    assert found["events"][-1].startswith("Progress: 1 of 1 node done; ")


class TestNextBatch:
    """Its images are pulled while the batch before it is handed over."""

    @pytest.fixture(autouse=True)
    def more(self, world):
        world.put(builders.node("n2", labels={"hw": "gpu"}))
        world.put(builders.handler_pod("n2"))
        world.after = lambda _request: self.pull(world)

    def pull(self, world):
        for pod in world.all(kinds.POD):
            if names.PULL_LABEL in pod["metadata"]["labels"]:
                pod["status"] = builders.pulled(pod)

    def before_n1(self, world):
        """The nodes to which images were pulled before n1 had its new owner."""
        path = f"/api/v1/namespaces/{builders.NAMESPACE}/pods"
        owned = [
            number
            for number, request in enumerate(world.requests)
            if request.path == "/api/v1/nodes/n1" and request.method != "GET"
        ]
        before = world.requests[: owned[-1]]
        return [
            request.body["spec"]["nodeName"] for request in before if (request.method, request.path) == ("POST", path)
        ]

    def test_as_the_plan_gives_it(self, run, world):
        found = run("plan_info", pools=[RAW], max_unavailable="1")
        assert [[move["node"] for move in batch] for batch in found["next_batches"]] == [["n2"], []]
        result = run("pool_nodes", pools=[RAW], nodes=["n1"], next_batch=found["next_batches"][0])
        assert [node["node"] for node in result["nodes"]] == ["n1"]
        assert self.before_n1(world) == ["n2"]

    def test_of_all_batches(self, run, world):
        result = run("pool_nodes", pools=[RAW], max_unavailable="1")
        assert [node["node"] for node in result["nodes"]] == ["n1", "n2"]
        assert self.before_n1(world) == ["n2"]


def test_bad_progress_is_refused_before_anything_is_done(run, world):
    assert "progress is not what" in run.failure("pool_nodes", pools=[RAW], progress={"wave": "x"})
    assert world.writes == []


def test_a_next_batch_that_no_plan_gave_is_refused(run, world):
    refused = run("pool_nodes", pools=[RAW], next_batch=[{"node": "n2"}])
    assert refused["msg"] == "next_batch is not what plan_info returned; give that, or leave it out."
    assert world.writes == []
