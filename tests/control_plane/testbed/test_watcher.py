# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The witness sees what must never happen; otherwise the tests in which it sees nothing would prove nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from local_cluster import Fleet, LocalCluster
from playbooks import Account, run
from watcher import IN_TRANSIT, OWNER, Watcher

pytestmark = pytest.mark.thorough  # the test bed itself: it changes rarely

POOL = {
    "name": "pool",
    "nodeSelector": {"kubernetes.io/hostname": "node-00"},
    "virtHandlerImage": "registry.example/virt-handler:v1.9.0-pool",
}


@pytest.fixture(scope="module")
def pooled(start_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    """Return a cluster that has a pool."""
    cluster = start_cluster(Fleet.plain(3))
    run("site", Account.make(cluster, "writer").kubeconfig, [POOL]).succeeded()
    return cluster


def test_a_label_flipped_in_one_step_shows_as_two_handlers(pooled: LocalCluster) -> None:
    with Watcher(pooled) as watcher:
        pooled.kubectl("label", "node", "node-01", f"{OWNER}=pool")
        pooled.wait(lambda: watcher.handlers["node-01"] == ["virt-handler-pool"], 30, "the other handler")
        watcher.stop()
    pooled.kubectl("label", "node", "node-01", f"{OWNER}-")
    pooled.wait(lambda: handlers_on(pooled, "node-01") == ["virt-handler"], 30, "its own handler again")
    assert watcher.crowded == ["node-01"]
    assert watcher.restarted == {"node-01": 1}
    assert watcher.nodes["node-01"].owners == ["primary", "pool"]
    assert watcher.nodes["node-00"].owners == ["pool"]
    assert max(each.handlers for each in watcher.nodes["node-01"].intervals) == 2


def test_the_witness_measures_how_long_a_node_had_no_handler(start_cluster: Callable[..., LocalCluster]) -> None:
    with start_cluster(Fleet.plain(1)) as cluster:
        for knob, seconds in (("stop-seconds", "1"), ("start-seconds", "3")):
            cluster.set_node_annotation("node-00", f"agent.virtpools.io/{knob}", seconds)
        with Watcher(cluster) as watcher:
            cluster.kubectl("delete", "pod", "-n", "kubevirt", "-l", "kubevirt.io=virt-handler")
            cluster.wait(watcher.gaps, 30, "the handler to come back")
            watcher.stop()
    assert 3.5 < watcher.gaps()["node-00"] < 8
    assert watcher.without_ready_handler == []


def test_the_witness_measures_how_long_a_node_has_no_owner(pooled: LocalCluster) -> None:
    with Watcher(pooled) as watcher:
        pooled.kubectl("label", "node", "node-01", f"{OWNER}={IN_TRANSIT}")
        pooled.wait(lambda: handlers_on(pooled, "node-01") == [], 30, "the end of its handler")
        time.sleep(2)
        pooled.kubectl("label", "node", "node-01", f"{OWNER}-")
        pooled.wait(lambda: handlers_on(pooled, "node-01") == ["virt-handler"], 30, "its own handler again")
        watcher.stop()
    (waited,) = watcher.nodes["node-01"].unowned
    assert 2 < waited < 6
    assert watcher.nodes["node-00"].unowned == []


def test_the_witness_misses_nothing_during_an_api_server_restart(
    pooled: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two handlers come and go before it is back; no list of the present shows that."""
    with Watcher(pooled) as watcher:
        back = threading.Event()
        monkeypatch.setattr(watcher, "_rest", back.wait)
        # A write of which no watch tells: the API server keeps no event from before its start.
        pooled.kubectl("create", "configmap", "-n", "kubevirt", "any")
        pooled.restart("kube-apiserver", kill=True)
        for change in (f"{OWNER}=pool", f"{OWNER}-"):
            wanted = "virt-handler-pool" if change.endswith("pool") else "virt-handler"
            pooled.kubectl("label", "node", "node-01", change)
            pooled.wait(lambda wanted=wanted: handlers_on(pooled, "node-01") == [wanted], 10, wanted)
        assert watcher.starts == [], "all this must happen before the witness is back"
        back.set()
        watcher.stop()
    assert watcher.recovered > 0
    assert watcher.crowded == ["node-01"]
    assert watcher.restarted["node-01"] == 2
    assert watcher.nodes["node-01"].owners == ["primary", "pool", "primary"]
    assert watcher.without_ready_handler == []


def handlers_on(cluster: LocalCluster, node: str) -> list[str]:
    """Return the DaemonSets of a node's handler pods."""
    path = "{.items[*].metadata.ownerReferences[0].name}"
    selected = ("-l", "kubevirt.io=virt-handler", f"--field-selector=spec.nodeName={node}")
    return cluster.kubectl("get", "pods", "-n", "kubevirt", *selected, "-o", f"jsonpath={path}").split()


def test_a_witness_that_dies_fails_the_test(start_cluster: Callable[..., LocalCluster]) -> None:
    with start_cluster(Fleet.plain(1)) as cluster, pytest.raises(AssertionError, match="The watch of pods failed"):
        _watch_and_die(cluster)


def _watch_and_die(cluster: LocalCluster) -> None:
    with Watcher(cluster) as watcher:
        del watcher._last["pods"]
