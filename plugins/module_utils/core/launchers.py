# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher policy's part of a plan: which mapping table is in effect when, and what is written for it."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    activation,
    kinds,
    launcher_backends,
    names,
    outdated_policy,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.activation import Move, Progress
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    error,
    listed,
    note,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import Kind
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_backends import Choice, Wanted
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Object, digest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Admission, KubeObject, Snapshot

Outdated = t.Literal["refuse", "correct"]


@dataclass(frozen=True)
class Launchers:
    """What a run does for launcher pods.

    ``stages[0]`` is the mapping table that is due now, ``stages[n]`` the one after the n-th batch of nodes.
    """

    snapshot: Snapshot
    choice: Choice
    outdated: Outdated
    stages: tuple[Table, ...]
    full: Table
    """The table with all pools active and their own images: what an approved plan is approved for."""
    in_effect: Table | None
    """The table of the live policy; None where there is none."""

    @property
    def steps(self) -> tuple[int, ...]:
        """After how many batches the policy changes; 0: before the first."""
        return tuple(
            number
            for number, table in enumerate(self.stages)
            if (self.to_write(0) or self.to_delete(0) if number == 0 else table != self.stages[number - 1])
        )

    def policy(self, stage: int) -> list[tuple[Kind, Object]]:
        """The objects of the launcher policy at a stage, in the order to write them."""
        return self._policy(self.stages[stage])

    def correction(self, stage: int) -> list[tuple[Kind, Object]]:
        """The policy that keeps KubeVirt from calling pool VMs outdated, and its binding; written first."""
        return self._correction(self.stages[stage])

    def to_write(self, stage: int) -> tuple[Object, ...]:
        """Those objects of a stage that are missing or differ on the cluster as it is."""
        return missing([*self.correction(stage), *self.policy(stage)], _admission(self.snapshot))

    def to_delete(self, stage: int) -> tuple[KubeObject, ...]:
        """Live objects of ours that a stage does not need, or that belong to another back end."""
        admission = _admission(self.snapshot)
        backend = self.choice.backend if self.policy(stage) else "none"
        found: list[KubeObject] = [obj for _kind, obj in launcher_backends.of_others(backend, admission)]
        if not self.correction(stage):
            found += ours(admission, names.OUTDATED_POLICY)
        return (*found, *ours(admission, names.CANDIDATE_POLICY))

    @functools.cached_property
    def digest(self) -> str:
        """Of what is in effect once all pools are active."""
        return digest([obj for _kind, obj in (*self._correction(self.full), *self._policy(self.full))])

    def _policy(self, table: Table) -> list[tuple[Kind, Object]]:
        return launcher_backends.desired(self.choice.backend, table, self.snapshot.namespace, _admission(self.snapshot))

    def _correction(self, table: Table) -> list[tuple[Kind, Object]]:
        served, stock = _admission(self.snapshot).policy_kind, outdated_policy.stock_image(self.snapshot)
        if self.outdated != "correct" or served is None or stock is None:
            return []
        return outdated_policy.derive(table, stock, self.snapshot.namespace, served)

    def changes(self, step: int) -> tuple[str, ...]:
        """What a step writes and what that means for VMs, one line each."""
        admission = _admission(self.snapshot)
        if step == 0:
            done = lines(self.to_write(0), self.to_delete(0), admission)
            return (*done, *meaning(self.in_effect, self.stages[0]))
        updated = (line(obj, "update") for _kind, obj in self.policy(step)[:1])
        done = (*updated, *lines((), self._ending(step), admission))
        return (*done, *meaning(self.stages[step - 1], self.stages[step]))

    def _ending(self, step: int) -> t.Iterator[Object]:
        """What the step before needs and this one does not, in the order to take it away."""
        for objects in (self.policy, self.correction):
            if not objects(step):
                yield from (obj for _kind, obj in reversed(objects(step - 1)))

    def findings(self) -> t.Iterator[Finding]:
        """What the user should know."""
        admission = _admission(self.snapshot)
        yield from self.choice.findings
        yield from foreign([*self._correction(self.full), *self._policy(self.full)], admission)
        yield from outdated_policy.check(self.snapshot, self.full, self.outdated)
        last = self.stages[-1]
        inactive = [rule.name for rule in self.full.rules if rule.name not in last.images]
        if inactive:
            yield note(
                "pool_not_active",
                f"{len(inactive)} pool(s) take no VM after this run either, because too few of their nodes are handed over "
                f"for what their activation asks: {listed(inactive)}.",
            )
        yield from _unknown_devices(self.snapshot, self.full)


def make(
    snapshot: Snapshot,
    pools: t.Sequence[Pool],
    retired: t.Sequence[Pool],
    wanted: t.Mapping[str, str],
    blocked: t.Collection[str],
    batches: t.Sequence[t.Sequence[Move]],
    *,
    backend: Wanted,
    outdated: Outdated,
) -> Launchers:
    """The launcher policy over a run.

    :param pools: those that are there after the run, in order; ``retired`` those that are not.
    :param wanted: the owner that every node should have; ``blocked`` are nodes that cannot get it now.
    """
    admission = _admission(snapshot)
    in_effect = launcher_backends.recorded(admission)
    full = Table.of(pools)
    done: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for node in snapshot.nodes.values():
        owner = wanted[node.name]
        if node.name not in blocked:
            counts[owner] = counts.get(owner, 0) + 1
        if node.former_owner is None:
            done.setdefault(node.owner, []).append(node.name)
    before = in_effect or Table(())
    progress = Progress(done, counts)
    stages = activation.stages(pools, retired, before.images, progress, batches, before.canaries)
    # The last pool that keeps others off does so until its last node has left it.
    choice = launcher_backends.choose(backend, admission, full if full.needed else stages[0])
    if choice.backend == "aie_webhook":
        # Its rules know one image per pool.
        stages = tuple(replace(table, canaries=FrozenMap()) for table in stages)
    return Launchers(
        snapshot=snapshot,
        choice=choice,
        outdated=outdated,
        stages=stages,
        full=full,
        in_effect=in_effect,
    )


def without(snapshot: Snapshot, pools: t.Collection[str], batches: int, outdated: Outdated) -> Launchers:
    """The launcher policy over a run of so many batches that gives these pools no VM any more, and is else as it is."""
    admission = _admission(snapshot)
    in_effect = launcher_backends.recorded(admission)
    table = (in_effect or Table(())).without(pools)
    return Launchers(
        snapshot=snapshot,
        choice=launcher_backends.choose(launcher_backends.in_use(admission) or "none", admission, table),
        outdated=outdated,
        stages=(table,) * (batches + 1),
        full=table,
        in_effect=in_effect,
    )


def corrects(admission: Admission) -> bool:
    """Whether the policy that keeps KubeVirt from calling pool VMs outdated is live."""
    return bool(ours(admission, names.OUTDATED_POLICY))


def meaning(before: Table | None, after: Table) -> tuple[str, ...]:
    """What a new table means for VMs that start from then on."""
    old = before.images if before is not None else {}
    lines = []
    for rule in after.rules:
        image = rule.virt_launcher_image or "KubeVirt's own launcher image"
        if rule.name not in old:
            lines.append(f"VMs that match pool {rule.name} start with {image} on its nodes")
        elif old[rule.name] != rule.virt_launcher_image:
            former = old[rule.name] or "KubeVirt's own launcher image"
            lines.append(f"VMs that match pool {rule.name} start with {image} instead of {former}")
    known = before.canaries if before is not None else {}
    for pool, new in after.canaries.items():
        if known.get(pool, "") != new:
            image = new or "KubeVirt's own launcher image"
            lines.append(
                f"VMs that match pool {pool} and have the label {names.CANARY_LABEL}={pool} start with {image}"
            )
    lines += [f"No VM is taken by pool {pool} any more" for pool in old if pool not in after.images]
    if before is None and after.keep_off:
        lines.append("VMs that match no pool start on no node of " + listed(after.keep_off))
    return tuple(lines)


def missing(wanted: t.Iterable[tuple[Kind, Object]], admission: Admission) -> tuple[Object, ...]:
    """Those of the objects that are not there, or not so."""
    return tuple(obj for kind, obj in wanted if launcher_backends.drift([(kind, obj)], admission))


def lines(to_write: t.Iterable[Object], to_delete: t.Iterable[KubeObject], admission: Admission) -> tuple[str, ...]:
    """What becomes of objects that are written, and of those that are not needed any more, one line each."""
    there = admission.objects
    return (
        *(line(obj, "update" if (obj["kind"], obj["metadata"]["name"]) in there else "create") for obj in to_write),
        *(line(obj, "delete" if launcher_backends.left_of(obj) is None else "update") for obj in to_delete),
    )


def foreign(wanted: t.Iterable[tuple[Kind, Object]], admission: Admission) -> t.Iterator[Finding]:
    for kind, obj in wanted:
        name = obj["metadata"]["name"]
        live = admission.objects.get((kind.name, name))
        if live is not None and kind != kinds.CONFIG_MAP and not _is_ours(live):
            yield error(
                "launcher_policy_foreign",
                f"{kind} {name} is there but not ours (it lacks the label {names.MANAGED_BY_LABEL}={names.MANAGED_BY}); delete "
                "or rename it, then run again.",
            )


def ours(admission: Admission, name: str) -> list[KubeObject]:
    """Live policies and bindings of this name; the binding first, since a policy without one does nothing."""
    found = [live for (_kind, of), live in admission.objects.items() if of == name and _is_ours(live)]
    return sorted(found, key=lambda live: str(live["kind"]), reverse=True)


def live(admission: Admission | None) -> tuple[KubeObject, ...]:
    """All of ours that changes launcher pods or what KubeVirt makes of them, in the order to take it away."""
    if admission is None:
        return ()
    policies = [obj for _kind, obj in launcher_backends.of_others("none", admission)]
    return (*policies, *ours(admission, names.OUTDATED_POLICY), *ours(admission, names.CANDIDATE_POLICY))


def _is_ours(live: KubeObject) -> bool:
    return (live["metadata"].get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY


def _unknown_devices(snapshot: Snapshot, table: Table) -> t.Iterator[Finding]:
    """What DRA's DeviceClasses offer is no resource of a node, and a pod that claims it does not name it."""
    offered = {device for node in snapshot.nodes.values() for device in node.devices}
    for rule in table.rules:
        unknown = set(rule.selector.device_names if rule.selector else ()) - offered
        if unknown:
            yield warning(
                "device_not_offered",
                f"Pool {rule.name}: no node offers {listed(unknown)} (selector.deviceNames) as a resource now. VMs that get a "
                "device through dynamic resource allocation (DRA) do not show its name in their launcher pods: select them by "
                "vmLabels or matchNodeSelector.",
            )


def _admission(snapshot: Snapshot) -> Admission:
    return snapshot.admission or Admission()


def line(obj: KubeObject, action: str) -> str:
    """What is done to an object, as plans and results say it."""
    namespace = obj["metadata"].get("namespace")
    return f"{obj['kind']} {f'{namespace}/' if namespace else ''}{obj['metadata']['name']}: {action}"
