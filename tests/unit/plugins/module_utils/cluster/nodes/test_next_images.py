# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import images, next_images
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

NEW = {
    "virtHandlerImage": "registry.example/virt-handler:v99.0.0",
    "virtLauncherImage": "registry.example/virt-launcher:v99.0.0",
}


@pytest.fixture
def calls(monkeypatch):
    """What was asked of nodes, in turns; tests put what comes of it into ``pulled`` and ``problems``."""

    class Calls:
        turns: list = []  # noqa: RUF012
        starts: list = []  # noqa: RUF012
        pulled = images.Pulled()
        problems: dict = {}  # noqa: RUF012
        deleted: set = set()  # noqa: RUF012

    made = Calls()
    made.turns, made.starts, made.pulled, made.problems, made.deleted = [], [], images.Pulled(), {}, set()

    def pull(_cluster, _namespace, pulls, _timeout, _clock):
        made.turns.append([each.node.name for each in pulls])
        made.daemonset = pulls[0].daemonset
        return made.pulled

    def start(_cluster, _namespace, starts, _timeout, _clock):
        made.starts += [(each.node.name, each.image) for each in starts]
        return made.problems

    monkeypatch.setattr(images, "pull", pull)
    monkeypatch.setattr(images, "start", start)
    monkeypatch.setattr(live, "deleted_nodes", lambda _cluster, nodes: made.deleted & {node.name for node in nodes})
    return made


def pull(nodes=None):
    found = builders.snapshot_of(nodes or vms.nodes(), [vms.gpu()], admission=vms.admission(*vms.policy()))
    made = plan.make_plan(found, [vms.gpu(**NEW)], Options())
    next_images.pull(None, made, 60, None)


def test_to_the_nodes_that_pools_own(calls):
    pull()
    assert calls.turns == [["gpu-0", "gpu-1"]]
    spec = calls.daemonset["spec"]["template"]["spec"]
    assert (spec["containers"][0]["image"], spec["initContainers"][0]["image"]) == tuple(NEW.values())
    assert calls.starts == [(node, NEW["virtLauncherImage"]) for node in ("gpu-0", "gpu-1")]


def test_a_fleet_in_turns(calls):
    pull([*(vms.node(f"gpu-{number:03}", "gpu") for number in range(120)), vms.node("rest")])
    assert [len(turn) for turn in calls.turns] == [50, 50, 20]


def test_nodes_that_are_not_ready_are_left_out(calls):
    pull([vms.node("gpu-0", "gpu"), vms.node("gpu-1", "gpu", ready=False), vms.node("rest")])
    assert calls.turns == [["gpu-0"]]


def test_one_that_cannot_be_pulled(calls):
    calls.pulled.problems["gpu-1"] = "image x cannot be pulled: ImagePullBackOff"
    with pytest.raises(images.ImagesMissing) as refused:
        pull()
    assert str(refused.value).startswith(
        "KubeVirt must not be upgraded yet, and nothing was changed, because 1 node cannot get the images of the next version. "
        "gpu-1: image x cannot be pulled: ImagePullBackOff. Check the image"
    )
    assert calls.starts == []


def test_a_deleted_node_needs_none(calls):
    """An autoscaler deletes nodes at any time."""
    calls.deleted = {"gpu-1"}
    calls.pulled.problems["gpu-1"] = "the pod that pulls its images was deleted by another client"
    calls.problems["gpu-1"] = "images were not pulled within 60 s"
    pull()
    calls.pulled.problems["gpu-0"] = "image x cannot be pulled: ImagePullBackOff"
    with pytest.raises(images.ImagesMissing, match=r"1 node cannot .*\. gpu-0: image x"):
        pull()


def test_one_that_lacks_something(calls):
    calls.pulled.lacking[NEW["virtLauncherImage"]] = ("virsh",)
    with pytest.raises(images.ImagesMissing, match="lacks virsh"):
        pull()


def test_one_that_launcher_pods_may_not_use(calls):
    calls.problems["gpu-0"] = "image x cannot be pulled"
    with pytest.raises(images.ImagesMissing, match="launcher pods would not start on 1 node"):
        pull()
