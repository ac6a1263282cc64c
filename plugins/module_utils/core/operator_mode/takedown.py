# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The cluster once virt-operator has taken its pools down."""

from __future__ import annotations

import copy
from dataclasses import replace

from ..base.findings import InputErrors
from ..base.objects import KubeObject, Object, field
from ..observed.snapshot import Snapshot
from ..planning.departure import without_daemonsets
from . import edits
from .edits import WantedParts
from .plan import OperatorPlan


def without_pools(planned: OperatorPlan) -> Snapshot:
    """The cluster once virt-operator has taken its pools down."""
    build, snapshot, depth = planned.build, planned.snapshot, planned.record.gate_depth
    entries = () if build.field is not None else None
    wanted = WantedParts(entries, None if depth is None else False, depth or 0, touch=False)
    kubevirt, hyperconverged = edits.edit(build, snapshot.kubevirt, None, wanted).after, snapshot.hyperconverged
    if hyperconverged is not None:
        try:
            hyperconverged = edits.edit(build, snapshot.kubevirt, hyperconverged, wanted).after
        except InputErrors:
            # The plan of the first part has that as an error.
            hyperconverged = snapshot.hyperconverged
    gone = {name for name, daemonset in snapshot.daemonsets.items() if build.pool_of(daemonset) is not None}
    primary = snapshot.primary and _placed_by_kubevirt(snapshot.primary, kubevirt)
    return replace(
        without_daemonsets(snapshot, gone, primary),
        kubevirt=kubevirt,
        hyperconverged=hyperconverged,
        operator_api=replace(snapshot.operator_api, worker_pools=()),
    )


def _placed_by_kubevirt(primary: KubeObject, kubevirt: KubeObject) -> Object:
    """The primary with no other affinity than that of the user's nodePlacement: KubeVirt gives it none of its own."""
    shown = copy.deepcopy(dict(primary))
    spec = shown["spec"]["template"]["spec"]
    spec.pop("affinity", None)
    affinity = field(kubevirt, "spec", "workloads", "nodePlacement", "affinity")
    if affinity:
        spec["affinity"] = copy.deepcopy(affinity)
    return shown
