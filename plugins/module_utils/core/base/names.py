# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Every label, annotation and object name that this collection uses."""

from __future__ import annotations

import hashlib

OWNER_LABEL = "virtpools.io/pool"
"""On nodes and pool handler pods: the owner. A node without it belongs to the primary."""

IN_TRANSIT = "in_transit"
"""Value of OWNER_LABEL while the node has no owner. No pool can have this name, because of the underscore."""

FORMER_OWNER_ANNOTATION = "virtpools.io/former-owner"
"""On a node during its handover: the owner that it goes back to when the new handler does not become Ready. While only its
handler is replaced, this is its owner."""

UNTIL_PREFIX = "until.virtpools.io/"
"""On nodes, followed by an owner: the epoch in which the node left that owner, while VMs from before still run there."""

REMINDER_ANNOTATION = "virtpools.io/reminder"
"""On a VirtualMachineInstance, for a moment: makes its handler look at it."""

TEMPLATE_ANNOTATION = "virtpools.io/template"
"""On a pool DaemonSet's pod template: the digest of the template, which shows from which template a pod was created."""

POOL_ANNOTATION = "virtpools.io/pool-spec"
"""On a pool DaemonSet: its pool, in our form as canonical JSON."""

CONTENTS_ANNOTATION = "virtpools.io/image-contents"
"""On a pool DaemonSet: what runs found in its images, as JSON."""

PULL_LABEL = "virtpools.io/pull"
"""On the short-lived pods that pull a pool's images to a node."""

POLICY = "virtpools-launcher"
"""Name of the launcher policy and of its binding, in every back end that has policies."""

CANDIDATE_POLICY = "virtpools-launcher-candidate"
"""Name of the launcher policy while a run tries it: only probes see it."""

OUTDATED_POLICY = "virtpools-outdated"
"""Name of the policy (and of its binding) that keeps KubeVirt from calling pool VMs outdated."""

NODE_POLICY = "virtpools-nodes"
"""Name of the policy (and of its binding) that gives nodes an owner when they are created."""

CANDIDATE_NODE_POLICY = "virtpools-nodes-candidate"
"""Name of the node policy while a run tries it: only probes see it."""

OWNER_GUARD = "virtpools-guard-owner"
"""Name of the policy (and of its binding) that keeps others from changing OWNER_LABEL."""

EXCLUSION_GUARD = "virtpools-guard-exclusion"
"""Name of the policy (and of its binding) that keeps the primary from losing the exclusion."""

GUARDS = (OWNER_GUARD, EXCLUSION_GUARD)

POLICIES = (POLICY, CANDIDATE_POLICY, OUTDATED_POLICY, NODE_POLICY, CANDIDATE_NODE_POLICY)

ALERTS = "virtpools-alerts"
"""Name of the PrometheusRule with the alerts on pools."""

ALERTS_ANNOTATION = "virtpools.io/alerts"
"""On that PrometheusRule: the digest of its rules, and what the user chose about it."""

REPORTED_BY_ANNOTATION = "virtpools.io/reported-by"
"""On a ConfigMap with reports: who wrote them. Without it, a ConfigMap is something else."""

HISTORY = "virtpools-history"
"""The ConfigMap in KubeVirt's namespace that holds the pool lists that runs applied last."""

AIE_CONFIG = "kubevirt-aie-launcher-config"
"""The ConfigMap that kubevirt-aie-webhook reads, in KubeVirt's namespace."""

FORMER_RULES_ANNOTATION = "virtpools.io/former-rules"
"""On that ConfigMap: its text before the first rule of ours, where that could not stay around our rules."""

WEBHOOK_IMAGE_ANNOTATION = "kubevirt.io/alternative-launcher-image"
"""On a launcher pod whose image kubevirt-aie-webhook replaced: the image that it gave the pod."""

MAPPING_ANNOTATION = "virtpools.io/mapping"
"""On a launcher policy: its mapping table."""

POLICY_ANNOTATION = "virtpools.io/policy"
"""On a launcher policy and on each launcher pod that it admitted: the policy's digest."""

PROBE_LABEL = "virtpools.io/probe"
"""On probes, the objects that try a policy and are never stored: the name of the policy."""

MIGRATION_LABEL = "kubevirt.io/migrationJobUID"
"""KubeVirt's label on the pod that a migration moves a VM to: the migration's uid."""

CANARY_LABEL = "virtpools.io/canary"
"""On a VM: the pool whose new launcher image it gets before the pool's other VMs do."""

STOCK_IMAGE_ENV = "VIRTPOOLS_STOCK_IMAGE"
"""On ``compute`` of a launcher pod whose pool has an image: the launcher image that the pod came with. VM owners can
set annotations, but not this variable."""

STOCK_HYPERVISOR_ENV = "VIRTPOOLS_STOCK_HYPERVISOR"
"""The same, where some pool has a hypervisor of its own: the hypervisor that the pod came with."""

POOL_ENV = "VIRTPOOLS_POOL"
"""On ``compute`` of each launcher pod that a policy admitted: the pool that the VM got, or PRIMARY."""

KUBEVIRT_DEVICES = "devices.kubevirt.io/"
"""The prefix of the devices that KubeVirt's own device plugins offer."""

PRIMARY = "primary"
"""The name of the stock DaemonSet as an owner in messages, plans and annotations; no pool may have this name."""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "virtpools"
OURS = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
"""Label selector for the objects that this collection creates."""
FIELD_MANAGER = "virtpools"

LEASE_NAME = "virtpools"

KUBEVIRT_LABEL = "kubevirt.io"
HANDLER = "virt-handler"
"""Value of KUBEVIRT_LABEL on handler pods, and name of the primary DaemonSet and of its handler container."""

LAUNCHER = "virt-launcher"
"""Value of KUBEVIRT_LABEL on launcher pods."""

COMPUTE = "compute"
"""The container of a launcher pod that runs the guest. Its limits name the devices that the VM asks for."""

LAUNCHER_VOLUME = "launcher-volume"
"""The volume of a launcher pod that has the launcher image; other image volumes have the disks of the VM's owner."""

CONTROLLER = "virt-controller"
"""The name of virt-controller's Deployment and of its container."""

CONTROLLER_ACCOUNT = "kubevirt-controller"
"""virt-controller's ServiceAccount in KubeVirt's namespace; virt-controller creates the launcher pods."""

OPERATOR_POOL_LABELS = ("kubevirt.io/handler-pool", "kubevirt.io/worker-pool")
"""On DaemonSets and handler pods of KubeVirt's own pools, and as annotation on launcher pods: the pool. A list's pools have the
first, WorkerPool objects the second."""

CREATED_BY_LABEL = "kubevirt.io/created-by"
"""On a launcher pod: the uid of its VMI."""

OUTDATED_LABEL = "kubevirt.io/outdatedLauncherImage"
"""On a VMI whose compute image is not KubeVirt's own launcher image; meaningless when the VM's pool has an image."""

HOSTNAME_LABEL = "kubernetes.io/hostname"

MIGRATION_TARGET_LABEL = "kubevirt.io/migrationTargetNodeName"
"""On a VMI that is being migrated: where to. That node's handler removes it when it has cleaned up."""

NODE_NAME_LABEL = "kubevirt.io/nodeName"
"""On a VMI whose pod runs: the pod's node."""

MACHINE_TYPE_PREFIX = "machine-type.node.kubevirt.io/"
"""On nodes, followed by a machine type that the QEMU of the node's handler has. The target of a migration requires that of its VM
(KubeVirt)."""

SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
HEARTBEAT_ANNOTATION = "kubevirt.io/heartbeat"
GENERATION_ANNOTATION = "kubevirt.io/generation"
"""On virt-operator's DaemonSets: the generation of the KubeVirt object for which it wrote them."""

VERSION_ANNOTATION = "kubevirt.io/install-strategy-version"
"""On virt-operator's DaemonSets and their pods: the version of KubeVirt for which it wrote them."""
DEPLOYMENT_ANNOTATION = "kubevirt.io/install-strategy-identifier"
"""On virt-operator's DaemonSets, their pods and its install strategies: the ID of the deployment for which it wrote them."""
INSTALL_STRATEGY_LABEL = "kubevirt.io/install-strategy"
"""On the ConfigMaps in which virt-operator keeps what it creates for a deployment."""

REQUIRED_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
"""The field of a node affinity whose terms a node must meet."""

HCO_NAME = "kubevirt-hyperconverged"
HCO_PATCH_ANNOTATION = "kubevirt.kubevirt.io/jsonpatch"


def controller_user(namespace: str) -> str:
    """The user name that creates launcher pods when KubeVirt is in ``namespace``, as admission sees it."""
    return f"system:serviceaccount:{namespace}:{CONTROLLER_ACCOUNT}"


def pool_daemonset_name(pool: str) -> str:
    """Name of a pool's DaemonSet. KubeVirt's alerts and metrics select handler pods by its prefix."""
    return f"{HANDLER}-{pool}"


def canary_vm_name(pool: str) -> str:
    """Name of a pool's canary VM: always the same, so that a run finds and replaces what a dead run left behind. Short, so
    that it is a valid host name."""
    return f"virt-canary-{pool}"


PULL, START = "pull", "start"
"""What an image pull pod is for: pulling the images of a handler, or trying whether a launcher pod may use its image."""


def pull_pod_name(purpose: str, node: str) -> str:
    """Name of an image pull pod: the same in every run, so that the next run cleans up after one that died."""
    return f"virtpools-{purpose}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def pull_pod_names(node: str) -> tuple[str, ...]:
    """Names of a node's image pull pods."""
    return tuple(pull_pod_name(purpose, node) for purpose in (PULL, START))
