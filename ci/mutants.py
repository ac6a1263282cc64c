# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try mutants of the core: mutmut changes one expression at a time, and unit tests must notice.

It works in .build/mutants, on a copy of the collection, and runs for each mutant the tests that call its function. With
--only, the tests that mirror the room or file come first, and the others judge what survives them. Some mutants are not
tried: those of a text with spaces, since a test of every sentence would only repeat it, and those of the type in a
cast. tests/unit/mutants.yml lists mutants that no test can notice, or need notice, with the reason.

Usage: mutants.py [--only ROOM or ROOM/FILE.py] [--sample NUMBER] [--seed NUMBER]
"""

from __future__ import annotations

import argparse
import ast
import collections
import difflib
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
WORK = ROOT / ".build/mutants"
LOG = WORK / "mutmut.log"
COLLECTION = Path("ansible_collections/virtpools/kubevirt")
CORE = COLLECTION / "plugins/module_utils/core"
MIRROR = COLLECTION / "tests/unit/plugins/module_utils/core"
TESTS = (MIRROR, COLLECTION / "tests/unit/plugins/modules")
LISTED = ROOT / "tests/unit/mutants.yml"
GOAL = 95
"""Percent of the mutants tried that tests must notice."""

REWRITTEN = ("property", "functools.cached_property")
SURVIVED = ("survived", "no tests")
STRING = re.compile(r"""(["'])(?:(?!\1)[^\\]|\\.)*\1""")
TYPE = re.compile(r"""(?<=t\.cast\()(?:None|"[^"]*"|[\w.]+)(?=,)""")


class Mutant(t.NamedTuple):
    """A mutant is known by what it changes, which stays the same when the rest of its file changes."""

    name: str
    """mutmut's."""
    file: str
    """Below the core."""
    function: str
    change: str
    """The lines before and after it."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.file, self.function, self.change


def without_decorators(source: str) -> str:
    """Turn each ``@property def x`` into ``def x`` with ``x = property(x)`` below it: mutmut skips decorated functions."""
    lines = source.splitlines(keepends=True)
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    functions = (item for node in classes for item in node.body if isinstance(item, ast.FunctionDef))
    for function in sorted(functions, key=lambda function: -function.lineno):
        names = [ast.unparse(decorator) for decorator in function.decorator_list]
        if len(names) == 1 and names[0] in REWRITTEN:
            below = f"{' ' * function.col_offset}{function.name} = {names[0]}({function.name})\n"
            lines.insert(t.cast("int", function.end_lineno), below)
            del lines[function.decorator_list[0].lineno - 1]
    return "".join(lines)


def is_tried(before: str, after: str) -> bool:
    """Whether anything else differs than texts and types in casts."""
    return _without_texts(before) != _without_texts(after)


def _without_texts(code: str) -> str:
    return STRING.sub(lambda string: "" if " " in string[0] else string[0], TYPE.sub("", code))


def change(before: str, after: str) -> str:
    """The lines that differ between two versions of a function, without their indentation."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return "\n".join(f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "+-")


def prepare() -> None:
    """Copy the collection, and go to where mutmut works on the copy."""
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(ROOT / ".build/collection" / COLLECTION, WORK / COLLECTION)
    for file in (WORK / CORE).rglob("*.py"):
        file.write_text(without_decorators(file.read_text("utf-8")), "utf-8")
    os.chdir(WORK)
    configure([])


def configure(files: t.Iterable[str], tests: t.Iterable[Path] = ()) -> None:
    """Let mutmut change only these files, and run only these tests."""
    settings = {
        "source_paths": [str(COLLECTION)],
        "only_mutate": sorted(str(CORE / file) for file in files),
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "no:xdist"],
        "pytest_add_cli_args_test_selection": [str(path) for path in tests],
        "track_dependencies": False,
    }
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    of_pytest = (ROOT / "pyproject.toml").read_text("utf-8")
    Path("pyproject.toml").write_text(f"{of_pytest}\n[tool.mutmut]\n{''.join(lines)}", "utf-8")


def mutants(file: Path) -> list[Mutant]:
    """The mutants of a file that are tried, in mutmut's order."""
    # When it is imported, mutmut reads its configuration from the folder where it is.
    from mutmut.mutation.file_mutation import mutate_file_contents  # noqa: PLC0415

    mutated = mutate_file_contents(str(file), file.read_text("utf-8"))
    lines = mutated.code.splitlines()
    module = ".".join(file.with_suffix("").parts)
    found = []
    for name in mutated.mutant_names:
        function = name.partition("__mutmut_")[0]
        before, after = (
            "\n".join(lines[span.start - 1 : span.end]).replace(each, "")
            for each in (f"{function}__mutmut_orig", name)
            for span in [mutated.line_span_by_function_name[each]]
        )
        if is_tried(before, after):
            title = function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
            found.append(Mutant(f"{module}.{name}", str(file.relative_to(CORE)), title, change(before, after)))
    return found


def mirror(target: Path) -> Path:
    """The tests that mirror a room or a file."""
    place = MIRROR / target.relative_to(CORE)
    return place if target.is_dir() else place.with_name(f"test_{place.name}")


def run(drawn: t.Sequence[Mutant], tests: t.Iterable[Path]) -> list[Mutant]:
    """The mutants that no test notices.

    :raises CalledProcessError: when mutmut could not try them.
    """
    from mutmut.stats import status_by_exit_code  # noqa: PLC0415

    files = {mutant.file for mutant in drawn}
    configure(files, tests)
    shutil.rmtree("mutants", ignore_errors=True)
    environment = {**os.environ, "CI": "true"}  # so that Hypothesis repeats the same examples
    with LOG.open("w", encoding="utf-8") as log:
        subprocess.run(
            ["mutmut", "run", *(mutant.name for mutant in drawn)], check=True, env=environment, stdout=log, stderr=log
        )
    notes = [Path("mutants", CORE, f"{file}.meta").read_text("utf-8") for file in files]
    codes = collections.ChainMap(*(json.loads(note)["exit_code_by_key"] for note in notes))
    return [mutant for mutant in drawn if status_by_exit_code[codes[mutant.name]] in SURVIVED]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a room of the core or a file in it: base, base/epochs.py")
    parser.add_argument("--sample", type=int, help="how many to try, chosen at random; without it, all")
    parser.add_argument("--seed", type=int, default=1, help="another seed chooses other ones")
    options = parser.parse_args()

    prepare()
    target = CORE / options.only
    files = sorted(target.rglob("*.py")) if target.is_dir() else [target]
    with multiprocessing.Pool() as pool:
        found = list(itertools.chain.from_iterable(pool.imap(mutants, files)))
    entries = yaml.safe_load(LISTED.read_text("utf-8"))
    listed = {(entry["file"], entry["function"], entry["change"].strip()) for entry in entries}
    outdated = {known for known in listed if CORE / known[0] in files} - {mutant.key for mutant in found}
    for file, function, lines in sorted(outdated):
        print(f"{LISTED.name} lists a mutant that does not exist: {file}: {function}\n{lines}\n")

    drawn = [mutant for mutant in found if mutant.key not in listed]
    print(f"{len(found)} mutants, {len(found) - len(drawn)} of them listed", flush=True)
    if options.sample is not None and options.sample < len(drawn):
        drawn = random.Random(options.seed).sample(drawn, options.sample)  # noqa: S311 -- nothing secret
    survivors = drawn
    if options.only and mirror(target).exists():
        survivors = run(survivors, [mirror(target)])
        print(f"{len(survivors)} of {len(drawn)} survive the tests in {mirror(target).relative_to(MIRROR)}", flush=True)
    survivors = run(survivors, TESTS) if survivors else []
    for mutant in survivors:
        print(f"\n{mutant.file}: {mutant.function}\n{mutant.change}")

    tried, survived = (
        collections.Counter(mutant.file.partition("/")[0] for mutant in each) for each in (drawn, survivors)
    )
    print("\nNoticed, by room:")
    for room, number in sorted(tried.items()):
        print(f"  {room:14} {number - survived[room]:5} of {number:5}")
    noticed = len(drawn) - len(survivors)
    print(f"Tests notice {noticed} of {len(drawn)} mutants, {100 * noticed / len(drawn):.1f} %; the goal is {GOAL} %")
    return 1 if outdated or 100 * noticed < GOAL * len(drawn) else 0


if __name__ == "__main__":
    sys.exit(main())
