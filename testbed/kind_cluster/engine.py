# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The container engine: docker, as kind and the user find it."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from local_cluster.errors import ClusterError

RECIPE = "virtpools.recipe"
"""The label that says what an image was made of."""
QEMU = 107
"""The user and group as whom KubeVirt runs virt-launcher and QEMU."""
# struct vfs_cap_data of linux/capability.h, version 2: permitted and effective.
_BIND_SERVICE = (0x02000001, 1 << 10, 0, 0, 0)


@dataclass(frozen=True)
class File:
    """A file of an archive that is not simply a program of root's."""

    content: Path | bytes
    mode: int = 0o755
    binds_ports: bool = False
    """Whether it has the capability to bind ports below 1024, whoever runs it."""


Files = Mapping[str, Path | bytes | File]
"""The files of an archive, by their paths in it."""


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


def follow(*arguments: str) -> subprocess.Popen[str]:
    """Start docker, whose lines the caller reads as they come."""
    return subprocess.Popen(["docker", *arguments], stdout=subprocess.PIPE, text=True, bufsize=1)


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


def archive(files: Files, links: Mapping[str, str] | None = None, folders: Iterable[str] = ()) -> bytes:
    """Return an archive with these files, and a folder for temporary ones; equal input gives equal bytes.

    :param links: symbolic links, and what they point to.
    :param folders: empty folders, of KubeVirt's user.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(temporary)
        for name in sorted(folders):
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, QEMU, QEMU
            tar.addfile(entry)
        for name, file in sorted(files.items()):
            _add(tar, name.lstrip("/"), file if isinstance(file, File) else File(file))
        for name, target in sorted((links or {}).items()):
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, file: File) -> None:
    content = file.content.read_bytes() if isinstance(file.content, Path) else file.content
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = file.mode, len(content)
    if file.binds_ports:
        value = struct.pack("<5I", *_BIND_SERVICE).decode("utf-8", "surrogateescape")
        entry.pax_headers = {"SCHILY.xattr.security.capability": value}
    tar.addfile(entry, io.BytesIO(content))


def put(layer: bytes, container: str) -> None:
    """Put an archive on top of what a container has."""
    command = ["docker", "cp", "--archive", "-", f"{container}:/"]
    answer = subprocess.run(command, input=layer, capture_output=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"An image could not be made: {answer.stderr.decode().strip()}")


def derive(
    name: str, base: str, layer: bytes, recipe: str, instructions: Sequence[str], added: tuple[Path, str] | None = None
) -> None:
    """Make an image of another one and an archive that is put on top of it, with instructions as in a Dockerfile.

    :param added: a file that is too large for the archive, and the folder that it is put into.
    """
    container = run("create", base, "none").strip()
    try:
        put(layer, container)
        if added:
            run("cp", str(added[0]), f"{container}:{added[1]}")
        changes = [f"LABEL {RECIPE}={recipe}", *instructions]
        run("commit", *(option for change in changes for option in ("--change", change)), container, name)
    finally:
        run("rm", container)
