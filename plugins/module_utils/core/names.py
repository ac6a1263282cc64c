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
"""On a node during its handover: where it goes back to when the new handler does not come up."""

TEMPLATE_ANNOTATION = "virtpools.io/template"
"""On a pool DaemonSet's pod template: digest of the template, so that a pod tells which template it was made from."""

POOL_ANNOTATION = "virtpools.io/pool-spec"
"""On a pool DaemonSet: the pool it was derived for, in our form as canonical JSON."""

PULL_LABEL = "virtpools.io/pull"
"""On the short-lived pods that pull a pool's images to a node."""

PRIMARY = "primary"
"""How messages, plans and annotations name the stock DaemonSet as an owner; no pool may have this name."""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "virtpools"
FIELD_MANAGER = "virtpools"

LEASE_NAME = "virtpools"

KUBEVIRT_LABEL = "kubevirt.io"
HANDLER = "virt-handler"
"""Value of KUBEVIRT_LABEL on handler pods, name of the primary DaemonSet and of its handler container."""

SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
HEARTBEAT_ANNOTATION = "kubevirt.io/heartbeat"

HCO_NAME = "kubevirt-hyperconverged"
HCO_PATCH_ANNOTATION = "kubevirt.kubevirt.io/jsonpatch"


def pool_daemonset_name(pool: str) -> str:
    """Name of a pool's DaemonSet. The prefix is what KubeVirt's alerts and metrics select handler pods by."""
    return f"{HANDLER}-{pool}"
