# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The hypervisors of KubeVirt's ``HypervisorConfiguration``. Read in KubeVirt 1.8.2 and 1.9.0 (``pkg/hypervisor``).

All reserve the same memory for a VM, so a pod is right for another hypervisor once its argument and its device are.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base import names

ARGUMENT: t.Final = "--hypervisor"
"""virt-launcher's argument, followed by the name."""


@dataclass(frozen=True)
class Hypervisor:
    """A hypervisor on which guests can run."""

    name: str
    device: str
    """The node's device, in ``/dev``."""
    virt_type: str
    """What libvirt calls it."""

    @property
    def resource(self) -> str:
        """The device as a resource of nodes and pods."""
        return names.KUBEVIRT_DEVICES + self.device


KVM: t.Final = Hypervisor("kvm", device="kvm", virt_type="kvm")
"""Without a name, KubeVirt's programs take this one."""

HYPERVISORS: t.Final[t.Mapping[str, Hypervisor]] = {
    each.name: each for each in (KVM, Hypervisor("hyperv-direct", device="mshv", virt_type="hyperv"))
}
RESOURCES: t.Final = frozenset(each.resource for each in HYPERVISORS.values())
