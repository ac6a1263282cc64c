# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The options of a run besides its pools: what users choose, checked."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

from ..admission import launcher_backends, launcher_rollout
from ..base.findings import InputErrors
from ..monitoring.alerts import Settings
from ..pools.quantities import percentage
from . import assignment, removal
from .waves import WaveSpec

DIGEST_OPTIONS = (
    *("overlap", "prune", "max_unavailable", "prepull", "assign_new_nodes", "guard", "alerts", "waves", "remove_pools"),
    *("drain", "on_non_migratable", "remove_vms", "feature_gates_present", "feature_gates_absent"),
)
"""The options that a plan's digest covers, by the names that users know, in the order of its message."""

DrainMode = t.Literal["leave", "migrate", "wait"]
OnNonMigratable = t.Literal["leave", "wait", "fail"]


@dataclass(frozen=True)
class Drain:
    """What happens to the VMs on a node before its handler is removed."""

    vms: DrainMode = "leave"
    """Whether they stay, are migrated, or may end first."""
    on_non_migratable: OnNonMigratable = "leave"
    """What happens to VMs that are to be migrated and cannot be. With ``fail`` the node keeps its handler."""


LEAVE = Drain()


@dataclass(frozen=True)
class Options:
    """The options of a run besides its pools. The option table (``option_table/``) describes them for users."""

    overlap: assignment.Overlap = "error"
    prune: bool = False
    max_unavailable: int | str = 1
    """How many nodes of one pool may be without a Ready handler at the same time because of the run: a number, or a
    percentage of the pool's nodes (``10%``, rounded down, at least 1). See ``read_share``."""
    max_nodes_lost: int | str = "50%"
    """How many of its nodes a pool of the list may lose by a run: a number, or a percentage."""
    prepull: bool = True
    launcher_backend: launcher_backends.BackendOption = "auto"
    outdated: launcher_rollout.Outdated = "refuse"
    assign_new_nodes: bool = False
    """Whether a policy gives nodes that join the owner that the pools say."""
    guard: bool | None = None
    """Whether policies keep others from changing the owners of nodes, and KubeVirt from dropping the exclusion. None: they do,
    where the cluster serves such policies and the run may write them."""
    alerts: Settings | None = None
    """The alerts on pools that the user wants; None for none."""
    remove_pools: removal.Removed | None = None
    """The pools to remove. They come from the cluster then, not from a pool list."""
    keep_history: bool = False
    """Whether the history stays when no pool does, because a run goes on with pools of the other mode."""
    waves: tuple[WaveSpec, ...] = ()
    """Which nodes come first. Without any, all nodes are one wave."""
    drain: Drain = LEAVE
    remove_vms: removal.Vms = "refuse"
    """What happens to the VMs from under which the run takes their pool."""
    restore_nodes: frozenset[str] | None = None
    """Only these nodes go back, to the owner that an earlier list gives them: the pools given or, with
    ``remove_pools``, no pools."""
    back_to: str | None = None
    """The digest of the earlier list that a rollback brings back, or ``history.NO_POOLS``."""
    skip_pending_gates: bool = False
    """Whether waves that an earlier run began need not pass their gates any more."""

    @property
    def undoing(self) -> bool:
        """Whether the run removes pools or restores nodes."""
        return self.restore_nodes is not None or self.remove_pools is not None

    @property
    def vms_of_pools(self) -> removal.Vms:
        """What happens to the VMs from under which the run takes their pool. A run that empties each node before it loses
        its handler takes nothing from under them."""
        if self.remove_vms == "refuse" and self.drain.vms != "leave":
            return self.drain.vms
        return self.remove_vms

    @property
    def drain_of_pools(self) -> Drain:
        """What happens to the VMs on a node before it leaves a pool. A removal migrates VMs before it touches any node."""
        if self.remove_vms == "wait" or (self.remove_vms == "migrate" and not self.undoing):
            return replace(self.drain, vms=self.remove_vms)
        return self.drain

    def unavailable_of(self, nodes: int) -> int:
        """How many of a pool's ``nodes`` may be without a handler at the same time."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return max(1, nodes * (percentage(self.max_unavailable) or 0) // 100)


def read_share(value: object, option: str) -> int | str:
    """A share of a pool's nodes as a user gave it: a number from 1, also as text, or a percentage like ``10%``.

    :param option: its name.

    :raises InputErrors: for anything else.
    """
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1:
        return number
    if isinstance(value, str) and percentage(value) is not None:
        return value
    raise InputErrors(
        [f"virtpools_{option} is {value!r}; give a number from 1, or a percentage from 1% to 100% like 10%."]
    )
