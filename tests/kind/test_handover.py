# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Handovers between real virt-handlers, on real kubelets."""

from __future__ import annotations

from collections.abc import Callable

from kind_fixture import GPU, KindScenario, Watcher, l4

Report = Callable[..., None]


def test_the_scenario_and_the_tests_have_the_same_pool(scenario: KindScenario) -> None:
    """The scenario's converge has brought it; a run with it changes nothing."""
    run = scenario.site([GPU]).succeeded()
    assert run.changed == 0, str(run)


def test_a_node_is_handed_over_to_a_real_virt_handler(scenario: KindScenario, report: Report) -> None:
    """The gap is compared with the stop and start of that pod alone."""
    node = scenario.l4_node
    before = scenario.devices(node)
    assert before["tun"] not in ("", "0"), before
    alone = scenario.restart_seconds(node)
    scenario.kind.wait(lambda: scenario.is_well(node), 300, f"the primary handler on {node} to be well")
    with Watcher(scenario.kind) as watcher, scenario.watched(node) as marks:  # type: ignore[arg-type]
        run = scenario.site([GPU, l4()]).succeeded()
        reported = scenario.reported_after(node)
        assert reported is not None
        assert reported >= 0, "the run was content with a heartbeat of the former handler"
        scenario.kind.wait(lambda: scenario.is_well(node), 300, f"the pool's handler on {node} to be well")
    gap = watcher.gaps()[node]
    assert watcher.crowded == []
    assert watcher.nodes[node].owners == ["primary", "in_transit", "l4"]
    assert scenario.devices(node) == before
    scenario.has_one_handler(node, l4()["virtHandlerImage"])
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


def test_the_container_runtime_agrees_with_verify(scenario: KindScenario, report: Report) -> None:
    """verify reads the API. Which images really run is for the container runtime on the node to say."""
    scenario.create_vm("on-gpu", "gpu")

    def started() -> bool:
        pod = scenario.launcher("on-gpu")
        return pod is not None and any(
            each["name"] == "compute" and "running" in each["state"]
            for each in pod.get("status", {}).get("containerStatuses", [])
        )

    scenario.kind.wait(started, 300, "the launcher pod to run")
    pod = scenario.launcher("on-gpu")
    assert pod is not None
    node = pod["spec"]["nodeName"]
    assert node in scenario.gpu_nodes
    launchers = [each for each in scenario.running(node, "compute") if each.pod == pod["metadata"]["name"]]
    assert [each.image_id for each in launchers] == [scenario.kind.image_id(node, GPU["virtLauncherImage"])]
    for each in scenario.gpu_nodes:
        scenario.has_one_handler(each, GPU["virtHandlerImage"])
    scenario.has_one_handler(scenario.l4_node, scenario.stock["virt-handler"])
    result = scenario.module("verification_info", pools=[GPU])
    report(
        node=node,
        launcher=launchers[0].image,
        verify={key: result.get(key) for key in ("msg", "failed", "ok", "summary")},
    )
    assert not result.get("failed"), result
