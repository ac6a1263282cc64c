# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What a person reads who interrupts a run."""

from __future__ import annotations

import typing as t

from ..base.findings import listed


def lines(half_way: t.Collection[str] | None, lease_seconds: int) -> list[str]:
    """What is half done, and how to go on.

    :param half_way: the nodes whose handover or new handler is not proven; None where virt-operator works on them by itself.
    :param lease_seconds: how long the next run waits at most until this one's Lease has expired.
    """
    if half_way is None:
        nodes = "virt-operator goes on with what it has begun."
    elif half_way:
        nodes = (
            f"Half way: {listed(half_way)}. VMs keep running there, but may not be managed until the next run has finished "
            f"{'this node' if len(half_way) == 1 else 'these nodes'}."
        )
    else:
        nodes = "No node is half way."
    return [
        f"The run was interrupted. {nodes}",
        f"To go on, run the same command again. It waits for up to {lease_seconds} s until this run's Lease has expired.",
    ]
