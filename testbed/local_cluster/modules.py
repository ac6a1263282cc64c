# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Go modules whose programs are built as their own go.mod says: with its libraries, in their versions.

A module's replace directives hold only where it is the main module. So we build from a module of our own, which is derived
from the other's go.mod and go.sum each time. The checkout has one file per version, modules/NAME-VERSION.sum: the
checksums that the other's go.sum lacks, of itself first.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from . import go, paths
from .errors import ClusterError

NAME = "virtpools.io/programs"


@dataclass(frozen=True)
class Module:
    """One version of a Go module."""

    title: str
    path: str
    """As imports begin."""
    version: str
    packages: tuple[str, ...]
    """The programs to build, as paths below the module's own."""
    staging: str = ""
    """The version under which the folders are published that its go.mod replaces modules by."""
    others: dict[str, str] = field(default_factory=dict)
    """Other versions of such modules."""
    tags: str = field(default="", repr=False)
    """Build tags, with commas."""
    ours: bool = field(default=False, repr=False)
    """Whether our own go.mod says which libraries it gets, not the module's."""
    replaced: dict[str, str] = field(default_factory=dict, repr=False)
    """Files that are compiled with this content, in place of its own or beside them."""
    edited: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict, repr=False)
    """Passages of its files, each there once, that are compiled as something else."""
    c_program: tuple[str, str] | None = field(default=None, repr=False)
    """A program of one C file: its name, and the file. The module's Go packages may have C in them then, too."""

    @property
    def cgo(self) -> bool:
        """Whether C is compiled."""
        return self.c_program is not None

    @property
    def name(self) -> str:
        """Return what its files and folders begin with, as in kubevirt-v1.9.0."""
        return f"{self.title.lower()}-{self.version}"

    @property
    def imports(self) -> list[str]:
        """Return the import paths of the programs."""
        return [f"{self.path}/{package}" for package in self.packages]

    @property
    def sums(self) -> Path:
        """Return the file of the checksums that its go.sum lacks."""
        return paths.MODULES / f"{self.name}.sum"


def versions(title: str) -> tuple[str, ...]:
    """Return the versions of a module whose checksums we have, the oldest first."""
    prefix = f"{title.lower()}-"
    found = [file.name.removeprefix(prefix).removesuffix(".sum") for file in paths.MODULES.glob(f"{prefix}v*.sum")]
    return tuple(sorted(found, key=lambda version: [int(number) for number in re.findall(r"\d+", version)]))


def derive(go_mod: str, module: Module, local: list[str]) -> str:
    """Return the go.mod to build a module's programs with, from the module's own.

    local has the modules that are folders of ours, each named like the last part of its path.
    """
    text = re.sub(
        r"^module .*$", f"module {NAME}\n\nrequire {module.path} {module.version}", go_mod, flags=re.MULTILINE
    )
    text = re.sub(
        r"=> \./staging/src/(\S+)", lambda match: f"=> {match[1]} {module.others.get(match[1], module.staging)}", text
    )
    required = [path for path in local if re.search(rf"^\s*(?:require )?{re.escape(path)} v", text, re.MULTILINE)]
    return text + "".join(f"\nreplace {path} => ./{path.rsplit('/', 1)[-1]}\n" for path in required)


def prepare(program: str, module: Module, folder: Path) -> Path:
    """Make the folder to build a module's programs in; return where the module itself is."""
    folder.mkdir(parents=True)
    sums = module.sums.read_text("utf-8") if module.sums.exists() else ""
    if module.ours:
        for name, more in (("go.mod", ""), ("go.sum", sums)):
            (folder / name).write_text((paths.TESTBED / name).read_text("utf-8") + more, "utf-8")
        return paths.TESTBED
    source = _download(program, module, sums, folder)
    local = {_module_path(file): file.parent for file in paths.MODULES.glob("*/go.mod")}
    (folder / "go.mod").write_text(derive((source / "go.mod").read_text("utf-8"), module, sorted(local)), "utf-8")
    (folder / "go.sum").write_text((source / "go.sum").read_text("utf-8") + sums, "utf-8")
    for path, ours in local.items():
        shutil.copytree(ours, folder / path.rsplit("/", 1)[-1])
    if module.replaced or module.edited:
        _replace(module, source, folder)
    return source


def _replace(module: Module, source: Path, folder: Path) -> None:
    """Let a module be built from a copy of it, in which some files are others: Go's own cache is not to be changed."""
    copy = folder / "source"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    for directory, _folders, _files in os.walk(copy):
        Path(directory).chmod(0o755)
    for name, content in module.replaced.items():
        (copy / name).write_text(content, "utf-8")
    for name, edits in module.edited.items():
        text = (copy / name).read_text("utf-8")
        for old, new in edits:
            if text.count(old) != 1:
                raise ClusterError(f"{name} of {module.title} {module.version} has no longer what we edit in it: {old}")
            text = text.replace(old, new)
        (copy / name).write_text(text, "utf-8")
    with (folder / "go.mod").open("a", encoding="utf-8") as file:
        file.write(f"\nreplace {module.path} => ./source\n")


def write_sums(program: str, module: Module, folder: Path) -> None:
    """Write the file of the checksums that a module's go.sum lacks, as the checksum database confirms them."""
    source = prepare(program, module, folder)
    go.output(program, ["list", "-mod=mod", "-deps", f"-tags={module.tags}", *module.imports], folder, module.cgo)
    theirs = (source / "go.sum").read_text("utf-8").splitlines()
    # Go writes none of a module in whose place a folder is built.
    own = _downloaded(program, module, folder)
    its_sums = {
        f"{module.path} {module.version} {own['Sum']}",
        f"{module.path} {module.version}/go.mod {own['GoModSum']}",
    }
    lacking = {*(folder / "go.sum").read_text("utf-8").splitlines(), *its_sums}.difference(theirs)
    own_first = sorted(lacking, key=lambda line: (not line.startswith(f"{module.path} "), line))
    module.sums.write_text("".join(f"{line}\n" for line in own_first), "utf-8")


def _download(program: str, module: Module, sums: str, folder: Path) -> Path:
    # Go compares what it downloads with the go.sum of the module that it runs in.
    (folder / "go.mod").write_text(f"module {NAME}\n", "utf-8")
    (folder / "go.sum").write_text(sums, "utf-8")
    return Path(_downloaded(program, module, folder)["Dir"])


def _downloaded(program: str, module: Module, folder: Path) -> dict[str, str]:
    """Download a module, and return what Go says about that: its ``Dir``, its ``Sum``, its ``GoModSum``."""
    answer: dict[str, str] = json.loads(
        go.output(program, ["mod", "download", "-json", f"{module.path}@{module.version}"], folder)
    )
    return answer


def _module_path(go_mod: Path) -> str:
    match = re.search(r"^module (\S+)", go_mod.read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ClusterError(f"{go_mod} names no module.")
    return match[1]
