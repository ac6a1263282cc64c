# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of Markdown pages fit one width. Usage: check_docs.py REPOSITORY

Tables, code, headings, and what cannot be wrapped (a link, an image) may be longer.
"""

from __future__ import annotations

import subprocess
import sys
import typing as t
from pathlib import Path

WIDTH = 120
# Tools write these.
GENERATED = {"CHANGELOG.md", "docs/variables.md"}
MARKS = ("|", "#", "![", "<!--")


def too_long(text: str) -> t.Iterator[int]:
    """Yield the numbers of the lines of prose that should be wrapped."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        start = line.lstrip(" >")
        if start.startswith("```"):
            in_code = not in_code
        elif (
            len(line) > WIDTH and not in_code and not start.startswith(MARKS) and " " in start.lstrip("-*0123456789. ")
        ):
            yield number


def main() -> int:
    root = Path(sys.argv[1])
    command = ["git", "-C", str(root), "ls-files", "-z", "*.md"]
    known = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    pages = [page for page in known if page and page not in GENERATED]
    wrong = [f"{page}:{number}" for page in pages for number in too_long((root / page).read_text("utf-8"))]
    for place in wrong:
        print(f"{place}: longer than {WIDTH} characters")
    if not pages:
        print(f"{root} has no pages")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
