# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate between two waves: looking at the cluster until it is fit to go on, or has had its time."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import gates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.gates import Gate, Trouble

_SOAK_PAUSE_SECONDS = 5.0


def look(cluster: Cluster, namespace: str, name: str, nodes: t.Collection[str]) -> list[Trouble]:
    """All that is wrong now with KubeVirt, with these nodes, and with VMs that have their pod there.

    :param namespace: of the KubeVirt object, and its ``name``.
    """
    wanted = frozenset(nodes)
    found = [*gates.of_cluster(live.take_snapshot(cluster, namespace, name, wanted), nodes)]
    return found + [trouble for vmi in live.vmis_on(cluster, wanted) if (trouble := gates.of_vmi(vmi, wanted))]


def await_passage(
    look_again: t.Callable[[], list[Trouble]], baseline: t.Iterable[str], patience: float, clock: Clock
) -> list[Trouble]:
    """Wait until nothing is wrong that was not before; returns what still is after ``patience`` seconds, or for good."""
    gate = Gate(baseline)
    left: list[Trouble] = []

    def pending() -> str | None:
        nonlocal left
        left = gate.new(look_again())
        return "troubles" if left and not any(trouble.final for trouble in left) else None

    clock.wait(pending, patience)
    return left


def soak(seconds: float, clock: Clock) -> None:
    """Let so much time pass, and keep the Lease alive meanwhile."""
    until = clock.now() + seconds
    for _pause in clock.pauses(_SOAK_PAUSE_SECONDS):
        if clock.now() >= until:
            return
