# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Clusters for tests: started when the first test asks, shared by the session, stopped at its end."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests are imported by file (importmode=importlib), so the test bed and the folder of their helpers must be put on the path.
sys.path.insert(0, str(Path(__file__).parents[2] / "testbed"))
sys.path.insert(0, str(Path(__file__).parent / "support"))

from local_cluster import ClusterError, Fleet, LocalCluster, keep_logs, paths, programs
from local_cluster import cluster as clusters
from local_cluster import instance as instances
from playbooks import RunningPlaybook

StartCluster = Callable[..., LocalCluster]

# Tests run in parallel on few cores, so waits have five times as long as on an idle machine.
LocalCluster.patience = 5

_running: list[LocalCluster] = []
_numbers = itertools.count(1)


class _TestCluster(LocalCluster):
    """A cluster whose logs outlive it when a test has failed, also where a test or a fixture ends it by ``with``."""

    session: pytest.Session
    """Of all clusters, also of those that a start makes to copy them."""

    def __exit__(self, error: type[BaseException] | None = None, *_: object) -> None:
        self._end(failed=error is not None)

    def stop(self) -> None:
        self._end(failed=False)

    def _end(self, *, failed: bool) -> None:
        if (failed or self.session.testsfailed) and self.logs.exists():
            print(f"Logs of cluster {self.name} are kept in {keep_logs(self)}")
        super().stop()


def _starting(session: pytest.Session) -> Iterator[StartCluster]:
    """Yield a function that starts a cluster like LocalCluster.start; stop all clusters that it started afterwards."""
    started = []
    _TestCluster.session = session

    def start(fleet: Fleet | Path | None = None, **options: Any) -> LocalCluster:
        name = f"test-{os.getpid()}-{next(_numbers)}"
        cluster = _TestCluster.start(name, fleet, **options)
        started.append(cluster)
        _running.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.stop()
        _running.remove(cluster)


@pytest.fixture(scope="session", autouse=True)
def _swept() -> None:
    _sweep()


@pytest.fixture(autouse=True)
def _runs_ended() -> Iterator[None]:
    yield
    RunningPlaybook.kill_leftovers()


@pytest.fixture(scope="module")
def start_cluster(request: pytest.FixtureRequest) -> Iterator[StartCluster]:
    """Return a function that starts a cluster for the tests of one file: dozens at once would slow down all of them."""
    yield from _starting(request.session)


@pytest.fixture(scope="session")
def start_shared_cluster(request: pytest.FixtureRequest) -> Iterator[StartCluster]:
    """Return a function that starts a cluster for the whole session."""
    yield from _starting(request.session)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> LocalCluster:
    """Return a cluster with the demo's nodes and KubeVirt."""
    return start_cluster(paths.FLEETS / "demo.yaml")


@pytest.fixture(scope="session")
def plain_cluster(start_shared_cluster: StartCluster) -> LocalCluster:
    """Return a cluster of three nodes without KubeVirt."""
    return start_shared_cluster(kubevirt="")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the time of the first test begins to count. Tests report what is wrong with them."""
    if session.items and not session.config.option.collectonly:
        with contextlib.suppress(ClusterError):
            programs.build()
            programs.build_one("KubeVirt", programs.EARLIER)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.CallInfo[None], None]:
    """Report with each failure where the clusters' logs are."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and _running:
        logs = "\n".join(f"{cluster.name}: {cluster.logs}" for cluster in _running)
        report.sections.append(("logs of local clusters", logs))


def _sweep() -> None:
    """Stop the clusters that a killed session left behind."""
    for name in instances.names():
        match = re.fullmatch(r"test-(\d+)-\d+", name)
        if match and not Path(f"/proc/{match[1]}").exists():
            clusters.stop(name)
