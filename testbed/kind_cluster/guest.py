# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A guest of our own: Debian's kernel and busybox, which say by HTTP and on the console who they are and how long they live."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path, PurePosixPath

from local_cluster.errors import ClusterError

from . import debian

FILES = Path(__file__).parent / "files" / "guest"
MODULES = (
    *("virtio_pci", "virtio_net", "virtio_blk", "virtio_scsi", "virtio_balloon", "virtio_rng", "virtio_console"),
    *("button", "evdev"),  # the power button, by which KubeVirt asks a guest to restart
)
"""What a guest of KubeVirt needs of the kernel, in which all drivers are modules."""
COMMANDS = [
    "acpid",
    "awk",
    "cat",
    "cttyhack",
    "cut",
    "echo",
    "grep",
    "httpd",
    "insmod",
    "ip",
    "mkdir",
    "mount",
    "mv",
    "poweroff",
    "sed",
    "setsid",
    "sh",
    "sleep",
    "udhcpc",
    "uname",
]


def kernel_and_initrd(archive: Path) -> tuple[bytes, bytes]:
    """Return the kernel, and the archive of files that it starts with, from an archive of Debian's packages."""
    found = debian.files(archive, r"/boot/vmlinuz-|/bin/busybox$|.*/kernel/.*\.ko$")
    kernel = next(content for path, content in found.items() if path.startswith("/boot/vmlinuz-"))
    drivers = {
        PurePosixPath(path).stem.replace("-", "_"): content for path, content in found.items() if path.endswith(".ko")
    }
    order = _with_dependencies(drivers)
    files = {
        "init": (FILES / "init").read_bytes(),
        "etc/udhcpc": (FILES / "udhcpc").read_bytes(),
        "etc/acpi/PWRF/00000080": (FILES / "power-button").read_bytes(),
        "etc/modules": "".join(f"{name}.ko\n" for name in order).encode(),
        "bin/busybox": found["/bin/busybox"],
        **{f"lib/modules/{name}.ko": drivers[name] for name in order},
    }
    return _with_small_checksum(kernel), _with_small_checksum(gzip.compress(_cpio(files), mtime=0))


def _with_small_checksum(content: bytes) -> bytes:
    """Let a file have a checksum that KubeVirt 1.8 can write into a status, whose field has no room for the larger half.

    What follows a kernel or an archive is ignored.
    """
    while zlib.crc32(content) >= 2**31:
        content += b"\0"
    return content


def _with_dependencies(drivers: dict[str, bytes]) -> list[str]:
    """Return the names of the modules in the order in which they can be loaded: each says what it depends on."""
    order: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        if name not in drivers:
            raise ClusterError(f"The guest's kernel has no module {name}.")
        found = re.search(rb"\0depends=([^\0]*)\0", drivers[name])
        for dependency in found[1].decode().split(",") if found and found[1] else ():
            add(dependency.replace("-", "_"))
        order.append(name)

    for name in MODULES:
        add(name)
    return order


def _cpio(files: dict[str, bytes]) -> bytes:
    """Return an archive in the kernel's format newc, with the folders and busybox's commands."""
    folders = sorted({str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."})
    entries = [(name, 0o040755, b"") for name in (*folders, "dev", "proc", "sys", "tmp")]
    entries += [(name, 0o100755, content) for name, content in files.items()]
    entries += [(f"bin/{name}", 0o120777, b"busybox") for name in COMMANDS]
    return b"".join(
        _entry(number, name, mode, content)
        for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1)
    )


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    path = name.encode() + b"\0"
    numbers = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + "".join(f"{each:08X}" for each in numbers).encode() + path
    return _padded(head) + _padded(content)


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
