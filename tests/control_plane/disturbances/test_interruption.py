# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A run that is stopped at any write and repeated ends like an undisturbed one; no node ever has two handlers.

The next run waits until the dead one's Lease has run out, as a user's would. With VIRTPOOLS_TEST_ALL_KILLS=1 runs are
stopped at every kind of write in every way.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from end_state import EndState
from local_cluster import Fleet, LocalCluster, Nodes, Write, audit
from playbooks import Account, Run, RunningPlaybook, run, start
from scenario import Scenario
from watcher import NAMESPACE, Watcher

Pool = dict[str, Any]

ALL = bool(os.environ.get("VIRTPOOLS_TEST_ALL_KILLS"))
QUICK = {"agent.virtpools.io/start-seconds": "0.3", "agent.virtpools.io/stop-seconds": "0.3"}
SLOW_STOP_SECONDS = 90
QUICK_STOP_SECONDS = 0.3
LEASE = "leases.coordination.k8s.io"
POLICIES = "mutatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "mutatingadmissionpolicybindings.admissionregistration.k8s.io"


@dataclass(frozen=True)
class Point:
    """A point in a run: its nth write of a kind."""

    verb: str
    resource: str
    number: int = 1
    prefix: str = ""

    def __str__(self) -> str:
        return f"{self.verb}-{self.prefix or self.resource}-{self.number}"

    def is_reached(self, writes: list[Write]) -> bool:
        kind = (self.verb, self.resource)
        matching = [each for each in writes if (each.verb, each.resource) == kind and each.name.startswith(self.prefix)]
        return len(matching) >= self.number


# Points of a run that hands over three nodes, replaces two handlers, creates, changes and deletes a DaemonSet each, and
# changes the launcher policy. A handover patches its node three times, a replacement twice.
POINTS = {
    "lease taken": Point("create", LEASE),
    "candidate policy": Point("create", POLICIES),
    "candidate binding": Point("create", BINDINGS),
    "candidate deleted": Point("delete", POLICIES),
    "policy written": Point("update", POLICIES),
    "history written": Point("update", "configmaps"),
    "first DaemonSet": Point("patch", "daemonsets.apps"),
    "second DaemonSet": Point("patch", "daemonsets.apps", 2),
    "first pull pod": Point("create", "pods"),
    "pull pod deleted": Point("delete", "pods", 1, "virtpools-pull-"),
    "first node in transit": Point("patch", "nodes"),
    "all nodes in transit": Point("patch", "nodes", 3),
    "first node handed on": Point("patch", "nodes", 6),
    "first node proven": Point("patch", "nodes", 9),
    "last node proven": Point("patch", "nodes", 13),
    "handler replaced": Point("delete", "pods", 1, "virt-handler-"),
    "DaemonSet deleted": Point("delete", "daemonsets.apps"),
    "lease given back": Point("delete", LEASE),
}
# How a run is stopped. Killed alone, its current task goes on; by a power failure all processes die at once.
STOPS = {
    "power failure": RunningPlaybook.kill_all,
    "alone": RunningPlaybook.kill,
    "Ctrl-C": RunningPlaybook.interrupt,
}
# The points at which make test stops a run, and how. Unit tests stop it at every write, and let the power fail at each.
OFTEN = {
    "all nodes in transit": "alone",
    "handler replaced": "Ctrl-C",
}
CASES = [(point, stop) for point in POINTS for stop in STOPS if ALL or OFTEN.get(point) == stop]
PULL_POD = "virtpools-pull-a116c9ed46d62077"
"""The name of the pod that pulls images to node plain."""
INTERRUPTED = 99
"""The exit code of ansible-playbook after Ctrl-C."""


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet.from_groups(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, annotations=QUICK),
        Nodes(prefix="even-", count=2, labels={"turn": "even"}, annotations=QUICK),
        Nodes(name="odd", labels={"turn": "odd"}, annotations=QUICK),
        Nodes(name="plain", annotations=QUICK),
    )


class Site:
    """A cluster whose pools change with every turn: one pool gets other images, one is added and one is removed."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.scenario = Scenario(cluster)
        self.account = self.scenario.writer
        self.other = Account.make(cluster, "writer", "other")
        self.turn = 0

    @property
    def tag(self) -> str:
        return f"v1.9.0-turn{self.turn:03}"

    @property
    def pools(self) -> list[Pool]:
        turn = ("even", "odd")[self.turn % 2]
        image = {"virtHandlerImage": f"registry.example/virt-handler:{self.tag}"}
        launcher = {
            "virtLauncherImage": f"registry.example/virt-launcher:{self.tag}",
            "selector": {"vmLabels": {"matchLabels": {"class": "gpu"}}},
        }
        return [
            {"name": "gpu", "nodeSelector": {"accelerator": "gpu"}, **image, **launcher},
            {"name": turn, "nodeSelector": {"turn": turn}, **image},
        ]

    @property
    def options(self) -> dict[str, Any]:
        return {"virtpools_max_unavailable": "100%", "virtpools_prune": True}

    def start(self, **variables: Any) -> RunningPlaybook:
        return start("site", self.account.kubeconfig, self.pools, **{**self.options, **variables})

    def run(self, *arguments: str, account: Account | None = None, **variables: Any) -> Run:
        kubeconfig = (account or self.account).kubeconfig
        return run("site", kubeconfig, self.pools, *arguments, **{**self.options, **variables})

    def plan(self) -> dict[str, Any]:
        """Plan as soon as that can be done: a run waits by itself, and a plan is refused while handlers restart."""
        self.scenario.wait_until_settled()
        plan = self.scenario.module("plan_info", pools=self.pools, max_unavailable="100%", prune=True)
        assert plan["errors"] == []
        return plan

    def run_until(self, point: Point, **variables: Any) -> RunningPlaybook:
        """Start a run, and return as soon as the audit log has the write of this point."""
        # LocalCluster.writes would wait until the log is complete, and we would miss the point.
        log = audit.Tail(self.cluster.dir / "audit.log", self.cluster.audit_marker())
        running = self.start(**variables)
        writes: list[Write] = []
        while not point.is_reached(writes):
            if running.ended():
                raise AssertionError(f"The run ended without a write {point}.\n{running.wait()}")
            time.sleep(0.005)
            writes += [write for write in audit.writes(log.entries()) if write.user == self.account.user]
        return running

    def state(self) -> EndState:
        return EndState.read(self.cluster).with_text(self.tag, "TAG")


@pytest.fixture(scope="module")
def site(start_cluster: Callable[..., LocalCluster], fleet: Fleet) -> Site:
    return Site(start_cluster(fleet))


@pytest.fixture(scope="module")
def undisturbed(site: Site) -> dict[int, EndState]:
    """Return how undisturbed runs leave the cluster after an even turn and after an odd one."""
    states = {}
    for turn in (0, 1):
        site.turn = turn
        site.run().succeeded()
        states[turn] = site.state()
    return states


@pytest.mark.parametrize(("point", "stop"), CASES, ids=[f"{point} {stop}" for point, stop in CASES])
def test_a_stopped_run_repeated_ends_like_an_undisturbed_one(
    site: Site, undisturbed: dict[int, EndState], point: str, stop: str
) -> None:
    site.turn += 1
    approved = site.plan()["digest"]
    with Watcher(site.cluster) as watcher:
        running = site.run_until(POINTS[point])
        STOPS[stop](running)
        site.cluster.wait(lambda: not running.pids(), 60, "the orphaned task to end")
        stopped = running.wait()
        foretold = site.plan()
        again = site.run(virtpools_expected_plan=approved).succeeded()
        watcher.stop()
    if stop == "Ctrl-C":
        assert stopped.rc == INTERRUPTED
        assert not stopped.left_behind, "files with certificates and keys"
        assert "The run was interrupted. Half way: " in stopped.stderr
        assert "To go on, run the same command again." in stopped.stderr
    assert foretold["digest"] == approved, "an approved plan must hold after an interruption"
    assert again.changes == foretold["changes"], "the plan did not foretell the rest of the run"
    _assert_like(site, undisturbed)
    assert watcher.crowded == []
    assert watcher.without_ready_handler == []


def _assert_like(site: Site, undisturbed: dict[int, EndState]) -> None:
    state, wanted = site.state(), undisturbed[site.turn % 2]
    # Compare them one by one, so that a difference is easier to read.
    assert state.leftovers == wanted.leftovers == []
    assert state.nodes == wanted.nodes
    assert _without_digests(state) == _without_digests(wanted)
    assert state.kubevirt == wanted.kubevirt
    assert _without_policy_digest(state) == _without_policy_digest(wanted)


def _without_digests(state: EndState) -> dict[str, Any]:
    """Return the DaemonSets without the digests of their templates, which depend on the image's tag."""
    for daemonset in state.daemonsets.values():
        (daemonset["spec"]["template"]["metadata"].get("annotations") or {}).pop("virtpools.io/template", None)
    return state.daemonsets


def _without_policy_digest(state: EndState) -> Any:
    """Return the policies and bindings without the digest of the launcher policy, which depends on the image's tag."""
    digest = state.policies["MutatingAdmissionPolicy virtpools-launcher"]["annotations"]["virtpools.io/policy"]
    return json.loads(json.dumps(state.policies).replace(digest, "DIGEST"))


def test_a_second_run_waits_for_the_task_that_a_killed_run_left(site: Site, undisturbed: dict[int, EndState]) -> None:
    site.turn += 1
    _stop_seconds(site, SLOW_STOP_SECONDS)
    marker = site.cluster.audit_marker()
    try:
        with Watcher(site.cluster) as watcher:
            running = site.run_until(POINTS["first node in transit"])
            running.kill()
            assert running.orphans(), "the task in flight must outlive ansible-playbook for this test"
            impatient = site.run(account=site.other, virtpools_lease_timeout=0).refused()
            assert running.orphans(), "the task in flight must still have run when the second run was refused"
            _stop_seconds(site, QUICK_STOP_SECONDS)
            done = site.run(account=site.other).succeeded()
            watcher.stop()
    finally:
        _stop_seconds(site, QUICK_STOP_SECONDS)
    assert "Only one run may change the cluster at a time" in impatient
    assert running.orphans() == []
    writes = site.cluster.writes(marker)
    orphaned = [write for write in writes if write.user == site.account.user]
    second = [write for write in writes if write.user == site.other.user]
    assert done.changed > 0, "something must have been left to do"
    assert _time(second[0]) > _time(orphaned[-1]), f"{second[0]} came before {orphaned[-1]}"
    assert watcher.crowded == []
    assert watcher.without_ready_handler == []
    _assert_like(site, undisturbed)


def test_of_two_runs_started_together_one_waits_and_has_no_work(site: Site, undisturbed: dict[int, EndState]) -> None:
    site.turn += 1
    marker = site.cluster.audit_marker()
    with Watcher(site.cluster) as watcher:
        accounts = {each.user: each for each in (site.account, site.other)}
        running = [start("site", each.kubeconfig, site.pools, **site.options) for each in accounts.values()]
        runs = [each.wait().succeeded() for each in running]
        watcher.stop()
    users = [write.user for write in site.cluster.writes(marker) if write.user in accounts]
    assert len([user for user, _writes in itertools.groupby(users)]) <= len(accounts), "their writes interleave"
    assert sorted(run.changed > 0 for run in runs) == [False, True]
    assert watcher.crowded == []
    assert watcher.without_ready_handler == []
    _assert_like(site, undisturbed)


def _stop_seconds(site: Site, seconds: float) -> None:
    knob = "agent.virtpools.io/stop-seconds"
    nodes = [node["metadata"] for node in site.scenario.get("nodes")["items"]]
    slowed = [node["name"] for node in nodes if knob in node["annotations"]]  # not the control plane's
    assert len(slowed) == 6
    for name in slowed:
        site.cluster.set_node_annotation(name, knob, str(seconds))


def _time(write: Write) -> str:
    return str(write.entry["requestReceivedTimestamp"])


@pytest.mark.thorough  # unit tests stop a run at every write
@pytest.mark.parametrize("point", [Point("update", "kubevirts.kubevirt.io")], ids=["exclusion asked for"])
def test_a_run_killed_while_the_primary_restarts_can_be_finished(
    start_cluster: Callable[..., LocalCluster], fleet: Fleet, undisturbed: dict[int, EndState], point: Point
) -> None:
    with start_cluster(fleet) as cluster:
        site = Site(cluster)
        with Watcher(cluster) as watcher:
            site.run_until(point).kill_all()
            site.run().succeeded()
            watcher.stop()
        _assert_like(site, undisturbed)
        assert watcher.crowded == []
        assert watcher.without_ready_handler == []
        assert site.plan()["pending"] is False


@pytest.mark.thorough  # unit tests plan it and do it
def test_pull_pods_of_a_dead_run_are_deleted_when_no_node_moves(site: Site, undisturbed: dict[int, EndState]) -> None:
    site.cluster.kubectl(
        *("run", PULL_POD, "-n", NAMESPACE, "--image=none.example/none:1"),
        *("--labels=virtpools.io/pull=true,app.kubernetes.io/managed-by=virtpools",),
        *("--overrides", json.dumps({"spec": {"nodeName": "plain"}})),
    )
    checked = site.run("--check").succeeded()
    done = site.run().succeeded()
    pod = f"Pod {NAMESPACE}/{PULL_POD}: delete"
    assert checked.changes == done.changes == done.plan["changes"] == [pod]
    _assert_like(site, undisturbed)
    assert site.plan()["pending"] is False
