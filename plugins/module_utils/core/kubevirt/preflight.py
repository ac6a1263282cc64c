# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Checks that must pass before a run changes anything."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..base import names
from ..base.findings import Finding, counted, error, listed, note, printable, warning
from ..observed import operator_api
from ..observed.snapshot import Snapshot, is_pool_daemonset
from ..pools.model import Pool
from . import (
    daemonsets,
    exclusion,
    feature_gates,
    handler_fit,
    hco,
    health,
    hypervisor,
    image_contents,
    patch_conflicts,
)
from .hco import Edit

TRANSIENT = frozenset({"kubevirt_not_available", "kubevirt_settling"})
"""Codes of errors that our own work causes for some seconds: KubeVirt is available only while every primary handler is
Ready, and nodes that go back to the primary start one. Callers that can wait should wait before they refuse."""


DEGRADED: t.Final = "kubevirt_degraded"
ROLLOUT: t.Final = "kubevirt_rolling_out"
"""The code while virt-operator rolls out another deployment of the same version. That takes as long as a rollout of the primary, and
live migrations break when it replaces a handler."""
PASSING = TRANSIENT | {DEGRADED, ROLLOUT}
"""Codes of errors that may pass by themselves: virt-operator is also Degraded for a second or two when the API server restarts."""

SKEW = frozenset({"version_skew", "version_skew_unknown"})
"""Codes of findings on images of another version, which are about a pool list more than about the cluster."""


def check(
    snapshot: Snapshot, pools: t.Sequence[Pool], edit: Edit, released: t.Collection[str] = ()
) -> t.Iterator[Finding]:
    """Everything that forbids a run (errors) or that its user should know (warnings).

    :param released: see ``fitness``.
    """
    yield from (_with_what_may_run(snapshot, finding) for finding in for_exclusion(snapshot, edit, released))
    yield from _tainted(edit)
    yield from _operator(snapshot)
    yield from _foreign_daemonsets(snapshot, pools)
    yield from _labels(snapshot)
    yield from skew(snapshot, pools)
    yield from hypervisor.check(snapshot, pools)
    listed = {pool.name for pool in pools}
    yield from image_contents.examine({name: live for name, live in snapshot.pools.items() if name in listed})


def _with_what_may_run(snapshot: Snapshot, finding: Finding) -> Finding:
    """The finding; during an upgrade with what may be run until it is done."""
    upgrading = health.Health.from_kubevirt(snapshot.kubevirt).upgrading
    if finding.code != "kubevirt_upgrading" or upgrading is None or not snapshot.pools:
        return finding
    until = (
        f"Until then you can run the playbook upgrade with virtpools_upgrade_to={upgrading[1]} and the list for that version: VMs of "
        "pools then start with both versions. With virtpools_upgrade_wait it goes on by itself."
    )
    return replace(finding, message=f"{finding.message} {until}")


def for_exclusion(snapshot: Snapshot, edit: Edit, released: t.Collection[str] = ()) -> t.Iterator[Finding]:
    """The findings on KubeVirt itself and on the change of its primary.

    :param released: see ``fitness``.
    """
    yield from fitness(snapshot, released)
    yield from patch_conflicts.conflicts(snapshot.kubevirt, snapshot.hyperconverged)
    if edit.changed:
        yield from _unready_nodes(snapshot)
        yield from _handlers_not_made_again(snapshot)


def for_removal(snapshot: Snapshot, edit: Edit) -> t.Iterator[Finding]:
    """The same findings for the removal of the exclusion; others may then change the primary's scheduling again."""
    yield from fitness(snapshot)
    if edit.changed:
        yield from _unready_nodes(snapshot)
        yield from _handlers_not_made_again(snapshot)


def own_change_settling(snapshot: Snapshot) -> bool:
    """Whether KubeVirt may still be rolling out this collection's own change."""
    primary, hyperconverged = snapshot.primary, snapshot.hyperconverged
    if primary is not None and hyperconverged is not None:  # which may not have acted on its annotation yet
        asked = exclusion.is_asked_for(snapshot.kubevirt, hyperconverged)
        if asked != exclusion.has_exclusion(primary):
            return True
    excused = snapshot.dead_primary_handlers + len(broken_handlers(snapshot))
    return health.unsettled_by_us(snapshot.kubevirt, primary, excused)


def fitness(snapshot: Snapshot, released: t.Collection[str] = ()) -> list[Finding]:
    """Findings on whether KubeVirt is healthy enough to be changed now; also checked before each batch.

    :param released: nodes that the primary gives up before the run waits for KubeVirt, because they go to pools.
    """
    findings = health.health_findings(
        snapshot.kubevirt,
        snapshot.primary,
        unready_nodes=snapshot.unready_nodes,
        primary_handlers_not_ready=snapshot.primary_not_ready,
        broken_handlers=len(broken_handlers(snapshot)),
    )
    if _dropped_by_others(snapshot):
        findings = [finding for finding in findings if finding.code != "own_change_settling"]
    findings = [_with_broken_handlers(snapshot, finding, released) for finding in findings]
    if snapshot.hyperconverged is not None:
        findings += health.hco_findings(snapshot.hyperconverged)
    return findings


def broken_handlers(snapshot: Snapshot) -> dict[str, str]:
    """The nodes that are Ready while the primary's handler there is not and has a problem, with that. One that is only starting has
    none."""
    pods = {pod.name: pod for of_node in snapshot.handlers.values() for pod in of_node}
    problems = {
        node: pods[name].fault
        for name, node in snapshot.primary_not_ready.items()
        if node not in snapshot.unready_nodes and name in pods
    }
    return {node: printable(problem) for node, problem in problems.items() if problem}


def _with_broken_handlers(snapshot: Snapshot, finding: Finding, released: t.Collection[str]) -> Finding:
    """The finding that KubeVirt is not available, with the handlers that keep it from that. A warning when all of them are on nodes
    that the run takes from the primary first."""
    not_ready = {pod: node for pod, node in snapshot.primary_not_ready.items() if node not in snapshot.unready_nodes}
    if finding.code != "kubevirt_not_available" or not not_ready:
        return finding
    broken = broken_handlers(snapshot)
    shown = listed(
        f"{node} (pod {pod}{f': {broken[node]}' if node in broken else ''})" for pod, node in not_ready.items()
    )
    nodes = set(not_ready.values())
    if nodes <= set(released):
        return warning(
            "kubevirt_waits_for_pools",
            f"KubeVirt {snapshot.kubevirt_name} is not available, because its virt-handler does not start on "
            f"{counted(len(nodes), 'node that goes', 'nodes that go')} to a pool in this run: {shown}. The run begins with taking it "
            "away there; these nodes then have no virt-handler until their wave.",
        )
    return replace(
        finding,
        message=f"{finding.message} Its virt-handler is not Ready on {counted(len(nodes), 'node that is Ready', 'nodes that are Ready')}: {shown}.",
    )


def _dropped_by_others(snapshot: Snapshot) -> bool:
    """Whether KubeVirt no longer asks for the exclusion although there are pools: a run that removes them takes it away last."""
    return bool(snapshot.pools) and not exclusion.is_asked_for(snapshot.kubevirt, snapshot.hyperconverged)


def _tainted(edit: Edit) -> t.Iterator[Finding]:
    """A note that HCO reports its annotation (seen on the real one)."""
    if edit.kind == "HyperConverged" and edit.changed:
        yield note(
            "hco_tainted",
            f"While there are pools, {hco.title(edit.before)} has the condition TaintedConfiguration, and HCO's alert "
            "UnsupportedHCOModification (severity info) is on: HCO reports every operation in its annotation that way.",
        )


def _operator(snapshot: Snapshot) -> t.Iterator[Finding]:
    hyperconverged = snapshot.hyperconverged
    remedy = (
        "empty that field"
        if hyperconverged is None
        else f"take its operation out of {hco.shared_place(hyperconverged)}"
    )
    for used in operator_api.operator_pools_in_use(snapshot.kubevirt):
        yield error(
            "operator_pools_in_use",
            f"KubeVirt {snapshot.kubevirt_name} has pools of its own in spec.{used}, whose DaemonSets have the names that "
            f"ours would get; {remedy}, or leave the pools to this build of KubeVirt (virtpools_mode: operator).",
        )
    if snapshot.operator_api.worker_pools and feature_gates.is_on(snapshot.kubevirt, feature_gates.WORKER_POOLS_GATE):
        yield error(
            "operator_pools_in_use",
            f"KubeVirt {snapshot.kubevirt_name} creates pools of its own from "
            f"{counted(len(snapshot.operator_api.worker_pools), 'WorkerPool object')}, "
            "and their DaemonSets have the names that ours would get; delete these objects, or leave the pools to this build of "
            "KubeVirt (virtpools_mode: operator).",
        )


def _foreign_daemonsets(snapshot: Snapshot, pools: t.Sequence[Pool]) -> t.Iterator[Finding]:
    for pool in pools:
        live = snapshot.daemonsets.get(names.pool_daemonset_name(pool.name))
        if live is None:
            continue
        name = live["metadata"]["name"]
        title = f"DaemonSet {snapshot.namespace}/{name}"
        if is_pool_daemonset(live):
            if live["metadata"].get("deletionTimestamp"):
                yield error(
                    "daemonset_being_deleted",
                    f"{title} of pool {pool.name} is being deleted; wait until that is done, then run again.",
                )
        elif daemonsets.template_of(live):
            labels = f"{names.OURS} {names.OWNER_LABEL}={pool.name}"
            yield error(
                "foreign_daemonset",
                f"{title} of pool {pool.name} has lost labels by which this collection knows what it has created. See which client "
                f"took the labels away, and restore them (`kubectl label daemonset -n {snapshot.namespace} {name} --overwrite "
                f"{labels}`), then run again.",
            )
        else:
            yield error(
                "foreign_daemonset",
                f"{title} has the name that pool {pool.name} needs, but this collection did not create it; delete it, or give the "
                "pool another name.",
            )


def _labels(snapshot: Snapshot) -> t.Iterator[Finding]:
    """Findings on owner labels that no pool of ours explains."""
    known = {*snapshot.pools, names.PRIMARY, names.IN_TRANSIT}
    excluded = snapshot.primary is not None and exclusion.has_exclusion(snapshot.primary)
    unknown: dict[str, list[str]] = {}
    for node in snapshot.nodes.values():
        if node.owner not in known:
            unknown.setdefault(node.owner, []).append(node.name)
    for owner, nodes in sorted(unknown.items()):
        what = f"{counted(len(nodes), 'node has', 'nodes have')} the label {names.OWNER_LABEL}={owner} ({listed(nodes)}), but no pool has that name"
        if excluded:
            yield warning("owner_unknown", f"{what}: they have no virt-handler until the run has given them an owner.")
        else:
            yield error(
                "owner_label_foreign",
                f"{what} and this collection did not set it; installing the exclusion would take virt-handler from these "
                f"nodes. Remove the label: kubectl label nodes -l {names.OWNER_LABEL}={owner} {names.OWNER_LABEL}-",
            )


def skew(snapshot: Snapshot, pools: t.Sequence[Pool]) -> t.Iterator[Finding]:
    """Findings on images of pools that were built for another version of KubeVirt, judged by their tags."""
    version = health.version_of(snapshot.kubevirt)
    if version is None or snapshot.primary is None:
        return
    images = daemonsets.images_of(snapshot.primary)
    present = {name: daemonsets.handler_image(live) for name, live in snapshot.pools.items()}
    for pool in pools:
        for field, image, stock in (
            ("virtHandlerImage", pool.virt_handler_image, images[names.HANDLER]),
            ("virtLauncherImage", pool.virt_launcher_image, images.get(names.LAUNCHER)),
        ):
            if image is not None and image != stock:
                # A pool that has it already, after an upgrade that was taken back, can still be changed and removed.
                fails = field == "virtHandlerImage" and image != present.get(pool.name)
                told = health.skew(image, version, stock)
                own = stock if health.has_own_tags(stock, snapshot.kubevirt) else None
                later = _is_of_later_release(image, health.release_of_image(own) if own else health.release_of(version))
                yield from _skew_of(
                    f"Pool {pool.name}: {field}",
                    image,
                    told,
                    f"{version} ({own})" if own else version,
                    accepted=pool.allow_skew,
                    fails=fails and later,
                )


def _is_of_later_release(image: str, release: tuple[int, int] | None) -> bool:
    """Whether an image is of a later minor release. Patch releases change no rights (KubeVirt)."""
    ours = health.release_of_image(image)
    return ours is not None and release is not None and ours > release


def _skew_of(
    place: str, image: str, told: health.Skew, version: str, *, accepted: bool, fails: bool
) -> t.Iterator[Finding]:
    """``fails``: whether it is a handler of a later release for which nothing shows that it works."""
    what = f"{place} {image}"
    if told == "different" and fails:
        yield error(
            "version_skew",
            f"{what} is of a later release than KubeVirt {version}: such a virt-handler lacks rights that only that release of KubeVirt "
            "gives it, and never becomes Ready; keep the present handler until KubeVirt is upgraded.",
        )
    elif told == "different":
        message = f"{what} is of another version than KubeVirt {version}"
        if accepted:
            yield warning("version_skew", f"{message}, accepted by allowSkew of the pool.")
        else:
            yield error(
                "version_skew",
                f"{message}; use an image built for {version}, or set allowSkew: true in the pool if you know that the two "
                "work together.",
            )
    elif told == "unknown":
        yield warning(
            "version_skew_unknown",
            f"{what}: {_without_version(image)}; make sure that it was built for KubeVirt {version}.",
        )


def _without_version(image: str) -> str:
    """Why the text of an image does not tell its version."""
    if "@" in image:
        return "a digest does not show its version"
    if ":" in health.last_part(image):
        return "the tag does not show its version"
    return "without a tag, the node pulls latest, whose content may change at any time and whose version nothing shows"


def _unready_nodes(snapshot: Snapshot) -> t.Iterator[Finding]:
    """An error when handlers on nodes that are not Ready would block the rollout of the primary.

    virt-operator rolls its DaemonSet out with maxUnavailable 1 until a first pod is updated and Ready. The DaemonSet
    controller counts a handler on a dead node as the one unavailable pod, so no handler would ever be replaced.
    """
    dead = [
        node.name
        for node in snapshot.nodes.values()
        if not node.ready and any(pod.daemonset == names.HANDLER for pod in snapshot.handlers.get(node.name, ()))
    ]
    if dead:
        yield error(
            "exclusion_blocked_by_unready_nodes",
            f"The exclusion changes the primary virt-handler, and KubeVirt's rollout of it would wait forever for "
            f"{counted(len(dead), 'node that is', 'nodes that are')} not Ready ({listed(dead)}); bring them back, or delete the Node objects of "
            "machines that no longer exist, then run again.",
        )


def _handlers_not_made_again(snapshot: Snapshot) -> t.Iterator[Finding]:
    """An error when the rollout of the primary would end handlers that its DaemonSet would not recreate."""
    if snapshot.primary is None:
        return
    template = handler_fit.primary_template(snapshot.primary)
    by_reason: dict[str, list[str]] = {}
    for node in snapshot.nodes.values():
        served = any(pod.daemonset == names.HANDLER for pod in snapshot.handlers.get(node.name, ()))
        reason = handler_fit.refusal(template, node) if served and node.ready else None
        if reason:
            by_reason.setdefault(reason, []).append(node.name)
    for reason, nodes in by_reason.items():
        yield error(
            "exclusion_would_end_handlers",
            f"The exclusion restarts every primary virt-handler, and {counted(len(nodes), 'node would not get its handler', 'nodes would not get theirs')} "
            f"back, because {reason}: "
            f"{listed(nodes)}. Undo that, or let virt-handler tolerate it ({hco.placement_place(snapshot.hyperconverged)}), or delete "
            "the handler pods where no VM is to run, then run again.",
        )
