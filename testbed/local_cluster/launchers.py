# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The arguments that virt-launcher knows, by KubeVirt's version: it ends with an error at any other.

Nothing but a cluster of containers needs the program itself, which takes long to build. So they are recorded here. A test
of make test-thorough compares the record with the programs.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# What each version knows besides that of the version before it, as the program's --help lists it. 1.7.0 and 1.8.4: read in the
# source, cmd/virt-launcher/virt-launcher.go.
_ADDED = {
    "v1.7.0": """
        allow-emulation container-disk-dir disk-memory-limit ephemeral-disk-dir grace-period-seconds hook-sidecars
        hotplug-disk-dir image-volume kubevirt-share-dir libvirt-log-filters name namespace ovmf-path
        qemu-agent-file-interval qemu-agent-sys-interval qemu-agent-user-interval qemu-agent-version-interval
        qemu-fsfreeze-status-interval qemu-timeout run-as-nonroot simulate-crash uid v
    """,
    "v1.8.2": "hypervisor libvirt-hook-server-and-client upgrade-ordinal-ifaces",
    "v1.8.4": "",
    "v1.9.0": "allow-cross-arch-emulation firmware-auto-selection vgpu-dedicated-hook vm-stats-collector",
}
VERSIONS = tuple(_ADDED)


def known(version: str) -> frozenset[str]:
    """Return the arguments that virt-launcher of this version knows, such as --name."""
    until = VERSIONS.index(version) + 1
    return frozenset(f"--{name}" for each in VERSIONS[:until] for name in _ADDED[each].split())


def known_to(program: Path) -> frozenset[str]:
    """Return the arguments that a built virt-launcher knows."""
    said = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=60)
    return frozenset(re.findall(r"^ +(?:-\w, +)?(--[a-z][a-z0-9-]*)", said.stdout + said.stderr, re.MULTILINE))


def passed(command: list[str]) -> frozenset[str]:
    """Return the arguments in the command line of a launcher pod's container, without their values."""
    return frozenset(word.partition("=")[0] for word in command if word.startswith("--"))
