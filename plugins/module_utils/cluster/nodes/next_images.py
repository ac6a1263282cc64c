# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Pulls the images that pools need after an upgrade of KubeVirt to their nodes, before VMs and handlers depend on them."""

from __future__ import annotations

import typing as t

from ...core.base.findings import counted
from ...core.kubevirt import image_contents
from ...core.planning.plan import Plan
from ..api.client import Cluster
from ..api.waiting import Clock
from . import images

_AT_ONCE = 50
"""How many nodes pull side by side, so that a registry serves a fleet in turns."""


def pull(cluster: Cluster, plan: Plan, timeout: float, clock: Clock) -> None:
    """Pull the images of the pools of ``plan`` to the nodes that they own, look into them, and try launcher pods. Nodes that are
    deleted by then need no image.

    :param timeout: in seconds, for each turn.
    :raises images.ImagesMissing: when a node cannot get an image, or an image lacks something.
    """
    namespace, nodes = plan.snapshot.namespace, list(_nodes(plan))
    images.remove(cluster, plan.snapshot.leftover_pulls)
    for first in range(0, len(nodes), _AT_ONCE):
        turn = nodes[first : first + _AT_ONCE]
        pulled = images.pull(cluster, namespace, [pull for pull, _start in turn], timeout, clock)
        what = "KubeVirt must not be upgraded yet, and nothing was changed, because"
        problems = images.of_existing(cluster, pulled.problems, plan.snapshot.nodes)
        if problems:
            raise images.ImagesMissing(
                f"{what} {counted(len(problems), 'node')} cannot get the images of the next version. "
                f"{images.examples(problems)}. {images.CHECK_IMAGE}"
            )
        images.refuse_incomplete(what, pulled)
        starts = [start for _pull, start in turn if start]
        problems = images.start(cluster, namespace, starts, timeout, clock)
        problems = images.of_existing(cluster, problems, plan.snapshot.nodes)
        if problems:
            raise images.ImagesMissing(
                f"{what} launcher pods would not start on {counted(len(problems), 'node')}. {images.examples(problems)}. Name a "
                "pull secret in virtLauncherPullSecrets of the pool."
            )


def _nodes(plan: Plan) -> t.Iterator[tuple[images.Pull, images.Start | None]]:
    """The Ready nodes that pools of the list own, with what to pull to each."""
    stock = images.stock_images(plan.snapshot)
    pools = {pool.name: pool for pool in plan.launcher_pools}
    known = {name: image_contents.recorded(daemonset).keys() for name, daemonset in plan.snapshot.pools.items()}
    for node in plan.snapshot.nodes.values():
        daemonset = plan.desired.get(node.owner)
        if daemonset is None or not node.ready:
            continue
        pool = pools.get(node.owner)
        start = None if pool is None else images.Start.of(node, pool)
        yield images.Pull(node, daemonset, known.get(node.owner, ()), stock), start
