# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Moving between operator and collection pools: one run in two parts.

The first part takes the pools of the former mode down, so that all nodes are the primary's; the second is an ordinary run. Each
part is planned by the code that plans it alone, the second on the cluster as the first will leave it. So the plan's digest is
that of the second part, whatever is left of the first.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, replace

from ..base import names
from ..base.findings import Finding, InputErrors, in_order, listed, warning
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject, Object, field
from ..kubevirt import daemonsets, exclusion, preflight
from ..observed.handlers import HandlerPod
from ..observed.snapshot import Snapshot
from ..planning import plan, removal
from ..planning.options import Options
from ..planning.plan import Plan
from . import edits, mode
from . import plan as operator_plan
from .builds import Build
from .edits import WantedParts
from .plan import OperatorPlan

_REMOVAL: t.Final = Options(remove_pools=removal.ALL, keep_history=True)

_CHECKED_LATER = preflight.PASSING | {"kubevirt_upgrading"}
"""Codes of errors about KubeVirt's state. The first part judges it now, and the second when it begins."""


@dataclass(frozen=True)
class Departure:
    """The first part of a move. ``plan``: how the pools of ``mode`` go. ``pools``: their names. ``after``: the cluster then."""

    mode: t.Literal["operator", "collection"]
    plan: Plan | OperatorPlan
    pools: tuple[str, ...]
    after: Snapshot

    def findings(self, later: t.Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings of the whole move.

        :param later: those of the second part.
        """
        kept = (finding for finding in later if finding.code not in _CHECKED_LATER)
        return in_order(dict.fromkeys((self._what_happens(), *self.plan.findings, *kept)))

    @property
    def summary(self) -> str:
        """The first part in one line, for the person who approves the plan."""
        return f"moves from {self.mode} pools: all nodes go back to the primary first"

    def _what_happens(self) -> Finding:
        to = "collection" if self.mode == "operator" else "operator"
        pools = f"takes the {self.mode} pools down ({listed(self.pools)})" if self.pools else "ends their removal"
        return warning(
            "moving",
            f"The run moves from {self.mode} to {to} pools in two parts: first it {pools} and gives all nodes back to the primary, "
            "then it brings the list. VMs keep running; those that start in between get KubeVirt's own launcher image.",
        )


def departure(build: Build | None, snapshot: Snapshot) -> Departure | None:
    """What has to go before a run can bring pools; None when nothing of the other mode is there.

    :param build: that by which the run works in operator mode; None for collection pools.
    """
    if build is None:
        used = mode.in_use(snapshot)
        # Where both are in use, plan.make refuses the run.
        return None if used is None or snapshot.pools else _from_operator(used, snapshot)
    return _from_collection(snapshot)


def _from_operator(build: Build, snapshot: Snapshot) -> Departure:
    planned = operator_plan.make_plan(build, snapshot, (), _REMOVAL)
    return Departure("operator", planned, tuple(pool.name for pool in planned.before), _without_operator(planned))


def _from_collection(snapshot: Snapshot) -> Departure | None:
    primary = snapshot.primary
    excluded = primary is not None and exclusion.has_exclusion(primary)
    if not (snapshot.pools or excluded or exclusion.exclusion_requested(snapshot.kubevirt)):
        return None
    planned = plan.make_plan(snapshot, (), _REMOVAL)
    return Departure("collection", planned, tuple(sorted(snapshot.pools)), _without_collection(planned))


# The cluster after the first part -----------------------------------------------------------------------------------


def _without_operator(planned: OperatorPlan) -> Snapshot:
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
        _without_daemonsets(snapshot, gone, primary),
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


def _without_collection(planned: Plan) -> Snapshot:
    """The cluster once our pools are deleted."""
    snapshot, edit = planned.snapshot, planned.exclusion
    primary = snapshot.primary
    if primary is not None:
        shown = copy.deepcopy(dict(primary))
        template = shown["spec"]["template"]
        template["spec"] = exclusion.without_exclusion_terms(template["spec"])
        primary = shown
    gone = {daemonset["metadata"]["name"] for daemonset in snapshot.pools.values()}
    return replace(
        _without_daemonsets(snapshot, gone, primary),
        kubevirt=exclusion.without_exclusion(snapshot.kubevirt, None).after,
        hyperconverged=edit.after if edit.kind == "HyperConverged" else snapshot.hyperconverged,
        nodes={name: replace(node.owned_by(names.PRIMARY), former_owner=None) for name, node in snapshot.nodes.items()},
    )


def _without_daemonsets(snapshot: Snapshot, gone: t.Collection[str], primary: KubeObject | None) -> Snapshot:
    """The cluster with the primary's handlers in place of those of these DaemonSets."""
    images = FrozenMap(daemonsets.images_of(primary)) if primary is not None else FrozenMap()

    def of_primary(pod: HandlerPod) -> HandlerPod:
        if pod.daemonset not in gone:
            return pod
        return replace(pod, daemonset=names.HANDLER, template=None, ready=True, terminating=False, images=images)

    return replace(
        snapshot,
        primary=primary,
        daemonsets={name: daemonset for name, daemonset in snapshot.daemonsets.items() if name not in gone},
        # Where virt-operator has started one already, there are two for a moment.
        handlers={node: tuple(map(of_primary, pods[:1])) for node, pods in snapshot.handlers.items()},
    )
