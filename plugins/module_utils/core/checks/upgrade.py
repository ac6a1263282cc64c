# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The check before an upgrade of KubeVirt: whether it can go ahead, and which images the pools need after it.

KubeVirt replaces the primary, then virt-controller, then virt-api. Pool DaemonSets stay as they are until the next run of
site. Problems of the pools must be solved before the upgrade, since afterwards their cause would be unclear.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

from ..admission import launcher_backends, outdated_policy
from ..base import names
from ..base.findings import Finding, InputErrors, counted, error, in_order, listed, note, warning
from ..base.frozen import FrozenMap
from ..kubevirt import daemonsets, health, launcher_arguments, preflight
from ..observed.snapshot import Admission, Snapshot
from ..planning import goals, plan
from ..planning.options import Options
from ..pools.model import Pool
from ..vms.mapping import Table, Upcoming
from .verification import Verifier

_TARGET = re.compile(r"(v?\d+\.\d+\.\d+|\d{8})([._+-][\w.+-]*)?")
"""What virt-operator calls a version, the tag of its images: ``v1.9.1``, or of a nightly build ``20261101_0123abc``."""

_KEPT = "Unless virtpools_prune: true, site keeps such a pool, with its present images."

Readiness = t.Literal["ready", "prepare", "blocked"]


@dataclass(frozen=True)
class Image:
    """An image of a pool."""

    pool: str
    field: str
    image: str
    skew: health.Skew
    needed: str | None
    """The image for the new version; None where the tag does not show it."""
    accepted: bool = False
    """Whether it may be of another version, by allowSkew of its pool."""
    release: str | None = None
    """The release that it shares with the new version, so that it may stay; None for one of another release."""
    kept: bool = False
    """Whether a list was given that does not name its pool."""
    finding: Finding | None = None
    """What is to be done about it."""

    @property
    def afterwards(self) -> str:
        """What becomes of it, for a table."""
        if self.skew == "same":
            return "as it is"
        return "accepted by allowSkew" if self.accepted else self.needed or "unknown"

    def to_dict(self) -> dict[str, t.Any]:
        return {name: getattr(self, name) for name in ("pool", "field", "image", "skew", "needed")}


@dataclass(frozen=True)
class Upgrade:
    """Whether KubeVirt can be upgraded to ``target``."""

    current: str | None
    target: str
    images: tuple[Image, ...]
    """Those of the pools, with those they need after the upgrade."""
    findings: tuple[Finding, ...]

    @property
    def other_findings(self) -> tuple[Finding, ...]:
        """The findings that are not about an image."""
        about_images = {image.finding for image in self.images}
        return tuple(finding for finding in self.findings if finding not in about_images)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about the images with findings, once for all that are alike."""
        differing = [
            image
            for image in self.images
            if image.finding is not None and image.skew == "different" and not image.accepted
        ]
        refused = any(image.finding and image.finding.severity == "error" for image in differing)
        stays = {image.release for image in differing if image.release}
        lines = []
        if refused:
            lines.append(
                "site would refuse images of another version after the upgrade: build those of the last column and put them into the list, "
                "or set allowSkew: true in their pools."
            )
        elif differing:
            lines.append(
                "Build the images of the last column before the upgrade, and put them into the list for the run of site after it."
            )
        lines += [
            f"Images of release {release} may stay, with allowSkew: true in their pools." for release in sorted(stays)
        ]
        if any(image.finding is not None and image.skew == "unknown" for image in self.images):
            lines.append(
                f"Where the tag does not show the version, make sure that a build for KubeVirt {self.target} exists and that the list for the "
                "next run of site names it."
            )
        kept = {image.pool: None for image in self.images if image.finding is not None and image.kept}
        if kept:
            lines.append(f"The list does not name pool {listed(kept)}. {_KEPT}")
        return tuple(lines)

    @property
    def done(self) -> bool:
        """Whether KubeVirt has the version already."""
        return health.same_version(self.current, self.target)

    @property
    def verdict(self) -> Readiness:
        """``blocked`` when there are errors, ``prepare`` when there are warnings, else ``ready``."""
        severities = {finding.severity for finding in self.findings}
        return "blocked" if "error" in severities else "prepare" if "warning" in severities else "ready"

    @property
    def summary(self) -> str:
        """The verdict as a sentence."""
        counts = {kind: sum(f.severity == kind for f in self.findings) for kind in ("error", "warning")}
        if self.done and counts["error"]:
            errors = counted(counts["error"], "error is", "errors are")
            return f"KubeVirt {self.current} is deployed already, but the pools can follow only when {errors} fixed."
        if self.done:
            return f"KubeVirt {self.current} is deployed already."
        step = f"The upgrade of KubeVirt from {self.current or 'an unknown version'} to {self.target}"
        if self.verdict == "blocked":
            return f"{step} must wait until {counted(counts['error'], 'error is', 'errors are')} fixed."
        if self.verdict == "prepare":
            return f"{step} can go ahead once you have dealt with {counted(counts['warning'], 'warning')}."
        return f"{step} can go ahead."


def check(
    snapshot: Snapshot,
    target: str,
    pools: t.Sequence[Pool] | None,
    options: Options,
    present: plan.Plan | None = None,
    *,
    prepares: bool = False,
) -> Upgrade:
    """Check whether this cluster is fit for the upgrade.

    :param target: KubeVirt's version after the upgrade.
    :param pools: the list for the run after the upgrade; None for the pools that the cluster records. That run also keeps those of
        the cluster that the list does not name, unless it prunes them.
    :param present: the plan by which the cluster is judged as it is, where KubeVirt itself makes the pools.
    :param prepares: whether VMs will get the launcher images of ``pools`` as soon as the new version starts them.
    :raises InputErrors: when ``target`` is not a version.
    """
    if not _TARGET.fullmatch(target):
        raise InputErrors(
            [f"virtpools_upgrade_to is {target[:80]!r}; give the version of KubeVirt to upgrade to, such as v1.9.1."]
        )
    current = health.version_of(snapshot.kubevirt)
    unlisted = _unlisted(snapshot, pools, options)
    images = tuple(_images((*(pools or ()), *unlisted), target, snapshot))
    if health.same_version(current, target):
        done = note("upgrade_done", f"KubeVirt {current} is deployed already; run site, so that the pools follow it.")
        # It may be about to leave this version, or on its way back to it.
        unfit = (finding for finding in preflight.fitness(snapshot) if finding.severity == "error")
        return Upgrade(current=current, target=target, images=images, findings=(*unfit, done))
    launchers = launcher_backends.images_after_upgrade(snapshot.admission)
    one_image = snapshot.by_operator or (
        snapshot.admission is not None and launcher_backends.backend_in_use(snapshot.admission) == "aie_webhook"
    )
    if snapshot.by_operator and present is not None and present.launcher_rollout is not None:
        in_effect = present.launcher_rollout.in_effect
        launchers = {pool: image for pool, image in in_effect.images.items() if image} if in_effect is not None else {}
    if prepares:
        launchers |= {pool.name: pool.virt_launcher_image or "" for pool in pools or () if pool.name in launchers}
    images = tuple(_judged(images, current, target, pools, unlisted))
    # Once it has begun, what is prepared still helps, and the cluster is in motion.
    begun = prepares and health.is_upgrading_to(snapshot.kubevirt, target)
    table = _table_for(snapshot, target, pools if prepares else None)
    findings = [
        *_direction(current, target),
        *(() if begun else (*_now(snapshot, options, present), *_rollout(snapshot))),
        *outdated_policy.after_upgrade(snapshot, table),
        *(image.finding for image in images if image.finding is not None),
        *launcher_arguments.before_upgrade(launchers, target, snapshot.kubevirt, one_image=one_image),
        *(() if snapshot.by_operator else _afterwards(snapshot, current)),
    ]
    return Upgrade(current=current, target=target, images=images, findings=in_order(findings))


def _table_for(snapshot: Snapshot, target: str, prepared: t.Sequence[Pool] | None) -> Table | None:
    """The mapping table when the upgrade begins, with what is or will be prepared for this version.

    :param prepared: the list by which the upgrade is about to be prepared.
    """
    table = launcher_backends.recorded_table(snapshot.admission or Admission())
    stock = outdated_policy.stock_image(snapshot)
    if table is None:
        return None
    if prepared is not None and stock is not None:
        return table.prepared(
            Upcoming(stock, target, FrozenMap({pool.name: pool.virt_launcher_image for pool in prepared}))
        )
    if table.upcoming is not None and not health.same_version(table.upcoming.version, target):
        return replace(table, upcoming=None)
    return table


def _direction(current: str | None, target: str) -> t.Iterator[Finding]:
    now, then = health.rank(current or ""), health.rank(target)
    if then is None:
        yield warning(
            "upgrade_target_unknown",
            f"Of which release {target} is a build, its name does not say: whether that is an upgrade, and whether launcher images know "
            "the arguments that it passes, was not checked.",
        )
    elif now is None and current is not None:
        yield warning(
            "upgrade_target_unknown",
            f"Of which release {current} is a build, its name does not say: whether {target} is an upgrade was not checked.",
        )
    of_now, of_then = health.release_of(current), health.release_of(target)
    if of_now is not None and of_then is not None and of_then[0] == of_now[0] and of_then[1] > of_now[1] + 1:
        between = health.dotted((of_now[0], of_now[1] + 1))
        yield error(
            "upgrade_skips_releases",
            f"KubeVirt supports upgrades to the next release only; upgrade from {current} to {between} before {target}.",
        )
    if of_now is not None and of_then is not None and of_then[0] > of_now[0] and of_then != (of_now[0] + 1, 0):
        yield error(
            "upgrade_skips_releases",
            f"{target} does not follow {current}, and KubeVirt supports upgrades to the next release only. If it is the version "
            "of another product, give the version of the KubeVirt in it.",
        )
    if now is not None and then is not None and now > then:
        yield error(
            "upgrade_backwards",
            f"KubeVirt {current} is newer than {target}: that would be a downgrade, which KubeVirt does not support.",
        )


def _now(snapshot: Snapshot, options: Options, present: plan.Plan | None) -> t.Sequence[Finding]:
    """What is wrong already, compared with the pools that the cluster records."""
    if not snapshot.pools or snapshot.primary is None:
        return preflight.fitness(snapshot)
    if present is None:
        present = plan.make_plan(snapshot, goals.recorded(snapshot), goals.recorded_options(snapshot, options))
    # Images are compared with the new version, not with the present one.
    return [f for f in Verifier(present).report().findings if f.code not in preflight.SKEW]


def _rollout(snapshot: Snapshot) -> t.Iterator[Finding]:
    """Nodes that keep virt-operator from replacing the primary, and pool nodes that the run after the upgrade cannot reach."""
    stuck = set(snapshot.primary_not_ready.values()) & snapshot.unready_nodes
    if stuck:
        yield error(
            "upgrade_blocked_by_unready_nodes",
            f"KubeVirt's rollout of the new virt-handler would wait forever for {counted(len(stuck), 'node that is', 'nodes that are')} not Ready "
            f"({listed(stuck)}); bring them back, or delete the Node objects of machines that no longer exist.",
        )
    unreachable = [node.name for node in snapshot.nodes.values() if node.owner in snapshot.pools and not node.ready]
    if unreachable:
        yield warning(
            "upgrade_pool_nodes_not_ready",
            f"{counted(len(unreachable), 'pool node is', 'pool nodes are')} not Ready ({listed(unreachable)}): such "
            f"nodes keep the old virt-handler until they are back and site has run.",
        )


def _unlisted(snapshot: Snapshot, pools: t.Sequence[Pool] | None, options: Options) -> tuple[Pool, ...]:
    """The pools of the cluster that the list does not name and the run after the upgrade keeps; all where no list was given."""
    if pools is not None and options.prune:
        return ()
    given = {pool.name for pool in pools or ()}
    return tuple(pool for pool in goals.recorded(snapshot) if pool.name not in given)


def _images(pools: t.Iterable[Pool], target: str, snapshot: Snapshot) -> t.Iterator[Image]:
    # Where KubeVirt's own images have another version as their tag, no tag shows for which KubeVirt an image is.
    stock = daemonsets.handler_image(snapshot.primary) if snapshot.primary is not None else None
    told = not health.has_own_tags(stock, snapshot.kubevirt)
    for pool in pools:
        images = {"virtHandlerImage": pool.virt_handler_image, "virtLauncherImage": pool.virt_launcher_image}
        for field, image in images.items():
            if image is not None:
                yield Image(
                    pool=pool.name,
                    field=field,
                    image=image,
                    skew=health.skew(image, target) if told else "unknown",
                    needed=health.retagged(image, target) if told else None,
                )


def _judged(
    images: t.Iterable[Image],
    current: str | None,
    target: str,
    pools: t.Sequence[Pool] | None,
    unlisted: t.Sequence[Pool],
) -> t.Iterator[Image]:
    """The images, with findings on those that are of another version than ``target``, or may be.

    :param pools: the list for the run after the upgrade, None where it was not given.
    :param unlisted: the pools of the cluster that it does not name.
    """
    accepting = {pool.name for pool in (*pools, *unlisted) if pool.allow_skew} if pools is not None else ()
    in_list = {pool.name for pool in pools or ()}
    release = health.release_of(target)
    for image in images:
        stays = release is not None and release == health.release_of(current) == health.release_of_image(image.image)
        judged = replace(
            image,
            accepted=image.skew == "different" and image.pool in accepting,
            release=health.dotted(release) if stays and release is not None else None,
            kept=pools is not None and image.pool not in in_list,
        )
        yield replace(judged, finding=_image_finding(judged, target, in_list=image.pool in in_list))


def _image_finding(image: Image, target: str, *, in_list: bool) -> Finding | None:
    """:param in_list: whether the image is of the list for the run after the upgrade."""
    what = f"Pool {image.pool}: {image.field} {image.image}"
    if image.skew == "unknown":
        return warning(
            "upgrade_image_unknown",
            f"{what}: the tag does not show its version; make sure that a build for KubeVirt {target} exists and "
            f"that the list for the next run of site names it.",
        )
    if image.skew == "same":
        return None
    same = f"both are of release {image.release}, so it may stay" if image.release else ""
    if image.accepted:
        more = f"; {same}" if same else ""
        return warning(
            "upgrade_image_skew",
            f"{what} is of another version than {target}, accepted by allowSkew of the pool{more}.",
        )
    if not in_list:
        keep = f" Or keep it: {same} with allowSkew: true in the pool." if same else ""
        keep += f" The list does not name this pool. {_KEPT}" if image.kept else ""
        return warning(
            "upgrade_image_skew",
            f"{what} is of another version than {target}; build {image.needed} before the upgrade, and put it into the "
            f"list for the run of site after it.{keep}",
        )
    keep = same or "if you know that the two work together"
    return error(
        "upgrade_image_skew",
        f"{what} is of another version than {target}: site would refuse it after the upgrade; build "
        f"{image.needed} and put it into the list, or set allowSkew: true in the pool ({keep}).",
    )


def _afterwards(snapshot: Snapshot, current: str | None) -> t.Iterator[Finding]:
    nodes = sum(node.owner in snapshot.pools for node in snapshot.nodes.values())
    if nodes:
        yield note(
            "upgrade_site_after",
            f"{names.HANDLER} stays at {current or 'its version'} and keeps working on {counted(nodes, 'node')} of "
            f"{counted(len(snapshot.pools), 'pool')}, until you run site after the upgrade; site replaces it node by node.",
        )
