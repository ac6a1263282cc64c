# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures a rollout in waves on a local cluster with NODES nodes, and checks that it keeps its promises.

An independent witness checks that handlers restart in the order of the plan, and that no node ever has two handlers.
Times without a handler are compared with the stop and start of a single pod in the same run. The engine's own work is
the processor time of its processes. Its requests go out side by side, so the API server's time for them is told for each.

Real kubelets have cores of their own. Here the API server, etcd, the engine and the witness go before everything else on
the machine, by their priority, for which the benchmark needs root.

Usage: rollout.py NODES
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

import playbooks
from cost import Cost, measured
from goals import Figure, show
from local_cluster import Fleet, LocalCluster, paths
from playbooks import ANSIBLE_PLAYBOOK
from scenario import Scenario
from watcher import Watcher

EXAMPLES = Path(__file__).parents[1] / "examples"
LEAST = 60
PREFERRED = ("etcd", "kube-apiserver")
PRIORITY = -10
# How long handlers take to stop and to get Ready. As real ones, they beat a second after the start, before they are Ready.
AGENT = "--stop-seconds 5 --start-seconds 2 --ready-seconds 3 --heartbeat-delay 1s"


def main() -> int:
    """Measure, and print tables for the README."""
    if (nodes := int(sys.argv[1])) < LEAST:
        raise SystemExit(f"NODES={nodes} is too few for its six platforms: {LEAST} or more.")
    fleet = _scaled(Fleet.load(paths.FLEETS / "rollout.yaml"), nodes)
    LocalCluster.patience = max(1, nodes / 200)  # its time limits are those of small clusters
    with LocalCluster.start("bench-rollout", fleet, agent=AGENT, log=_note) as cluster:
        for pid in (*map(cluster.pid, PREFERRED), os.getpid()):
            _prefer(pid)
        scenario = Scenario(cluster)
        plain = fleet.groups[-1].names()[:3]  # no pool takes them
        singles = [scenario.restart_seconds(node) for node in plain]
        _note("Keeping the primary off pool nodes ...")
        scenario.exclude_primary()
        with tempfile.TemporaryDirectory(prefix="virtpools-bench-") as folder:
            options = Path(folder) / "options.yml"
            options.write_text(yaml.safe_dump(_options()), "utf-8")
            _note("Planning ...")
            plan = playbooks.run("plan", scenario.writer.kubeconfig, None, "-e", f"@{options}").succeeded().plan
            _note(f"Rolling out {len(plan['waves'])} waves in {len(plan['batches'])} batches ...")
            marker = cluster.audit_marker()
            with Watcher(cluster) as watcher:
                started = time.monotonic()
                cost = _rollout(scenario, options)
                seconds = time.monotonic() - started
                watcher.stop()
        singles += [scenario.restart_seconds(node) for node in plain]
        _report(
            plan, watcher, statistics.median(singles), seconds, cost, cluster.requests(marker, scenario.writer.user)
        )
    return 0


def _scaled(fleet: Fleet, nodes: int) -> Fleet:
    """A fleet with this many nodes, of the same kinds in the same proportions."""
    now = sum(group.count for group in fleet.groups)
    groups = [replace(group, count=max(1, group.count * nodes // now)) for group in fleet.groups]
    *others, last = groups
    return Fleet.from_groups(*others, replace(last, count=nodes - sum(group.count for group in others)))


def _options() -> dict[str, Any]:
    """The pools and waves of the examples, in fewer batches, and without a soak, which is time without work."""
    given = [yaml.safe_load((EXAMPLES / name).read_text("utf-8")) for name in ("pools.yml", "waves.yml")]
    return {**given[0], **given[1], "virtpools_max_unavailable": "10%", "virtpools_soak_seconds": 0}


def _prefer(pid: int) -> None:
    """Let a process go before others, and with it what it starts from now on."""
    for thread in Path(f"/proc/{pid}/task").iterdir():  # each has a priority of its own
        os.setpriority(os.PRIO_PROCESS, int(thread.name), PRIORITY)


def _rollout(scenario: Scenario, options: Path) -> Cost:
    command = [str(ANSIBLE_PLAYBOOK), "virtpools.kubevirt.rollout", "-e", f"@{options}"]
    return measured(command, {"KUBECONFIG": str(scenario.writer.kubeconfig), "ANSIBLE_CONFIG": str(playbooks.CONFIG)})


def _report(
    plan: dict[str, Any], watcher: Watcher, single: float, seconds: float, cost: Cost, requests: list[dict[str, Any]]
) -> None:
    batches = [sorted(move["node"] for move in batch) for batch in plan["batches"]]
    assert watcher.started(map(len, batches)) == batches, "handlers were restarted in another order than the plan's"
    assert watcher.crowded == [], "nodes had two handlers"
    assert watcher.without_ready_handler == [], "nodes have no Ready handler"
    moved = sum(map(len, batches))
    handovers = [seen.unready[-1] for seen in watcher.nodes.values() if len(seen.owners) > 1]
    answered = [_seconds(entry) for entry in requests if entry["verb"] != "watch"]  # a watch only waits
    verbs = Counter(entry["verb"] for entry in requests)
    longest, median = max(watcher.gaps().values()) / single, statistics.median(handovers) / single
    own = [seconds / single for seen in watcher.nodes.values() for seconds in seen.unowned]
    print(
        "| nodes | moved | waves | batches | whole run | longest gap | median gap | own work | of the whole time | API server, a request | memory |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    print(
        f"| {len(watcher.nodes):,} | {moved:,} | {len(plan['waves'])} | {len(batches)} | {seconds:,.0f} s | {longest:.2f} "
        f"| {median:.2f} | {cost.seconds:.0f} s | {cost.seconds / seconds:.0%} | {statistics.mean(answered) * 1000:.0f} ms "
        f"| {cost.megabytes:.0f} MB |\n"
    )
    print(f"| requests per moved node | {' | '.join(verbs)} |\n|---:|{'---:|' * len(verbs)}")
    counts = " | ".join(f"{count / moved:.1f}" for count in verbs.values())
    print(f"| {len(requests) / moved:.1f} | {counts} |\n", flush=True)
    show(
        [
            Figure(
                "requests per moved node", "3 patches, a deletion, what must be seen", len(requests) / moved, 12, ""
            ),
            Figure("a node without a Ready handler, median", "one restart", median, 1.1),
            Figure("the same, longest", "one restart", longest, 1.5),
            Figure(
                "of it, until the engine gave the node its next owner, median",
                "one restart",
                statistics.median(own),
                0.1,
            ),
            Figure("the same, longest", "one restart", max(own), 0.5),
            Figure("the engine's own work", "the whole run", cost.seconds / seconds, 0.05, " of the time"),
            Figure("memory", "", cost.megabytes, 130, " MB"),
        ]
    )
    _note(f"{seconds:.0f} s in all; a single restart took {single:.1f} s; {cost.seconds:.0f} s of the processor.")
    for kind, count in Counter(map(_kind, requests)).most_common(30):
        _note(f"{count:8} {kind}")


def _seconds(entry: dict[str, Any]) -> float:
    """How many seconds the API server took for a request."""
    begin, end = (datetime.fromisoformat(entry[when]) for when in ("requestReceivedTimestamp", "stageTimestamp"))
    return (end - begin).total_seconds()


def _kind(entry: dict[str, Any]) -> str:
    target = entry.get("objectRef", {})
    return f"{entry['verb']} {target.get('resource', '')} {target.get('subresource', '')}{'?' if '?' in entry['requestURI'] else ''}"


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
