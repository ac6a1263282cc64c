# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A fleet goes back to an earlier list, however the last run ended. The tests run in order."""

from __future__ import annotations

from typing import Any

import pytest

import playbooks
from end_state import EndState
from local_cluster import Fleet, Nodes
from playbooks import Run
from scenario import Object, Scenario, pool

# test_idempotence goes back to the list before; unit tests do so with launcher images, and after runs that were interrupted.
pytestmark = pytest.mark.thorough

QUICK = {"agent.virtpools.io/start-seconds": "0.3", "agent.virtpools.io/stop-seconds": "0.3"}
GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage="registry.example/virt-launcher:v1.9.0-gpu",
    selector={"vmLabels": {"matchLabels": {"class": "gpu"}}},
)
FORMER = [GPU, pool("rt", "rt")]
# One pool has another image and no launcher image, the other pool is gone, and a third takes its node.
EDITED = [pool("gpu", "gpu", virtHandlerImage="registry.example/virt-handler:v1.9.0-next"), pool("real-time", "rt")]
BROKEN = [GPU, pool("rt", "rt", virtHandlerImage="registry.example/virt-handler:v1.9.0-never-ready")]


class RollbackScenario(Scenario):
    """A fleet, and its state under each list."""

    def rollback(self, *arguments: str, pools: Any = None, **variables: Any) -> Run:
        quick = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 8, "virtpools_max_unavailable": "100%"}
        return playbooks.run("rollback", self.writer.kubeconfig, pools, *arguments, **{**quick, **variables})

    def state(self) -> EndState:
        return EndState.read(self.cluster)

    def history(self) -> Object:
        return self.module("pool_history")


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> RollbackScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, annotations=QUICK),
        Nodes(name="rt", labels={"accelerator": "rt"}, annotations=QUICK),
        Nodes(name="plain", annotations=QUICK),
    )
    scenario = RollbackScenario(start_cluster(fleet))
    scenario.wait_until_settled()
    return scenario


def test_without_an_earlier_list_nothing_is_done(scenario: RollbackScenario) -> None:
    with scenario.no_writes():
        error = scenario.rollback().refused()
    assert error.startswith("There is no earlier pool list to go back to")


def test_every_run_that_changed_something_is_in_the_history(scenario: RollbackScenario) -> None:
    scenario.site(FORMER).succeeded()
    scenario.former = scenario.state()
    scenario.site(EDITED, virtpools_prune=True).succeeded()
    scenario.edited = scenario.state()
    entries = scenario.history()["entries"]
    assert [[each["name"] for each in entry["pools"]] for entry in entries] == [["gpu", "rt"], ["gpu", "real-time"]]


def test_the_list_before_is_brought_back_as_planned(scenario: RollbackScenario) -> None:
    with scenario.no_writes():
        foretold = scenario.rollback("--check").succeeded()
    # A rollback ignores the current list, even one on the command line.
    run = scenario.rollback(pools=EDITED, virtpools_expected_plan=foretold.plan["digest"]).succeeded()
    assert run.changes == foretold.changes == run.plan["changes"]
    assert scenario.state() == scenario.former
    scenario.settled(FORMER)


def test_a_rollback_of_a_rollback_returns(scenario: RollbackScenario) -> None:
    scenario.rollback().succeeded()
    assert scenario.state() == scenario.edited
    digests = [entry["digest"] for entry in scenario.history()["entries"]]
    assert digests == [*digests[:2], *digests[:2]]
    scenario.rollback(virtpools_rollback_to=digests[0]).succeeded()
    assert scenario.state() == scenario.former


def test_a_run_that_failed_is_undone(scenario: RollbackScenario) -> None:
    entries = scenario.history()["entries"]
    failed = scenario.site(BROKEN, virtpools_pull_timeout=3, virtpools_node_timeout=5)
    assert failed.rc != 0
    assert scenario.history()["entries"] == entries
    assert scenario.state() != scenario.former
    scenario.rollback().succeeded()
    assert scenario.state() == scenario.former
    assert scenario.history()["entries"] == entries
