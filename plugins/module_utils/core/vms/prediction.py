# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Predicts what the launcher pod of a VM instance will ask for, reduced to what pools and nodes depend on.

Node labels that follow from the machine type, Hyper-V, TSC and confidential computing are not predicted: pools hardly
select by them, and the real pod shows them.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..base import names
from ..base.findings import Finding, in_order, warning
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject
from ..base.selectors import Requirement
from ..pools.criteria import ARCHITECTURE_LABEL, PodAttributes
from .launcher_pods import PodPlacement

Networks = t.Mapping[str, "str | None"]
"""NetworkAttachmentDefinitions as ``namespace/name``, with the device that each asks for (None: no device)."""

NETWORK_RESOURCE_ANNOTATION = "k8s.v1.cni.cncf.io/resourceName"

_CPU_MODEL = "cpu-model.node.kubevirt.io/"
_CPU_FEATURE = "cpu-feature.node.kubevirt.io/"
_DEDICATED_CPU = "cpumanager"
_NOT_OBSOLETE = Requirement("node-labeller.kubevirt.io/obsolete-host-model", "DoesNotExist")
_HOST_MODELS = ("host-model", "host-passthrough")

_DEVICES = "devices.kubevirt.io/"
_HYPERVISOR_DEVICES = {"hyperv-direct": "mshv"}


@dataclass(frozen=True)
class Defaults:
    """What KubeVirt's configuration gives VM instances by default."""

    architecture: str = "amd64"
    cpu_model: str = "host-model"
    node_selector: t.Mapping[str, str] = field(default_factory=FrozenMap)
    hypervisor: str | None = "kvm"
    """The hypervisor's device, which every launcher pod asks for; None with emulation."""

    @classmethod
    def from_kubevirt(cls, kubevirt: KubeObject) -> Defaults:
        """The defaults in a KubeVirt object."""
        configuration = (kubevirt.get("spec") or {}).get("configuration") or {}
        developer = configuration.get("developerConfiguration") or {}
        architecture = (configuration.get("architectureConfiguration") or {}).get("defaultArchitecture")
        hypervisor = next((h.get("name") or "" for h in configuration.get("hypervisors") or ()), "")
        return cls(
            architecture=architecture or (kubevirt.get("status") or {}).get("defaultArchitecture") or cls.architecture,
            cpu_model=configuration.get("cpuModel") or cls.cpu_model,
            node_selector=FrozenMap(developer.get("nodeSelectors")),
            hypervisor=None if developer.get("useEmulation") else _HYPERVISOR_DEVICES.get(hypervisor, "kvm"),
        )


@dataclass(frozen=True)
class Prediction:
    """A future launcher pod."""

    attributes: PodAttributes
    placement: PodPlacement
    findings: tuple[Finding, ...] = ()
    """What could not be predicted."""


def predict(
    template: KubeObject,
    namespace: str,
    namespace_labels: t.Mapping[str, str] | None = None,
    *,
    name: str = "",
    defaults: Defaults | None = None,
    networks: Networks | None = None,
) -> Prediction:
    """The launcher pod of a VM instance, or of a VM's template with instancetype and preference applied.

    :param name: the name of the VM instance if the metadata has none.
    :param networks: the known NetworkAttachmentDefinitions.
    """
    defaults = defaults or Defaults()
    metadata, spec = template.get("metadata") or {}, _defaulted(template.get("spec") or {}, defaults)
    vmi = metadata.get("name") or name
    node_selector = _node_selector(spec, defaults)
    devices, findings = _devices(spec, namespace, networks or {}, vmi)
    limits = (spec["domain"].get("resources") or {}).get("limits") or {}
    own = {names.KUBEVIRT_LABEL: names.LAUNCHER, "vm.kubevirt.io/name": vmi, "vmi.kubevirt.io/id": vmi}
    asked = dict.fromkeys((*devices, *limits, *_kubevirt_devices(spec, defaults)), "1")
    # virt-controller copies most of what the specs of VM instances and pods have in common (priorityClassName...).
    pod = {
        "metadata": {"namespace": namespace, "labels": {**(metadata.get("labels") or {}), **own}},
        "spec": {
            **spec,
            "nodeSelector": node_selector,
            "containers": [{"name": names.COMPUTE, "resources": {"limits": asked}}],
        },
    }
    return Prediction(
        attributes=PodAttributes.from_pod(pod, namespace_labels),
        placement=_placement(spec, node_selector),
        findings=in_order(findings),
    )


def network_names(template: KubeObject, namespace: str) -> tuple[str, ...]:
    """The NetworkAttachmentDefinitions that a VM instance's networks name, as ``namespace/name``."""
    return tuple(_attachments(template.get("spec") or {}, namespace).values())


def _defaulted(spec: KubeObject, defaults: Defaults) -> KubeObject:
    """The spec with the architecture and CPU model that virt-api writes into VM instances."""
    domain = spec.get("domain") or {}
    cpu = domain.get("cpu") or {}
    architecture = spec.get("architecture") or defaults.architecture
    model = cpu.get("model") or ("host-passthrough" if architecture == "arm64" else defaults.cpu_model)
    return {**spec, "architecture": architecture, "domain": {**domain, "cpu": {**cpu, "model": model}}}


def _node_selector(spec: KubeObject, defaults: Defaults) -> dict[str, str]:
    cpu = spec["domain"]["cpu"]
    selector = {
        names.SCHEDULABLE_LABEL: "true",
        ARCHITECTURE_LABEL: spec["architecture"].lower(),
        **defaults.node_selector,
        **(spec.get("nodeSelector") or {}),
    }
    if cpu.get("dedicatedCpuPlacement"):
        selector[_DEDICATED_CPU] = "true"
    if cpu["model"] not in _HOST_MODELS:
        selector[_CPU_MODEL + cpu["model"]] = "true"
    for feature in cpu.get("features") or ():
        if feature.get("policy") in (None, "", "require"):
            selector[_CPU_FEATURE + feature["name"]] = "true"
    return selector


def _placement(spec: KubeObject, node_selector: t.Mapping[str, str]) -> PodPlacement:
    cpu = spec["domain"]["cpu"]
    placement = PodPlacement.from_spec({**spec, "nodeSelector": node_selector})
    if cpu["model"] == "host-model":
        placement = placement.requiring(_NOT_OBSOLETE)
    for feature in cpu.get("features") or ():
        if feature.get("policy") == "forbid":
            placement = placement.requiring(Requirement(_CPU_FEATURE + feature["name"], "DoesNotExist"))
    return placement


def _devices(spec: KubeObject, namespace: str, networks: Networks, vmi: str) -> tuple[set[str], list[Finding]]:
    """The devices that the owner of the VM asks for."""
    devices, findings = set(), []
    own = spec["domain"].get("devices") or {}
    for place in ("gpus", "hostDevices"):
        for device in own.get(place) or ():
            if device.get("deviceName"):
                devices.add(device["deviceName"])
            else:
                findings.append(
                    warning(
                        "device_from_claim",
                        f"Device {device.get('name', '')} of {namespace}/{vmi} comes from resource claim "
                        f"{device.get('claimName', '')}: launcher pods do not name such devices, so no pool's deviceNames "
                        "can match it; select the VM by a label.",
                    )
                )
    sriov = {i.get("name") for i in own.get("interfaces") or () if "sriov" in i}
    for network, attachment in _attachments(spec, namespace).items():
        device = networks.get(attachment)
        if device:
            devices.add(device)
        elif network in sriov and attachment not in networks:
            findings.append(
                warning(
                    "network_unknown",
                    f"Interface {network} of {namespace}/{vmi} gets the device in annotation {NETWORK_RESOURCE_ANNOTATION} of "
                    f"NetworkAttachmentDefinition {attachment}, which could not be read; a pool that has this device in "
                    "deviceNames may win instead.",
                )
            )
    return devices, findings


def _attachments(spec: KubeObject, namespace: str) -> dict[str, str]:
    """The VM's networks that Multus attaches, each with its NetworkAttachmentDefinition."""
    attachments = {}
    for network in spec.get("networks") or ():
        attachment = (network.get("multus") or {}).get("networkName")
        if attachment:
            attachments[network["name"]] = attachment if "/" in attachment else f"{namespace}/{attachment}"
    return attachments


def _kubevirt_devices(spec: KubeObject, defaults: Defaults) -> t.Iterator[str]:
    """The devices that KubeVirt's own device plugins give to the pod."""
    domain = spec["domain"]
    own = domain.get("devices") or {}
    interfaces = own.get("interfaces") or ()
    if defaults.hypervisor is not None:
        yield _DEVICES + defaults.hypervisor
    if interfaces or own.get("autoattachPodInterface") is not False:
        yield f"{_DEVICES}tun"
        models = [interface.get("model") for interface in interfaces] or [None]
        if defaults.hypervisor is not None and any(model in (None, "", "virtio") for model in models):
            yield f"{_DEVICES}vhost-net"
    if own.get("autoattachVSOCK"):
        yield f"{_DEVICES}vhost-vsock"
    if "sev" in (domain.get("launchSecurity") or {}):
        yield f"{_DEVICES}sev"
