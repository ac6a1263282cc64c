# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The folders of local clusters and built programs; none of them is in the checkout."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTBED = Path(__file__).resolve().parent.parent
FLEETS = TESTBED / "fleets"
AGENT_SOURCE = TESTBED / "agent"
STUB_SOURCE = TESTBED / "stub"
MODULES = TESTBED / "modules"


def cache() -> Path:
    """Return the folder of built programs, shared by all checkouts of this user."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def state() -> Path:
    """Return the folder of running clusters and of kept logs."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def clusters() -> Path:
    """Return the folder that holds one folder per cluster."""
    return state() / "clusters"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel releases it if this process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that readers see all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.rename(path)


def _xdg(variable: str, default: str) -> Path:
    base = os.environ.get(variable, "")
    # The XDG specification says to ignore relative paths.
    return (Path(base) if base.startswith("/") else Path.home() / default) / "virtpools"
