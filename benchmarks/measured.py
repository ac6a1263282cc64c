# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Run a command, and write its processor time and peak memory to FILE.

Usage: measured.py FILE COMMAND...

This is a process of its own, and a small one, because Linux counts the memory of the starting process as the command's.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> int:
    """Return the command's exit code."""
    file, *command = sys.argv[1:]
    _pid, status, usage = os.wait4(os.posix_spawn(command[0], command, os.environ), 0)
    with open(file, "w", encoding="utf-8") as output:
        json.dump({"seconds": usage.ru_utime + usage.ru_stime, "megabytes": usage.ru_maxrss / 1024}, output)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
