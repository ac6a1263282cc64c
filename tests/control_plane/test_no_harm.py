# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What must not cost a node its handler: late taints, long preparations, an outage half-way, a run that died, a wrong name.

The tests run in order.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, Nodes
from playbooks import Run, RunningPlaybook
from scenario import FORMER_OWNER, Scenario, pool
from watcher import Watcher

GPU = pool("gpu", "gpu")
NODE, OTHER = "gpu-00", "gpu-01"
TAINT = "reserved=yes:NoSchedule"
REASON = f"taint {TAINT} is not tolerated"
UNAPPLIABLE = {
    "resourceName": "virt-handler",
    "resourceType": "DaemonSet",
    "type": "json",
    "patch": '[{"op": "remove", "path": "/spec/template/spec/nothing"}]',
}
START_SECONDS = "agent.virtpools.io/start-seconds"
STOP_SECONDS = "agent.virtpools.io/stop-seconds"


def with_image(tag: str) -> dict[str, Any]:
    return {**GPU, "virtHandlerImage": f"{GPU['virtHandlerImage']}-{tag}"}


class Story(Scenario):
    """A cluster, whose first GPU node gets a taint now and then."""

    def taint(self) -> None:
        self.cluster.kubectl("taint", "node", NODE, TAINT)

    def untaint(self) -> None:
        self.cluster.kubectl("taint", "node", NODE, f"{TAINT}-")

    def remove(self, removed: Any = "all") -> Run:
        quick = {"virtpools_node_timeout": 30, "virtpools_settle_timeout": 60}
        return playbooks.run("remove", self.writer.kubeconfig, virtpools_remove=removed, **quick)

    def pods(self) -> dict[str, str]:
        """Return the uid of every node's handler pod."""
        pods = self.get("pods", "-l", "kubevirt.io=virt-handler")["items"]
        return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in pods}

    def await_pull(self, run: RunningPlaybook) -> None:
        """Wait until a pod of a run pulls images onto the node."""
        pods = ("pods", "-l", "virtpools.io/pull", f"--field-selector=spec.nodeName={NODE}")
        self.cluster.wait(lambda: run.ended() or self.get(*pods)["items"], 60, "a pod that pulls images")
        assert not run.ended(), run.wait()


@pytest.fixture(scope="module")
def story(start_cluster: Any) -> Story:
    fleet = Fleet.of(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}),
        Nodes(prefix="plain-", count=2),
    )
    story = Story(start_cluster(fleet))
    story.wait_until_settled()
    return story


def test_the_exclusion_waits_for_a_node_where_the_primary_would_not_start_again(story: Story) -> None:
    story.taint()
    error = story.refused([GPU])
    assert "The exclusion restarts every primary virt-handler" in error
    assert f"1 node(s) would not get theirs back, because {REASON}: {NODE}." in error
    story.untaint()
    story.site([GPU]).succeeded()


def test_an_outdated_handler_stays_where_none_would_start_again(story: Story) -> None:
    story.taint()
    new = with_image("2")
    run = story.site([new]).succeeded()
    assert f"1 node(s) run a handler created from an old template, which stays because {REASON}: {NODE}." in run.stdout
    assert run.changes == ["DaemonSet kubevirt/virt-handler-gpu: update", f"Node {OTHER}: replace the handler of gpu"]
    assert (story.handlers()[NODE], story.handlers()[OTHER]) == ([GPU["virtHandlerImage"]], [new["virtHandlerImage"]])
    story.settled([new])


def test_a_node_whose_handler_is_gone_for_good_is_an_error_with_the_reason(story: Story) -> None:
    (pod,) = story.get("pods", "-l", "kubevirt.io=virt-handler", f"--field-selector=spec.nodeName={NODE}")["items"]
    story.cluster.kubectl("delete", "pod", "-n", "kubevirt", pod["metadata"]["name"])
    assert f"1 node(s) have no handler pod: {NODE} ({REASON})." in story.findings()["no_handler"]
    verified = playbooks.run("verify", story.writer.kubeconfig).refused()
    assert "no_handler" in verified
    story.untaint()
    story.cluster.wait(lambda: story.handlers().get(NODE), 30, "the handler to come back")
    story.wait_until_settled()
    story.cluster.wait(lambda: story.info()["findings"] == [], 30, "the handler to be Ready")
    playbooks.run("verify", story.writer.kubeconfig).succeeded()


def test_a_pool_stays_until_its_nodes_can_leave_it(story: Story) -> None:
    story.taint()
    removal = story.remove().succeeded()
    assert f"because {REASON}: {NODE}." in removal.stdout
    assert story.owners() == {NODE: "gpu"}
    assert len(story.handlers()[NODE]) == 1
    story.untaint()
    story.remove().succeeded()
    assert story.owners() == {}
    story.wait_until_settled()


def test_an_unproven_handler_of_an_older_template_is_replaced_and_proven(story: Story) -> None:
    """A run was killed before the proof, and the next one brings another image."""
    story.site([GPU]).succeeded()
    story.cluster.set_node_annotation(NODE, FORMER_OWNER, "primary")
    new = with_image("3")
    run = story.site([new]).succeeded()
    assert f"Node {NODE}: finish the handover to gpu" in run.changes
    handlers = story.handlers()
    assert handlers[NODE] == handlers[OTHER] == [new["virtHandlerImage"]]
    assert FORMER_OWNER not in story.node(NODE)["annotations"]
    story.settled([new])


def test_a_migration_whose_target_only_its_pod_knows_is_waited_for(story: Story) -> None:
    story.cluster.kubectl("label", "node", "plain-00", "stage=here")
    spec = {
        "nodeSelector": {"stage": "here"},
        "domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}},
    }
    kind = {"apiVersion": "kubevirt.io/v1", "metadata": {"name": "moving", "namespace": "default"}}
    story.apply({**kind, "kind": "VirtualMachineInstance", "spec": spec})

    def vmi() -> dict[str, Any]:
        return dict(json.loads(story.cluster.kubectl("get", "vmi", "moving", "-o", "json")).get("status", {}))

    story.cluster.wait(lambda: vmi().get("phase") == "Running", 60, "the VM to run")
    story.cluster.set_node_annotation(NODE, START_SECONDS, "300")
    story.cluster.kubectl("label", "node", "plain-00", "stage-")
    story.cluster.kubectl("label", "node", NODE, "stage=here")
    story.apply({**kind, "kind": "VirtualMachineInstanceMigration", "spec": {"vmiName": "moving"}})
    target = ("pods", "-n", "default", "-l", "kubevirt.io/migrationJobUID", f"--field-selector=spec.nodeName={NODE}")
    story.cluster.wait(lambda: story.get(*target)["items"], 60, "the target pod to have its node")
    assert "migrationState" not in vmi()
    # The target pod does not start, and neither would a pod that pulls images.
    error = story.site([with_image("4")], virtpools_migration_timeout=1, virtpools_prepull=False).refused()
    assert "live migrations through its nodes did not end within 1 s (default/moving)" in error
    assert story.handlers()[NODE] == [with_image("3")["virtHandlerImage"]]
    story.cluster.set_node_annotation(NODE, START_SECONDS, "0.3")
    story.site([with_image("4")]).succeeded()
    assert vmi()["nodeName"] == NODE
    story.cluster.kubectl("delete", "vmi", "moving")


def test_a_kubevirt_that_breaks_during_a_long_pull_keeps_its_handlers(story: Story) -> None:
    story.cluster.set_node_annotation(NODE, START_SECONDS, "12")
    running = story.start([with_image("5")])
    story.await_pull(running)
    before = story.pods()
    story.patch("kubevirt/kubevirt", {"op": "add", "path": "/spec/customizeComponents/patches/-", "value": UNAPPLIABLE})
    story.cluster.wait(lambda: "kubevirt_degraded" in story.findings(), 30, "KubeVirt to be degraded")
    assert not running.ended()
    error = running.wait().refused()
    assert "No node of this batch was touched, because KubeVirt kubevirt/kubevirt is degraded" in error
    assert story.pods() == before
    patches = story.kubevirt()["spec"]["customizeComponents"]["patches"]
    unapplied = f"/spec/customizeComponents/patches/{patches.index(UNAPPLIABLE)}"
    story.patch("kubevirt/kubevirt", {"op": "remove", "path": unapplied})
    story.wait_until_settled()


def test_a_node_that_gets_a_taint_during_a_long_pull_keeps_its_handler(story: Story) -> None:
    running = story.start([with_image("6")])
    story.await_pull(running)
    before = story.pods()
    story.taint()
    error = running.wait().refused()
    assert f"1 of 2 node(s) failed, and the run stops here. Node {NODE}: replace the handler of gpu: untouched" in error
    assert REASON in error
    assert story.pods()[NODE] == before[NODE]
    assert story.handlers()[OTHER] == [with_image("6")["virtHandlerImage"]]
    story.untaint()
    story.cluster.set_node_annotation(NODE, START_SECONDS, None)


def test_an_outage_of_a_webhook_half_way_delays_the_handover(story: Story) -> None:
    """For longer than a request is repeated: nodes without a handler are not given up."""
    story.site([with_image("4")]).succeeded()
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "somebodys"},
        "webhooks": [
            {
                "name": "nodes.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "matchConditions": [
                    {"name": "runs", "expression": f"request.userInfo.username == '{story.writer.user}'"}
                ],
                "clientConfig": {"service": {"namespace": "default", "name": "nobody", "path": "/"}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}],
            }
        ],
    }
    # The webhook must be there before the handler is gone.
    story.cluster.set_node_annotation(NODE, STOP_SECONDS, "20")
    with Watcher(story.cluster) as watcher:
        running = story.start([pool("fresh", "gpu")], virtpools_prune=True, virtpools_node_timeout=300)
        story.cluster.wait(lambda: story.owners().get(NODE) == "in_transit", 60, "the node to be in transit")
        story.apply(webhook)
        story.cluster.wait(lambda: NODE not in story.handlers(), 60, "the handler to be gone")
        time.sleep(75)
        assert story.owners()[NODE] == "in_transit"
        assert not running.ended(), running.wait()
        story.cluster.kubectl("delete", "validatingwebhookconfiguration", "somebodys")
        running.wait().succeeded()
        watcher.stop()
    story.cluster.set_node_annotation(NODE, STOP_SECONDS, None)
    assert story.owners() == {NODE: "fresh", OTHER: "fresh"}
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])


def test_a_name_that_no_pool_had_is_an_error_and_one_that_a_pool_had_is_not(story: Story) -> None:
    with story.no_writes():
        error = story.remove(["fresh", "gpuu"]).refused()
    assert error == (
        "The cluster has no pool gpuu and its history names none; its pools are: fresh. Correct virtpools_remove, then run again."
    )
    with story.no_writes():
        run = story.remove(["gpu"]).succeeded()
    assert "The cluster has no pool gpu any more: there is nothing of it to remove." in run.stdout
    assert story.owners() == {NODE: "fresh", OTHER: "fresh"}


def test_many_pools_with_long_names_fit_into_every_request(story: Story) -> None:
    """Servers in front of an API server often allow 8 KiB for a request's line."""
    many = [pool(f"{number:03}-{'x' * 44}", f"none-{number:03}") for number in range(160)]
    label = f"accelerator={many[-1]['nodeSelector']['accelerator']}"
    story.cluster.kubectl("label", "node", OTHER, label, "--overwrite")
    pools = [pool("fresh", "gpu"), *many]
    marker = story.cluster.audit_marker()
    plan = playbooks.run("plan", story.writer.kubeconfig, pools).succeeded().plan
    assert len([line for line in plan["changes"] if line.endswith(": create")]) == len(many)
    story.site(pools).succeeded()
    assert story.owners() == {NODE: "fresh", OTHER: many[-1]["name"]}
    assert story.handlers()[OTHER] == [many[-1]["virtHandlerImage"]]
    story.remove([each["name"] for each in many]).succeeded()
    assert story.owners() == {NODE: "fresh"}
    daemonsets = [each["metadata"]["name"] for each in story.get("daemonsets")["items"]]
    assert daemonsets == ["virt-handler", "virt-handler-fresh"]
    requests = story.cluster.requests(marker, story.writer.user)
    assert max(len(request["requestURI"]) for request in requests) < 8_000
