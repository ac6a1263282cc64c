# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans, states and verifications as text, line by line, for a person at a terminal or in an AWX job's output."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import capacity, names, waves
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import DaemonSetChange, Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.progress import Due
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.schedule import Wave
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.state import State
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.upgrade import Upgrade
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


def plan_lines(plan: Plan, due: Due | None = None) -> list[str]:
    """Everything a run would do, in its order, after what its user should know first.

    :param due: how far the run goes; to the end, unless said.
    """
    lines = _finding_lines(plan.findings)
    lines += _table(
        ["OWNER", "NODES NOW", "AFTER THE RUN"],
        [[owner, str(count["now"]), str(count["after"])] for owner, count in owners(plan).items()],
    )
    if plan.launchers is not None:
        lines += map(str, capacity.of(plan.launchers.full.rules, plan.snapshot.nodes.values(), plan.wanted))
    if plan.errors:
        lines.append("A run is refused until the errors above are gone.")
    elif not plan.pending:
        everything = "nothing of these pools is left." if plan.undoing else "everything is as the pools ask for."
        lines.append(f"No change: {everything}")
    else:
        lines += _step_lines(plan, due or Due.of(plan, None))
    lines.append(f"Plan digest: {plan.digest}")
    return lines


def _step_lines(plan: Plan, due: Due) -> list[str]:
    lines = []
    if plan.settling:
        lines.append("KubeVirt is still rolling out the exclusion: the run waits for it first.")
    if plan.launchers and plan.launcher_steps:
        lines.append(str(plan.launchers.choice))
    first = [*plan.first_changes(), *plan.launcher_changes(0), *plan.policy_changes()]
    if first:
        lines.append("First:")
        lines += [f"  {line}" for line in first]
        lines += [f"    {line}" for change in plan.daemonsets for line in _difference_lines(change)]
    number, batches = 0, len(plan.batches)
    for wave in plan.waves:
        if wave.name != waves.ALL or wave.open:
            lines.append(_wave_line(wave, len(plan.waves)))
        for batch in wave.batches:
            number += 1
            lines.append(f"Batch {number} of {batches}:")
            lines += [f"  {line}" for line in (*batch, *plan.launcher_changes(number))]
        if due.stop and wave.number == due.last:
            lines.append(due.stop)
    last = plan.last_changes()
    if last:
        lines.append("At the end:")
        lines += [f"  {line}" for line in last]
    return lines


def _wave_line(wave: Wave, waves: int) -> str:
    held = f", {wave.held_back} held back" if wave.held_back else ""
    return (
        f"Wave {wave.number} of {waves} ({wave.name}): {wave.done} of {len(wave.nodes)} node(s) done, {wave.left} to go{held}, "
        f"{len(wave.batches)} batch(es){', gate not passed' if wave.open else ''}"
    )


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


def upgrade_lines(upgrade: Upgrade) -> list[str]:
    """Whether an upgrade can go ahead, what speaks against it, and the images that the pools need for it."""
    lines = [upgrade.summary, *_finding_lines(upgrade.findings)]
    if upgrade.images:
        lines += _table(
            ["POOL", "FIELD", "IMAGE", f"FOR {upgrade.target}"],
            [
                [i.pool, i.field, i.image, "as it is" if i.skew == "same" else i.needed or "unknown"]
                for i in upgrade.images
            ],
        )
    return lines


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
