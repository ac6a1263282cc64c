# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Background processes that outlive this one and are stopped by pid, never by name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import paths

if TYPE_CHECKING:
    from collections.abc import Sequence


# Memory for processor time, of which there is less. And one thread for each: Go collects garbage on every core that it takes for idle,
# and twenty programs share few.
_ENVIRONMENT = {"GOGC": "300", "GOMAXPROCS": "1"}


@dataclass(frozen=True)
class Process:
    """A pid and its start time in clock ticks since boot, which together identify one process for good."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Return whether the process still runs."""
        return _start_time(self.pid) == self.started

    def stop(self, patience: float) -> None:
        """End the process: terminate it and wait for up to ``patience`` seconds, if any, then kill it."""
        if patience > 0:
            self._signal(signal.SIGTERM)
            self._wait_until_gone(patience)
        self._signal(signal.SIGKILL)
        self._wait_until_gone(10)

    def _signal(self, number: int) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _wait_until_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        # If it is a child of ours, leave no zombie behind.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)


def spawn(command: Sequence[str], log: Path, temporary: Path) -> Process:
    """Start a program in a session of its own, so that it survives this process and its terminal.

    Its temporary files go into the folder ``temporary``: KubeVirt's programs leave certificates behind.
    """
    temporary.mkdir(exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Not subprocess: it warns about, and waits for, children that are meant to stay.
    pid = os.posix_spawn(
        command[0],
        list(command),
        {**os.environ, **_ENVIRONMENT, "TMPDIR": str(temporary)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Process(pid, _start_time(pid) or 0)


def remember(process: Process, file: Path) -> None:
    """Save a process to a file for later invocations."""
    paths.write_atomically(file, json.dumps(asdict(process)))


def recall(file: Path) -> Process | None:
    """Read a process from its file, whether it is alive or not."""
    try:
        return Process(**json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return None


def _start_time(pid: int) -> int | None:
    """Return when a process started; None if there is none, or only a zombie whose files are closed."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the program's name, may itself hold blanks and parentheses.
    fields = stat.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    # After a kill the main thread may be a zombie while others still keep the ports.
    return None if state in {"Z", "X"} and threads <= 1 else started
