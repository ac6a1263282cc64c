# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What must not cost a node its handler: late taints, long preparations, an outage half-way, a run that died, a wrong name.

The tests run in order.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, Nodes
from playbooks import Run, RunningPlaybook
from scenario import FORMER_OWNER, HANDS_OFF, Scenario, migration, pool
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


class HandlerScenario(Scenario):
    """A cluster, whose first GPU node gets a taint now and then."""

    def taint(self) -> None:
        self.cluster.kubectl("taint", "node", NODE, TAINT)

    def untaint(self) -> None:
        self.cluster.kubectl("taint", "node", NODE, f"{TAINT}-")

    def remove(self, removed: Any = "all") -> Run:
        quick = {"virtpools_node_timeout": 30, "virtpools_settle_timeout": 60}
        return playbooks.run("remove", self.writer.kubeconfig, virtpools_remove=removed, **quick)

    def pods(self) -> dict[str, str]:
        """Return the uid of every node's handler pod, once the scheduler has bound it."""
        pods = self.get("pods", "-l", "kubevirt.io=virt-handler")["items"]
        return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in pods if "nodeName" in pod["spec"]}

    def await_pull(self, run: RunningPlaybook) -> None:
        """Wait until a pod of a run pulls images onto the node."""
        pods = ("pods", "-l", "virtpools.io/pull", f"--field-selector=spec.nodeName={NODE}")
        self.cluster.wait(lambda: run.ended() or self.get(*pods)["items"], 60, "a pod that pulls images")
        assert not run.ended(), run.wait()


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> HandlerScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}),
        Nodes(prefix="plain-", count=2),
    )
    scenario = HandlerScenario(start_cluster(fleet))
    scenario.wait_until_settled()
    return scenario


def test_the_exclusion_waits_where_the_primary_would_not_return(scenario: HandlerScenario) -> None:
    scenario.taint()
    error = scenario.refused([GPU])
    assert "The exclusion restarts every primary virt-handler" in error
    assert f"1 node would not get its handler back, because {REASON}: {NODE}." in error
    scenario.untaint()
    scenario.site([GPU]).succeeded()


def test_an_outdated_handler_stays_where_none_would_start_again(scenario: HandlerScenario) -> None:
    scenario.taint()
    new = with_image("2")
    run = scenario.site([new]).succeeded()
    assert f"1 node runs a handler created from an old template, which stays because {REASON}: {NODE}." in run.stdout
    assert run.changes == ["DaemonSet kubevirt/virt-handler-gpu: update", f"Node {OTHER}: replace the handler of gpu"]
    assert (scenario.handlers()[NODE], scenario.handlers()[OTHER]) == (
        [GPU["virtHandlerImage"]],
        [new["virtHandlerImage"]],
    )
    scenario.settled([new])


def test_a_node_without_a_handler_is_an_error_with_the_reason(scenario: HandlerScenario) -> None:
    (pod,) = scenario.get("pods", "-l", "kubevirt.io=virt-handler", f"--field-selector=spec.nodeName={NODE}")["items"]
    scenario.cluster.kubectl("delete", "pod", "-n", "kubevirt", pod["metadata"]["name"])
    assert f"1 node has no handler pod: {NODE} ({REASON})." in scenario.findings()["no_handler"]
    assert "no_handler" in scenario.module("verification_info")["failing"]
    scenario.untaint()
    scenario.cluster.wait(lambda: scenario.handlers().get(NODE), 30, "the handler to come back")
    scenario.wait_until_settled()
    scenario.cluster.wait(lambda: scenario.info()["findings"] == [], 30, "the handler to be Ready")
    assert scenario.module("verification_info")["failing"] == {}


@pytest.mark.thorough  # unit tests replace and prove such a handler
def test_an_unproven_handler_of_an_old_template_is_replaced(scenario: HandlerScenario) -> None:
    """A run was killed before the proof, and the next one brings another image."""
    scenario.cluster.set_node_annotation(NODE, FORMER_OWNER, "primary")
    new = with_image("3")
    run = scenario.site([new]).succeeded()
    assert f"Node {NODE}: finish the handover to gpu" in run.changes
    handlers = scenario.handlers()
    assert handlers[NODE] == handlers[OTHER] == [new["virtHandlerImage"]]
    assert FORMER_OWNER not in scenario.node(NODE)["annotations"]
    scenario.settled([new])


def test_a_migration_with_a_target_only_its_pod_knows_is_awaited(scenario: HandlerScenario) -> None:
    scenario.cluster.kubectl("label", "node", "plain-00", "stage=here")
    spec = {
        "nodeSelector": {"stage": "here"},
        "domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}},
    }
    metadata = {"name": "moving", "namespace": "default"}
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    scenario.apply({**kind, "metadata": metadata, "spec": spec})

    def vmi() -> dict[str, Any]:
        return dict(scenario.cluster.get("vmi", "moving").get("status", {}))

    scenario.cluster.wait(lambda: vmi().get("phase") == "Running", 60, "the VM to run")
    scenario.cluster.set_node_annotation(NODE, START_SECONDS, "300")
    scenario.cluster.kubectl("label", "node", "plain-00", "stage-")
    scenario.cluster.kubectl("label", "node", NODE, "stage=here")
    scenario.apply(migration("moving"))
    target = ("pods", "-n", "default", "-l", "kubevirt.io/migrationJobUID", f"--field-selector=spec.nodeName={NODE}")
    scenario.cluster.wait(lambda: scenario.get(*target)["items"], 60, "the target pod to have its node")
    assert "migrationState" not in vmi()
    before = scenario.handlers()[NODE]
    # The target pod does not start, and neither would a pod that pulls images.
    error = scenario.site([with_image("4")], virtpools_migration_timeout=1, virtpools_prepull=False).refused()
    assert "live migrations through its nodes did not end within 1 s" in error
    assert "VM default/moving (migration moving, " in error
    assert scenario.handlers()[NODE] == before
    scenario.cluster.set_node_annotation(NODE, START_SECONDS, "0.3")
    run = scenario.site([with_image("4")]).succeeded()
    assert vmi()["nodeName"] == NODE
    # Its handler may have no record of it, and must have one before it ends.
    assert "Handlers were made to record 1 VM again" in run.stdout
    assert "virtpools.io/reminder" not in scenario.cluster.get("vmi", "moving")["metadata"]["annotations"]
    scenario.cluster.kubectl("delete", "vmi", "moving")


def test_a_vm_that_its_handler_is_starting_is_awaited(scenario: HandlerScenario) -> None:
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}},
    }
    metadata = {"name": "starting", "namespace": "default", "annotations": {HANDS_OFF: ""}}
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    scenario.apply({**kind, "metadata": metadata, "spec": spec})

    def status() -> dict[str, Any]:
        return dict(scenario.cluster.get("vmi", "starting").get("status", {}))

    scenario.cluster.wait(lambda: status().get("phase") == "Scheduled", 60, "the VM to be its handler's")
    old = scenario.pods()
    running = scenario.start([with_image("4-1")], virtpools_max_unavailable=2)
    scenario.cluster.wait(lambda: scenario.pods().get(OTHER, old[OTHER]) != old[OTHER], 120, "the node beside it")
    assert scenario.pods()[NODE] == old[NODE]
    scenario.cluster.kubectl("annotate", "vmi", "starting", f"{HANDS_OFF}-")
    running.wait().succeeded()
    assert scenario.pods()[NODE] != old[NODE]
    handlers = scenario.get("pods", "-l", "kubevirt.io=virt-handler", f"--field-selector=spec.nodeName={NODE}")["items"]
    (started,) = [each["metadata"]["creationTimestamp"] for each in handlers]
    phases = {each["phase"]: each["phaseTransitionTimestamp"] for each in status()["phaseTransitionTimestamps"]}
    assert phases["Running"] <= started
    scenario.cluster.kubectl("delete", "vmi", "starting")


@pytest.mark.thorough  # the next test shows the same second look after a long pull
def test_a_kubevirt_that_breaks_during_a_pull_keeps_its_handlers(scenario: HandlerScenario) -> None:
    scenario.cluster.set_node_annotation(NODE, START_SECONDS, "12")
    running = scenario.start([with_image("5")])
    scenario.await_pull(running)
    before = scenario.pods()
    scenario.patch(
        "kubevirt/kubevirt", {"op": "add", "path": "/spec/customizeComponents/patches/-", "value": UNAPPLIABLE}
    )
    scenario.cluster.wait(lambda: "kubevirt_degraded" in scenario.findings(), 30, "KubeVirt to be degraded")
    assert not running.ended()
    error = running.wait().refused()
    assert "KubeVirt kubevirt/kubevirt stays degraded" in error
    assert "no further node was touched" in error
    assert scenario.pods() == before
    patches = scenario.kubevirt()["spec"]["customizeComponents"]["patches"]
    unapplied = f"/spec/customizeComponents/patches/{patches.index(UNAPPLIABLE)}"
    scenario.patch("kubevirt/kubevirt", {"op": "remove", "path": unapplied})
    scenario.wait_until_settled()


def test_a_node_tainted_during_a_long_pull_keeps_its_handler(scenario: HandlerScenario) -> None:
    scenario.cluster.set_node_annotation(NODE, START_SECONDS, "12")
    running = scenario.start([with_image("6")])
    scenario.await_pull(running)
    before = scenario.pods()
    scenario.taint()
    running.wait().succeeded()
    assert scenario.pods()[NODE] == before[NODE]
    assert scenario.handlers()[OTHER] == [with_image("6")["virtHandlerImage"]]
    scenario.untaint()
    scenario.cluster.set_node_annotation(NODE, START_SECONDS, None)


@pytest.mark.thorough  # unit tests have outages at every step
def test_an_outage_of_a_webhook_half_way_delays_the_handover(scenario: HandlerScenario) -> None:
    """For longer than a request is repeated: nodes without a handler are not given up."""
    scenario.site([with_image("4")]).succeeded()
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
                    {"name": "runs", "expression": f"request.userInfo.username == '{scenario.writer.user}'"}
                ],
                "clientConfig": {"service": {"namespace": "default", "name": "nobody", "path": "/"}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}],
            }
        ],
    }
    # The webhook must be there before the handler is gone.
    scenario.cluster.set_node_annotation(NODE, STOP_SECONDS, "20")
    with Watcher(scenario.cluster) as watcher:
        running = scenario.start([pool("fresh", "gpu")], virtpools_prune=True, virtpools_node_timeout=300)
        scenario.cluster.wait(lambda: scenario.owners().get(NODE) == "in_transit", 60, "the node to be in transit")
        scenario.apply(webhook)
        scenario.cluster.wait(lambda: NODE not in scenario.handlers(), 60, "the handler to be gone")
        time.sleep(75)
        assert scenario.owners()[NODE] == "in_transit"
        assert not running.ended(), running.wait()
        scenario.cluster.kubectl("delete", "validatingwebhookconfiguration", "somebodys")
        running.wait().succeeded()
        watcher.stop()
    scenario.cluster.set_node_annotation(NODE, STOP_SECONDS, None)
    assert scenario.owners() == {NODE: "fresh", OTHER: "fresh"}
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])


@pytest.mark.thorough  # unit tests plan removals of all kinds of names
def test_a_name_is_an_error_unless_a_pool_had_it(scenario: HandlerScenario) -> None:
    scenario.site([pool("fresh", "gpu")], virtpools_prune=True).succeeded()
    with scenario.no_writes():
        error = scenario.remove(["fresh", "gpuu"]).refused()
    assert error == (
        "The cluster has no pool gpuu and its history names none; its pools are: fresh. Correct virtpools_remove, then run again."
    )
    with scenario.no_writes():
        run = scenario.remove(["gpu"]).succeeded()
    assert "The cluster no longer has pool gpu, so nothing is left to remove." in run.stdout
    assert scenario.owners() == {NODE: "fresh", OTHER: "fresh"}


@pytest.mark.thorough  # 160 pools take their time
def test_many_pools_with_long_names_fit_into_every_request(scenario: HandlerScenario) -> None:
    """Servers in front of an API server often allow 8 KiB for a request's line."""
    many = [pool(f"{number:03}-{'x' * 44}", f"none-{number:03}") for number in range(160)]
    label = f"accelerator={many[-1]['nodeSelector']['accelerator']}"
    scenario.cluster.kubectl("label", "node", OTHER, label, "--overwrite")
    pools = [pool("fresh", "gpu"), *many]
    marker = scenario.cluster.audit_marker()
    plan = playbooks.run("plan", scenario.writer.kubeconfig, pools).succeeded().plan
    assert len([line for line in plan["changes"] if line.endswith(": create")]) == len(many)
    scenario.site(pools).succeeded()
    assert scenario.owners() == {NODE: "fresh", OTHER: many[-1]["name"]}
    assert scenario.handlers()[OTHER] == [many[-1]["virtHandlerImage"]]
    scenario.remove([each["name"] for each in many]).succeeded()
    assert scenario.owners() == {NODE: "fresh"}
    daemonsets = [each["metadata"]["name"] for each in scenario.get("daemonsets")["items"]]
    assert daemonsets == ["virt-handler", "virt-handler-fresh"]
    requests = scenario.cluster.requests(marker, scenario.writer.user)
    assert max(len(request["requestURI"]) for request in requests) < 8_000


def test_a_pool_stays_until_its_nodes_can_leave_it(scenario: HandlerScenario) -> None:
    owner = scenario.owners()[NODE]
    scenario.taint()
    removal = scenario.remove().succeeded()
    assert f"because {REASON}: {NODE}." in removal.stdout
    assert scenario.owners() == {NODE: owner}
    assert len(scenario.handlers()[NODE]) == 1
    scenario.untaint()
    scenario.remove().succeeded()
    assert scenario.owners() == {}
    scenario.wait_until_settled()
