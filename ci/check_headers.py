# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every source file says whose it is and under which license, and a module util that it is private.

Usage: check_headers.py REPOSITORY
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COPYRIGHT = "Copyright (c) 2026, the virtpools.kubevirt authors"
LICENSE = "SPDX-License-Identifier: GPL-3.0-or-later"
WITHIN_LINES = 10

# What the users' Ansible would let anybody import.
PRIVATE_FOLDER = "plugins/module_utils/"
PRIVATE = "# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time."

# Prose, data without comments, and what tools write: galaxy.yml's license holds for them.
EXEMPT_SUFFIXES = {".json", ".jsonl", ".md", ".sum"}
EXEMPT_FILES = {"LICENSE", "changelogs/changelog.yaml"}


def lacks_header(file: Path) -> bool:
    """Tell whether a file that is not empty has no complete header in its first lines."""
    lines = file.read_text("utf-8").splitlines()
    head = "\n".join(lines[:WITHIN_LINES])
    return bool(lines) and not (COPYRIGHT in head and LICENSE in head)


def lacks_private_note(file: Path) -> bool:
    """Tell whether a file that is not empty does not say, right after its header, that it is only ours to import."""
    lines = [line for line in file.read_text("utf-8").splitlines() if line]
    header = [number for number, line in enumerate(lines[:WITHIN_LINES]) if COPYRIGHT in line or LICENSE in line]
    return bool(lines) and (not header or lines[header[-1] + 1 : header[-1] + 2] != [PRIVATE])


def has_private_name(file: str) -> bool:
    """Tell whether a module util is marked as private by its name, too. Only the note does that, for all of them."""
    return any(part.startswith("_") and part != "__init__.py" for part in Path(file).parts)


def files_in(repository: Path) -> list[str]:
    """List the files that need a header, as git knows them: tools leave others behind."""
    command = ["git", "-C", str(repository), "ls-files", "-z"]
    known = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    return [file for file in known if file and file not in EXEMPT_FILES and Path(file).suffix not in EXEMPT_SUFFIXES]


def main() -> int:
    root = Path(sys.argv[1])
    files = files_in(root)
    wrong = [file for file in files if lacks_header(root / file)]
    for file in wrong:
        print(f"{file}: no '{COPYRIGHT}' and '{LICENSE}' in its first {WITHIN_LINES} lines")
    public = [file for file in files if file.startswith(PRIVATE_FOLDER) and lacks_private_note(root / file)]
    for file in public:
        print(f"{file}: no '{PRIVATE}' after its header")
    underscored = [file for file in files if file.startswith(PRIVATE_FOLDER) and has_private_name(file)]
    for file in underscored:
        print(f"{file}: a name with an underscore in front; every module util is private, so none is named so")
    if not files:
        print(f"{root} has no source files")
    return 1 if wrong or public or underscored or not files else 0


if __name__ == "__main__":
    sys.exit(main())
