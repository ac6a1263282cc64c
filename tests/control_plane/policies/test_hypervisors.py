# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A pool with a hypervisor of its own, on the pods that KubeVirt's own virt-controller makes. The tests run in order."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster import Fleet, Nodes, programs
from scenario import Object, migration, pool
from vm_scenario import VMS, VmScenario

pytestmark = pytest.mark.thorough  # an option of single pools; unit tests judge its arguments and pods

LABEL = "kubevirt.io/hypervisor"
KVM, MSHV = "devices.kubevirt.io/kvm", "devices.kubevirt.io/mshv"
NODE, PLAIN_NODE = "mshv-00", "plain-00"


class HypervisorScenario(VmScenario):
    """Nodes with KVM and nodes with MSHV, under one version of KubeVirt."""

    def __init__(self, cluster: Any, version: str) -> None:
        super().__init__(cluster)
        self.pool = pool(
            "mshv",
            "mshv",
            virtHandlerImage=f"registry.example/virt-handler:{version}-mshv",
            virtLauncherImage=f"registry.example/virt-launcher:{version}-mshv",
            hypervisor="hyperv-direct",
            selector={"vmLabels": {"matchLabels": {LABEL: "mshv"}}},
        )

    def start_on_mshv(self, name: str) -> Object:
        return self.start_vm(name, **{LABEL: "mshv"})


@pytest.fixture(scope="module", params=[programs.KUBEVIRT, programs.EARLIER])
def scenario(start_cluster: Any, request: pytest.FixtureRequest) -> HypervisorScenario:
    fleet = Fleet.from_groups(
        Nodes(prefix="mshv-", count=2, labels={"accelerator": "mshv"}, capacity={KVM: "0", MSHV: "1k"}),
        Nodes(prefix="plain-", count=1),
    )
    return HypervisorScenario(start_cluster(fleet, kubevirt=request.param), request.param)


def compute(pod: Object) -> Object:
    return next(each for each in pod["spec"]["containers"] if each["name"] == "compute")


def hypervisor(pod: Object) -> str:
    command = compute(pod)["command"]
    assert command.count("--hypervisor") == 1
    return str(command[command.index("--hypervisor") + 1])


def devices(pod: Object) -> list[list[str]]:
    """Return the devices of hypervisors in the limits and in the requests."""
    resources = compute(pod)["resources"]
    return [[key for key in (KVM, MSHV) if key in resources[kind]] for kind in ("limits", "requests")]


def test_kubevirts_own_handler_cannot_serve_another_hypervisor(scenario: HypervisorScenario) -> None:
    stock = {key: value for key, value in scenario.pool.items() if key != "virtHandlerImage"}
    assert "KubeVirt's own virt-handler only serves kvm" in scenario.refused([stock])


def test_vms_run_on_the_hypervisor_of_their_pool(scenario: HypervisorScenario) -> None:
    scenario.site([scenario.pool]).succeeded()
    pod = scenario.start_on_mshv("windows")
    assert pod["spec"]["nodeName"] in (NODE, "mshv-01")
    assert compute(pod)["image"] == scenario.pool["virtLauncherImage"]
    assert (hypervisor(pod), devices(pod)) == ("hyperv-direct", [[MSHV], [MSHV]])
    pod = scenario.start_vm("linux", **{LABEL: "kvm"})
    assert pod["spec"]["nodeName"] == PLAIN_NODE
    assert (hypervisor(pod), devices(pod)) == ("kvm", [[KVM], [KVM]])
    scenario.settled([scenario.pool])


def test_the_handler_looks_for_what_its_nodes_can_do_with_it(scenario: HypervisorScenario) -> None:
    (init,) = scenario.get("daemonset", "virt-handler-mshv")["spec"]["template"]["spec"]["initContainers"]
    assert init["env"] == [
        {"name": "PREFERRED_VIRTTYPE", "value": "hyperv"},
        {"name": "HYPERVISOR_DEVICE", "value": "mshv"},
    ]
    (stock,) = scenario.get("daemonset", "virt-handler")["spec"]["template"]["spec"]["initContainers"]
    assert [each["name"] for each in stock["env"]] == [each["name"] for each in init["env"]]


def test_verify_and_explain_report_it(scenario: HypervisorScenario) -> None:
    report = scenario.module("verification_info")
    assert (report["verdicts"]["correct"], report["problems"]) == (2, {}), report
    told = scenario.module("explanation_info", vmi=f"{VMS}/windows")
    assert (told["pool"], told["hypervisor"]) == ("mshv", "hyperv-direct")
    assert [each["hypervisor"] for each in told["pods"]] == ["hyperv-direct"]


def test_a_migration_stays_on_it(scenario: HypervisorScenario) -> None:
    before = scenario.running("windows")["spec"]["nodeName"]
    scenario.apply(migration("windows", VMS))

    def target() -> Object:
        pods = scenario.get("pods", "-n", VMS, "-l", "vm.kubevirt.io/name=windows")["items"]
        return next((pod for pod in pods if pod["spec"].get("nodeName") not in (None, before)), {})

    pod = scenario.cluster.wait(target, 60, "the target of the migration", interval=0.3)
    assert (hypervisor(pod), devices(pod)) == ("hyperv-direct", [[MSHV], [MSHV]])


def test_a_pool_with_nodes_keeps_its_hypervisor(scenario: HypervisorScenario) -> None:
    error = scenario.refused([{**scenario.pool, "hypervisor": "kvm"}])
    assert "its hypervisor cannot change from hyperv-direct to kvm" in error


def test_with_emulation_only_the_argument_changes(scenario: HypervisorScenario) -> None:
    scenario.stop_vms()
    emulation = {"developerConfiguration": {"useEmulation": True}}
    scenario.patch("kubevirt/kubevirt", merge={"spec": {"configuration": emulation}})

    def emulated() -> Object:
        pod = scenario.start_on_mshv("probe")
        if devices(pod) == [[], []]:
            return pod
        scenario.stop_vms()
        return {}

    pod = scenario.cluster.wait(emulated, 60, "virt-controller to read its configuration")
    assert hypervisor(pod) == "hyperv-direct"
    plan = scenario.module("plan_info", pools=[scenario.pool])
    assert "hypervisor_emulated" in [each["code"] for each in plan["findings"]]
