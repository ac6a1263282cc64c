# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""An upgrade of KubeVirt with pools: what upgrade_check says comes true, no run interferes, and VMs start at every moment.

The guard is in force, and not in the way of the upgrade.

No launcher runs here. Whether a VM would start is judged by the arguments that the real virt-controller passes in its pod, and by
those that virt-launcher of the pod's image knows.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import playbooks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import launcher_arguments
from local_cluster import ClusterError, Fleet, Nodes, kubevirt, launchers, programs
from passed_arguments import Passed, compute
from playbooks import Account, RunningPlaybook
from scenario import NAMESPACE, Object, Scenario, gpu_pool
from watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

UPGRADES = [
    (programs.EARLIER, programs.KUBEVIRT),
    # The programs of the others are compiled first.
    *(
        pytest.param(each, marks=[pytest.mark.thorough, pytest.mark.timeout(3600)])
        for each in (("v1.7.0", programs.EARLIER), (programs.EARLIER, "v1.8.4"))
    ),
]
DEVICE = "nvidia.com/GA100_A100_PCIE_40GB"
STOCK = f"{kubevirt.IMAGES}/virt-handler"
GPU_NODE, PLAIN_NODE = "a100-00", "node-00"
GUARDED = {"virtpools_guard": None}


def gpu(version: str) -> Object:
    """Return the pool with images of this version."""
    return gpu_pool(version, deviceNames=[DEVICE])


def vm(name: str, **devices: Any) -> Object:
    """Return a virtual machine that always runs."""
    disk = {"name": "root", "containerDisk": {"image": "registry.example/disks/os:1"}}
    domain = {"memory": {"guest": "128Mi"}, "devices": devices}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runStrategy": "Always", "template": {"spec": {"domain": domain, "volumes": [disk]}}},
    }


def gpu_vm(name: str) -> Object:
    return vm(name, gpus=[{"name": "gpu", "deviceName": DEVICE}])


def codes(report: Object, severity: str) -> list[str]:
    return [finding["code"] for finding in report["findings"] if finding["severity"] == severity]


class UpgradeScenario(Scenario):
    """A cluster whose KubeVirt is upgraded, from one version to another one."""

    before: str
    after: str
    approved = ""
    """The digest of the approved upgrade."""

    def start(self, pools: Sequence[Mapping[str, Any]], *arguments: str, **variables: Any) -> RunningPlaybook:
        """Start the playbook site as users do: with the guard."""
        return super().start(pools, *arguments, **{**GUARDED, **variables})

    def launchers(self) -> dict[str, tuple[str, str]]:
        """Return uid and image of each running VM's launcher."""
        vmis = self.get("vmi")["items"]
        running = [vmi["metadata"]["name"] for vmi in vmis if vmi.get("status", {}).get("phase") == "Running"]
        # After the VMs: the launcher of each that runs is there now.
        pods = {pod["metadata"]["labels"]["vmi.kubevirt.io/id"]: pod for pod in self._launcher_pods()}
        return {name: (pods[name]["metadata"]["uid"], pods[name]["spec"]["containers"][0]["image"]) for name in running}

    def _launcher_pods(self) -> list[Object]:
        items: list[Object] = self.get("pods", "-l", "kubevirt.io=virt-launcher")["items"]
        return items

    def passed(self) -> dict[str, Passed]:
        """Return, by VM, what virt-controller passes to its launcher."""
        return {pod["metadata"]["annotations"]["kubevirt.io/domain"]: Passed.of(pod) for pod in self._launcher_pods()}

    def failing(self) -> dict[str, frozenset[str]]:
        """Return the VMs that would not start, with the arguments that their launcher does not know."""
        return {name: passed.refused for name, passed in self.passed().items() if passed.refused}

    def images(self, prefix: str) -> dict[str, tuple[str, str]]:
        """Return, by VM, the launcher image that KubeVirt gave to its pod, and the one that the policy gave it instead."""
        found = {}
        for pod in self._launcher_pods():
            container, stock = compute(pod)
            found[pod["metadata"]["annotations"]["kubevirt.io/domain"]] = (stock, container["image"])
        return {name: images for name, images in found.items() if name.startswith(prefix)}

    def start_vms(self, *vms: Object) -> None:
        """Start virtual machines and wait until they run."""
        for each in vms:
            self.apply(each)
        self.cluster.wait(
            lambda: {each["metadata"]["name"] for each in vms} <= self.launchers().keys(), 60, "VMs to run"
        )

    def versions(self) -> tuple[str, str]:
        """Return the version that is deployed and the one that is to be."""
        status = self.kubevirt()["status"]
        return status["observedKubeVirtVersion"], status["targetKubeVirtVersion"]

    def upgrade(self) -> None:
        """Begin the upgrade as a user does; new handlers of the primary do not get Ready for the time being."""
        self.knob(PLAIN_NODE, "never-ready/virt-handler")
        manifest = programs.manifest(self.cluster.add_kubevirt(self.after), NAMESPACE, kubevirt.IMAGES)
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
        new = [f"{STOCK}:{self.after}"]
        self.cluster.wait(lambda: self.handlers().get(PLAIN_NODE) == new, 120, "the new virt-handler")

    def finish_upgrade(self) -> None:
        """Let the new handlers get Ready and wait for the end of the upgrade."""
        self.knob(PLAIN_NODE, None)
        self.cluster.wait(lambda: self.versions() == (self.after, self.after), 120, "the upgrade")
        self.wait_until_settled()


class Starts:
    """Starts a VM of the pool every second, and never waits for one."""

    def __init__(self, scenario: UpgradeScenario) -> None:
        self.names: list[str] = []
        self._scenario = scenario
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._start, daemon=True)

    def __enter__(self) -> Starts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(30)

    def _start(self) -> None:
        while not self._stopped.wait(1):
            name = f"start-{len(self.names):03}"
            # While KubeVirt replaces virt-api, its webhooks may not answer, and nobody can create a VM.
            with contextlib.suppress(ClusterError):
                self._scenario.apply(gpu_vm(name))
                self.names.append(name)


@pytest.fixture(scope="module", params=UPGRADES, ids=" to ".join)
def scenario(request: pytest.FixtureRequest, start_cluster: Any) -> UpgradeScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="a100-", count=1, labels={"accelerator": "a100"}, capacity={DEVICE: 500}),
        Nodes(prefix="node-", count=1),
    )
    before, after = request.param
    scenario = UpgradeScenario(start_cluster(fleet, kubevirt=before))
    scenario.before, scenario.after = before, after
    assert "guard" in str(scenario.site([gpu(before)]).succeeded().changes)
    scenario.start_vms(gpu_vm("trains"), vm("serves"))
    return scenario


def test_the_check_before_the_upgrade_says_what_it_needs(scenario: UpgradeScenario) -> None:
    reader = Account.make(scenario.cluster, "reader")
    with scenario.no_writes():
        run = playbooks.run("upgrade_check", reader.kubeconfig, None, virtpools_upgrade_to=scenario.after)
        (task,) = run.results_of("virtpools.kubevirt.upgrade_info")
    # KubeVirt 1.8 passes --hypervisor, which launchers of 1.7 refuse.
    breaks = ["upgrade_breaks_vm_starts"] if scenario.before == "v1.7.0" else []
    assert run.changed == 0
    if breaks:
        assert "must wait until 1 error is fixed" in run.refused()
    else:
        run.succeeded()
    assert (task.result["verdict"], codes(task.result, "error")) == ("blocked" if breaks else "prepare", breaks)
    needed = [image["needed"] for image in task.result["images"]]
    assert needed == [gpu(scenario.after)["virtHandlerImage"], gpu(scenario.after)["virtLauncherImage"]]
    old = scenario.module("upgrade_info", version=scenario.after, pools=[gpu(scenario.before)])
    assert (old["verdict"], codes(old, "error")) == ("blocked", [*breaks, *["upgrade_image_skew"] * 2]), old["text"]
    ready = scenario.module("upgrade_info", version=scenario.after, pools=[gpu(scenario.after)])
    found = (ready["verdict"], codes(ready, "error"), codes(ready, "note"))
    assert found == ("blocked" if breaks else "ready", breaks, ["upgrade_site_after"]), ready["text"]


def upgrade(scenario: UpgradeScenario, *arguments: str) -> playbooks.Run:
    """Run the playbook upgrade with the list for the new version, as it was approved before the upgrade."""
    asked = {
        "virtpools_upgrade_to": scenario.after,
        "virtpools_require_approval": True,
        "virtpools_expected_plan": scenario.approved,
        **GUARDED,
    }
    return playbooks.run("upgrade", scenario.writer.kubeconfig, [gpu(scenario.after)], *arguments, **asked)


def test_the_pools_are_prepared(scenario: UpgradeScenario) -> None:
    handlers, launchers = scenario.handlers(), scenario.launchers()
    with scenario.no_writes():
        predicted = upgrade(scenario, "--check").succeeded()
    (task,) = predicted.results_of("virtpools.kubevirt.upgrade_preparation")
    scenario.approved = task.result["digest"]
    marker = scenario.cluster.audit_marker()
    done = upgrade(scenario).succeeded()
    image = gpu(scenario.after)["virtLauncherImage"]
    for run in (predicted, done):
        (task,) = run.results_of("virtpools.kubevirt.upgrade_preparation")
        assert task.result["changes"][1:] == [
            f"VMs that match pool gpu start with {image} once KubeVirt {scenario.after} starts them"
        ], task.result
    assert (scenario.writes(marker, "nodes"), scenario.writes(marker, "daemonsets")) == ([], [])
    assert (scenario.handlers(), scenario.launchers()) == (handlers, launchers)
    again = scenario.module("upgrade_preparation", version=scenario.after, pools=[gpu(scenario.after)])
    planned = scenario.module("plan_info", guarded=True, pools=[gpu(scenario.before)], max_unavailable="100%")
    assert (again["changes"], planned["changes"], planned["pending"]) == ([], [], False)


def test_an_upgrade_is_as_predicted_and_a_run_during_it_refused(scenario: UpgradeScenario) -> None:
    """VMs and the pool's handler live through the upgrade; site replaces the handler after it."""
    launchers = scenario.launchers()
    assert {name: image for name, (_uid, image) in launchers.items()} == {
        "trains": gpu(scenario.before)["virtLauncherImage"],
        "serves": f"{kubevirt.IMAGES}/virt-launcher:{scenario.before}",
    }
    with Watcher(scenario.cluster) as watcher, Starts(scenario) as starts:
        scenario.upgrade()
        assert scenario.versions() == (scenario.before, scenario.after)
        assert upgrade(scenario).succeeded().changed == 0
        told = f"is being upgraded from {scenario.before} to {scenario.after}; wait until that is done"
        assert told in scenario.refused([gpu(scenario.after)])
        planned = scenario.module("plan_info", guarded=True, pools=[gpu(scenario.before)])
        assert any(told in error for error in planned["errors"]), planned
        assert scenario.versions() == (scenario.before, scenario.after)
        scenario.finish_upgrade()
        begun = len(starts.names)
        scenario.cluster.wait(lambda: len(starts.names) > begun + 5, 60, "VMs that the new version starts")
        watcher.stop()
    scenario.cluster.wait(lambda: set(starts.names) <= scenario.launchers().keys(), 180, "all VMs to run")
    of_version = {
        f"{kubevirt.IMAGES}/virt-launcher:{each}": gpu(each)["virtLauncherImage"]
        for each in (scenario.before, scenario.after)
    }
    images = scenario.images("start-")
    assert dict(images.values()) == of_version
    assert scenario.failing() == {}
    assert {name: pair for name, pair in images.items() if of_version[pair[0]] != pair[1]} == {}
    assert {start.node for start in watcher.starts} == {PLAIN_NODE}
    assert {name: seen.owners for name, seen in watcher.nodes.items() if len(seen.owners) > 1} == {}
    assert watcher.crowded == []
    assert {name: scenario.launchers()[name] for name in launchers} == launchers
    # The pool keeps its old image, as the note says, and the run refuses the list that the check refused.
    assert scenario.handlers() == {
        GPU_NODE: [gpu(scenario.before)["virtHandlerImage"]],
        PLAIN_NODE: [f"{STOCK}:{scenario.after}"],
    }
    error = scenario.refused([gpu(scenario.before)])
    for field in ("virtHandlerImage", "virtLauncherImage"):
        assert f"{field} {gpu(scenario.before)[field]} is of another version than KubeVirt {scenario.after}" in error
    done = scenario.module("upgrade_info", version=scenario.after, pools=[gpu(scenario.after)])
    assert (done["verdict"], codes(done, "note")) == ("ready", ["upgrade_done"])


def test_the_pools_follow_the_upgrade(scenario: UpgradeScenario) -> None:
    launchers = scenario.launchers()
    with Watcher(scenario.cluster) as watcher:
        upgrade(scenario).succeeded()
        watcher.stop()
    assert (watcher.restarted, watcher.crowded, watcher.without_ready_handler) == ({GPU_NODE: 1}, [], [])
    assert scenario.handlers() == {
        GPU_NODE: [gpu(scenario.after)["virtHandlerImage"]],
        PLAIN_NODE: [f"{STOCK}:{scenario.after}"],
    }
    assert scenario.launchers() == launchers
    scenario.settled([gpu(scenario.after)], **GUARDED)
    scenario.start_vms(gpu_vm("trains-too"))
    assert scenario.launchers()["trains-too"][1] == gpu(scenario.after)["virtLauncherImage"]
    assert scenario.failing() == {}


def refused_and_said(scenario: UpgradeScenario) -> Iterator[tuple[set[str], set[str]]]:
    """Yield, for each VM and version, what such a launcher would refuse, and what the collection says it refuses."""
    live = scenario.kubevirt()
    for passed in scenario.passed().values():
        for version in launchers.VERSIONS:
            said = launcher_arguments.refused(f"registry.example/virt-launcher:{version}", passed.controller, live)
            yield set(passed.refused_by(version)), {each.name for each in said}


def test_the_collection_knows_what_each_virt_controller_passes(scenario: UpgradeScenario) -> None:
    assert {passed.controller for passed in scenario.passed().values()} == {scenario.before, scenario.after}
    found = list(refused_and_said(scenario))
    assert any(refused for refused, _said in found)
    for refused, said in found:
        # Gates that are on by default pass arguments, too, and always beside one that needs none.
        assert (said <= refused, bool(said)) == (True, bool(refused)), (refused, said)
