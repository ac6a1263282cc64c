# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The last lines of a run that failed: what moved, what stayed as it was, and the commands that go on and go back."""

from __future__ import annotations

import typing as t

from ..base.findings import InputErrors, counted, listed
from ..planning import goals, history
from ..planning.approval import Run
from ..planning.outcome import Batches, Extent
from ..planning.proposal import Proposal


def lines(batches: Batches, left: Proposal, run: Run) -> list[str]:
    """How far a run came.

    :param batches: those of the plan that it began with.
    :param left: what the same run would do now.
    :param run: the kind of run.
    """
    return [
        *_nodes(Extent.of_failed(batches, left)),
        f"To go on, correct the cause and run the same command again. {_way_back(left, run)}",
    ]


def _nodes(extent: Extent) -> t.Iterator[str]:
    if not extent.planned:
        yield "The run had no node to change."
        return
    planned, done, unchanged, unfinished = extent.planned, extent.done, extent.unchanged, extent.unfinished
    yield f"Done: {len(done) or 'none'} of {counted(len(planned), 'node')}{f' ({listed(done)})' if done else ''}."
    rest = [f"As before: {counted(len(unchanged), 'node')} ({listed(unchanged)})."] if unchanged else []
    if unfinished:
        rest.append(f"Half way: {listed(unfinished)}; the next run finishes this first.")
    yield " ".join(rest) or "No node is left."


def _way_back(left: Proposal, run: Run) -> str:
    if run == "remove":
        return "To bring the pools back, run the playbook site with their list."
    if run == "rollback":
        return "To keep the newer list instead, run the playbook site with it."
    known = history.recorded_in(left.snapshot)
    if not known.entries:
        return "To go back: ansible-playbook virtpools.kubevirt.remove -e virtpools_remove=all"
    try:
        known.rollback_target(goals.recorded(left.snapshot), left.build or None)
    except InputErrors:
        return "There is no earlier list to go back to."
    return "To go back: ansible-playbook virtpools.kubevirt.rollback"
