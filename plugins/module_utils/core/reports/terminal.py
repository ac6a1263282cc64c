# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""States, upgrade checks and verifications as lines of text, for a terminal or the output of an AWX job."""

from __future__ import annotations

from ..base.findings import counted
from ..base.text import finding_lines, table
from ..checks.state import State
from ..checks.upgrade import Upgrade
from ..checks.verdicts import VERDICTS
from ..checks.verification import Report
from ..kubevirt import image_contents
from ..planning.approval import ClusterId
from ..planning.preparation import Preparation

_MOST_VMS = 20
_SHOWN_VERDICTS = tuple(reversed(VERDICTS))


def cluster_line(cluster: ClusterId) -> str:
    """Which cluster it is, by the address of its API server and the UID of its namespace kube-system, if we may read it."""
    return f"Cluster {cluster.server}, UID {cluster.uid or 'unknown: the user may not read namespace kube-system'}"


def state_lines(state: State) -> list[str]:
    """How many nodes each owner has, its DaemonSet, and what is not as it should be."""
    lines = table(
        ["OWNER", "NODES", "DAEMONSET", "DESIRED", "READY", "HANDLER IMAGE"],
        [[o.name, str(o.nodes), o.daemonset, str(o.desired), str(o.ready), o.handler_image] for o in state.owners],
    )
    if state.in_transit:
        lines.append(f"In transit: {', '.join(state.in_transit)}")
    return lines + finding_lines(state.findings)


def upgrade_lines(upgrade: Upgrade) -> list[str]:
    """Whether an upgrade can go ahead, what forbids it, and the images that the pools need for it: each has one row, with its finding,
    and what to do about those that are alike comes once."""
    lines = [upgrade.summary, *finding_lines(upgrade.other_findings)]
    if upgrade.images:
        lines += table(
            ["FINDING", "POOL", "FIELD", "IMAGE", f"FOR {upgrade.target}"],
            [
                [
                    f"{i.finding.severity.upper()} {i.finding.code}" if i.finding else "-",
                    i.pool,
                    i.field,
                    i.image,
                    i.afterwards,
                ]
                for i in upgrade.images
            ],
        )
    return [*lines, *upgrade.advice]


def preparation_lines(upgrade: Upgrade, prepared: Preparation, *, upgraded: bool, waited: int | None) -> list[str]:
    """What was prepared for an upgrade, and what to do next.

    :param upgraded: whether KubeVirt has the new version by now.
    :param waited: for how many seconds the module waited for that; None when it only looks, and prepared nothing.
    """
    lines = [*finding_lines(prepared.findings), *prepared.changes]
    if waited is None:
        return [
            f"Upgrade of KubeVirt to {upgrade.target}: {prepared.summary}.",
            *lines,
            f"Plan digest: {prepared.digest}",
        ]
    target = upgrade.target
    if upgrade.done:
        return [upgrade.summary, *lines]
    if upgraded:
        return [
            *lines,
            f"KubeVirt {target} is deployed now. Run site with the same list, so that the pools' handlers follow.",
        ]
    started = f"VMs start during the upgrade from KubeVirt {upgrade.current or 'an unknown version'} to {target}."
    after = f" It was not there within {waited} s." if waited else ""
    now = "It is under way: wait until it is done" if prepared.begun else f"Upgrade KubeVirt to {target} now"
    return [*lines, f"{started} {now}, then run this again with the same list.{after}"]


def verification_lines(report: Report) -> list[str]:
    """A verification: its summary, the findings, VMs by pool and by each verdict that some VM has, and the first VMs that are not
    correct."""
    lines = [report.summary, *finding_lines(report.findings)]
    verdicts = [v for v in _SHOWN_VERDICTS if v == "correct" or any(pool["vms"][v] for pool in report.pools)]
    lines += table(
        ["POOL", "NODES", "READY", *(verdict.upper().replace("_", " ") for verdict in verdicts)],
        [
            [pool["name"], str(pool["nodes"]), str(pool["ready"])] + [str(pool["vms"][verdict]) for verdict in verdicts]
            for pool in report.pools
        ],
    )
    lines += [
        image_contents.sentence(pool["name"], pool["launcher_image"], pool["launcher_contents"])
        for pool in report.pools
        if pool["launcher_contents"]
    ]
    lines += [
        f"{vm.verdict} {vm.namespace}/{vm.name} (pool {vm.pool or 'unknown'}): {vm.reason}; remedy: {vm.remedy}"
        for vm in report.vms[:_MOST_VMS]
    ]
    more = len(report.vms) + report.left_out - _MOST_VMS
    return [*lines, f"{counted(more, 'more VM is', 'more VMs are')} not correct."] if more > 0 else lines
