# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures what the launcher policy adds to the time in which a launcher pod is created.

The same pod is created on one API server under policies of several sizes and under none, in turns and in random
order, so that other load on the machine affects all of them alike. Creations are dry runs: the server admits them like
any other, but writes nothing to etcd, so that the policy's share of the time is larger than in reality.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit import launcher_cases as cases
from endpoint import Endpoint
from local_cluster import LocalCluster
from local_cluster.fleet import Fleet
from policy_server import PolicyServer, derived, digest, in_arena

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (1, 50, 200)
ROUNDS = 400
WARM_UP = 20


def main() -> int:
    """Measure, and print a table for the README."""
    with LocalCluster.start("bench-admission", Fleet.plain(0), kubevirt=False, log=_note) as cluster:
        server = PolicyServer(cluster)
        digests = {"": None}
        for size in SIZES:
            objects = derived(Table.of(read_dialect(OWN, _pools(size))))
            server.install(objects, f"pools-{size}")
            digests[f"pools-{size}"] = digest(objects)
        server.settle()
        pods = {arena: in_arena(cases.launcher_pod("gpu on containerDisk"), arena) for arena in digests}
        creator = Creator(cluster)
        for arena, pod in pods.items():
            _check(creator.create(pod)[1], digests[arena])
        seconds = _measure(creator, pods)
    _print(seconds)
    return 0


class Creator:
    """Creates pods as virt-controller over one HTTP connection; without a client library, whose time would count."""

    def __init__(self, cluster: LocalCluster) -> None:
        """Connect to the API server as its administrator, who may impersonate virt-controller."""
        endpoint = Endpoint.of(cluster.kubeconfig)
        self._connection = endpoint.connect()
        self._headers = {
            **endpoint.headers,
            "Content-Type": "application/json",
            "Impersonate-User": cases.CONTROLLER,
            "Impersonate-Group": "system:masters",
        }

    def create(self, pod: dict[str, Any]) -> tuple[float, bytes]:
        """Create the pod as a dry run; return how many seconds that took, and the answer."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All"
        body = json.dumps(pod).encode()
        start = time.perf_counter()
        self._connection.request("POST", path, body, self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        seconds = time.perf_counter() - start
        if response.status != 201:
            raise RuntimeError(f"The API server answers {response.status}: {answer.decode(errors='replace')}")
        return seconds, answer


def _pools(count: int) -> list[dict[str, Any]]:
    """Pools of which only the last matches the pod, so that the policy examines all of them."""
    pools = [
        {
            "name": f"pool-{number}",
            "nodeSelector": {"accelerator": f"type-{number}"},
            "virtLauncherImage": f"registry.example/virt-launcher:v1.9.0-{number}",
            "selector": {
                "deviceNames": [f"vendor.example/GPU_{number}_40GB"],
                "vmLabels": {"matchLabels": {"workload": f"type-{number}"}},
            },
        }
        for number in range(count)
    ]
    pools[-1]["selector"]["deviceNames"].append(cases.A100)
    return pools


def _check(answer: bytes, expected: str | None) -> None:
    """Fail unless the expected policy (or none) acted on the pod: else the figures would mean nothing."""
    actual = json.loads(answer)["metadata"].get("annotations", {}).get(names.POLICY_ANNOTATION)
    if actual != expected:
        raise RuntimeError(f"The pod came through policy {actual}, not {expected}.")


def _measure(creator: Creator, pods: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {arena: [] for arena in pods}
    order = list(pods)
    for number in range(WARM_UP + ROUNDS):
        random.shuffle(order)
        for arena in order:
            taken, _answer = creator.create(pods[arena])
            if number >= WARM_UP:
                seconds[arena].append(taken)
    return seconds


def _print(seconds: dict[str, list[float]]) -> None:
    base = seconds.pop("")
    print(f"Medians of {ROUNDS} dry-run creations each; without a policy: {_ms(base)}.\n")
    print("| pools in the policy | one creation | against none | added (median of the pairs) |")
    print("|---:|---:|---:|---:|")
    for arena, taken in seconds.items():
        added = [one - other for one, other in zip(taken, base, strict=True)]
        ratio = statistics.median(taken) / statistics.median(base)
        print(f"| {arena.removeprefix('pools-')} | {_ms(taken)} | {ratio:.2f} | {_ms(added)} |")


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.2f} ms"


def _note(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
