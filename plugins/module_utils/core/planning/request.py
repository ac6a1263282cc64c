# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What a plan is asked for: the pools, the options of the run, and what else its user wants to know."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..kubevirt.feature_gates import Gates
from ..pools import dialects
from ..pools.model import Pool
from . import removal
from .options import Options


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is asked for."""

    pools: tuple[Pool, ...] = ()
    options: Options = field(default_factory=Options)
    dialect: str = dialects.OWN
    """The form in which the pools were given."""
    read_from: str = ""
    """The dialect in which they were read from the cluster; empty for any other list."""
    stop_after_wave: object = None
    """The name or number of the last wave to carry out; None or empty for all."""
    canary_vms: bool = False
    """Whether the run starts canary VMs."""
    gates: Gates = field(default_factory=Gates)
    """The feature gates to turn on and off."""
    asks_about_vms: bool = False
    """Whether the plan has all findings on running VMs. Those that refuse the run, it always has."""

    def asks_about_loss(self, loss: removal.Loss) -> bool:
        """Whether the plan says from under which VMs the run takes their pool."""
        return bool(loss) and (self.asks_about_vms or self.options.vms_of_pools == "refuse")
