# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Install KubeVirt in a local cluster, and tell whether it works."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kubernetes import client

from . import programs
from .fleet import Fleet, Nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .cluster import LocalCluster

_TYPE = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt"}
IMAGES = "stock.example/kubevirt"
"""The registry of KubeVirt's images."""
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
# KubeVirt's Deployments run on nodes of the control plane only, and its handlers do not tolerate their taint.
CONTROL_PLANE_NODE = Nodes(
    name="control-plane-0", labels={CONTROL_PLANE: ""}, taints=({"key": CONTROL_PLANE, "effect": "NoSchedule"},)
)
# A seed needs nodes for handlers: KubeVirt is not Available without any. virt-operator scales virt-api with their number, and
# two make as many replicas as any fleet below 30 nodes. Under HCO, one node of the control plane makes one replica.
SEED_NODES = ("seed-0", "seed-1")
SEED = Fleet.from_groups(CONTROL_PLANE_NODE, *(Nodes(name=name) for name in SEED_NODES))
SEED_API_REPLICAS, SEED_API_REPLICAS_OF_HCO = 2, 1

# What demo nodes and most fleets of tests have. To permit more means a change of KubeVirt's object, with which virt-operator is
# busy for 15 s.
DEVICES = ("nvidia.com/AD102GL_L40S", "nvidia.com/GA100_A100_PCIE_40GB")


def _permitted(devices: Iterable[str]) -> dict[str, Any]:
    """Return the part of KubeVirt's configuration that permits devices whose plugins are not KubeVirt's."""
    return {
        "permittedHostDevices": {
            "pciHostDevices": [
                {"pciVendorSelector": f"10DE:{number:04X}", "resourceName": device, "externalResourceProvider": True}
                for number, device in enumerate(devices, start=1)
            ]
        }
    }


# As in a new KubeVirt object of KubeVirt's release, but for what has a comment.
SPEC: dict[str, Any] = {
    "certificateRotateStrategy": {},
    "configuration": {
        # KubeVirt 1.9 turns the gate on, and its API server cannot be built; while that is missing, Kubernetes deletes no
        # namespace.
        "developerConfiguration": {"featureGates": [], "disabledFeatureGates": ["Template"]},
        "imagePullPolicy": "IfNotPresent",
        # virt-operator would write all of KubeVirt's 119 instance types and preferences again with each change of its object.
        "commonInstancetypesDeployment": {"enabled": False},
        **_permitted(DEVICES),
    },
    "customizeComponents": {},
    "imagePullPolicy": "IfNotPresent",
    "workloadUpdateStrategy": {},
}


def install(cluster: LocalCluster, folder: Path) -> None:
    """Install KubeVirt as its users do, and wait until it works."""
    options = cluster.options
    manifest = programs.manifest(folder, options.namespace, IMAGES)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
    if not options.hco:
        metadata = {"name": "kubevirt", "namespace": options.namespace}
        create = partial(_accepted, cluster, "create_namespaced", {**_TYPE, "metadata": metadata, "spec": SPEC})
        cluster.wait(create, 60, "the KubeVirt object to be accepted")
    cluster.wait(lambda: works(cluster), 240, "KubeVirt to be available", interval=0.5)


def _accepted(cluster: LocalCluster, verb: str, *arguments: Any) -> bool:
    """Write the KubeVirt object; its definition and virt-operator's webhook are not there at first."""
    try:
        _call(cluster, verb, *arguments)
    except client.ApiException:
        return False
    return True


def _call(cluster: LocalCluster, verb: str, *arguments: Any) -> dict[str, Any]:
    """Call the API of KubeVirt objects."""
    method = getattr(client.CustomObjectsApi(cluster.api_client), f"{verb}_custom_object")
    return dict(method("kubevirt.io", "v1", cluster.options.namespace, "kubevirts", *arguments))


def works(cluster: LocalCluster) -> bool:
    """Return whether KubeVirt is deployed and available, has a handler on each node, and answers."""
    try:
        found = _call(cluster, "list_namespaced")["items"]
    except client.ApiException:
        return False
    return bool(found) and _available(found[0]) and _handlers_ready(cluster) and _answers(cluster)


def _available(kubevirt: Mapping[str, Any]) -> bool:
    status = kubevirt.get("status", {})
    return (
        status.get("phase") == "Deployed"
        and conditions(kubevirt).get("Available") == "True"
        and status.get("observedGeneration") == kubevirt["metadata"]["generation"]
    )


def conditions(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the status of each of an object's conditions."""
    return {each["type"]: each["status"] for each in obj.get("status", {}).get("conditions") or ()}


def _handlers_ready(cluster: LocalCluster) -> bool:
    """Return whether all nodes that have a handler are schedulable: a handler says so a moment after it is Ready."""
    apps, core = client.AppsV1Api(cluster.api_client), client.CoreV1Api(cluster.api_client)
    status = apps.read_namespaced_daemon_set("virt-handler", cluster.options.namespace).status
    schedulable = core.list_node(label_selector="kubevirt.io/schedulable=true").items
    return bool(0 < status.desired_number_scheduled == status.number_ready <= len(schedulable))


def _answers(cluster: LocalCluster) -> bool:
    """Return whether virt-api answers: the API server asks it before it accepts any virtual machine."""
    services = client.CustomObjectsApi(cluster.api_client)
    name = "v1.subresources.kubevirt.io"
    service = services.get_cluster_custom_object("apiregistration.k8s.io", "v1", "apiservices", name)
    return conditions(service).get("Available") == "True"


def permit_devices(cluster: LocalCluster, devices: Iterable[str]) -> None:
    """Let virtual machines have these devices, too."""
    more = sorted({*devices} - {*DEVICES})
    if more and not cluster.options.hco:
        spec = {"configuration": _permitted([*DEVICES, *more])}
        change = partial(_accepted, cluster, "patch_namespaced", "kubevirt", {"spec": spec})
        cluster.wait(change, 60, "the KubeVirt object to be changed")
