# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What a pool's images must contain, and what they do contain.

A short-lived pod looks into an image: its shell checks for everything that KubeVirt's pods start, and writes what it found into
the container's termination message, which Kubernetes shows in the pod's status. docs/pool-images.md lists what is demanded.
"""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.findings import Finding, listed, printable, warning
from ..base.objects import KubeObject, canonical_json
from . import daemonsets

Role = t.Literal["handler", "launcher"]

USER = 107
"""Number of the user and the group ``qemu``, as whom launcher pods run (KubeVirt)."""

_PROGRAMS: t.Mapping[Role, tuple[str, ...]] = {
    "handler": ("virt-handler", "virt-chroot"),
    "launcher": ("node-labeller.sh", "virsh"),
}
"""Programs that KubeVirt's pods find in the PATH."""
_PATHS: t.Mapping[Role, tuple[str, ...]] = {
    "handler": (),
    "launcher": (
        "/usr/bin/virt-launcher-monitor",
        "/usr/bin/virt-launcher",
        "/usr/bin/container-disk",
        "/usr/bin/virt-tail",
        "/usr/bin/virt-freezer",
        "/usr/bin/virt-probe",
        "/usr/sbin/virtqemud",
        "/etc/libvirt/qemu.conf",
        "/etc/libvirt/virtqemud.conf",
    ),
}
_OPTIONAL: t.Mapping[str, tuple[str, ...]] = {
    "virtiofsd": ("/usr/libexec/virtiofsd",),
    "swtpm": ("/usr/bin/swtpm",),
    "UEFI firmware": ("/usr/share/edk2/ovmf", "/usr/share/edk2/aarch64", "/usr/share/AAVMF"),
}
"""What only some VMs need, and the places of a launcher image where it may be."""
_EMULATORS = (
    "/usr/libexec/qemu-kvm",
    "/usr/bin/qemu-kvm",
    *(f"/usr/bin/qemu-system-{machine}" for machine in ("x86_64", "aarch64", "s390x")),
)
"""Of the architectures that KubeVirt runs on: Debian brings one for i386 beside that for x86_64."""

# Only what the shell itself can do, since an image may have no other program.
_LOOK = """\
exec > /dev/termination-log
for name in {programs}; do command -v "$name" > /dev/null || echo "missing $name"; done
for path in {paths}; do [ -e "$path" ] || echo "missing $path"; done
for file in /etc/passwd /etc/group; do
  found=
  while IFS=: read -r name _ number _; do [ "$name:$number" = qemu:{user} ] && found=1; done < "$file"
  [ "$found" ] || echo "missing qemu:{user} in $file"
done
"""
_OPTION = """\
found=
for path in {places}; do [ -e "$path" ] && found=1; done
[ "$found" ] || echo "without {name}"
"""
# With that argument, which KubeVirt 1.9 passes by default, virt-launcher puts a link to the program into the folder, and ends where it
# cannot (replaceQemuHookWithCustomClient in cmd/virt-launcher).
_HOOK = """\
case "$( /usr/bin/virt-launcher --help 2>&1)" in *--libvirt-hook-server-and-client*)
  [ -e /usr/bin/libvirt-hook-client ] || echo "missing /usr/bin/libvirt-hook-client"
  [ -w /etc/libvirt/hooks ] || echo "missing a folder /etc/libvirt/hooks of the user qemu"
esac
"""
_VERSIONS = """\
emulator=
for path in {emulators}; do [ -x "$path" ] && emulator=$path; done
[ "$emulator" ] || echo "missing QEMU"
[ "$emulator" ] && "$emulator" --version 2>&1 | {{ read -r line; echo "qemu $line"; }}
command -v virsh > /dev/null && virsh --version 2>&1 | {{ read -r line; echo "libvirt $line"; }}
"""
_END = "looked"
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Contents:
    """What is in an image."""

    qemu: str = ""
    """Its version; empty for an image without QEMU."""
    libvirt: str = ""
    without: tuple[str, ...] = ()
    """What it lacks and only some VMs need."""
    unchecked: str = ""
    """Why the image was not looked into; empty when it was."""

    def __str__(self) -> str:
        if self.unchecked:
            return f"unchecked, because {self.unchecked}"
        has = [f"{name} {version}" for name, version in (("QEMU", self.qemu), ("libvirt", self.libvirt)) if version]
        return ", ".join([*has, *(f"no {name}" for name in self.without)])

    def to_object(self) -> dict[str, t.Any]:
        whole = {**vars(self), "without": list(self.without)}
        return {name: value for name, value in whole.items() if value}

    @classmethod
    def from_object(cls, obj: t.Mapping[str, t.Any]) -> Contents:
        texts = {name: printable(str(obj.get(name) or "")) for name in ("qemu", "libvirt", "unchecked")}
        return cls(**texts, without=tuple(printable(str(name)) for name in obj.get("without") or ()))


def roles_of(daemonset: KubeObject, stock: t.Collection[str] = ()) -> dict[str, tuple[Role, ...]]:
    """For each image of a pool's DaemonSet, whether it must be one of virt-handler, of virt-launcher, or both.

    :param stock: images to leave out, KubeVirt's own.
    """
    roles: dict[str, set[Role]] = {}
    for container, image in daemonsets.images_of(daemonset).items():
        if image in stock:
            continue
        if container == names.HANDLER:
            roles.setdefault(image, set()).add("handler")
        elif container in daemonsets.LAUNCHER_CONTAINERS:
            roles.setdefault(image, set()).add("launcher")
    return {image: tuple(sorted(found)) for image, found in roles.items()}


def command(roles: t.Collection[Role]) -> list[str]:
    """The command of a container that looks into its image."""
    script = _LOOK.format(
        programs=" ".join(program for role in roles for program in _PROGRAMS[role]),
        paths=" ".join(path for role in roles for path in _PATHS[role]),
        user=USER,
    )
    if "launcher" in roles:
        script += "".join(_OPTION.format(name=name, places=" ".join(places)) for name, places in _OPTIONAL.items())
        script += _HOOK + _VERSIONS.format(emulators=" ".join(_EMULATORS))
    return ["/bin/sh", "-c", f"{script}echo {_END}\n"]


def read(message: str) -> tuple[tuple[str, ...], Contents]:
    """What an image lacks, and what it contains, from what the command wrote."""
    found: dict[str, list[str]] = {}
    for line in message.splitlines():
        word, _space, rest = line.partition(" ")
        found.setdefault(word, []).append(printable(rest))
    if _END not in found:
        return (), Contents(unchecked="its shell did not end what it began")
    versions = {name: _version(found.get(name, [""])[0]) for name in ("qemu", "libvirt")}
    return tuple(found.get("missing", ())), Contents(**versions, without=tuple(found.get("without", ())))


def _version(text: str) -> str:
    version = _VERSION.search(text)
    return version.group() if version is not None else ""


# The record ---------------------------------------------------------------------------------------------------------


def recorded(daemonset: KubeObject) -> dict[str, Contents]:
    """The contents of a DaemonSet's images, as runs noted them; those that no run looked into are left out."""
    text = (daemonset["metadata"].get("annotations") or {}).get(names.CONTENTS_ANNOTATION) or "{}"
    try:
        noted = json.loads(text)
        return {image: Contents.from_object(obj) for image, obj in noted.items()}
    except (ValueError, AttributeError, TypeError):
        return {}  # it was edited: the next run looks again


def with_record(daemonset: KubeObject, contents: t.Mapping[str, Contents]) -> KubeObject:
    """The DaemonSet with these contents noted. Those of images that it no longer has go."""
    images = roles_of(daemonset)
    kept = {image: known for image, known in recorded(daemonset).items() if image in images}
    noted = {image: known.to_object() for image, known in sorted({**kept, **contents}.items())}
    metadata = daemonset["metadata"]
    annotations = {**(metadata.get("annotations") or {}), names.CONTENTS_ANNOTATION: canonical_json(noted)}
    return {**daemonset, "metadata": {**metadata, "annotations": annotations}}


def by_image(pools: t.Mapping[str, KubeObject]) -> dict[str, Contents]:
    """The contents of all images that runs looked into.

    :param pools: the live DaemonSets by pool.
    """
    return {image: known for daemonset in pools.values() for image, known in recorded(daemonset).items()}


def launcher_line(pool: str, image: str | None, known: t.Mapping[str, Contents]) -> str | None:
    """What the launcher image of a pool contains, as a sentence; None while no run has looked."""
    contents = str(known.get(image or "", ""))
    return sentence(pool, image, contents) if contents else None


def sentence(pool: str, image: str | None, contents: str) -> str:
    """That sentence, by what is known of the image."""
    return f"Pool {pool} has launcher image {image} ({contents})."


def examine(pools: t.Mapping[str, KubeObject]) -> t.Iterator[Finding]:
    """A finding for each pool with images that a run could not look into.

    :param pools: the live DaemonSets by pool.
    """
    for pool, daemonset in pools.items():
        known, images = recorded(daemonset), roles_of(daemonset)
        unchecked = [
            f"{image} ({known[image].unchecked})" for image in images if image in known and known[image].unchecked
        ]
        if unchecked:
            yield warning(
                "image_unchecked",
                f"Pool {pool}: whether {listed(unchecked)} has all that KubeVirt needs was not checked.",
            )
