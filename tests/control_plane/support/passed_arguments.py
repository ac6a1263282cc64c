# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""What virt-controller passes to virt-launcher in a launcher pod that our policy has seen, and what its image would refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from local_cluster import launchers

Object = dict[str, Any]


@dataclass(frozen=True)
class Passed:
    """The arguments in a launcher pod."""

    controller: str
    """The version of the virt-controller that made the pod."""
    launcher: str
    """The version of the launcher image that the pod has."""
    arguments: frozenset[str]

    @classmethod
    def of(cls, pod: Object) -> Passed:
        """Read a pod whose images end in a version, perhaps with the suffix of a pool."""
        container, stock = compute(pod)
        controller, launcher = (image.rpartition(":")[2].removesuffix("-gpu") for image in (stock, container["image"]))
        command = [*container.get("command", ()), *container.get("args", ())]
        return cls(controller, launcher, launchers.passed(command))

    @property
    def refused(self) -> frozenset[str]:
        """Return what the pod's launcher does not know: with any of these the VM does not start."""
        return self.refused_by(self.launcher)

    def refused_by(self, version: str) -> frozenset[str]:
        """Return what a launcher of another version would not know."""
        return self.arguments - launchers.known(version)


def compute(pod: Object) -> tuple[Object, str]:
    """Return the container that runs the VM, and the launcher image that KubeVirt gave it."""
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == "compute"]
    return container, {each["name"]: each.get("value") for each in container["env"]}["VIRTPOOLS_STOCK_IMAGE"]
