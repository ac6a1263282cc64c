# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The witness sees what must never happen: without that, tests that it saw nothing would prove nothing."""

from __future__ import annotations

from collections.abc import Callable

from local_cluster import Fleet, LocalCluster
from playbooks import Account, run
from watcher import OWNER, Watcher

POOL = {
    "name": "pool",
    "nodeSelector": {"kubernetes.io/hostname": "node-00"},
    "virtHandlerImage": "registry.example/virt-handler:v1.9.0-pool",
}


def test_a_label_flipped_in_one_step_gives_a_node_two_handlers_and_the_witness_sees_it(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    with start_cluster(Fleet.plain(3)) as cluster:
        run("site", Account.make(cluster, "writer").kubeconfig, [POOL]).succeeded()
        with Watcher(cluster) as watcher:
            cluster.kubectl("label", "node", "node-01", f"{OWNER}=pool")
            cluster.wait(lambda: watcher.handlers["node-01"] == ["virt-handler-pool"], 30, "the other handler")
            watcher.stop()
    assert watcher.crowded == ["node-01"]
    assert watcher.restarted == {"node-01": 1}
    assert watcher.nodes["node-01"].owners == ["primary", "pool"]
    assert watcher.nodes["node-00"].owners == ["pool"]
    assert max(each.handlers for each in watcher.nodes["node-01"].intervals) == 2


def test_the_witness_measures_how_long_a_node_had_no_handler(start_cluster: Callable[..., LocalCluster]) -> None:
    with start_cluster(Fleet.plain(1)) as cluster:
        cluster.set_node_annotation("node-00", "standin.virtpools.io/start-seconds", "3")
        with Watcher(cluster) as watcher:
            cluster.kubectl("delete", "pod", "-n", "kubevirt", "-l", "kubevirt.io=virt-handler")
            cluster.wait(watcher.gaps, 30, "the handler to come back")
            watcher.stop()
    # One second to stop, three to start.
    assert 3.5 < watcher.gaps()["node-00"] < 8
    assert watcher.without == []
