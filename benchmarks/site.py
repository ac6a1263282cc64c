# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures how long ``site`` takes that brings one pool with nine nodes in three batches.

It cannot take less than virt-operator's own roll of the primary, once the exclusion is there, and one restart of a handler in
each batch. Both are measured on the same cluster. Times are of the clock, so the machine should be idle.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from cost import measured
from goals import Figure, show
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import ANSIBLE_PLAYBOOK
from scenario import Scenario, pool

NODES, BATCHES = 9, 3
FLEET = Fleet.from_groups(
    Nodes(prefix="gpu-", count=NODES, labels={"accelerator": "gpu"}), Nodes(prefix="plain-", count=3)
)
# How long handlers take to stop and to start.
AGENT = "--stop-seconds 5 --start-seconds 5"
PLAIN = ("plain-00", "plain-01", "plain-02")
GOAL = 1.1


def main() -> int:
    """Measure, and print a table for the README."""
    with LocalCluster.start("bench-site", FLEET, agent=AGENT, log=_note) as cluster:
        scenario = Scenario(cluster)
        scenario.wait_until_settled()
        single = statistics.median(scenario.restart_seconds(node) for node in PLAIN)
        roll = _rolled(scenario, [exclusion.PATCH])
        _rolled(scenario, None)
        site = _site(scenario)
    floor = roll + BATCHES * single
    print(f"| {NODES} nodes in {BATCHES} batches | seconds |\n|---|---:|")
    print(f"| virt-operator's roll of the primary | {roll:.1f} |\n| a single restart | {single:.1f} |")
    print(f"| `site` | {site:.1f} |")
    show([Figure(f"`site` of {NODES} nodes", f"the roll and {BATCHES} restarts: {floor:.1f} s", site / floor, GOAL)])
    return 0


def _rolled(scenario: Scenario, patches: list[Any] | None) -> float:
    """Change the primary as the exclusion does, and return how long virt-operator takes to roll it out."""
    started = time.monotonic()
    scenario.patch("kubevirt/kubevirt", merge={"spec": {"customizeComponents": {"patches": patches}}})
    scenario.wait_until_settled()
    return time.monotonic() - started


def _site(scenario: Scenario) -> float:
    options = {"virtpools_pools": [pool("gpu", "gpu")], "virtpools_max_unavailable": NODES // BATCHES}
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        Path(file.name).write_text(yaml.safe_dump(options), "utf-8")
        started = time.monotonic()
        cost = measured(
            [str(ANSIBLE_PLAYBOOK), "virtpools.kubevirt.site", "-e", f"@{file.name}"],
            {"KUBECONFIG": str(scenario.writer.kubeconfig)},
        )
        seconds = time.monotonic() - started
    assert sorted(scenario.owners().values()) == ["gpu"] * NODES, cost.output[-2000:]
    return seconds


def _note(text: Any) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
