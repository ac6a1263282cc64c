# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Handovers between real virt-handlers, on real kubelets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from kind_fixture import DEVICES, GPU, KindScenario, Marks, Watcher, l4

Report = Callable[..., None]


class Gap:
    """For how many seconds a node lacked what a handler gives it, while one handler took another's place."""

    KINDS = ("handler Ready", "takes VMs", "has devices")

    def __init__(self, ready: float, marks: Marks) -> None:
        self.seconds = {
            "handler Ready": round(ready, 1),
            "takes VMs": round(marks.seconds(lambda state: state["schedulable"] != "true"), 1),
            "has devices": round(marks.seconds(lambda state: state.get(f"{DEVICES}tun", "0") == "0"), 1),
        }


def median(gaps: Sequence[Gap], what: str) -> float:
    return statistics.median(gap.seconds[what] for gap in gaps)


def test_the_scenario_and_the_tests_have_the_same_pool(scenario: KindScenario) -> None:
    """The scenario's converge has brought it; a run with it restarts no handler."""

    def handlers() -> set[str]:
        return {pod["metadata"]["uid"] for pod in scenario.get("pods", "-l", "kubevirt.io=virt-handler")["items"]}

    before = handlers()
    scenario.site([GPU]).succeeded()
    assert handlers() == before


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


def test_ten_handovers_against_as_many_restarts(scenario: KindScenario, report: Report) -> None:
    """For how long a node has no Ready handler, takes no VMs, and has no devices: handed over, and by a restart alone."""
    handed_over: list[Gap] = []
    restarted: list[Gap] = []
    for number in range(5):
        with scenario.watched(scenario.l4_node) as marks:
            gap = scenario.restart_seconds(scenario.l4_node)
            scenario.kind.wait(lambda: scenario.is_well(scenario.l4_node), 300, "the primary's handler to be well")
        restarted.append(Gap(gap, marks))
        pool = {**GPU, "resources": {"requests": {"cpu": f"{number + 11}m", "memory": "325Mi"}}}
        with ExitStack() as watched:
            seen = {node: watched.enter_context(scenario.watched(node)) for node in scenario.gpu_nodes}
            watcher = watched.enter_context(Watcher(scenario.kind))  # type: ignore[arg-type]
            scenario.site([pool]).succeeded()
        assert sorted(watcher.gaps()) == scenario.gpu_nodes
        handed_over += [Gap(watcher.gaps()[node], seen[node]) for node in scenario.gpu_nodes]
    report(
        handed_over=[gap.seconds for gap in handed_over],
        restarted=[gap.seconds for gap in restarted],
        medians={what: (median(handed_over, what), median(restarted, what)) for what in Gap.KINDS},
    )
    # KubeVirt's probe first asks after 15 s. A handover is over before.
    ready = "handler Ready"
    assert max(gap.seconds[ready] for gap in handed_over) < min(gap.seconds[ready] for gap in restarted)


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
