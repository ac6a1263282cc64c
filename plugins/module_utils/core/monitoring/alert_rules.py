# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The rules for Prometheus: what is recorded of pools and their handlers, and the alerts. docs/alerts.md describes them.

The first recorded series names the pools, and the other rules join it. So the pools are named exactly and in one place,
and the number of rules does not depend on them. An alert needs a sample of each of its metrics, also of those that it
compares with: where a metric is absent, it does not fire.
"""

from __future__ import annotations

import json
import textwrap
import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.objects import Object

AlertSeverity = t.Literal["critical", "warning"]
HealthImpact = t.Literal["critical", "warning", "none"]

GROUP = "virtpools"

POOLS = "pool:virtpools:info"
"""1 for each pool and for the primary, with the labels ``pool``, ``daemonset`` and ``namespace``."""
HANDLERS = "node:virtpools_handler:info"
"""1 for each handler pod, with its node and pool."""
HANDLER_READY = "node:virtpools_handler_ready:min"
"""Whether the handler of a node is Ready."""
DESIRED = "pool:virtpools_handlers_desired:max"
"""The nodes that should have a handler."""
MISSCHEDULED = "pool:virtpools_handlers_misscheduled:max"
"""The nodes that have a handler and should not. A node that is not Ready is one of them: its taint would keep a new handler off."""
READY = "pool:virtpools_handlers_ready:max"

DRIFT = (
    *(
        "alerts_edited",
        "alerts_missing",
        "daemonset_drift",
        "daemonset_left",
        "exclusion_missing",
        "exclusion_outdated",
        "exclusion_overwritten",
    ),
    *("guard_edited", "handover_unfinished", "kept_pool_unreadable", "node_policy_edited", "outdated_policy_stale"),
    *("owner_unknown", "policy_edited", "policy_failing", "policy_not_needed", "policy_outdated", "wrong_handler"),
    "wrong_owner",
)
"""The findings of a verification that mean drift. Those that have an alert of their own are left out."""

_PARTS = {"kubernetes_operator_part_of": "kubevirt", "kubernetes_operator_component": "virtpools"}
"""As KubeVirt labels its own alerts (pkg/monitoring/rules/alerts/alerts.go), with another component."""

_POOLS_ONLY = f'{POOLS}{{pool!="{names.PRIMARY}"}}'
_ON_READY_NODES = 'and on (node) kube_node_status_condition{condition="Ready", status="true"} == 1'
_CHECKED = f'apiserver_mutating_admission_policy_check_total{{policy="{names.POLICY}"}}'


@dataclass(frozen=True)
class Scope:
    """What the rules are about."""

    namespace: str
    """KubeVirt's."""
    pools: tuple[str, ...]
    admission_policy: bool = False
    """Whether the launcher policy is an admission policy, for which API servers have metrics."""

    @property
    def where(self) -> str:
        """The matcher for objects in KubeVirt's namespace."""
        return f"namespace={_text(self.namespace)}"


@dataclass(frozen=True)
class Alert:
    """One alert. It fires when ``expr`` has had the same result for the time ``lasts``."""

    name: str
    expr: str
    lasts: str
    severity: AlertSeverity
    health: HealthImpact
    """What it means for KubeVirt, in the words of KubeVirt's label ``operator_health_impact``."""
    summary: str
    description: str

    def to_object(self, runbook_url: str) -> Object:
        return {
            "alert": self.name,
            "expr": _dedent(self.expr),
            "for": self.lasts,
            "labels": {"severity": self.severity, "operator_health_impact": self.health, **_PARTS},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                # The anchor that sites for Markdown give the alert's heading.
                "runbook_url": f"{runbook_url}#{self.name.lower()}",
            },
        }


def groups(scope: Scope, runbook_url: str) -> list[Object]:
    """The rule groups. There is one: Prometheus evaluates its rules in this order, and what is recorded comes first.

    :param runbook_url: the page that describes the alerts.
    """
    rules = [*_recorded(scope), *(alert.to_object(runbook_url) for alert in alerts(scope))]
    return [{"name": GROUP, "rules": rules}]


def alerts(scope: Scope) -> tuple[Alert, ...]:
    """All alerts."""
    return (
        *_about_daemonsets(scope),
        *_about_handlers(),
        *_about_nodes(),
        *_about_policies(scope),
        *_about_verifications(),
    )


# What is recorded ---------------------------------------------------------------------------------------------------


def _recorded(scope: Scope) -> t.Iterator[Object]:
    def record(name: str, expr: str, **labels: str) -> Object:
        return {"record": name, "expr": _dedent(expr), **({"labels": labels} if labels else {})}

    def per_daemonset(status: str) -> str:
        return f"""
            max by (namespace, daemonset, pool) (
              kube_daemonset_status_{status}{{{scope.where}}}
              * on (daemonset) group_left (pool) {POOLS}
            )
            """

    yield record(POOLS, _pools(scope.pools), namespace=scope.namespace)
    yield record(DESIRED, per_daemonset("desired_number_scheduled"))
    yield record(MISSCHEDULED, per_daemonset("number_misscheduled"))
    yield record(READY, per_daemonset("number_ready"))
    yield record(
        HANDLERS,
        f"""
        max by (namespace, node, pod, daemonset, pool) (
          label_replace(
            kube_pod_info{{{scope.where}, created_by_kind="DaemonSet", node!=""}},
            "daemonset", "$1", "created_by_name", "(.+)"
          )
          * on (daemonset) group_left (pool) {POOLS}
        )
        """,
    )
    yield record(
        HANDLER_READY,
        f"""
        min by (namespace, node, daemonset, pool) (
          {HANDLERS}
          * on (namespace, pod) group_left ()
          max by (namespace, pod) (kube_pod_status_ready{{{scope.where}, condition="true"}})
        )
        """,
    )


def _pools(pools: t.Sequence[str]) -> str:
    """The series of POOLS. What does not exist has no series, so alerts on what is missing need this list."""
    named = "\nor ".join(f'label_replace(vector(1), "pool", {_text(pool)}, "", "")' for pool in pools)
    daemonset = f'"daemonset", "{names.HANDLER}-$1", "pool", "(.+)"'
    primary = f'label_replace(vector(1), "pool", "{names.PRIMARY}", "", "")'
    return (
        f'label_replace({primary}, "daemonset", "{names.HANDLER}", "", "")\n'
        f"or label_replace(\n{textwrap.indent(named, '  ')},\n  {daemonset}\n)"
    )


def _text(value: str) -> str:
    """A string in PromQL. JSON writes the names of pools and namespaces alike."""
    return json.dumps(value)


def _dedent(expr: str) -> str:
    return textwrap.dedent(expr).strip()


# The alerts ---------------------------------------------------------------------------------------------------------


def _about_daemonsets(scope: Scope) -> tuple[Alert, ...]:
    return (
        Alert(
            "VirtPoolsDaemonSetMissing",
            # That the primary is known tells that DaemonSets are.
            f"""
            {_POOLS_ONLY}
            unless on (daemonset) kube_daemonset_status_desired_number_scheduled{{{scope.where}}}
            and on () kube_daemonset_status_desired_number_scheduled{{{scope.where}, daemonset="{names.HANDLER}"}}
            """,
            lasts="15m",
            severity="critical",
            health="critical",
            summary="The DaemonSet of pool {{ $labels.pool }} is missing.",
            description="DaemonSet {{ $labels.daemonset }} does not exist in namespace {{ $labels.namespace }}: the nodes of "
            "pool {{ $labels.pool }} have no virt-handler, and the primary does not run there.",
        ),
        Alert(
            "VirtPoolsHandlersMissing",
            # The status counts a pod that cannot be scheduled as scheduled. Where no handler is known, the metric is missing.
            f"""
            {DESIRED}{{pool!="{names.PRIMARY}"}}
            + {MISSCHEDULED}
            - (count by (namespace, daemonset, pool) ({HANDLERS}) or 0 * {DESIRED})
            > 0
            and on () count({HANDLERS}) > 0
            """,
            lasts="15m",
            severity="critical",
            health="warning",
            summary="Nodes of pool {{ $labels.pool }} have no virt-handler.",
            description="Nodes without a pod of DaemonSet {{ $labels.daemonset }}: {{ $value }}. Something refuses its pods, "
            "or they cannot be scheduled.",
        ),
        Alert(
            "VirtPoolsHandlersOutdated",
            f"""
            (
              kube_daemonset_status_desired_number_scheduled{{{scope.where}}}
              - kube_daemonset_status_updated_number_scheduled{{{scope.where}}}
            )
            * on (daemonset) group_left (pool) {_POOLS_ONLY}
            > 0
            """,
            lasts="1d",
            severity="warning",
            health="none",
            summary="Pool {{ $labels.pool }} runs virt-handlers from an earlier template.",
            description="Handlers of DaemonSet {{ $labels.daemonset }} that are older than its template: {{ $value }}. "
            "A rollout has not reached them, or the DaemonSet was edited by hand.",
        ),
    )


def _about_handlers() -> tuple[Alert, ...]:
    of_pools = f'{HANDLER_READY}{{pool!="{names.PRIMARY}"}}'
    return (
        Alert(
            "VirtPoolsNoReadyHandler",
            f"""
            max by (namespace, daemonset, pool) (
              {of_pools}
              {_ON_READY_NODES}
            )
            == 0
            """,
            lasts="10m",
            severity="critical",
            health="critical",
            summary="Pool {{ $labels.pool }} has no Ready virt-handler.",
            description="No pod of DaemonSet {{ $labels.daemonset }} is Ready on any Ready node of pool {{ $labels.pool }}: "
            "its VMs keep running, but cannot be started, stopped or migrated.",
        ),
        Alert(
            "VirtPoolsHandlerNotReady",
            f"""
            {of_pools} == 0
            {_ON_READY_NODES}
            """,
            lasts="15m",
            severity="warning",
            health="warning",
            summary="The virt-handler of pool {{ $labels.pool }} on node {{ $labels.node }} is not Ready.",
            description="The pod of DaemonSet {{ $labels.daemonset }} on the Ready node {{ $labels.node }} is not Ready: VMs "
            "there keep running, but cannot be stopped or migrated.",
        ),
    )


def _about_nodes() -> tuple[Alert, ...]:
    in_transit = f'kube_node_labels{{label_virtpools_io_pool="{names.IN_TRANSIT}"}}'
    return (
        Alert(
            "VirtPoolsTwoHandlers",
            f"count by (node) (max by (node, daemonset) ({HANDLERS})) > 1",
            lasts="5m",
            severity="critical",
            health="critical",
            summary="Node {{ $labels.node }} has two virt-handlers.",
            description="Handlers of {{ $value }} DaemonSets run on node {{ $labels.node }}: pause, console and VNC fail there. "
            "The primary has lost the exclusion, or the node's owner label was changed by hand.",
        ),
        Alert(
            "VirtPoolsNodeInTransit",
            f"max by (node) ({in_transit}) == 1",
            lasts="15m",
            severity="critical",
            health="warning",
            summary="Node {{ $labels.node }} is in transit for more than 15 minutes.",
            description="A run began the handover of node {{ $labels.node }} and did not finish it: no DaemonSet starts a "
            "virt-handler there.",
        ),
        Alert(
            "VirtPoolsNodeLostHandler",
            # Were all handlers unknown at once, the metric would be what is lost.
            f"""
            (
              max by (node) (max_over_time({HANDLERS}[6h]))
              unless on (node) {HANDLERS}
              unless on (node) {in_transit}
            )
            {_ON_READY_NODES}
            and on () count({HANDLERS}) > 0
            """,
            lasts="15m",
            severity="warning",
            health="warning",
            summary="Node {{ $labels.node }} has lost its virt-handler.",
            description="Node {{ $labels.node }} is Ready and had a virt-handler within the last 6 hours, and has none now.",
        ),
    )


def _about_policies(scope: Scope) -> tuple[Alert, ...]:
    # API servers count an existing policy for each launcher pod. Those of the last two minutes may not have been counted yet.
    not_counted = f"""
        count(
          (kube_pod_created < time() - 120) > time() - 900
          and on (namespace, pod) kube_pod_info{{created_by_kind="VirtualMachineInstance"}}
        )
        and on () sum({_CHECKED}) == sum({_CHECKED} offset 15m)
        or
        """
    verified = 'virtpools_policy_state{state="missing"} == 1'
    mutating = _failures("mutating", names.POLICY, names.OUTDATED_POLICY, names.NODE_POLICY)
    validating = _failures("validating", *names.GUARDS)
    failures, failures_before = (f"{mutating}{when} or {validating}{when}" for when in ("", " offset 20m"))
    return (
        Alert(
            "VirtPoolsLauncherPolicyAbsent",
            (_dedent(not_counted) + "\n" if scope.admission_policy else "") + verified,
            lasts="5m",
            severity="critical",
            health="critical",
            summary="The launcher policy is not in force.",
            description="VMs start without the launcher image and nodes of their pool.",
        ),
        Alert(
            "VirtPoolsPolicyFails",
            f"""
            sum by (policy, error_type) (
              (
                ({failures})
                unless ({failures_before})
                and on () count(kube_node_status_condition offset 20m) > 0
              )
              or increase({mutating}[20m])
              or increase({validating}[20m])
            )
            > 0
            """,
            lasts="5m",
            severity="critical",
            health="critical",
            summary="Admission policy {{ $labels.policy }} fails.",
            description="API servers could not evaluate the policy {{ $labels.policy }} ({{ $labels.error_type }}) for requests "
            "of the last 20 minutes, and refuse what it protects: with virtpools-launcher, VMs cannot start.",
        ),
    )


def _failures(kind: str, *policies: str) -> str:
    """The failures that API servers count. A server has no counter before its first one, so that ``increase`` misses that one.

    A counter is new only if Prometheus has looked before: after its own start all seem new.
    """
    return f'apiserver_{kind}_admission_policy_check_total{{policy=~"{"|".join(policies)}", error_type!="no_error"}}'


def _about_verifications() -> tuple[Alert, ...]:
    return (
        Alert(
            "VirtPoolsVMStartsFail",
            "virtpools_failed_launchers and virtpools_pool_starts_fail == 1",
            lasts="5m",
            severity="critical",
            health="critical",
            summary="VMs of pool {{ $labels.pool }} cannot start.",
            description="KubeVirt passes an argument that the virt-launcher of pool {{ $labels.pool }} refuses: none of its VMs can start "
            "or be migrated. Launcher pods that had failed for it at the last verification: {{ $value }}.",
        ),
        Alert(
            "VirtPoolsVMsWrong",
            'virtpools_vms{verdict=~"wrong_image|wrong_node|at_risk"} > 0',
            lasts="15m",
            severity="warning",
            health="none",
            summary="VMs of {{ $labels.pool }} run with the wrong launcher image, on the wrong nodes, or end when a kubelet restarts.",
            description="VMs of {{ $labels.pool }} with the verdict {{ $labels.verdict }} in the last verification: {{ "
            "$value }}.",
        ),
        Alert(
            "VirtPoolsDrift",
            f'virtpools_findings{{code=~"{"|".join(DRIFT)}"}} > 0',
            lasts="6h",
            severity="warning",
            health="none",
            summary="The cluster is not what its pools ask for ({{ $labels.code }}).",
            description="The last verification found {{ $labels.code }}, and it has not been repaired since.",
        ),
        Alert(
            "VirtPoolsVerificationOld",
            "time() - virtpools_verification_timestamp_seconds > 2 * 24 * 3600",
            lasts="1h",
            severity="warning",
            health="none",
            summary="The last verification is more than two days old.",
            description="The metrics of verify have not been renewed for {{ $value | humanizeDuration }}, so other "
            "alerts that use them show an earlier state.",
        ),
    )


ALERTS: t.Final = tuple(alert.name for alert in alerts(Scope("", ())))
"""The names of all alerts."""
