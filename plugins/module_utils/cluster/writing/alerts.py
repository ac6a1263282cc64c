# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Writes and deletes the PrometheusRule with the alerts on pools."""

from __future__ import annotations

import copy

from ...core.base import kinds
from ...core.base.objects import Change, KubeObject, Object
from ...core.monitoring.alerts import Alerts
from ..api.client import Cluster, Conflict, DeleteOptions

_MOST_TRIES = 5


def put(cluster: Cluster, alerts: Alerts, *, after_removal: bool, dry_run: bool) -> list[Change]:
    """Write the PrometheusRule if it differs, and delete those that are not wanted.

    :param after_removal: whether to leave out pools whose DaemonSets the run deletes.
    """
    done: list[Change] = []
    desired = alerts.to_write(after_removal=after_removal)
    if desired is not None:
        done.append(Change(alerts.live_at(desired), _apply(cluster, desired, dry_run=dry_run)))
    for live in alerts.to_delete:
        delete(cluster, live, dry_run=dry_run)
        done.append(Change(live, None))
    return done


def delete(cluster: Cluster, live: KubeObject, *, dry_run: bool) -> None:
    """Delete this very PrometheusRule."""
    metadata = live["metadata"]
    options = DeleteOptions(uid=metadata.get("uid"))
    cluster.delete(kinds.PROMETHEUS_RULE, metadata["name"], metadata["namespace"], options, dry_run=dry_run)


def _apply(cluster: Cluster, desired: Object, *, dry_run: bool) -> Object:
    """Create or update the PrometheusRule; returns it as stored, or with ``dry_run`` as it would be stored.

    Server-side apply keeps groups of rules that another manager added. We replace the whole spec then.
    """
    for attempt in range(1, _MOST_TRIES + 1):
        stored = cluster.apply(kinds.PROMETHEUS_RULE, desired, dry_run=dry_run)
        if stored.get("spec") == desired["spec"]:
            return stored
        whole = {**copy.deepcopy(stored), "spec": copy.deepcopy(desired["spec"])}
        if dry_run:
            return whole
        try:
            return cluster.replace(kinds.PROMETHEUS_RULE, whole, dry_run=False)
        except Conflict:
            # The Prometheus operator may note at once, in its status, that it has seen what was applied.
            if attempt == _MOST_TRIES:
                raise
    raise AssertionError("the last try returns or raises")
