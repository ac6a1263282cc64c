# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Arguments that virt-controller passes to every virt-launcher, and which launchers refuse them.

virt-launcher ends with exit code 2 on an argument that it does not know, so a VM whose launcher image is older than
virt-controller may not start, and no live migration to that image succeeds. Read in KubeVirt 1.7.0, 1.8.2 and 1.9.0
(``pkg/virt-controller/services/template.go``, ``cmd/virt-launcher``).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base.findings import Finding, counted, error, listed, note, warning
from ..base.objects import KubeObject
from . import feature_gates, health

Release = tuple[int, int]
Images = t.Mapping[str, str]
"""The launcher images that VMs get now, by pool."""


@dataclass(frozen=True)
class Argument:
    """An argument of virt-launcher."""

    name: str
    since: Release
    """The first release whose virt-launcher knows it."""
    gate: str = ""
    """The feature gate with which virt-controller passes it; empty: always."""

    def __str__(self) -> str:
        return f"{self.name} (feature gate {self.gate})" if self.gate else self.name


# Gates of 1.8 that are on by default need no mention: launchers before 1.8 refuse the first argument anyway.
_ARGUMENTS = (
    Argument("--hypervisor", (1, 8)),
    Argument("--libvirt-hook-server-and-client", (1, 8), "LibvirtHooksServerAndClient"),
    Argument("--upgrade-ordinal-ifaces", (1, 8), "PodSecondaryInterfaceNamingUpgrade"),
    Argument("--vgpu-dedicated-hook", (1, 9), "VGPULiveMigration"),
    Argument("--vm-stats-collector", (1, 9), "VMStatsCollector"),
    Argument("--firmware-auto-selection", (1, 9), "FirmwareAutoSelection"),
    Argument("--allow-cross-arch-emulation", (1, 9), "CrossArchitectureVirtualization"),
)

EXIT_CODE: t.Final = 2
"""What virt-launcher ends with when it refuses an argument; its VM instance then fails (KubeVirt)."""

NEWEST_KNOWN: Release = (1, 9)
"""The newest release of KubeVirt whose arguments were read."""


def refused(
    image: str, controller: str | None, kubevirt: KubeObject, gates: t.Collection[str] = ()
) -> tuple[Argument, ...]:
    """The arguments that a virt-controller passes and the launcher of this image refuses, by the versions in their names.

    :param controller: virt-controller's version.
    :param kubevirt: the live KubeVirt object with its feature gates. ``gates``: more of them, as if they were on.
    """
    launcher, passing = health.release_of_image(image), health.release_of(controller)
    if launcher is None or passing is None:
        return ()
    return tuple(
        argument
        for argument in _ARGUMENTS
        if launcher < argument.since <= passing
        and (not argument.gate or argument.gate in gates or feature_gates.is_on(kubevirt, argument.gate))
    )


WITH_ONE_IMAGE: t.Final = (
    f"run site with a list in which only virtLauncherImage is of the new version, with allowSkew: true: launchers up to {NEWEST_KNOWN[0]}."
    f"{NEWEST_KNOWN[1]} know all that an older KubeVirt passes"
)
"""The shortest way over an upgrade where a pool's VMs have one image for both versions, before it begins."""


def before_upgrade(
    images: Images, target: str, kubevirt: KubeObject, *, one_image: bool = False
) -> t.Iterator[Finding]:
    """An error for each pool whose VMs could not start once the upgraded virt-controller leads.

    :param one_image: whether VMs of a pool have one image, whichever version starts them.
    """
    if images and (health.release_of(target) or NEWEST_KNOWN) > NEWEST_KNOWN:
        yield note(
            "upgrade_arguments_unknown",
            f"Whether the pools' present launchers know all arguments that KubeVirt {target} passes is not known: this "
            f"release of the collection knows those up to {health.dotted(NEWEST_KNOWN)}.",
        )
    for pool, image in images.items():
        arguments = refused(image, target, kubevirt)
        if arguments:
            remedy = (
                WITH_ONE_IMAGE
                if one_image
                else f"run the playbook upgrade with a list whose virtLauncherImage is built for {target}"
            )
            yield error(
                "upgrade_breaks_vm_starts",
                f"Pool {pool}: virt-launcher of {image} refuses {listed(map(str, arguments))}, which KubeVirt {target} passes to it. "
                "From the upgrade on, until site has handed over the pool's last node, none of its VMs would start and none "
                f"could be migrated. Before the upgrade, {remedy}.",
            )


def unusable(images: Images, kubevirt: KubeObject) -> frozenset[str]:
    """The pools whose VMs cannot start now, because their launcher refuses an argument that KubeVirt passes."""
    version = health.version_of(kubevirt)
    return frozenset(pool for pool, image in images.items() if refused(image, version, kubevirt))


def refusals(images: Images, kubevirt: KubeObject) -> dict[str, str]:
    """The pools whose VMs cannot start or be migrated now, with the reason as a clause."""
    version = health.version_of(kubevirt)
    found = {pool: refused(image, version, kubevirt) for pool, image in images.items()}
    return {
        pool: f"virt-launcher of {images[pool]}, which a migration would start, refuses {listed(map(str, arguments))} of KubeVirt {version}"
        for pool, arguments in found.items()
        if arguments
    }


def examine(images: Images, kubevirt: KubeObject, failed: t.Mapping[str, int] | None = None) -> t.Iterator[Finding]:
    """An error for each pool whose VMs cannot start now.

    :param failed: how many launcher pods of each pool have ended because of it, where that is known.
    """
    version = health.version_of(kubevirt)
    for pool, image in images.items():
        arguments = refused(image, version, kubevirt)
        if arguments:
            count = (failed or {}).get(pool, 0)
            seen = f": {counted(count, 'launcher pod has', 'launcher pods have')} failed for it" if count else ""
            yield error(
                "launcher_refuses_arguments",
                f"VMs of pool {pool} cannot start or be migrated: KubeVirt {version} passes {listed(map(str, arguments))}, which "
                f"virt-launcher of {image} refuses{seen}. Run site with images built for {version}.",
            )


def come_with(gates: t.Iterable[str]) -> bool:
    """Whether virt-controller passes more arguments with one of these feature gates."""
    return not {argument.gate for argument in _ARGUMENTS if argument.gate}.isdisjoint(gates)


def with_gates(gates: t.Collection[str], images: Images, kubevirt: KubeObject) -> t.Iterator[Finding]:
    """A warning for each pool whose VMs cannot start once these feature gates are on."""
    version = health.version_of(kubevirt)
    for pool, image in images.items():
        arguments = [each for each in refused(image, version, kubevirt, gates) if each.gate in gates]
        if arguments:
            yield warning(
                "gate_breaks_vm_starts",
                f"Pool {pool}: virt-launcher of {image} refuses {listed(map(str, arguments))}, so with it none of "
                f"the pool's VMs can start or be migrated. Run site with images built for {version} first.",
            )
