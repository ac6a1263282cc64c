# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Writes the guard and proves that it works. A guard that does not work is deleted, and the one before is not restored:
without a guard nothing is refused."""

from __future__ import annotations

import typing as t

from ...core.admission import policy_objects
from ...core.admission.guard import Guard, GuardProbe
from ...core.base.objects import Change
from ...core.kubevirt import exclusion
from ..api.client import Cluster, ClusterError, Denied
from ..api.waiting import Clock
from . import policies


def refuse_early(guard: Guard) -> None:
    """Refuse a guard that would keep KubeVirt from installing the exclusion.

    :raises ClusterError: when the primary lacks the exclusion.
    """
    if guard.to_write and not exclusion.has_exclusion(guard.snapshot.primary or {}):
        raise ClusterError(
            "The primary virt-handler does not keep off pool nodes yet, and the guard would keep KubeVirt from changing "
            "it; install the exclusion first."
        )


def put(cluster: Cluster, guard: Guard, timeout: float, clock: Clock) -> list[Change]:
    """Write the guard or delete it, and wait until the API servers act accordingly.

    :param timeout: seconds that the API servers may take.
    :raises ClusterError: when they take longer.
    """
    written = policies.put(cluster, guard.desired, None, timeout, clock)
    removed = policies.remove(cluster, policy_objects.removals(guard.to_delete), None, timeout, clock)

    def pending() -> str | None:
        problems = (_problem(cluster, probe, in_force=guard.wanted) for probe in guard.probes())
        return next(filter(None, problems), None)

    problem = clock.wait(pending, timeout) if written or removed else None
    if problem is not None:
        if removed:
            raise ClusterError(f"The guard was deleted, but {problem} after {timeout:.0f} s; run again.")
        objects = [t.cast("dict[str, t.Any]", change.after) for change in written]
        policies.remove(cluster, policy_objects.removals(reversed(objects)), None, timeout, clock)
        raise ClusterError(f"The guard was deleted again: {problem} after {timeout:.0f} s. Nothing else was changed.")
    return [*written, *removed]


def _problem(cluster: Cluster, probe: GuardProbe, *, in_force: bool) -> str | None:
    """What is wrong with the server's answer to a probe, as a clause; None when nothing is."""
    refused_by = probe.refused_by if in_force else None
    try:
        cluster.create(probe.kind, probe.obj, dry_run=True)
    except ClusterError as error:
        as_expected = refused_by and isinstance(error, Denied) and refused_by in str(error)
        return None if as_expected else f"{probe.name} is refused ({error})"
    return f"{probe.name} is not refused by {refused_by}" if refused_by else None
