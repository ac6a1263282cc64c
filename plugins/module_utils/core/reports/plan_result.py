# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A plan as data: what ``plan_info`` returns, in either mode, also when the run moves from one mode to the other."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..checks.state import State
from ..planning import approval, history
from ..planning.approval import ClusterId, Run
from ..planning.departure import Departure
from ..planning.history import PendingMove
from ..planning.proposal import NO_DETAILS, Proposal
from . import terminal


@dataclass(frozen=True)
class PlanFor:
    """For which run on which cluster a plan is."""

    run: Run
    host: str
    """The cluster's name in the inventory."""
    cluster: ClusterId
    earlier: t.Any = None
    """What an earlier job of a workflow published."""


def plan_result(
    proposal: Proposal,
    departure: Departure | None,
    move: PendingMove | None,
    state: State | None,
    made_for: PlanFor,
    now: float,
) -> dict[str, t.Any]:
    """The plan as data.

    :param departure: the first part of the run, where it moves between the modes.
    :param move: what the history must know of the move.
    :param state: what the pools are like now; None when that is to be read after the run.
    :param now: the time in seconds since 1970.
    """
    entry, present = proposal.entry, history.recorded_in(proposal.snapshot).present
    lists = approval.Lists(entry.digest, present) if entry is not None else None
    published = approval.publish(made_for.host, made_for.run, proposal, made_for.cluster, lists, made_for.earlier)
    result = {
        "changed": False,
        "mode": proposal.mode,
        "build": proposal.build,
        "leaving": "",
        "move": move.to_object() if move else {},
        "pending": proposal.pending,
        "recorded": proposal.recorded,
        "settling": proposal.settling,
        "digest": str(proposal.digest),
        "changes": list(proposal.changes()),
        "feature_gates": bool(proposal.gates.lines),
        **NO_DETAILS,
        **proposal.details(now),
        "findings": [finding.to_dict() for finding in proposal.findings],
        "errors": [finding.message for finding in proposal.errors],
        "owners": proposal.owners(),
        "state": [] if state is None else terminal.state_lines(state),
        "published": published,
        "text": proposal.lines(),
    }
    if departure is not None:
        result = _with_departure(result, departure, published[made_for.host][made_for.run])
    if made_for.cluster.server:
        result["text"] = [terminal.cluster_line(made_for.cluster), *result["text"]]
    return result


def _with_departure(result: dict[str, t.Any], departure: Departure, entry: dict[str, t.Any]) -> dict[str, t.Any]:
    first = departure.proposal
    if not result["errors"]:
        entry.update(pending=True, summary=f"{departure.summary}; then {entry['summary']}")
    owners = {owner: {"now": count["now"], "after": 0} for owner, count in first.owners().items()}
    for owner, count in result["owners"].items():
        owners[owner] = {"now": owners.get(owner, {"now": 0})["now"], "after": count["after"]}
    return {
        **result,
        "leaving": departure.mode,
        "pending": True,
        "recorded": False,
        "state": [],
        "changes": [*first.changes(), *result["changes"]],
        "owners": owners,
        "text": departure.lines(result["text"]),
    }
