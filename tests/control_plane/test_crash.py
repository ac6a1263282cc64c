# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Runs of every kind, killed and disturbed at their writes by a proxy before a real API server, end as undisturbed ones do.

The same runs as through ansible-playbook, with the roles played in this process: so every write can have its turn. A round
takes a cluster from stock KubeVirt through runs of all kinds and back; in the nth round each run is killed at its nth write,
or meets another fault where it has fewer. VIRTPOOLS_TEST_ALL_KILLS=1 has as many rounds as the longest run has writes; else it
is one, of three kinds. Some go through ansible-playbook as well.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import playbooks
import proxy
from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import _client, _transport
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import POD
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.tests.unit.disturbance import FAULTS, Disturbance
from ansible_collections.virtpools.kubevirt.tests.unit.in_process import run_module
from ansible_collections.virtpools.kubevirt.tests.unit.launcher_cases import CONTROLLER, STOCK, launcher_pod
from ansible_collections.virtpools.kubevirt.tests.unit.roles import Play, TaskFailed
from end_state import EndState
from local_cluster import Fleet, LocalCluster, Nodes
from scene import OWNER, Object, Scene, pool
from watcher import NAMESPACE, Watcher

ALL = bool(os.environ.get("VIRTPOOLS_TEST_ALL_KILLS"))
STANDIN = "--settle-seconds 0.5 --start-seconds 0.1 --stop-seconds 0.1 --heartbeat-delay 100ms"
LAUNCHER = "registry.example/virt-launcher:v1.9.0"
GPU = pool("gpu", "gpu", virtLauncherImage=f"{LAUNCHER}-gpu", selector={"vmLabels": {"matchLabels": {"class": "gpu"}}})
RT = pool("rt", "rt")
NEXT = {**GPU, "virtHandlerImage": f"{GPU['virtHandlerImage']}-next", "virtLauncherImage": f"{LAUNCHER}-next"}
POOL_IMAGES = {GPU["virtLauncherImage"], NEXT["virtLauncherImage"]}
EDITED = [NEXT, pool("real-time", "rt")]
WAVES = [{"nodes": ["gpu-01"]}, {"pools": ["gpu"]}]

ROUND: dict[str, tuple[str, Object]] = {
    "first site": ("site", {"virtpools_pools": [GPU, RT]}),
    "pools changed": ("site", {"virtpools_pools": EDITED, "virtpools_prune": True}),
    "rollback": ("rollback", {"virtpools_rollback_to": "FIRST"}),
    "new nodes assigned": ("site", {"virtpools_pools": [GPU, RT], "virtpools_assign_new_nodes": True}),
    "waves": ("rollout", {"virtpools_pools": [NEXT, RT], "virtpools_waves": WAVES}),
    "one pool removed": ("remove", {"virtpools_remove": ["rt"]}),
    "removed": ("remove", {"virtpools_remove": "all"}),
}
"""Each a playbook with its variables, on the cluster as the one before it left it."""
KINDS = [*ROUND] if ALL else ["first site", "pools changed", "removed"]
SAMPLE = [("first site", 12, "killed after"), ("removed", 5, "lost after")]
"""Runs through ansible-playbook, the write at which each is disturbed, and how."""
ROLES = {"site": "handler_pools", "rollout": "rollout", "rollback": "rollback", "remove": "remove_pools"}
COMMON = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 30, "virtpools_max_unavailable": "100%"}


class Killed(BaseException):
    """What is left of a client in this process that was killed: it sends nothing more."""


class InProcess:
    """Plays roles in this process; waits between two looks at the cluster are short."""

    write_timeout = 2.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._dead = False
        send = _transport._KubernetesTransport.send

        def sent(transport: Any, request: _transport.Request) -> _transport.Response:
            if not transport.server.startswith("http:"):  # not through the proxy
                return send(transport, request)
            if self._dead:
                raise Killed
            try:
                return send(transport, request)
            finally:
                if self._dead:
                    raise Killed

        monkeypatch.setattr(_transport._KubernetesTransport, "send", sent)
        monkeypatch.setattr(_module, "Clock", functools.partial(Clock, sleep=lambda seconds: time.sleep(seconds / 10)))
        monkeypatch.setattr(_client, "WRITE_TIMEOUT_SECONDS", self.write_timeout)

    def kill(self) -> None:
        self._dead = True

    def run(self, kubeconfig: Any, playbook: str, variables: Object) -> str | None:
        """Run it until its end or its death, and return what it fails with."""
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

    write_timeout = _client.WRITE_TIMEOUT_SECONDS

    def __init__(self) -> None:
        self._dead = False

    def kill(self) -> None:
        self._dead = True
        self._running.kill_all()

    def run(self, kubeconfig: Any, playbook: str, variables: Object) -> str | None:
        """Run it until its end or its death, and return what it fails with."""
        self._dead = False
        self._running = playbooks.start(playbook, kubeconfig, None, **variables)
        ended = self._running.wait()
        if self._dead:
            return "killed"
        return str(ended) if ended.rc else None


class Starts:
    """Tries all the time what VMs would get that started now, and notes what is wrong: a context manager.

    A launcher pod of the pool has the pool's image everywhere and the pool's nodes, or KubeVirt's own image and no node of
    a pool; one of no pool has always the latter; and none is refused.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        who = {"impersonate_user": CONTROLLER, "impersonate_groups": ["system:masters"]}
        self._controller = _client.Cluster.connect({"kubeconfig": str(cluster.kubeconfig), **who})
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
                except _client.ClusterError as error:
                    problem = str(error)
                self.tried += 1
                self.wrong += [problem] if problem else []

    def _problem(self, pod: Object, images: set[str]) -> str | None:
        made = self._controller.create(POD, pod, dry_run=True)
        affinity = made["spec"].get("affinity", {}).get("nodeAffinity", {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        pools = {tuple(each["values"]) for term in required for each in _of_pool(term)}
        found = (set(LauncherPod.of(made).launcher_images.values()), pools)
        if found == ({STOCK}, set()) or (found[1] == {("gpu",)} and len(found[0]) == 1 and found[0] <= images):
            return None
        return f"a launcher pod labelled {pod['metadata']['labels']} gets images and pools {found}"


def _of_pool(term: Object) -> list[Object]:
    return [each for each in term.get("matchExpressions", ()) if (each["key"], each["operator"]) == (OWNER, "In")]


@dataclass
class Undisturbed:
    """A run that nothing disturbed: how many writes it sent, and how it left the cluster."""

    writes: int
    state: EndState


class Story:
    """A cluster behind a proxy, whose runs are disturbed."""

    def __init__(self, cluster: LocalCluster, way: proxy.Proxy, scene: Scene, starts: Starts) -> None:
        self.cluster = cluster
        self.starts = starts
        self.scene = scene
        self.undisturbed: dict[str, Undisturbed] = {}
        self.first = ""
        self._way = way

    def run(
        self, by: InProcess | Playbooks, kind: str, number: int = 0, fault: str = ""
    ) -> tuple[Disturbance, str | None]:
        """Run it, and return what disturbed it, and what it failed with."""
        playbook, variables = ROUND[kind]
        given = {key: self.first if value == "FIRST" else value for key, value in variables.items()}
        disturbance = Disturbance(number, fault, kill=by.kill, slow_seconds=by.write_timeout + 1)
        self._way.treat = disturbance
        return disturbance, by.run(self._way.kubeconfig, playbook, {**COMMON, **given})

    def learn(self, by: InProcess | Playbooks, kind: str) -> None:
        """See what an undisturbed run does."""
        disturbance, error = self.run(by, kind)
        assert error is None, error
        self.undisturbed[kind] = Undisturbed(len(disturbance.writes), EndState.of(self.cluster))
        if not self.first:
            self.first = self.scene.module("pool_history")["entries"][-1]["digest"]

    def disturb(self, by: InProcess | Playbooks, kind: str, number: int, fault: str) -> None:
        """Disturb a run, repeat it if it failed, and look at what is left."""
        with Watcher(self.cluster) as watcher:
            disturbance, error = self.run(by, kind, number, fault)
            reached = len(disturbance.writes) >= number
            assert reached or ALL, f"it sent only {len(disturbance.writes)} writes"
            if not reached:
                # It renewed its Lease less often, say: a run's last writes are not the same ones each time.
                assert error is None, error
            elif fault.startswith("killed"):
                assert error == "killed"
            elif error is not None:
                assert fault in ("409", "slow", "stale"), f"what passes by itself is to be waited for: {error}"
            if error == "killed" or fault == "stale":
                # What 30 s do: nobody renews the Lease of a run that is dead, or did not see its own at the end.
                self.cluster.kubectl("delete", "lease", "virtpools", "-n", NAMESPACE, "--ignore-not-found")
            if error is not None:
                _disturbance, error = self.run(by, kind)
                assert error is None, f"the next run fails: {error}"
            self.scene.wait_until_settled()
            watcher.stop()
        assert self.starts.wrong == []
        assert watcher.crowded == []
        assert watcher.without == []
        state, wanted = EndState.of(self.cluster), self.undisturbed[kind].state
        for part in ("leftovers", "nodes", "daemonsets", "kubevirt", "policies", "newest_list"):
            assert getattr(state, part) == getattr(wanted, part), part
        with self.scene.no_writes():
            _disturbance, error = self.run(by, kind)
        assert error is None, error


@pytest.fixture(scope="module")
def story(start_cluster: Callable[..., LocalCluster]) -> Iterator[Story]:
    fleet = Fleet.of(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}),
        Nodes(name="rt", labels={"accelerator": "rt"}),
        Nodes(prefix="plain-", count=2),
    )
    cluster = start_cluster(fleet, standin=STANDIN)
    scene = Scene(cluster)
    scene.wait_until_settled()
    with proxy.before(cluster, scene.writer.kubeconfig, Disturbance()) as way, Starts(cluster) as starts:
        yield Story(cluster, way, scene, starts)


def faults(number: int, writes: int) -> tuple[int, str]:
    """Return what a run of so many writes meets in a round."""
    if number <= writes:
        return number, "killed after"
    return (number - 1) % writes + 1, [*FAULTS, "slow"][number % (len(FAULTS) + 1)]


def test_runs_in_this_process(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    by = InProcess(monkeypatch)
    for kind in KINDS:
        with told(f"{kind}: undisturbed"):
            story.learn(by, kind)
    longest = max(found.writes for found in story.undisturbed.values())
    for number in range(1, longest + 1) if ALL else [7]:
        for kind in KINDS:
            at, fault = faults(number, story.undisturbed[kind].writes)
            with told(f"{kind}: {fault} at write {at} of {story.undisturbed[kind].writes}"):
                story.disturb(by, kind, at, fault)


def test_runs_through_ansible_playbook(story: Story) -> None:
    assert story.undisturbed, "the test before this one has to come before it"
    by = Playbooks()
    for kind, number, fault in SAMPLE:
        with told(f"{kind}: {fault} at write {number} of {story.undisturbed[kind].writes}"):
            story.disturb(by, kind, number, fault)


@contextmanager
def told(where: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from error
    print(f"{where}: {time.monotonic() - began:.1f} s")
