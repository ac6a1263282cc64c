# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Run go build, and say every few seconds how far it is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from . import go
from .go import Log

SECONDS_PER_LINE = 15
PACKAGE = (
    "{{.ImportPath}}\t{{.Stale}}\t{{.StaleReason}}\t{{.Dir}}\t{{len .Deps}}\t{{join .GoFiles `/`}}/{{join .CFiles `/`}}"
)
"""What go list says of a package. A slash is in no name of a file."""


def build(
    program: str,
    arguments: list[str],
    packages: list[str],
    folder: Path,
    log: Log,
    tags: Sequence[str] = (),
    cgo: bool = False,
) -> None:
    """Build packages; raise ClusterError with what Go says if that fails.

    :param tags: the option for build tags, or nothing.
    :param cgo: also compile the C in packages.
    """
    costs = _to_compile(program, [*tags, *packages], folder, cgo)
    total = sum(costs.values())
    command = [program, "build", "-v", *arguments, *tags, *packages]
    others: list[str] = []
    started = said = time.monotonic()
    done = 0
    with subprocess.Popen(command, cwd=folder, env=go.environment(cgo), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            # Go names each package that it begins to compile, alone on a line; all else has spaces.
            if " " in line.strip():
                others.append(line)
                continue
            now = time.monotonic()
            if now - said >= SECONDS_PER_LINE and 0 < done < total:
                said = now
                log(f"  {done / total:.0%} compiled, about {spoken(time_to_go(done, total, now - started))} to go")
            done += costs.get(line.strip(), 0)
    if process.returncode != 0:
        raise go.failed(command, "".join(others))


def time_to_go(done: int, total: int, seconds: float) -> float:
    """Return the seconds that the packages left will take, if they take as long for their cost as those done."""
    return seconds * (total - done) / done


def spoken(seconds: float) -> str:
    """Return a time as one says it: 40 s, 3 min."""
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(5, round(seconds / 5) * 5)} s"


def _to_compile(program: str, packages: list[str], folder: Path, cgo: bool) -> dict[str, int]:
    """Return what each package costs that the build cache lacks; this downloads modules that are not there yet."""
    costs = {}
    for line in go.output(program, ["list", "-deps", "-f", PACKAGE, *packages], folder, cgo).splitlines():
        name, stale, reason, place, imported, files = line.split("\t")
        # A program is stale until it is installed, even if the cache has it.
        if stale == "true" and "available in build cache" not in reason:
            size = sum((Path(place) / file).stat().st_size for file in files.split("/") if file)
            costs[name] = cost(size, int(imported))
    return costs


def cost(size: int, imported: int) -> int:
    """Return how long a package takes to compile, in units of a byte of source.

    By measurement, starting the compiler takes as long as 80,000 bytes, and each package that this one imports, itself or
    by another, as long as 400. The number of packages alone was wrong by half, for the last ones import the most.
    """
    return 80_000 + size + 400 * imported
