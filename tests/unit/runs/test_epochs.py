# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs with running VMs: at no write does a VM stop fitting its node, and new VMs keep off the nodes of others.

What fits a node is judged as kubelets and the scheduler do, by ``launcher_oracle``.
"""

from __future__ import annotations

import copy
import os

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_oracle, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import Admission
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import (
    FIRST,
    FOLLOWED,
    GPU,
    PREPARED,
    RT,
    TAKEN_BACK,
    Run,
    Stage,
    at_version,
    stock,
)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif("ANSIBLE_TEST_ANSIBLE_LIB_ROOT" in os.environ, reason="make test-unit runs them"),
]

SMALL = {**GPU, "nodeExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}
BIG = {**GPU, "name": "big", "nodeSelector": {"disk": "big"}, "selector": {"vmLabels": {"matchLabels": {"class": "b"}}}}
OPEN = {**GPU, "unmatched": "allow"}
LEAVE = {"virtpools_remove_vms": "leave"}
GONE = Run("pools", {"virtpools_pools": [RT], "virtpools_prune": True, **LEAVE})
RUNS = {
    "a pool takes a node of another": [Run("pools", {"virtpools_pools": [SMALL, BIG, RT], **LEAVE})],
    "a pool is pruned": [GONE],
    "a pool is pruned and comes back": [GONE, FIRST],
    "two pools, one after the other": [
        Run("pools", {"virtpools_pools": [SMALL, BIG, RT], **LEAVE}),
        Run("pools", {"virtpools_pools": [SMALL, RT], "virtpools_prune": True, **LEAVE}),
        Run("pools", {"virtpools_pools": [SMALL, {**BIG, "name": "huge"}, RT]}),
    ],
    "removed": [Run("remove", {"virtpools_remove": "all", **LEAVE})],
    "removed, and pools made again": [Run("remove", {"virtpools_remove": "all", **LEAVE}), FIRST],
    "a pool that is open to others": [
        Run("pools", {"virtpools_pools": [OPEN, RT]}),
        Run("pools", {"virtpools_pools": [RT], "virtpools_prune": True, **LEAVE}),
    ],
    "a pool closes to others and loses a node": [
        Run("pools", {"virtpools_pools": [OPEN, RT]}),
        Run("pools", {"virtpools_pools": [SMALL, BIG, RT], **LEAVE}),
    ],
    "a pool closes to others, and loses a node later": [
        Run("pools", {"virtpools_pools": [OPEN, RT]}),
        Run("pools", {"virtpools_pools": [GPU, RT]}),
        Run("pools", {"virtpools_pools": [SMALL, BIG, RT], **LEAVE}),
    ],
    "an upgrade of KubeVirt": [PREPARED, FOLLOWED],
    "an upgrade of KubeVirt, and it goes back": [PREPARED, FOLLOWED, TAKEN_BACK],
}
CLASSES = {"gpu": {"class": "gpu"}, "b": {"class": "b"}, "none": {}}


@pytest.fixture
def stage(run, monkeypatch):
    return Stage(run, monkeypatch)


class Moment:
    """A cluster at one moment, with the pods that its admission makes of new VMs."""

    def __init__(self, objects):
        self.world = World(*copy.deepcopy(objects))
        admission = Admission(self.world)
        self.nodes = {node["metadata"]["name"]: node for node in self.world.all(kinds.NODE)}
        self.pods = {}
        primary = self.world.find(kinds.DAEMON_SET, names.HANDLER, builders.NAMESPACE)
        (launcher,) = primary["spec"]["template"]["spec"]["initContainers"]
        for of, labels in CLASSES.items():
            plain = {"pool": None, "device": False, "image": launcher["image"]}
            pod = vms.launcher(f"vm-{of}", "", labels=labels, namespace="default", **plain)
            pod["spec"].pop("nodeSelector", None)  # its architecture and whether a handler is there count elsewhere
            self.pods[of] = admission.admitted(pod)

    def ending(self):
        """The VMs that a restart of all kubelets would end, with the labels of their nodes."""
        pods = (pod for pod in self.world.all(kinds.POD) if _is_launcher(pod))
        return [
            (pod["metadata"]["name"], self.nodes[pod["spec"]["nodeName"]]["metadata"]["labels"])
            for pod in pods
            if not fits(pod, self.nodes[pod["spec"]["nodeName"]])
        ]

    def straying(self):
        """The new VMs that could start on a node only because others may stay there.

        While the handler of its former owner runs, VMs of that owner may: it is as if they had started a moment before.
        """
        found = []
        for node in self.nodes.values():
            labels = node["metadata"]["labels"]
            without = {key: value for key, value in labels.items() if not key.startswith(names.UNTIL_PREFIX)}
            bare = {"metadata": {**node["metadata"], "labels": without}}
            former = node["metadata"].get("annotations", {}).get(names.FORMER_OWNER_ANNOTATION)
            handler = "virt-handler" if former == names.PRIMARY else f"virt-handler-{former}"
            begun = labels.get(names.OWNER_LABEL) == names.IN_TRANSIT and handler in self.handlers(node)
            if labels.get(names.SCHEDULABLE_LABEL) == "true" and not begun:
                found += [(of, labels) for of, pod in self.pods.items() if fits(pod, node) and not fits(pod, bare)]
        return found

    def handlers(self, node):
        return self.world.handlers(node["metadata"]["name"])

    def new_vms(self, number):
        """A VM of each class on every node that it may go to now."""
        for of, pod in self.pods.items():
            for on in (name for name, node in self.nodes.items() if fits(pod, node)):
                name = f"{of}-{on}-{number}"
                started = copy.deepcopy(pod)
                started["metadata"].update(name=f"virt-launcher-{name}", uid=f"uid-pod-{name}")
                started["spec"]["nodeName"] = on
                yield {**started, "status": {"phase": "Running"}}


def _is_launcher(pod):
    return pod["metadata"].get("labels", {}).get(names.KUBEVIRT_LABEL) == names.LAUNCHER


def fits(pod, node):
    of_node = {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"], "taints": []}
    return launcher_oracle.lands(pod["spec"], of_node, [])


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_kubelets_may_restart_after_any_write(stage, runs):
    world, _none = stage.on(stock())
    stage.run(FIRST.role, FIRST.variables)
    objects, written = list(world.objects.values()), 0
    for number, each in enumerate(runs):
        cuts, objects = [], at_version(objects, each.kubevirt)
        started = list(Moment(objects).new_vms(number))
        assert len(started) >= len(CLASSES)
        world, _none = stage.on([*objects, *started], cuts=cuts)
        stage.run(each.role, each.variables)
        for moment in map(Moment, cuts):
            assert moment.ending() == []
            assert moment.straying() == []
        objects = list(world.objects.values())
        written += len(cuts)
    assert written > 5


def test_labels_stay_only_where_vms_need_them(stage):
    world, _none = stage.on(stock())
    stage.run(FIRST.role, FIRST.variables)
    world, _none = stage.on(list(world.objects.values()))
    stage.run(GONE.role, GONE.variables)
    assert not [node for node in world.all(kinds.NODE) if _until(node)]


def _until(node):
    return [key for key in node["metadata"]["labels"] if key.startswith(names.UNTIL_PREFIX)]
