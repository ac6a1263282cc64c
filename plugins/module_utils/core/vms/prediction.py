# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Predicts what the launcher pod of a VM instance will ask for, reduced to what pools and nodes depend on."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.findings import Finding, in_order, warning
from ..base.objects import KubeObject, field
from ..base.selectors import Requirement
from ..observed.nodes import Node
from ..pools.criteria import PodAttributes
from . import rendering
from .launcher_pods import LauncherPod, PodPlacement
from .rendering import Defaults

Networks = t.Mapping[str, "str | None"]
"""NetworkAttachmentDefinitions as ``namespace/name``, with the device that each asks for (None: no device)."""

NETWORK_RESOURCE_ANNOTATION = "k8s.v1.cni.cncf.io/resourceName"

_NOT_OBSOLETE = Requirement("node-labeller.kubevirt.io/obsolete-host-model", "DoesNotExist")


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
    moving_from: tuple[LauncherPod, Node | None] | None = None,
) -> Prediction:
    """The launcher pod of a VM instance, or of a VM's template with instancetype and preference applied.

    :param name: the name of the VM instance if the metadata has none.
    :param networks: the known NetworkAttachmentDefinitions.
    :param moving_from: the present pod and its node, for the target pod of a live migration.
    """
    defaults = defaults or Defaults()
    metadata = template.get("metadata") or {}
    spec = defaults.completed(template.get("spec") or {}, field(template, "status", "machine", "type"))
    vmi = metadata.get("name") or name
    node_selector = rendering.node_selector(spec, defaults)
    if moving_from is not None:
        pod_now, node = moving_from
        node_selector |= rendering.migration_selector(
            spec, pod_now.placement.node_selector, node.labels if node else {}
        )
    devices, findings = _devices(spec, namespace, networks or {}, vmi)
    own = {names.KUBEVIRT_LABEL: names.LAUNCHER, **rendering.name_labels(vmi, spec)}
    asked = dict.fromkeys((*devices, *rendering.limits(spec, namespace_labels, defaults)), "1")
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


def _placement(spec: KubeObject, node_selector: t.Mapping[str, str]) -> PodPlacement:
    cpu = spec["domain"]["cpu"]
    placement = PodPlacement.from_spec({**spec, "nodeSelector": node_selector})
    if cpu["model"] == "host-model":
        placement = placement.requiring(_NOT_OBSOLETE)
    for feature in cpu.get("features") or ():
        if feature.get("policy") == "forbid":
            placement = placement.requiring(Requirement(rendering.CPU_FEATURE + feature["name"], "DoesNotExist"))
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
