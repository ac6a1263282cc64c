# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user wants for VMs on nodes that are about to lose their handler."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

VmsOnNodes = t.Literal["leave", "migrate", "wait"]
Unmovable = t.Literal["leave", "wait", "fail"]

VMS_ON_NODES: tuple[VmsOnNodes, ...] = t.get_args(VmsOnNodes)
UNMOVABLE: tuple[Unmovable, ...] = t.get_args(Unmovable)


@dataclass(frozen=True)
class Drain:
    """VMs are left where they are, migrated away, or waited for until they have ended.

    ``unmovable``: the same for those that are to be migrated and cannot; or the node keeps its handler.
    """

    vms: VmsOnNodes = "leave"
    unmovable: Unmovable = "leave"


LEAVE = Drain()
