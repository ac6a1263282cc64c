# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What happens to real nodes: reboots, a kubelet that is away, an API server that restarts, pressure, a handler too many."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import yaml

from kind_fixture import GPU, KindScenario, Object, Watcher, l4
from playbooks import RunningPlaybook

Report = Callable[..., None]


def owner(scenario: KindScenario) -> str | None:
    return scenario.owners().get(scenario.l4_node)


def in_the_middle(scenario: KindScenario, watcher: Watcher, running: RunningPlaybook) -> None:
    """Wait until the node is in transit. That lasts a second or two, so it is the witness who tells, not a question."""
    owners = watcher.nodes[scenario.l4_node].owners
    scenario.kind.wait(lambda: "in_transit" in owners or running.ended(), 600, "the node to be in transit", 0.02)
    assert not running.ended()


def ready(scenario: KindScenario) -> bool:
    conditions = scenario.get("node", scenario.l4_node)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_a_node_that_reboots_in_the_middle_of_its_handover(scenario: KindScenario, report: Report) -> None:
    with Watcher(scenario.kind) as watcher:  # type: ignore[arg-type]
        running = scenario.start([GPU, l4()])
        in_the_middle(scenario, watcher, running)
        scenario.kind.reboot(scenario.l4_node)
        run = running.wait(1500)
        scenario.kind.wait(lambda: ready(scenario), 300, "the node to be back")
        again = scenario.site([GPU, l4()]).succeeded()
    scenario.has_one_handler(scenario.l4_node, l4()["virtHandlerImage"])
    assert owner(scenario) == "l4"
    assert watcher.crowded == []
    report(first=run.rc, error=run.error, second_changed=again.changed, owners=watcher.nodes[scenario.l4_node].owners)


@pytest.mark.timeout(2400)
def test_a_kubelet_that_is_away_for_five_minutes(scenario: KindScenario, report: Report) -> None:
    """Its containers run on, and the run must not touch the node."""
    node = scenario.l4_node
    scenario.kind.on(node, "systemctl", "stop", "kubelet")
    stopped = time.monotonic()
    try:
        scenario.kind.wait(lambda: not ready(scenario), 300, "the node to be lost")
        run = scenario.site([GPU, l4()])
        assert owner(scenario) is None, str(run)
        scenario.has_one_handler(node, scenario.stock["virt-handler"])
        time.sleep(max(0, 300 - (time.monotonic() - stopped)))
    finally:
        scenario.kind.on(node, "systemctl", "start", "kubelet")
    scenario.kind.wait(lambda: ready(scenario), 300, "the node to be back")
    again = scenario.site([GPU, l4()]).succeeded()
    scenario.has_one_handler(node, l4()["virtHandlerImage"])
    report(during=run.rc, said=run.error, after=again.changes)


def test_an_api_server_that_restarts_during_a_handover(scenario: KindScenario, report: Report) -> None:
    with Watcher(scenario.kind) as watcher:  # type: ignore[arg-type]
        running = scenario.start([GPU, l4()])
        in_the_middle(scenario, watcher, running)
        server = next(
            each for each in scenario.kind.containers(scenario.control_plane) if each.name == "kube-apiserver"
        )
        scenario.kind.on(scenario.control_plane, "crictl", "stop", "--timeout", "0", server.id)
        run = running.wait(1500).succeeded()
    scenario.has_one_handler(scenario.l4_node, l4()["virtHandlerImage"])
    assert watcher.crowded == []
    report(seconds=round(run.seconds, 1), gap=round(watcher.gaps()[scenario.l4_node], 1))


def test_a_handler_that_is_evicted_under_pressure(scenario: KindScenario, report: Report) -> None:
    """The kubelet evicts the handler, and refuses no new one, until the pressure is gone."""
    node = scenario.l4_node
    scenario.site([GPU, l4()]).succeeded()
    file = "/var/lib/kubelet/config.yaml"
    former = scenario.kind.on(node, "cat", file)
    config = yaml.safe_load(former)
    # A hard threshold above the node's capacity would keep the kubelet from starting: it takes it for a reservation. And
    # 100% would mean none.
    config |= {"evictionSoft": {"memory.available": "100Ti"}, "evictionSoftGracePeriod": {"memory.available": "1s"}}
    pressed = yaml.safe_dump(config)

    def evicted() -> bool:
        events = scenario.get("events", "--field-selector=reason=Evicted")["items"]
        return any(each["involvedObject"]["name"].startswith("virt-handler-l4") for each in events)

    try:
        scenario.kind.on(node, "cp", "/dev/stdin", file, stdin=pressed)
        scenario.kind.on(node, "systemctl", "restart", "kubelet")
        scenario.kind.wait(evicted, 300, "the handler to be evicted")
        said = scenario.info()
        pods = [
            each
            for each in scenario.get("pods", "-l", "kubevirt.io=virt-handler")["items"]
            if each["spec"].get("nodeName") == node
        ]
        phases = [each["status"].get("phase") for each in pods]
    finally:
        scenario.kind.on(node, "cp", "/dev/stdin", file, stdin=former)
        scenario.kind.on(node, "systemctl", "restart", "kubelet")
    scenario.kind.wait(lambda: scenario.is_well(node), 600, "the handler to be back")
    run = scenario.site([GPU, l4()]).succeeded()
    scenario.has_one_handler(node, l4()["virtHandlerImage"])
    report(phases=phases, findings=[each["code"] for each in said["findings"]], changed_after=run.changed)


def test_a_second_handler_started_by_hand(scenario: KindScenario, report: Report) -> None:
    """When it ends, devices of the node may be lost with it. A restart of the node's own handler brings them back.

    It has a controller. Without one the DaemonSet virt-handler adopts it by its label, and ends it: the node is not its own.
    """
    node = scenario.l4_node
    uid = scenario.get("node", node)["metadata"]["uid"]
    owner_of_pod = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    scenario.site([GPU, l4()]).succeeded()
    scenario.kind.wait(lambda: scenario.is_well(node), 300, "the pool's handler to be well")
    before = scenario.devices(node)
    template = scenario.get("daemonset", "virt-handler-l4")["spec"]["template"]
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "by-hand",
            "namespace": "kubevirt",
            "labels": {"kubevirt.io": "virt-handler"},
            "ownerReferences": [owner_of_pod],
        },
        "spec": {**template["spec"], "nodeName": node},
    }
    scenario.apply(pod)
    try:
        scenario.kind.wait(lambda: len(scenario.running(node, "virt-handler")) == 2, 300, "both handlers to run")
        findings = scenario.findings()
        run = scenario.site([GPU, l4(handler="c")])
    finally:
        scenario.kind.kubectl("delete", "pod", "-n", "kubevirt", "by-hand", "--ignore-not-found", "--timeout=400s")
    scenario.kind.wait(lambda: len(scenario.running(node, "virt-handler")) == 1, 300, "one handler to be left")
    ended = time.monotonic()
    left = [scenario.devices(node)]
    while left[-1] != before and time.monotonic() - ended < 90:
        time.sleep(1)
        left += [devices] if (devices := scenario.devices(node)) != left[-1] else []
    seconds = round(time.monotonic() - ended)
    report(findings=findings, run=run.rc, said=run.error, before=before, left=left, for_seconds=seconds)
    assert node in findings["two_handlers"], findings
    scenario.restart_seconds(node)
    scenario.kind.wait(lambda: scenario.devices(node) == before, 120, "the node's devices to be back")
