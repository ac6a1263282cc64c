# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What is predicted of a launcher pod is in the pod that KubeVirt's own virt-controller makes, for every kind of VM."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.prediction import predict
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.rendering import Defaults
from local_cluster import ClusterError, Fleet, LocalCluster, Nodes, programs

Object = dict[str, Any]

NAMESPACE, LIMITED = "default", "limited"
A100 = "nvidia.com/GA100_A100_PCIE_40GB"
GATES = (
    "WorkloadEncryptionSEV",
    "WorkloadEncryptionTDX",
    "SecureExecution",
    "PersistentReservation",
    "VSOCK",
    "HostDevices",
    "DownwardMetrics",
    "PanicDevices",
    "CPUManager",
    "NUMA",
    "MultiArchitecture",
)
"""What the kinds of VMs need. Names that a release does not know have no effect."""
OTHER_GATES = ("HypervStrictCheck", "IOMMUFD", "CrossArchitectureVirtualization")
"""Gates that change what KubeVirt adds to the pods of VMs."""

UEFI = {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}}
HUGEPAGES = {"memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}}
DEDICATED: Object = {"cpu": {"cores": 2, "dedicatedCpuPlacement": True}}


def in_domain(*parts: Object, **fields: Any) -> Object:
    domain: Object = {}
    for part in (*parts, fields):
        domain.update(part)
    return {"domain": domain}


def with_devices(**devices: Any) -> Object:
    return in_domain(devices=devices)


def with_cpu(**cpu: Any) -> Object:
    return in_domain(cpu=cpu)


def secured(security: Object, **fields: Any) -> Object:
    return {**in_domain(UEFI, launchSecurity=security), **fields}


HYPERV = (
    "vpindex",
    "synic",
    "runtime",
    "reset",
    "frequencies",
    "reenlightenment",
    "tlbflush",
    "ipi",
    "vapic",
    "relaxed",
)
KINDS: dict[str, Object] = {
    "plain": {},
    "gpu": with_devices(gpus=[{"name": "g", "deviceName": A100}]),
    "two-gpus": with_devices(gpus=[{"name": f"g{n}", "deviceName": A100} for n in (1, 2)]),
    "host-device": with_devices(hostDevices=[{"name": "h", "deviceName": A100}]),
    "cpu-model": with_cpu(model="Haswell"),
    "host-passthrough": with_cpu(model="host-passthrough"),
    "cpu-features": with_cpu(
        features=[{"name": "aes"}, {"name": "vmx", "policy": "require"}, {"name": "a", "policy": "optional"}]
    ),
    "cpu-forbidden": with_cpu(model="Haswell", features=[{"name": "vmx", "policy": "forbid"}]),
    "cpu-topology": with_cpu(cores=2, sockets=2, threads=2),
    "memory-limit": in_domain(resources={"limits": {"memory": "128Mi"}}),
    "cpu-limit": in_domain(resources={"limits": {"cpu": "2", "memory": "128Mi"}}),
    "overcommit": in_domain(memory={"guest": "128Mi"}, resources={"requests": {"memory": "64Mi"}}),
    "guaranteed": in_domain(
        resources={"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    ),
    "arm": {"architecture": "arm64"},
    "s390x": {"architecture": "s390x"},
    "machine-type": in_domain(machine={"type": "pc-q35-9.0"}),
    "no-network": with_devices(autoattachPodInterface=False),
    "other-nic": {
        **with_devices(interfaces=[{"name": "n", "model": "e1000", "masquerade": {}}]),
        "networks": [{"name": "n", "pod": {}}],
    },
    "virtio-nic": {
        **with_devices(interfaces=[{"name": "n", "model": "virtio", "masquerade": {}}]),
        "networks": [{"name": "n", "pod": {}}],
    },
    "vsock": with_devices(autoattachVSOCK=True),
    "headless": with_devices(autoattachGraphicsDevice=False, autoattachSerialConsole=False, autoattachMemBalloon=False),
    "tpm": with_devices(tpm={}),
    "rng": with_devices(rng={}),
    "watchdog": with_devices(watchdog={"name": "w", "i6300esb": {}}),
    "sound": with_devices(sound={"name": "s", "model": "ich9"}),
    "inputs": with_devices(inputs=[{"name": "t", "type": "tablet", "bus": "usb"}]),
    "panic": with_devices(panicDevices=[{"model": "isa"}]),
    "downward-metrics": with_devices(downwardMetrics={}),
    "reservation": {
        **with_devices(
            disks=[{"name": "root", "disk": {}}, {"name": "lun", "lun": {"bus": "scsi", "reservation": True}}]
        ),
        "volumes": [{"name": "lun", "persistentVolumeClaim": {"claimName": "lun"}}],
    },
    "uefi": in_domain(UEFI),
    "secure-boot": in_domain(firmware={"bootloader": {"efi": {}}}, features={"smm": {}}),
    "sev": secured({"sev": {}}),
    "sev-es": secured({"sev": {"policy": {"encryptedState": True}}}),
    "sev-snp": secured({"snp": {}}),
    "tdx": secured({"tdx": {}}),
    "secure-execution": {**in_domain(launchSecurity={}), "architecture": "s390x"},
    "hugepages": in_domain(HUGEPAGES),
    "large-hugepages": in_domain(memory={"guest": "2Gi", "hugepages": {"pageSize": "1Gi"}}),
    "dedicated": in_domain(DEDICATED),
    "isolated": with_cpu(cores=2, dedicatedCpuPlacement=True, isolateEmulatorThread=True),
    "dedicated-hugepages": in_domain(DEDICATED, HUGEPAGES),
    "realtime": in_domain(HUGEPAGES, cpu={**DEDICATED["cpu"], "realtime": {}, "numa": {"guestMappingPassthrough": {}}}),
    "io-threads": in_domain(ioThreadsPolicy="auto"),
    "hyperv": in_domain(features={"hyperv": {**{name: {} for name in HYPERV}, "synictimer": {}}}),
    "evmcs": in_domain(features={"hyperv": {"evmcs": {}}}),
    "clock": in_domain(clock={"timer": {"hyperv": {}}}),
    "placed": {
        "nodeSelector": {"zone": "a"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
                }
            }
        },
        "tolerations": [{"key": "any", "operator": "Exists"}],
    },
}
CHANGED_BY_GATES = ("plain", "arm", "sev-snp", "hyperv", "evmcs", "dedicated", "placed")


class Machines:
    """A cluster on which VMs are created, and their launcher pods read."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def get(self, *what: str) -> Object:
        return self.cluster.get(*what)

    def defaults(self) -> Defaults:
        return Defaults.from_kubevirt(self.get("kubevirt", "kubevirt", "-n", "kubevirt"))

    def configure(self, **configuration: Any) -> None:
        """Change KubeVirt's configuration."""
        patch = json.dumps({"spec": {"configuration": configuration}})
        self.cluster.kubectl("patch", "kubevirt", "kubevirt", "-n", "kubevirt", "--type=merge", "-p", patch)

    def create(self, name: str, spec: Object, namespace: str = NAMESPACE) -> Object:
        """Create a VM of a kind that starts, and return its template as the user wrote it."""
        domain = spec.get("domain", {})
        memory = {} if "resources" in domain and "memory" not in domain else {"memory": {"guest": "64Mi"}}
        devices = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}], **domain.get("devices", {})}
        disk = {"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41"}}
        template = {
            "metadata": {"labels": {"kind": name}},
            "spec": {
                **spec,
                "domain": {**memory, **domain, "devices": devices},
                "volumes": [disk, *spec.get("volumes", ())],
                "terminationGracePeriodSeconds": 0,
            },
        }
        metadata = {"name": name, "namespace": namespace}
        vm = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata}
        vm["spec"] = {"runStrategy": "Always", "template": template}
        self.cluster.wait(lambda: self._created(vm), 60, "virt-api, which restarts with some gates")
        return template

    def _created(self, vm: Object) -> bool:
        try:
            self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(vm))
        except ClusterError as error:
            if "failed calling webhook" not in str(error):
                raise
            return False
        return True

    def pod(self, name: str, namespace: str = NAMESPACE) -> Object:
        """Return the launcher pod of a VM."""
        selector = ("-n", namespace, "-l", f"vm.kubevirt.io/name={name}")
        pods: list[Object] = self.cluster.wait(
            lambda: self.get("pods", *selector)["items"], 60, f"the launcher pod of {name}", interval=0.3
        )
        return pods[0]

    def delete_all(self) -> None:
        self.cluster.kubectl("delete", "vm", "--all", "-A", "--timeout=90s")
        self.cluster.wait(lambda: not self.get("pods", "-n", NAMESPACE)["items"], 60, "launcher pods to go")


def differences(machines: Machines, name: str, template: Object, namespace: str = NAMESPACE) -> list[str]:
    """Return in what the prediction of a launcher pod differs from the real one."""
    labels = machines.get("namespace", namespace)["metadata"]["labels"]
    found = predict(template, namespace, labels, name=name, defaults=machines.defaults())
    real = LauncherPod.from_object(machines.pod(name, namespace), labels)
    pairs = {
        "limits": (found.attributes.devices, real.attributes.devices),
        "nodeSelector": (
            frozenset(found.attributes.node_selector.items()),
            frozenset(real.attributes.node_selector.items()),
        ),
    }
    told = [
        f"{name}: {what}: {sorted(predicted - actual)} predicted, {sorted(actual - predicted)} real"
        for what, (predicted, actual) in pairs.items()
        if predicted != actual
    ]
    if found.placement.terms != real.placement.terms:
        told.append(f"{name}: terms {found.placement.terms} predicted, {real.placement.terms} real")
    return told


EARLIER = [pytest.param(release, marks=pytest.mark.thorough) for release in (programs.EARLIER, "v1.7.0")]


@pytest.fixture(scope="module", params=[programs.KUBEVIRT, *EARLIER])
def machines(start_cluster: Any, request: pytest.FixtureRequest) -> Machines:
    fleet = Fleet.from_groups(Nodes(prefix="node-", count=2), Nodes(prefix="arm-", count=1, arch="arm64"))
    machines = Machines(start_cluster(fleet, kubevirt=request.param))
    machines.configure(
        developerConfiguration={"featureGates": list(GATES)},
        autoCPULimitNamespaceLabelSelector={"matchLabels": {"limited": "yes"}},
    )
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "lun", "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeMode": "Block",
        },
    }
    machines.cluster.kubectl("create", "-f", "-", stdin=json.dumps(claim))
    machines.cluster.kubectl("create", "namespace", LIMITED)
    machines.cluster.kubectl("label", "namespace", LIMITED, "limited=yes")
    return machines


def test_every_kind_of_vm_gets_the_pod_that_is_predicted(machines: Machines) -> None:
    templates = {name: machines.create(name, spec) for name, spec in KINDS.items()}
    assert [each for name, template in templates.items() for each in differences(machines, name, template)] == []


def test_a_namespace_may_ask_for_cpu_limits(machines: Machines) -> None:
    template = machines.create("limited", {}, LIMITED)
    assert "cpu" in LauncherPod.from_object(machines.pod("limited", LIMITED)).attributes.devices
    assert differences(machines, "limited", template, LIMITED) == []


def test_feature_gates_change_what_is_added(machines: Machines) -> None:
    machines.delete_all()
    machines.configure(developerConfiguration={"featureGates": [*GATES, *OTHER_GATES]})

    def followed() -> bool:
        machines.create("probe", KINDS["hyperv"])
        real = LauncherPod.from_object(machines.pod("probe")).attributes.node_selector
        machines.delete_all()
        return "hyperv.node.kubevirt.io/vpindex" in real

    machines.cluster.wait(followed, 60, "virt-controller to have the gates")
    templates = {name: machines.create(name, KINDS[name]) for name in CHANGED_BY_GATES}
    assert [each for name, template in templates.items() for each in differences(machines, name, template)] == []
