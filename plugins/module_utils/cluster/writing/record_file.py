# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The file in which a run keeps its record until its page is written. Nothing about it may end a run."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def begin(opening: str) -> str:
    """Begin a record with this line. Returns its path, in the folder for temporary files.

    :raises OSError: when that cannot be written.
    """
    handle, path = tempfile.mkstemp(prefix="virtpools-run-")
    with open(handle, "w", encoding="utf-8") as file:
        file.write(f"{opening}\n")
    return path


def append(path: str, line: str) -> None:
    """Append a line to a record that exists. What cannot be written is missing in the page."""
    with contextlib.suppress(OSError), open(os.open(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as file:
        file.write(f"{line}\n")


def take(path: str) -> list[str]:
    """The lines of a record, which is deleted.

    :raises OSError: when it cannot be read.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    with contextlib.suppress(OSError):
        Path(path).unlink()
    return lines
