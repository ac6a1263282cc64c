# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Writes the parts of a run. Policies are tried before VMs depend on them; the guard and the alerts have ways of their own."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import replace

from ...core.admission import policy_objects
from ...core.admission.guard import Guard
from ...core.admission.probes import Desired, Site, Trial
from ...core.base.objects import Change, Object
from ...core.base.parts import LAST, Part, Step
from ...core.monitoring.alerts import Alerts
from ...core.observed.snapshot import Snapshot
from ..api.client import Cluster
from ..api.waiting import Clock
from . import alerts, guard, policies


class PolicyPart(Part, t.Protocol):
    """A part whose objects are admission policies that probes can try."""

    def objects(self, step: Step) -> tuple[Desired, ...]:
        """The objects to write, in groups that are written one after the other."""

    def trials(self, step: Step, site: t.Callable[[], Site]) -> tuple[Trial | None, ...]:
        """How each group is tried; None for one whose effect no probe shows."""

    def leaving(self, step: Step) -> tuple[Change, ...]:
        """The removal of our live objects."""

    def last_probe(self, step: Step, site: t.Callable[[], Site]) -> Object | None:
        """What shows that no policy acts any more; None while one stays."""


def as_live(part: Part, step: Step) -> Part:
    """The part as the cluster is now, and not as the run's earlier steps would have left it."""
    return replace(part, undoing=True) if isinstance(part, Alerts) and step == LAST else part


def preview(cluster: Cluster, part: Part, step: Step) -> list[Change]:
    """What ``put`` would change, as the server would store it. Nothing is stored.

    :raises ClusterError: when the server refuses an object, or an object that is not ours has its name.
    """
    if isinstance(part, Alerts):
        return alerts.put(cluster, part.before(step), after_removal=step == LAST, dry_run=True)
    if isinstance(part, Guard):
        return policies.preview(cluster, part.desired, policy_objects.removals(part.to_delete))
    policy = t.cast(PolicyPart, part)
    desired = [each for group in policy.objects(step) for each in group]
    return policies.preview(cluster, desired, policy.leaving(step))


def check(part: Part) -> None:
    """Check that the part can be written now, before anything is changed.

    :raises ClusterError: when it cannot.
    """
    if isinstance(part, Guard):
        guard.refuse_early(part)


def put(cluster: Cluster, snapshot: Snapshot, part: Part, step: Step, timeout: float, clock: Clock) -> list[Change]:
    """Write a part, prove that it works, and delete what it no longer needs. Returns the changes.

    :param timeout: seconds that the API servers may take to act by a policy.
    :raises ClusterError: when this fails. What was there before is then restored, or the message gives the reason.
    """
    if isinstance(part, Alerts):
        return alerts.put(cluster, part, after_removal=step == LAST, dry_run=False)
    if isinstance(part, Guard):
        return guard.put(cluster, part, timeout, clock)
    policy = t.cast(PolicyPart, part)
    site = functools.cache(lambda: policies.probe_site(cluster, snapshot))
    done: list[Change] = []
    for group, trial in zip(policy.objects(step), policy.trials(step, site), strict=True):
        done += policies.put(cluster, group, trial, timeout, clock)
    leaving = policy.leaving(step)
    probe = policy.last_probe(step, site) if leaving else None
    return [*done, *policies.remove(cluster, leaving, probe, timeout, clock)]
