# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What became of a run: how many nodes it changed, and whether it failed. It is published for notifications and for later jobs of
a workflow as ``{host: {...}}``."""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass

from ..base.findings import InputErrors, counted
from .approval import Run
from .proposal import Proposal

Batches = t.Sequence[t.Sequence[t.Mapping[str, t.Any]]]


@dataclass(frozen=True)
class Extent:
    """How far a run came, by names of nodes."""

    planned: frozenset[str]
    unchanged: frozenset[str] = frozenset()
    unfinished: frozenset[str] = frozenset()
    """Half way: the next run finishes these first."""

    @property
    def done(self) -> frozenset[str]:
        return self.planned - self.unchanged - self.unfinished

    @classmethod
    def of_failed(cls, batches: Batches, left: Proposal) -> Extent:
        """:param batches: those of the plan that the run began with.
        :param left: what the same run would do now.
        """
        planned, nodes = _nodes_of(batches), left.snapshot.nodes
        unfinished = frozenset(node for node in planned if node in nodes and nodes[node].unfinished)
        remaining = planned & (_nodes_of(left.details(0).get("batches", ())) | left.held_back)
        return cls(planned, remaining - unfinished, unfinished)


@dataclass(frozen=True)
class RunOutcome:
    """What became of a run."""

    run: Run
    digest: str
    changed: bool
    failed: bool
    nodes: int
    """How many nodes the plan was to change."""
    done: int
    """How many of them the run changed."""
    stop: str = ""
    """Where the run stopped because it was asked to; empty when it did not."""
    later: tuple[str, ...] = ()
    """The nodes that this left for a later run."""
    summary: str = ""

    @classmethod
    def of_completed(cls, run: Run, proposal: Proposal) -> RunOutcome:
        """What becomes of a run that carries this plan out, up to where it was asked to stop."""
        details, nodes = proposal.details(0), proposal.sizes["nodes"]
        stop = details.get("stop", "")
        indices = [i for wave in details.get("waves", ()) if not wave["due"] for i in wave["batches"]] if stop else []
        later = _nodes_of([details["batches"][i] for i in indices])
        done = nodes - len(later)
        if not proposal.pending:
            summary = "no change"
        elif stop:
            summary = f"stopped as asked, with {done} of {counted(nodes, 'node')} changed"
        else:
            summary = f"completed, with {counted(nodes, 'node')} changed"
        return cls(
            run,
            str(proposal.digest),
            changed=proposal.pending,
            failed=False,
            nodes=nodes,
            done=done,
            stop=stop,
            later=tuple(sorted(later)),
            summary=summary,
        )

    @classmethod
    def of_failed(cls, run: Run, batches: Batches, left: Proposal) -> RunOutcome:
        """What became of a run that failed; for the parameters see ``Extent.of_failed``."""
        extent = Extent.of_failed(batches, left)
        nodes, done = len(extent.planned), len(extent.done)
        half_way = f", and {len(extent.unfinished)} half way" if extent.unfinished else ""
        return cls(
            run,
            str(left.digest),
            changed=bool(extent.done or extent.unfinished),
            failed=True,
            nodes=nodes,
            done=done,
            summary=f"failed, with {done} of {counted(nodes, 'node')} changed{half_way}",
        )

    def publish(self, host: str) -> dict[str, dict[str, t.Any]]:
        """What the run's job publishes for this host of the inventory."""
        return {host: {**asdict(self), "later": list(self.later)}}


def read(published: t.Any, host: str) -> RunOutcome | None:
    """What the last run of this workflow published for a host; None for nothing, and for a run that did not come to its plan.

    :raises InputErrors: for what no run publishes.
    """
    try:
        found = (published or {}).get(host) or {}
        if found.get("run") is None:
            return None
        return RunOutcome(**{**found, "later": tuple(map(str, found["later"]))})
    except (AttributeError, KeyError, TypeError) as error:
        raise InputErrors(["virtpools_result is not what a run publishes; leave it out."]) from error


def read_pause(published: t.Any, host: str) -> RunOutcome | None:
    """What became of the last run of this workflow, if it brings a list and stopped where it was asked to; None for any other."""
    last = read(published, host)
    return last if last is not None and last.run == "site" and last.stop and not last.failed else None


def _nodes_of(batches: Batches) -> frozenset[str]:
    return frozenset(move["node"] for batch in batches for move in batch)
