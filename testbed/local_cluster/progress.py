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
    total = _to_compile(program, [*tags, *packages], folder, cgo)
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
            done += 1
            now = time.monotonic()
            if now - said >= SECONDS_PER_LINE and done <= total:
                said = now
                log(f"  {done:,} of {total:,} packages, about {spoken(time_to_go(done, total, now - started))} to go")
    if process.returncode != 0:
        raise go.failed(command, "".join(others))


def time_to_go(done: int, total: int, seconds: float) -> float:
    """Return the seconds that the packages left will take, if they take as long as those done."""
    return seconds * (total - done) / done


def spoken(seconds: float) -> str:
    """Return a time as one says it: 40 s, 3 min."""
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(5, round(seconds / 5) * 5)} s"


def _to_compile(program: str, packages: list[str], folder: Path, cgo: bool) -> int:
    """Count the packages that the build cache lacks; this downloads the modules that are not there yet."""
    reasons = go.output(program, ["list", "-deps", "-f", "{{.StaleReason}}", *packages], folder, cgo).splitlines()
    return sum("available in build cache" not in reason for reason in reasons)
