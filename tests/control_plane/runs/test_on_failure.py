# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A rollout that fails goes back by itself, as far as on_failure says. The tests run in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import playbooks
from end_state import EndState
from full_dump import differences, dump
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import Run
from scenario import Scenario, pool
from watcher import Watcher

QUICK = {"agent.virtpools.io/start-seconds": "0.3", "agent.virtpools.io/stop-seconds": "0.3"}
WAVES = [{"name": "canary", "match": {"role": "canary"}}, {"per": "platform"}]
GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage="registry.example/virt-launcher:v1.9.0-gpu",
    selector={"vmLabels": {"matchLabels": {"class": "gpu"}}},
)
NEWER = {**GPU, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-newer"}
BROKEN = {**GPU, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-never-ready"}
LAUNCHER_POLICY = "mutatingadmissionpolicies.admissionregistration.k8s.io/virtpools-launcher"


@pytest.fixture(scope="module")
def scenario(start_cluster: Callable[..., LocalCluster]) -> Scenario:
    """Return a cluster of two platforms with two nodes each for a pool, one of them a canary, and one more node."""
    fleet = Fleet.from_groups(
        *(
            Nodes(
                name=f"{platform}{number}",
                labels={"accelerator": "gpu", "platform": platform, **({"role": "canary"} if name == "a1" else {})},
                annotations=QUICK,
            )
            for platform in ("a", "b")
            for number in range(2)
            if (name := f"{platform}{number}")
        ),
        Nodes(prefix="plain-", count=2, annotations=QUICK),
    )
    scenario = Scenario(start_cluster(fleet))
    scenario.wait_until_settled()
    return scenario


def rollout(scenario: Scenario, of: Any, on_failure: str, **variables: Any) -> Run:
    """Run the playbook rollout with the waves."""
    quick = {"virtpools_node_timeout": 15, "virtpools_pull_timeout": 30, "virtpools_gate_timeout": 20}
    given = {"virtpools_waves": WAVES, "virtpools_on_failure": on_failure, **quick, **variables}
    return playbooks.run("rollout", scenario.writer.kubeconfig, [of], timeout=600, **given)


def closed_at(tmp_path: Any, wave: int) -> list[str]:
    """Return the user gates that close after a wave."""
    gate = tmp_path / "gate.yml"
    gate.write_text(
        f"- ansible.builtin.assert: {{that: virtpools_wave.number != {wave}, fail_msg: Too many errors.}}\n", "utf-8"
    )
    return [str(gate)]


def test_a_broken_canary_leaves_the_fleet_as_it_was(scenario: Scenario) -> None:
    """The handler never gets Ready: the first list ever is taken back, with all that came with it."""
    before = dump(scenario.cluster)
    approved = scenario.module("plan_info", pools=[BROKEN], waves=WAVES, guard=False)["digest"]
    with Watcher(scenario.cluster) as watcher:
        run = rollout(scenario, BROKEN, "rollback_all", virtpools_expected_plan=approved)
        watcher.stop()
    error = run.refused()
    assert "Should a wave fail, all nodes go back to: no pools." in run.stdout[: run.stdout.index("Take the Lease")]
    assert "1 of 1 node failed, and the run stops here. " in error
    assert "Wave 1 (canary) failed, and all nodes went back to: no pools. Why it failed stands above." in error
    assert {start.node for start in watcher.starts if start.daemonset == "virt-handler-gpu"} == {"a1"}
    assert watcher.crowded == []
    assert differences(before, dump(scenario.cluster)) == {}


@pytest.mark.thorough
def test_a_first_wave_rolled_back_leaves_no_vm_waiting(scenario: Scenario, tmp_path: Any) -> None:
    """The pool's only node belongs to the primary again, so no VM is given to the pool any more; later runs go on."""
    error = rollout(scenario, GPU, "rollback_wave", virtpools_gates=closed_at(tmp_path, 1)).refused()
    assert "Wave 1 (canary) failed, and its nodes went back to: no pools. Why it failed stands above." in error
    assert scenario.owners() == {}
    assert "class" not in str(scenario.get(LAUNCHER_POLICY)["spec"])
    rollout(scenario, GPU, "rollback_wave").succeeded()
    assert scenario.owners() == dict.fromkeys(["a0", "a1", "b0", "b1"], "gpu")
    assert "class" in str(scenario.get(LAUNCHER_POLICY)["spec"])
    scenario.settled([GPU], virtpools_waves=WAVES)


def test_a_new_image_that_does_not_start_costs_no_handler(scenario: Scenario) -> None:
    """The node gets its former handler back, and so does a node that restarts: the DaemonSet has its former template."""
    scenario.site([GPU]).succeeded()
    former = scenario.get("daemonset", "virt-handler-gpu")["spec"]["template"]
    handlers = scenario.handlers()
    error = rollout(scenario, BROKEN, "stop").refused()
    assert "Node a1: replace the handler of gpu: returned: handler pod" in error
    assert "it has the former handler of gpu again" in error
    assert scenario.get("daemonset", "virt-handler-gpu")["spec"]["template"] == former
    assert scenario.handlers() == handlers


def test_a_wave_of_new_images_goes_back_alone(scenario: Scenario, tmp_path: Any) -> None:
    """Earlier waves keep their new handlers, later ones their old ones; the same command goes on from there."""
    scenario.site([GPU]).succeeded()
    with Watcher(scenario.cluster) as watcher:
        error = rollout(scenario, NEWER, "rollback_wave", virtpools_gates=closed_at(tmp_path, 2)).refused()
        watcher.stop()
    assert "Wave 2 (platform=a) failed, and its nodes went back to" in error
    images = {node: watcher.images[node][-1] for node in ("a1", "a0")}
    assert images == {"a1": NEWER["virtHandlerImage"], "a0": GPU["virtHandlerImage"]}
    assert {"b0", "b1"}.isdisjoint(start.node for start in watcher.starts)
    assert watcher.crowded == []
    with Watcher(scenario.cluster) as watcher:
        rollout(scenario, NEWER, "rollback_wave").succeeded()
        watcher.stop()
    assert [start.node for start in watcher.starts] == ["a0", "b0", "b1"]
    scenario.settled([NEWER], virtpools_waves=WAVES)


@pytest.mark.thorough
def test_a_later_wave_takes_the_whole_fleet_back(scenario: Scenario, tmp_path: Any) -> None:
    """It goes back to the list before, and the history stays as it was."""
    before, entries = EndState.read(scenario.cluster), scenario.module("pool_history")["entries"]
    last = rollout(scenario, GPU, "rollback_all", virtpools_gates=closed_at(tmp_path, 3)).refused()
    assert f"Wave 3 (platform=b) failed, and all nodes went back to: {entries[-1]['digest']}." in last
    assert EndState.read(scenario.cluster) == before
    assert scenario.module("pool_history")["entries"] == entries
    scenario.settled([NEWER], virtpools_waves=WAVES)


@pytest.mark.thorough  # its unit test has a node that joins, too
def test_a_failure_of_the_newest_list_has_no_list_to_go_back_to(scenario: Scenario) -> None:
    """A node that joined since fails: the run says beforehand that it will stop in that case, and does."""
    node = "plain-00"
    scenario.cluster.kubectl("label", "node", node, "accelerator=gpu")
    scenario.knob(node, "never-ready/virt-handler-gpu")
    run = rollout(scenario, NEWER, "rollback_all")
    told = "If a wave failed, the run would stop, since it has no list to go back to: the run applies the list that was applied last."
    assert told in run.refused()
    assert told in run.stdout[: run.stdout.index("Take the Lease")]
    assert scenario.owners() == dict.fromkeys(["a0", "a1", "b0", "b1"], "gpu")
