# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Whether a node would get a handler now. A handler that runs need not: a NoSchedule taint leaves the pods alone that are
there, and the DaemonSet controller does not recreate it. So ask before a handler is deleted."""

from __future__ import annotations

from ..base import affinity, names
from ..base.objects import KubeObject, field
from ..base.selectors import untolerated
from ..observed.nodes import Node
from ..pools.quantities import Quantity
from . import exclusion

_DAEMON_POD_TOLERATIONS: tuple[KubeObject, ...] = tuple(
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists"}
    for condition in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
)
"""What the DaemonSet controller lets every one of its pods tolerate (Kubernetes)."""


def primary_template(primary: KubeObject) -> KubeObject:
    """The pod template of the primary's DaemonSet, as it was without our exclusion."""
    return {"spec": exclusion.without_exclusion_terms(primary["spec"]["template"]["spec"])}


def unfit(template: KubeObject, node: Node) -> str | None:
    """Why a DaemonSet with this pod template would not put a pod on the node; None when it would.

    The owner label is ignored: a handover changes it.
    """
    spec = template["spec"]
    for key, value in (spec.get("nodeSelector") or {}).items():
        if key != names.OWNER_LABEL and node.labels.get(key) != value:
            return f"its DaemonSet selects {key}={value}"
    if not affinity.is_met(affinity.required_terms(spec.get("affinity")), node.labels, node.name):
        return "no required node-affinity term of its DaemonSet (from KubeVirt's spec.workloads.nodePlacement) fits"
    taints = untolerated((*(spec.get("tolerations") or ()), *_DAEMON_POD_TOLERATIONS), node.taints)
    if taints:
        shown = ", ".join(f"{t_['key']}={t_.get('value') or ''}:{t_['effect']}" for t_ in taints)
        return f"taint {shown} is not tolerated"
    return None


def refusal(template: KubeObject, node: Node) -> str | None:
    """Why no handler from this pod template would start on the node now; None when one would."""
    if not node.ready:
        return "the node is not Ready"
    if node.pressure:
        # The kubelet's eviction manager then admits only pods with a system-critical priority, and virt-handler has less.
        return f"the node has {node.pressure}, and its kubelet starts no handler until that has passed"
    return unfit(template, node) or _too_small(template, node)


def _too_small(template: KubeObject, node: Node) -> str | None:
    """What the containers request more of than the whole node has. Other pods give way: virt-handler has a high priority."""
    containers = template["spec"].get("containers") or ()
    for resource, offered in node.allocatable.items():
        requests = (_request(container, resource) for container in containers)
        if sum(map(_thousandths, requests)) > _thousandths(offered):
            return f"a handler requests more {resource} than the node can give to pods ({offered})"
    return None


def _request(container: KubeObject, resource: str) -> object:
    """What the container requests in a pod. The API server takes the limit where a request is missing, but not in a template."""
    given = field(container, "resources", "requests", resource)
    return field(container, "resources", "limits", resource) if given is None else given


def _thousandths(text: object) -> int:
    amount = Quantity.parse(str(text)) if text else None
    return amount.thousandths if amount else 0
