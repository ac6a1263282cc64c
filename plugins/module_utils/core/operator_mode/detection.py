# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which mode a cluster is in, operator or collection, and by which build. Found by what the cluster has, never by a version."""

from __future__ import annotations

from ..base.findings import InputErrors, listed
from ..kubevirt import feature_gates
from ..observed import operator_api
from ..observed.snapshot import Snapshot
from ..planning import history
from ..planning.proposal import AskedMode
from .builds import BUILDS, FIELDS, OBJECTS, Build


def choose_build(asked: AskedMode, snapshot: Snapshot, *, moving: bool = False) -> Build | None:
    """The build by which a run works in operator mode; None for collection pools.

    :param moving: whether it brings a list, and so may take the pools of the other mode down first.
    :raises InputErrors: when the mode that is asked for is not possible here, or when both modes are in use.
    """
    used = in_use(snapshot)
    if asked == "collection" or (asked == "auto" and used is None):
        return None
    ours = bool(snapshot.pools)
    if used is not None and ours:
        raise InputErrors([_both_in_use(snapshot, used)])
    if ours and not moving:
        raise InputErrors(
            [
                (
                    f"virtpools_mode is operator, but KubeVirt {snapshot.kubevirt_name} has collection pools ({listed(snapshot.pools)}), "
                    "whose DaemonSets have the names that KubeVirt's own would get; the playbook site moves them over, "
                    "and virtpools_mode: collection leaves them as they are."
                )
            ]
        )
    build = used or _available(snapshot)
    if build is None:
        raise InputErrors([_not_available(snapshot)])
    return build


def in_use(snapshot: Snapshot) -> Build | None:
    """The build whose pools this cluster has, or had when a run of ours was interrupted that removed them."""
    for name, build in FIELDS.items():
        if (snapshot.kubevirt.get("spec") or {}).get(name):
            return build
    # WorkerPool objects alone do not mean that the mode is used: they may only be a list to read pools from.
    if snapshot.operator_api.worker_pools and feature_gates.is_on(snapshot.kubevirt, OBJECTS.gate):
        return OBJECTS
    if OBJECTS.pool_daemonsets(snapshot.daemonsets.values()):
        # With the gate off, virt-operator leaves them behind, and their nodes have a second handler.
        return OBJECTS
    record = history.recorded_in(snapshot).operator_record
    if record is not None and record.build in BUILDS:
        return BUILDS[record.build]
    return None


def _available(snapshot: Snapshot) -> Build | None:
    """The build that the cluster could use. virt-operator keeps the KubeVirt CRD up to date; another CRD may be a leftover."""
    for name, build in reversed(FIELDS.items()):
        if name in snapshot.operator_api.fields:
            return build
    return OBJECTS if snapshot.operator_api.worker_pools_served else None


def _both_in_use(snapshot: Snapshot, used: Build) -> str:
    return (
        f"KubeVirt {snapshot.kubevirt_name} has pools of its own in {used.place}, and the cluster also has collection pools "
        f"({listed(snapshot.pools)}); remove one of the two: the operator pools where they are, or the collection pools with the "
        "playbook remove and virtpools_mode: collection."
    )


def _not_available(snapshot: Snapshot) -> str:
    fields = ", ".join(f"spec.{name}" for name in FIELDS)
    return (
        f"virtpools_mode is operator, but KubeVirt {snapshot.kubevirt_name} is a build without pools of its own: its CRD "
        f"{operator_api.KUBEVIRT_CRD} would have to have one of {fields}, or the cluster the CRD "
        f"{operator_api.WORKER_POOL_CRD}; use virtpools_mode: collection, which needs neither."
    )
