# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Measures the processor time and memory of a command."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MEASURED = Path(__file__).with_name("measured.py")


@dataclass(frozen=True)
class Cost:
    """What a process and its children took: processor time, and the peak memory of the largest of them."""

    seconds: float
    megabytes: float
    output: str


def measured(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command, which must succeed, and return its cost and output."""
    merged = {
        **os.environ,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "ANSIBLE_NOCOLOR": "1",
        **(environment or {}),
    }
    with tempfile.NamedTemporaryFile("r") as file:
        wrapped = [sys.executable, "-S", str(MEASURED), file.name, *command]
        result = subprocess.run(
            wrapped, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=merged
        )
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stdout[-4000:]}")
        return Cost(**json.load(file), output=result.stdout)


def in_turns(turns: int, *programs: Callable[[], Cost]) -> list[list[Cost]]:
    """Run the programs in turns, so that other load on the machine affects all of them alike."""
    rounds = [[program() for program in programs] for _turn in range(turns)]
    return [list(costs) for costs in zip(*rounds, strict=True)]


def median_seconds(costs: Sequence[Cost]) -> float:
    """Return the processor time of the run in the middle."""
    return statistics.median(cost.seconds for cost in costs)


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Return with which power of the size the time grows: the slope between the first and the last point, on logarithmic scales."""
    (first, before), (last, after) = points[0], points[-1]
    return math.log(after / before) / math.log(last / first)
