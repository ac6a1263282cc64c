# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Short-lived objects that a run creates, and leaves behind when it is killed: image pull pods and canary VMs.

Labels do not identify them, because copies of an object keep its labels. Its name and its uid do.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..base import names
from ..base.objects import KubeObject, field, is_managed


@dataclass(frozen=True, order=True)
class Leftover:
    """One such object."""

    namespace: str
    name: str
    uid: str | None = None
    """An object of the same name with another uid is another client's."""

    @classmethod
    def from_object(cls, obj: KubeObject) -> Leftover:
        metadata = obj["metadata"]
        return cls(str(metadata["namespace"]), str(metadata["name"]), metadata.get("uid"))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_pull_pod(pod: KubeObject) -> bool:
    """Whether a run created this pod to pull images to its node."""
    node = (pod.get("spec") or {}).get("nodeName")
    named = node is not None and pod["metadata"]["name"] in names.pull_pod_names(node)
    return named and is_managed(pod) and field(pod, "metadata", "labels", names.PULL_LABEL) is not None


def is_canary_vm(vm: KubeObject) -> bool:
    """Whether a run created this VirtualMachine as the canary VM of a pool."""
    pool = field(vm, "metadata", "labels", names.CANARY_LABEL)
    return is_managed(vm) and pool is not None and vm["metadata"]["name"] == names.canary_vm_name(pool)
