# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The launcher policy's part of a plan: the mapping table after each batch, and what a run writes for it."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field, replace

from ..base import epochs, kinds, names, permissions
from ..base.findings import Finding, InputErrors, counted, listed, note, warning
from ..base.frozen import FrozenMap
from ..base.kinds import Kind
from ..base.objects import Change, Object, change_line, digest
from ..base.parts import Step
from ..base.permissions import Permission
from ..kubevirt import health, launcher_arguments
from ..observed.snapshot import Admission, Snapshot
from ..pools.model import Pool
from ..vms.mapping import Table, Upcoming
from . import activation, launcher_backends, outdated_policy, policy_objects, probes
from .activation import HandoverState, NodeMove
from .launcher_backends import Backend, BackendOption, Choice
from .probes import Desired, Site, Trial

Outdated = t.Literal["refuse", "correct"]

_STOCK = "KubeVirt's own launcher image"


class NodeOwners(t.Protocol):
    """The fields of an assignment used here: the owner that each node should have, and nodes that cannot get it."""

    @property
    def wanted(self) -> t.Mapping[str, str]: ...

    @property
    def blocked(self) -> t.Collection[str]: ...


class LauncherOptions(t.Protocol):
    """The user's options for launcher policies."""

    @property
    def launcher_backend(self) -> BackendOption: ...

    @property
    def outdated(self) -> Outdated: ...


@dataclass(frozen=True)
class LauncherPolicyRollout:
    """What a run does for launcher pods.

    ``stages[0]`` is the mapping table that must be in effect now, ``stages[n]`` the one after the n-th batch of nodes.
    """

    snapshot: Snapshot
    choice: Choice
    outdated: Outdated
    stages: tuple[Table, ...]
    full: Table
    """The table with all pools active and their own images: who approves a plan approves this table."""
    in_effect: Table | None
    """The table of the live policy for the present version of KubeVirt, and what is prepared for the next one; None where
    there is no policy."""
    behind: t.Mapping[str, t.Sequence[str]] = field(default_factory=FrozenMap)
    """The nodes that take VMs and keep an older handler over the run, by pool."""
    name: t.ClassVar = "launcher_policy"

    @functools.cached_property
    def steps(self) -> tuple[int, ...]:
        """The numbers of batches after which the policy changes; 0: before the first batch."""
        return tuple(
            number
            for number, table in enumerate(self.stages)
            if (self.to_write(0) or self.to_remove(0) if number == 0 else table != self.stages[number - 1])
        )

    @functools.cached_property
    def epoch(self) -> int:
        """The epoch of the pods that the policy admits at the start of the run. It is not older than any label of a node.
        Without a live policy it follows the time: pods of a deleted one are older, if the clocks of controllers agree."""
        live = launcher_backends.live_epoch(self._admission)
        labelled = max((epochs.newest(node.labels) for node in self.snapshot.nodes.values()), default=0)
        return max(self.snapshot.read_at if live is None else live, labelled)

    def policy(self, stage: int) -> list[tuple[Kind, Object]]:
        """The objects of the launcher policy at a stage, in the order to write them."""
        return self._policy(self.stages[stage], self.epoch)

    def policy_now(self) -> list[tuple[Kind, Object]]:
        """The objects that must be in effect now, with the epoch of the live policy: only runs change that."""
        live = launcher_backends.live_epoch(self._admission)
        return self._policy(self.stages[0], self.epoch if live is None else live)

    def correction(self, stage: int) -> list[tuple[Kind, Object]]:
        """The policy that keeps KubeVirt from calling pool VMs outdated, and its binding; written before the others."""
        return self._correction(self.stages[stage])

    def to_write(self, stage: int) -> tuple[Object, ...]:
        """The objects of a stage that are missing on the cluster or differ there."""
        return policy_objects.to_write([*self.correction(stage), *self.policy(stage)], self._admission)

    def to_remove(self, stage: int) -> tuple[Change, ...]:
        """The removal of our live objects that a stage does not need, or that belong to another back end."""
        backend = self.choice.backend if self.policy(stage) else "none"
        others = launcher_backends.removals_of_other_backends(backend, self._admission)
        unneeded: tuple[str, ...] = (names.CANDIDATE_POLICY,)
        if not self.correction(stage):
            unneeded = (names.OUTDATED_POLICY, *unneeded)
        return (*others, *policy_objects.removals(policy_objects.live_objects(self._admission, *unneeded)))

    @functools.cached_property
    def approved(self) -> str:
        """The digest of everything that is in effect once all pools are active."""
        return digest([launcher_backends.approved_part(obj) for _kind, obj in self._full_objects()])

    @property
    def rights(self) -> tuple[Permission, ...]:
        return permissions.WRITER_OF_BACKEND.get(self.choice.backend, ())

    def facts(self, step: Step) -> t.Mapping[str, t.Any]:
        """The back end and the digest of the policy at this step; ``none`` and None where there is no policy."""
        policy = self.policy(step) if isinstance(step, int) else []
        digests = (obj["metadata"].get("annotations", {}).get(names.POLICY_ANNOTATION) for _kind, obj in policy)
        return {
            "backend": self.choice.backend if policy else "none",
            "digest": next(filter(None, digests), None),
        }

    def objects(self, step: Step) -> tuple[Desired, ...]:
        """The objects to write, in groups that are written one after the other."""
        groups = (self.correction(step), self.policy(step)) if isinstance(step, int) else ()
        return tuple(group for group in groups if group)

    def leaving(self, step: Step) -> tuple[Change, ...]:
        """The removal of our live objects."""
        return self.to_remove(step) if isinstance(step, int) else ()

    def trials(self, step: Step, site: t.Callable[[], Site]) -> tuple[Trial | None, ...]:
        """How each group of ``objects`` is tried; None when no probe shows what it does."""
        if not isinstance(step, int):
            return ()
        of_correction = (None,) if self.correction(step) else ()
        of_policy = (self.trial_of(self.stages[step], site),) if self.policy(step) else ()
        return (*of_correction, *of_policy)

    def trial_of(self, table: Table, site: t.Callable[[], Site]) -> Trial | None:
        """How the policy for this table is tried; None when no probe shows what it does."""
        if self.choice.backend == "aie_webhook":
            return probes.call_of_webhook(site())
        candidate = launcher_backends.desired(
            self.choice.backend, table, self.snapshot.namespace, self._admission, names.CANDIDATE_POLICY, self.epoch
        )
        if not candidate:
            return None
        return Trial(
            candidate,
            probes.probes(table, site(), names.CANDIDATE_POLICY, self.epoch),
            probes.probes(table, site(), names.POLICY, self.epoch),
        )

    def last_probe(self, step: Step, site: t.Callable[[], Site]) -> Object | None:
        """What shows that no policy acts any more; None while one stays."""
        return None if isinstance(step, int) and self.policy(step) else _last_probe(self.leaving(step), site)

    def changes(self, step: Step) -> tuple[str, ...]:
        """What a step writes and what that means for VMs, one line each."""
        if not isinstance(step, int) or step not in self.steps:
            return ()
        if step == 0:
            written = policy_objects.change_lines(self.to_write(0), self.to_remove(0), self._admission)
            return (*written, *_effects_on_vms(self.in_effect, self.stages[0]))
        updated = (change_line(obj, "update") for _kind, obj in self.policy(step)[:1])
        removed = policy_objects.change_lines((), self._no_longer_needed(step), self._admission)
        return (*updated, *removed, *_effects_on_vms(self.stages[step - 1], self.stages[step]))

    def findings(self) -> t.Iterator[Finding]:
        """What the user should know."""
        yield from self.choice.findings
        yield from unusable_rules(self._admission, self.choice.backend)
        yield from policy_objects.foreign_findings(self._full_objects(), self._admission)
        yield from outdated_policy.update_findings(self.snapshot, self.full, self.outdated)
        last = self.stages[-1]
        inactive = [rule.name for rule in self.full.rules if rule.name not in last.images]
        if inactive:
            yield note(
                "pool_not_active",
                f"{counted(len(inactive), 'pool stays', 'pools stay')} inactive and will take no VM after this run, "
                f"because too few nodes are handed over for the pool's activation: {listed(inactive)}.",
            )
        images = self.full.images
        for pool in sorted(self.behind):
            if pool in last.images and last.images[pool] != images.get(pool):
                yield warning(
                    "launcher_image_waits",
                    f"VMs of pool {pool} do not start with {images.get(pool) or _STOCK} yet, because {listed(self.behind[pool])} can "
                    "take VMs and keeps an older handler: cordon the node, or make it fit for the new handler, and run again.",
                )
        yield from _unknown_devices(self.snapshot, self.full)

    @property
    def _admission(self) -> Admission:
        return self.snapshot.admission or Admission()

    def _policy(self, table: Table, epoch: int) -> list[tuple[Kind, Object]]:
        return launcher_backends.desired(
            self.choice.backend, table, self.snapshot.namespace, self._admission, epoch=epoch
        )

    def _correction(self, table: Table) -> list[tuple[Kind, Object]]:
        served, stock = self._admission.policy_kind, outdated_policy.stock_image(self.snapshot)
        if self.outdated != "correct" or served is None or stock is None:
            return []
        return outdated_policy.derive(table, stock, self.snapshot.namespace, served)

    def _full_objects(self) -> list[tuple[Kind, Object]]:
        # Without the epoch: a user approves what pods get, not the time.
        return [*self._correction(self.full), *self._policy(self.full, epoch=0)]

    def _no_longer_needed(self, step: int) -> t.Iterator[Change]:
        """The removal of objects that the step before needs and this step does not, in this order."""
        for objects in (self.policy, self.correction):
            if not objects(step):
                removed = reversed(objects(step - 1))
                yield from (Change(obj, obj if kind == kinds.CONFIG_MAP else None) for kind, obj in removed)


@dataclass(frozen=True)
class LauncherPolicyRemoval:
    """The removal of everything that changes launcher pods, whatever the back end and the pools."""

    snapshot: Snapshot
    name: t.ClassVar = LauncherPolicyRollout.name
    rights: t.ClassVar[tuple[Permission, ...]] = ()
    approved: t.ClassVar[None] = None

    @property
    def steps(self) -> tuple[Step, ...]:
        return (0,) if self.leaving(0) else ()

    def changes(self, step: Step) -> tuple[str, ...]:
        admission = self.snapshot.admission or Admission()
        return policy_objects.change_lines((), self.leaving(step), admission)

    def findings(self) -> t.Iterable[Finding]:
        return tuple(unusable_rules(self.snapshot.admission))

    def facts(self, _step: Step) -> t.Mapping[str, t.Any]:
        return {"backend": "none", "digest": None}

    def objects(self, _step: Step) -> tuple[Desired, ...]:
        return ()

    def trials(self, _step: Step, _site: t.Callable[[], Site]) -> tuple[Trial | None, ...]:
        return ()

    def leaving(self, step: Step) -> tuple[Change, ...]:
        return removal_of_all(self.snapshot.admission) if step == 0 else ()

    def last_probe(self, step: Step, site: t.Callable[[], Site]) -> Object | None:
        return _last_probe(self.leaving(step), site) if self.snapshot.primary else None


def make_rollout(
    snapshot: Snapshot,
    pools: t.Sequence[Pool],
    retired: t.Sequence[Pool],
    owners: NodeOwners,
    batches: t.Sequence[t.Sequence[NodeMove]],
    options: LauncherOptions,
    behind: t.Mapping[str, t.Sequence[str]] | None = None,
) -> LauncherPolicyRollout:
    """The launcher policy over a run.

    :param pools: the pools that the run leaves, in order; ``retired`` are those that it removes.
    :param behind: the nodes that take VMs and keep an older handler over the run, by pool.
    """
    admission = snapshot.admission or Admission()
    in_effect = _in_effect(snapshot)
    full = Table.for_pools(pools)
    done: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for node in snapshot.nodes.values():
        owner = owners.wanted[node.name]
        if node.name not in owners.blocked:
            counts[owner] = counts.get(owner, 0) + 1
        if node.former_owner is None:
            done.setdefault(node.owner, []).append(node.name)
    before = in_effect or Table(())
    progress = HandoverState(done, counts, behind or {})
    images = {pool: image for pool, image in before.images.items() if image}
    unusable = launcher_arguments.unusable(images, snapshot.kubevirt)
    stages = activation.stages(pools, retired, before, progress, batches, unusable)
    # The last pool that keeps others off does so until its last node has left it.
    choice = launcher_backends.choose(options.launcher_backend, admission, full if full.needed else stages[0])
    if choice.backend == "aie_webhook":
        # kubevirt-aie-webhook's rules have one image per pool: no canary VM can get another one.
        stages = tuple(replace(table, canaries=FrozenMap()) for table in stages)
    return LauncherPolicyRollout(
        snapshot=snapshot,
        choice=choice,
        outdated=options.outdated,
        stages=stages,
        full=full,
        in_effect=in_effect,
        behind=FrozenMap(behind),
    )


def without_pools(
    snapshot: Snapshot, pools: t.Collection[str], batches: int, outdated: Outdated
) -> LauncherPolicyRollout:
    """The launcher policy over a run of so many batches that gives these pools no more VMs and changes nothing else."""
    admission = snapshot.admission or Admission()
    in_effect = _in_effect(snapshot)
    table = (in_effect or Table(())).without_pools(pools)
    return LauncherPolicyRollout(
        snapshot=snapshot,
        choice=launcher_backends.choose(launcher_backends.backend_in_use(admission) or "none", admission, table),
        outdated=outdated,
        stages=(table,) * (batches + 1),
        full=table,
        in_effect=in_effect,
    )


def prepare_upgrade(
    snapshot: Snapshot, upcoming: t.Mapping[str, str | None], version: str | None, outdated: Outdated
) -> LauncherPolicyRollout:
    """The launcher policy that also gives pods of the next version of KubeVirt the images that fit it.

    :param upcoming: the launcher image of each pool for that version.
    :param version: the next version; None takes the preparation back.
    :raises InputErrors: when the upgrade has begun, and nothing tells KubeVirt's launcher image of the version before.
    """
    admission = snapshot.admission or Admission()
    in_effect, stock = _in_effect(snapshot), outdated_policy.deployed_stock_image(snapshot)
    begun = _begun_preparation(snapshot, version)
    if version is not None and stock is None and begun is None and snapshot.primary is not None:
        problem = (
            "KubeVirt's launcher image of the version before is not known any more, so nothing can be prepared in the middle of the "
            "upgrade; wait until it is done, then run site with the list for the new version."
        )
        raise InputErrors([problem])
    table = replace(in_effect or Table(()), upcoming=None)
    if begun is not None and begun.upcoming is not None:
        # Both versions start VMs: pools that came since are added, and the others stay as they are.
        in_effect = begun
        table = begun.prepared(replace(begun.upcoming, images=FrozenMap({**upcoming, **begun.upcoming.images})))
    elif version is not None and stock is not None:
        table = table.prepared(Upcoming(stock, version, FrozenMap(upcoming)))
    choice = launcher_backends.choose(launcher_backends.backend_in_use(admission) or "none", admission, table)
    return LauncherPolicyRollout(
        snapshot=snapshot, choice=choice, outdated=outdated, stages=(table,), full=table, in_effect=in_effect
    )


def _begun_preparation(snapshot: Snapshot, version: str | None) -> Table | None:
    """The table of the live policy while an upgrade to this version is under way for which it is prepared; else None."""
    table = launcher_backends.recorded_table(snapshot.admission or Admission())
    if version is None or table is None or table.upcoming is None:
        return None
    prepared = health.same_version(table.upcoming.version, version)
    return table if prepared and health.is_upgrading_to(snapshot.kubevirt, version) else None


def _in_effect(snapshot: Snapshot) -> Table | None:
    """The table of the live policy. What it held for an upgrade is in effect once KubeVirt has another launcher image."""
    table = launcher_backends.recorded_table(snapshot.admission or Admission())
    stock = outdated_policy.stock_image(snapshot)
    if table is None or table.upcoming is None or not table.upcoming.begun(stock):
        return table
    return table.as_of(stock)


def removal_of_all(admission: Admission | None) -> tuple[Change, ...]:
    """The removal of our live objects that change launcher pods, or what KubeVirt notes about them, in this order."""
    if admission is None:
        return ()
    others = policy_objects.live_objects(admission, names.OUTDATED_POLICY, names.CANDIDATE_POLICY)
    return (*launcher_backends.removals_of_other_backends("none", admission), *policy_objects.removals(others))


def _last_probe(removed: t.Iterable[Change], site: t.Callable[[], Site]) -> Object | None:
    """What shows that a policy does not act any more. Rules of kubevirt-aie-webhook leave no trace in a probe."""
    return probes.plain_pod(site()) if any(change.after is None for change in removed) else None


def unusable_rules(admission: Admission | None, backend: Backend = "none") -> t.Iterator[Finding]:
    """An error if rules of kubevirt-aie-webhook must be written or removed, and a run cannot tell ours from others."""
    unusable = launcher_backends.unusable_rules(backend, admission or Admission())
    if unusable is not None:
        yield unusable


def _effects_on_vms(before: Table | None, after: Table) -> tuple[str, ...]:
    """What a new table means for VMs that start from then on, one line each."""
    old = before.images if before is not None else {}
    lines = []
    hypervisors = {rule.name: f" and {rule.hypervisor}" for rule in after.rules if rule.hypervisor}
    for pool, image in after.images.items():
        if pool not in old:
            lines.append(
                f"VMs that match pool {pool} start with {image or _STOCK}{hypervisors.get(pool, '')} on its nodes"
            )
        elif old[pool] != image:
            lines.append(f"VMs that match pool {pool} start with {image or _STOCK} instead of {old[pool] or _STOCK}")
    old_canaries = before.canaries if before is not None else {}
    for pool, image in after.canaries.items():
        if old_canaries.get(pool, "") != image:
            label = f"{names.CANARY_LABEL}={pool}"
            lines.append(f"VMs that match pool {pool} and have the label {label} start with {image or _STOCK}")
    lines += [f"New VMs no longer go to pool {pool}" for pool in old if pool not in after.images]
    order = [pool for pool in after.images if pool in old]
    if order != [pool for pool in old if pool in after.images]:
        lines.append(
            f"VMs that several pools match go to the first of {', '.join(order)}, which is another order than now"
        )
    lines += _effects_of_upgrade(before.upcoming if before is not None else None, after)
    if before is None and after.keep_off:
        lines.append("VMs that match no pool start on no node of " + listed(after.keep_off))
    return tuple(lines)


def _effects_of_upgrade(before: Upcoming | None, after: Table) -> t.Iterator[str]:
    """What the table says from then on about VMs that the next version of KubeVirt starts."""
    former, upcoming = before.images if before is not None else {}, after.upcoming
    if upcoming is not None:
        for pool, image in upcoming.images.items():
            if former.get(pool, "") != image:
                yield f"VMs that match pool {pool} start with {image or _STOCK} once KubeVirt {upcoming.version} starts them"
    elif before is not None:
        yield f"VMs that KubeVirt {before.version} starts get no other images any more"


def _unknown_devices(snapshot: Snapshot, table: Table) -> t.Iterator[Finding]:
    """Pools that select a device which no node offers as a resource.

    With dynamic resource allocation (DRA), a device is not a resource of a node, and pods that claim it do not name it.
    """
    offered = {device for node in snapshot.nodes.values() for device in node.devices}
    others = {device for device in offered if not device.startswith(names.KUBEVIRT_DEVICES)}
    for rule in table.rules:
        unknown = set(rule.selector.device_names if rule.selector else ()) - offered
        if unknown:
            yield warning(
                "device_not_offered",
                f"Pool {rule.name}: no node offers {listed(unknown)} (selector.deviceNames) as a resource now; nodes offer "
                f"{listed(others) or 'no other devices than those of KubeVirt'}. VMs that get a device through dynamic resource "
                "allocation (DRA) do not show its name in their launcher pods: select them by vmLabels or matchNodeSelector.",
            )
