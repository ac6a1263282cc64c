# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What KubeVirt itself adds to a launcher pod: the labels that its nodeSelector asks for, and the names in its limits.

Read in KubeVirt 1.7.0, 1.8.2 and 1.9.0 (``pkg/defaults``, and in ``pkg/virt-controller/services`` ``template.go``,
``nodeselectorrenderer.go`` and ``renderresources.go``). Left out is what follows from other objects than the VM: the frequency of
nodes' clocks (TSC), and limits because of a ResourceQuota.
"""

from __future__ import annotations

import hashlib
import typing as t
from dataclasses import dataclass, field

from ..base import names
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject
from ..base.selectors import Term
from ..kubevirt import feature_gates, health, hypervisor
from ..pools.criteria import ARCHITECTURE_LABEL, EMULATED_ARCHITECTURE
from ..pools.hypervisors import HYPERVISORS, KVM

_WITH_UEFI: KubeObject = {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}}
ASKED_BY: t.Final[t.Mapping[str, KubeObject]] = {
    f"{names.KUBEVIRT_DEVICES}kvm": {},
    f"{names.KUBEVIRT_DEVICES}tun": {"devices": {"autoattachPodInterface": True}},
    f"{names.KUBEVIRT_DEVICES}vhost-net": {"devices": {"autoattachPodInterface": True}},
    f"{names.KUBEVIRT_DEVICES}vhost-vsock": {"devices": {"autoattachVSOCK": True}},
    f"{names.KUBEVIRT_DEVICES}sev": {"launchSecurity": {"sev": {}}, **_WITH_UEFI},
    f"{names.KUBEVIRT_DEVICES}tdx": {"launchSecurity": {"tdx": {}}, **_WITH_UEFI},
}
"""The domain of a VM that gets one of these devices, so far as it needs no other object. KubeVirt refuses VMs that name one as a GPU
or host device."""
_MACHINE_TYPES = FrozenMap({"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"})
_NEWEST = (99, 0)
"""Stands for the release of a development build."""

_LONGEST_LABEL = 63

_CPU_MODEL = "cpu-model.node.kubevirt.io/"
CPU_FEATURE: t.Final = "cpu-feature.node.kubevirt.io/"
_MIGRATION_MODEL = "cpu-model-migration.node.kubevirt.io/"
_OF_HOST = {
    "host-model-cpu.node.kubevirt.io/": _MIGRATION_MODEL,
    "host-model-required-features.node.kubevirt.io/": CPU_FEATURE,
}
"""What a node's label says of its CPU, and what shows that another node can give a VM the same."""
_HYPERV = "hyperv.node.kubevirt.io/"
_VENDOR = "cpu-vendor.node.kubevirt.io/"
_INTEL = f"{_VENDOR}Intel"
_HOST_MODELS = ("host-model", "host-passthrough")

_HYPERV_LABELS = (
    "vpindex",
    "runtime",
    "reset",
    "synic",
    "synictimer",
    "frequencies",
    "reenlightenment",
    "tlbflush",
    "ipi",
)
_HYPERV_NEEDS = (("ipi", "vpindex"), ("tlbflush", "vpindex"), ("synictimer", "synic"), ("synic", "vpindex"))
"""Features that virt-api turns on for another one, in this order."""

# Feature gates that change launcher pods. All are off by default.
_HYPERV_CHECK = "HypervStrictCheck"
_CROSS_ARCHITECTURE = "CrossArchitectureVirtualization"
_IOMMUFD = "IOMMUFD"
_GATES = {_HYPERV_CHECK: (1, 0), _CROSS_ARCHITECTURE: (1, 9), _IOMMUFD: (1, 9)}
"""Each with the first release in which it does so."""


@dataclass(frozen=True)
class Defaults:
    """What KubeVirt's configuration and release make of VM instances."""

    architecture: str = "amd64"
    cpu_model: str = "host-model"
    node_selector: t.Mapping[str, str] = field(default_factory=FrozenMap)
    hypervisor: str = KVM.name
    emulation: bool = False
    """Whether VMs need no hypervisor. Then launcher pods do not ask for its device."""
    machine_types: t.Mapping[str, str] = _MACHINE_TYPES
    """By architecture."""
    release: tuple[int, int] = _NEWEST
    gates: frozenset[str] = frozenset()
    """Those that are on, of the feature gates that change launcher pods."""
    cpu_limit_namespaces: Term | None = None
    """The labels of namespaces whose VMs get a CPU limit."""

    @classmethod
    def from_kubevirt(cls, kubevirt: KubeObject) -> Defaults:
        """The defaults in a KubeVirt object."""
        configuration = (kubevirt.get("spec") or {}).get("configuration") or {}
        developer = configuration.get("developerConfiguration") or {}
        by_architecture = configuration.get("architectureConfiguration") or {}
        architecture = by_architecture.get("defaultArchitecture")
        release = health.release_of(health.version_of(kubevirt)) or _NEWEST
        machine_types = {
            name: configuration.get("machineType") or (by_architecture.get(name) or {}).get("machineType") or default
            for name, default in _MACHINE_TYPES.items()
        }
        limited = configuration.get("autoCPULimitNamespaceLabelSelector")
        return cls(
            architecture=architecture or (kubevirt.get("status") or {}).get("defaultArchitecture") or cls.architecture,
            cpu_model=configuration.get("cpuModel") or cls.cpu_model,
            node_selector=FrozenMap(developer.get("nodeSelectors")),
            hypervisor=hypervisor.of_cluster(kubevirt),
            emulation=hypervisor.is_emulated(kubevirt),
            machine_types=FrozenMap(machine_types),
            release=release,
            gates=frozenset(
                gate for gate, since in _GATES.items() if release >= since and feature_gates.is_on(kubevirt, gate)
            ),
            cpu_limit_namespaces=None if limited is None else Term.from_selector(limited),
        )

    def completed(self, spec: KubeObject, running_machine: str | None = None) -> KubeObject:
        """The spec of a VM instance with what virt-api writes into it, of that on which launcher pods depend.

        :param running_machine: the machine type that a running guest has, which KubeVirt asks for in place of the spec's.
        """
        domain = spec.get("domain") or {}
        cpu = domain.get("cpu") or {}
        architecture = spec.get("architecture") or self.architecture
        model = cpu.get("model") or ("host-passthrough" if architecture == "arm64" else self.cpu_model)
        own_machine = running_machine or (domain.get("machine") or {}).get("type")
        machine = own_machine or self.machine_types.get(architecture, self.machine_types["amd64"])
        features = list(cpu.get("features") or ())
        if "evmcs" in _hyperv_features(domain):
            features = [*(each for each in features if each.get("name") != "vmx"), {"name": "vmx", "policy": "require"}]
        return {
            **spec,
            "architecture": architecture,
            "domain": {**domain, "cpu": {**cpu, "model": model, "features": features}, "machine": {"type": machine}},
        }


def name_labels(name: str, spec: KubeObject) -> dict[str, str]:
    """The labels of the launcher pod that tell the name of its VM instance, with ``SanitizeHostname`` and
    ``CalculateVirtualMachineInstanceID`` of KubeVirt."""
    identity = name
    if len(name) > _LONGEST_LABEL:
        digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]
        identity = f"{name[: _LONGEST_LABEL - 9]}-{digest}"
    hostname = spec.get("hostname") or name.partition(".")[0][:_LONGEST_LABEL]
    return {"vm.kubevirt.io/name": hostname, "vmi.kubevirt.io/id": identity}


def node_selector(spec: KubeObject, defaults: Defaults) -> dict[str, str]:
    """The nodeSelector of the launcher pod.

    :param spec: that of the VM instance, completed.
    """
    architecture = spec["architecture"].lower()
    selector = {
        names.SCHEDULABLE_LABEL: "true",
        ARCHITECTURE_LABEL: architecture,
        **defaults.node_selector,
        **(spec.get("nodeSelector") or {}),
        **dict.fromkeys(_node_labels(spec, defaults), "true"),
    }
    if _CROSS_ARCHITECTURE in defaults.gates:
        del selector[ARCHITECTURE_LABEL]
        selector[EMULATED_ARCHITECTURE + spec["architecture"]] = "true"
    return selector


def migration_selector(
    spec: KubeObject, source: t.Mapping[str, str], node_labels: t.Mapping[str, str]
) -> dict[str, str]:
    """What the target pod of a live migration asks for besides, because the guest keeps the CPU of the node where it began
    (KubeVirt's migration controller, ``createTargetPod`` and ``prepareNodeSelectorForHostCpuModel``).

    :param spec: that of the VM instance, completed.
    :param source: the nodeSelector of its present pod.
    :param node_labels: those of its present node.
    """
    vendor = {key: "true" for key in node_labels if key.startswith(_VENDOR)}
    if spec["domain"]["cpu"]["model"] != "host-model":
        return vendor
    kept = {key: value for key, value in source.items() if CPU_FEATURE in key or _MIGRATION_MODEL in key}
    of_host = {
        asked + key.removeprefix(prefix): value
        for key, value in node_labels.items()
        for prefix, asked in _OF_HOST.items()
        if key.startswith(prefix)
    }
    return vendor | (kept or of_host)


def _node_labels(spec: KubeObject, defaults: Defaults) -> t.Iterator[str]:
    """The labels by which a node shows that it can run the VM."""
    domain = spec["domain"]
    cpu, security = domain["cpu"], domain.get("launchSecurity")
    yield names.MACHINE_TYPE_PREFIX + domain["machine"]["type"]
    if cpu.get("dedicatedCpuPlacement"):
        yield "kubevirt.io/cpumanager" if defaults.release >= (1, 8) else "cpumanager"
    if cpu["model"] not in _HOST_MODELS:
        yield _CPU_MODEL + cpu["model"]
    for feature in cpu["features"]:
        if feature.get("policy") in (None, "", "require"):
            yield CPU_FEATURE + feature["name"]
    if cpu.get("realtime") is not None:
        yield "kubevirt.io/realtime"
    if _HYPERV_CHECK in defaults.gates:
        features = _hyperv_features(domain)
        yield from (_HYPERV + feature for feature in _HYPERV_LABELS if feature in features)
        if "evmcs" in features:
            yield _INTEL
    if security is not None:
        yield from _security_labels(spec["architecture"], security)


def _security_labels(architecture: str, security: KubeObject) -> t.Iterator[str]:
    sev = security.get("sev")
    if sev is not None or security.get("snp") is not None:
        yield "kubevirt.io/sev"
    if ((sev or {}).get("policy") or {}).get("encryptedState"):
        yield "kubevirt.io/sev-es"
    if security.get("snp") is not None:
        yield "kubevirt.io/sev-snp"
    if security.get("tdx") is not None:
        yield "kubevirt.io/tdx"
    if architecture == "s390x":
        yield "kubevirt.io/s390-pv"


def _hyperv_features(domain: KubeObject) -> set[str]:
    """The Hyper-V features of a VM, with those that virt-api turns on for them."""
    hyperv = (domain.get("features") or {}).get("hyperv") or {}
    on = {name for name, state in hyperv.items() if state is not None and state.get("enabled") is not False}
    for feature, needed in _HYPERV_NEEDS:
        if feature in on and needed not in hyperv:
            on.add(needed)
    return on


def limits(spec: KubeObject, namespace_labels: t.Mapping[str, str] | None, defaults: Defaults) -> t.Iterator[str]:
    """The names in the limits of the launcher pod, but for the devices that the VM's owner asks for.

    :param spec: that of the VM instance, completed.
    """
    domain = spec["domain"]
    yield from (domain.get("resources") or {}).get("limits") or ()
    hugepages = (domain.get("memory") or {}).get("hugepages")
    if hugepages is not None:
        yield f"hugepages-{hugepages.get('pageSize')}"
    if domain["cpu"].get("dedicatedCpuPlacement"):
        yield from ("cpu", "memory")
    elif defaults.cpu_limit_namespaces is not None and defaults.cpu_limit_namespaces.matches(namespace_labels or {}):
        yield "cpu"
    yield from (names.KUBEVIRT_DEVICES + name for name in _devices(domain, defaults))


def _devices(domain: KubeObject, defaults: Defaults) -> t.Iterator[str]:
    """The devices that KubeVirt's own device plugins give to the pod."""
    own, security = domain.get("devices") or {}, domain.get("launchSecurity") or {}
    interfaces = own.get("interfaces") or ()
    if not defaults.emulation:
        yield HYPERVISORS.get(defaults.hypervisor, KVM).device
    if interfaces or own.get("autoattachPodInterface") is not False:
        yield "tun"
        models = [interface.get("model") for interface in interfaces] or [None]
        if not defaults.emulation and any(model in (None, "", "virtio") for model in models):
            yield "vhost-net"
    if own.get("autoattachVSOCK"):
        yield "vhost-vsock"
    if security.get("sev") is not None or security.get("snp") is not None:
        yield "sev"
    if security.get("tdx") is not None and defaults.release >= (1, 9):
        yield "tdx"
    if any((disk.get("lun") or {}).get("reservation") for disk in own.get("disks") or ()):
        yield "pr-helper"
    if _IOMMUFD in defaults.gates:
        yield "iommufd"
