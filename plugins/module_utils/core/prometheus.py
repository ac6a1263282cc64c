# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A verification's report for Prometheus, as the node exporter's textfile collector reads it.

Series are per pool, verdict, code and state, never per VM or node: their number does not grow with the cluster.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import live_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.printable import printable

Report = t.Mapping[str, t.Any]
"""What verification.Report.to_dict returns."""
Labels = t.Mapping[str, object]
Sample = tuple[Labels, float]


def render(report: Report, *, timestamp: float, labels: t.Mapping[str, str] | None = None) -> str:
    """The text of the file.

    :param timestamp: when the cluster was looked at, in seconds since 1970.
    :param labels: on every series, for instance which cluster it is of: a collector takes a series only once.
    """
    pools, counts, policy = report["pools"], report["counts"], report["policy"]
    findings = collections.Counter((found["severity"], found["code"]) for found in report["findings"])
    nodes = collections.Counter(node["problem"] for node in report["nodes"] if node["problem"])
    metrics: list[tuple[str, str, list[Sample]]] = [
        ("healthy", "1 when everything is as the pools ask for.", [({}, int(report["healthy"]))]),
        ("verification_timestamp_seconds", "When the cluster was looked at.", [({}, timestamp)]),
        ("problems", "What is wrong: VMs with a failing verdict, and other errors.", [({}, counts["problems"])]),
        (
            "vms",
            "Running or starting VMs by pool (primary: those without one) and verdict.",
            [
                ({"pool": pool["name"], "verdict": verdict}, number)
                for pool in pools
                for verdict, number in pool["vms"].items()
            ],
        ),
        ("unjudged_vms", "VMs that have no launcher pod yet.", [({}, counts["unjudged"])]),
        ("pool_nodes", "Nodes by their owner.", [({"pool": pool["name"]}, pool["nodes"]) for pool in pools]),
        (
            "pool_active",
            "1 when VMs are given to the pool.",
            [({"pool": pool["name"]}, int(pool["active"])) for pool in pools],
        ),
        (
            "handlers_desired",
            "Handler pods that the DaemonSet wants.",
            [({"pool": found["pool"]}, found["desired"]) for found in report["daemonsets"]],
        ),
        (
            "handlers_ready",
            "Handler pods that are Ready.",
            [({"pool": found["pool"]}, found["ready"]) for found in report["daemonsets"]],
        ),
        (
            "daemonset_problems",
            "What is wrong with the DaemonSet.",
            [({"pool": found["pool"]}, len(found["problems"])) for found in report["daemonsets"]],
        ),
        ("nodes", "Nodes of the cluster.", [({}, counts["nodes"])]),
        (
            "node_problems",
            "Nodes that are not as they should be, by what is wrong.",
            [({"code": code}, number) for code, number in sorted(nodes.items())],
        ),
        (
            "policy_state",
            "1 for the state that the launcher policy is in.",
            [
                ({"backend": policy["backend"], "state": state}, int(state == policy["state"]))
                for state in t.get_args(live_policy.State)
            ],
        ),
        (
            "findings",
            "Findings of the verification.",
            [({"severity": severity, "code": code}, number) for (severity, code), number in sorted(findings.items())],
        ),
    ]
    return "".join(_metric(f"virtpools_{name}", about, samples, labels or {}) for name, about, samples in metrics)


def _metric(name: str, about: str, samples: t.Iterable[Sample], common: Labels) -> str:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
    lines += [f"{name}{_labels({**common, **labels})} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: object) -> str:
    # A line feed, which would have to be escaped too, printable() leaves none.
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
