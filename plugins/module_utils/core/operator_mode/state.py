# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The state of a cluster whose pools KubeVirt's own operator makes, found by the same checks as that of collection pools."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..base.findings import Finding, InputErrors, counted, error, in_order, note, warning
from ..checks import state
from ..checks.state import State
from ..kubevirt import launcher_arguments, preflight
from ..observed.snapshot import Snapshot
from ..planning.options import Options
from ..pools.model import Pool
from . import view
from .builds import Build


def examine(build: Build, snapshot: Snapshot) -> State:
    """The state of all pools, without a pool list."""
    try:
        seen = view.make_view(build, snapshot, None, Options())
    except InputErrors as problem:
        found = state.examine(snapshot)
        unreadable = error("operator_pools_unreadable", f"In {build.place}: {' '.join(problem.messages)}")
        return replace(found, findings=in_order((*found.findings, unreadable)))
    found = state.examine(seen.snapshot)
    images = {pool.name: pool.virt_launcher_image for pool in seen.pools if pool.virt_launcher_image}
    starts = launcher_arguments.examine(images, snapshot.kubevirt)
    excluded = bool(seen.pools) and not any(f.code == "operator_nodes_wrong" for f in seen.plan.findings)
    more = (finding for finding in seen.plan.findings if finding.code not in preflight.SKEW)
    return replace(found, excluded=excluded, findings=in_order((*found.findings, *starts, *more)))


def after_upgrade(build: Build, pools: t.Collection[Pool]) -> t.Iterator[Finding]:
    """What an upgrade of KubeVirt does to these pools."""
    if not pools:
        return
    yield note(
        "operator_upgrade_images",
        f"The upgrade leaves the images of {counted(len(pools), 'pool')} as they are, and virt-operator restarts the handlers with them; run "
        "site with the new images after it.",
    )
    if build.upgrade:
        yield warning(
            "operator_upgrade",
            f"With {build.name}, {build.upgrade}. Take the pools down before the upgrade, with the playbook remove, and run site after it.",
        )
