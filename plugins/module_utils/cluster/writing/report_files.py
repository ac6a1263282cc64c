# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Writes reports to files on the machine where the module runs."""

from __future__ import annotations

import os
import tempfile
import typing as t

from ...core.base.findings import InputErrors


class ReportFile(t.NamedTuple):
    """A file that a user asks for."""

    form: str
    option: str
    """The name that the user knows, for messages."""
    path: str


def require_writable(files: t.Iterable[ReportFile]) -> None:
    """Check that these files can be written, before work of minutes or hours.

    :raises InputErrors: with all that cannot.
    """
    problems = [problem for file in files if (problem := _problem(file)) is not None]
    if problems:
        raise InputErrors(problems)


def _problem(file: ReportFile) -> str | None:
    parent = os.path.dirname(file.path) or "."
    if not os.path.isdir(parent):
        return f"{file.option} is {file.path}, but there is no folder {parent}; create it, or name another file."
    if not os.access(parent, os.W_OK):
        return f"{file.option} is {file.path}, but you may not write to the folder {parent}; name another file."
    if os.path.isdir(file.path):
        return f"{file.option} is {file.path}, which is a folder; name a file in it."
    return None


def write(file: ReportFile, text: str, move: t.Callable[[str, str], None]) -> None:
    """Write a file. It exists as a whole or not at all.

    :param move: moves a file in one step, as ``AnsibleModule.atomic_move`` does.
    :raises InputErrors: when it cannot be written.
    """
    try:
        # Beside the file, so that moving it there is one step: collectors read it at any time.
        folder, prefix = os.path.dirname(file.path) or ".", f".{os.path.basename(file.path)}-"
        handle, written = tempfile.mkstemp(dir=folder, prefix=prefix)
        with open(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise InputErrors([f"{file.option} cannot be written to {file.path}: {error.strerror}."]) from error
    move(written, file.path)
