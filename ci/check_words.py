# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages, options, comments and pages avoid the phrases of a list, each of which has a plainer one.

A line that must keep one, such as a quotation, ends in a comment with "check-words: ok".

Usage: check_words.py REPOSITORY
"""

from __future__ import annotations

import re
import subprocess
import sys
import typing as t
from pathlib import Path

CHECKED = ("plugins", "roles", "playbooks", "docs", "examples", "README.md", "CONTRIBUTING.md", "Makefile")
SUFFIXES = {".py", ".md", ".yml", ".yaml", ""}
KEEP = "check-words: ok"


class Phrase(t.NamedTuple):
    """A phrase to avoid, as a regular expression, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


def _phrase(pattern: str, instead: str) -> Phrase:
    return Phrase(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead)


PHRASES: tuple[Phrase, ...] = (
    _phrase(r"(?:do|does|did) not count|counts? instead|counts? as\b", "applies, overrides, is ignored, is treated as"),
    _phrase(
        r"says (?:so|why|the same|nothing)|(?:scheduler|virt-operator|KubeVirt|condition|webhook) says",
        "reports, shows, specifies",
    ),
    _phrase(
        r"(?:make|makes|making|made) (?:again|anew|none|it again|them again)|(?:make|makes) (?:the )?(?:DaemonSets|pods|objects)",
        "create, recreate, build",
    ),
    _phrase(r"(?<!{)nobody(?! =)|somebody|anybody|everybody", "another user, another tool, no run; or the passive"),
    _phrase(r"(?:is|are|was|were) gone|(?:that|which|it|they) (?:is|are) (?:all )?there", "deleted, exists, present"),
    _phrase(r"(?:for|after|at most|up to|within|than) so (?:many|long|often)", "this many, this long, at most N"),
    _phrase(r"as far as", "where, if needed, the known ..."),
    _phrase(
        r"(?<!there )(?:is|are|was|were) no (?!longer|more than|less than|other|better|earlier|later)\w+", "is not a"
    ),
    _phrase(r"whoever|whosoever", "anyone who, a user who"),
    _phrase(
        r"(?:is|are) well(?! known)|(?:get|gets|got|getting) Ready|meanwhile|all the same|in any case|anew|for ever|ends well",
        "healthy; becomes Ready; until then; still; always; again; forever; ends successfully",
    ),
    _phrase(r"(?:take|takes|taken|taking|took) away", "remove, delete"),
    Phrase(re.compile(r"(?<![.\w])[a-zA-Z]+\(s\)"), "a real plural, as findings.counted() makes it"),
)


class Hit(t.NamedTuple):
    line: int
    phrase: str
    instead: str


def hits(text: str) -> t.Iterator[Hit]:
    """The phrases to avoid in a text, line by line."""
    for number, line in enumerate(text.splitlines(), start=1):
        if KEEP in line:
            continue
        for phrase in PHRASES:
            for found in phrase.pattern.finditer(line):
                yield Hit(number, found[0], phrase.instead)


def files_in(repository: Path) -> list[str]:
    """List the files to check, as git knows them."""
    command = ["git", "-C", str(repository), "ls-files", "-z", "--", *CHECKED]
    known = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    return [file for file in known if file and Path(file).suffix in SUFFIXES and (repository / file).is_file()]


def main() -> int:
    root = Path(sys.argv[1])
    files = files_in(root)
    found = [(file, hit) for file in files for hit in hits((root / file).read_text("utf-8"))]
    for file, hit in found:
        print(f"{file}:{hit.line}: {hit.phrase} -> {hit.instead}")
    if not files:
        print(f"{root} has no files to check")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
