# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Handovers between real virt-handlers, on real kubelets."""

from __future__ import annotations

from collections.abc import Callable

from kind_fixture import GPU, Room, Watcher, l4

Report = Callable[..., None]


def test_the_scenario_and_the_stories_have_the_same_pool(room: Room) -> None:
    """The scenario's converge has brought it; a run with it changes nothing."""
    run = room.site([GPU]).succeeded()
    assert run.changed == 0, str(run)


def test_a_node_is_handed_over_to_a_real_virt_handler(room: Room, report: Report) -> None:
    """The gap is compared with the stop and start of that pod alone."""
    node = room.l4_node
    before = room.devices(node)
    assert before["tun"] not in ("", "0"), before
    alone = room.restart_seconds(node)
    room.kind.wait(lambda: room.is_well(node), 300, f"the primary handler on {node} to be well")
    with Watcher(room.kind) as watcher, room.watched(node) as marks:  # type: ignore[arg-type]
        run = room.site([GPU, l4()]).succeeded()
        reported = room.reported_after(node)
        assert reported is not None
        assert reported >= 0, "the run was content with a heartbeat of the former handler"
        room.kind.wait(lambda: room.is_well(node), 300, f"the pool's handler on {node} to be well")
    gap = watcher.gaps()[node]
    assert watcher.crowded == []
    assert watcher.nodes[node].owners == ["primary", "in_transit", "l4"]
    assert room.devices(node) == before
    room.has_one_handler(node, "registry.example/virt-handler:b")
    outcome = run.results_of("virtpools.kubevirt.pool_nodes")
    report(
        alone=round(alone, 1),
        gap=round(gap, 1),
        multiple=round(gap / alone, 2),
        heartbeat_after_start=reported,
        run_seconds=round(run.seconds, 1),
        marks=marks.seen,
        said=[task.result.get("changes") for task in outcome],
    )


def test_the_container_runtime_agrees_with_verify(room: Room, report: Report) -> None:
    """verify reads the API. Which images really run is for the container runtime on the node to say."""
    room.create_vm("on-gpu", "gpu")

    def started() -> bool:
        pod = room.launcher("on-gpu")
        return pod is not None and any(
            each["name"] == "compute" and "running" in each["state"]
            for each in pod.get("status", {}).get("containerStatuses", [])
        )

    room.kind.wait(started, 300, "the launcher pod to run")
    pod = room.launcher("on-gpu")
    assert pod is not None
    node = pod["spec"]["nodeName"]
    assert node in room.gpu_nodes
    launchers = [each for each in room.running(node, "compute") if each.pod == pod["metadata"]["name"]]
    assert [each.image_id for each in launchers] == [room.kind.image_id(node, GPU["virtLauncherImage"])]
    for each in room.gpu_nodes:
        room.has_one_handler(each, GPU["virtHandlerImage"])
    room.has_one_handler(room.l4_node, room.stock["virt-handler"])
    result = room.module("verification_info", pools=[GPU])
    report(
        node=node,
        launcher=launchers[0].image,
        verify={key: result.get(key) for key in ("msg", "failed", "ok", "summary")},
    )
    assert not result.get("failed"), result
