# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Every kind of run on each build: what a witness sees of nodes without a handler or with two, and whether the run tells it.

The figures are in docs/operator-mode.md. KubeVirt's own programs are stock; what a build adds to them is played by the agent.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from local_cluster import ClusterError, Fleet, Nodes, kubevirt, programs
from operator_mode_scenario import DEVICE, A, B, Build, C, OperatorModeScenario
from scenario import NAMESPACE, Object
from watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from playbooks import Run

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]

FROM, TO = programs.EARLIER, programs.KUBEVIRT
FLEET = Fleet.from_groups(
    Nodes(prefix="gpu-", count=3, labels={"accelerator": "gpu"}, capacity={DEVICE: "4"}),
    Nodes(prefix="edge-", count=2, labels={"accelerator": "edge"}),
    Nodes(prefix="plain-", count=2),
)
ALONE = {"gpu": "virt-handler", "edge": "virt-handler", "plain": "virt-handler"}
GPU = {**ALONE, "gpu": "virt-handler-gpu"}
BOTH = {**GPU, "edge": "virt-handler-edge"}
TOLD = 5.0
"""Windows of this many seconds must be told by the run: it looks every second or two."""


class WindowsScenario(OperatorModeScenario):
    """A cluster of one build, and what a witness saw in each step."""

    def __init__(self, build: Build, *arguments: Any) -> None:
        super().__init__(build, *arguments)
        self.rows: dict[str, Object] = {}

    def step(self, name: str, act: Callable[[], Run | None], owners: dict[str, str]) -> None:
        """Take a step under a witness; afterwards nodes must have the handlers of these DaemonSets, by the first part of their name."""
        with Watcher(self.cluster) as watcher:
            began = time.monotonic()
            run = act()
            seconds = time.monotonic() - began
            watcher.stop()
        bare = {node: max(seen.unready) for node, seen in watcher.nodes.items() if seen.unready}
        two = _longest(watcher, lambda handlers: handlers > 1)
        self.rows[name] = {"seconds": round(seconds), "no Ready handler": _short(bare), "two handlers": _short(two)}
        print(json.dumps({self.build.name: {name: self.rows[name]}}))
        wanted = {node: [owners[node.partition("-")[0]]] for node in watcher.nodes}
        assert (watcher.handlers, watcher.without_ready_handler) == (wanted, [])
        if run is not None:
            _is_told(run, _longest(watcher, lambda handlers: not handlers), two)

    def site(self, *pools: Object, **variables: Any) -> Run:  # type: ignore[override]
        return self.play("site", list(pools), virtpools_remove_vms="leave", **variables).succeeded()

    def remove(self) -> Run:
        run = self.play("remove", virtpools_remove="all", virtpools_mode="auto").succeeded()
        self.wait_until_settled()
        return run

    def turn_gate_off(self) -> None:
        """As a user does who does not know what it is for, and wait until virt-operator has done all that it does then."""
        self.patch("kubevirt/kubevirt", merge={"spec": {"configuration": {"developerConfiguration": None}}})
        stock = f"{kubevirt.IMAGES}/virt-handler:{FROM}"
        self.cluster.wait(lambda: all(stock in images for images in self.handlers().values()), 120, "the primary")
        self.wait_until_settled()

    def upgrade(self) -> None:
        manifest = programs.manifest(self.cluster.add_kubevirt(TO), NAMESPACE, kubevirt.IMAGES)
        # The agent has added the field to the definition; the manifest of the build itself would have it.
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
        self.cluster.wait(lambda: self.kubevirt()["status"]["observedKubeVirtVersion"] == TO, 300, "the upgrade")
        self.wait_until_settled()


def _longest(watcher: Watcher, wanted: Callable[[int], bool]) -> dict[str, float]:
    """Return the longest time in which each node had such a number of handlers, where it had."""
    found = {node: [i.seconds for i in seen.intervals if wanted(i.handlers)] for node, seen in watcher.nodes.items()}
    return {node: max(seconds) for node, seconds in found.items() if seconds}


def _short(seconds: dict[str, float]) -> Object:
    """Return the longest time, and how many nodes of which group had such a time."""
    nodes = Counter(node.partition("-")[0] for node in seconds)
    return {"longest": round(max(seconds.values(), default=0), 1), "nodes": dict(nodes)}


def _is_told(run: Run, bare: dict[str, float], two: dict[str, float]) -> None:
    """Compare what the run says with what was seen."""
    results = [task.result for task in run.results_of("virtpools.kubevirt.operator_pools")]
    for key, seen in (("without_handler", bare), ("with_two_handlers", two)):
        told = {node for result in results for node in result[key]}
        assert {node for node, seconds in seen.items() if seconds >= TOLD} <= told, (key, seen, told)


@pytest.mark.parametrize("build", [A, B, C], ids=lambda build: build.name)
def test_every_kind_of_run(start_cluster: Any, build: Build) -> None:
    with start_cluster(FLEET, build=build.name, kubevirt=FROM) as cluster:
        scenario = WindowsScenario(build, cluster)
        scenario.wait_until_settled()
        gpu, newer, edge = (
            scenario.pool("gpu", version=FROM),
            scenario.pool("gpu", "-2", FROM),
            scenario.pool("edge", version=FROM),
        )
        with scenario.no_writes():
            scenario.step("plan", lambda: scenario.play("plan", [gpu]).succeeded(), ALONE)
        scenario.step("site", lambda: scenario.site(gpu), GPU)
        scenario.step("no-op", lambda: scenario.again([gpu]), GPU)
        scenario.step("change", lambda: scenario.site(newer), GPU)
        scenario.step("add", lambda: scenario.site(newer, edge), BOTH)
        scenario.step("remove one", lambda: scenario.site(newer, virtpools_prune=True), GPU)
        scenario.step("move there", lambda: scenario.site(newer, virtpools_mode="collection"), GPU)
        scenario.step("move back", lambda: scenario.site(newer), GPU)
        if build is B:
            with pytest.raises(ClusterError, match="requires the VirtHandlerPools feature gate"):
                scenario.turn_gate_off()
        else:
            scenario.turn_gate_off()
            scenario.step("remove, gate off by hand", scenario.remove, ALONE)
            scenario.site(gpu)
            scenario.step("upgrade", scenario.upgrade, GPU)
            scenario.step("site after it", lambda: scenario.site(scenario.pool("gpu")), GPU)
        scenario.step("remove", scenario.remove, ALONE)
        print(json.dumps({build.name: scenario.rows}))
