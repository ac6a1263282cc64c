# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""When each node was handed over, and how long it had no Ready handler: a picture, and the nodes by name.

In the picture, a point's place from left to right is the time, its height the seconds without a handler. So 3,000 nodes
fit, and a slow one stands out. The picture is stretched to the width of the page; its words are HTML, which is not.
"""

from __future__ import annotations

import statistics
import typing as t
from datetime import datetime, timezone

from . import page_pieces as pieces
from .run_record import Handover
from .run_story import RunBatch, Stage

_WIDTH, _HEIGHT = 1000, 200
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
"""Seconds between lines."""
_MOST_LINES = 4
_MOST_STEMS = 150
_MOST_TITLES = 500
"""Number of points up to which each shows its node's name when a mouse is over it."""
_MOST_BANDS = 300
_MOST_LABELS = 4
_TONES = ("ok", "warn", "bad")
_MOST_NAMED = 100
"""Number of nodes up to which all have a row; of more, the slowest do."""
_SLOWEST = 20
_FAILED_ROOM = 60_000
_ROWS_ROOM = 60_000
_ALL_ROOM = 300_000
_BANDS_ROOM = 60_000
"""In bytes."""
_NARROW = 9.0
"""In percent of the width: what is narrower has no room for its name."""


class Point(t.NamedTuple):
    """A node in the picture."""

    x: float
    y: float
    tone: str
    node: Handover


def slow_from(gaps: t.Sequence[float]) -> float:
    """More seconds than these are much more than what the other nodes took."""
    usual = statistics.median(gaps) if gaps else 0.0
    return max(2 * usual, usual + 10)


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, timezone.utc):%H:%M:%S}"


def seconds(number: float) -> str:
    return f"{number:,.1f} s" if number < 60 else f"{number:,.0f} s"


def gaps_of(stages: t.Iterable[Stage]) -> list[float]:
    return [node.gap for stage in stages for node in stage.nodes if node.gap is not None]


def tone_of(node: Handover, slow: float) -> str:
    """:param slow: see ``slow_from``."""
    if node.failed:
        return "bad"
    return "warn" if node.gap is not None and node.gap > slow else "ok"


# The picture --------------------------------------------------------------------------------------------------------


class _Scale:
    """From times and seconds to places in the picture."""

    def __init__(self, began: float, ended: float, longest: float) -> None:
        self._began = began
        self._span = max(ended - began, 1.0)
        self.step = next((step for step in _STEPS if longest <= step * _MOST_LINES), longest / _MOST_LINES)
        self.top = max(longest * 1.15, self.step)

    def x(self, at: float) -> float:
        return round(min(max((at - self._began) / self._span, 0.0), 1.0) * _WIDTH, 1)

    def y(self, gap: float) -> float:
        return round(_HEIGHT - gap / self.top * _HEIGHT, 1)

    @property
    def lines(self) -> list[float]:
        return [self.step * number for number in range(1, int(self.top / self.step) + 1)]

    @property
    def times(self) -> list[float]:
        return [self._began + self._span * quarter / 4 for quarter in range(5)]


def picture(stages: t.Sequence[Stage], began: float, ended: float) -> str:
    """The picture; empty when no node was handed over at a known time."""
    gaps = gaps_of(stages)
    if not gaps:
        return ""
    scale, slow = _Scale(began, ended, max(gaps)), slow_from(gaps)
    points = [
        Point(scale.x(node.began), scale.y(node.gap), tone_of(node, slow), node)
        for stage in stages
        for node in stage.nodes
        if node.began is not None and node.gap is not None
    ]
    number = pieces.count(len(points), "node")
    label = f"{number} over time; the longest was {seconds(max(gaps))} without a handler, half of them at most {seconds(statistics.median(gaps))}"
    svg = (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"{_bands(stages, scale)}{_grid(scale)}{_stems(points)}{_points(points)}</svg>"
    )
    heights = "".join(
        f'<span class="y" style="top:{scale.y(line) / _HEIGHT:.1%}">{line:,g} s</span>' for line in scale.lines
    )
    times = "".join(f"<span>{clock(at)}</span>" for at in scale.times)
    return (
        f'<div class="chart"><div class="names" aria-hidden="true">{_names(stages, scale)}</div>'
        f'<div class="plot">{svg}{heights}{_labels(points)}</div><div class="times">{times}</div></div>{_legend(stages, points)}'
    )


def _bands(stages: t.Sequence[Stage], scale: _Scale) -> str:
    """When batches and gates took place."""
    several = sum(len(stage.batches) for stage in stages) <= _MOST_BANDS
    bands = []
    for stage in stages:
        batches = [(batch.began, batch.ended, "b bad" if batch.failed else "b") for batch in stage.batches]
        if batches and not several:
            batches = [(batches[0][0], batches[-1][1], "b bad" if stage.failed else "b")]
        bands += batches
        for gate in stage.gates:
            bands.append((gate.began, gate.began + gate.soak, "s"))
            bands.append((gate.began + gate.soak, gate.ended, "g bad" if gate.failed else "g"))
    rects = (
        f'<rect class="{kind}" x="{scale.x(began)}" y="0" width="{max(scale.x(ended) - scale.x(began), 1.5):.1f}" height="{_HEIGHT}"/>'
        for began, ended, kind in bands
        if ended > began or kind != "s"
    )
    return "".join(pieces.within(_BANDS_ROOM, rects)[0])


def _grid(scale: _Scale) -> str:
    return f'<path class="grid" d="{"".join(f"M0 {scale.y(line)}H{_WIDTH}" for line in (0, *scale.lines))}"/>'


def _stems(points: t.Sequence[Point]) -> str:
    if len(points) > _MOST_STEMS:
        return ""
    stems = {tone: "".join(f"M{each.x} {_HEIGHT}V{each.y}" for each in points if each.tone == tone) for tone in _TONES}
    return "".join(f'<path class="stem {tone}" d="{path}"/>' for tone, path in stems.items() if path)


def _points(points: t.Sequence[Point]) -> str:
    """Points are lines without a length, whose round ends keep their shape when the picture is stretched."""
    size = "" if len(points) <= _MOST_STEMS else " small"
    if len(points) <= _MOST_TITLES:
        return "".join(
            f'<path class="p {point.tone}{size}" d="M{point.x} {point.y}h0"><title>{_about(point.node)}</title></path>'
            for point in points
        )
    # Those that stand out keep their names and their size, unless most do.
    told = [each for each in points if each.tone != "ok"]
    if len(told) <= _MOST_TITLES:
        return _many([each for each in points if each.tone == "ok"]) + _points(told)
    return _many(points)


def _many(points: t.Sequence[Point]) -> str:
    """Points without names, those at the same place as one."""
    places = {tone: sorted({(each.x, each.y) for each in points if each.tone == tone}) for tone in _TONES}
    return "".join(
        f'<path class="p {tone} tiny" d="{"".join(f"M{x:g} {y:g}h0" for x, y in found)}"/>'
        for tone, found in places.items()
        if found
    )


def _about(node: Handover) -> str:
    return f"{pieces.text(node.node)}: {seconds(node.gap or 0)} without a handler, from {clock(node.began or 0)} UTC"


def _labels(points: t.Sequence[Point]) -> str:
    """The names of the nodes that stand out, the slowest first, where names do not meet; ``roomy``: on a wide screen only."""
    placed: list[Point] = []
    labels = []
    for point in sorted((each for each in points if each.tone != "ok"), key=lambda each: each.y):
        if len(placed) == _MOST_LABELS:
            break
        level = [other for other in placed if abs(point.y - other.y) < _HEIGHT / 7]
        if any(abs(point.x - other.x) < _WIDTH / 3 for other in level):
            continue
        placed.append(point)
        side = f"right:{1 - point.x / _WIDTH:.1%}" if point.x > _WIDTH / 2 else f"left:{point.x / _WIDTH:.1%}"
        labels.append(
            f'<b class="tag {point.tone}{" roomy" if level else ""}" style="top:{point.y / _HEIGHT:.1%};{side}">'
            f"{pieces.text(point.node.node)} · {seconds(point.node.gap or 0)}</b>"
        )
    return "".join(labels)


def _names(stages: t.Sequence[Stage], scale: _Scale) -> str:
    """The names of waves above the picture, where there is room."""
    shown = []
    for stage in stages:
        left, right = scale.x(stage.began), scale.x(stage.ended)
        if (width := (right - left) * 100 / _WIDTH) >= _NARROW:
            shown.append(f'<span style="left:{left / _WIDTH:.1%};width:{width:.1f}%">{pieces.text(stage.title)}</span>')
    return "".join(shown)


def _legend(stages: t.Sequence[Stage], points: t.Sequence[Point]) -> str:
    tones = {point.tone for point in points}
    gates = [gate for stage in stages for gate in stage.gates]
    entries = [
        (True, "p ok", "a node: when, and how long it had no handler"),
        ("warn" in tones, "p warn", "much longer than the others"),
        ("bad" in tones, "p bad", "failed"),
        (True, "b", "batch"),
        (any(gate.soak for gate in gates), "s", "soak"),
        (bool(gates), "g", "gate"),
    ]
    shown = "".join(f'<li><i class="{kind}"></i>{words}</li>' for here, kind, words in entries if here)
    return f'<ul class="legend">{shown}</ul>'


# Nodes by name --------------------------------------------------------------------------------------------------------


def nodes(stages: t.Sequence[Stage]) -> str:
    """All nodes by batch; of a large run those that failed, the slowest ones, and all in a list to open."""
    every = [(batch, node) for stage in stages for batch in stage.batches for node in batch.nodes]
    if not every:
        return ""
    gaps = gaps_of(stages)
    slow, longest = slow_from(gaps), max(gaps, default=0.0)

    def rows(chosen: t.Iterable[tuple[RunBatch, Handover]], room: int) -> str:
        shown, missing = pieces.within(room, _rows(chosen, slow, longest))
        return f'<ol class="gaps">{"".join(shown)}</ol>{pieces.left_out(missing, "node")}'

    if len(every) <= _MOST_NAMED:
        return "".join(
            f"{_heading(stage)}{rows(((batch, node) for batch in stage.batches for node in _in_order(batch)), _ROWS_ROOM)}"
            for stage in stages
            if stage.nodes
        )
    failed = [(batch, node) for batch, node in every if node.failed]
    slowest = sorted((each for each in every if each[1].gap is not None), key=lambda each: -(each[1].gap or 0))[
        :_SLOWEST
    ]
    parts = [f"<h3>Failed</h3>{rows(failed, _FAILED_ROOM)}"] if failed else []
    if slowest:
        parts.append(f"<h3>The slowest</h3>{rows(slowest, _ROWS_ROOM)}")
    return "".join(parts) + _all(stages)


def _in_order(batch: RunBatch) -> list[Handover]:
    return sorted(batch.nodes, key=lambda node: (node.began or batch.began, node.node))


def _heading(stage: Stage) -> str:
    return f"<h3>{pieces.text(stage.title)} <small>{pieces.count(len(stage.nodes), 'node')}</small></h3>"


def _rows(chosen: t.Iterable[tuple[RunBatch, Handover]], slow: float, longest: float) -> t.Iterator[str]:
    before = 0
    for batch, node in chosen:
        tone = tone_of(node, slow)
        share = 0 if node.gap is None or not longest else max(node.gap / longest * 100, 1.5)
        why = f"<p>{pieces.text(node.result)}: {pieces.text(node.message)}</p>" if node.message else ""
        first = batch.number != before
        before = batch.number
        yield (
            f'<li class="{tone}{" first" if first else ""}"><em title="batch">{batch.number if first else ""}</em>'
            f"<time>{clock(batch.began if node.began is None else node.began)}</time><span>{pieces.text(node.node)}</span>"
            f'<i><i style="width:{share:.1f}%"></i></i><b>{"-" if node.gap is None else seconds(node.gap)}</b>{why}</li>'
        )


def _all(stages: t.Sequence[Stage]) -> str:
    """Every node with its seconds, a paragraph for each batch."""
    shown, missing = pieces.within(_ALL_ROOM, (_to_open(stage) for stage in stages if stage.nodes))
    return f"<h3>All nodes, with their seconds</h3>{''.join(shown)}{pieces.left_out(missing, 'wave')}"


def _to_open(stage: Stage) -> str:
    # This leaves room for the title.
    lines, missing = pieces.within(_ALL_ROOM - 2_000, map(_line, stage.batches))
    batches = pieces.count(len(stage.batches), "batch", "batches")
    title = f"{pieces.text(stage.title)} <small>{pieces.count(len(stage.nodes), 'node')} in {batches}</small>"
    left_out = pieces.left_out(missing, "batch", "batches")
    return f'<details><summary>{title}</summary><div class="all">{"".join(lines)}</div>{left_out}</details>'


def _line(batch: RunBatch) -> str:
    told = ", ".join(
        f"{pieces.text(node.node)} {'-' if node.gap is None else f'{node.gap:,.1f}'}" for node in batch.nodes
    )
    return f"<p><b>{batch.number}</b> <time>{clock(batch.began)}</time> {told}</p>"
