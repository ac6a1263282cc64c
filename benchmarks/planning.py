# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures how the work of a plan grows with nodes and pools, and that of matching with VMs and pools. Needs no cluster.

The limit of a plan is one pass over the nodes: reading the snapshot from objects that are parsed already. Plan and pass take
turns. Times are processor time, the best of three.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.criteria import PodAttributes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import matching
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from cost import exponent
from goals import Figure, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.model import Pool

NODES = (1_250, 5_000, 20_000)
POOLS = (1, 10, 100)
GOALS = {5_000: 1.0, 20_000: 4.0}
MOST_EXPONENT = 1.1
VMS = 100_000
TURNS = 3


def main() -> int:
    """Measure, and print tables for the README."""
    times: dict[tuple[int, int], float] = {}
    print("| nodes | pools | one pass over the nodes | plan | ratio |\n|---:|---:|---:|---:|---:|")
    sizes = sorted({*((nodes, POOLS[-1]) for nodes in NODES), *((NODES[1], pools) for pools in POOLS)})
    for nodes, pools in sizes:
        passed, planned = _plan(nodes, pools)
        times[nodes, pools] = planned
        print(f"| {nodes:,} | {pools} | {passed:.2f} s | {planned:.2f} s | {planned / passed:.1f} |", flush=True)
    by_nodes = exponent([(nodes, times[nodes, POOLS[-1]]) for nodes in NODES])
    by_pools = exponent([(pools, times[NODES[1], pools]) for pools in POOLS])
    print(f"\nA plan grows with nodes to the power of {by_nodes:.2f}, with pools to the power of {by_pools:.2f}.\n")
    print(f"| pools | {VMS:,} VMs matched | each |\n|---:|---:|---:|")
    for pools in POOLS:
        seconds = _match(pools)
        print(f"| {pools} | {seconds:.2f} s | {1e6 * seconds / VMS:.1f} µs |", flush=True)
    show(
        [
            *(
                Figure(
                    f"a plan of {nodes:,} nodes and {POOLS[-1]} pools",
                    "one pass over the nodes",
                    times[nodes, POOLS[-1]],
                    goal,
                    " s",
                )
                for nodes, goal in GOALS.items()
            ),
            Figure("power of the growth with nodes", "1", by_nodes, MOST_EXPONENT, ""),
            Figure("power of the growth with pools", "1", by_pools, MOST_EXPONENT, ""),
        ]
    )
    return 0


def _pool(number: int) -> Pool:
    selector = {"deviceNames": [f"vendor.example/{number}"], "vmLabels": {"matchLabels": {"class": f"c{number}"}}}
    image = f"registry.example/virt-launcher:v1.9.0-{number}"
    return builders.pool(f"p{number}", nodeSelector={"hw": f"hw{number}"}, virtLauncherImage=image, selector=selector)


def _plan(nodes: int, pools: int) -> tuple[float, float]:
    """The times of a pass over the nodes, and of a plan that moves almost all of them."""
    made = [
        builders.node(f"n{number:06}", labels={"hw": f"hw{number % (pools + 2)}", "zone": f"z{number % 3}"})
        for number in range(nodes)
    ]
    sets = [builders.primary(excluded=False, desired=nodes)]
    objects = [builders.kubevirt(), *sets, *made, *builders.handlers_of(made, sets)]
    listed = [_pool(number) for number in range(pools)]
    found = snapshot.from_objects(objects)
    turns = [
        (_timed(lambda: snapshot.from_objects(objects)), _timed(lambda: plan.make_plan(found, listed, Options())))
        for _turn in range(TURNS)
    ]
    return min(passed for passed, _planned in turns), min(planned for _passed, planned in turns)


def _match(pools: int) -> float:
    table = Table.for_pools(_pool(number) for number in range(pools))
    vms = [
        PodAttributes(
            "team",
            labels={"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": f"vm-{number}", "class": f"c{number % 200}"},
            node_selector={"kubernetes.io/arch": "amd64"},
            devices=frozenset({"devices.kubevirt.io/kvm", "cpu", f"vendor.example/{number % 300}"}),
        )
        for number in range(VMS)
    ]
    return min(_timed(lambda: [matching.winner(table, vm) for vm in vms]) for _turn in range(TURNS))


def _timed(work: Callable[[], Any]) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
