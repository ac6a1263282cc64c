# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans, states and verifications as text, line by line, for a person at a terminal or in an AWX job's output."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import DaemonSetChange, Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.state import State
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verdicts import VERDICTS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verification import Report

_MOST_DIFFERENCES = 10
_MOST_VMS = 20
_SHOWN_VERDICTS = tuple(reversed(VERDICTS))


def owners(plan: Plan) -> dict[str, dict[str, int]]:
    """How many nodes every owner has now, and will have after the run."""
    now = collections.Counter(node.owner for node in plan.snapshot.nodes.values())
    after = now.copy()
    for move in plan.moves:
        if move.action == "move":
            after[plan.snapshot.nodes[move.node].owner] -= 1
            after[move.target] += 1
    order = [names.PRIMARY, *plan.pools, *sorted({*now, *after} - {names.PRIMARY, *plan.pools})]
    return {owner: {"now": now[owner], "after": after[owner]} for owner in order}


def plan_lines(plan: Plan) -> list[str]:
    """Everything a run would do, in its order, after what its user should know first."""
    lines = _finding_lines(plan.findings)
    lines += _table(
        ["OWNER", "NODES NOW", "AFTER THE RUN"],
        [[owner, str(count["now"]), str(count["after"])] for owner, count in owners(plan).items()],
    )
    if plan.errors:
        lines.append("A run is refused until the errors above are gone.")
    elif not plan.pending:
        lines.append("No change: everything is as the pools ask for.")
    else:
        lines += _step_lines(plan)
    lines.append(f"Plan digest: {plan.digest}")
    return lines


def _step_lines(plan: Plan) -> list[str]:
    lines = []
    if plan.settling:
        lines.append("KubeVirt is still rolling out the exclusion: the run waits for it first.")
    if plan.launchers and plan.launcher_steps:
        lines.append(str(plan.launchers.choice))
    first = [*plan.first_changes(), *plan.launcher_changes(0)]
    if first:
        lines.append("First:")
        lines += [f"  {line}" for line in first]
        lines += [f"    {line}" for change in plan.daemonsets for line in _difference_lines(change)]
    for number, batch in enumerate(plan.batches, 1):
        lines.append(f"Batch {number} of {len(plan.batches)}:")
        lines += [f"  {line}" for line in (*batch, *plan.launcher_changes(number))]
    if plan.retired:
        lines.append("At the end:")
        lines += [f"  {change}" for change in plan.retired]
    return lines


def _difference_lines(change: DaemonSetChange) -> list[str]:
    shown = [f"{change.name}: {difference}" for difference in change.differences[:_MOST_DIFFERENCES]]
    more = len(change.differences) - len(shown)
    return [*shown, f"{change.name}: {more} more difference(s)"] if more > 0 else shown


def state_lines(state: State) -> list[str]:
    """Who owns how many nodes, with which DaemonSet, and what is not as it should be."""
    lines = _table(
        ["OWNER", "NODES", "DAEMONSET", "DESIRED", "READY", "HANDLER IMAGE"],
        [[o.name, str(o.nodes), o.daemonset, str(o.desired), str(o.ready), o.handler_image] for o in state.owners],
    )
    if state.in_transit:
        lines.append(f"In transit: {', '.join(state.in_transit)}")
    return lines + _finding_lines(state.findings)


def verification_lines(report: Report) -> list[str]:
    """What a verification found: the sentence, the findings, VMs by pool and verdict, and the first VMs that are wrong."""
    lines = [report.summary, *_finding_lines(report.findings)]
    lines += _table(
        # Without spaces inside, since callbacks that write YAML break lines there.
        ["POOL", "NODES", "READY", *(verdict.upper().replace("_", "-") for verdict in _SHOWN_VERDICTS)],
        [
            [found["name"], str(found["nodes"]), str(found["ready"])]
            + [str(found["vms"][verdict]) for verdict in _SHOWN_VERDICTS]
            for found in report.pools
        ],
    )
    lines += [
        f"{vm.verdict} {vm.namespace}/{vm.name} (pool {vm.pool or 'unknown'}): {vm.reason}; remedy: {vm.remedy}"
        for vm in report.vms[:_MOST_VMS]
    ]
    more = len(report.vms) + report.left_out - _MOST_VMS
    return [*lines, f"{more} more VM(s) have something to tell."] if more > 0 else lines


def _finding_lines(findings: t.Iterable[Finding]) -> list[str]:
    return [f"{finding.severity.upper()} {finding.code}: {finding.message}" for finding in findings]


def _table(head: t.Sequence[str], rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
