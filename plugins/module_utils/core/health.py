# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is KubeVirt fit to be changed: conditions, generations, upgrade, rollout.

``status.phase`` says nothing: it stays Deployed while KubeVirt is degraded, half synchronised or being upgraded. What
counts is the conditions, whether the operator has seen the object as it is now, and whether the observed and the target
deployment agree.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import exclusion, findings, hco, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import ReadOnly, field

# Versions ---------------------------------------------------------------------------------------------------------

_VERSION = re.compile(r"v?(?P<number>\d+\.\d+\.\d+)(?P<pre>-(?:alpha|beta|rc)(?:\.?\d+)?)?(?:[-_+].*)?")
"""A version as tags spell it, with a build's suffix behind it: ``v1.9.0``, ``v1.9.0-rc.1``, ``1.9.0_cuda12``."""


def version_of(kubevirt: ReadOnly) -> str | None:
    """The version that is deployed; None while there is none. During an upgrade it is still the old one."""
    return field(kubevirt, "status", "observedKubeVirtVersion") or None


def release_of(version: str | None) -> tuple[int, int] | None:
    """``(1, 9)`` for ``v1.9.0``; None for development builds and whatever else does not tell."""
    release = _release(version or "")
    if release is None:
        return None
    major, minor, _patch = release.split(".", 2)
    return int(major), int(minor)


def skew(image: str, kubevirt_version: str | None) -> t.Literal["same", "different", "unknown"]:
    """Is an image of KubeVirt's version, as far as its tag tells? A suffix (``-gpu``) does not matter.

    Unknown without a tag (``latest`` and digests say nothing) and for a KubeVirt that was not built from a release.
    """
    ours, theirs = _release(_tag(image)), _release(kubevirt_version or "")
    if ours is None or theirs is None:
        return "unknown"
    return "same" if ours == theirs else "different"


def retagged(image: str, kubevirt_version: str) -> str | None:
    """The image of the same name for another version: ``handler:v1.9.1-gpu`` for ``handler:v1.9.0-gpu``; None where the tag
    does not tell."""
    tag = _tag(image)
    ours, theirs = _release(tag), _release(kubevirt_version)
    if ours is None or theirs is None:
        return None
    return image.partition("@")[0][: -len(tag)] + tag.replace(ours, theirs, 1)


def rank(version: str) -> tuple[int | str, ...] | None:
    """What orders versions, a release after its own candidates; None for what ``skew`` calls unknown."""
    release = _release(version)
    if release is None:
        return None
    number, _dash, pre = release.partition("-")
    kind = pre.rstrip("0123456789.")
    return (*map(int, number.split(".")), kind or "release", int(pre[len(kind) :].lstrip(".") or 0))


def _tag(image: str) -> str:
    without_digest = image.partition("@")[0]
    # A colon before the last slash is a registry's port.
    return without_digest.rpartition("/")[2].partition(":")[2]


def _release(version: str) -> str | None:
    """``1.9.0`` or ``1.9.0-rc.1``, whatever is around it."""
    match = _VERSION.fullmatch(version)
    if match is None or match["number"] == "0.0.0":
        return None
    return match["number"] + (match["pre"] or "")


# What the KubeVirt object says --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Health:
    """A KubeVirt object's own account of itself. ``degraded`` and ``unavailable`` are KubeVirt's reasons, or None.

    ``deployed``: its operator has ever written conditions. ``observed``: and for the object as it is now.
    ``upgrading`` is ``(from, to)`` while the deployment is replaced by another, be it of the same version.
    """

    deployed: bool
    available: bool
    progressing: bool
    degraded: str | None
    unavailable: str | None
    observed: bool
    upgrading: tuple[str, str] | None
    version: str | None

    @classmethod
    def of(cls, kubevirt: ReadOnly) -> Health:
        conditions = {item.get("type"): item for item in field(kubevirt, "status", "conditions") or []}
        available = _is(conditions.get("Available"), "True")
        return cls(
            deployed=bool(conditions),
            available=available,
            progressing=_is(conditions.get("Progressing"), "True"),
            degraded=_reason(conditions.get("Degraded")) if _is(conditions.get("Degraded"), "True") else None,
            unavailable=None if available else _reason(conditions.get("Available")),
            observed=field(kubevirt, "status", "observedGeneration") == field(kubevirt, "metadata", "generation"),
            upgrading=_upgrade(kubevirt),
            version=version_of(kubevirt),
        )

    @property
    def settled(self) -> bool:
        """Nothing to wait for."""
        return not self.problems()

    def problems(self) -> tuple[str, ...]:
        """Why KubeVirt should not be changed now, one clause each; nothing when it is fit."""
        if not self.deployed:
            return ("it is not deployed yet",)
        found = []
        if self.upgrading:
            found.append(f"an upgrade from {self.upgrading[0]} to {self.upgrading[1]} is under way")
        if self.degraded is not None:
            found.append(f"it is degraded ({self.degraded})")
        if not self.observed:
            found.append("its operator has not yet acted on the latest change of the KubeVirt object")
        if self.unavailable is not None:
            found.append(f"it is not available ({self.unavailable})")
        elif self.progressing:
            found.append("it is still progressing")
        return tuple(found)


def _is(condition: ReadOnly | None, status: str) -> bool:
    return condition is not None and condition.get("status") == status


def _reason(condition: ReadOnly | None) -> str:
    if condition is None:
        return "no condition says so"
    return condition.get("message") or condition.get("reason") or "no reason given"


def _upgrade(kubevirt: ReadOnly) -> tuple[str, str] | None:
    """Observed and target deployment, when they differ; a first install has observed none yet."""
    status = kubevirt.get("status") or {}
    observed, target = (
        [status.get(f"{which}{part}") for part in ("KubeVirtVersion", "KubeVirtRegistry", "DeploymentID")]
        for which in ("observed", "target")
    )
    if not observed[0] or not target[0] or observed == target:
        return None
    if observed[0] != target[0]:
        return observed[0], target[0]
    # The same version in another registry, or deployed with other settings: it is rolled out in the same way.
    return f"{observed[0]} of {observed[1]}", f"{target[0]} of {target[1]} (deployment {str(target[2])[:8]})"


# The primary's rollout ------------------------------------------------------------------------------------------------


def primary_rolled_out(daemonset: ReadOnly, on_unready_nodes: int = 0) -> bool:
    """Has every node that the DaemonSet wants a Ready pod of its present template?

    ``on_unready_nodes`` of its pods are on nodes that are not Ready, and not waited for.
    """
    status = daemonset.get("status") or {}
    desired = status.get("desiredNumberScheduled", 0)
    if status.get("observedGeneration") != field(daemonset, "metadata", "generation") or desired <= 0:
        return False
    wanted = desired - on_unready_nodes
    return bool(status.get("updatedNumberScheduled", 0) >= wanted and status.get("numberReady", 0) >= wanted)


def explained_by_us(kubevirt: ReadOnly, primary: ReadOnly | None, on_unready_nodes: int = 0) -> bool:
    """May KubeVirt be unsettled because of the exclusion alone, as after an interrupted run?

    So it may while the KubeVirt object and the live primary disagree on the exclusion, and while a primary that got it
    is still rolling it out. A primary that lost it and is still rolling looks like any other rollout.
    """
    if primary is None:
        return False
    requested = exclusion.exclusion_requested(kubevirt)
    if requested != exclusion.exclusion_in(primary):
        return True
    return requested and not primary_rolled_out(primary, on_unready_nodes)


def waits_only_for(health: Health, handlers_not_ready: t.Mapping[str, str], unready_nodes: t.Collection[str]) -> bool:
    """Is KubeVirt unavailable only because primary handlers sit on nodes that are not Ready?

    ``handlers_not_ready`` are the primary's pods that are not Ready, with their nodes. KubeVirt calls itself available
    only when each of them is, and of thousands of nodes some are always dead.
    """
    settled = health.deployed and health.observed and not health.upgrading and health.degraded is None
    return settled and bool(handlers_not_ready) and all(node in unready_nodes for node in handlers_not_ready.values())


# Preflight --------------------------------------------------------------------------------------------------------


def health_findings(
    kubevirt: ReadOnly | None,
    primary: ReadOnly | None,
    unready_nodes: t.Collection[str] = (),
    primary_handlers_not_ready: t.Mapping[str, str] | None = None,
) -> list[Finding]:
    """What forbids a change now (errors), and what a run has to wait for or live with (notes and warnings).

    ``primary_handlers_not_ready`` maps the primary's pods that are not Ready to their nodes.
    """
    if kubevirt is None:
        return [
            findings.error("kubevirt_not_found", "There is no KubeVirt object in this cluster; install KubeVirt first.")
        ]
    where = hco.title(kubevirt)
    if field(kubevirt, "metadata", "deletionTimestamp"):
        return [findings.error("kubevirt_deleted", f"{where} is being deleted; there is nothing left to change.")]
    health = Health.of(kubevirt)
    if not health.deployed or primary is None:
        what = "is not deployed yet" if not health.deployed else f"has no DaemonSet {names.HANDLER} yet"
        return [findings.error("kubevirt_not_deployed", f"{where} {what}; wait until it is available, then run again.")]
    if health.upgrading:
        old, new = health.upgrading
        message = f"{where} is being upgraded from {old} to {new}; wait until that is done, then run again."
        return [findings.error("kubevirt_upgrading", message)]
    return _unsettled_findings(where, kubevirt, primary, health, set(unready_nodes), primary_handlers_not_ready or {})


def _unsettled_findings(
    where: str,
    kubevirt: ReadOnly,
    primary: ReadOnly,
    health: Health,
    unready_nodes: t.Collection[str],
    not_ready: t.Mapping[str, str],
) -> list[Finding]:
    if health.settled:
        return []
    on_unready_nodes = sum(node in unready_nodes for node in not_ready.values())
    if explained_by_us(kubevirt, primary, on_unready_nodes):
        message = f"{where} is still taking in this collection's own change: {'; '.join(health.problems())}."
        return [findings.note("own_change_settling", message)]
    if waits_only_for(health, not_ready, unready_nodes):
        nodes = set(not_ready.values())
        message = (
            f"{where} is not available because {names.HANDLER} is not Ready on {len(nodes)} node(s) that are not Ready "
            f"themselves ({listed(nodes)}); the run goes on without them."
        )
        return [findings.warning("kubevirt_waits_for_unready_nodes", message)]
    return [findings.error(*_refusal(where, health))]


def hco_findings(hyperconverged: ReadOnly | None) -> list[Finding]:
    """An error while HCO does not reconcile, as it does not with a bad annotation: our change would never arrive."""
    conditions = {item.get("type"): item for item in field(hyperconverged, "status", "conditions") or []}
    condition = conditions.get("ReconcileComplete")
    if hyperconverged is None or not _is(condition, "False"):
        return []
    message = f"{hco.title(hyperconverged)} does not reconcile: {_reason(condition)}; repair that first."
    return [findings.error("hco_not_reconciling", message)]


def _refusal(where: str, health: Health) -> tuple[str, str]:
    """Code and message for what is worst: the rest follows from it."""
    if health.degraded is not None:
        return "kubevirt_degraded", f"{where} is degraded: {health.degraded}; repair that first."
    if not health.observed:
        message = f"{where} was changed and its operator has not acted on that yet; wait until it has, then run again."
        return "kubevirt_settling", message
    if health.unavailable is not None:
        message = f"{where} is not available: {health.unavailable}; wait until it is, or repair what keeps it from it."
        return "kubevirt_not_available", message
    return "kubevirt_settling", f"{where} is still progressing; wait until it has settled, then run again."
