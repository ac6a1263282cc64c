# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Operator mode on each build of KubeVirt with pools of its own: the whole way of a user, and what is refused before it begins.

One cluster for each build; the tests run in order. What builds do is played by the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from full_dump import differences, ours
from local_cluster import Fleet, Nodes
from local_cluster.kubevirt import works
from operator_mode_scenario import DEVICE, A, B, C, OperatorModeScenario, only_on
from playbooks import Run
from scenario import Object
from watcher import Watcher

pytestmark = pytest.mark.thorough  # no released KubeVirt has the field; unit tests move from and to each build

VMS = "team-a"
FLEET = Fleet.from_groups(
    Nodes(prefix="gpu-", count=2, labels={"accelerator": "gpu"}, capacity={DEVICE: "4"}),
    Nodes(name="edge-00", labels={"accelerator": "edge"}),
    Nodes(name="plain-00", labels={"tier": "gold"}),
)
STOCK = "stock.example/kubevirt/virt-launcher:v1.9.0"
ONE = B
"""The build of scenarios of which one is enough: what differs between builds has unit tests on all."""

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


class BuildScenario(OperatorModeScenario):
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

    def moved(self, *, killed_first: bool = False, **variables: Any) -> tuple[Run, Watcher]:
        """Move the pools to another mode by a run of site, maybe after one that was killed.

        Return that run, and the witness of it all.
        """
        with Watcher(self.cluster) as watcher:
            if killed_first:
                self._start_and_kill(**variables)
            run = self.play("site", self.pools(), **variables).succeeded()
            watcher.stop()
        assert watcher.without_ready_handler == []
        assert watcher.handlers == {
            "gpu-00": ["virt-handler-gpu"],
            "gpu-01": ["virt-handler-gpu"],
            "edge-00": ["virt-handler-edge"],
            "plain-00": ["virt-handler"],
        }
        return run, watcher

    def refusing(self, said: str | None) -> None:
        """Let the build's webhook refuse every change of pools with this message; None: no more."""
        self.patch("kubevirt/kubevirt", merge={"metadata": {"annotations": {"agent.virtpools.io/refuse": said}}})


def machines(scenario: BuildScenario) -> dict[str, str]:
    """Return the launcher pod of each VM that runs, which a restart of the VM would change."""
    return {name: pod["metadata"]["uid"] for name, pod in scenario.launchers().items()}


@pytest.fixture(scope="module", params=[A, B, C], ids=lambda build: build.name)
def scenario(request: pytest.FixtureRequest, start_cluster: Any) -> Iterator[BuildScenario]:
    # It ends with its scenarios: what an idle cluster costs, those of the other builds lack.
    with start_cluster(FLEET, build=request.param.name) as cluster:
        scenario = BuildScenario(request.param, cluster)
        scenario.wait_until_settled()
        yield scenario


@pytest.fixture(scope="module", autouse=True)
def before(scenario: BuildScenario) -> dict[str, Object]:
    """Return the cluster as it was before it had pools."""
    return scenario.state()


def test_check_mode_says_what_would_be_done_and_writes_nothing(
    scenario: BuildScenario, before: dict[str, Object]
) -> None:
    only_on(scenario, ONE)
    with scenario.no_writes():
        run = scenario.play("site", scenario.pools(), "--check").succeeded()
    changes = "\n".join(run.changes)
    assert "Node gpu-00: primary -> gpu" in changes
    assert "Node edge-00: primary -> edge" in changes
    assert scenario.state() == before


def several(scenario: BuildScenario) -> Object:
    """Return a pool that selects by two labels, which no node has together."""
    return scenario.pool("gpu", nodeSelector={"accelerator": "gpu", "tier": "gold"})


def test_a_list_that_leaves_nodes_without_a_handler_is_refused(scenario: BuildScenario) -> None:
    only_on(scenario, ONE)
    with scenario.no_writes():
        said = scenario.play("site", [several(scenario), scenario.pool("edge")]).refused()
    assert "2 nodes would have no handler (gpu-00, gpu-01)" in said
    assert "1 node would have no handler (plain-00)" in said


def test_the_refused_list_really_leaves_nodes_without_a_handler(scenario: BuildScenario) -> None:
    """What the refusal says is true of the build, as far as the agent plays it well."""
    only_on(scenario, ONE)
    pool = {key: value for key, value in several(scenario).items() if key != "unmatched"}
    gates = scenario.kubevirt()["spec"]["configuration"]["developerConfiguration"].get("featureGates")
    _write(scenario, [pool], [*(gates or ()), "VirtHandlerPools"])
    scenario.cluster.wait(lambda: {*scenario.handlers()} == {"edge-00"}, 60, "nodes without a handler", interval=0.5)
    _write(scenario, None, gates)
    scenario.cluster.wait(lambda: len(scenario.handlers()) == 4, 60, "handlers on all nodes", interval=0.5)
    scenario.wait_until_settled()


def _write(scenario: BuildScenario, pools: list[Object] | None, gates: list[str] | None) -> None:
    configuration = {"developerConfiguration": {"featureGates": gates}}
    scenario.patch("kubevirt/kubevirt", merge={"spec": {"virtHandlerPools": pools, "configuration": configuration}})


def test_a_refusal_of_the_builds_webhook_comes_before_any_write(scenario: BuildScenario) -> None:
    only_on(scenario, ONE, C)  # additionalVirtHandlers has none
    scenario.refusing("no pools on Mondays")
    try:
        marker = scenario.cluster.audit_marker()
        said = scenario.play("site", scenario.pools()).refused()
        assert "no pools on Mondays" in said
        assert [line for line in scenario.writes(marker) if "lease" not in line.lower()] == []
    finally:
        scenario.refusing(None)


def test_site_brings_the_pools_and_a_second_run_writes_nothing(scenario: BuildScenario) -> None:
    with Watcher(scenario.cluster) as watcher:
        scenario.play("site", scenario.pools()).succeeded()
        watcher.stop()
    assert watcher.without_ready_handler == []
    assert watcher.handlers == {
        "gpu-00": ["virt-handler-gpu"],
        "gpu-01": ["virt-handler-gpu"],
        "edge-00": ["virt-handler-edge"],
        "plain-00": ["virt-handler"],
    }
    images = scenario.handler_images("gpu-00")
    assert images["virt-handler"] == "registry.example/virt-handler:v1.9.0-gpu"
    assert images["virt-launcher"] == (
        STOCK if scenario.build.forgotten else "registry.example/virt-launcher:v1.9.0-gpu"
    )
    scenario.again(scenario.pools())


def _label(scenario: BuildScenario, node: str, change: str) -> None:
    """Label a node as its user does; ``accelerator-`` takes the label away."""
    scenario.cluster.kubectl("label", "node", node, change)


def test_each_wave_is_a_label_and_writes_nothing_to_kubevirt(scenario: BuildScenario) -> None:
    only_on(scenario, ONE)
    generation = scenario.kubevirt()["metadata"]["generation"]
    _label(scenario, "gpu-01", "accelerator-")
    scenario.play("site", scenario.pools()).succeeded()
    first_wave = scenario.handler_pods()
    with Watcher(scenario.cluster) as watcher:
        scenario.knob("gpu-01", "never-ready/virt-handler-gpu")
        _label(scenario, "gpu-01", "accelerator=gpu")
        scenario.cluster.wait(
            lambda: watcher.handlers["gpu-01"] == ["virt-handler-gpu"], 30, "the label to move the node"
        )
        plan = scenario.play("plan", scenario.pools()).succeeded().plan
        (waits,) = [line for line in plan["text"] if line.startswith("virt-operator has not finished: ")]
        assert waits.endswith("1 node does not have exactly one Ready handler yet: gpu-01. The run waits for it.")
        running = scenario.start_site(scenario.pools())
        scenario.cluster.wait(
            lambda: running.said("Waiting for virt-operator: "), 120, "the run to say what it waits for"
        )
        assert watcher.without_ready_handler == ["gpu-01"]
        scenario.knob("gpu-01", None)
        run = running.wait().succeeded()
        watcher.stop()
    assert (run.changed, watcher.without_ready_handler) == (0, [])
    waits = [line for line in run.stderr.splitlines() if line.startswith("Waiting for virt-operator: ")]
    assert any("gpu-01" in line for line in waits), str(run)
    assert [(start.node, start.daemonset) for start in watcher.starts] == [("gpu-01", "virt-handler-gpu")]
    second_wave = scenario.handler_pods()
    assert {node for node, uid in second_wave.items() if uid != first_wave[node]} == {"gpu-01"}
    assert scenario.kubevirt()["metadata"]["generation"] == generation
    scenario.again(scenario.pools())


def test_waves_are_refused_with_this_way_instead(scenario: BuildScenario) -> None:
    only_on(scenario, ONE)
    waves = [{"name": "first", "match": {"accelerator": "gpu"}}]
    with scenario.no_writes():
        said = scenario.play("site", scenario.pools(), virtpools_waves=waves).refused()
    assert "virtpools_waves cannot be kept in operator mode" in said
    assert "label the nodes wave by wave and run site after each" in said


def test_vms_get_the_image_and_the_nodes_of_their_pool(scenario: BuildScenario) -> None:
    scenario.start_vms()
    launchers = scenario.launchers()
    assert launchers.keys() == POOL_OF[scenario.build.name].keys()
    for name, pod in launchers.items():
        pool = POOL_OF[scenario.build.name][name]
        images = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
        assert images["compute"] == (f"registry.example/virt-launcher:v1.9.0-{pool}" if pool else STOCK), name
        assert pod["metadata"]["annotations"].get(scenario.build.labelled, "") == pool, name
        if pool:
            assert pod["spec"]["nodeName"].startswith(f"{pool}-"), name
    scenario.play("verify").succeeded()
    for name, pool in POOL_OF[scenario.build.name].items():
        said = scenario.module("explanation_info", vm=f"{VMS}/{name}")
        assert not said.get("failed"), said
        assert (said["build"], said["pool"]) == (scenario.build.name, pool or "primary"), said["text"]


def test_another_list_brings_another_image_and_takes_a_pool_away(scenario: BuildScenario) -> None:
    newer = [scenario.pool("gpu", "-2")]
    with Watcher(scenario.cluster) as watcher:
        scenario.play("site", newer, virtpools_prune=True, virtpools_remove_vms="leave").succeeded()
        watcher.stop()
    assert watcher.handlers["edge-00"] == ["virt-handler"]
    assert watcher.without_ready_handler == []
    assert scenario.names() == ["virt-handler", "virt-handler-gpu"]
    assert scenario.handler_images("gpu-01")["virt-handler"] == "registry.example/virt-handler:v1.9.0-gpu-2"


def test_the_plan_and_check_mode_show_both_parts_of_a_move(scenario: BuildScenario) -> None:
    only_on(scenario, ONE)
    move = {"virtpools_mode": "collection", "virtpools_remove_vms": "leave"}
    with scenario.no_writes():
        run = scenario.play("site", scenario.pools(), "--check", **move).succeeded()
    text = "\n".join(run.plan["text"])
    assert "Part 1 of 2, the operator pools go:" in text
    assert "Node gpu-00: gpu -> primary" in text
    assert "primary -> gpu: gpu-00" in text
    assert "2 nodes change their handler, and virt-operator decides when (gpu-00, gpu-01)" in text
    assert "DaemonSet kubevirt/virt-handler-gpu" not in "\n".join(run.changes), "the second part cannot be tried yet"


def test_one_run_moves_to_collection_pools_after_a_killed_one(scenario: BuildScenario) -> None:
    """VMs run on, and no node has two handlers because of us: only virt-operator's own part may double them."""
    only_on(scenario, ONE)
    approved = {"virtpools_mode": "collection", "virtpools_remove_vms": "leave"}
    approved["virtpools_expected_plan"] = scenario.play("plan", scenario.pools(), **approved).succeeded().plan["digest"]
    _moves_to_collection_pools(scenario, killed_first=True, **approved)
    scenario.again(scenario.pools(), virtpools_mode="collection")


def test_one_run_moves_to_collection_pools_from_the_other_builds(scenario: BuildScenario) -> None:
    only_on(scenario, A, C)
    _moves_to_collection_pools(scenario, virtpools_mode="collection", virtpools_remove_vms="leave")


def _moves_to_collection_pools(scenario: BuildScenario, **variables: Any) -> None:
    vms = machines(scenario)
    run, watcher = scenario.moved(**variables)
    assert machines(scenario) == vms
    # additionalVirtHandlers keeps an install strategy for each list.
    assert ("kubectl delete configmap -n kubevirt kubevirt-install-strategy-" in run.stdout) == (scenario.build is A)
    print(f"{scenario.build.name}: to collection pools, seconds without a Ready handler by node: {watcher.gaps()}")
    # Once all nodes are the primary's, each is handed over.
    handed_over = {node: seen.owners for node, seen in watcher.nodes.items() if len(seen.owners) > 1}
    assert handed_over == {
        "gpu-00": ["primary", "in_transit", "gpu"],
        "gpu-01": ["primary", "in_transit", "gpu"],
        "edge-00": ["primary", "in_transit", "edge"],
    }
    assert watcher.crowded_by_pools == set()


def test_one_run_moves_back(scenario: BuildScenario) -> None:
    only_on(scenario, ONE)
    vms = machines(scenario)
    _run, watcher = scenario.moved(virtpools_mode="operator", virtpools_remove_vms="leave")
    assert machines(scenario) == vms
    print(f"{scenario.build.name}: to operator pools, seconds without a Ready handler by node: {watcher.gaps()}")
    assert watcher.nodes["gpu-00"].owners == ["gpu", "in_transit", "primary"]
    assert watcher.crowded_by_pools == set()
    assert scenario.owners() == {}


def test_after_remove_the_cluster_is_as_it_was(scenario: BuildScenario, before: dict[str, Object]) -> None:
    scenario.cluster.kubectl("delete", "namespace", VMS, "--wait=true", "--timeout=300s")
    scenario.play("remove", virtpools_remove="all", virtpools_mode="auto").succeeded()
    scenario.wait_until_settled()
    assert scenario.names() == ["virt-handler"]
    kept = {key for key in differences(before, scenario.state()) if "kubevirt-install-strategy-" in key}
    assert differences(before, scenario.state()).keys() == kept
    assert bool(kept) == (scenario.build is A)
    assert ours(scenario.cluster) == []
