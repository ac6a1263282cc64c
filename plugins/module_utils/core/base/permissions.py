# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The API rights that each kind of run needs."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .objects import Object


@dataclass(frozen=True, order=True)
class Permission:
    """One right on the API, with the fields of Kubernetes' ``ResourceAttributes``. An empty ``group`` is the core group; an
    empty ``namespace`` or ``name`` means all namespaces or names."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """Like ``patch daemonsets.apps in namespace kubevirt``, or ``update nodes/status`` for a subresource."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        subresource = f"/{self.subresource}" if self.subresource else ""
        name = f" {self.name}" if self.name else ""
        namespace = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{subresource}{name}{namespace}"

    def is_granted_by(self, rule: Object) -> bool:
        """Whether a rule (Kubernetes' ``ResourceRule``) that holds in all namespaces gives this right.

        As the API server matches RBAC rules (``VerbMatches`` and the like in k8s.io/component-helpers/auth/rbac/validation).
        """
        resources = {"*", self.resource}
        if self.subresource:
            resources = {"*", f"{self.resource}/{self.subresource}", f"*/{self.subresource}"}
        only = rule.get("resourceNames") or ()
        return (
            not {"*", self.verb}.isdisjoint(rule.get("verbs") or ())
            and not {"*", self.group}.isdisjoint(rule.get("apiGroups") or ())
            and not resources.isdisjoint(rule.get("resources") or ())
            and (not only or (self.name != "" and self.name in only))
        )


def _all(verbs: str, resource: str, group: str = "", subresource: str = "") -> tuple[Permission, ...]:
    return tuple(Permission(verb, resource, group, subresource=subresource) for verb in verbs.split())


_ADMISSION = "admissionregistration.k8s.io"
_KYVERNO = "policies.kyverno.io"
_MONITORING = "monitoring.coreos.com"
_INSTANCETYPE = "instancetype.kubevirt.io"

READER: tuple[Permission, ...] = (
    *_all("get list", "nodes"),
    *_all("list", "pods"),
    *_all("get list", "daemonsets", "apps"),
    *_all("get", "deployments", "apps"),
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
    *_all("list", "mutatingwebhookconfigurations", _ADMISSION),
    *_all("get", "validatingadmissionpolicies", _ADMISSION),
    *_all("get", "validatingadmissionpolicybindings", _ADMISSION),
    *_all("get", "mutatingpolicies", _KYVERNO),
    *_all("list", "prometheusrules", _MONITORING),
)
"""What the reading modules ``plan_info``, ``pool_info`` and ``verification_info`` need."""

LIST_POLICIES: tuple[Permission, ...] = (
    *_all("list", "mutatingadmissionpolicies", _ADMISSION),
    *_all("list", "mutatingadmissionpolicybindings", _ADMISSION),
    *_all("list", "validatingadmissionpolicies", _ADMISSION),
    *_all("list", "validatingadmissionpolicybindings", _ADMISSION),
)
"""What saves reading each policy by its name."""

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
"""What ``explanation_info`` needs besides."""

WRITER: tuple[Permission, ...] = (
    *READER,
    *_all("patch", "nodes"),
    *_all("patch", "virtualmachineinstances", "kubevirt.io"),
    *_all("create update", "configmaps"),
    *_all("get create delete", "pods"),
    *_all("create patch update delete", "daemonsets", "apps"),
    *_all("list", "controllerrevisions", "apps"),
    *_all("create update delete", "leases", "coordination.k8s.io"),
    *_all("update", "kubevirts", "kubevirt.io"),
)
"""What a run needs on a stock KubeVirt. A user who may create pods and DaemonSets effectively has root on the nodes."""

FOLLOW: tuple[Permission, ...] = _all("watch", "pods")
"""Optional: without it, a run polls each node once a second."""

WRITER_HCO: tuple[Permission, ...] = _all("get update", "hyperconvergeds", "hco.kubevirt.io")
"""What a run needs besides on a cluster that HCO manages."""

OPERATOR: tuple[Permission, ...] = _all("get list create update delete", "workerpools", "worker.kubevirt.io")
"""What an operator-mode run also needs where KubeVirt's own pools are objects. It creates and deletes no pods or DaemonSets."""

OPERATOR_WRITER: tuple[Permission, ...] = (
    *READER,
    *_all("list create update delete", "configmaps"),
    *_all("create update delete", "leases", "coordination.k8s.io"),
    *_all("update", "kubevirts", "kubevirt.io"),
    *_all("patch", "virtualmachineinstances", "kubevirt.io"),
)
"""What an operator-mode run needs."""

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
"""What a run needs besides to write the node policy. It creates nodes only as dry runs, to try the policy."""

ASSIGN_OWNERS = Permission("assign", "nodeowners", "virtpools.io")
"""With this right, one may change owners of nodes in spite of the guard. No API serves the resource."""

GUARD: tuple[Permission, ...] = (
    *_all("create update delete", "validatingadmissionpolicies", _ADMISSION),
    *_all("create update delete", "validatingadmissionpolicybindings", _ADMISSION),
    *_all("create", "nodes"),
    ASSIGN_OWNERS,
)
"""What a run needs besides on a cluster that has the guard or gets it. It creates nodes only as dry runs, to try it."""

ALERTS: tuple[Permission, ...] = _all("create patch update delete", "prometheusrules", _MONITORING)
"""What a run needs besides to write or delete the alerts."""

LEFTOVERS: tuple[Permission, ...] = (
    *READER,
    *_all("patch", "nodes"),
    *_all("delete", "pods"),
    *_all("delete", "daemonsets", "apps"),
    *_all("delete", "configmaps"),
    *_all("create update delete", "leases", "coordination.k8s.io"),
)
"""What ``leftovers`` needs, besides the rights to delete policies and alerts."""

_MIGRATE: tuple[Permission, ...] = _all("get create delete", "virtualmachineinstancemigrations", "kubevirt.io")

CANARY_VM: tuple[Permission, ...] = (*_all("create delete", "virtualmachines", "kubevirt.io"), *EXPLAIN)
"""What ``canary_vm`` needs besides; with an instancetype it reads what ``explanation_info`` reads."""

WORKLOAD_UPDATE: tuple[Permission, ...] = (*READER, *_MIGRATE, *_all("patch", "virtualmachineinstances", "kubevirt.io"))
"""What ``workload_update`` needs."""


def for_operator_run(*, hco: bool, objects: bool) -> tuple[Permission, ...]:
    """What an operator-mode run needs. ``objects``: the pools are objects, and no list."""
    return (*OPERATOR_WRITER, *(WRITER_HCO if hco else ()), *(OPERATOR if objects else ()))


def for_run(
    *, hco: bool, parts: t.Iterable[Permission] = (), migrates: bool = False, canary_vms: bool = False
) -> tuple[Permission, ...]:
    """What a run needs.

    :param hco: whether HCO manages KubeVirt.
    :param parts: what the parts of the run need.
    :param migrates: whether the run migrates VMs.
    :param canary_vms: whether the run starts or deletes canary VMs.
    """
    return (
        *WRITER,
        *(WRITER_HCO if hco else ()),
        *parts,
        *(_MIGRATE if migrates else ()),
        *(CANARY_VM if canary_vms else ()),
    )
