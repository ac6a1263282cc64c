# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be in order before anything is changed."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    daemonsets,
    exclusion,
    feature_gates,
    health,
    names,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    error,
    listed,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import Edit
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Snapshot, is_ours

TRANSIENT = frozenset({"kubevirt_not_available", "kubevirt_settling"})
"""Codes of errors that our own work brings about for some seconds: KubeVirt is available only while every primary
handler is Ready, and nodes that go back to the primary start one. Who can wait, waits; what lasts is refused."""


def check(snapshot: Snapshot, pools: t.Sequence[Pool], edit: Edit, *, allow_skew: bool) -> t.Iterator[Finding]:
    """Everything that forbids a run (errors) or that its user must know (warnings)."""
    yield from for_exclusion(snapshot, edit)
    yield from _native(snapshot)
    yield from _foreign_daemonsets(snapshot, pools)
    yield from _labels(snapshot)
    yield from skew(snapshot, pools, allow_skew)


def for_exclusion(snapshot: Snapshot, edit: Edit) -> t.Iterator[Finding]:
    """What concerns KubeVirt itself and the change of its primary."""
    yield from fitness(snapshot)
    yield from exclusion.conflicts(snapshot.kubevirt, snapshot.hyperconverged)
    if edit.changed:
        yield from _canary(snapshot)


def for_removal(snapshot: Snapshot, edit: Edit) -> t.Iterator[Finding]:
    """The same where the exclusion goes: what others do to the primary's scheduling is theirs again."""
    yield from fitness(snapshot)
    if edit.changed:
        yield from _canary(snapshot)


def own_change_settling(snapshot: Snapshot) -> bool:
    """Whether KubeVirt has not rolled out yet what this collection asked of it."""
    return health.explained_by_us(snapshot.kubevirt, snapshot.primary, snapshot.dead_primary_handlers)


def fitness(snapshot: Snapshot) -> list[Finding]:
    """Whether KubeVirt is fit to be changed now; asked again before every batch."""
    findings = health.health_findings(
        snapshot.kubevirt,
        snapshot.primary,
        unready_nodes=snapshot.unready_nodes,
        primary_handlers_not_ready=snapshot.primary_not_ready,
    )
    if snapshot.hyperconverged is not None:
        findings += health.hco_findings(snapshot.hyperconverged)
    return findings


def _native(snapshot: Snapshot) -> t.Iterator[Finding]:
    for used in feature_gates.native_pools_in_use(snapshot.kubevirt):
        yield error(
            "native_pools_in_use",
            f"KubeVirt {snapshot.kubevirt_name} has pools of its own in spec.{used}, whose DaemonSets have the names that "
            "ours would get; empty that field, or leave the pools to this build of KubeVirt.",
        )


def _foreign_daemonsets(snapshot: Snapshot, pools: t.Sequence[Pool]) -> t.Iterator[Finding]:
    for pool in pools:
        live = snapshot.daemonsets.get(names.pool_daemonset_name(pool.name))
        if live is not None and not is_ours(live):
            yield error(
                "foreign_daemonset",
                f"DaemonSet {snapshot.namespace}/{live['metadata']['name']} has the name that pool {pool.name} needs, but "
                "this collection did not make it; delete it, or give the pool another name.",
            )
        elif live is not None and live["metadata"].get("deletionTimestamp"):
            yield error(
                "daemonset_being_deleted",
                f"DaemonSet {snapshot.namespace}/{live['metadata']['name']} of pool {pool.name} is being deleted; wait until "
                "it is gone, then run again.",
            )


def _labels(snapshot: Snapshot) -> t.Iterator[Finding]:
    """Owner labels that no pool of ours explains."""
    known = {*snapshot.pools, names.PRIMARY, names.IN_TRANSIT}
    excluded = snapshot.primary is not None and exclusion.exclusion_in(snapshot.primary)
    strange: dict[str, list[str]] = {}
    for node in snapshot.nodes.values():
        if node.owner not in known:
            strange.setdefault(node.owner, []).append(node.name)
    for owner, nodes in sorted(strange.items()):
        what = f"{len(nodes)} node(s) carry the label {names.OWNER_LABEL}={owner} ({listed(nodes)}), but there is no pool of that name"
        if excluded:
            yield warning("owner_unknown", f"{what}: they have no virt-handler until the run has given them an owner.")
        else:
            yield error(
                "owner_label_foreign",
                f"{what} and this collection did not set it; installing the exclusion would take virt-handler from these "
                f"nodes. Remove the label: kubectl label node {nodes[0]} {names.OWNER_LABEL}-",
            )


def skew(snapshot: Snapshot, pools: t.Sequence[Pool], allow_skew: bool) -> t.Iterator[Finding]:
    """Images of pools that were built for another version than KubeVirt's, as far as their tags tell."""
    version = health.version_of(snapshot.kubevirt)
    if version is None or snapshot.primary is None:
        return
    images = daemonsets.images_of(snapshot.primary)
    for pool in pools:
        for field, image, stock in (
            ("virtHandlerImage", pool.virt_handler_image, images[names.HANDLER]),
            ("virtLauncherImage", pool.virt_launcher_image, images.get(names.LAUNCHER)),
        ):
            if image is not None and image != stock:
                yield from _skew_of(f"Pool {pool.name}: {field} {image}", image, version, allow_skew)


def _skew_of(what: str, image: str, version: str, allow_skew: bool) -> t.Iterator[Finding]:
    found = health.skew(image, version)
    if found == "different":
        message = f"{what} is of another version than KubeVirt {version}"
        if allow_skew:
            yield warning("skew", f"{message}, which virtpools_allow_skew lets pass.")
        else:
            yield error(
                "skew",
                f"{message}; use an image built for {version}, or set virtpools_allow_skew: true if you know that the two "
                "work together.",
            )
    elif found == "unknown":
        yield warning(
            "skew_unknown",
            f"{what}: the tag does not say its version; make sure that it was built for KubeVirt {version}.",
        )


def _canary(snapshot: Snapshot) -> t.Iterator[Finding]:
    """virt-operator rolls its DaemonSet out with maxUnavailable 1 until a first pod is updated and Ready, and the
    DaemonSet controller counts a handler on a dead node as that one: nothing would ever be replaced."""
    dead = [
        node.name
        for node in snapshot.nodes.values()
        if not node.ready and any(pod.daemonset == names.HANDLER for pod in snapshot.handlers.get(node.name, ()))
    ]
    if dead:
        yield error(
            "exclusion_blocked_by_unready_nodes",
            f"The exclusion changes the primary virt-handler, and KubeVirt's rollout of it would wait for ever for "
            f"{len(dead)} node(s) that are not Ready ({listed(dead)}); bring them back, or delete the Node objects of "
            "machines that are gone, then run again.",
        )
