# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What a person reads who stops ansible-playbook with Ctrl-C while a run changes a cluster.

Ansible then kills its workers at once, and shows nothing of theirs any more. So a worker keeps notes of what a person must know
from then on, in Ansible's local temporary folder, and the main process shows those that are left when it ends.
docs/design/output.md explains this.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import typing as t
import urllib.parse
from pathlib import Path

from ansible import constants
from ansible.utils.display import Display

_PREFIX = "virtpools-interrupted-"


def note(host: str, lines: t.Sequence[str], *, stderr: bool) -> None:
    """Keep lines about this host of the inventory in place of those before; none when its run has ended.

    :param stderr: whether they are shown on the standard error.
    """
    file = _folder() / f"{_PREFIX}{urllib.parse.quote(host, safe='')}"
    new = file.with_name(f"new-{file.name}")
    with contextlib.suppress(OSError):  # a full disk must not end a run
        if lines:
            new.write_text("\n".join(["stderr" if stderr else "stdout", *lines]), "utf-8")
            os.replace(new, file)
        else:
            file.unlink(missing_ok=True)


def show() -> None:
    """Show the lines of the runs that have not ended."""
    for file in sorted(_folder().glob(f"{_PREFIX}*")):
        stream, _newline, text = file.read_text("utf-8").partition("\n")
        Display().display(text, stderr=stream == "stderr")


def _folder() -> Path:
    return Path(constants.DEFAULT_LOCAL_TMP)


# In the main process, which imports this before it forks workers. Workers end without it. Ansible deletes the folder after this.
atexit.register(show)
