# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Plans, states, upgrade checks and verifications as lines of text, for a terminal or the output of an AWX job."""

from __future__ import annotations

import typing as t

from ..base import names
from ..base.findings import Finding, counted
from ..checks.state import State
from ..checks.upgrade import Upgrade
from ..checks.verdicts import VERDICTS
from ..checks.verification import Report
from ..operator_mode.moving import Departure
from ..operator_mode.plan import OperatorPlan
from ..planning import assignment, waves
from ..planning.plan import DaemonSetChange, Plan
from ..planning.progress import RolloutScope
from ..planning.schedule import Wave

_MOST_DIFFERENCES = 10
_MOST_VMS = 20
_SHOWN_VERDICTS = tuple(reversed(VERDICTS))


def cluster_line(server: str, uid: str | None) -> str:
    """Which cluster it is, by the address of its API server and the UID of its namespace kube-system, if we may read it."""
    return f"Cluster {server}, UID {uid or 'unknown: the user may not read namespace kube-system'}"


def owners(plan: Plan) -> dict[str, dict[str, int]]:
    """How many nodes every owner has now, and will have after the run."""
    now = assignment.counts(plan.snapshot, plan.snapshot.nodes)
    after = assignment.counts(plan.snapshot, plan.nodes_after())
    order = [names.PRIMARY, *plan.pools, *sorted({*now, *after} - {names.PRIMARY, *plan.pools})]
    return {owner: {"now": now[owner], "after": after[owner]} for owner in order}


def plan_lines(plan: Plan, scope: RolloutScope | None = None) -> list[str]:
    """First what the user must know, then everything a run would do, in its order.

    :param scope: how far the run goes; None for to the end.
    """
    lines = _finding_lines(plan.findings)
    lines += _table(
        ["OWNER", "NODES NOW", "AFTER THE RUN"],
        [[owner, str(count["now"]), str(count["after"])] for owner, count in owners(plan).items()],
    )
    if plan.launcher_rollout is not None:
        lines += map(
            str, assignment.capacities(plan.launcher_rollout.full.rules, plan.snapshot.nodes.values(), plan.wanted)
        )
    if plan.errors:
        lines.append("A run is refused until the errors above are fixed.")
    elif not plan.pending:
        state = "nothing is left of these pools." if plan.undoing else "everything matches the pools."
        lines.append(f"No change: {state}")
    else:
        lines += _step_lines(plan, scope or RolloutScope.for_plan(plan, None))
    lines.append(f"Plan digest: {plan.digest}")
    return lines


def operator_plan_lines(plan: OperatorPlan) -> list[str]:
    """A plan where KubeVirt's own operator makes the pools: what the user must know, what is written, and what the operator then
    does on each node."""
    lines = _finding_lines(plan.findings)
    lines += _table(
        ["OWNER", "NODES NOW", "AFTER THE RUN"],
        [[owner, str(count["now"]), str(count["after"])] for owner, count in plan.owners().items()],
    )
    lines.append(f"Mode operator: virt-operator creates the pools from {plan.build.place}.")
    if plan.errors:
        lines.append("A run is refused until the errors above are fixed.")
    elif not plan.pending:
        state = "nothing is left of these pools." if plan.removing else "everything matches the pools."
        lines.append(f"No change: {state}")
    else:
        lines += plan.changes()
        if plan.settling and not plan.changed:
            lines.append(f"virt-operator has not finished: {plan.rollout.problem} The run waits for it.")
    return [*lines, f"Plan digest: {plan.digest}"]


def move_lines(departure: Departure, second: t.Sequence[str]) -> list[str]:
    """A move between the modes: how the pools of the former mode go, then the second part.

    :param second: the lines of the second part, with the findings of both.
    """
    first = departure.plan
    steps = (
        first.changes() if isinstance(first, OperatorPlan) else _step_lines(first, RolloutScope.for_plan(first, None))
    )
    waits = "Nothing is left to write; the run waits until all nodes are the primary's."
    return [
        f"Part 1 of 2, the {departure.mode} pools go:",
        *(f"  {line}" for line in steps or [waits]),
        "Part 2 of 2, on the cluster as part 1 leaves it:",
        *second,
    ]


def _step_lines(plan: Plan, scope: RolloutScope) -> list[str]:
    lines = []
    if plan.settling:
        lines.append("KubeVirt is still rolling out the exclusion: the run waits for it first.")
    if plan.launcher_rollout and plan.launcher_steps:
        lines.append(str(plan.launcher_rollout.choice))
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
        if scope.stop and wave.number == scope.last:
            lines.append(scope.stop)
    last = plan.last_changes()
    if last:
        lines.append("At the end:")
        lines += [f"  {line}" for line in last]
    return lines


def _wave_line(wave: Wave, waves: int) -> str:
    held = f", {wave.held_back} held back" if wave.held_back else ""
    return (
        f"Wave {wave.number} of {waves} ({wave.name}): {wave.done} of {counted(len(wave.nodes), 'node')} done, {wave.remaining} to go{held}, "
        f"{counted(len(wave.batches), 'batch', 'batches')}{', gate not passed' if wave.open else ''}"
    )


def _difference_lines(change: DaemonSetChange) -> list[str]:
    shown = [f"{change.name}: {difference}" for difference in change.differences[:_MOST_DIFFERENCES]]
    more = len(change.differences) - len(shown)
    return [*shown, f"{change.name}: {counted(more, 'more difference')}"] if more > 0 else shown


def state_lines(state: State) -> list[str]:
    """How many nodes each owner has, its DaemonSet, and what is not as it should be."""
    lines = _table(
        ["OWNER", "NODES", "DAEMONSET", "DESIRED", "READY", "HANDLER IMAGE"],
        [[o.name, str(o.nodes), o.daemonset, str(o.desired), str(o.ready), o.handler_image] for o in state.owners],
    )
    if state.in_transit:
        lines.append(f"In transit: {', '.join(state.in_transit)}")
    return lines + _finding_lines(state.findings)


def upgrade_lines(upgrade: Upgrade) -> list[str]:
    """Whether an upgrade can go ahead, what forbids it, and the images that the pools need for it."""
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
    """A verification: its summary, the findings, VMs by pool and verdict, and the first VMs that are not correct."""
    lines = [report.summary, *_finding_lines(report.findings)]
    lines += _table(
        # No spaces inside a heading: callbacks that write YAML break lines at spaces.
        ["POOL", "NODES", "READY", *(verdict.upper().replace("_", "-") for verdict in _SHOWN_VERDICTS)],
        [
            [pool["name"], str(pool["nodes"]), str(pool["ready"])]
            + [str(pool["vms"][verdict]) for verdict in _SHOWN_VERDICTS]
            for pool in report.pools
        ],
    )
    lines += [
        f"{vm.verdict} {vm.namespace}/{vm.name} (pool {vm.pool or 'unknown'}): {vm.reason}; remedy: {vm.remedy}"
        for vm in report.vms[:_MOST_VMS]
    ]
    more = len(report.vms) + report.left_out - _MOST_VMS
    return [*lines, f"{counted(more, 'more VM is', 'more VMs are')} not correct."] if more > 0 else lines


def _finding_lines(findings: t.Iterable[Finding]) -> list[str]:
    return [f"{finding.severity.upper()} {finding.code}: {finding.message}" for finding in findings]


def _table(head: t.Sequence[str], rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
