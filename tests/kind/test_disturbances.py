# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What happens to real nodes: reboots, a kubelet that is away, an API server that restarts, pressure, a handler too many."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import yaml
from kind_fixture import GPU, Object, Room, Watcher, l4

from playbooks import RunningPlaybook

Report = Callable[..., None]


def owner(room: Room) -> str | None:
    return room.owners().get(room.l4_node)


def in_the_middle(room: Room, watcher: Watcher, running: RunningPlaybook) -> None:
    """Wait until the node is in transit. That lasts a second or two, so it is the witness who tells, not a question."""
    owners = watcher.nodes[room.l4_node].owners
    room.kind.wait(lambda: "in_transit" in owners or running.ended(), 600, "the node to be in transit", 0.02)
    assert not running.ended()


def ready(room: Room) -> bool:
    conditions = room.get("node", room.l4_node)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_a_node_that_reboots_in_the_middle_of_its_handover(room: Room, report: Report) -> None:
    with Watcher(room.kind) as watcher:  # type: ignore[arg-type]
        running = room.start([GPU, l4()])
        in_the_middle(room, watcher, running)
        room.kind.reboot(room.l4_node)
        run = running.wait(1500)
        room.kind.wait(lambda: ready(room), 300, "the node to be back")
        again = room.site([GPU, l4()]).succeeded()
    room.has_one_handler(room.l4_node, "registry.example/virt-handler:b")
    assert owner(room) == "l4"
    assert watcher.crowded == []
    report(first=run.rc, error=run.error, second_changed=again.changed, owners=watcher.nodes[room.l4_node].owners)


@pytest.mark.timeout(2400)
def test_a_kubelet_that_is_away_for_five_minutes(room: Room, report: Report) -> None:
    """Its containers run on, and the run must not touch the node."""
    node = room.l4_node
    room.kind.on(node, "systemctl", "stop", "kubelet")
    stopped = time.monotonic()
    try:
        room.kind.wait(lambda: not ready(room), 300, "the node to be lost")
        run = room.site([GPU, l4()])
        assert owner(room) is None, str(run)
        room.has_one_handler(node, room.stock["virt-handler"])
        time.sleep(max(0, 300 - (time.monotonic() - stopped)))
    finally:
        room.kind.on(node, "systemctl", "start", "kubelet")
    room.kind.wait(lambda: ready(room), 300, "the node to be back")
    again = room.site([GPU, l4()]).succeeded()
    room.has_one_handler(node, "registry.example/virt-handler:b")
    report(during=run.rc, said=run.error, after=again.changes)


def test_an_api_server_that_restarts_during_a_handover(room: Room, report: Report) -> None:
    with Watcher(room.kind) as watcher:  # type: ignore[arg-type]
        running = room.start([GPU, l4()])
        in_the_middle(room, watcher, running)
        server = next(each for each in room.kind.containers(room.control_plane) if each.name == "kube-apiserver")
        room.kind.on(room.control_plane, "crictl", "stop", "--timeout", "0", server.id)
        run = running.wait(1500).succeeded()
    room.has_one_handler(room.l4_node, "registry.example/virt-handler:b")
    assert watcher.crowded == []
    report(seconds=round(run.seconds, 1), gap=round(watcher.gaps()[room.l4_node], 1))


def test_a_handler_that_is_evicted_under_pressure(room: Room, report: Report) -> None:
    """The kubelet evicts the handler, and refuses no new one, until the pressure is gone."""
    node = room.l4_node
    room.site([GPU, l4()]).succeeded()
    file = "/var/lib/kubelet/config.yaml"
    former = room.kind.on(node, "cat", file)
    config = yaml.safe_load(former)
    # A hard threshold above the node's capacity would keep the kubelet from starting: it takes it for a reservation. And
    # 100% would mean none.
    config |= {"evictionSoft": {"memory.available": "100Ti"}, "evictionSoftGracePeriod": {"memory.available": "1s"}}
    pressed = yaml.safe_dump(config)

    def evicted() -> bool:
        events = room.get("events", "--field-selector=reason=Evicted")["items"]
        return any(each["involvedObject"]["name"].startswith("virt-handler-l4") for each in events)

    try:
        room.kind.on(node, "cp", "/dev/stdin", file, stdin=pressed)
        room.kind.on(node, "systemctl", "restart", "kubelet")
        room.kind.wait(evicted, 300, "the handler to be evicted")
        said = room.info()
        pods = [
            each
            for each in room.get("pods", "-l", "kubevirt.io=virt-handler")["items"]
            if each["spec"].get("nodeName") == node
        ]
        phases = [each["status"].get("phase") for each in pods]
    finally:
        room.kind.on(node, "cp", "/dev/stdin", file, stdin=former)
        room.kind.on(node, "systemctl", "restart", "kubelet")
    room.kind.wait(lambda: room.is_well(node), 600, "the handler to be back")
    run = room.site([GPU, l4()]).succeeded()
    room.has_one_handler(node, "registry.example/virt-handler:b")
    report(phases=phases, findings=[each["code"] for each in said["findings"]], changed_after=run.changed)


def test_a_second_handler_started_by_hand(room: Room, report: Report) -> None:
    """When it ends, devices of the node may be lost with it. A restart of the node's own handler brings them back.

    It has a controller. Without one the DaemonSet virt-handler adopts it by its label, and ends it: the node is not its own.
    """
    node = room.l4_node
    uid = room.get("node", node)["metadata"]["uid"]
    owner_of_pod = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    room.site([GPU, l4()]).succeeded()
    room.kind.wait(lambda: room.is_well(node), 300, "the pool's handler to be well")
    before = room.devices(node)
    template = room.get("daemonset", "virt-handler-l4")["spec"]["template"]
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
    room.apply(pod)
    try:
        room.kind.wait(lambda: len(room.running(node, "virt-handler")) == 2, 300, "both handlers to run")
        findings = room.findings()
        run = room.site([GPU, l4(handler="c")])
    finally:
        room.kind.kubectl("delete", "pod", "-n", "kubevirt", "by-hand", "--ignore-not-found", "--timeout=400s")
    room.kind.wait(lambda: len(room.running(node, "virt-handler")) == 1, 300, "one handler to be left")
    ended = time.monotonic()
    left = [room.devices(node)]
    while left[-1] != before and time.monotonic() - ended < 90:
        time.sleep(1)
        left += [devices] if (devices := room.devices(node)) != left[-1] else []
    seconds = round(time.monotonic() - ended)
    report(findings=findings, run=run.rc, said=run.error, before=before, left=left, for_seconds=seconds)
    assert node in findings["two_handlers"], findings
    room.restart_seconds(node)
    room.kind.wait(lambda: room.devices(node) == before, 120, "the node's devices to be back")
