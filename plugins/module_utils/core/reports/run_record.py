# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The record of a run: a line of JSON for each module of the run, in the order in which they ended.

Of each result it keeps what a report tells, with a few numbers for each node, so that the record of 3,000 nodes is some
hundred kB.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

Json = t.Mapping[str, t.Any]

_KEPT: t.Mapping[str, tuple[str, ...]] = {
    "plan_info": ("text", "findings", "errors", "pending", "stop", "outcome", "ending", "published", "mode"),
    "wave_gate": ("problems",),
    "canary_vm": ("vms",),
    "operator_pools": ("changes", "text"),
    "pool_nodes": (),
}
"""Fields of results that are kept as they are, by module."""
_OF_OTHERS = ("changes",)
_ASKED: t.Mapping[str, tuple[str, ...]] = {
    "plan_info": ("planned_batches",),
    "wave_gate": ("baseline", "soak"),
    "pool_history": ("record", "wave"),
    "run_lease": ("state",),
    "run_part": ("part",),
    "pool_daemonsets": ("state",),
    "primary_exclusion": ("state",),
    "pool_nodes": ("progress",),
}
"""Options of modules that are kept."""


class Handover(t.NamedTuple):
    """What happened to one node."""

    node: str
    source: str
    target: str
    result: str
    message: str = ""
    gap: float | None = None
    """Seconds without a Ready handler; None when none was told to end."""
    began: float | None = None
    """When the old handler was told to end, in seconds since 1970."""

    @property
    def failed(self) -> bool:
        return self.result not in ("done", "gone")


@dataclass(frozen=True)
class RunStep:
    """One module of the run."""

    module: str
    began: float
    """Times are in seconds since 1970."""
    ended: float
    error: str = ""
    """Why it failed; empty when it did not."""
    kept: Json = field(default_factory=dict)
    """Fields of its result."""
    asked: Json = field(default_factory=dict)
    """Its options."""
    nodes: tuple[Handover, ...] = ()

    @property
    def works(self) -> bool:
        """Whether it changed something, or may have."""
        return bool(self.nodes or self.kept.get("changes"))

    def to_line(self) -> str:
        nodes = [list(node) for node in self.nodes]
        entry = {**vars(self), "nodes": nodes}
        return json.dumps({key: value for key, value in entry.items() if value not in ("", [], {})})


@dataclass(frozen=True)
class RunRecord:
    """What is recorded of a run."""

    began: float
    by: str = ""
    """Who ran it."""
    host: str = ""
    """The cluster's name in the inventory."""
    check: bool = False
    """Whether it only tried out what a run would do."""
    steps: tuple[RunStep, ...] = ()

    @property
    def opening(self) -> str:
        """The first line of the record."""
        return json.dumps({"began": self.began, "by": self.by, "host": self.host, "check": self.check})


def step_of(module: str, params: Json, result: Json, began: float, ended: float) -> RunStep:
    """What the record keeps of a module that has ended.

    :param params: its options.
    :param result: with ``failed`` and ``msg`` when it failed.
    """
    wanted = _KEPT.get(module, _OF_OTHERS)
    asked = {name: value for name in _ASKED.get(module, ()) if (value := params.get(name)) is not None}
    if asked.get("wave"):
        asked["wave"] = asked["wave"].get("name") or ""
    return RunStep(
        module=module,
        began=round(began, 1),
        ended=round(ended, 1),
        error=str(result.get("msg", "")) if result.get("failed") else "",
        kept={name: result[name] for name in wanted if name in result},
        # A list may be long, and only matters as given or not.
        asked={name: True if isinstance(value, list) else value for name, value in asked.items()},
        nodes=tuple(_handover(node) for node in result.get("nodes", ())) if module == "pool_nodes" else (),
    )


def _handover(node: Json) -> Handover:
    return Handover(
        node["node"],
        node["from"],
        node["to"],
        node["result"],
        node["message"],
        node["seconds_without_handler"],
        node["began"],
    )


def read(lines: t.Iterable[str]) -> RunRecord:
    """The record as it was written. A line that was not written to its end, as on a full disk, is left out.

    :raises ValueError: for anything else.
    """
    entries = [entry for line in lines if (entry := _entry(line)) is not None]
    if not entries or "module" in entries[0]:
        raise ValueError("its first line is missing")
    steps = (RunStep(**{**entry, "nodes": _handovers(entry)}) for entry in entries[1:])
    return RunRecord(**entries[0], steps=tuple(steps))


def _entry(line: str) -> dict[str, t.Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _handovers(entry: Json) -> tuple[Handover, ...]:
    return tuple(Handover(*node) for node in entry.get("nodes", ()))
