# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What is prepared before an upgrade of KubeVirt, so that VMs of pools start while both versions start VMs."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..admission import launcher_backends, launcher_rollout, policy_objects
from ..admission.launcher_rollout import LauncherPolicyRollout
from ..base import names
from ..base.findings import Finding, counted, in_order
from ..base.objects import field, short_digest
from ..kubevirt import hco, health, launcher_arguments, preflight
from ..kubevirt.feature_gates import Gates
from ..observed.snapshot import Admission, Snapshot
from ..pools.model import Pool
from . import approval, plan
from .options import Options
from .plan import Digest, Plan

BY_OPERATOR = (
    "In operator mode virt-operator gives VMs their images, and has one image for each pool: nothing can be prepared. Before the upgrade, "
    f"{launcher_arguments.WITH_ONE_IMAGE}. After it, run site with the list for the new version."
)

APPROVED: t.Final = "the version, the pools and their images, or virtpools_launcher_backend and virtpools_outdated"
"""What the digest's part for objects covers, in words. The objects themselves follow from KubeVirt's, and the upgrade changes these."""

_NO_GATES: t.Final = Gates()
_OF_TODAY = preflight.SKEW | {"hypervisor_unsupported", "launcher_refuses_arguments"}
"""Findings on how the list for the next version fits the present one."""


@dataclass(frozen=True)
class Preparation:
    """The launcher policy for both versions, and the pools for the next one."""

    version: str
    rollout: LauncherPolicyRollout
    plan: Plan
    """The plan of the run of ``site`` after the upgrade, with the images to pull."""
    under_way: bool
    """Whether the upgrade has begun, and was prepared before for all pools: then nothing is to be done but wait."""
    begun: bool
    """Whether the upgrade has begun, prepared or not."""
    unfinished: str | None
    """Why what is prepared must stay although KubeVirt's status names the version of the list; None when it need not."""
    done: bool
    """Whether KubeVirt has the version: then the run that follows reports on the list itself."""
    digest: Digest
    """What an approval covers. It stays the same over the whole upgrade."""
    findings: tuple[Finding, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """What is to be done now, one line each."""
        return () if self.under_way else self.rollout.changes(0)

    @property
    def pending(self) -> bool:
        """Whether anything is to be done, now or after the upgrade."""
        return bool(self.changes) or not self.done or self.plan.pending

    @property
    def sizes(self) -> dict[str, int]:
        """The number of nodes that change after the upgrade, and in how many waves and batches."""
        planned = self.plan
        return {"nodes": len(planned.moves), "waves": len(planned.waves), "batches": len(planned.batches)}

    @property
    def summary(self) -> str:
        """What is approved, in one line."""
        after = approval.moves_in_words(self.plan) if self.plan.moves else "no node changes"
        if self.done:
            parts = [f"KubeVirt {self.version} is deployed already; now {after}"]
        else:
            now = "the launcher policy also serves" if self.changes else "the launcher policy already serves"
            parts = [f"before the upgrade {now} KubeVirt {self.version}; after it {after}"]
        warnings = sum(finding.severity == "warning" for finding in self.findings)
        return "; ".join([*parts, *([counted(warnings, "warning")] if warnings else [])])

    def with_findings(self, findings: t.Iterable[Finding]) -> Preparation:
        """The same with what else stands in the way. Once the upgrade has begun, nothing does."""
        known = {finding.message for finding in self.findings}
        more = () if self.under_way else (finding for finding in findings if finding.message not in known)
        return replace(self, findings=in_order((*self.findings, *more)))


def prepare(
    snapshot: Snapshot, pools: t.Sequence[Pool], options: Options, version: str, gates: Gates = _NO_GATES
) -> Preparation:
    """What to do before an upgrade to ``version``, by the pool list for it.

    When KubeVirt has that version already, the preparation for another one is taken back.

    :param gates: the feature gates that the run after the upgrade turns on and off.
    """
    admission = snapshot.admission or Admission()
    outdated = "correct" if policy_objects.live_objects(admission, names.OUTDATED_POLICY) else options.outdated
    done = health.same_version(health.version_of(snapshot.kubevirt), version)
    images = {pool.name: pool.virt_launcher_image for pool in pools}
    rollout = launcher_rollout.prepare_upgrade(snapshot, images, None if done else version, outdated)
    recorded = launcher_backends.recorded_table(admission)
    before = recorded.upcoming if recorded is not None else None
    upgrading = health.Health.from_kubevirt(snapshot.kubevirt).upgrading
    begun = health.is_upgrading_to(snapshot.kubevirt, version)
    for_all = not begun or rollout.stages[0].upcoming == before  # else a pool came after the preparation
    prepared = before is not None and health.same_version(before.version, version) and for_all
    under_way = upgrading is not None and prepared
    planned = plan.make_plan(snapshot, pools, options)
    # What would keep the pools from following the upgrade must be known before it.
    refused = () if done or begun else (finding for finding in planned.errors if finding.code not in _OF_TODAY)
    return Preparation(
        version=version,
        rollout=rollout,
        plan=planned,
        under_way=under_way,
        begun=begun,
        done=done,
        digest=_digest(pools, options, version, planned, gates),
        findings=() if under_way else in_order({f.message: f for f in (*rollout.findings(), *refused)}.values()),
        unfinished=_unfinished(snapshot) if done and before is not None else None,
    )


def _unfinished(snapshot: Snapshot) -> str | None:
    """Why either version of KubeVirt may still start VMs. When an upgrade is taken back, virt-operator first changes the status, and
    replaces its components then."""
    title, wanted = hco.title(snapshot.kubevirt), field(snapshot.kubevirt, "status", "targetKubeVirtVersion")
    annotations = snapshot.primary["metadata"].get("annotations") or {} if snapshot.primary is not None else {}
    found = annotations.get(names.VERSION_ANNOTATION, wanted)
    if found != wanted:
        why = f"{names.HANDLER} is still of {found}"
    elif preflight.own_change_settling(snapshot) and not health.Health.from_kubevirt(snapshot.kubevirt).settled:
        why = f"{names.HANDLER} is being replaced"
    else:
        return None
    return (
        f"{title} is at {wanted} by its status, but {why}, so either version may start VMs now; wait until virt-operator has "
        "finished, then run again."
    )


def _digest(pools: t.Sequence[Pool], options: Options, version: str, planned: Plan, gates: Gates) -> Digest:
    """The digest of an upgrade's goal. What follows from KubeVirt's own objects is not part of it, since the upgrade changes them."""
    objects = {
        "version": health.rank(version) or version,
        "pools": [pool.to_object() for pool in pools],
        "launcher": [options.launcher_backend, options.outdated],
    }
    digest = replace(planned.digest, objects=short_digest(objects))
    return digest.with_options("feature_gates", gates.to_object()) if gates else digest
