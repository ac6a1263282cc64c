# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The hypervisor of KubeVirt's configuration."""

from __future__ import annotations

import typing as t

from ..base.objects import KubeObject, field
from ..pools.hypervisors import KVM
from . import feature_gates

_GATE: t.Final = "ConfigurableHypervisor"


def of_cluster(kubevirt: KubeObject) -> str:
    """The name of the hypervisor that KubeVirt itself uses. Without its gate, the configuration has no effect (KubeVirt)."""
    configured = field(kubevirt, "spec", "configuration", "hypervisors") or ()
    if configured and feature_gates.is_on(kubevirt, _GATE):
        return str(configured[0].get("name") or KVM.name)
    return KVM.name


def is_emulated(kubevirt: KubeObject) -> bool:
    """Whether VMs may run without a hypervisor. Then launcher pods ask for no device, so none gets one."""
    return bool(field(kubevirt, "spec", "configuration", "developerConfiguration", "useEmulation"))
