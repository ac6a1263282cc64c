# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures what the launcher policy's node affinity adds to the time in which kube-scheduler finds a node for a launcher pod.

The cluster has 3,000 nodes in ten pools, and more and more pods on them. Launcher pods of one pool come in groups of one form:
without terms, with the term that says where they may start, and with its copy that says where they may stay
(docs/design/epochs.md). The forms take turns in random order. The figure is the scheduler's own: without the time in which a pod
waits, or is written.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
import ssl
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.names import OWNER_LABEL
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases
from endpoint import Endpoint
from goals import Figure, show
from local_cluster import LocalCluster
from local_cluster.fleet import Fleet, Nodes
from policy_server import PolicyServer, derived

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPConnection

NODES, POOLS = 3000, 10
SIZES = (3_000, 20_000, 60_000)
ROUNDS, GROUP = 12, 40
LABELS = 130
"""Of a node, besides those of the local cluster: with many CPU features, KubeVirt's labeller sets about as many."""
NONE, START, STAY = "no term", "the term to start", "and the copy to stay"
GOAL = 15.0
"""How many milliseconds the policy may add to a pod in the largest cluster."""
METRIC = "scheduler_scheduling_algorithm_duration_seconds"
PORT = 10459
PODS = "/api/v1/namespaces/plain/pods"

Object = dict[str, Any]


def main() -> int:
    """Measure, and print tables for the README."""
    with LocalCluster.start("bench-scheduling", Fleet.plain(0), kubevirt=False, log=_note) as cluster:
        forms = _forms(PolicyServer(cluster))
        _note(f"Adding {NODES} nodes ...")
        cluster.add_nodes(_fleet(), timeout=900)
        cluster.stop_component("kwok")  # it would write a status for each pod
        pods, rows = Pods(Endpoint.of(cluster.kubeconfig)), []
        with _scheduler(cluster):
            for former, size in itertools.pairwise((0, *SIZES)):
                _note(f"Adding pods up to {size} ...")
                pods.create([_placed(number) for number in range(former, size)])
                rows.append((size, _measure(pods, forms)))
    _print(rows)
    return 0


class Pods:
    """Creates and deletes pods without a client library, which would take much of the machine."""

    def __init__(self, endpoint: Endpoint) -> None:
        """``endpoint`` is the API server, with its administrator's token."""
        self._endpoint = endpoint

    def create(self, pods: list[Object]) -> None:
        """Create pods over four connections."""
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(self._create, (pods[start::4] for start in range(4))))

    def count(self, labels: str, fields: str = "") -> int:
        """Return how many pods there are."""
        answer = self._ask(
            self._endpoint.connect(), "GET", f"{PODS}?limit=1&labelSelector={labels}&fieldSelector={fields}"
        )
        found = json.loads(answer)
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    def delete(self, labels: str) -> None:
        """Delete pods at once, and wait until they are gone."""
        self._ask(self._endpoint.connect(), "DELETE", f"{PODS}?gracePeriodSeconds=0&labelSelector={labels}")
        while self.count(labels):
            time.sleep(0.1)

    def _create(self, pods: list[Object]) -> None:
        connection = self._endpoint.connect()
        for pod in pods:
            self._ask(connection, "POST", PODS, json.dumps(pod))

    def _ask(self, connection: HTTPConnection, verb: str, path: str, body: str | None = None) -> bytes:
        headers = {**self._endpoint.headers, "Content-Type": "application/json"}
        connection.request(verb, path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise RuntimeError(f"The API server answers {response.status}: {answer.decode(errors='replace')}")
        return answer


def _forms(server: PolicyServer) -> dict[str, Object]:
    """Return a launcher pod of the last pool in each form, as the policy makes it."""
    pools = [
        {
            "name": f"pool-{number}",
            "nodeSelector": {"hardware": f"type-{number}"},
            "virtLauncherImage": f"registry.example/virt-launcher:v1.9.0-{number}",
            "selector": {"vmLabels": {"matchLabels": {"workload": f"type-{number}"}}},
        }
        for number in range(POOLS)
    ]
    plain = cases.launcher_pod("pvc", labels={"workload": f"type-{POOLS - 1}"})
    server.install(derived(Table.for_pools(read_dialect(OWN, pools))), "all")
    server.settle()
    affinity = server.create(plain, arena="all")["spec"]["affinity"]
    start, stay = _terms(affinity)
    assert OWNER_LABEL in json.dumps(start)
    assert "Gt" in json.dumps(stay)
    only_start = copy.deepcopy(affinity)
    _terms(only_start)[1:] = []
    return {
        NONE: plain,
        START: {**plain, "spec": {**plain["spec"], "affinity": only_start}},
        STAY: {**plain, "spec": {**plain["spec"], "affinity": affinity}},
    }


def _terms(affinity: Object) -> list[Object]:
    required: Object = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms: list[Object] = required["nodeSelectorTerms"]
    return terms


def _fleet() -> Fleet:
    """All nodes, in pools of the same size."""
    labels = {f"cpu-feature.node.kubevirt.io/feature-{number}": "true" for number in range(LABELS)}
    common = {**labels, "kubevirt.io/schedulable": "true"}
    return Fleet.from_groups(
        *(
            Nodes(prefix=f"n{number}-", count=NODES // POOLS, labels={**common, OWNER_LABEL: f"pool-{number}"})
            for number in range(POOLS)
        )
    )


def _placed(number: int) -> Object:
    """A pod that has a node already."""
    pool, node = number % POOLS, number // POOLS % (NODES // POOLS)
    container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "10m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"placed-{number}", "namespace": "plain", "labels": {"group": "placed"}},
        "spec": {"nodeName": f"n{pool}-{node:03}", "containers": [container]},
    }


@contextmanager
def _scheduler(cluster: LocalCluster) -> Iterator[None]:
    """Run the cluster's scheduler with metrics, in place of the one without."""
    cluster.stop_component("kube-scheduler")
    command = [
        str(cluster.kubectl_program.with_name("kube-scheduler")),
        f"--config={cluster.dir / 'scheduler.json'}",
        f"--secure-port={PORT}",
        "--authorization-always-allow-paths=/metrics",
        f"--cert-dir={cluster.dir}",
    ]
    with (
        open(cluster.logs / "kube-scheduler-with-metrics.log", "wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def _measure(pods: Pods, forms: dict[str, Object]) -> dict[str, list[float]]:
    """Return milliseconds for a pod: a mean for each group."""
    found: dict[str, list[float]] = {form: [] for form in forms}
    order = list(forms)
    for number in range(ROUNDS + 1):
        random.shuffle(order)
        for form in order:
            milliseconds = _group(pods, forms[form])
            if number:  # the first is for warming up
                found[form].append(milliseconds)
    return found


def _group(pods: Pods, pod: Object) -> float:
    """Let a group of pods be scheduled, and return how many milliseconds one took."""
    labels = {**pod["metadata"]["labels"], "group": "measured"}
    metadata = [{**pod["metadata"], "name": f"measured-{number}", "labels": labels} for number in range(GROUP)]
    seconds, count = _so_far()
    pods.create([{**pod, "metadata": each} for each in metadata])
    while pods.count("group=measured", "spec.nodeName="):
        time.sleep(0.1)
    seconds_after, count_after = _so_far()
    pods.delete("group=measured")
    if count_after - count != GROUP:
        raise RuntimeError(f"The scheduler tried {count_after - count:g} times to find nodes for {GROUP} pods.")
    return (seconds_after - seconds) / GROUP * 1000


def _so_far() -> tuple[float, float]:
    """Return the seconds that the scheduler needed to find nodes so far, and how often it did."""
    metrics = f"https://127.0.0.1:{PORT}/metrics"
    trusting = ssl._create_unverified_context()  # noqa: SLF001  # the scheduler made its certificate itself
    give_up = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(metrics, context=trusting, timeout=30) as answer:
                text = answer.read().decode()
            break
        except urllib.error.URLError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)
    seconds, count = (re.search(rf"^{METRIC}_{part} (\S+)$", text, re.MULTILINE) for part in ("sum", "count"))
    return (float(seconds[1]), float(count[1])) if seconds and count else (0, 0)


def _print(rows: list[tuple[int, dict[str, list[float]]]]) -> None:
    print(f"Medians of {ROUNDS} groups of {GROUP} pods each; {NODES} nodes in {POOLS} pools.\n")
    print("| pods on the nodes | no term | the term to start | added | and the copy to stay | added |")
    print("|---:|---:|---:|---:|---:|---:|")
    for size, found in rows:
        none, start, stay = (found[form] for form in (NONE, START, STAY))
        cells = [f"{size:,}", _ms(none), _ms(start), _ms(_pairs(start, none)), _ms(stay), _ms(_pairs(stay, none))]
        print(f"| {' | '.join(cells)} |")
    size, found = rows[-1]
    added = statistics.median(_pairs(found[STAY], found[NONE]))
    show(
        [Figure("finding a node for a launcher pod: added by the policy's terms", f"{size:,} pods", added, GOAL, " ms")]
    )


def _pairs(one: list[float], other: list[float]) -> list[float]:
    return [a - b for a, b in zip(one, other, strict=True)]


def _ms(milliseconds: list[float]) -> str:
    return f"{statistics.median(milliseconds):.1f} ms"


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
