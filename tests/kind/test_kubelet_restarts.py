# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A real kubelet that restarts ends no pod of a VM, after any kind of run and in the middle of a handover.

The pods are as virt-controller makes them, and the launcher policy acts on them. They have no VirtualMachineInstance; tests with
guests are in test_guests.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import playbooks
from kind_fixture import GPU, KindScenario, Object, Watcher, l4

Report = Callable[..., None]
CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
LEAVE = {"virtpools_remove_vms": "leave"}


def pod(name: str, image: str, **spec: object) -> Object:
    containers = [{"name": "compute", "image": image, "command": ["sleep", "1d"]}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec},
    }


class Guests:
    """Launcher pods on the node that changes hands, and a witness of what a kubelet does when it starts."""

    def __init__(self, scenario: KindScenario) -> None:
        self.scenario = scenario
        self.node = scenario.l4_node
        self._uids: dict[str, str] = {}

    def start(self, name: str, workload: str) -> None:
        """Start a launcher pod on the node, admitted by the launcher policy that is live."""
        launcher = pod(name, self.scenario.stock["virt-launcher"], nodeSelector={"accelerator": "nvidia-l4"})
        launcher["metadata"]["labels"] = {"kubevirt.io": "virt-launcher", "workload": workload}
        launcher["metadata"]["annotations"] = {"kubevirt.io/domain": name}
        self.scenario.kind.kubectl("create", "-f", "-", f"--as={CONTROLLER}", stdin=json.dumps(launcher))
        self.scenario.kind.wait(lambda: self._phase(name) == "Running", 120, f"{name} to run")
        self._uids[name] = self._get(name)["metadata"]["uid"]

    def run_on(self) -> bool:
        """Whether all of them are still the pods that they were, in their first containers."""
        pods = {name: self._get(name) for name in self._uids}
        restarts = [each["restartCount"] for one in pods.values() for each in one["status"]["containerStatuses"]]
        phases = {one["status"]["phase"] for one in pods.values()}
        assert {name: one["metadata"]["uid"] for name, one in pods.items()} == self._uids
        assert (phases, set(restarts)) == ({"Running"}, {0}), pods
        return True

    def prepare_witness(self) -> None:
        """Start a pod that no longer fits the node: a kubelet that starts ends it."""
        self.scenario.kind.kubectl("label", "node", self.node, "witness=yes", "--overwrite")
        term = {"matchExpressions": [{"key": "witness", "operator": "Exists"}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        self.scenario.kind.kubectl("delete", "pod", "witness", "-n", "default", "--ignore-not-found", "--force")
        self.scenario.apply(pod("witness", self.scenario.stock["virt-launcher"], affinity={"nodeAffinity": required}))
        self.scenario.kind.wait(lambda: self._phase("witness") == "Running", 120, "the witness to run")
        self.scenario.kind.kubectl("label", "node", self.node, "witness-")

    def restart_kubelet(self) -> None:
        """Restart the node's kubelet, and wait until it has judged the pods on its node again."""
        self.scenario.kind.on(self.node, "systemctl", "restart", "kubelet")
        # Failed, or as its containers end.
        self.scenario.kind.wait(lambda: self._phase("witness") != "Running", 180, "the kubelet to end the witness")
        witness = f"involvedObject.uid={self._get('witness')['metadata']['uid']}"
        events = self.scenario.kind.get("events", "--field-selector", witness, namespace="default")["items"]
        assert "NodeAffinity" in {each["reason"] for each in events}

    def outlive_their_kubelet(self) -> bool:
        self.prepare_witness()
        self.restart_kubelet()
        return self.run_on()

    def end(self) -> None:
        names = [*self._uids, "witness"]
        self.scenario.kind.kubectl("delete", "pod", "-n", "default", "--ignore-not-found", "--force", *names)

    def _get(self, name: str) -> Object:
        return dict(self.scenario.kind.get("pod", name, namespace="default"))

    def _phase(self, name: str) -> str:
        return str(self._get(name)["status"].get("phase"))


@pytest.fixture
def guests(scenario: KindScenario) -> Iterator[Guests]:
    made = Guests(scenario)
    yield made
    made.end()


@pytest.mark.timeout(2400)
def test_after_every_kind_of_run(scenario: KindScenario, guests: Guests) -> None:
    guests.start("nobodys", "none")
    scenario.site([GPU, l4()]).succeeded()
    assert guests.outlive_their_kubelet(), "a pool took the node"
    guests.start("pooled", "l4")
    scenario.site([GPU, l4(handler="c")]).succeeded()
    assert guests.outlive_their_kubelet(), "the pool has a new image"
    scenario.site([GPU], virtpools_prune=True, **LEAVE).succeeded()
    assert guests.outlive_their_kubelet(), "the pool was pruned"
    playbooks.run("rollback", scenario.writer.kubeconfig, None, **LEAVE).succeeded()
    assert scenario.owners()[guests.node] == "l4"
    assert guests.outlive_their_kubelet(), "the pool came back"
    playbooks.run("remove", scenario.writer.kubeconfig, None, virtpools_remove="all", **LEAVE).succeeded()
    assert scenario.owners() == {}
    assert guests.outlive_their_kubelet(), "all pools were removed"


@pytest.mark.timeout(1800)
def test_in_the_middle_of_a_handover(scenario: KindScenario, guests: Guests, report: Report) -> None:
    guests.start("nobodys", "none")
    guests.prepare_witness()
    with Watcher(scenario.kind) as watcher:  # type: ignore[arg-type]
        owners = watcher.nodes[guests.node].owners
        running = scenario.start([GPU, l4()])
        scenario.kind.wait(lambda: "in_transit" in owners or running.ended(), 600, "the node to be in transit", 0.02)
        assert not running.ended()
        guests.restart_kubelet()
        running.wait(1500).succeeded()
    assert guests.run_on()
    assert scenario.owners()[guests.node] == "l4"
    assert watcher.crowded == []
    report(owners=owners, gap=round(watcher.gaps()[guests.node], 1))
