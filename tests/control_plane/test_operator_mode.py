# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Operator mode on each build of KubeVirt with pools of its own: the whole way of a user, and what is refused before it begins.

One cluster for each build; the tests run in order, those of A and C in make test-thorough. What builds do is played by the agent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from full_dump import differences, ours

from local_cluster import Fleet, Nodes
from local_cluster.kubevirt import works
from operator_mode_scenario import DEVICE, A, B, C, OperatorModeScenario, only_on
from scenario import Object
from watcher import Watcher

VMS = "team-a"
FLEET = Fleet.of(
    Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, capacity={DEVICE: "4"}),
    Nodes(name="edge-00", labels={"accelerator": "edge"}),
    Nodes(name="plain-00", labels={"tier": "gold"}),
)
STOCK = "stock.example/kubevirt/virt-launcher:v1.9.0"
ONE = B
"""The build of stories of which one is enough: what differs between builds has unit tests on all."""
BUILDS = [build if build is ONE else pytest.param(build, marks=pytest.mark.thorough) for build in (A, B, C)]

# The pool of each VM by its device, its label, and its nodeSelector; none for KubeVirt's own launcher image.
POOL_OF = {
    "additionalVirtHandlers": {"by-device": "", "by-label": "", "by-node": "gpu", "of-none": ""},
    "virtHandlerPools": {"by-device": "gpu", "by-label": "edge", "by-node": "", "of-none": ""},
    "WorkerPool": {"by-device": "gpu", "by-label": "edge", "by-node": "", "of-none": ""},
}
GPUS = {"gpus": [{"name": "gpu0", "deviceName": DEVICE}]}


def vm(name: str, devices: Object | None = None, labels: Object | None = None, **spec: Any) -> Object:
    """Return a running VM as its owner writes it."""
    disks = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    volumes = [{"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:42"}}]
    domain = {"devices": {**disks, **(devices or {})}, "memory": {"guest": "64Mi"}}
    template = {"metadata": {"labels": labels or {}}, "spec": {"domain": domain, "volumes": volumes, **spec}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": VMS},
        "spec": {"runStrategy": "Always", "template": template},
    }


MACHINES = [
    vm("by-device", GPUS),
    vm("by-label", labels={"site": "edge"}),
    vm("by-node", nodeSelector={"accelerator": "gpu"}),
    vm("of-none", nodeSelector={"tier": "gold"}),
]


class Story(OperatorModeScenario):
    """A cluster of one build, with VMs."""

    def start_vms(self) -> None:
        # An additionalVirtHandlers build has restarted virt-api.
        self.cluster.wait(lambda: works(self.cluster), 60, "KubeVirt to answer")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": VMS}}
        for obj in (namespace, *MACHINES):
            self.apply(obj)
        self.cluster.wait(lambda: len(self.launchers()) == len(MACHINES), 90, "all VMs to run", interval=0.5)

    def launchers(self) -> dict[str, Object]:
        """Return the launcher pods of VMs that run, by the names of the VMs."""
        alive = "--field-selector=status.phase=Running"
        pods = self.get("pods", "-n", VMS, "-l", "kubevirt.io=virt-launcher", alive)["items"]
        running = {
            each["metadata"]["name"]: each["status"].get("nodeName")
            for each in self.get("vmis", "-n", VMS)["items"]
            if each.get("status", {}).get("phase") == "Running"
        }
        named = {pod["metadata"]["labels"]["vm.kubevirt.io/name"]: pod for pod in pods}
        return {name: pod for name, pod in named.items() if running.get(name) == pod["spec"].get("nodeName")}

    def handler_images(self, node: str) -> dict[str, str]:
        """Return the image of each container of the one handler of a node."""
        pods = self.get("pods", "-l", "kubevirt.io=virt-handler")["items"]
        (pod,) = [pod for pod in pods if pod["spec"].get("nodeName") == node]
        return {
            each["name"]: each["image"] for place in ("initContainers", "containers") for each in pod["spec"][place]
        }

    def _start_and_kill(self, **variables: Any) -> None:
        """Start site, and kill it while virt-operator takes the operator pools down."""
        running = self.start_site(self.pools(), **variables)
        self.cluster.wait(lambda: not self.kubevirt()["spec"].get(ONE.name), 120, "the list to be taken away")
        running.kill_all()

    def moved(self, *, killed_first: bool = False, **variables: Any) -> Watcher:
        """Move the pools to another mode by a run of site, maybe after one that was killed; return the witness of it all."""
        with Watcher(self.cluster) as watcher:
            if killed_first:
                self._start_and_kill(**variables)
            self.play("site", self.pools(), **variables).succeeded()
            watcher.stop()
        assert watcher.without_ready_handler == []
        assert watcher.handlers == {
            "gpu-00": ["virt-handler-gpu"],
            "gpu-01": ["virt-handler-gpu"],
            "edge-00": ["virt-handler-edge"],
            "plain-00": ["virt-handler"],
        }
        return watcher

    def refusing(self, said: str | None) -> None:
        """Let the build's webhook refuse every change of pools with this message; None: no more."""
        self.patch("kubevirt/kubevirt", merge={"metadata": {"annotations": {"agent.virtpools.io/refuse": said}}})


def machines(story: Story) -> dict[str, str]:
    """Return the launcher pod of each VM that runs, which a restart of the VM would change."""
    return {name: pod["metadata"]["uid"] for name, pod in story.launchers().items()}


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: build.name)
def story(request: pytest.FixtureRequest, start_cluster: Any) -> Iterator[Story]:
    # It ends with its stories: what an idle cluster costs, those of the other builds lack.
    with start_cluster(FLEET, build=request.param.name) as cluster:
        story = Story(request.param, cluster)
        story.wait_until_settled()
        yield story


@pytest.fixture(scope="module", autouse=True)
def before(story: Story) -> dict[str, Object]:
    """Return the cluster as it was before it had pools."""
    return story.state()


def test_check_mode_says_what_would_be_done_and_writes_nothing(story: Story, before: dict[str, Object]) -> None:
    only_on(story, ONE)
    with story.no_writes():
        run = story.play("site", story.pools(), "--check").succeeded()
    changes = "\n".join(run.changes)
    assert "Node gpu-00: primary -> gpu" in changes
    assert "Node edge-00: primary -> edge" in changes
    assert story.state() == before


def several(story: Story) -> Object:
    """Return a pool that selects by two labels, which no node has together."""
    return story.pool("gpu", nodeSelector={"accelerator": "gpu", "tier": "gold"})


def test_a_list_that_would_leave_nodes_without_a_handler_is_refused(story: Story) -> None:
    only_on(story, ONE)
    with story.no_writes():
        said = story.play("site", [several(story), story.pool("edge")]).refused()
    assert "2 node(s) would have no handler (gpu-00, gpu-01)" in said
    assert "1 node(s) would have no handler (plain-00)" in said


def test_the_list_that_was_refused_does_leave_these_nodes_without_a_handler(story: Story) -> None:
    """What the refusal says is true of the build, as far as the agent plays it well."""
    only_on(story, ONE)
    pool = {key: value for key, value in several(story).items() if key != "unmatched"}
    gates = story.kubevirt()["spec"]["configuration"]["developerConfiguration"].get("featureGates")
    _write(story, [pool], [*(gates or ()), "VirtHandlerPools"])
    story.cluster.wait(lambda: {*story.handlers()} == {"edge-00"}, 60, "nodes without a handler", interval=0.5)
    _write(story, None, gates)
    story.cluster.wait(lambda: len(story.handlers()) == 4, 60, "handlers on all nodes", interval=0.5)
    story.wait_until_settled()


def _write(story: Story, pools: list[Object] | None, gates: list[str] | None) -> None:
    configuration = {"developerConfiguration": {"featureGates": gates}}
    story.patch("kubevirt/kubevirt", merge={"spec": {"virtHandlerPools": pools, "configuration": configuration}})


def test_what_the_webhook_of_the_build_says_is_said_before_anything_is_written(story: Story) -> None:
    only_on(story, ONE, C)  # additionalVirtHandlers has none
    story.refusing("no pools on Mondays")
    try:
        marker = story.cluster.audit_marker()
        said = story.play("site", story.pools()).refused()
        assert "no pools on Mondays" in said
        assert [line for line in story.writes(marker) if "lease" not in line.lower()] == []
    finally:
        story.refusing(None)


def test_site_brings_the_pools_and_a_second_run_writes_nothing(story: Story) -> None:
    with Watcher(story.cluster) as watcher:
        story.play("site", story.pools()).succeeded()
        watcher.stop()
    assert watcher.without_ready_handler == []
    assert watcher.handlers == {
        "gpu-00": ["virt-handler-gpu"],
        "gpu-01": ["virt-handler-gpu"],
        "edge-00": ["virt-handler-edge"],
        "plain-00": ["virt-handler"],
    }
    images = story.handler_images("gpu-00")
    assert images["virt-handler"] == "registry.example/virt-handler:v1.9.0-gpu"
    assert images["virt-launcher"] == (STOCK if story.build.forgotten else "registry.example/virt-launcher:v1.9.0-gpu")
    story.again(story.pools())


def _label(story: Story, node: str, change: str) -> None:
    """Label a node as its user does; ``accelerator-`` takes the label away."""
    story.cluster.kubectl("label", "node", node, change)


def test_each_wave_is_a_label_and_a_run_that_waits_and_writes_nothing_to_kubevirt(story: Story) -> None:
    only_on(story, ONE)
    generation = story.kubevirt()["metadata"]["generation"]
    _label(story, "gpu-01", "accelerator-")
    story.play("site", story.pools()).succeeded()
    first_wave = story.handler_pods()
    with Watcher(story.cluster) as watcher:
        story.knob("gpu-01", "never-ready/virt-handler-gpu")
        _label(story, "gpu-01", "accelerator=gpu")
        story.cluster.wait(lambda: watcher.handlers["gpu-01"] == ["virt-handler-gpu"], 30, "the label to move the node")
        plan = story.play("plan", story.pools()).succeeded().plan
        (waits,) = [line for line in plan["text"] if line.startswith("virt-operator has not finished: ")]
        assert waits.endswith("1 node(s) do not have their one Ready handler yet: gpu-01. The run waits for it.")
        running = story.start_site(story.pools(), __pools_round=2)
        lease = ("get", "lease", "-n", story.namespace, "virtpools", "--ignore-not-found", "-o", "name")
        story.cluster.wait(lambda: story.cluster.kubectl(*lease), 60, "the run to begin")
        time.sleep(10)  # some rounds of the wait
        assert watcher.without_ready_handler == ["gpu-01"]
        story.knob("gpu-01", None)
        run = running.wait().succeeded()
        watcher.stop()
    assert (run.changed, watcher.without_ready_handler) == (0, [])
    first, *_, last = [task.result for task in run.results_of("virtpools.kubevirt.operator_pools")]
    assert (first["done"], last["done"]) == (False, True)
    assert first["text"][-1].startswith("Still waiting: ")
    assert "gpu-01" in first["text"][-1]
    assert [(start.node, start.daemonset) for start in watcher.starts] == [("gpu-01", "virt-handler-gpu")]
    second_wave = story.handler_pods()
    assert {node for node, uid in second_wave.items() if uid != first_wave[node]} == {"gpu-01"}
    assert story.kubevirt()["metadata"]["generation"] == generation
    story.again(story.pools())


def test_waves_are_refused_with_this_way_instead(story: Story) -> None:
    only_on(story, ONE)
    waves = [{"name": "first", "match": {"accelerator": "gpu"}}]
    with story.no_writes():
        said = story.play("site", story.pools(), virtpools_waves=waves).refused()
    assert "virtpools_waves cannot be kept in operator mode" in said
    assert "label the nodes wave by wave and run site after each" in said


def test_vms_get_the_image_and_the_nodes_of_their_pool(story: Story) -> None:
    story.start_vms()
    for name, pod in story.launchers().items():
        pool = POOL_OF[story.build.name][name]
        images = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
        assert images["compute"] == (f"registry.example/virt-launcher:v1.9.0-{pool}" if pool else STOCK), name
        assert pod["metadata"]["annotations"].get(story.build.labelled, "") == pool, name
        if pool:
            assert pod["spec"]["nodeName"].startswith(f"{pool}-"), name
    story.play("verify").succeeded()
    for name, pool in POOL_OF[story.build.name].items():
        said = story.module("explanation_info", vm=f"{VMS}/{name}")
        assert not said.get("failed"), said
        assert (said["build"], said["pool"]) == (story.build.name, pool or "primary"), said["text"]


def test_another_list_brings_another_image_and_takes_a_pool_away(story: Story) -> None:
    newer = [story.pool("gpu", "-2")]
    with Watcher(story.cluster) as watcher:
        story.play("site", newer, virtpools_prune=True).succeeded()
        watcher.stop()
    assert watcher.handlers["edge-00"] == ["virt-handler"]
    assert watcher.without_ready_handler == []
    assert story.names() == ["virt-handler", "virt-handler-gpu"]
    assert story.handler_images("gpu-01")["virt-handler"] == "registry.example/virt-handler:v1.9.0-gpu-2"


def test_the_plan_and_check_mode_show_both_parts_of_a_move(story: Story) -> None:
    only_on(story, ONE)
    with story.no_writes():
        run = story.play("site", story.pools(), "--check", virtpools_mode="collection").succeeded()
    text = "\n".join(run.plan["text"])
    assert "Part 1 of 2, the operator pools go:" in text
    assert "Node gpu-00: gpu -> primary" in text
    assert "Node gpu-00: primary -> gpu" in text
    assert "2 node(s) change their handler, and virt-operator decides when (gpu-00, gpu-01)" in text
    assert "DaemonSet kubevirt/virt-handler-gpu" not in "\n".join(run.changes), "the second part cannot be tried yet"


def test_one_run_moves_to_collection_pools_even_if_one_before_was_killed_half_way(story: Story) -> None:
    """VMs run on, and no node has two handlers because of us: only virt-operator's own part may double them."""
    only_on(story, ONE)
    approved = {"virtpools_mode": "collection"}
    approved["virtpools_expected_plan"] = story.play("plan", story.pools(), **approved).succeeded().plan["digest"]
    _moves_to_collection_pools(story, killed_first=True, **approved)
    story.again(story.pools(), virtpools_mode="collection")


@pytest.mark.thorough  # unit tests move from each build
def test_one_run_moves_to_collection_pools_from_the_other_builds(story: Story) -> None:
    only_on(story, A, C)
    _moves_to_collection_pools(story, virtpools_mode="collection")


def _moves_to_collection_pools(story: Story, **variables: Any) -> None:
    vms = machines(story)
    watcher = story.moved(**variables)
    assert machines(story) == vms
    print(f"{story.build.name}: to collection pools, seconds without a Ready handler by node: {watcher.gaps()}")
    # Once all nodes are the primary's, each is handed over.
    handed_over = {node: seen.owners for node, seen in watcher.nodes.items() if len(seen.owners) > 1}
    assert handed_over == {
        "gpu-00": ["primary", "in_transit", "gpu"],
        "gpu-01": ["primary", "in_transit", "gpu"],
        "edge-00": ["primary", "in_transit", "edge"],
    }
    assert watcher.crowded_by_pools == set()


def test_one_run_moves_back(story: Story) -> None:
    only_on(story, ONE)
    vms = machines(story)
    watcher = story.moved(virtpools_mode="operator")
    assert machines(story) == vms
    print(f"{story.build.name}: to operator pools, seconds without a Ready handler by node: {watcher.gaps()}")
    assert watcher.nodes["gpu-00"].owners == ["gpu", "in_transit", "primary"]
    assert watcher.crowded_by_pools == set()
    assert story.owners() == {}


def test_after_remove_the_cluster_is_as_it_was(story: Story, before: dict[str, Object]) -> None:
    story.cluster.kubectl("delete", "namespace", VMS, "--wait=true", "--timeout=300s")
    story.play("remove", virtpools_remove="all", virtpools_mode="auto").succeeded()
    story.wait_until_settled()
    assert story.names() == ["virt-handler"]
    assert differences(before, story.state()) == {}
    assert ours(story.cluster) == []
