# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Lease between processes of runs, on a real API server."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import LeaseHeld, LeaseLost, RunLease
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import CONFIG_MAP, LEASE, Kind

NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)

RUN = """
import sys, time
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.lease import RunLease
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import CONFIG_MAP

kubeconfig, namespace, holder, duration, work = sys.argv[1:]
cluster = Cluster.connect({"kubeconfig": kubeconfig})
lease = RunLease(cluster, namespace, holder, duration_seconds=int(duration), description="a test")
"""

WORK_ALONE = """
cluster.keep_lease = lease.ensure_fresh
for _ in range(int(work)):
    lease.acquire(120)
    cluster.create(CONFIG_MAP, CONFIG_MAP.object("somebody-is-in", namespace), dry_run=False)  # fails if somebody is
    cluster.edit(
        CONFIG_MAP, "log", namespace, lambda log: {**log, "data": {"log": log["data"]["log"] + holder}}, dry_run=False
    )
    time.sleep(0.05)
    assert cluster.delete(CONFIG_MAP, "somebody-is-in", namespace, dry_run=False)
    assert lease.release()
"""

HOLD = """
lease.acquire(120)
print("held", flush=True)
while True:
    time.sleep(float(work))
    lease.renew()
"""


@pytest.fixture(scope="module")
def cluster(plain_cluster):
    return Cluster.connect({"kubeconfig": str(plain_cluster.kubeconfig)})


@pytest.fixture
def namespace(cluster):
    """A namespace of the test's own."""
    name = f"test-{time.monotonic_ns()}"
    cluster.create(NAMESPACE, NAMESPACE.object(name), dry_run=False)
    return name


@pytest.fixture
def start(plain_cluster, namespace):
    """Return a function that starts a process of a run; processes that still run at the end are killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with contextlib.ExitStack() as stack:

        def start(script, holder, duration=30, work=0.0):
            arguments = [str(plain_cluster.kubeconfig), namespace, holder, str(duration), str(work)]
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RUN + script, *arguments],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def hold(start, *arguments):
    """Start a run, and return when it holds the Lease."""
    process = start(HOLD, *arguments)
    assert process.stdout.readline() == "held\n", process.stderr.read()
    return process


def test_two_runs_never_hold_the_lease_at_once(cluster, namespace, start):
    cluster.create(CONFIG_MAP, CONFIG_MAP.object("log", namespace, data={"log": ""}), dry_run=False)
    runs = [start(WORK_ALONE, holder, 30, 5) for holder in "abc"]
    for run in runs:
        _, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
    log = cluster.existing(CONFIG_MAP, "log", namespace)["data"]["log"]
    assert sorted(log) == sorted("abc" * 5)
    assert cluster.get(LEASE, "virtpools", namespace) is None


def test_a_killed_run_delays_the_next_by_its_duration(cluster, namespace, start):
    dead = hold(start, "dead", 4, 0.5)
    dead.kill()
    dead.wait()
    waited_for = []
    started = time.monotonic()
    run = RunLease(cluster, namespace, "next")
    run.acquire(60, waited_for.append)
    assert 4 <= time.monotonic() - started < 10
    assert waited_for == [
        f"Waiting for the run dead (a test), which holds the Lease virtpools in namespace {namespace}."
    ]
    live = cluster.existing(LEASE, "virtpools", namespace)
    assert (live["spec"]["holderIdentity"], live["spec"]["leaseTransitions"]) == ("next", 1)
    assert run.release()


def test_a_living_run_keeps_the_lease_longer_than_its_duration(cluster, namespace, start):
    hold(start, "living", 2, 0.5)
    with pytest.raises(LeaseHeld, match=r"the run living \(a test\) holds the Lease virtpools"):
        RunLease(cluster, namespace, "next").acquire(6)


def test_a_run_that_was_asleep_writes_nothing_more(plain_cluster, namespace):
    """One run sleeps for longer than its Lease lasts; another run takes over."""
    sleeper = Cluster.connect({"kubeconfig": str(plain_cluster.kubeconfig)})
    slept = 0.0
    clock = Clock(now=lambda: time.monotonic() + slept)
    first = RunLease(sleeper, namespace, "first", duration_seconds=1, clock=clock)
    first.acquire(0)
    sleeper.keep_lease = first.ensure_fresh
    sleeper.apply(CONFIG_MAP, CONFIG_MAP.object("cm", namespace, data={"by": "first"}), dry_run=False)

    second = RunLease(Cluster.connect({"kubeconfig": str(plain_cluster.kubeconfig)}), namespace, "second")
    second.acquire(10)
    slept = 11.0
    with pytest.raises(LeaseLost, match=r"The run first has lost its Lease: .* is held by the run second\. Nothing"):
        sleeper.apply(CONFIG_MAP, CONFIG_MAP.object("cm", namespace, data={"by": "late"}), dry_run=False)
    assert sleeper.existing(CONFIG_MAP, "cm", namespace)["data"] == {"by": "first"}
    assert not first.release()
    assert second.release()


def test_other_processes_of_the_run_attach(cluster, namespace, start):
    hold(start, "run-1", 30, 60)
    RunLease(cluster, namespace, "run-1").attach()
    with pytest.raises(LeaseLost):
        RunLease(cluster, namespace, "run-2").attach()
    assert RunLease(cluster, namespace, "run-1").release()
    with pytest.raises(LeaseLost, match="was deleted"):
        RunLease(cluster, namespace, "run-1").attach()


@pytest.mark.parametrize("kill", [False, True], ids=["politely", "killed"])
def test_the_lease_outlives_a_restart_of_the_api_server(plain_cluster, cluster, namespace, kill):
    run = RunLease(cluster, namespace, "run-1")
    run.acquire(0)
    restart = threading.Thread(target=plain_cluster.restart, args=["kube-apiserver"], kwargs={"kill": kill})
    restart.start()
    while restart.is_alive():
        run.renew()
    run.renew()
    assert run.release()


def test_the_rights_that_the_lease_needs(plain_cluster, cluster, namespace):
    rules = [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "delete"]}
    ]
    cluster.apply(CLUSTER_ROLE, CLUSTER_ROLE.object("lease-test", rules=rules), dry_run=False)
    kubeconfig = plain_cluster.kubeconfig_for("leaser", ["lease-test"])
    run = RunLease(Cluster.connect({"kubeconfig": str(kubeconfig)}), namespace, "run-1")
    run.acquire(0)
    run.renew()
    assert run.release()
