# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""VMs that a handler is starting."""

from __future__ import annotations

from ..base.objects import KubeObject, condition, field

_HANDED_OVER = "Scheduled"
"""The phase of a VMI that has its launcher pod: virt-controller leaves the rest of the start to the node's virt-handler."""

_SYNCHRONIZED = "Synchronized"
"""The condition that virt-handler sets to False when a step of a start fails. It tries that step again."""


def is_starting(vmi: KubeObject) -> bool:
    """Whether the handler of its node is in the middle of starting this VM.

    A handler that ends then may leave the VM Failed. Its successor does not prepare a network for which that has begun
    (KubeVirt 1.7 to 1.9, pkg/network/setup/netpod), and deletes a domain that is defined but does not run yet, as one
    that has ended (pkg/virt-handler). A start that failed, and is tried again, is not waited for: it may never succeed.
    """
    if field(vmi, "status", "phase") != _HANDED_OVER or vmi["metadata"].get("deletionTimestamp"):
        return False
    return condition(vmi, _SYNCHRONIZED).get("status") != "False"
