# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API rights each kind of run needs."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Permission:
    """One right on the API, in RBAC's words. An empty ``group`` is the core group; empty ``namespace`` and ``name``
    ask for the right on all of them."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """As in ``patch daemonsets.apps in namespace kubevirt``; a subresource as in ``update nodes/status``."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        subresource = f"/{self.subresource}" if self.subresource else ""
        name = f" {self.name}" if self.name else ""
        namespace = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{subresource}{name}{namespace}"


def _all(verbs: str, resource: str, group: str = "", subresource: str = "") -> tuple[Permission, ...]:
    return tuple(Permission(verb, resource, group, subresource=subresource) for verb in verbs.split())


_ADMISSION = "admissionregistration.k8s.io"
_KYVERNO = "policies.kyverno.io"
_INSTANCETYPE = "instancetype.kubevirt.io"

READER: tuple[Permission, ...] = (
    *_all("get list", "nodes"),
    *_all("list", "pods"),
    *_all("get list", "daemonsets", "apps"),
    *_all("get", "leases", "coordination.k8s.io"),
    *_all("get", "customresourcedefinitions", "apiextensions.k8s.io"),
    *_all("get list", "kubevirts", "kubevirt.io"),
    *_all("list", "virtualmachines", "kubevirt.io"),
    *_all("get list", "virtualmachineinstances", "kubevirt.io"),
    *_all("list", "virtualmachineinstancemigrations", "kubevirt.io"),
    *_all("list", "hyperconvergeds", "hco.kubevirt.io"),
    *_all("get list", "namespaces"),
    *_all("get", "configmaps"),
    *_all("get", "mutatingadmissionpolicies", _ADMISSION),
    *_all("get", "mutatingadmissionpolicybindings", _ADMISSION),
    *_all("get", "validatingadmissionpolicies", _ADMISSION),
    *_all("get", "validatingadmissionpolicybindings", _ADMISSION),
    *_all("get", "mutatingpolicies", _KYVERNO),
)
"""What reading modules ask of the API: ``plan_info``, ``pool_info`` and ``launcher_images_info``."""

EXPLAIN: tuple[Permission, ...] = (
    *_all("get", "virtualmachines", "kubevirt.io"),
    *_all("get", "virtualmachines", "subresources.kubevirt.io", "expand-spec"),
    *_all("get", "controllerrevisions", "apps"),
    *_all("get", "virtualmachineinstancetypes", _INSTANCETYPE),
    *_all("get", "virtualmachineclusterinstancetypes", _INSTANCETYPE),
    *_all("get", "virtualmachinepreferences", _INSTANCETYPE),
    *_all("get", "virtualmachineclusterpreferences", _INSTANCETYPE),
    *_all("get", "network-attachment-definitions", "k8s.cni.cncf.io"),
)
"""What ``launcher_explain_info`` asks besides."""

_POOLS_FROM_CLUSTER: tuple[Permission, ...] = _all("list", "workerpools", "worker.kubevirt.io")
"""Only where the pool list itself is read from the cluster."""

WRITER: tuple[Permission, ...] = (
    *READER,
    *_all("patch", "nodes"),
    *_all("create update", "configmaps"),
    *_all("get create delete", "pods"),
    *_all("create patch update delete", "daemonsets", "apps"),
    *_all("create update delete", "leases", "coordination.k8s.io"),
    *_all("update", "kubevirts", "kubevirt.io"),
)
"""What a run needs on a stock KubeVirt. Pods and DaemonSets: whoever may create them is as good as root on the nodes."""

WRITER_HCO: tuple[Permission, ...] = _all("get update", "hyperconvergeds", "hco.kubevirt.io")
"""What a run needs besides on a cluster that HCO manages."""

WRITER_OF_BACKEND: t.Mapping[str, tuple[Permission, ...]] = {
    "admission_policy": (
        *_all("create update delete", "mutatingadmissionpolicies", _ADMISSION),
        *_all("create update delete", "mutatingadmissionpolicybindings", _ADMISSION),
    ),
    "kyverno": _all("create update delete", "mutatingpolicies", _KYVERNO),
    "aie_webhook": _all("create update delete", "configmaps"),
}
"""What a run needs besides to write the launcher policy, by back end."""

ASSIGN_NEW_NODES: tuple[Permission, ...] = (
    *WRITER_OF_BACKEND["admission_policy"],
    *_all("create", "nodes"),
)
"""What a run needs besides to give new nodes their owner; it creates nodes as dry runs only, to try the policy."""

ASSIGN_OWNERS = Permission("assign", "nodeowners", "virtpools.io")
"""Who has it may change the owner of nodes in spite of the guard. No API serves this resource: only the guard asks for it."""

GUARD: tuple[Permission, ...] = (
    *_all("create update delete", "validatingadmissionpolicies", _ADMISSION),
    *_all("create update delete", "validatingadmissionpolicybindings", _ADMISSION),
    *_all("create", "nodes"),
    ASSIGN_OWNERS,
)
"""What a run needs besides where the cluster has the guard or gets it; it creates nodes as dry runs only, to try it."""

LEFTOVERS: tuple[Permission, ...] = (
    *READER,
    *_all("patch", "nodes"),
    *_all("delete", "pods"),
    *_all("delete", "daemonsets", "apps"),
    *_all("delete", "configmaps"),
    *_all("create update delete", "leases", "coordination.k8s.io"),
)
"""What ``leftovers`` needs, besides what it takes to delete policies."""

_MIGRATE: tuple[Permission, ...] = _all("get create delete", "virtualmachineinstancemigrations", "kubevirt.io")

CANARY_VM: tuple[Permission, ...] = (*_all("create delete", "virtualmachines", "kubevirt.io"), *EXPLAIN)
"""What ``canary_vm`` needs besides; with an instancetype it reads what ``launcher_explain_info`` reads."""

WORKLOAD_UPDATE: tuple[Permission, ...] = (*READER, *_MIGRATE)
"""What ``workload_update`` needs."""


def for_run(
    *,
    hco: bool,
    backend: str = "none",
    node_policy: bool = False,
    guard: bool = False,
    migrates: bool = False,
    canary_vms: bool = False,
) -> tuple[Permission, ...]:
    """What a run needs on this cluster, with this launcher back end; ``node_policy``: where it writes or deletes that;
    ``guard``: where the cluster has it or gets it; ``migrates``: where it migrates VMs; ``canary_vms``: where it starts or
    deletes such."""
    more = (
        *(WRITER_HCO if hco else ()),
        *(ASSIGN_NEW_NODES if node_policy else ()),
        *(GUARD if guard else ()),
        *(_MIGRATE if migrates else ()),
        *(CANARY_VM if canary_vms else ()),
    )
    return (*WRITER, *more, *WRITER_OF_BACKEND.get(backend, ()))


def shipped(role: str) -> tuple[Permission, ...]:
    """Everything the ClusterRole ``reader`` or ``writer`` that we ship must grant."""
    rights = {*READER, *EXPLAIN, *_POOLS_FROM_CLUSTER}
    if role == "writer":
        rights.update(
            for_run(hco=True),
            ASSIGN_NEW_NODES,
            GUARD,
            CANARY_VM,
            LEFTOVERS,
            WORKLOAD_UPDATE,
            *WRITER_OF_BACKEND.values(),
        )
    return tuple(sorted(rights))
