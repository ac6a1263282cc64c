# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The container engine: docker, as kind and the user find it."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from local_cluster.errors import ClusterError

RECIPE = "virtpools.recipe"
"""The label that says what an image was made of."""


def require() -> None:
    """Raise ClusterError with one sentence if no docker can be used."""
    if shutil.which("docker") is None:
        raise ClusterError(
            "docker is not in PATH: install a container engine with docker's command line; kind needs it."
        )
    answer = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(
            f"docker does not reach its daemon: start it, or let DOCKER_HOST name its socket. {answer.stderr.strip()}"
        )


def run(*arguments: str, stdin: str | None = None) -> str:
    """Run docker and return what it prints."""
    answer = subprocess.run(["docker", *arguments], input=stdin, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(
            f"docker {' '.join(arguments[:4])} failed: {(answer.stderr or answer.stdout).strip()[-2000:]}"
        )
    return answer.stdout


def feed(file: BinaryIO, *arguments: str) -> None:
    """Run docker with a file as its input."""
    answer = subprocess.run(["docker", *arguments], stdin=file, capture_output=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"docker {' '.join(arguments[:4])} failed: {answer.stderr.decode().strip()[-2000:]}")


def has(name: str, recipe: str) -> bool:
    """Say whether there is an image of this name that was made of this recipe."""
    label = f'{{{{index .Config.Labels "{RECIPE}"}}}}'
    answer = subprocess.run(
        ["docker", "image", "inspect", "--format", label, name], capture_output=True, text=True, check=False
    )
    return answer.returncode == 0 and answer.stdout.strip() == recipe


def make(name: str, layer: bytes | Path, recipe: str, instructions: Sequence[str]) -> None:
    """Make an image of one layer, an archive, with instructions as in a Dockerfile."""
    changes = [f"LABEL {RECIPE}={recipe}", "ENV PATH=/usr/bin:/usr/sbin:/bin:/sbin", *instructions]
    options = [option for change in changes for option in ("--change", change)]
    source = str(layer) if isinstance(layer, Path) else "-"
    command = ["docker", "import", *options, source, name]
    content = None if isinstance(layer, Path) else layer
    answer = subprocess.run(command, input=content, capture_output=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"The image {name} could not be made: {answer.stderr.decode().strip()}")


def archive(files: Mapping[str, Path | bytes], links: Mapping[str, str] | None = None) -> bytes:
    """Return an archive with these files, executable, and a folder for temporary ones; equal input gives equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(temporary)
        for name, source in sorted(files.items()):
            content = source.read_bytes() if isinstance(source, Path) else source
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.mode, entry.size = 0o755, len(content)
            tar.addfile(entry, io.BytesIO(content))
        for name, target in sorted((links or {}).items()):
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(entry)
    return buffer.getvalue()


def derive(name: str, base: Path, layer: bytes, file: Path, folder: str, recipe: str) -> None:
    """Make a node's image from the archive of a root folder, one that is put on top of it, and a file in a folder of that."""
    below = f"{name}-base"
    make(below, base, recipe, [])
    container = run("create", below, "none").strip()
    try:
        command = ["docker", "cp", "--archive", "-", f"{container}:/"]
        answer = subprocess.run(command, input=layer, capture_output=True, check=False)
        if answer.returncode != 0:
            raise ClusterError(f"{name} could not be made: {answer.stderr.decode().strip()}")
        run("cp", str(file), f"{container}:{folder}")
        changes = ["ENV container=docker", 'ENTRYPOINT ["/kind/entrypoint"]', "CMD []"]
        run("commit", *(option for change in changes for option in ("--change", change)), container, name)
    finally:
        run("rm", container)
