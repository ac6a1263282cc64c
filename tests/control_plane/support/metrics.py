# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The metrics of a cluster with two pools, with the names and labels of kube-state-metrics, API servers and verify.

Those of kube-state-metrics and API servers were seen on a local cluster with KubeVirt, with kube-state-metrics 2.15.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alert_rules import Scope
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import prometheus
from ansible_collections.virtpools.kubevirt.tests.unit.support import reports
from promtool import MINUTES, Series, over_time, series

SCOPE = Scope("kubevirt", ("gpu", "rt"), admission_policy=True)
NODES = {"gpu-0": "gpu", "gpu-1": "gpu", "rt-0": "rt", "plain-0": "primary"}
"""The owner of each node."""
ILL = 10
"""The minute in which something goes wrong."""

DESIRED = "kube_daemonset_status_desired_number_scheduled"
MISSCHEDULED = "kube_daemonset_status_number_misscheduled"
UPDATED = "kube_daemonset_status_updated_number_scheduled"
READY = "kube_daemonset_status_number_ready"
POD, POD_READY, POD_CREATED = "kube_pod_info", "kube_pod_status_ready", "kube_pod_created"
NODE_READY, NODE_LABELS = "kube_node_status_condition", "kube_node_labels"
MUTATING, VALIDATING = (f"apiserver_{kind}_admission_policy_check_total" for kind in ("mutating", "validating"))

ALWAYS = over_time(then=1)
NEVER = over_time(then=None)


def daemonset(status: str, owner: str) -> str:
    return series(status, namespace="kubevirt", daemonset=daemonset_name(owner))


def daemonset_name(owner: str) -> str:
    return "virt-handler" if owner == "primary" else f"virt-handler-{owner}"


def handler(node: str, owner: str, *, waits: bool = False) -> str:
    """Return the handler pod that a node has from an owner.

    :param waits: it cannot be scheduled.
    """
    by = {"created_by_kind": "DaemonSet", "created_by_name": daemonset_name(owner)}
    on = "" if waits else node
    return series(POD, namespace="kubevirt", pod=f"{by['created_by_name']}-{node}", uid=node, node=on, **by)


def handler_ready(node: str, owner: str) -> str:
    pod = f"{daemonset_name(owner)}-{node}"
    return series(POD_READY, namespace="kubevirt", pod=pod, uid=node, condition="true")


def node_ready(node: str) -> str:
    return series(NODE_READY, node=node, condition="Ready", status="true")


def owner_label(node: str, value: str) -> str:
    return series(NODE_LABELS, node=node, label_virtpools_io_pool=value)


def launcher(number: int, minute: int) -> Series:
    """Return a VM's pod that was created in this minute."""
    pod = {"namespace": "team-a", "pod": f"virt-launcher-vm{number}", "uid": f"vm{number}"}
    by = {"created_by_kind": "VirtualMachineInstance", "created_by_name": f"vm{number}"}
    return {
        series(POD_CREATED, **pod): over_time((None, minute), then=60 * minute),
        series(POD, **pod, node="gpu-0", **by): over_time((None, minute), then=1),
    }


def checked(instance: str = "api-0", policy: str = "virtpools-launcher", error: str = "no_error") -> str:
    """Return the counter of what an API server did for a policy."""
    return series(MUTATING, instance=instance, policy=policy, policy_binding=policy, error_type=error)


def verified(**fields: Any) -> Series:
    """Return the metrics of a report, as the node exporter serves them."""
    text = prometheus.render(reports.report(pools=SCOPE.pools, **fields), timestamp=0)
    samples = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.replace("{}", ""): over_time(then=float(value)) for name, _space, value in samples}


def well() -> Series:
    """Return the metrics of a cluster with which nothing is wrong."""
    counts = {owner: sum(each == owner for each in NODES.values()) for owner in ("primary", *SCOPE.pools)}
    return {
        **{
            daemonset(status, owner): over_time(then=count)
            for owner, count in counts.items()
            for status in (DESIRED, UPDATED, READY)
        },
        **{daemonset(MISSCHEDULED, owner): over_time(then=0) for owner in counts},
        **{each(node, owner): ALWAYS for node, owner in NODES.items() for each in (handler, handler_ready)},
        **{node_ready(node): ALWAYS for node in NODES},
        **{owner_label(node, owner): ALWAYS for node, owner in NODES.items() if owner != "primary"},
        **launcher(1, 30),
        **launcher(2, 300),
        checked(): over_time((7, 30), (8, 270), then=9),
        series(VALIDATING, policy="virtpools-guard-owner", error_type="no_error", enforcement_action="deny"): ALWAYS,
        **verified(),
        "virtpools_verification_timestamp_seconds": [60 * minute for minute in range(MINUTES)],
    }
