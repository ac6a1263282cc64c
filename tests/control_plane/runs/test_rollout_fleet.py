# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A rollout over 60 nodes of six platforms, canaries first: handlers restart in the order that the plan shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import playbooks
from local_cluster import LocalCluster, paths
from scenario import Scenario
from watcher import Watcher

EXAMPLES = Path(__file__).parents[3] / "examples"
PLATFORMS = ("a100-pcie", "a100-sxm", "altra", "grace", "l40s-1u", "l40s-2u")
WAVES = [{"name": "canary", "match": {"role": "canary"}, "per": "platform"}]
# In multiples of what it takes on the same machine to delete as many handlers by hand.
LONGEST_GAP = 2


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_handlers_restart_in_the_order_that_the_plan_shows(start_cluster: Callable[..., LocalCluster]) -> None:
    """An independent witness sees the canaries of one platform after the other, then the rest, batch by batch."""
    scenario = Scenario(start_cluster(paths.FLEETS / "rollout.yaml"))
    by_hand = scenario.restart_seconds(
        *(f"{platform}-{number:02}" for platform in PLATFORMS[:2] for number in range(8))
    )
    scenario.exclude_primary()
    pools = yaml.safe_load((EXAMPLES / "pools.yml").read_text("utf-8"))["virtpools_pools"]
    options = {"virtpools_waves": WAVES, "virtpools_max_unavailable": "30%"}
    plan = playbooks.run("plan", scenario.writer.kubeconfig, pools, **options).succeeded().plan
    canaries = [(f"canary, platform={platform}", [f"{platform}-canary-00"]) for platform in PLATFORMS]
    assert [(wave["name"], wave["nodes"]) for wave in plan["waves"][:-1]] == canaries
    batches = [sorted(move["node"] for move in batch) for batch in plan["batches"]]
    assert [len(batch) for batch in batches] == [1] * 6 + [15, 15, 15, 3]
    with Watcher(scenario.cluster) as watcher:
        playbooks.run("rollout", scenario.writer.kubeconfig, pools, **options).succeeded()
        watcher.stop()
    assert watcher.started(map(len, batches)) == batches
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])
    assert max(watcher.gaps().values()) < LONGEST_GAP * by_hand
    print(
        f"longest time without a handler: {max(watcher.gaps().values()) / by_hand:.1f} times that of deletions by hand"
    )
