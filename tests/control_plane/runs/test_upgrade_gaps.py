# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""How long nodes have no Ready handler in an upgrade of KubeVirt, with pools and without, as figures that the test prints."""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest

import playbooks
from local_cluster import Fleet, LocalCluster, Nodes, kubevirt, programs
from scenario import NAMESPACE, Object, Scenario, gpu_pool
from watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

UPGRADES = [("v1.7.0", programs.EARLIER), (programs.EARLIER, programs.KUBEVIRT)]
EACH = 4
"""Nodes with a pool's label, and nodes without."""
FLEET = Fleet.from_groups(
    Nodes(prefix="a100-", count=EACH, labels={"accelerator": "a100"}), Nodes(prefix="node-", count=EACH)
)

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]


def gpu(version: str) -> Object:
    """Return the pool with images of this version."""
    return gpu_pool(version, vmLabels={"matchLabels": {"class": "gpu"}})


class GapsScenario(Scenario):
    """A cluster whose KubeVirt is upgraded under a witness."""

    def __init__(self, cluster: LocalCluster, after: str) -> None:
        super().__init__(cluster)
        self._after = after

    def upgrade(self) -> tuple[Watcher, float]:
        """Upgrade KubeVirt; return the witness of it, and the seconds that it took."""
        manifest = programs.manifest(self.cluster.add_kubevirt(self._after), NAMESPACE, kubevirt.IMAGES)
        with Watcher(self.cluster) as watcher:
            began = time.monotonic()
            self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
            self.cluster.wait(self._upgraded, 300, "the upgrade")
            self.wait_until_settled()
            seconds = time.monotonic() - began
            return watcher.stop(), seconds

    def _upgraded(self) -> bool:
        return bool(self.kubevirt()["status"]["observedKubeVirtVersion"] == self._after)

    def pools_follow(self) -> Watcher:
        """Run the playbook upgrade, which prepares the pools before the upgrade and lets them follow after it."""
        with Watcher(self.cluster) as watcher:
            variables = {"virtpools_upgrade_to": self._after, "virtpools_node_timeout": 30}
            playbooks.run("upgrade", self.writer.kubeconfig, [gpu(self._after)], **variables).succeeded()
            return watcher.stop()


def gaps(watcher: Watcher, prefix: str = "") -> dict[str, list[float]]:
    """Return the seconds of each time in which a node had no Ready handler."""
    return {node: seen.unready for node, seen in watcher.nodes.items() if node.startswith(prefix)}


def in_short(found: Collection[list[float]]) -> Object:
    each = _flat(found)
    return {
        "nodes": len(found),
        "gaps": len(each),
        "median": round(statistics.median(each), 2) if each else 0,
        "longest": round(max(each, default=0), 2),
    }


def _flat(found: Iterable[list[float]]) -> list[float]:
    return [seconds for of_node in found for seconds in of_node]


@pytest.mark.parametrize(("before", "after"), UPGRADES)
def test_a_pool_node_lacks_its_handler_once(start_cluster: Any, before: str, after: str) -> None:
    """Not while KubeVirt is upgraded, and then for about as long as any node in an upgrade without pools."""
    with start_cluster(FLEET, kubevirt=before) as cluster:
        plain, plain_seconds = GapsScenario(cluster, after).upgrade()
    with start_cluster(FLEET, kubevirt=before) as cluster:
        scenario = GapsScenario(cluster, after)
        scenario.site([gpu(before)]).succeeded()
        prepared = scenario.pools_follow()
        pooled, pooled_seconds = scenario.upgrade()
        followed = scenario.pools_follow()
    without = gaps(plain)
    counts = {
        "without pools": in_short(without.values()),
        "nodes without a pool": in_short(gaps(pooled, "node-").values()),
        "pool nodes, while KubeVirt is upgraded": in_short(gaps(pooled, "a100-").values()),
        "pool nodes, when they follow": in_short(gaps(followed, "a100-").values()),
    }
    seconds = {"without pools": round(plain_seconds), "with pools": round(pooled_seconds)}
    print(json.dumps({"from": before, "to": after, "upgrade took": seconds, "no Ready handler": counts}))
    assert (_flat(gaps(prepared).values()), _flat(gaps(pooled, "a100-").values())) == ([], [])
    assert _flat(gaps(followed, "node-").values()) == []
    assert {node: len(each) for node, each in gaps(followed, "a100-").items()} == {
        f"a100-{number:02}": 1 for number in range(EACH)
    }
    longest = max(_flat(without.values()))
    assert max(_flat(gaps(followed, "a100-").values())) <= 2 * longest
    assert max(_flat(gaps(pooled, "node-").values())) <= 2 * longest
