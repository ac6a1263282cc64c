# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures what the launcher policy adds to the time in which a launcher pod is created, and what its alternatives add.

The same pod is created on one API server under policies of several sizes, with a webhook that only swaps one image, on a local
connection and across a network hop (``network_hop.py``), with ``--kyverno`` under Kyverno's form of the policy, and under none,
in turns and in random order, so that other load on the machine affects all of them alike. Creations are dry runs: the server
admits them like any other, but writes nothing to etcd, so that the share of admission is larger than in reality.
"""

from __future__ import annotations

import base64
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import network_hop
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import kyverno_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import launcher_cases as cases
from endpoint import Endpoint
from goals import Figure, show
from local_cluster import LocalCluster, paths
from local_cluster.fleet import Fleet
from local_cluster.kyverno import Kyverno
from policy_server import KUBEVIRT, PolicyServer, derived, in_arena
from webhooks import WEBHOOK, for_pods

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZES = (1, 50, 200)
ROUNDS = 400
WARM_UP = 20
# The round trip of a network between two machines, in seconds.
ROUND_TRIP = 0.0005
NONE = ""
# What one pool and 200 pools may add.
GOALS = {1: 1.0, 200: 2.0}


@dataclass(frozen=True)
class Contender:
    """What acts on the pods of its arena."""

    arena: str
    name: str
    pools: int


def main() -> int:
    """Measure, and print tables for the README."""
    with LocalCluster.start("bench-admission", Fleet.plain(0), kubevirt=False, log=_note) as cluster:
        server = PolicyServer(cluster)
        contenders = [Contender(f"pools-{size}", "the launcher policy", size) for size in SIZES]
        for each in contenders:
            server.install(derived(_table(each.pools)), each.arena)
        if "--kyverno" in sys.argv[1:]:
            Kyverno.install(cluster, log=_note)
            for size in SIZES:
                each = Contender(f"kyverno-{size}", "Kyverno", size)
                server.install([kyverno_policy.derive(_table(size), KUBEVIRT)], each.arena)
                contenders.append(each)
        with _webhooks(server, max(SIZES)) as webhooks:
            contenders += webhooks
            server.settle()
            pods = {each.arena: in_arena(cases.launcher_pod("gpu on containerDisk"), each.arena) for each in contenders}
            pods[NONE] = cases.launcher_pod("gpu on containerDisk")
            creator = Creator(cluster)
            stock = _image(creator.create(pods[NONE])[1])
            for each in contenders:
                _await(creator, pods[each.arena], each, stock)
            seconds = _measure(creator, pods)
    _print(contenders, seconds)
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


@contextmanager
def _webhooks(server: PolicyServer, pools: int) -> Iterator[list[Contender]]:
    """Let the API server call a webhook for the pods of one arena directly, and for those of another across a network hop."""
    images = [
        f"{device}={pool['virtLauncherImage']}" for pool in _pools(pools) for device in pool["selector"]["deviceNames"]
    ]
    with tempfile.TemporaryDirectory(prefix="virtpools-bench-") as folder:
        program = Path(folder) / "swap"
        go = [sys.executable, "-m", "local_cluster", "go", "-C", str(paths.TESTBED), "build", "-o", str(program)]
        subprocess.run([*go, "./swap"], check=True)
        with subprocess.Popen([str(program), *images], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                shown = json.loads(process.stdout.readline())
                url, authority = urlsplit(shown["url"]), base64.b64encode(shown["authority"].encode()).decode()
                assert url.port is not None
                setting = network_hop.setting_for(ROUND_TRIP)
                away = f"{network_hop.measured_round_trip(setting) * 1000:.2f} ms away"
                with network_hop.hop(url.port, setting) as port:
                    ports = {
                        Contender("webhook", "a webhook that swaps one image", pools): url.port,
                        Contender("webhook-hop", f"the same webhook, {away}", pools): port,
                    }
                    for each, its in ports.items():
                        there = url._replace(netloc=f"{url.hostname}:{its}").geturl()
                        client = {"url": there, "caBundle": authority}
                        name = f"test-swap-{each.arena}"
                        server.put(WEBHOOK, WEBHOOK.object(name, webhooks=[for_pods("swap", each.arena, client)]))
                    yield list(ports)
            finally:
                process.terminate()


def _table(pools: int) -> Table:
    return Table.for_pools(read_dialect(OWN, _pools(pools)))


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


def _image(answer: bytes) -> str:
    containers = json.loads(answer)["spec"]["containers"]
    return next(str(each["image"]) for each in containers if each["name"] == "compute")


def _await(creator: Creator, pod: dict[str, Any], contender: Contender, stock: str) -> None:
    """Wait until the pod gets the image of its pool: else the figures would mean nothing."""
    expected = _pools(contender.pools)[-1]["virtLauncherImage"]
    give_up = time.monotonic() + 60
    while (image := _image(creator.create(pod)[1])) != expected:
        if image != stock or time.monotonic() > give_up:
            raise RuntimeError(f"The pod of {contender.arena} has the image {image}, not {expected}.")
        time.sleep(0.1)


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


def _print(contenders: Sequence[Contender], seconds: dict[str, list[float]]) -> None:
    base = seconds[NONE]
    print(f"Medians of {ROUNDS} dry-run creations each; with nothing that acts on pods: {_ms(base)}.\n")
    print("| what acts on the pod | pools | one creation | against none | added (median of the pairs) |")
    print("|---|---:|---:|---:|---:|")
    added = {}
    for each in contenders:
        taken = seconds[each.arena]
        pairs = [one - other for one, other in zip(taken, base, strict=True)]
        added[each.name, each.pools] = statistics.median(pairs) * 1000
        ratio = statistics.median(taken) / statistics.median(base)
        print(f"| {each.name} | {each.pools} | {_ms(taken)} | {ratio:.2f} | {_ms(pairs)} |")
    ours = contenders[0].name
    others = [key for key in added if key[0] != ours and key[1] == max(SIZES)]
    show(
        [
            *(
                Figure(f"added by a policy of {size} pool(s)", "no policy", added[ours, size], goal, " ms")
                for size, goal in GOALS.items()
            ),
            *(
                Figure(
                    f"added by a policy of {size} pool(s)",
                    f"added by {name}",
                    added[ours, size] / added[name, pools],
                    1,
                )
                for name, pools in others
                for size in GOALS
            ),
        ]
    )


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.2f} ms"


def _note(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
