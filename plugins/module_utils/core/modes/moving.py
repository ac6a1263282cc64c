# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A move between the modes as one run: which pools it brings, what it takes down, and what it must not forget on the way."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base.findings import Finding, error, listed, warning
from ..base.objects import short_digest
from ..observed.snapshot import Snapshot
from ..operator_mode import forms
from ..operator_mode.mode import OperatorMode
from ..planning import history
from ..planning.departure import Departure
from ..planning.history import Entry, PendingMove
from ..planning.options import Options
from ..planning.request import PlanRequest
from ..pools import dialects
from ..pools.model import Pool
from .mode import Mode


@dataclass(frozen=True)
class ModeMove:
    """A move that a run begins, or one that an earlier run began and this one goes on with."""

    request: PlanRequest
    """What is asked of the second part: the pools given, and those of the former mode that stay."""
    former: Entry | None
    """The pools of the former mode, also those that an earlier run has already taken down."""
    begun: str
    """The digest of the plan with which an earlier run began it; empty when none did."""
    takedown: str
    """Digest of what the first part takes down; empty when nothing is left of it."""
    findings: tuple[Finding, ...]

    def to_record(self, chosen: Mode, digest: str) -> PendingMove:
        """What the history must know before anything is written.

        :param chosen: the mode of the second part.
        """
        request = self.request
        to = history.entry_of(request.pools, (), request.options, "", "", chosen.build_name or None)
        return PendingMove(to, self.former, digest, request.read_from)


def find_move(chosen: Mode, departure: Departure | None, snapshot: Snapshot, request: PlanRequest) -> ModeMove | None:
    """The move that a run of this request makes; None for a run that stays in its mode.

    A run in the former mode of an unfinished move also brings back what that took down, unless the list has all of it.

    :param departure: the first part; None when nothing of the former mode is left.
    """
    recorded = history.recorded_in(snapshot).moving
    begun = recorded if recorded is not None and (recorded.to.build or "") == chosen.build_name else None
    if departure is None and recorded is None:
        return None
    before = recorded.former if recorded else None
    found = {pool.name: pool for pool in before.pools} if before else {}
    found |= {pool.name: pool for pool in departure.recorded} if departure else {}
    given = request.pools
    if isinstance(chosen, OperatorMode):
        given = forms.without_unmatched(given, request.dialect)
    listed_names = {pool.name for pool in given}
    kept = [pool for pool in found.values() if pool.name not in listed_names and not request.options.prune]
    if departure is None and begun is None and not kept:
        return None
    unread = [] if request.options.prune or departure is None else [*{*departure.pools} - found.keys() - listed_names]
    build = departure.proposal.build or None if departure else before.build if before else None
    former = history.entry_of(tuple(found.values()), (), Options(), "", "", build) if found else None
    return ModeMove(
        request=replace(
            request,
            pools=(*given, *kept),
            dialect=dialects.OWN,
            read_from=request.read_from or (begun.read_from if begun else ""),
        ),
        former=former,
        begun=begun.digest if begun else "",
        takedown=_digest(found.values()) if departure else "",
        findings=(
            *_kept(kept, "moves as it is" if departure or begun else "comes back as it was"),
            *_unreadable(sorted(unread)),
        ),
    )


def _digest(former: t.Iterable[Pool]) -> str:
    return short_digest([pool.to_object() for pool in sorted(former, key=lambda pool: pool.name)])


def _kept(pools: t.Iterable[Pool], becomes: str) -> t.Iterator[Finding]:
    """:param becomes: what becomes of each pool, in words."""
    for pool in pools:
        yield warning(
            "pool_not_listed",
            f"Pool {pool.name} is not in the list: it {becomes}; set virtpools_prune: true to leave it out.",
        )


def _unreadable(pools: t.Sequence[str]) -> t.Iterator[Finding]:
    if pools:
        yield error(
            "moved_pool_unreadable",
            f"The DaemonSet of pool {listed(pools)} does not describe the pool, which is not in the list either, so it cannot move: "
            "add it to the list, or set virtpools_prune: true to leave it out.",
        )
