# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Debian, as archives of root folders that mmdebstrap makes, each once, in the cache of built programs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from local_cluster import paths
from local_cluster.errors import ClusterError
from local_cluster.go import Log

from .engine import QEMU as USER

MIRROR = os.environ.get("VIRTPOOLS_DEBIAN_MIRROR", "")
"""Where Debian's packages come from; without it mmdebstrap's own choice."""
BACKPORTS = (
    'sed -n "s/^\\(deb .*\\) \\([a-z]*\\) main$/\\1 \\2-backports main/p" "$1/etc/apt/sources.list"'
    ' | head -n 1 > "$1/etc/apt/sources.list.d/backports.list"'
)
# virt-handler reaches into the container by /proc/PID/root, and only a relative link stays inside.
RELATIVE_RUN = 'ln -sfn ../run "$1/var/run"'
# The user as whom KubeVirt runs virt-launcher and QEMU.
QEMU = f'chroot "$1" groupadd --gid {USER} qemu && chroot "$1" useradd --uid {USER} --gid {USER} --create-home qemu'


@dataclass(frozen=True)
class Debian:
    """Some packages of a release, with all that they need."""

    name: str
    release: str
    packages: tuple[str, ...]
    hooks: tuple[str, ...] = ()
    """Commands that finish the root folder, which is their ``$1``."""
    backports: bool = False
    """Whether the release's backports come first."""
    installed: bool = True
    """Whether packages are installed, for which one must be root; else they are only unpacked, and nothing in them runs."""

    @property
    def recipe(self) -> str:
        """A digest of all that it is made of."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def make(self, log: Log) -> Path:
        """Return the archive of the root folder; make it if the cache lacks it.

        :raises ClusterError: if mmdebstrap is missing, or fails.
        """
        folder = paths.cache() / f"debian-{self.name}-{self.recipe}"
        with paths.locked(folder.with_name(f".{folder.name}.lock")):
            if not folder.exists():
                self._make(folder, log)
        os.utime(folder)
        return folder / "root.tar"

    def _make(self, folder: Path, log: Log) -> None:
        if shutil.which("mmdebstrap") is None:
            raise ClusterError("mmdebstrap is not in PATH: install it, for images are made of Debian's packages.")
        if self.installed and os.geteuid() != 0:
            raise ClusterError(f"The Debian of the {self.name} can only be installed by root: run this as root.")
        log(f"Fetching Debian {self.release} for the {self.name} into {folder.parent}.")
        new = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        root = new / "root"
        command = ["mmdebstrap", *self._options(), self.release, str(root), *([MIRROR] if MIRROR else [])]
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if answer.returncode != 0:
            raise ClusterError(f"mmdebstrap failed: {answer.stdout.strip()[-2000:]}")
        for name in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(root / name, ignore_errors=True)
        if "iptables" in self.packages:
            (new / "iptables").write_text("\n".join(_iptables(root)), "utf-8")
        options = ["--create", "--numeric-owner", "--xattrs", "--xattrs-include=security.*", "--exclude=./dev/*"]
        subprocess.run(["tar", *options, f"--file={new}/root.tar", "--directory", root, "."], check=True)
        shutil.rmtree(root)
        new.rename(folder)

    def _options(self) -> list[str]:
        return [
            "--quiet",
            *(["--mode=root", "--variant=minbase"] if self.installed else ["--mode=chrootless", "--variant=extract"]),
            "--aptopt=APT::Install-Recommends false",
            f"--include={','.join(self.packages)}",
            *(
                [f"--aptopt=APT::Default-Release {self.release}-backports", f"--setup-hook={BACKPORTS}"]
                if self.backports
                else []
            ),
            *(f"--customize-hook={hook}" for hook in self.hooks),
        ]


NODE = Debian(
    "node",
    "bookworm",
    (
        "systemd",
        "systemd-sysv",
        "dbus",
        "containerd",
        "runc",
        "containernetworking-plugins",
        "iptables",
        "nftables",
        "iproute2",
        "kmod",
        "procps",
        "ethtool",
        "conntrack",
        "socat",
        "ca-certificates",
    ),
)
_LIBVIRT = (
    "libvirt-daemon",
    "libvirt-daemon-driver-qemu",
    "libvirt-daemon-log",
    "libvirt-clients",
    "qemu-system-x86",
    "qemu-utils",
    "seabios",
    "xorriso",
    "nftables",
    "iproute2",
    "procps",
)
# The first Debian whose libvirt KubeVirt's virt-launcher gets on with.
LAUNCHER = Debian("launcher", "trixie", _LIBVIRT, (RELATIVE_RUN, QEMU))
NEWER_LAUNCHER = Debian("newer-launcher", "trixie", _LIBVIRT, (RELATIVE_RUN, QEMU), backports=True)
# virt-handler runs nft for masquerade, and findmnt for hotplug.
HANDLER = Debian("handler", "trixie", ("nftables", "iproute2", "procps", "util-linux"), (RELATIVE_RUN, QEMU))
# What an execution environment is built on.
PYTHON = Debian("python", "bookworm", ("python3", "python3-pip", "python3-venv", "ca-certificates"))
# Its kernel's modules are files that busybox can load.
GUEST = Debian("guest", "bookworm", ("linux-image-cloud-amd64", "busybox-static"), installed=False)


def iptables(archive: Path) -> dict[str, bytes]:
    """Return the files that iptables consists of in an image without anything else: kube-proxy runs it."""
    found = {}
    with tarfile.open(archive) as tar:
        for line in (archive.parent / "iptables").read_text("utf-8").splitlines():
            name, source = line.split()
            found[name] = _content(tar, tar.getmember(f".{source}"))
    return found


def files(archive: Path, pattern: str) -> dict[str, bytes]:
    """Return the regular files of an archive whose absolute path begins with a pattern, by path."""
    found = {}
    with tarfile.open(archive) as tar:
        for entry in tar:
            name = entry.name.removeprefix(".")
            if entry.isreg() and re.match(pattern, name):
                found[name] = _content(tar, entry)
    return found


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    """Return the content of a file, or of the file that a link points to."""
    member = tar.extractfile(entry)
    if member is None:
        raise ClusterError(f"{tar.name!r} has no file {entry.name}.")
    return member.read()


def _iptables(root: Path) -> list[str]:
    """Return the paths of iptables' program, its extensions and all their libraries, each with the file that it really is."""
    found = [root / "usr/sbin/xtables-nft-multi"]
    for kind in ("xt", "ipt", "ip6t"):
        found += sorted(root.glob(f"usr/lib/*/xtables/lib{kind}_*.so"))
    files = [f"/{path.relative_to(root)}" for path in found]
    answer = subprocess.run(["chroot", root, "ldd", *files], capture_output=True, text=True, check=True)
    lines = [f"{name} {name}" for name in files]
    for library in sorted(set(re.findall(r"(/\S+) \(", answer.stdout))):
        # What a program names with its folder, the loader, is a link.
        really = next(root.glob(f"usr/lib/*-linux-gnu/{Path(library).name}"))
        lines.append(f"{library} /{really.relative_to(root)}")
    return lines
