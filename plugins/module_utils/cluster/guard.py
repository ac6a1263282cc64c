# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Putting the guard in force, and proving that it is. One that does not do what it should is taken away, not put back:
without a guard nothing is refused."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster, ClusterError, Denied
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.policies import Change
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.guard import Guard, Probe


def put(cluster: Cluster, made: Guard, timeout: float, clock: Clock) -> list[Change]:
    """Write the guard, or take it away, and wait until API servers act by that.

    :param timeout: how many seconds they may take.
    :raises ClusterError: when they do not.
    """
    written = policies.put(cluster, made.desired, None, timeout, clock)
    removed = policies.remove(cluster, policies.removal(made.to_delete), None, timeout, clock)
    problem: str | None = None

    def pending() -> str | None:
        nonlocal problem
        found = (_problem(cluster, probe, in_force=made.wanted) for probe in made.probes())
        problem = next(filter(None, found), None)
        return problem

    if (written or removed) and clock.wait(pending, timeout) is not None:
        if removed:
            raise ClusterError(f"The guard was deleted, but {problem} after {timeout:.0f} s; run again.")
        objects = [t.cast("dict[str, t.Any]", change.after) for change in written]
        policies.remove(cluster, policies.removal(reversed(objects)), None, timeout, clock)
        raise ClusterError(
            f"The guard was taken away again: {problem} after {timeout:.0f} s. Nothing else was changed."
        )
    return [*written, *removed]


def _problem(cluster: Cluster, probe: Probe, *, in_force: bool) -> str | None:
    """What is wrong with how a probe is judged, as a clause."""
    wanted = probe.refused_by if in_force else None
    try:
        cluster.create(probe.kind, probe.obj, dry_run=True)
    except ClusterError as error:
        as_it_should = wanted and isinstance(error, Denied) and wanted in str(error)
        return None if as_it_should else f"{probe.name} is refused ({error})"
    return f"{probe.name} is not refused by {wanted}" if wanted else None
