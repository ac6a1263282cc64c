# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What a cluster had is in its history, and without a history there is nothing to go back to. In order."""

from __future__ import annotations

from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, Nodes
from playbooks import Run
from scene import Object, Scene, pool

QUICK = {"standin.virtpools.io/start-seconds": "0.3", "standin.virtpools.io/stop-seconds": "0.3"}
GPU = pool(
    "gpu",
    "gpu",
    virtLauncherImage="registry.example/virt-launcher:v1.9.0-gpu",
    selector={"vmLabels": {"matchLabels": {"class": "gpu"}}},
)
FORMER = [GPU, pool("rt", "rt")]
# Another image and no launcher for one pool, the other is gone, and a third takes its node.
EDITED = [pool("gpu", "gpu", virtHandlerImage="registry.example/virt-handler:v1.9.0-next"), pool("real-time", "rt")]


class Story(Scene):
    """A fleet that goes back to what it had."""

    def rollback(self, *arguments: str, pools: Any = None, **variables: Any) -> Run:
        quick = {"virtpools_node_timeout": 30, "virtpools_pull_timeout": 8, "virtpools_max_unavailable": "100%"}
        return playbooks.run("rollback", self.writer.kubeconfig, pools, *arguments, **{**quick, **variables})

    def history(self) -> Object:
        return self.module("pool_history")


@pytest.fixture(scope="module")
def story(start_cluster: Any) -> Story:
    fleet = Fleet.of(
        Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, annotations=QUICK),
        Nodes(name="rt", labels={"accelerator": "rt"}, annotations=QUICK),
        Nodes(name="plain", annotations=QUICK),
    )
    story = Story(start_cluster(fleet))
    story.wait_until_settled()
    return story


def test_without_an_earlier_list_nothing_is_done(story: Story) -> None:
    with story.no_writes():
        error = story.rollback().refused()
    assert error.startswith("There is no earlier pool list to go back to")


def test_every_run_that_changed_something_is_in_the_history(story: Story) -> None:
    story.site(FORMER).succeeded()
    story.settled(FORMER)
    assert len(story.history()["entries"]) == 1
    story.site(EDITED, virtpools_prune=True).succeeded()
    entries = story.history()["entries"]
    assert [[found["name"] for found in entry["pools"]] for entry in entries] == [["gpu", "rt"], ["gpu", "real-time"]]
