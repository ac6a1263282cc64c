# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""How far virt-operator has come: whether its DaemonSets are as the pools ask for, rolled out, and one handler on each node.

Judged from DaemonSets and pods. KubeVirt's own conditions claim readiness too early on some builds, and never on others.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.findings import counted, listed, printable
from ..base.objects import KubeObject
from ..kubevirt import daemonsets, health
from ..observed.snapshot import Snapshot
from ..pools.model import Pool
from . import placement
from .builds import Build
from .placement import Placement


@dataclass(frozen=True)
class Rollout:
    """How far virt-operator has come."""

    sets_stale: tuple[str, ...]
    """What of its DaemonSets is not yet as the pools specify, as clauses."""
    nodes_stale: tuple[str, ...]
    """The same for nodes."""
    unfinished: tuple[str, ...]
    """DaemonSets that are not rolled out."""
    handlers: tuple[str, ...]
    """Nodes without the one Ready handler that they should have."""
    bare: tuple[str, ...]
    """Nodes without a handler now."""
    doubled: tuple[str, ...]
    """Nodes with several handlers now."""

    @property
    def stale(self) -> tuple[str, ...]:
        return (*self.sets_stale, *self.nodes_stale)

    @property
    def problem(self) -> str | None:
        """What is still missing, as a sentence; None when all is done."""
        problems = (*self.stale, *self.unfinished, *self.handlers)
        if not problems:
            return None
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        return f"{'; '.join(problems[:3])}{more}."


def images(build: Build, primary: KubeObject, pool: Pool) -> dict[str, str]:
    """The image of each container of a pool's handler pod, as the build makes it from the primary."""
    return {**daemonsets.images_of(primary), **build.images(pool.virt_handler_image, pool.virt_launcher_image)}


def is_image(wanted: str | None, image: str) -> bool:
    """Whether this is the image that was asked for, maybe from a mirror."""
    return wanted is not None and health.last_part(image) == health.last_part(wanted)


def wrong_images(
    build: Build, snapshot: Snapshot, primary: KubeObject, pool: Pool, daemonset: KubeObject
) -> dict[str, str]:
    """The images of a pool's DaemonSet that are not as virt-operator should write them, by container.

    One from elsewhere is taken for a mirror's only when virt-operator wrote the DaemonSet for the pool as it is now.
    """
    current = _follows(snapshot, pool, daemonset)
    wanted = images(build, primary, pool)
    return {
        container: image
        for container, image in daemonsets.images_of(daemonset).items()
        if image != wanted.get(container) and not (current and is_image(wanted.get(container), image))
    }


def _follows(snapshot: Snapshot, pool: Pool, daemonset: KubeObject) -> bool:
    """Whether virt-operator wrote a pool's DaemonSet for the pool as it is now, in the KubeVirt object or in one of its own.

    An edit of a pool's own object changes nothing of the KubeVirt object, so there the times of both writes decide.
    """
    written_for = (daemonset["metadata"].get("annotations") or {}).get(names.GENERATION_ANNOTATION)
    own = next((obj for obj in snapshot.operator_api.worker_pools if obj["metadata"]["name"] == pool.name), None)
    current = written_for == str(snapshot.kubevirt["metadata"].get("generation"))
    return current and (own is None or _spec_written(own) <= _spec_written(daemonset))


def _spec_written(obj: KubeObject) -> str:
    """When the spec of an object was last written, by the records of the API server; empty where they do not say."""
    records = obj["metadata"].get("managedFields") or ()
    return max((str(each.get("time", "")) for each in records if "f:spec" in (each.get("fieldsV1") or {})), default="")


def observe(build: Build, snapshot: Snapshot, primary: KubeObject, pools: t.Sequence[Pool]) -> Rollout:
    """How far the operator has come with these pools."""
    live = build.pool_daemonsets(snapshot.daemonsets.values())
    wanted = Placement.from_layout(placement.layout_for(build, snapshot, primary, pools), snapshot)
    now = Placement.from_layout(placement.live(build, snapshot, primary), snapshot)
    dead = _dead_handlers(snapshot)
    sets = {names.HANDLER: primary, **{ds["metadata"]["name"]: ds for ds in live.values()}}
    unfinished = [_progress(ds) for name, ds in sets.items() if not health.primary_rolled_out(ds, dead.get(name, 0))]
    handlers = _handlers(snapshot, wanted, sets)
    counts = {node: len(snapshot.handlers.get(node, ())) for node in snapshot.nodes}
    return Rollout(
        sets_stale=tuple(_daemonsets(build, snapshot, primary, pools, live)),
        nodes_stale=tuple(_placement(wanted, now)),
        unfinished=tuple(unfinished),
        handlers=(_waiting(snapshot, handlers),) if handlers else (),
        bare=tuple(node for node in wanted.owners if node in wanted.needed and not counts[node]),
        doubled=tuple(node for node, count in counts.items() if count > 1),
    )


def _daemonsets(
    build: Build,
    snapshot: Snapshot,
    primary: KubeObject,
    pools: t.Sequence[Pool],
    live: t.Mapping[str, KubeObject],
) -> t.Iterator[str]:
    for pool in pools:
        name = names.pool_daemonset_name(pool.name)
        daemonset = live.get(pool.name)
        if daemonset is None:
            yield f"virt-operator has not created DaemonSet {name}"
            continue
        wrong = wrong_images(build, snapshot, primary, pool, daemonset)
        if wrong:
            shown = listed(f"{container} {image}" for container, image in wrong.items())
            yield f"DaemonSet {name} does not have the pool's images yet ({shown})"
    gone = sorted(live.keys() - {pool.name for pool in pools})
    if gone:
        yield f"virt-operator has not deleted the DaemonSet of pool {listed(gone)}"


def _placement(wanted: Placement, now: Placement) -> t.Iterator[str]:
    """Nodes that the live DaemonSets would give other handlers: the primary's exclusion is missing, or one too many."""
    others = [node for node in wanted.owners if node in wanted.needed and wanted.owners[node] != now.owners[node]]
    if others:
        yield f"virt-operator's DaemonSets select other nodes than the pools ask for: {listed(others)}"


def _dead_handlers(snapshot: Snapshot) -> dict[str, int]:
    """How many pods of each DaemonSet are not Ready because their node is not."""
    dead: dict[str, int] = {}
    for node in snapshot.unready_nodes:
        for pod in snapshot.handlers.get(node, ()):
            if pod.daemonset is not None and not pod.ready:
                dead[pod.daemonset] = dead.get(pod.daemonset, 0) + 1
    return dead


def _progress(daemonset: KubeObject) -> str:
    status = daemonset.get("status") or {}
    name = daemonset["metadata"]["name"]
    if status.get("observedGeneration") != daemonset["metadata"].get("generation"):
        return f"the DaemonSet controller has not seen DaemonSet {name} as it is now"
    updated, ready, desired = (
        status.get(key, 0) for key in ("updatedNumberScheduled", "numberReady", "desiredNumberScheduled")
    )
    return f"DaemonSet {name}: {updated} of {desired} handlers are updated, {ready} are Ready"


def _waiting(snapshot: Snapshot, nodes: t.Collection[str]) -> str:
    """That these nodes do not have their handler, with what their pods say about it: virt-operator reports no more than that a
    rollout failed."""
    pods = (pod for node in nodes for pod in snapshot.handlers.get(node, ()))
    faults = [f"{pod.name}: {printable(pod.fault)}" for pod in pods if pod.fault and not pod.ready]
    why = f" ({listed(faults, most=2)})" if faults else ""
    return (
        f"{counted(len(nodes), 'node does', 'nodes do')} not have exactly one Ready handler yet: {listed(nodes)}{why}"
    )


def _handlers(snapshot: Snapshot, wanted: Placement, sets: t.Mapping[str, KubeObject]) -> list[str]:
    """The nodes that do not have exactly one Ready handler, of the right DaemonSet and with its images. Nodes that are not
    Ready are ignored."""
    expected = {name: daemonsets.images_of(daemonset) for name, daemonset in sets.items()}
    wrong = []
    for node in snapshot.nodes.values():
        pods = snapshot.handlers.get(node.name, ())
        owner = wanted.owner(node.name)
        if not node.ready or (node.name not in wanted.needed and not pods):
            continue
        name = names.HANDLER if owner == names.PRIMARY else names.pool_daemonset_name(owner or "")
        right = len(pods) == 1 and pods[0].ready and not pods[0].terminating and pods[0].daemonset == name
        asked = expected.get(name, {})
        if not right or any(not is_image(asked.get(each, image), image) for each, image in pods[0].images.items()):
            wrong.append(node.name)
    return wrong
