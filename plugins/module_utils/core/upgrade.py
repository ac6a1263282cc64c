# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before an upgrade of KubeVirt: will it go through, will the pools survive it, and which images does the run after it need?

KubeVirt replaces the primary, then virt-controller, then virt-api. Pool DaemonSets stay as they are until the next run of
site, and so does whatever is wrong with the pools: what an upgrade broke could not be told from it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    health,
    names,
    outdated_policy,
    plan,
    preflight,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    InputErrors,
    error,
    in_order,
    listed,
    note,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verification import Verifier

Verdict = t.Literal["ready", "prepare", "blocked"]


@dataclass(frozen=True)
class Image:
    """An image that a pool names. ``needed`` is the same for the new version, as far as its tag tells."""

    pool: str
    field: str
    image: str
    skew: t.Literal["same", "different", "unknown"]
    needed: str | None

    def to_dict(self) -> dict[str, t.Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Upgrade:
    """What an upgrade to ``target`` would meet. ``images`` are those that the pools need for the run after it."""

    current: str | None
    target: str
    images: tuple[Image, ...]
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """``blocked`` by an error; ``prepare``: there are warnings to act on; ``ready``."""
        severities = {finding.severity for finding in self.findings}
        return "blocked" if "error" in severities else "prepare" if "warning" in severities else "ready"

    @property
    def summary(self) -> str:
        """The verdict as a sentence."""
        if health.rank(self.current or "") == health.rank(self.target):
            return f"KubeVirt {self.current} is deployed already."
        step = f"The upgrade of KubeVirt from {self.current or 'an unknown version'} to {self.target}"
        counts = {kind: sum(f.severity == kind for f in self.findings) for kind in ("error", "warning")}
        if self.verdict == "blocked":
            return f"{step} should wait: {counts['error']} finding(s) must be gone first."
        if self.verdict == "prepare":
            return f"{step} can go ahead once {counts['warning']} finding(s) are taken care of."
        return f"{step} can go ahead."


def check(snapshot: Snapshot, target: str, pools: t.Sequence[Pool] | None, options: Options) -> Upgrade:
    """Whether this cluster is fit for the upgrade.

    :param target: KubeVirt's version after it.
    :param pools: as they are given to the run after the upgrade; None for those that the cluster records.
    :raises InputErrors: when ``target`` is no version.
    """
    if health.rank(target) is None:
        raise InputErrors([f"version is {target[:80]!r}; give the version of KubeVirt to upgrade to, such as v1.9.1."])
    current = health.version_of(snapshot.kubevirt)
    images = tuple(_images(plan.recorded(snapshot) if pools is None else pools, target))
    if health.rank(current or "") == health.rank(target):
        done = note("upgrade_done", f"KubeVirt {current} is deployed already; run site, so that the pools follow it.")
        return Upgrade(current=current, target=target, images=images, findings=(done,))
    findings = [
        *_direction(current, target),
        *_now(snapshot, options),
        *_rollout(snapshot),
        *outdated_policy.after_upgrade(snapshot),
        *_image_findings(images, target, given=pools is not None, allow_skew=options.allow_skew),
        *_afterwards(snapshot, current),
    ]
    return Upgrade(current=current, target=target, images=images, findings=in_order(findings))


def _direction(current: str | None, target: str) -> t.Iterator[Finding]:
    now, then = health.rank(current or ""), health.rank(target)
    if now is not None and then is not None and now > then:
        yield error(
            "upgrade_backwards",
            f"KubeVirt {current} is newer than {target}: that would be a downgrade, which KubeVirt does not support.",
        )


def _now(snapshot: Snapshot, options: Options) -> t.Sequence[Finding]:
    """What is wrong already, compared with what the cluster records."""
    if not snapshot.pools or snapshot.primary is None:
        return preflight.fitness(snapshot)
    made = plan.make(snapshot, plan.recorded(snapshot), plan.recorded_options(snapshot, options))
    # Of images, the ones of the new version are in question.
    return [f for f in Verifier(made).report().findings if f.code not in ("skew", "skew_unknown")]


def _rollout(snapshot: Snapshot) -> t.Iterator[Finding]:
    """What keeps virt-operator from replacing the primary, and nodes of pools that the run after it cannot reach."""
    stuck = set(snapshot.primary_not_ready.values()) & snapshot.unready_nodes
    if stuck:
        yield error(
            "upgrade_blocked_by_unready_nodes",
            f"KubeVirt's rollout of the new virt-handler would wait for ever for {len(stuck)} node(s) that are not Ready "
            f"({listed(stuck)}); bring them back, or delete the Node objects of machines that are gone.",
        )
    left = [node.name for node in snapshot.nodes.values() if node.owner in snapshot.pools and not node.ready]
    if left:
        yield warning(
            "upgrade_pool_nodes_not_ready",
            f"{len(left)} node(s) of pools are not Ready ({listed(left)}): they keep the old virt-handler until they are "
            "back and site has run.",
        )


def _images(pools: t.Iterable[Pool], target: str) -> t.Iterator[Image]:
    for pool in pools:
        for field, image in (
            ("virtHandlerImage", pool.virt_handler_image),
            ("virtLauncherImage", pool.virt_launcher_image),
        ):
            if image is not None:
                yield Image(pool.name, field, image, health.skew(image, target), health.retagged(image, target))


def _image_findings(images: t.Iterable[Image], target: str, *, given: bool, allow_skew: bool) -> t.Iterator[Finding]:
    for found in images:
        what = f"Pool {found.pool}: {found.field} {found.image}"
        if found.skew == "unknown":
            yield warning(
                "upgrade_image_unknown",
                f"{what}: the tag does not say its version; make sure that there is a build for KubeVirt {target} and that "
                "the list for the next run of site names it.",
            )
        elif found.skew == "different" and given and not allow_skew:
            yield error(
                "upgrade_image_skew",
                f"{what} is of another version than {target}: site would refuse it after the upgrade; build "
                f"{found.needed} and put it into the list, or set virtpools_allow_skew: true if you know that the two work "
                "together.",
            )
        elif found.skew == "different":
            yield warning(
                "upgrade_image_skew",
                f"{what} is of another version than {target}; build {found.needed} before the upgrade, and give it to the "
                "run of site after it.",
            )


def _afterwards(snapshot: Snapshot, current: str | None) -> t.Iterator[Finding]:
    nodes = sum(node.owner in snapshot.pools for node in snapshot.nodes.values())
    if nodes:
        yield note(
            "upgrade_site_after",
            f"{names.HANDLER} stays at {current or 'its version'} on the {nodes} node(s) of {len(snapshot.pools)} pool(s), "
            "and goes on working, until site is run after the upgrade and replaces it node by node.",
        )
