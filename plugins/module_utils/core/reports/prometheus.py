# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A verification as Prometheus metrics, in the format that the node exporter's textfile collector reads.

There are series per pool, verdict, code and state, but none per VM or node: their number does not grow with the cluster.
"""

from __future__ import annotations

import collections
import typing as t

from ..admission import live_policy
from ..base.findings import printable
from ..checks.verification import ReportDict

Labels = t.Mapping[str, object]
Sample = tuple[Labels, float]


def render(report: ReportDict, *, timestamp: float, labels: t.Mapping[str, str] | None = None) -> str:
    """The text of the file.

    :param timestamp: when the verification took place, in seconds since 1970.
    :param labels: labels for every series, such as the name of the cluster: a collector takes each series only once.
    """
    pools, counts, policy = report["pools"], report["counts"], report["policy"]
    findings = collections.Counter((finding["severity"], finding["code"]) for finding in report["findings"])
    nodes = collections.Counter(node["problem"] for node in report["nodes"] if node["problem"])

    def per_daemonset(key: str) -> list[Sample]:
        return [({"pool": daemonset["pool"]}, daemonset[key]) for daemonset in report["daemonsets"]]

    metrics: list[tuple[str, str, list[Sample]]] = [
        ("healthy", "1 when everything matches the pools.", [({}, int(report["healthy"]))]),
        ("verification_timestamp_seconds", "When the verification took place.", [({}, timestamp)]),
        ("problems", "Number of problems: VMs with a failing verdict, and other errors.", [({}, counts["problems"])]),
        (
            "vms",
            "Running or starting VMs by verdict and pool (primary: VMs without a pool).",
            [
                ({"pool": pool["name"], "verdict": verdict}, number)
                for pool in pools
                for verdict, number in pool["vms"].items()
            ],
        ),
        ("unjudged_vms", "VMs that have no launcher pod yet.", [({}, counts["unjudged"])]),
        ("pool_nodes", "Nodes by owner.", [({"pool": pool["name"]}, pool["nodes"]) for pool in pools]),
        ("pool_active", "1 when the pool takes VMs.", [({"pool": p["name"]}, int(p["active"])) for p in pools]),
        (
            "pool_starts_fail",
            "1 when no VM of the pool can start, because its launcher image refuses an argument that KubeVirt passes.",
            [({"pool": pool["name"]}, int(pool["starts_fail"])) for pool in pools],
        ),
        (
            "failed_launchers",
            "Launcher pods of the pool that have failed for that reason.",
            [({"pool": pool["name"]}, pool["failed_launchers"]) for pool in pools],
        ),
        ("handlers_desired", "Handler pods that the DaemonSet should have.", per_daemonset("desired")),
        ("handlers_ready", "Handler pods that are Ready.", per_daemonset("ready")),
        (
            "daemonset_problems",
            "Number of problems of the DaemonSet.",
            [({"pool": daemonset["pool"]}, len(daemonset["problems"])) for daemonset in report["daemonsets"]],
        ),
        ("nodes", "Nodes that have a handler or should have one.", [({}, counts["nodes"])]),
        (
            "node_problems",
            "Nodes with a problem, by the code of the problem.",
            [({"code": code}, number) for code, number in sorted(nodes.items())],
        ),
        (
            "policy_state",
            "1 for the present state of the launcher policy, 0 for the others.",
            [
                ({"backend": policy["backend"], "state": state}, int(state == policy["state"]))
                for state in t.get_args(live_policy.PolicyState)
            ],
        ),
        (
            "findings",
            "Findings of the verification by severity and code.",
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
    # A line feed would need an escape too, but printable() leaves none.
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
