# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Background processes that outlive us and are stopped by pid, never by name."""

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


@dataclass(frozen=True)
class Process:
    """A pid, and when it started in clock ticks since boot: together they name one process for good."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Say whether it still runs."""
        return _start_time(self.pid) == self.started

    def stop(self, patience: float) -> None:
        """End it: politely if there is patience (in seconds) for that, then by force."""
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
        # Where it is our own child, do not leave a zombie behind.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)


def spawn(command: Sequence[str], log: Path) -> Process:
    """Start a program in a session of its own, so that it survives this process and its terminal."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Not subprocess: it warns about, and waits for, children that are meant to stay.
    pid = os.posix_spawn(
        command[0],
        list(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Process(pid, _start_time(pid) or 0)


def remember(process: Process, file: Path) -> None:
    """Write a process down for later invocations."""
    paths.write_atomically(file, json.dumps(asdict(process)))


def recall(file: Path) -> Process | None:
    """Read a process back, whether it is alive or not."""
    try:
        return Process(**json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return None


def _start_time(pid: int) -> int | None:
    """Return when a process started; None if there is none, or nothing but a zombie that holds no files any more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the program's name, may itself hold blanks and parentheses.
    fields = stat.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    # After a kill the main thread may be a zombie while others still keep the ports.
    return None if state in {"Z", "X"} and threads <= 1 else started
