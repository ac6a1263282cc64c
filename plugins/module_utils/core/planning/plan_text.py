# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A plan as lines of text, for a terminal or the output of an AWX job."""

from __future__ import annotations

import itertools
import typing as t

from ..admission import launcher_backends
from ..base import names
from ..base.findings import counted, listed
from ..base.text import finding_lines, signed, table
from ..kubevirt import image_contents
from ..observed.snapshot import Admission
from . import approval, assignment, waves
from .batching import Move, Wave
from .plan import DaemonSetChange, Plan
from .progress import RolloutScope

_MOST_DIFFERENCES = 10
_OWN_NOTES = (f"[{names.POOL_ANNOTATION}]", f"[{names.TEMPLATE_ANNOTATION}]")


def owner_lines(owners: t.Mapping[str, t.Mapping[str, int]]) -> list[str]:
    """How many nodes each owner has now and after the run."""
    return table(
        ["OWNER", "NODES NOW", "AFTER THE RUN"],
        [[owner, str(count["now"]), str(count["after"])] for owner, count in owners.items()],
    )


def plan_lines(plan: Plan, scope: RolloutScope | None = None) -> list[str]:
    """First what the user must know, then everything a run would do, in its order.

    :param scope: how far the run goes; None for to the end.
    """
    lines = finding_lines(plan.findings)
    scope = scope or RolloutScope.for_plan(plan, None)
    if plan.errors or plan.pending:
        lines += [*owner_lines(plan.owners()), *_launcher_lines(plan)]
    if plan.errors:
        lines.append("A run is refused until its errors are fixed.")
    elif not plan.pending:
        lines.append(f"No change: {_nothing_to_do(plan)}.")
    else:
        lines += [*step_lines(plan, scope), f"Plan: {approval.summary(plan, scope)}."]
    lines.append(f"Plan digest: {plan.digest}")
    return lines


def _launcher_lines(plan: Plan) -> list[str]:
    """Which pools have room for VMs, and what is in launcher images."""
    lines: list[str] = []
    if plan.launcher_rollout is not None:
        rules = plan.launcher_rollout.full.rules
        lines += map(str, assignment.capacities(rules, plan.snapshot.nodes.values(), plan.wanted))
    known = image_contents.by_image(plan.snapshot.pools)
    images = ((pool.name, pool.virt_launcher_image) for pool in plan.launcher_pools)
    return lines + list(filter(None, (image_contents.launcher_line(pool, image, known) for pool, image in images)))


def _nothing_to_do(plan: Plan) -> str:
    """Why a run has nothing to do, as a clause."""
    nodes = plan.snapshot.nodes.values()
    waiting = [node.name for node in nodes if plan.wanted.get(node.name, node.owner) != node.owner]
    if waiting:
        return f"{counted(len(waiting), 'node')} cannot get another owner now: {listed(waiting)}"
    if plan.deleted:
        return f"pool {listed(plan.deleted)} cannot go now"
    if plan.restoring:
        return "the nodes are as they were before the wave"
    return "nothing is left of these pools" if plan.undoing else "everything matches the pools"


def step_lines(plan: Plan, scope: RolloutScope) -> list[str]:
    """Everything that a run does, in its order."""
    lines = []
    if plan.settling and not plan.held:
        lines.append("KubeVirt is still rolling out the exclusion: the run waits for it first.")
    if plan.launcher_rollout and plan.launcher_rollout.steps:
        choice = plan.launcher_rollout.choice
        # The reason for the one in use is known, and in a removal nothing is chosen.
        if choice.backend != launcher_backends.backend_in_use(plan.snapshot.admission or Admission()):
            lines.append(str(choice))
    first = [*plan.first_changes(), *plan.part_changes(0)]
    if first:
        lines.append("First:")
        details = {str(change): _difference_lines(change) for change in plan.daemonsets}
        for line in first:
            lines += [f"  {signed(line)}", *(f"    {detail}" for detail in details.get(line, ()))]
    number = 0
    for wave in plan.waves:
        if wave.name != waves.ALL or wave.open:
            lines.append(_wave_line(wave, len(plan.waves)))
        lines += _batch_lines(plan, wave, number)
        number += len(wave.batches)
        if scope.stop and wave.number == scope.last:
            lines.append(scope.stop)
    last = plan.last_changes()
    if plan.held:
        last = (*last, "KubeVirt lets its virt-handler run on every node again, once the guard is deleted")
    if last:
        lines.append("At the end:")
        lines += [f"  {signed(line)}" for line in last]
    return lines


def _batch_lines(plan: Plan, wave: Wave, before: int) -> t.Iterator[str]:
    """The batches of a wave; those that do the same in a row, and after which the run writes nothing, together.

    :param before: how many batches earlier waves have.
    """

    def kind(numbered: tuple[int, t.Sequence[Move]]) -> t.Hashable:
        number, moves = numbered
        return (number,) if plan.part_changes(number) else frozenset(move.what for move in moves)

    for _kind, group in itertools.groupby(enumerate(wave.batches, before + 1), kind):
        alike = list(group)
        first, last = alike[0][0], alike[-1][0]
        moves = [move for _number, moves in alike for move in moves]
        which = f"Batch {first}" if first == last else f"Batches {first} to {last}"
        yield f"{which} of {len(plan.batches)}: {counted(len(moves), 'node')}"
        for what in dict.fromkeys(move.what for move in moves):
            yield f"  {what}: {listed(move.node for move in moves if move.what == what)}"
        yield from (f"  {signed(line)}" for line in plan.part_changes(last))


def _wave_line(wave: Wave, waves: int) -> str:
    held = f", {wave.held_back} held back" if wave.held_back else ""
    return (
        f"Wave {wave.number} of {waves} ({wave.name}): {wave.done} of {counted(len(wave.nodes), 'node')} done, {wave.remaining} to go{held}, "
        f"{counted(len(wave.batches), 'batch', 'batches')}{', gate not passed' if wave.open else ''}"
    )


def _difference_lines(change: DaemonSetChange) -> list[str]:
    """What an update changes, without our own notes of the pool and the template, which follow from the rest."""
    told = [each for each in change.differences if not each.path.endswith(_OWN_NOTES)]
    shown = [f"{change.name}: {each.change}" for each in told[:_MOST_DIFFERENCES]]
    more = len(told) - len(shown)
    return [*shown, f"{change.name}: {counted(more, 'more difference')}"] if more > 0 else shown
