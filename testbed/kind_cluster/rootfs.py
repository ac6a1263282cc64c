# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The Debian that a node is: an archive made by debootstrap, once, in the cache of built programs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from local_cluster import paths
from local_cluster.errors import ClusterError
from local_cluster.go import Log

RELEASE = "bookworm"
PACKAGES = (
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
)
MIRROR = os.environ.get("VIRTPOOLS_DEBIAN_MIRROR", "")
"""Where Debian's packages come from; without it debootstrap's own choice."""
RECIPE = hashlib.sha256(repr((RELEASE, PACKAGES)).encode()).hexdigest()[:16]


def make(log: Log) -> Path:
    """Return the archive of the root folder; make it if the cache lacks it."""
    folder = paths.cache() / f"rootfs-{RECIPE}"
    with paths.locked(folder.with_name(f".{folder.name}.lock")):
        if not folder.exists():
            _make(folder, log)
    os.utime(folder)
    return folder / "rootfs.tar"


def _make(folder: Path, log: Log) -> None:
    if shutil.which("debootstrap") is None:
        raise ClusterError("debootstrap is not in PATH: install it, for the node image is made of Debian's packages.")
    if os.geteuid() != 0:
        raise ClusterError("debootstrap needs root, because it makes the root folder of a node: run this as root.")
    log(f"Fetching Debian {RELEASE} for the node image into {folder.parent}.")
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command = ["debootstrap", *options, RELEASE, str(new / "root"), *([MIRROR] if MIRROR else [])]
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"debootstrap failed: {answer.stdout.strip()[-2000:]}")
    for name in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(new / "root" / name, ignore_errors=True)
    (new / "iptables").write_text("\n".join(_iptables(new / "root")), "utf-8")
    subprocess.run(
        [
            "tar",
            "--create",
            "--numeric-owner",
            "--exclude=./dev/*",
            f"--file={new}/rootfs.tar",
            "--directory",
            new / "root",
            ".",
        ],
        check=True,
    )
    shutil.rmtree(new / "root")
    new.rename(folder)


def iptables(archive: Path) -> dict[str, bytes]:
    """Return the files that iptables consists of in an image without anything else: kube-proxy runs it."""
    files = {}
    with tarfile.open(archive) as tar:
        for line in (archive.parent / "iptables").read_text("utf-8").splitlines():
            name, source = line.split()
            member = tar.extractfile(f".{source}")
            if member is None:
                raise ClusterError(f"{archive} has no file {source}.")
            files[name] = member.read()
    return files


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
