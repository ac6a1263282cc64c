# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What the record of a run tells: its waves with their batches and gates, how it ended, and why."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field
from functools import cached_property

from ..planning import waves
from .page_pieces import count
from .run_record import Handover, RunRecord, RunStep

Tone = t.Literal["ok", "warn", "info", "bad"]

_STEPS: t.Mapping[str, str] = {
    "plan_info": "the plan",
    "run_lease": "the Lease",
    "primary_exclusion": "the exclusion",
    "pool_daemonsets": "the DaemonSets of the pools",
    "feature_gate": "the feature gates",
    "leftovers": "deleting what is left",
    "workload_update": "live migrations",
    "operator_pools": "the pools of virt-operator",
    "pool_history": "the record of the pool list",
    "wave_gate": "the gate",
    "canary_vm": "the canary VMs",
}
_GATES = ("wave_gate", "canary_vm")


@dataclass(frozen=True)
class RunBatch:
    """Nodes that were handed over side by side."""

    number: int
    began: float
    ended: float
    nodes: tuple[Handover, ...]
    failed: bool


@dataclass(frozen=True)
class RunGate:
    """A check after a wave."""

    title: str
    began: float
    ended: float
    failed: bool = False
    soak: float = 0.0
    """Seconds of it that were only waited."""
    vms: tuple[t.Mapping[str, t.Any], ...] = ()
    """The canary VMs that have passed."""


@dataclass
class Stage:
    """A wave, all nodes of a run without waves, or the way back after a failure."""

    title: str
    batches: list[RunBatch] = field(default_factory=list)
    gates: list[RunGate] = field(default_factory=list)

    @property
    def nodes(self) -> list[Handover]:
        return [node for batch in self.batches for node in batch.nodes]

    @property
    def failed(self) -> bool:
        return any(batch.failed for batch in self.batches) or any(gate.failed for gate in self.gates)

    @property
    def began(self) -> float:
        return min([*(batch.began for batch in self.batches), *(gate.began for gate in self.gates)])

    @property
    def ended(self) -> float:
        return max([*(batch.ended for batch in self.batches), *(gate.ended for gate in self.gates)])


@dataclass(frozen=True)
class RunVerdict:
    tone: Tone
    words: str


@dataclass(frozen=True)
class RunStory:
    """A run that has ended."""

    record: RunRecord
    ended: float
    completed: bool
    """Whether all tasks of the run succeeded."""

    @property
    def plan(self) -> t.Mapping[str, t.Any]:
        """The first plan, which the run showed; empty when there is none."""
        return self._plans[0].kept if self._plans else {}

    @property
    def ending(self) -> t.Sequence[str]:
        """How far a run that failed came, and how to go on."""
        return self._end.get("ending") or ()

    @property
    def outcome(self) -> t.Mapping[str, t.Any]:
        """What the run publishes of itself; empty when it is unknown."""
        last = self._end if not self.completed else self._plans[-1].kept if self._plans else {}
        return _only(last.get("outcome"))

    @property
    def published(self) -> t.Mapping[str, t.Any]:
        """What it publishes of its plan."""
        plans: t.Mapping[str, t.Any] = (self.plan.get("published") or {}).get(self.record.host, {})
        return t.cast("t.Mapping[str, t.Any]", plans.get(_only(self.plan.get("outcome")).get("run", "")) or {})

    @property
    def _plans(self) -> list[RunStep]:
        """The plans before anything failed."""
        steps = self.record.steps[: _failed_at(self.record)]
        return [step for step in steps if step.module == "plan_info" and not step.error and not _is_end(step)]

    @property
    def _end(self) -> t.Mapping[str, t.Any]:
        return next((step.kept for step in reversed(self.record.steps) if _is_end(step) and not step.error), {})

    @property
    def failure(self) -> RunStep | None:
        """The module that failed first, or after which a gate of the user did; None when none did."""
        at = _failed_at(self.record)
        return None if at is None else self.record.steps[at]

    @property
    def error(self) -> str:
        """Why the run failed; empty when it did not."""
        if self.failure is not None and self.failure.error:
            return self.failure.error
        if self.completed or self.refused:
            return ""
        if self.failure is not None:
            return "A gate of your own did not pass, or failed. The output of the run has its error."
        return "\n".join(self._refusals) or "The output of the run has its error."

    @property
    def _refusals(self) -> t.Sequence[str]:
        """The errors of the last plan, for which a run stops, or does not even begin."""
        return self._plans[-1].kept.get("errors", ()) if self._plans else ()

    @property
    def refused(self) -> bool:
        """Whether the plan has errors, and nothing was changed."""
        return bool(self._refusals) and not self.completed and not any(step.works for step in self.record.steps)

    @cached_property
    def stages(self) -> list[Stage]:
        return _stages(self.record)

    @property
    def verdict(self) -> RunVerdict:
        """How the run ended, in words."""
        if self.refused:
            return RunVerdict("bad", f"Refused with {count(len(self._refusals), 'error')}: nothing was changed")
        if not self.completed or self.failure is not None:
            return RunVerdict("bad", self._failed())
        if not self._plans:
            return RunVerdict("ok", "Finished")
        outcome = self.outcome
        nodes = count(outcome.get("nodes", 0), "node")
        if not outcome.get("changed"):
            return RunVerdict("ok", next(filter(None, map(_no_change, self.plan["text"])), "Nothing to do"))
        if self.record.check:
            words = f"{nodes} would change" if outcome["nodes"] else "policies and records would change"
            return RunVerdict("info", f"Only a plan: {words}")
        if outcome.get("stop"):
            return RunVerdict("warn", f"Paused as asked: {outcome['done']:,} of {nodes} changed")
        return RunVerdict(
            "ok", f"Finished: {nodes} changed" if outcome["nodes"] else "Finished: policies and records changed"
        )

    def _failed(self) -> str:
        where = f" at {_place(self.failure, self.stages)}" if self.failure is not None else ""
        back = [node for stage in self.stages if stage.title == ROLLBACK for node in stage.nodes]
        if back:
            return f"Failed{where}, and {count(len(back), 'node')} went back"
        outcome = self.outcome
        if "done" in outcome:
            return f"Failed{where}: {outcome['done']:,} of {count(outcome['nodes'], 'node')} changed"
        return f"Failed{where}" if where else "Failed"


ROLLBACK: t.Final = "Way back"
"""Title of what a run did after a failed wave."""


def _only(by_host: t.Mapping[str, t.Mapping[str, t.Any]] | None) -> t.Mapping[str, t.Any]:
    """What there is for the only host."""
    return next(iter((by_host or {}).values()), {})


def _is_end(step: RunStep) -> bool:
    """Whether the module only read how far a failed run came."""
    return "planned_batches" in step.asked


def _is_lease_of_gates(step: RunStep) -> bool:
    """Whether the module extended the Lease for the user's gates, which follow."""
    return step.module == "run_lease" and step.asked.get("state") == "renewed"


def _failed_at(record: RunRecord) -> int | None:
    """The place of the step that failed first."""
    for at, step in enumerate(record.steps):
        if _is_end(step):
            continue
        if step.error or (_is_lease_of_gates(step) and not _went_on(record.steps[at + 1 :])):
            return at
    return None


def _went_on(steps: t.Iterable[RunStep]) -> bool:
    """Whether the run went on with its wave after the user's gates, which leave nothing in the record."""
    for step in steps:
        if step.module in ("wave_gate", "pool_history"):
            return True
        if step.module == "plan_info" or step.asked.get("state") == "absent":
            return False
    return False


def _no_change(line: str) -> str:
    reason = line.removeprefix("No change: ")
    return f"Nothing to do: {reason.removesuffix('.')}" if reason != line else ""


def step_words(step: RunStep) -> str:
    """What a module works on."""
    part = step.asked.get("part")
    return f"the {part.replace('_', ' ')}" if part else _STEPS.get(step.module, step.module.replace("_", " "))


def _place(step: RunStep, stages: t.Sequence[Stage]) -> str:
    """Where in the run a module failed."""
    failed = next((stage for stage in stages if stage.failed), None)
    wave = _lower(failed.title) if failed is not None and failed.title != ALL_NODES else ""
    if step.module == "pool_nodes":
        number = next((batch.number for stage in stages for batch in stage.batches if batch.failed), 0)
        return f"batch {number}{f' of {wave}' if wave else ''}" if number else "the handovers"
    after = f" after {wave}" if wave else ""
    if _is_lease_of_gates(step):
        return f"your own gates{after}"
    return f"{step_words(step)}{after if step.module in _GATES else ''}"


def _lower(title: str) -> str:
    return f"{title[:1].lower()}{title[1:]}"


ALL_NODES: t.Final = "All nodes"
"""Title of the only wave of a run without waves."""


def _stages(record: RunRecord) -> list[Stage]:
    found: list[Stage] = []
    current: Stage | None = None
    failed_at, batches = _failed_at(record), 0
    for at, step in enumerate(record.steps):
        failed = failed_at is not None and at > failed_at
        if at and at - 1 == failed_at:
            current = None
        if step.module == "pool_history" and step.asked.get("record") == "wave_begun" and not step.error:
            current = _begin(found, ROLLBACK if failed else _title(str(step.asked.get("wave") or waves.ALL)))
        elif step.module == "pool_nodes" and (step.nodes or step.error):
            batches += 1
            current = current or _begin(found, ROLLBACK if failed else ALL_NODES)
            current.title = current.title if failed else _title_by(step, current.title)
            current.batches.append(RunBatch(batches, step.began, step.ended, step.nodes, bool(step.error)))
        elif current is not None and (gate := _gate(step, record.steps[at + 1 :])) is not None:
            current.gates.append(gate)
    return [stage for stage in found if stage.batches or stage.gates]


def _begin(stages: list[Stage], title: str) -> Stage:
    if title != ROLLBACK or not stages or stages[-1].title != ROLLBACK:
        stages.append(Stage(title))
    return stages[-1]


def _title(wave: str) -> str:
    return ALL_NODES if wave == waves.ALL else f"Wave {wave}"


def _title_by(step: RunStep, title: str) -> str:
    """The title of a wave with its number, which its batches have."""
    progress = step.asked.get("progress")
    if not progress or progress["wave"] == waves.ALL:
        return title
    return f"Wave {progress['number']} of {progress['waves']} ({progress['wave']})"


def _gate(step: RunStep, following: t.Sequence[RunStep]) -> RunGate | None:
    failed = bool(step.error)
    if step.module == "wave_gate" and "baseline" in step.asked:
        soak = float(step.asked.get("soak") or 0)
        return RunGate("Gate after the soak" if soak else "Gate", step.began, step.ended, failed, soak)
    if step.module == "canary_vm":
        return RunGate("Canary VMs", step.began, step.ended, failed, vms=tuple(step.kept.get("vms", ())))
    if _is_lease_of_gates(step):
        ended = following[0].began if following else step.ended
        return RunGate("Your own gates", step.ended, ended, not _went_on(following))
    return None
