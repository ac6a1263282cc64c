# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The cluster of the molecule scenario kind, after its converge. Each test leaves it as it found it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# The test bed, helpers of the tests on the control plane, and ours.
sys.path.insert(0, str(Path(__file__).parents[2] / "testbed"))
sys.path.insert(0, str(Path(__file__).parents[1] / "control_plane" / "support"))
sys.path.insert(0, str(Path(__file__).parent))

from guests import GuestScenario
from kind_cluster import registry
from kind_cluster.cluster import KindCluster
from kind_cluster.probe import Probe
from kind_fixture import KindScenario
from playbooks import RunningPlaybook

BUILD = Path(__file__).parents[2] / ".build"
REPORT = BUILD / "test-kind.jsonl"
FAILURES = BUILD / "test-kind.failures"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the state in which a test has failed: the next test, or the end of the scenario, changes it."""
    report = yield
    if report.failed and report.when == "call" and "kind" in item.funcargs:
        item.funcargs["kind"].keep_state(FAILURES / item.name)
    return report


@pytest.fixture(scope="session")
def kind() -> Iterator[KindCluster]:
    kubeconfig = os.environ.get("K8S_AUTH_KUBECONFIG")
    if not kubeconfig:
        pytest.exit("These tests run in the side effects of a molecule scenario: make test-kind.", returncode=2)
    cluster = KindCluster(os.environ["VIRTPOOLS_KIND_CLUSTER"], Path(kubeconfig))
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def private(kind: KindCluster) -> Iterator[registry.Registry]:
    """Return a registry with passwords that all nodes can reach."""
    started = registry.Registry.start(kind.name)
    for node in kind.nodes:
        started.known_to(node)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def scenario(kind: KindCluster, private: registry.Registry) -> KindScenario:
    return KindScenario(kind, private)


@pytest.fixture(scope="module")
def guest_scenario(scenario: KindScenario) -> Iterator[GuestScenario]:
    """Return what starts guests, which live on from test to test of a file."""
    with Probe(scenario.kind) as probe:
        yield GuestScenario(scenario, probe)
    scenario.kind.kubectl("delete", "vm", "-n", "default", "--all", "--ignore-not-found", "--timeout=120s")
    scenario.restore()


@pytest.fixture(autouse=True)
def _as_it_was(scenario: KindScenario) -> Iterator[None]:
    yield
    RunningPlaybook.kill_leftovers()
    scenario.restore()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that writes down what a test measured, one line of JSON for each call."""

    def write(**measured: Any) -> None:
        REPORT.parent.mkdir(exist_ok=True)
        with REPORT.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": request.node.name, **measured}) + "\n")

    return write
