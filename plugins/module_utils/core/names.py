# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every label, annotation and object name this collection uses, once."""

from __future__ import annotations

OWNER_LABEL = "virtpools.io/pool"
"""On nodes and pool handler pods. Absent on a node: the primary owns it."""

IN_TRANSIT = "in_transit"
"""Value of OWNER_LABEL while nobody owns the node; the underscore keeps it from being a pool's name."""

FORMER_OWNER_ANNOTATION = "virtpools.io/former-owner"
"""On a node during its handover: where it goes back to when the new handler does not come up. While its handler is replaced: its
owner itself."""

TEMPLATE_ANNOTATION = "virtpools.io/template"
"""On a pool DaemonSet's pod template: digest of the template, so that a pod tells which template it was made from."""

POOL_ANNOTATION = "virtpools.io/pool-spec"
"""On a pool DaemonSet: the pool it was derived for, in our form as canonical JSON."""

PULL_LABEL = "virtpools.io/pull"
"""On the short-lived pods that pull a pool's images to a node."""

POLICY = "virtpools-launcher"
"""Name of the launcher policy (and of its binding), of whatever kind."""

CANDIDATE_POLICY = "virtpools-launcher-candidate"
"""Name of the launcher policy that only probes see, while it is tried out."""

OUTDATED_POLICY = "virtpools-outdated"
"""Name of the policy (and of its binding) that keeps KubeVirt from calling pool VMs outdated."""

NODE_POLICY = "virtpools-nodes"
"""Name of the policy (and of its binding) that gives nodes an owner when they are created."""

CANDIDATE_NODE_POLICY = "virtpools-nodes-candidate"
"""The same while it is tried out: only probes see it."""

OWNER_GUARD = "virtpools-guard-owner"
"""Name of the policy (and of its binding) that keeps others from changing OWNER_LABEL."""

EXCLUSION_GUARD = "virtpools-guard-exclusion"
"""Name of the policy (and of its binding) that keeps the primary from losing the exclusion."""

GUARDS = (OWNER_GUARD, EXCLUSION_GUARD)

POLICIES = (POLICY, CANDIDATE_POLICY, OUTDATED_POLICY, NODE_POLICY, CANDIDATE_NODE_POLICY)

HISTORY = "virtpools-history"
"""The ConfigMap in KubeVirt's namespace that holds the pool lists applied last."""

AIE_CONFIG = "kubevirt-aie-launcher-config"
"""The ConfigMap that kubevirt-aie-webhook reads, in KubeVirt's namespace."""

MAPPING_ANNOTATION = "virtpools.io/mapping"
"""On a launcher policy: the mapping table it was made from."""

POLICY_ANNOTATION = "virtpools.io/policy"
"""On a launcher policy, and on each launcher pod that it admitted: the policy's digest."""

PROBE_LABEL = "virtpools.io/probe"
"""On the objects, never stored, that a policy is tried with."""

CANARY_LABEL = "virtpools.io/canary"
"""On a VM: the pool whose new launcher image it gets before that is in effect for the pool's other VMs."""

STOCK_IMAGE_ENV = "VIRTPOOLS_STOCK_IMAGE"
"""On ``compute`` of a launcher pod whose pool has an image: the launcher image that it came with. VM owners can set
annotations, but no variable."""

POOL_ENV = "VIRTPOOLS_POOL"
"""On ``compute`` of every launcher pod that a policy admitted: the pool that the VM was given, or PRIMARY."""

PRIMARY = "primary"
"""How messages, plans and annotations name the stock DaemonSet as an owner; no pool may have this name."""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "virtpools"
FIELD_MANAGER = "virtpools"

LEASE_NAME = "virtpools"

KUBEVIRT_LABEL = "kubevirt.io"
HANDLER = "virt-handler"
"""Value of KUBEVIRT_LABEL on handler pods, name of the primary DaemonSet and of its handler container."""

LAUNCHER = "virt-launcher"
"""Value of KUBEVIRT_LABEL on launcher pods."""

COMPUTE = "compute"
"""The container of a launcher pod that runs the guest; its limits name the devices that the VM asks for."""

CONTROLLER_ACCOUNT = "kubevirt-controller"
"""virt-controller's ServiceAccount, in KubeVirt's namespace: it makes the launcher pods."""

CREATED_BY_LABEL = "kubevirt.io/created-by"
"""On a launcher pod: the uid of its VMI."""

OUTDATED_LABEL = "kubevirt.io/outdatedLauncherImage"
"""On a VMI whose compute image is not KubeVirt's own launcher image: no evidence where pools have images of their own."""

HOSTNAME_LABEL = "kubernetes.io/hostname"

NODE_NAME_LABEL = "kubevirt.io/nodeName"
"""On a VMI whose pod runs: the node it runs on."""

SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
HEARTBEAT_ANNOTATION = "kubevirt.io/heartbeat"

HCO_NAME = "kubevirt-hyperconverged"
HCO_PATCH_ANNOTATION = "kubevirt.kubevirt.io/jsonpatch"


def controller_user(namespace: str) -> str:
    """Who creates launcher pods where KubeVirt is in ``namespace``, as admission sees it."""
    return f"system:serviceaccount:{namespace}:{CONTROLLER_ACCOUNT}"


def pool_daemonset_name(pool: str) -> str:
    """Name of a pool's DaemonSet. The prefix is what KubeVirt's alerts and metrics select handler pods by."""
    return f"{HANDLER}-{pool}"
