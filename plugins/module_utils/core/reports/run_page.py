# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""A run as a single HTML page: how it ended, what it was to change, and when each node was handed over."""

from __future__ import annotations

import itertools
import statistics
import typing as t
from datetime import datetime, timezone

from ..planning.progress import duration
from . import page_pieces as pieces
from . import run_timeline
from .page_style import RUN_STYLE
from .run_record import RunStep
from .run_story import RunStory, Stage, step_words

_PLAN_ROOM = 120_000
_STEPS_ROOM = 100_000
_STAGES_ROOM = 100_000
_ERROR_ROOM = 20_000
"""In bytes. With the rooms of the timeline they keep the page of any run below 1 MB."""
_MOST_CHANGES = 12
"""Changes of a step that are shown."""
_KINDS = {"site": "Pools applied", "rollback": "Rollback", "remove": "Pools removed", "": "Run"}
_SILENT = ("plan_info", "run_lease", "pool_history", "run_report", "wave_gate", "canary_vm")
"""Modules that change nothing of the pools, or are shown with the waves."""
_FINDING = ("ERROR ", "WARNING ", "NOTE ")
"""How the lines of findings begin, which have a section of their own."""


def render(story: RunStory) -> str:
    """The page."""
    verdict, stages = story.verdict, story.stages
    findings = story.plan.get("findings")
    return pieces.document(
        verdict.tone,
        pieces.text(verdict.words),
        eyebrow=(_kind(story), *_cluster(story), _when(story), story.record.by and f"by {story.record.by}"),
        top=_tiles(story, stages),
        sections=(
            ("Why it failed, and how to go on", _why(story)),
            ("Handovers", run_timeline.picture(stages, story.record.began, story.ended) + run_timeline.nodes(stages)),
            ("Waves and gates", _stages(stages)),
            ("Findings", "" if findings is None else pieces.findings(findings)),
            ("What the run was to change", _plan(story)),
            ("What it did", _steps(story)),
        ),
        style=RUN_STYLE,
    )


# The top ------------------------------------------------------------------------------------------------------------


def _kind(story: RunStory) -> str:
    return _KINDS.get(str(story.outcome.get("run", "")), _KINDS[""])


def _cluster(story: RunStory) -> t.Iterator[str]:
    published = story.published
    if story.record.host != "localhost":
        yield story.record.host
    yield str(published.get("server", ""))
    if published.get("uid"):
        yield f"UID {published['uid']}"


def _when(story: RunStory) -> str:
    """Both ends of the run, with the day once if it is the same."""
    began, ended = (datetime.fromtimestamp(at, timezone.utc) for at in (story.record.began, story.ended))
    day = "" if began.date() == ended.date() else f"{ended:%Y-%m-%d} "
    return f"{began:%Y-%m-%d %H:%M:%S} to {day}{ended:%H:%M:%S} UTC"


def _tiles(story: RunStory, stages: t.Sequence[Stage]) -> str:
    outcome = story.outcome
    nodes = [node for stage in stages for node in stage.nodes]
    gaps = run_timeline.gaps_of(stages)
    gates = [gate for stage in stages for gate in stage.gates]
    failed = sum(node.failed for node in nodes)
    not_passed = sum(gate.failed for gate in gates)
    tiles = []
    if outcome.get("nodes"):
        done = 0 if story.record.check else outcome.get("done", 0)
        note = f"of {outcome['nodes']:,} in the plan" + (f", {failed:,} failed" if failed else "")
        tiles.append(("bad" if failed else "", f"{done:,}", "Nodes changed", note))
    if gaps:
        usual, longest, slow_from = statistics.median(gaps), max(gaps), run_timeline.slow_from(gaps)
        slow = sum(gap > slow_from for gap in gaps)
        tiles.append(("", run_timeline.seconds(usual), "Without a handler", "half of the nodes, at most"))
        slowest = pieces.text(max(nodes, key=lambda node: node.gap or 0).node)
        note = slowest + (f", and {slow - 1:,} more stand out" if slow > 1 else "")
        tiles.append(("", run_timeline.seconds(longest), "Longest", note))
    if gates:
        note = f"{not_passed:,} not passed" if not_passed else "all passed"
        tiles.append(("bad" if not_passed else "", f"{len(gates):,}", "Gates", note))
    note = f"{pieces.count(sum(len(stage.batches) for stage in stages), 'batch', 'batches')}"
    tiles.append(("", duration(story.ended - story.record.began), "Time", note))
    return pieces.tiles(tiles)


def _why(story: RunStory) -> str:
    lines = [*story.ending] or ["How far the run came is unknown: run plan."]
    if not story.error:
        return ""
    error = pieces.text(story.error)
    shown = error if len(error.encode()) <= _ERROR_ROOM else pieces.text(story.error[: _ERROR_ROOM // 8]) + " …"
    return f'<p class="why">{shown}</p><ul>{"".join(f"<li>{pieces.text(line)}</li>" for line in lines)}</ul>'


# Waves --------------------------------------------------------------------------------------------------------------


def _stages(stages: t.Sequence[Stage]) -> str:
    if not stages:
        return ""
    head = ["Wave", "Nodes", "Batches", "Handovers", "Longest", "Gates"]
    rows, missing = pieces.within(_STAGES_ROOM, (_stage(head, stage) for stage in stages))
    return pieces.table("stack", head, rows) + pieces.left_out(missing, "wave")


def _stage(head: t.Sequence[str], stage: Stage) -> str:
    gaps = run_timeline.gaps_of([stage])
    done = sum(node.result == "done" for node in stage.nodes)
    return pieces.row(
        head,
        [
            pieces.text(stage.title),
            f"{done:,} of {len(stage.nodes):,} done",
            f"{len(stage.batches):,}",
            " to ".join(map(run_timeline.clock, (stage.batches[0].began, stage.batches[-1].ended)))
            if stage.batches
            else "-",
            run_timeline.seconds(max(gaps)) if gaps else "-",
            _gates(stage) or "-",
        ],
    )


def _gates(stage: Stage) -> str:
    shown = []
    for gate in stage.gates:
        badge = pieces.badge("bad", "not passed") if gate.failed else pieces.badge("ok", "passed")
        soak = f", soaked {duration(gate.soak)}" if gate.soak else ""
        vms = "".join(
            f"<br><small>{pieces.text(vm['pool'])}: {pieces.text(vm['vm'])} on {pieces.text(vm['node'])}, {vm['seconds']:,.0f} s</small>"
            for vm in gate.vms
        )
        shown.append(f"<p>{badge} {gate.title} <small>{run_timeline.clock(gate.began)}{soak}</small>{vms}</p>")
    return "".join(shown)


# Plan and steps -----------------------------------------------------------------------------------------------------


def _plan(story: RunStory) -> str:
    if not story.plan:
        return pieces.quiet("The run failed before it had a plan.") if story.error else ""
    lines = [line for line in story.plan["text"] if not line.startswith(_FINDING)]
    summary = str(story.published.get("summary", ""))
    total = f'<p class="total">{pieces.sentence(summary)}</p>' if summary else ""
    kept, missing = pieces.within(_PLAN_ROOM, (f"{pieces.text(line)}\n" for line in lines))
    return f'{total}<pre class="plan">{"".join(kept)}</pre>{pieces.left_out(missing, "line")}'


def _steps(story: RunStory) -> str:
    head = ["Time", "Step", "Took", "Changes"]
    shown = [step for step in story.record.steps if step.error or (step.works and step.module not in _SILENT)]
    groups = (
        [*group] for _key, group in itertools.groupby(shown, lambda step: (step.module, id(step) if step.error else 0))
    )
    rows, missing = pieces.within(_STEPS_ROOM, (_step(head, group) for group in groups))
    if not rows:
        return ""
    return pieces.table("stack", head, rows) + pieces.left_out(missing, "step")


def _step(head: t.Sequence[str], steps: t.Sequence[RunStep]) -> str:
    """A row for one step, or for several of the same kind in a row."""
    first, last = steps[0], steps[-1]
    nodes = sum(len(step.nodes) for step in steps)
    # The text of virt-operator's pools also tells which nodes had no handler for a while.
    changes = [line for step in steps for line in step.kept.get("text", step.kept.get("changes", ()))]
    if nodes:
        told = f"{pieces.count(nodes, 'node')} in {pieces.count(len(steps), 'batch', 'batches')}"
    else:
        more = f"<li>and {len(changes) - _MOST_CHANGES:,} more</li>" if len(changes) > _MOST_CHANGES else ""
        told = f"<ul>{''.join(f'<li>{pieces.text(change)}</li>' for change in changes[:_MOST_CHANGES])}{more}</ul>"
    words = "the handovers" if first.module == "pool_nodes" else step_words(first)
    return pieces.row(
        head,
        [
            run_timeline.clock(first.began),
            pieces.sentence(words) + (f" {pieces.badge('bad', 'failed')}" if last.error else ""),
            duration(last.ended - first.began),
            told if nodes or changes else "-",
        ],
    )
