# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What a process takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEASURED = Path(__file__).with_name("measured.py")


@dataclass(frozen=True)
class Cost:
    """What a process took, with its children: seconds of the processor, and the peak of the largest of them."""

    seconds: float
    megabytes: float
    output: str


def measured(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """Run a process that must succeed."""
    ours = {
        **os.environ,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "ANSIBLE_NOCOLOR": "1",
        **(environment or {}),
    }
    with tempfile.NamedTemporaryFile("r") as file:
        watched = [sys.executable, "-S", str(MEASURED), file.name, *command]
        ended = subprocess.run(
            watched, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=ours
        )
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout[-4000:]}")
        return Cost(**json.load(file), output=ended.stdout)
