# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures what a run costs that has nothing to change, and what one module call of a run costs.

The peers are tasks of kubernetes.core: one ``k8s`` task for each object that the run keeps as it should be, and ``k8s_info``
for a call. Compared programs take turns. Times are processor time of all processes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

import playbooks
from cost import Cost, in_turns, measured, median_seconds
from goals import Figure, show
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import ANSIBLE_PLAYBOOK, Account
from scenario import pool

POOLS = 10
TURNS = 3
CALLS = 20
SERVER_SET = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


def main() -> int:
    """Measure, and print tables for the README."""
    groups = [Nodes(prefix=f"node-{number}-", count=2, labels={"accelerator": f"a{number}"}) for number in range(POOLS)]
    fleet = Fleet.from_groups(*groups, Nodes(prefix="plain-", count=2))
    with (
        LocalCluster.start("bench-runs", fleet, log=_note) as cluster,
        tempfile.TemporaryDirectory(prefix="virtpools-bench-") as name,
    ):
        folder = Path(name)
        figures = [*_no_op(cluster, folder), _call(cluster, folder)]
    show(figures)
    return 0


def _no_op(cluster: LocalCluster, folder: Path) -> list[Figure]:
    pools = [_pool(number) for number in range(POOLS)]
    ours = Account.make(cluster, "writer")
    # A k8s task patches whatever it is given, which the writer may not.
    theirs = Account(cluster.kubeconfig_for("peer", ["cluster-admin"]), "system:serviceaccount:virtpools-system:peer")
    _note(f"Making {POOLS} pools ...")
    # With the guard, as users have it, and as the runs that are measured.
    made = playbooks.run("site", ours.kubeconfig, pools, virtpools_max_unavailable="100%", virtpools_guard=None)
    made.succeeded()
    objects = _objects(cluster)
    options = _written(folder / "options.yml", {"virtpools_pools": pools})
    tasks = _written(folder / "peer.yml", [_play(_applied(obj) for obj in objects)])
    marker = cluster.audit_marker()
    site, peer = in_turns(
        TURNS,
        lambda: _unchanged(
            measured([str(ANSIBLE_PLAYBOOK), "virtpools.kubevirt.site", "-e", f"@{options}"], _to(ours))
        ),
        lambda: _unchanged(measured([str(ANSIBLE_PLAYBOOK), str(tasks)], _to(theirs))),
    )
    asked, by_peer = (len(cluster.requests(marker, account.user)) / TURNS for account in (ours, theirs))
    print(f"| {POOLS} pools, nothing to change | processor time | requests | memory |\n|---|---:|---:|---:|")
    for name, costs, requests in (
        ("`site`", site, asked),
        (f"one `k8s` task for each of {len(objects)} objects", peer, by_peer),
    ):
        print(f"| {name} | {median_seconds(costs):.1f} s | {requests:.0f} | {max(c.megabytes for c in costs):.0f} MB |")
    print(flush=True)
    peers = f"one `k8s` task for each of {len(objects)} objects"
    return [
        Figure("`site` without changes", peers, median_seconds(site) / median_seconds(peer), 0.4),
        Figure("`site` without changes", "", median_seconds(site), 2.5, " s"),
        Figure("its requests", peers, asked / by_peer, 1),
    ]


def _call(cluster: LocalCluster, folder: Path) -> Figure:
    """One call more of a module in a play that has such calls already."""
    reader = Account.make(cluster, "reader")
    named: dict[str, Any] = {
        "`virtpools.kubevirt.pool_info`": {"virtpools.kubevirt.pool_info": {}},
        "`kubernetes.core.k8s_info`": {
            "kubernetes.core.k8s_info": {"api_version": "apps/v1", "kind": "DaemonSet", "namespace": "kubevirt"}
        },
    }
    print("| one call more of | processor time |\n|---|---:|")
    costs = []
    for name, task in named.items():
        plays = [_written(folder / f"calls-{calls}.yml", [_play([task] * calls)]) for calls in (1, 1 + CALLS)]
        few, many = in_turns(
            TURNS, *[lambda play=play: measured([str(ANSIBLE_PLAYBOOK), str(play)], _to(reader)) for play in plays]
        )
        costs.append((median_seconds(many) - median_seconds(few)) / CALLS)
        print(f"| {name} | {costs[-1]:.2f} s |", flush=True)
    idle = [measured([sys.executable, "-c", "pass"]) for _turn in range(TURNS)]
    print(f"| `python -c pass` | {median_seconds(idle):.2f} s |", flush=True)
    return Figure("one module call", "`python -c pass`", costs[0], 0.35, " s")


def _pool(number: int) -> dict[str, Any]:
    launcher = {
        "virtLauncherImage": f"registry.example/virt-launcher:v1.9.0-{number}",
        "selector": {"deviceNames": [f"example.com/a{number}"]},
    }
    return pool(f"p{number}", f"a{number}", **launcher)


def _objects(cluster: LocalCluster) -> list[dict[str, Any]]:
    """What the run has made, as somebody would keep it in files, and the KubeVirt object's placement."""
    kinds = "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
    found = [
        *_listed(cluster, "daemonsets", "-n", "kubevirt", "-l", "virtpools.io/pool"),
        *_listed(cluster, kinds, "--field-selector=metadata.name=virtpools-launcher"),
        *_listed(cluster, "kubevirts", "-n", "kubevirt"),
    ]
    for obj in found:
        obj.pop("status", None)
        for field in SERVER_SET:
            obj["metadata"].pop(field, None)
    return found


def _listed(cluster: LocalCluster, *what: str) -> list[dict[str, Any]]:
    items = json.loads(cluster.kubectl("get", *what, "-o", "json"))["items"]
    assert items, what
    return list(items)


def _applied(obj: dict[str, Any]) -> dict[str, Any]:
    return {"kubernetes.core.k8s": {"state": "present", "definition": obj}}


def _play(tasks: Any) -> dict[str, Any]:
    return {"hosts": "localhost", "gather_facts": False, "tasks": list(tasks)}


def _written(path: Path, content: Any) -> Path:
    path.write_text(yaml.safe_dump(content), "utf-8")
    return path


def _to(account: Account) -> dict[str, str]:
    return {"KUBECONFIG": str(account.kubeconfig), "K8S_AUTH_KUBECONFIG": str(account.kubeconfig)}


def _unchanged(cost: Cost) -> Cost:
    assert "changed=0" in cost.output, cost.output[-2000:]
    return cost


def _note(text: Any) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
