# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A run that is killed or disturbed at one of its writes, and then repeated, ends like an undisturbed one.

A proxy in front of a real API server disturbs the runs. The roles are played in this process, which is fast enough to
disturb every write; some runs go through ansible-playbook as well. A round takes a cluster from stock KubeVirt through
runs of all kinds and back. In the nth round each run is killed at its nth write; one with fewer writes meets another
fault. With VIRTPOOLS_TEST_ALL_KILLS=1 there are as many rounds as the longest run has writes, with and without HCO;
VIRTPOOLS_TEST_ROUNDS=7,12 picks some of them. Else there is one round with three kinds of runs, and none in make test:
unit tests cut every write on a cluster in memory, and the runs through ansible-playbook show that the real one is like it.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

import playbooks
import prometheus_operator
import proxy
from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api import client, transport
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import POD
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.tests.unit.support.disturbance import FAULTS, Disturbance
from ansible_collections.virtpools.kubevirt.tests.unit.support.in_process import run_module
from ansible_collections.virtpools.kubevirt.tests.unit.support.launcher_cases import CONTROLLER, STOCK, launcher_pod
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play, TaskFailed
from end_state import EndState
from local_cluster import Fleet, LocalCluster, Nodes
from scenario import OWNER, Object, Scenario, pool
from watcher import Watcher

# In make test, unit tests disturb every write, and test_interruption stops playbooks.
pytestmark = pytest.mark.thorough

ROUNDS = [int(number) for number in os.environ.get("VIRTPOOLS_TEST_ROUNDS", "").split(",") if number]
ALL = bool(os.environ.get("VIRTPOOLS_TEST_ALL_KILLS") or ROUNDS)
# A handler marks its node when it starts, and its first heartbeat must be in a later second: the default delay stays.
AGENT = "--start-seconds 0.1 --stop-seconds 0.1"
LAUNCHER = "registry.example/virt-launcher:v1.9.0"
GPU = pool("gpu", "gpu", virtLauncherImage=f"{LAUNCHER}-gpu", selector={"vmLabels": {"matchLabels": {"class": "gpu"}}})
RT = pool("rt", "rt")
NEXT = {**GPU, "virtHandlerImage": f"{GPU['virtHandlerImage']}-next", "virtLauncherImage": f"{LAUNCHER}-next"}
POOL_IMAGES = {GPU["virtLauncherImage"], NEXT["virtLauncherImage"]}
EDITED = [NEXT, pool("real-time", "rt")]
WAVES = [{"nodes": ["gpu-01"]}, {"pools": ["gpu"]}]

ROUND: dict[str, tuple[str, Object]] = {
    "first site": ("site", {"virtpools_pools": [GPU, RT], "virtpools_alerts": True}),
    "pools changed": ("site", {"virtpools_pools": EDITED, "virtpools_prune": True, "virtpools_alerts": True}),
    "rollback": ("rollback", {"virtpools_rollback_to": "FIRST"}),
    "new nodes assigned": ("site", {"virtpools_pools": [GPU, RT], "virtpools_assign_new_nodes": True}),
    "waves": ("rollout", {"virtpools_pools": [NEXT, RT], "virtpools_waves": WAVES}),
    "waves with canary VMs": (
        "rollout",
        {"virtpools_pools": [GPU, RT], "virtpools_waves": WAVES, "virtpools_canary_vm": True},
    ),
    "guard": ("site", {"virtpools_pools": [GPU, RT], "virtpools_guard": True}),
    "outdated policy": ("site", {"virtpools_pools": [NEXT, RT], "virtpools_outdated": "correct"}),
    "one pool removed": ("remove", {"virtpools_remove": ["rt"]}),
    "removed": ("remove", {"virtpools_remove": "all"}),
}
"""Each run is a playbook with its variables, on the cluster as the run before left it."""
KINDS = [*ROUND] if ALL else ["first site", "pools changed", "removed"]
SAMPLE = [
    ("first site", "/mutatingadmissionpolicybindings", "killed after"),
    ("pools changed", "/mutatingadmissionpolicies/virtpools-launcher", "409"),
    ("removed", "DELETE /apis/apps/v1/namespaces/kubevirt/daemonsets/", "lost after"),
    ("first site", "PATCH /api/v1/nodes/", "429"),
    ("pools changed", "/configmaps/virtpools-history", "503"),
    ("removed", "/kubevirts/kubevirt", "slow"),
]
"""Runs through ansible-playbook, the kind of write at whose first each is disturbed, and how."""
ROLES = {"site": "pools", "rollout": "rollout", "rollback": "rollback", "remove": "remove"}
COMMON = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 30, "virtpools_max_unavailable": "100%"}


class Killed(BaseException):
    """Raised instead of an answer once a client in this process was killed, so that it sends nothing more."""


class InProcess:
    """Plays roles in this process; the waits between two reads of the cluster are short."""

    write_timeout = 2.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._dead = False
        send = transport._KubernetesTransport.send

        def sent(transport: Any, request: transport.Request) -> transport.Response:
            if not transport.server.startswith("http:"):  # not through the proxy
                return send(transport, request)
            if self._dead:
                raise Killed
            try:
                return send(transport, request)
            finally:
                if self._dead:
                    raise Killed

        monkeypatch.setattr(transport._KubernetesTransport, "send", sent)
        # The proxy keeps the events of a watch back, and waits for events are not as short.
        monkeypatch.setattr(transport._KubernetesTransport, "open", self._closed)
        monkeypatch.setattr(
            module_base, "Clock", functools.partial(Clock, sleep=lambda seconds: time.sleep(seconds / 10))
        )
        monkeypatch.setattr(client, "WRITE_TIMEOUT_SECONDS", self.write_timeout)

    @staticmethod
    def _closed(*_: Any) -> NoReturn:
        raise transport.NoAnswer("nothing can be followed", sent=True)

    def kill(self) -> None:
        self._dead = True

    def run(self, kubeconfig: Any, playbook: str, variables: Object) -> str | None:
        """Run a playbook until it ends or is killed, and return its error, if any."""
        self._dead = False
        module = functools.partial(run_module, kubeconfig=str(kubeconfig))
        try:
            Play(module).role(ROLES[playbook], **variables)
        except TaskFailed as error:
            return str(error)
        except Killed:
            return "killed"
        return None


class Playbooks:
    """Runs playbooks as users do."""

    write_timeout = client.WRITE_TIMEOUT_SECONDS

    def __init__(self) -> None:
        self._dead = False

    def kill(self) -> None:
        self._dead = True
        self._running.kill_all()

    def run(self, kubeconfig: Any, playbook: str, variables: Object) -> str | None:
        """Run a playbook until it ends or is killed, and return its error, if any."""
        self._dead = False
        self._running = playbooks.start(playbook, kubeconfig, None, **variables)
        ended = self._running.wait()
        if self._dead:
            return "killed"
        return str(ended) if ended.rc else None


class Starts:
    """Creates launcher pods all the time, as dry runs, and records what is wrong with them; a context manager.

    A launcher pod of the pool must get either the pool's image everywhere and the pool's nodes, or KubeVirt's own image
    and no node of a pool. A launcher pod of no pool must always get the latter. No pod may be refused.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        who = {"impersonate_user": CONTROLLER, "impersonate_groups": ["system:masters"]}
        self._controller = client.Cluster.connect({"kubeconfig": str(cluster.kubeconfig), **who})
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._try, daemon=True)
        self.tried = 0
        self.wrong: list[str] = []

    def __enter__(self) -> Starts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)

    def _try(self) -> None:
        while not self._end.wait(0.3):
            for labels, images in (({"class": "gpu"}, POOL_IMAGES), ({"class": "none"}, set())):
                try:
                    problem = self._problem(launcher_pod(namespace="default", labels=labels), images)
                except client.ClusterError as error:
                    problem = str(error)
                self.tried += 1
                self.wrong += [problem] if problem else []

    def _problem(self, pod: Object, images: set[str]) -> str | None:
        admitted = self._controller.create(POD, pod, dry_run=True)
        affinity = admitted["spec"].get("affinity", {}).get("nodeAffinity", {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        pools = {tuple(each["values"]) for term in required for each in _of_pool(term)}
        actual = (set(LauncherPod.from_object(admitted).launcher_images.values()), pools)
        if actual == ({STOCK}, set()) or (actual[1] == {("gpu",)} and len(actual[0]) == 1 and actual[0] <= images):
            return None
        return f"a launcher pod labelled {pod['metadata']['labels']} gets images and pools {actual}"


def _of_pool(term: Object) -> list[Object]:
    return [each for each in term.get("matchExpressions", ()) if (each["key"], each["operator"]) == (OWNER, "In")]


@dataclass
class Undisturbed:
    """An undisturbed run: how many writes it sent, and how it left the cluster."""

    writes: int
    state: EndState


class DisturbedCluster:
    """A cluster behind a proxy, whose runs are disturbed."""

    def __init__(self, cluster: LocalCluster, way: proxy.Proxy, scenario: Scenario, starts: Starts) -> None:
        self.cluster = cluster
        self.starts = starts
        self.scenario = scenario
        self.undisturbed: dict[str, Undisturbed] = {}
        self.first = ""
        self._way = way

    def run(
        self, by: InProcess | Playbooks, kind: str, number: int = 0, fault: str = "", write: str = ""
    ) -> tuple[Disturbance, str | None]:
        """Run a playbook; return what disturbed it, and the error with which it failed."""
        playbook, variables = ROUND[kind]
        given = {key: self.first if value == "FIRST" else value for key, value in variables.items()}
        disturbance = Disturbance(number, fault, kind=write, kill=by.kill, slow_seconds=by.write_timeout + 1)
        self._way.treat = disturbance
        return disturbance, by.run(self._way.kubeconfig, playbook, {**COMMON, **given})

    def learn(self, by: InProcess | Playbooks, kind: str) -> None:
        """Run a playbook undisturbed, and remember how it ends."""
        disturbance, error = self.run(by, kind)
        assert error is None, error
        self.undisturbed[kind] = Undisturbed(len(disturbance.writes), EndState.read(self.cluster))
        if not self.first:
            self.first = self.scenario.module("pool_history")["entries"][-1]["digest"]

    def disturb(self, by: InProcess | Playbooks, kind: str, number: int, fault: str, write: str = "") -> None:
        """Disturb a run, repeat it if it failed, and compare the result with that of an undisturbed run."""
        with Watcher(self.cluster) as watcher:
            disturbance, error = self.run(by, kind, number, fault, write)
            assert disturbance.met or ALL, f"it sent only these writes: {disturbance.writes}"
            if not disturbance.met:
                # The number of writes varies a little, for instance with the renewals of the Lease.
                assert error is None, error
            elif fault.startswith("killed"):
                assert error == "killed"
            elif error is not None:
                assert fault in ("409", "slow", "stale"), f"what passes by itself is to be waited for: {error}"
            # A run that did not see its own Lease at its end leaves it; so does a dead one when nothing is left to do.
            left = ["Lease virtpools"] if fault == "stale" else []
            if error is not None:  # The next run waits until the Lease of a dead one has run out, as a user's would.
                again, error = self.run(by, kind)
                assert error is None, f"the next run fails: {error}"
                left = left if again.writes else ["Lease virtpools"]
            self.scenario.wait_until_settled()
            watcher.stop()
        assert self.starts.wrong == []
        assert watcher.crowded == []
        assert watcher.without_ready_handler == []
        state, wanted = EndState.read(self.cluster), self.undisturbed[kind].state
        assert [each for each in state.leftovers if each not in left] == wanted.leftovers
        for part in ("nodes", "daemonsets", "kubevirt", "policies", "alerts", "newest_list"):
            assert getattr(state, part) == getattr(wanted, part), part
        with self.scenario.no_writes():
            _disturbance, error = self.run(by, kind)
        assert error is None, error


@pytest.fixture(scope="module", params=[False, True] if ALL else [False], ids=lambda hco: "HCO" if hco else "KubeVirt")
def disturbed(request: pytest.FixtureRequest, start_cluster: Callable[..., LocalCluster]) -> Iterator[DisturbedCluster]:
    """Yield a disturbed cluster that cluster has seen an undisturbed run of each kind."""
    fleet = Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}),
        Nodes(name="rt", labels={"accelerator": "rt"}),
        Nodes(prefix="plain-", count=2),
    )
    cluster = start_cluster(fleet, agent=AGENT, hco=request.param)
    scenario = Scenario(cluster, "kubevirt-kubevirt-hyperconverged" if request.param else "kubevirt")
    scenario.wait_until_settled()
    prometheus_operator.install(cluster)
    with proxy.in_front_of(cluster, scenario.writer.kubeconfig, Disturbance()) as way, Starts(cluster) as starts:
        disturbed = DisturbedCluster(cluster, way, scenario, starts)
        with pytest.MonkeyPatch.context() as monkeypatch:
            by = InProcess(monkeypatch)
            for kind in KINDS:
                with naming(f"{kind}: undisturbed"):
                    disturbed.learn(by, kind)
        yield disturbed


def faults(number: int, writes: int) -> tuple[int, str]:
    """Return at which write a run with so many writes meets which fault in a round."""
    if number <= writes:
        return number, "killed after"
    return (number - 1) % writes + 1, [*FAULTS, "slow"][number % (len(FAULTS) + 1)]


@pytest.mark.timeout(12 * 3600 if ALL else 600)
def test_runs_in_this_process(disturbed: DisturbedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    by = InProcess(monkeypatch)
    longest = max(each.writes for each in disturbed.undisturbed.values())
    for number in ROUNDS or (range(1, longest + 1) if ALL else [7]):
        for kind in KINDS:
            at, fault = faults(number, disturbed.undisturbed[kind].writes)
            with naming(f"{kind}: {fault} at write {at} of {disturbed.undisturbed[kind].writes}"):
                disturbed.disturb(by, kind, at, fault)


def test_runs_through_ansible_playbook(disturbed: DisturbedCluster) -> None:
    by = Playbooks()
    for kind, write, fault in SAMPLE:
        with naming(f"{kind}: {fault} at {write}"):
            disturbed.disturb(by, kind, 1, fault, write)


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Add to failed assertions where they failed."""
    began = time.monotonic()
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from error
    print(f"{where}: {time.monotonic() - began:.1f} s")
