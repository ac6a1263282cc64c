# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The first part of a move between the modes: the pools of the former mode go."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base import names
from ..base.findings import Finding, in_order, listed, warning
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject
from ..kubevirt import daemonsets, preflight
from ..observed.handlers import HandlerPod
from ..observed.snapshot import Snapshot
from ..pools.model import Pool
from . import removal
from .options import Options
from .proposal import Proposal
from .request import PlanRequest

_CHECKED_LATER = preflight.PASSING | {"kubevirt_upgrading"}
"""Codes of errors about KubeVirt's state. The first part judges it now, and the second when it begins."""


def removal_request(request: PlanRequest) -> PlanRequest:
    """What the plan of a departure is asked for.

    :param request: what the move is asked for.
    """
    options = Options(remove_pools=removal.ALL, keep_history=True, remove_vms=request.options.remove_vms)
    return PlanRequest(options=options, asks_about_vms=request.asks_about_vms)


@dataclass(frozen=True)
class Departure:
    """The first part of a move."""

    proposal: Proposal
    """How the pools go."""
    pools: tuple[str, ...]
    """Their names."""
    recorded: tuple[Pool, ...]
    """Those of them that the cluster describes."""
    after: Snapshot
    """The cluster then."""

    @property
    def mode(self) -> str:
        """The mode that the cluster leaves."""
        return self.proposal.mode

    def findings(self, later: t.Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings of the whole move.

        :param later: those of the second part.
        """
        kept = (finding for finding in later if finding.code not in _CHECKED_LATER)
        return in_order(dict.fromkeys((self._what_happens(), *self.proposal.findings, *kept)))

    @property
    def summary(self) -> str:
        """The first part in one line, for the person who approves the plan."""
        return f"moves from {self.mode} pools: all nodes go back to the primary first"

    def lines(self, second: t.Sequence[str]) -> list[str]:
        """How the pools of the former mode go, then the second part.

        :param second: the lines of the second part, with the findings of both.
        """
        waits = "Nothing is left to write; the run waits until all nodes are the primary's."
        return [
            f"Part 1 of 2, the {self.mode} pools go:",
            *(f"  {line}" for line in self.proposal.step_lines() or [waits]),
            "Part 2 of 2, on the cluster as part 1 leaves it:",
            *second,
        ]

    def _what_happens(self) -> Finding:
        to = "collection" if self.mode == "operator" else "operator"
        pools = f"takes the {self.mode} pools down ({listed(self.pools)})" if self.pools else "ends their removal"
        return warning(
            "moving",
            f"The run moves from {self.mode} to {to} pools in two parts: first it {pools} and gives all nodes back to the primary, "
            "then it brings the list. VMs keep running; those that start in between get KubeVirt's own launcher image.",
        )


def without_daemonsets(snapshot: Snapshot, gone: t.Collection[str], primary: KubeObject | None) -> Snapshot:
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
