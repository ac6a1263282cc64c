# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A big fleet with random labels and pool lists that change at random: every node always has the one right handler.

The seed is printed and part of every message; VIRTPOOLS_TEST_SEED=<number> repeats a run, VIRTPOOLS_TEST_NODES=<number>
makes it smaller or bigger, VIRTPOOLS_TEST_RUNS=<number> longer.
"""

from __future__ import annotations

import os
import random
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import Account, run
from watcher import PRIMARY, Watcher

pytestmark = pytest.mark.thorough  # unit tests have random fleets, too

NODES = int(os.environ.get("VIRTPOOLS_TEST_NODES", "60"))
RUNS = int(os.environ.get("VIRTPOOLS_TEST_RUNS", "2"))
START_SECONDS = STOP_SECONDS = 0.3
LABELS = {
    "zone": ("north", "south", "west"),
    "tier": ("gold", "silver", "bronze"),
    "accelerator": ("a", "b"),
    "rack": tuple(str(number) for number in range(1, 9)),
}
STOCK_IMAGE = "stock.example/kubevirt/virt-handler:v1.9.0"

Pool = dict[str, Any]
Labels = dict[str, str]


@dataclass
class Lottery:
    """Random nodes, and random but valid pool lists that follow one another."""

    random: random.Random
    pools_made: int = 0
    pools: list[Pool] = field(default_factory=list)

    def node_labels(self) -> Labels:
        """Make a node's labels; every tenth node has none, so that the primary keeps some nodes under any list."""
        if self.random.random() < 0.1:
            return {}
        return {key: self.random.choice(values) for key, values in LABELS.items() if self.random.random() < 0.8}

    def pool(self) -> Pool:
        """Make a pool with a new name."""
        self.pools_made += 1
        pool: Pool = {"name": f"pool-{self.pools_made}", "virtHandlerImage": self.image(), **self.selector()}
        return pool

    def selector(self) -> Pool:
        """Make a selector over one to four different labels."""
        keys = self.random.sample(sorted(LABELS), self.random.randint(1, 4))
        exact = keys[: self.random.randint(1, 2)]
        selector: Pool = {"nodeSelector": {key: self.random.choice(LABELS[key]) for key in exact}}
        expressions = [self.expression(key) for key in keys[len(exact) :]]
        return {**selector, "nodeExpressions": expressions} if expressions else selector

    def expression(self, key: str) -> dict[str, Any]:
        """Make a requirement on a label."""
        numeric = ["Gt", "Lt"] if key == "rack" else []
        operator = self.random.choice(["In", "NotIn", "Exists", "DoesNotExist", *numeric])
        if operator in {"Exists", "DoesNotExist"}:
            return {"key": key, "operator": operator}
        count = 1 if operator in {"Gt", "Lt"} else 2
        return {"key": key, "operator": operator, "values": self.random.sample(LABELS[key], count)}

    def image(self) -> str:
        """Make an image that no pool has used before."""
        return f"registry.example/virt-handler:v1.9.0-{self.random.getrandbits(32):08x}"

    def change(self, owners: dict[str, str]) -> None:
        """Change the list in every possible way: its order, a selector, an image; remove the biggest pool, add one."""
        sizes = Counter(owners.values())
        self.pools.remove(max(self.pools, key=lambda pool: sizes[pool["name"]]))
        self.random.shuffle(self.pools)
        edited, rebuilt = self.random.sample(self.pools, 2)
        edited.pop("nodeExpressions", None)
        edited.update(self.selector())
        rebuilt["virtHandlerImage"] = self.image()
        self.pools.insert(self.random.randint(0, len(self.pools)), self.pool())


# The oracle: the expected state, computed without the collection's code


def _selects(pool: Pool, labels: Labels) -> bool:
    exact = all(labels.get(key) == value for key, value in pool["nodeSelector"].items())
    return exact and all(_holds(each, labels) for each in pool.get("nodeExpressions", ()))


def _holds(requirement: dict[str, Any], labels: Labels) -> bool:
    value, values = labels.get(requirement["key"]), requirement.get("values", [])
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case _:
            return value is not None and int(value) < int(values[0])


@dataclass
class Expected:
    """Owner and handler image of every node."""

    owners: dict[str, str]
    images: dict[str, str]

    @classmethod
    def primary_only(cls, nodes: dict[str, Labels]) -> Expected:
        return cls(dict.fromkeys(nodes, PRIMARY), {PRIMARY: STOCK_IMAGE})

    def after(self, nodes: dict[str, Labels], pools: list[Pool], *, prune: bool) -> Expected:
        """Return the state after a run: the first pool that selects a node has it; unpruned old pools keep theirs."""
        images = {PRIMARY: STOCK_IMAGE} if prune else dict(self.images)
        kept = images.keys() - {pool["name"] for pool in pools}
        images.update({pool["name"]: pool["virtHandlerImage"] for pool in pools})
        owners = {}
        for node, labels in nodes.items():
            winner = next((pool["name"] for pool in pools if _selects(pool, labels)), None)
            former = self.owners[node]
            owners[node] = winner or (former if former in kept else PRIMARY)
        return Expected(owners, images)

    def restarts(self, before: Expected) -> dict[str, int]:
        """Return the nodes whose handler must have restarted once, because their owner or its image changed."""
        return {
            node: 1
            for node, owner in self.owners.items()
            if owner != before.owners[node] or self.images[owner] != before.images[owner]
        }


def _daemonset(owner: str) -> str:
    return "virt-handler" if owner == PRIMARY else f"virt-handler-{owner}"


# The test


@pytest.fixture(scope="module")
def seed() -> int:
    value = int(os.environ.get("VIRTPOOLS_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"VIRTPOOLS_TEST_SEED={value}")
    return value


def _fleet(lottery: Lottery) -> dict[str, Labels]:
    return {f"node-{number:03}": lottery.node_labels() for number in range(NODES)}


@pytest.fixture
def start_fleet(start_cluster: Callable[..., LocalCluster]) -> Callable[[dict[str, Labels]], LocalCluster]:
    quick = {
        "agent.virtpools.io/start-seconds": str(START_SECONDS),
        "agent.virtpools.io/stop-seconds": str(STOP_SECONDS),
    }

    def start(nodes: dict[str, Labels]) -> LocalCluster:
        groups = (Nodes(name=name, labels=labels, annotations=quick) for name, labels in nodes.items())
        return start_cluster(Fleet.from_groups(*groups))

    return start


@pytest.mark.timeout(5 * NODES * RUNS)
def test_random_lists_on_a_big_fleet_keep_one_handler_per_node(
    start_fleet: Callable[[dict[str, Labels]], LocalCluster], seed: int
) -> None:
    lottery = Lottery(random.Random(seed))
    nodes = _fleet(lottery)
    lottery.pools = [lottery.pool() for _ in range(5)]
    with start_fleet(nodes) as cluster:
        account = Account.make(cluster, "writer")
        before = Expected.primary_only(nodes)
        for number in range(RUNS):
            # The second run keeps what its list lacks, the third one prunes that, and what its own list lacks.
            prune = number % 2 == 0
            if number > 0:
                lottery.change(before.owners)
            about = f"run {number + 1} with seed {seed}"
            expected = before.after(nodes, lottery.pools, prune=prune)
            with Watcher(cluster) as watcher:
                done = run(
                    "site",
                    account.kubeconfig,
                    lottery.pools,
                    virtpools_max_unavailable="50%",
                    virtpools_overlap="first_wins",
                    virtpools_prune=prune,
                    virtpools_max_nodes_lost="100%",
                ).succeeded()
                watcher.stop()
            _report(about, done.seconds, watcher)
            _assert_right(watcher, expected, about)
            assert _handler_daemonsets(cluster) == {_daemonset(owner) for owner in expected.images}, about
            restarts = Counter(expected.restarts(before))
            if number == 0:
                # The exclusion is new: virt-operator rolls the primary once, over all nodes.
                restarts.update(nodes.keys())
            assert watcher.restarted == dict(restarts), f"{about}: other nodes than these restarted a handler"
            before = expected


def _assert_right(watcher: Watcher, expected: Expected, about: str) -> None:
    assert watcher.crowded == [], f"{about}: two handlers on a node at once"
    assert watcher.without_ready_handler == [], f"{about}: nodes left without a Ready handler"
    assert {node: seen.owners[-1] for node, seen in watcher.nodes.items()} == expected.owners, about
    assert watcher.handlers == {node: [_daemonset(owner)] for node, owner in expected.owners.items()}, about
    assert watcher.images == {node: [expected.images[owner]] for node, owner in expected.owners.items()}, about
    for node, seen in watcher.nodes.items():
        assert len(seen.owners) in {1, 3}, f"{about}: {node} took a detour: {seen.owners}"
        assert seen.owners[1:2] in ([], ["in_transit"]), f"{about}: {node} was not handed over: {seen.owners}"


def _handler_daemonsets(cluster: LocalCluster) -> set[str]:
    names = cluster.kubectl("get", "daemonsets", "-n", "kubevirt", "-o", "name").split()
    return {name.rpartition("/")[2] for name in names}


def _report(about: str, seconds: float, watcher: Watcher) -> None:
    gaps = sorted(watcher.gaps().values()) or [0.0]
    moved = sum(len(seen.owners) > 1 for seen in watcher.nodes.values())
    print(
        f"{about}: {seconds:.0f} s, {moved} nodes moved, {len(watcher.starts)} handlers started; without a handler "
        f"{statistics.median(gaps):.1f} s in the middle, {gaps[-1]:.1f} s at most"
    )
