# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What is prepared before an upgrade of KubeVirt, so that VMs of pools start while both versions start VMs."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..admission import launcher_backends, launcher_rollout, policy_objects
from ..admission.launcher_rollout import LauncherPolicyRollout
from ..base import names
from ..base.objects import field
from ..kubevirt import hco, health, launcher_arguments, preflight
from ..observed.snapshot import Admission, Snapshot
from ..pools.model import Pool
from . import plan
from .options import Options
from .plan import Plan

BY_OPERATOR = (
    "In operator mode virt-operator gives VMs their images, and has one image for each pool: nothing can be prepared. Before the upgrade, "
    f"{launcher_arguments.WITH_ONE_IMAGE}. After it, run site with the list for the new version."
)


@dataclass(frozen=True)
class Preparation:
    """The launcher policy for both versions, and the pools for the next one."""

    rollout: LauncherPolicyRollout
    plan: Plan
    """The plan of the run of ``site`` after the upgrade, with the images to pull."""
    under_way: bool
    """Whether the upgrade has begun, and was prepared before: then nothing is to be done but wait."""
    unfinished: str | None
    """Why what is prepared must stay although KubeVirt's status names the version of the list; None when it need not."""


def prepare(snapshot: Snapshot, pools: t.Sequence[Pool], options: Options, version: str) -> Preparation:
    """What to do before an upgrade to ``version``, by the pool list for it.

    When KubeVirt has that version already, the preparation for another one is taken back.
    """
    admission = snapshot.admission or Admission()
    outdated = "correct" if policy_objects.live_objects(admission, names.OUTDATED_POLICY) else options.outdated
    done = health.same_version(health.version_of(snapshot.kubevirt), version)
    images = {pool.name: pool.virt_launcher_image for pool in pools}
    rollout = launcher_rollout.prepare_upgrade(snapshot, images, None if done else version, outdated)
    recorded = launcher_backends.recorded_table(admission)
    before = recorded.upcoming if recorded is not None else None
    under_way = health.Health.from_kubevirt(snapshot.kubevirt).upgrading is not None
    return Preparation(
        rollout=rollout,
        plan=plan.make_plan(snapshot, pools, options),
        under_way=under_way and before is not None and health.same_version(before.version, version),
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
