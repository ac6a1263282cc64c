# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every source file says whose it is and under which license. Usage: check_headers.py FOLDER"""

from __future__ import annotations

import os
import sys
from pathlib import Path

COPYRIGHT = "Copyright (c) 2026, the virtpools.kubevirt authors"
LICENSE = "SPDX-License-Identifier: GPL-3.0-or-later"
WITHIN_LINES = 10

# Prose, data without comments, and what tools write: galaxy.yml's license holds for them.
EXEMPT_SUFFIXES = {".json", ".jsonl", ".md", ".sum"}
EXEMPT_FILES = {"LICENSE", "changelogs/changelog.yaml"}


def lacks_header(file: Path) -> bool:
    """Tell whether a file that is not empty has no complete header in its first lines."""
    lines = file.read_text("utf-8").splitlines()
    head = "\n".join(lines[:WITHIN_LINES])
    return bool(lines) and not (COPYRIGHT in head and LICENSE in head)


def files_below(root: Path) -> list[str]:
    """List the files that need a header, relative to root."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        found += [(Path(folder) / name).relative_to(root).as_posix() for name in names]
    return sorted(f for f in found if f not in EXEMPT_FILES and Path(f).suffix not in EXEMPT_SUFFIXES)


def main() -> int:
    root = Path(sys.argv[1])
    files = files_below(root)
    wrong = [file for file in files if lacks_header(root / file)]
    for file in wrong:
        print(f"{file}: no '{COPYRIGHT}' and '{LICENSE}' in its first {WITHIN_LINES} lines")
    if not files:
        print(f"{root} has no source files")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
