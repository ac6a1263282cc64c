# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What the agent plays of virtual machines, beside KubeVirt's own virt-controller: launchers, guests and virt-handler."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from local_cluster import ClusterError
from scenario import migration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local_cluster import LocalCluster

pytestmark = pytest.mark.thorough  # the test bed itself: it changes rarely

Object = dict[str, Any]

GPU = "nvidia.com/AD102GL_L40S"
DISK = {"name": "root", "containerDisk": {"image": "registry.example/disks/os:1"}}
EXIT, HANDLER, MIGRATION = (f"agent.virtpools.io/{knob}" for knob in ("exit", "handler", "migration"))
CLASS = "at-first-use"


class Machines:
    """What a user of virtual machines does and sees."""

    def __init__(self, cluster: LocalCluster) -> None:
        """Work in the namespace default."""
        self.cluster = cluster

    def create(self, *objects: Object) -> None:
        """Create objects."""
        self.cluster.kubectl(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def get(self, *what: str) -> Object:
        """Return an object or a list."""
        return self.cluster.get(*what)

    def vmi(self, name: str) -> Object:
        """Return an instance, or an empty object."""
        return next((each for each in self.get("vmi")["items"] if each["metadata"]["name"] == name), {})

    def phase(self, name: str, what: str = "vmi") -> str:
        """Return the phase of an instance or a migration."""
        found = (each for each in self.get(what)["items"] if each["metadata"]["name"] == name)
        return str(next(found, {}).get("status", {}).get("phase", ""))

    def running(self, name: str) -> Object:
        """Wait until an instance runs, and return its pod."""
        self.wait(lambda: self.phase(name) == "Running", f"{name} to run")
        return self.pods(name)[-1]

    def pods(self, name: str) -> list[Object]:
        """Return an instance's launcher pods, the oldest first."""
        pods = self.get("pods", "-l", f"vmi.kubevirt.io/id={name}")["items"]
        return sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def pod_phases(self, name: str) -> list[str]:
        """Return the phases of an instance's launcher pods, the oldest first."""
        return [pod["status"]["phase"] for pod in self.pods(name)]

    def migratable(self, name: str) -> Object:
        """Return what virt-handler says of an instance's migration."""
        conditions = self.vmi(name)["status"]["conditions"]
        return next(dict(each) for each in conditions if each["type"] == "LiveMigratable")

    def wait(self, predicate: Callable[[], object], what: str, timeout: float = 30) -> None:
        """Wait for something."""
        self.cluster.wait(predicate, timeout, what, interval=0.3)


@pytest.fixture
def machines(cluster: LocalCluster) -> Iterator[Machines]:
    """Yield a user whose machines are deleted after the test."""
    user = Machines(cluster)
    yield user
    cluster.kubectl("delete", "vmim,vm,vmi", "--all", "--timeout=90s")
    user.wait(lambda: not user.get("pods", "-l", "kubevirt.io=virt-launcher")["items"], "launcher pods to go")


def vmi(name: str, *, volumes: list[Object] | None = None, **spec: Any) -> Object:
    """Return an instance whose disk is in an image."""
    domain = {"memory": {"guest": "128Mi"}, "devices": {}, **spec.pop("domain", {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name},
        "spec": {"domain": domain, "volumes": volumes or [DISK], "terminationGracePeriodSeconds": 0, **spec},
    }


def vm(name: str) -> Object:
    """Return a machine that starts again whenever its guest ends."""
    domain = {"memory": {"guest": "128Mi"}, "devices": {}}
    template = {"metadata": {}, "spec": {"domain": domain, "volumes": [DISK], "terminationGracePeriodSeconds": 0}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": template},
    }


def test_guests_start_and_end(machines: Machines) -> None:
    machines.create(vm("always"), vmi("good"), vmi("bad"))
    pods = {name: machines.running(name)["metadata"]["name"] for name in ("always", "good", "bad")}
    first = machines.vmi("always")["metadata"]["uid"]
    machines.wait(lambda: machines.get("vm", "always")["status"]["printableStatus"] == "Running", "the status")
    machines.cluster.kubectl("annotate", "pod", pods["always"], pods["good"], f"{EXIT}=succeeded")
    machines.cluster.kubectl("annotate", "pod", pods["bad"], f"{EXIT}=failed")
    for name, phase in (("good", "Succeeded"), ("bad", "Failed")):
        machines.wait(lambda name=name, phase=phase: machines.phase(name) == phase, f"{name} to end")
    machines.wait(lambda: machines.vmi("always").get("metadata", {}).get("uid", first) != first, "a restart", 60)
    machines.running("always")


def test_a_migration_moves_an_instance_and_ends_its_source(machines: Machines) -> None:
    machines.create(vmi("mover"), vmi("fixed", domain={"devices": {"gpus": [{"name": "a", "deviceName": GPU}]}}))
    source = machines.running("mover")
    machines.create(migration("mover", name="move"))
    machines.wait(lambda: machines.phase("move", "vmim") == "Succeeded", "the migration")
    state = machines.vmi("mover")["status"]
    target = machines.pods("mover")[-1]
    assert target["spec"]["nodeName"] == state["nodeName"] != source["spec"]["nodeName"]
    machines.wait(lambda: machines.pod_phases("mover") == ["Succeeded", "Running"], "the source to end")
    assert machines.phase("mover") == "Running"

    assert machines.running("fixed")["spec"]["nodeName"].startswith("l40s-")
    with pytest.raises(ClusterError, match="HostDeviceNotLiveMigratable"):
        machines.create(migration("fixed", name="never"))


def test_a_migration_fails_on_request(machines: Machines) -> None:
    machines.create(vmi("unlucky"))
    source = machines.running("unlucky")["spec"]["nodeName"]
    machines.cluster.kubectl("annotate", "vmi", "unlucky", f"{MIGRATION}=fail")
    machines.create(migration("unlucky", name="failing"))
    machines.wait(lambda: machines.phase("failing", "vmim") == "Failed", "the failure")
    state = machines.vmi("unlucky")["status"]
    assert (state["phase"], state["nodeName"]) == ("Running", source)
    assert state["migrationState"]["failureReason"] == "the test wants it to fail"
    machines.wait(lambda: machines.pod_phases("unlucky") == ["Running", "Succeeded"], "the target to end")


def test_a_migration_is_aborted(machines: Machines) -> None:
    machines.create(vmi("recalled"))
    source = machines.running("recalled")["spec"]["nodeName"]
    machines.cluster.kubectl("annotate", "vmi", "recalled", f"{MIGRATION}=hang")
    machines.create(migration("recalled", name="long"))
    machines.wait(lambda: machines.phase("long", "vmim") == "Running", "the migration to run")
    machines.cluster.kubectl("delete", "vmim", "long", "--timeout=60s")
    state = machines.vmi("recalled")["status"]
    assert (state["phase"], state["nodeName"]) == ("Running", source)
    assert state["migrationState"]["abortStatus"] == "Succeeded"
    machines.wait(lambda: machines.pod_phases("recalled") == ["Running", "Succeeded"], "the target to end")


def test_without_its_handler_an_instance_does_not_go_on(machines: Machines) -> None:
    machines.cluster.set_node_annotation("plain-04", HANDLER, "never-ready")
    try:
        # The node is still schedulable: nobody reports that a handler has died.
        machines.create(vmi("waiting", nodeSelector={"kubernetes.io/hostname": "plain-04"}))
        machines.wait(lambda: machines.phase("waiting") == "Scheduled", "its pod")
        time.sleep(2)
        assert machines.phase("waiting") == "Scheduled"
    finally:
        machines.cluster.set_node_annotation("plain-04", HANDLER, None)
    machines.running("waiting")


def test_a_claim_that_waits_for_its_first_consumer(machines: Machines) -> None:
    """The scheduler binds the claim to the volume of a node, and the launcher starts there."""
    on_node = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["plain-03"]}]}
    storage = {"storageClassName": CLASS, "accessModes": ["ReadWriteOnce"]}
    volume = {
        **storage,
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [on_node]}},
    }
    machines.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLASS}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLASS},
            "spec": {**storage, "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    try:
        assert machines.get("pvc", CLASS)["status"]["phase"] == "Pending"
        machines.create(vmi("keeper", volumes=[{"name": "root", "persistentVolumeClaim": {"claimName": CLASS}}]))
        assert machines.running("keeper")["spec"]["nodeName"] == "plain-03"
        assert machines.get("pvc", CLASS)["status"]["phase"] == "Bound"
        assert machines.migratable("keeper")["reason"] == "DisksNotLiveMigratable"
    finally:
        machines.cluster.kubectl("delete", "vmi", "--all", "--timeout=90s")
        machines.cluster.kubectl("delete", f"pvc/{CLASS}", f"pv/{CLASS}", f"storageclass/{CLASS}", "--timeout=60s")


def test_a_handler_marks_its_node_and_brings_its_devices(machines: Machines) -> None:
    def seen() -> tuple[str, str]:
        node = machines.get("node", "plain-01")
        beat = node["metadata"]["annotations"]["kubevirt.io/heartbeat"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", beat)
        return node["metadata"]["labels"]["kubevirt.io/schedulable"], node["status"]["allocatable"][
            "devices.kubevirt.io/kvm"
        ]

    assert seen() == ("true", "1k")
    machines.cluster.kubectl("taint", "node", "plain-01", "test=away:NoExecute")
    try:
        machines.wait(lambda: seen() == ("false", "0"), "the handler to leave")
    finally:
        machines.cluster.kubectl("taint", "node", "plain-01", "test-")
    machines.wait(lambda: seen() == ("true", "1k"), "a new handler")
