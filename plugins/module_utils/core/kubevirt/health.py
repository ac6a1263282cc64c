# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Whether KubeVirt is healthy enough to be changed: conditions, generations, upgrade and rollout.

``status.phase`` is useless here: it stays Deployed while KubeVirt is degraded, half synchronised or being upgraded. What
counts: the conditions, whether the operator has seen the object as it is now, and whether the observed and the target
deployment are the same. A deployment has an ID, which also changes with the same version: with other images, another product
version (HCO's), and feature gates that change what is deployed (KubeVirt).
"""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass

from ..base import findings, names
from ..base.findings import Finding, counted, listed
from ..base.objects import KubeObject, condition, field
from . import exclusion, hco

# Versions ---------------------------------------------------------------------------------------------------------

_VERSION = re.compile(r"v?(?P<number>\d+\.\d+\.\d+)(?P<pre>-(?:alpha|beta|rc)(?:\.?\d+)?)?(?:[-_+].*)?")
"""A version in a tag, perhaps with a build's suffix: ``v1.9.0``, ``v1.9.0-rc.1``, ``1.9.0_cuda12``."""
_BETWEEN_RELEASES = re.compile(r"-\d+-g[0-9a-f]{7,}")
"""What ``git describe`` adds: the number of commits since the tag, and the commit."""


def version_of(kubevirt: KubeObject) -> str | None:
    """The deployed version; None before the first deployment. During an upgrade it is still the old version."""
    return field(kubevirt, "status", "observedKubeVirtVersion") or None


def release_of(version: str | None) -> tuple[int, int] | None:
    """``(1, 9)`` for ``v1.9.0``; None for development builds and other versions without a release number."""
    release = _release(version or "")
    if release is None:
        return None
    major, minor, _patch = release.split(".", 2)
    return int(major), int(minor)


def dotted(release: tuple[int, int]) -> str:
    """``1.9`` for ``(1, 9)``."""
    return f"{release[0]}.{release[1]}"


def release_of_image(image: str) -> tuple[int, int] | None:
    """``(1, 9)`` for an image tagged ``v1.9.0-gpu``; None when its tag does not tell."""
    return release_of(_tag(image))


Skew = t.Literal["same", "different", "unknown"]


def skew(image: str, kubevirt_version: str | None, stock: str | None = None) -> Skew:
    """Whether an image is of KubeVirt's version, by its tag. A suffix (``-gpu``) does not matter.

    ``unknown`` when the tag does not tell (``latest``, digests), or when KubeVirt was not built from a release.

    :param stock: KubeVirt's own image in that place. Vendors tag images with their product's version, so an image with its tag is
        of KubeVirt's version, too.
    """
    tag, own = _tag(image), _tag(stock or "")
    ours = _release(tag)
    theirs = {release for release in (_release(kubevirt_version or ""), _release(own)) if release}
    with_own_tag = own and _release(own) is None and re.fullmatch(rf"{re.escape(own)}([-_+.].*)?", tag)
    if with_own_tag or ours in theirs:
        return "same"
    return "unknown" if ours is None or not theirs else "different"


def has_own_tags(stock: str | None, kubevirt: KubeObject) -> bool:
    """Whether KubeVirt's own image has a version as its tag that is not KubeVirt's, as those of some vendors have."""
    own, status = _release(_tag(stock or "")), kubevirt.get("status") or {}
    releases = {_release(status.get(f"{which}KubeVirtVersion") or "") for which in ("observed", "target")} - {None}
    return own is not None and bool(releases) and own not in releases


def retagged(image: str, kubevirt_version: str) -> str | None:
    """The image for another version: ``handler:v1.9.1-gpu`` for ``handler:v1.9.0-gpu``; None when its tag has none."""
    tag = _tag(image)
    ours, theirs = _release(tag), _release(kubevirt_version)
    if ours is None or theirs is None:
        return None
    return image.partition("@")[0][: -len(tag)] + tag.replace(ours, theirs, 1)


def tagged(image: str, version: str) -> str:
    """The image of the same name with a version as its tag, whatever its tag or digest was."""
    return f"{image.partition('@')[0].removesuffix(f':{_tag(image)}')}:{version}"


def rank(version: str) -> tuple[int | str, ...] | None:
    """A sort key for versions; a release comes after its candidates. None for versions that ``skew`` calls unknown."""
    release = _release(version)
    if release is None:
        return None
    number, _dash, pre = release.partition("-")
    kind = pre.rstrip("0123456789.")
    return (*map(int, number.split(".")), kind or "release", int(pre[len(kind) :].lstrip(".") or 0))


def build_of(version: str) -> str:
    """What a build adds to its release: ``-2`` in ``v1.9.0-2``; empty when the version has no release."""
    release = _release(version)
    return "" if release is None else version.removeprefix("v").removeprefix(release)


def same_version(version: str | None, other: str) -> bool:
    """Whether two names mean the same version, as ``v1.9.0`` and ``1.9.0`` do, but not two builds of it, ``v1.9.0-1`` and
    ``v1.9.0-2``."""
    known = rank(other)
    if version is None or known is None:
        return version == other
    builds = {build_of(each) for each in (version, other)} - {""}
    return rank(version) == known and len(builds) < 2


def last_part(image: str) -> str:
    """What admission never changes where it rewrites from where images come: the last element of the path, with the tag or digest."""
    return image.rpartition("/")[2]


def is_tagged_otherwise(image: str, other: str) -> bool:
    """Whether both images have a tag, and not the same one."""
    tags = {_tag(image), _tag(other)}
    return len(tags) > 1 and "" not in tags


def _tag(image: str) -> str:
    without_digest = image.partition("@")[0]
    # A colon before the last slash is a registry's port.
    return last_part(without_digest).partition(":")[2]


def _release(version: str) -> str | None:
    """The release in a version, without prefix and suffix: ``1.9.0`` or ``1.9.0-rc.1``; none in a build that
    follows a candidate, such as ``v1.9.0-beta.0-1264-g0123abc``: it may be newer than the release."""
    match = _VERSION.fullmatch(version)
    if match is None or match["number"] == "0.0.0":
        return None
    if match["pre"] and _BETWEEN_RELEASES.search(version):
        return None
    return match["number"] + (match["pre"] or "")


# What the KubeVirt object says --------------------------------------------------------------------------------------

EXISTING_DEPLOYMENT = "ExistingDeployment"
"""The reason of the condition Synchronized while virt-operator does nothing, since there is a second KubeVirt object."""
_UPDATING = "UpdateInProgress"
"""The reason of all conditions while one deployment replaces another: then Degraded is True, and nothing is wrong (KubeVirt)."""
_DEPLOYMENT = ("KubeVirtVersion", "KubeVirtRegistry", "DeploymentID")
"""What KubeVirt's status says of a deployment, for the observed and the target one."""


@dataclass(frozen=True)
class Health:
    """What a KubeVirt object reports about itself."""

    deployed: bool
    """Whether the operator has written conditions."""
    available: bool
    progressing: bool
    ignored: str | None
    """Why the operator does nothing about the object, or None; the other conditions stay as they were then."""
    degraded: str | None
    """KubeVirt's reason, or None."""
    unavailable: str | None
    """KubeVirt's reason, or None."""
    observed: bool
    """Whether the operator has seen the object as it is now."""
    upgrading: tuple[str, str] | None
    """``(from, to)`` while another version replaces the present one."""
    rolling_out: str | None
    """What differs in a deployment of the same version that replaces the present one, as a clause; None while there is none."""
    version: str | None

    @classmethod
    def from_kubevirt(cls, kubevirt: KubeObject) -> Health:
        available, degraded = condition(kubevirt, "Available"), condition(kubevirt, "Degraded")
        is_available = available.get("status") == "True"
        synchronized = condition(kubevirt, "Synchronized")
        return cls(
            deployed=bool(field(kubevirt, "status", "conditions")),
            available=is_available,
            progressing=condition(kubevirt, "Progressing").get("status") == "True",
            ignored=_reason(synchronized) if synchronized.get("reason") == EXISTING_DEPLOYMENT else None,
            degraded=_reason(degraded)
            if degraded.get("status") == "True" and degraded.get("reason") != _UPDATING
            else None,
            unavailable=None if is_available else _reason(available),
            observed=field(kubevirt, "status", "observedGeneration") == field(kubevirt, "metadata", "generation"),
            upgrading=_upgrade(kubevirt),
            rolling_out=_rollout(kubevirt),
            version=version_of(kubevirt),
        )

    @property
    def refused_by_guard(self) -> bool:
        """Whether it is degraded because the guard refuses a primary that would also run on pool nodes."""
        return names.EXCLUSION_GUARD in (self.degraded or "")

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self.problems()

    def problems(self) -> tuple[str, ...]:
        """Why KubeVirt should not be changed now, one clause for each reason."""
        if not self.deployed:
            return ("it is not deployed yet",)
        problems = []
        if self.ignored is not None:
            problems.append(f"its operator ignores it ({self.ignored})")
        if self.upgrading:
            problems.append(f"an upgrade from {self.upgrading[0]} to {self.upgrading[1]} is under way")
        if self.rolling_out:
            problems.append(
                f"its operator replaces {self.version} by another deployment of the same version ({self.rolling_out})"
            )
        if self.degraded is not None:
            problems.append(f"it is degraded ({self.degraded})")
        if not self.observed:
            problems.append("its operator has not yet acted on the latest change of the KubeVirt object")
        if self.unavailable is not None:
            problems.append(f"it is not available ({self.unavailable})")
        elif self.progressing:
            problems.append("it is still progressing")
        return tuple(problems)


def _reason(stated: KubeObject) -> str:
    """The reason in a condition, which may be missing."""
    if not stated:
        return "no condition reports it"
    return stated.get("message") or stated.get("reason") or "no reason given"


def _deployments(kubevirt: KubeObject) -> tuple[list[str], list[str]] | None:
    """The observed and the target deployment while they differ. A first install has no observed deployment yet."""
    status = kubevirt.get("status") or {}
    observed, target = ([str(status.get(f"{which}{part}")) for part in _DEPLOYMENT] for which in ("observed", "target"))
    known = status.get("observedKubeVirtVersion") and status.get("targetKubeVirtVersion")
    return (observed, target) if known and observed != target else None


def _upgrade(kubevirt: KubeObject) -> tuple[str, str] | None:
    deployments = _deployments(kubevirt)
    if deployments is None or same_version(deployments[0][0], deployments[1][0]):
        return None
    return deployments[0][0], deployments[1][0]


def is_upgrading_to(kubevirt: KubeObject, version: str) -> bool:
    """Whether this version is replacing the present one."""
    upgrading = _upgrade(kubevirt)
    return upgrading is not None and same_version(upgrading[1], version)


def _rollout(kubevirt: KubeObject) -> str | None:
    deployments = _deployments(kubevirt)
    if deployments is None or not same_version(deployments[0][0], deployments[1][0]):
        return None
    (_same, registry, _id), (_version, target_registry, target_id) = deployments
    changed = _changed_settings(kubevirt)
    if changed:
        return f"changed: {listed(changed)}"
    if registry != target_registry:
        return f"from registry {target_registry} instead of {registry}"
    return f"deployment {target_id[:8]}"


def _changed_settings(kubevirt: KubeObject) -> list[str]:
    """The settings in which the two deployments differ, as virt-operator names them; empty where it does not say."""
    observed, target = (
        _settings(field(kubevirt, "status", f"{which}DeploymentConfig")) for which in ("observed", "target")
    )
    if not observed or not target:
        return []
    return sorted(key for key in observed.keys() | target.keys() if observed.get(key) != target.get(key))


def _settings(config: t.Any) -> dict[str, t.Any]:
    """What is in a deployment's configuration, by name. virt-operator writes it as JSON, with two maps in it."""
    try:
        parsed = json.loads(config or "{}")
    except (TypeError, ValueError):
        return {}
    if not isinstance(parsed, dict):
        return {}
    maps = [parsed.pop(key, None) or {} for key in ("additionalProperties", "passthroughEnvVars")]
    parsed.pop("id", None)
    return {key: value for each in (parsed, *maps) if isinstance(each, dict) for key, value in each.items()}


def deployed_launcher_image(kubevirt: KubeObject, image: str) -> str | None:
    """The launcher image of the version that is deployed while another one replaces it; None when nothing tells it.

    :param image: the launcher image of that other version.
    """
    status = kubevirt.get("status") or {}
    named = _settings(status.get("observedDeploymentConfig")).get("virtLauncherImage")
    if named:
        return str(named)
    if has_own_tags(image, kubevirt):
        return None
    former = retagged(image, str(version_of(kubevirt)))
    registries = [f"{status.get(f'{which}KubeVirtRegistry')}/" for which in ("target", "observed")]
    if former is None or not former.startswith(registries[0]):
        return former
    return registries[1] + former.removeprefix(registries[0])


# The primary's rollout ------------------------------------------------------------------------------------------------


def primary_rolled_out(daemonset: KubeObject, on_unready_nodes: int = 0) -> bool:
    """Whether every node of the DaemonSet has a Ready pod of the present template.

    ``on_unready_nodes`` is the number of its pods on nodes that are not Ready; they are ignored.
    """
    status = daemonset.get("status") or {}
    desired = status.get("desiredNumberScheduled", 0)
    if status.get("observedGeneration") != field(daemonset, "metadata", "generation") or desired <= 0:
        return False
    wanted = desired - on_unready_nodes
    return bool(status.get("updatedNumberScheduled", 0) >= wanted and status.get("numberReady", 0) >= wanted)


def handlers_missing(daemonset: KubeObject) -> int:
    """How many pods of the DaemonSet are not Ready, or not there, by its status."""
    status = daemonset.get("status") or {}
    return int(status.get("desiredNumberScheduled", 0)) - int(status.get("numberReady", 0))


def primary_is_new(kubevirt: KubeObject, primary: KubeObject, on_unready_nodes: int = 0) -> bool:
    """Whether the primary is the one of the target deployment, and rolled out: virt-operator will not change it any more."""
    annotations = primary["metadata"].get("annotations") or {}
    written_for = [
        annotations.get(key)
        for key in (names.VERSION_ANNOTATION, names.DEPLOYMENT_ANNOTATION, names.GENERATION_ANNOTATION)
    ]
    status = kubevirt.get("status") or {}
    target = [
        status.get("targetKubeVirtVersion"),
        status.get("targetDeploymentID"),
        str(field(kubevirt, "metadata", "generation")),
    ]
    return written_for == target and primary_rolled_out(primary, on_unready_nodes)


def unsettled_by_us(kubevirt: KubeObject, primary: KubeObject | None, on_unready_nodes: int = 0) -> bool:
    """Whether the exclusion alone may explain why KubeVirt has not settled, as after an interrupted run.

    That is so while the KubeVirt object and the live primary disagree on the exclusion, and while the primary rolls the
    exclusion out. A primary that rolls out its removal looks like any other rollout.
    """
    if primary is None:
        return False
    if Health.from_kubevirt(kubevirt).refused_by_guard:
        return True  # virt-operator reports it up to its next sync, also when a run has restored the exclusion or deleted the guard
    requested = exclusion.exclusion_requested(kubevirt)
    if requested != exclusion.has_exclusion(primary):
        return True
    return requested and not primary_rolled_out(primary, on_unready_nodes)


def waits_only_for_unready_nodes(
    health: Health,
    handlers_not_ready: t.Mapping[str, str],
    unready_nodes: t.Collection[str],
    *,
    primary_new: bool = False,
) -> bool:
    """Whether KubeVirt has not settled only because of primary handlers on nodes that are not Ready.

    ``handlers_not_ready`` are the primary's pods that are not Ready, with their nodes. KubeVirt is available, and ends a rollout,
    only when all of them are Ready, but some of thousands of nodes are always down.

    :param primary_new: whether the primary is the one of the deployment that is rolled out, see ``primary_is_new``.
    """
    done = primary_new if health.rolling_out else health.observed
    fit = health.deployed and done and not health.upgrading and health.degraded is None
    return fit and bool(handlers_not_ready) and all(node in unready_nodes for node in handlers_not_ready.values())


# Preflight --------------------------------------------------------------------------------------------------------


def upgrade_under_way(kubevirt: KubeObject) -> Finding | None:
    """The error that forbids a change while KubeVirt is being upgraded; None when it is not."""
    upgrading = Health.from_kubevirt(kubevirt).upgrading
    if upgrading is None:
        return None
    old, new = upgrading
    message = f"{hco.title(kubevirt)} is being upgraded from {old} to {new}; wait until that is done, then run again."
    return findings.error("kubevirt_upgrading", message)


def health_findings(
    kubevirt: KubeObject | None,
    primary: KubeObject | None,
    unready_nodes: t.Collection[str] = (),
    primary_handlers_not_ready: t.Mapping[str, str] | None = None,
    broken_handlers: int = 0,
) -> list[Finding]:
    """What forbids a change now (errors), and what a run waits for or tolerates (notes and warnings).

    ``primary_handlers_not_ready`` maps the primary's pods that are not Ready to their nodes. ``broken_handlers`` is the number of
    those on nodes that are Ready which do not start: no wait helps them.
    """
    if kubevirt is None:
        return [
            findings.error("kubevirt_not_found", "There is no KubeVirt object in this cluster; install KubeVirt first.")
        ]
    where = hco.title(kubevirt)
    if field(kubevirt, "metadata", "deletionTimestamp"):
        return [findings.error("kubevirt_deleted", f"{where} is being deleted, so there is nothing to change.")]
    health = Health.from_kubevirt(kubevirt)
    if not health.deployed or primary is None:
        what = "is not deployed yet" if not health.deployed else f"has no DaemonSet {names.HANDLER} yet"
        return [findings.error("kubevirt_not_deployed", f"{where} {what}; wait until it is available, then run again.")]
    upgrade = upgrade_under_way(kubevirt)
    if upgrade is not None:
        return [upgrade]
    if health.ignored is not None:
        message = (
            f"{where} is ignored by its operator: {health.ignored}. Delete the other KubeVirt object of the cluster, "
            "then run again."
        )
        return [findings.error("kubevirt_ignored", message)]
    return _unsettled_findings(
        where, kubevirt, primary, health, set(unready_nodes), primary_handlers_not_ready or {}, broken_handlers
    )


def _unsettled_findings(
    where: str,
    kubevirt: KubeObject,
    primary: KubeObject,
    health: Health,
    unready_nodes: t.Collection[str],
    not_ready: t.Mapping[str, str],
    broken: int,
) -> list[Finding]:
    if health.settled:
        return []
    on_unready_nodes = sum(node in unready_nodes for node in not_ready.values())
    if unsettled_by_us(kubevirt, primary, on_unready_nodes + broken):
        message = f"{where} is still rolling out this collection's own change: {'; '.join(health.problems())}."
        return [findings.note("own_change_settling", message)]
    new = primary_is_new(kubevirt, primary, on_unready_nodes)
    if waits_only_for_unready_nodes(health, not_ready, unready_nodes, primary_new=new):
        nodes = set(not_ready.values())
        what = "goes on rolling out another deployment of its version" if health.rolling_out else "is not available"
        message = (
            f"{where} {what} because {names.HANDLER} is not Ready on "
            f"{counted(len(nodes), 'node that is', 'nodes that are')} not Ready either ({listed(nodes)}); the run goes on without them."
        )
        return [findings.warning("kubevirt_waits_for_unready_nodes", message)]
    return [findings.error(*_refusal(where, health))]


def hco_findings(hyperconverged: KubeObject | None) -> list[Finding]:
    """An error while HCO does not reconcile, for example because of a bad annotation: our change would never arrive."""
    reconciled = condition(hyperconverged, "ReconcileComplete")
    if hyperconverged is None or reconciled.get("status") != "False":
        return []
    message = f"{hco.title(hyperconverged)} does not reconcile: {_reason(reconciled)}; repair that first."
    return [findings.error("hco_not_reconciling", message)]


def _refusal(where: str, health: Health) -> tuple[str, str]:
    """Code and message of the worst problem; the others follow from it."""
    if health.degraded is not None:
        return "kubevirt_degraded", f"{where} is degraded: {health.degraded}; repair that first."
    if health.rolling_out is not None:
        message = (
            f"{where} is not settled: virt-operator replaces {health.version} by another deployment of the same version "
            f"({health.rolling_out}); wait until that is done, then run again."
        )
        return "kubevirt_rolling_out", message
    if not health.observed:
        message = f"{where} was changed, and its operator has not acted on that yet; wait until it has, then run again."
        return "kubevirt_settling", message
    if health.unavailable is not None:
        message = f"{where} is not available: {health.unavailable}; wait until it is, or repair the cause."
        return "kubevirt_not_available", message
    return "kubevirt_settling", f"{where} is still progressing; wait until it has settled, then run again."
