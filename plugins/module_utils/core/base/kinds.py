# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The kinds of objects that we read and write, with their REST paths, so that no discovery is needed."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Kind:
    """A kind of object in one API version."""

    api_version: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def base_path(self) -> str:
        """REST path of the API version, where the server lists the resources that it serves."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """REST path of one object; without ``name`` of all objects, without ``namespace`` in all namespaces.

        Raises ValueError when the arguments do not fit the kind, which is a mistake in our code.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.name} objects have no namespace, but {namespace!r} was given")
        if namespace is None and name is not None and self.namespaced:
            raise ValueError(f"{self.name} {name!r} needs a namespace")
        parts = [self.base_path]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        return "/".join(parts)

    def object(self, name: str, namespace: str | None = None, **fields: t.Any) -> dict[str, t.Any]:
        """A new object of this kind with this name and namespace, and ``fields`` at its top level."""
        metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
        return {"apiVersion": self.api_version, "kind": self.name, "metadata": metadata, **fields}

    def __str__(self) -> str:
        return self.name


NODE = Kind("v1", "Node", "nodes", namespaced=False)
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
POD = Kind("v1", "Pod", "pods")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
CONTROLLER_REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
DAEMON_SET = Kind("apps/v1", "DaemonSet", "daemonsets")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
SELF_SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
SELF_SUBJECT_RULES_REVIEW = Kind(
    "authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False
)
SELF_SUBJECT_REVIEW = Kind("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)

KUBEVIRT = Kind("kubevirt.io/v1", "KubeVirt", "kubevirts")
VIRTUAL_MACHINE = Kind("kubevirt.io/v1", "VirtualMachine", "virtualmachines")
VIRTUAL_MACHINE_SUBRESOURCES = Kind("subresources.kubevirt.io/v1", "VirtualMachine", "virtualmachines")
"""virt-api's subresources of VirtualMachines, such as ``expand-spec``."""
VIRTUAL_MACHINE_INSTANCE = Kind("kubevirt.io/v1", "VirtualMachineInstance", "virtualmachineinstances")
VIRTUAL_MACHINE_INSTANCE_MIGRATION = Kind(
    "kubevirt.io/v1", "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations"
)
INSTANCETYPE = Kind("instancetype.kubevirt.io/v1beta1", "VirtualMachineInstancetype", "virtualmachineinstancetypes")
CLUSTER_INSTANCETYPE = Kind(
    "instancetype.kubevirt.io/v1beta1",
    "VirtualMachineClusterInstancetype",
    "virtualmachineclusterinstancetypes",
    namespaced=False,
)
PREFERENCE = Kind("instancetype.kubevirt.io/v1beta1", "VirtualMachinePreference", "virtualmachinepreferences")
CLUSTER_PREFERENCE = Kind(
    "instancetype.kubevirt.io/v1beta1",
    "VirtualMachineClusterPreference",
    "virtualmachineclusterpreferences",
    namespaced=False,
)
NETWORK_ATTACHMENT_DEFINITION = Kind(
    "k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "network-attachment-definitions"
)
WORKER_POOL = Kind("worker.kubevirt.io/v1alpha1", "WorkerPool", "workerpools", namespaced=False)

HYPER_CONVERGED = Kind("hco.kubevirt.io/v1", "HyperConverged", "hyperconvergeds")
HYPER_CONVERGED_V1BETA1 = Kind("hco.kubevirt.io/v1beta1", "HyperConverged", "hyperconvergeds")
"""Most installed versions of HCO serve this one; ``Cluster.first_served`` tells which of the two to use."""

_ADMISSION_VERSIONS = tuple(f"admissionregistration.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))

MUTATING_ADMISSION_POLICIES = tuple(
    Kind(version, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", namespaced=False)
    for version in _ADMISSION_VERSIONS
)
"""On by default from Kubernetes 1.36 (v1); ``Cluster.first_served`` tells which version to use."""
MUTATING_ADMISSION_POLICY_BINDINGS = tuple(
    Kind(version, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", namespaced=False)
    for version in _ADMISSION_VERSIONS
)
"""In the order of MUTATING_ADMISSION_POLICIES."""
VALIDATING_ADMISSION_POLICY = Kind(
    _ADMISSION_VERSIONS[0], "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False
)
"""On by default from Kubernetes 1.30, always as v1."""
VALIDATING_ADMISSION_POLICY_BINDING = Kind(
    _ADMISSION_VERSIONS[0], "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False
)
MUTATING_WEBHOOK_CONFIGURATION = Kind(
    _ADMISSION_VERSIONS[0], "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
)
SECURITY_CONTEXT_CONSTRAINTS = Kind(
    "security.openshift.io/v1", "SecurityContextConstraints", "securitycontextconstraints", namespaced=False
)
"""OpenShift's rules for pods; KubeVirt, too, takes a cluster that serves them for OpenShift."""
PROMETHEUS_RULE = Kind("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules")
"""Of the Prometheus operator."""
KYVERNO_MUTATING_POLICY = Kind("policies.kyverno.io/v1", "MutatingPolicy", "mutatingpolicies", namespaced=False)
