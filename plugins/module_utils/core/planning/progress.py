# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""How far a rollout goes, and how far it has come, batch by batch."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import asdict, dataclass

from ..base import names
from ..base.findings import InputErrors, counted
from .batching import Move, Wave
from .plan import Plan

_MOST_NAMED = 20


@dataclass(frozen=True)
class RolloutScope:
    """The part of a plan that a run carries out: its waves up to number ``last``."""

    plan: Plan
    last: int

    @classmethod
    def for_plan(cls, plan: Plan, stop_after: object) -> RolloutScope:
        """:param stop_after: the name or number of the last wave to carry out; None or empty for all.

        :raises InputErrors: when there is no such wave.
        """
        if stop_after in (None, ""):
            return cls(plan, len(plan.waves))
        wanted = str(stop_after).strip()
        for wave in plan.waves:
            if wanted in (str(wave.number), wave.name):
                return cls(plan, wave.number)
        known = [f"{wave.number} ({wave.name})" for wave in plan.waves[:_MOST_NAMED]]
        more = len(plan.waves) - len(known)
        waves = f"{', '.join(known)}{f' and {more} more' if more > 0 else ''}" if known else "none"
        problem = f"virtpools_stop_after_wave is {wanted[:80]!r}, which is not a wave of this rollout"
        raise InputErrors([f"{problem}; give the number or name of a wave. The waves are: {waves}."])

    @property
    def waves(self) -> tuple[Wave, ...]:
        """The waves of the run that have something to do."""
        return tuple(wave for wave in self.plan.waves[: self.last] if wave.due)

    @property
    def later(self) -> tuple[Wave, ...]:
        """The waves after the stop that have something to do."""
        return tuple(wave for wave in self.plan.waves[self.last :] if wave.due)

    @property
    def pending(self) -> bool:
        """Whether the run has anything to do before it stops."""
        plan = self.plan
        if not self.later:
            return plan.pending
        return bool(plan.first_changes() or plan.part_changes(0) or self.waves or plan.settling)

    @property
    def stop(self) -> str | None:
        """Where the run stops and how the user goes on; None when it does not stop before the end."""
        if not self.later:
            return None
        wave = self.plan.waves[self.last - 1]
        return (
            f"The rollout stops after wave {wave.number} of {len(self.plan.waves)} ({wave.name}), as virtpools_stop_after_wave "
            f"asks, with {_nodes(sum(wave.remaining for wave in self.later))} in {counted(len(self.later), 'wave')} left. To go on, run "
            "again without it, or with a later wave; an approved plan stays approved."
        )

    def to_list(self) -> list[dict[str, t.Any]]:
        """All waves as data. ``batches`` are indices into the batches of the plan."""
        indices = itertools.count()
        return [
            {
                "number": wave.number,
                "name": wave.name,
                "nodes": list(wave.nodes),
                "pools": sorted(self._pools(wave) - {names.PRIMARY}),
                "done": wave.done,
                "left": wave.remaining,
                "held_back": wave.held_back,
                "batches": [next(indices) for _batch in wave.batches],
                "due": wave.due and wave.number <= self.last,
                "open": wave.open or "",
            }
            for wave in self.plan.waves
        ]

    def next_batches(self) -> list[tuple[Move, ...]]:
        """For each batch, the next one of its wave. None follows the last, after which comes a gate."""
        return [after for wave in self.plan.waves if wave.batches for after in (*wave.batches[1:], ())]

    def _pools(self, wave: Wave) -> set[str]:
        """The owners that get nodes or new handlers. When an earlier run began the wave these are all owners of its nodes,
        since the history does not say which of them the run changed."""
        if wave.open is not None:
            return {self.plan.wanted[node] for node in wave.nodes}
        return {move.target for batch in wave.batches for move in batch}

    def progress(self, now: float) -> list[Progress]:
        """Where a rollout that begins ``now`` stands before every batch of the plan."""
        progress: list[Progress] = []
        moved = 0
        batches = sum(len(wave.batches) for wave in self.waves)
        nodes = sum(wave.remaining for wave in self.waves)
        for wave in self.plan.waves:
            of_wave = 0
            for batch in wave.batches:
                progress.append(
                    Progress(
                        wave=wave.name,
                        number=wave.number,
                        waves=len(self.plan.waves),
                        wave_done=of_wave,
                        wave_nodes=wave.remaining,
                        done=moved,
                        nodes=nodes,
                        batch=len(progress) + 1,
                        batches=batches,
                        since=now,
                    )
                )
                moved += len(batch)
                of_wave += len(batch)
        return progress


@dataclass(frozen=True)
class Progress:
    """Where a run stands before a batch. Only nodes that the run changes are counted."""

    wave: str
    number: int
    waves: int
    wave_done: int
    """How many of the wave's nodes are done."""
    wave_nodes: int
    done: int
    """How many nodes are done."""
    nodes: int
    """All nodes that the run changes."""
    batch: int
    """Number of the batch, from 1."""
    batches: int
    """How many batches the run has."""
    since: float
    """When the run began, in seconds on the clock of the machine that runs it."""

    @classmethod
    def from_argument(cls, given: t.Any) -> Progress:
        """The progress that ``to_dict`` returned.

        :raises InputErrors: for anything else.
        """
        numbers = {"number", "waves", "wave_done", "wave_nodes", "done", "nodes", "batch", "batches", "since"}
        if not isinstance(given, dict) or set(given) != {*numbers, "wave"}:
            raise InputErrors(["progress is not what plan_info returned for a batch; give that, or leave it out."])
        try:
            read = {key: float(given[key]) if key == "since" else int(given[key]) for key in numbers}
        except (TypeError, ValueError) as error:
            raise InputErrors(
                ["progress is not what plan_info returned for a batch; give that, or leave it out."]
            ) from error
        return cls(wave=str(given["wave"]), **t.cast("dict[str, t.Any]", read))

    def to_dict(self) -> dict[str, t.Any]:
        return asdict(self)

    def line(self, moved: int, without: int, now: float, first_batch: float) -> str:
        """The progress after the batch, as a sentence.

        :param moved: how many nodes of the batch are done.
        :param without: how many nodes of the cluster have no Ready handler.
        :param now: seconds, on the same clock as ``since``.
        :param first_batch: when the first batch of the run began, in the same seconds.
        """
        elapsed = max(0.0, now - self.since)
        of_wave = f", {self.wave_done + moved} of {self.wave_nodes} in wave {self.number} of {self.waves} ({self.wave})"
        words = [
            f"Progress: {self.done + moved} of {_nodes(self.nodes)} done{of_wave if self.waves > 1 else ''}",
            f"{_nodes(without)} without a Ready handler",
            f"{duration(elapsed)} elapsed",
        ]
        # All batches take about as long, however many nodes a batch has.
        if moved and self.batch < self.batches:
            pace = max(0.0, now - first_batch) / self.batch
            words.append(f"about {duration(pace * (self.batches - self.batch))} to go")
        return "; ".join(words)


def duration(seconds: float) -> str:
    """A duration in words: ``40 s``, ``12 min``, ``3 h 20 min``."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"
