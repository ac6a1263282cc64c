# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Putting launcher policies live. One that fails stops every VM from starting, and API servers do not check before.

So a policy is first tried as a candidate that acts on our probes alone, then put live, then tried again; if that fails,
what was there before is put back. Policies are created and replaced: server-side apply merges their variables by name,
and variables have an order.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import (
    Cluster,
    ClusterError,
    Conflict,
    Denied,
    Invalid,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock, Persistence
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    daemonsets,
    kinds,
    launcher_backends,
    launchers,
    names,
    objects,
    outdated_policy,
    probes,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import Kind
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launchers import Launchers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Object
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.probes import Probe, Site
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Admission, Snapshot

Desired = t.Sequence[tuple[Kind, Object]]

_PATIENCE_SECONDS = 3.0
"""How long a probe must come out wrong before it counts: a server may just be reading the policy, or a webhook restart."""

_KINDS = (
    *kinds.MUTATING_ADMISSION_POLICIES,
    *kinds.MUTATING_ADMISSION_POLICY_BINDINGS,
    kinds.VALIDATING_ADMISSION_POLICY,
    kinds.VALIDATING_ADMISSION_POLICY_BINDING,
    kinds.KYVERNO_MUTATING_POLICY,
    kinds.CONFIG_MAP,
)
_OUR_ANNOTATIONS = (names.MAPPING_ANNOTATION, names.POLICY_ANNOTATION)


@dataclass(frozen=True)
class Trial:
    """How a policy is tried before and after it is put live."""

    candidate: Desired
    candidate_probes: t.Sequence[Probe]
    probes: t.Sequence[Probe]


@dataclass(frozen=True)
class Change:
    """An object before and after; None where there was or is none."""

    kind: Kind
    before: Object | None
    after: Object | None

    @property
    def changed(self) -> bool:
        shown = objects.diff(self.before, self.after)
        return bool(shown["before"] or shown["after"])

    def __str__(self) -> str:
        verb = "create" if self.before is None else "update" if self.after is not None else "delete"
        return launchers.line(self.after or self.before or {}, verb)


# Writing ------------------------------------------------------------------------------------------------------------


def preview(cluster: Cluster, desired: Desired, leaving: t.Iterable[t.Mapping[str, t.Any]] = ()) -> list[Change]:
    """What ``put`` would write, as the server would store it, and what ``remove`` would do to live objects that are
    ``leaving``: objects that are so already are left out.

    :raises ClusterError: when the server refuses one, or one of that name is not ours.
    """
    found = []
    for kind, obj in desired:
        live = _ours(cluster, kind, obj)
        change = Change(kind, live, _write(cluster, kind, obj, live, dry_run=True))
        if change.changed:
            found.append(change)
    return [*found, *removal(leaving)]


def put(cluster: Cluster, desired: Desired, trial: Trial | None, timeout: float, clock: Clock) -> list[Change]:
    """Make these objects live: in their order, after they were tried, and only those that are not so already.

    :param trial: None for objects whose effect no probe shows.
    :param timeout: how many seconds the servers may take to act by a policy.
    :raises ClusterError: when that fails; what was live before is then live again, or the message says why not.
    """
    planned = preview(cluster, desired)
    if not planned:
        return []
    title = f"{planned[0].kind} {desired[0][1]['metadata']['name']}"
    if trial is not None:
        try:
            _try_out(cluster, trial, timeout, clock)
        except ClusterError as error:
            raise ClusterError(f"{title} was not put live, nothing has changed for VMs: {error}") from error
    done: list[Change] = []
    wanted = {(kind, obj["metadata"]["name"]): obj for kind, obj in desired}
    try:
        for change in planned:
            obj = wanted[change.kind, t.cast(Object, change.after)["metadata"]["name"]]
            done.append(
                Change(change.kind, change.before, _write(cluster, change.kind, obj, change.before, dry_run=False))
            )
        if trial is not None:
            _prove(cluster, trial.probes, timeout, clock)
    except ClusterError as error:
        probe = trial.probes[0].pod if trial is not None else None
        raise ClusterError(f"{title}: {error} {_restore(cluster, done, desired, probe, timeout, clock)}") from error
    return done


def removal(live: t.Iterable[t.Mapping[str, t.Any]]) -> list[Change]:
    """What ``remove`` does to these objects of ours."""
    return [Change(kind_of(obj), t.cast(Object, obj), launcher_backends.left_of(obj)) for obj in live]


def remove(
    cluster: Cluster, changes: t.Iterable[Change], probe: Object | None, timeout: float, clock: Clock
) -> list[Change]:
    """Take what is live of ours away, in this order (see ``removal``).

    :param probe: a pod for the live policy, to wait until none acts any more; None where another stays.
    :raises ClusterError: when one still acts after ``timeout`` seconds.
    """
    done = []
    for change in changes:
        metadata = t.cast(Object, change.before)["metadata"]
        if change.after is not None:
            left = copy.deepcopy(change.after)
            left["metadata"]["resourceVersion"] = metadata["resourceVersion"]
            done.append(replace(change, after=cluster.replace(change.kind, left, dry_run=False)))
            continue
        name, uid = metadata["name"], metadata.get("uid")
        cluster.delete(change.kind, name, metadata.get("namespace"), uid=uid, dry_run=False)
        done.append(change)
    if probe is not None and done and not _await_digest(cluster, probe, None, timeout, clock):
        raise ClusterError(
            f"The policy was deleted but still changes {_subjects(probe)} after {timeout:.0f} s; see that all API "
            "servers work, then run again."
        )
    return done


def kind_of(obj: t.Mapping[str, t.Any]) -> Kind:
    """The kind of a policy, a binding or the ConfigMap, in the version it was read in."""
    return next(kind for kind in _KINDS if (kind.api_version, kind.name) == (obj["apiVersion"], obj["kind"]))


def _ours(cluster: Cluster, kind: Kind, obj: Object) -> Object | None:
    """The live object of that name.

    :raises ClusterError: when it is somebody else's.
    """
    metadata = obj["metadata"]
    live = cluster.get(kind, metadata["name"], metadata.get("namespace"))
    if live is None or kind == kinds.CONFIG_MAP:  # this one is the webhook's, and has our rules in it
        return live
    if (live["metadata"].get("labels") or {}).get(names.MANAGED_BY_LABEL) != names.MANAGED_BY:
        raise ClusterError(
            f"{kind} {metadata['name']} is there but not ours (it lacks the label {names.MANAGED_BY_LABEL}="
            f"{names.MANAGED_BY}); delete or rename it, then run again."
        )
    return live


def _write(cluster: Cluster, kind: Kind, obj: Object, live: Object | None, *, dry_run: bool) -> Object:
    """Create the object, or make the live one so; what others noted in its metadata stays."""
    if live is None:
        return cluster.create(kind, obj, dry_run=dry_run)
    wanted = copy.deepcopy(obj)
    wanted["metadata"] = {**copy.deepcopy(live["metadata"]), **wanted["metadata"]}
    for field in ("labels", "annotations"):
        noted = {
            key: value for key, value in (live["metadata"].get(field) or {}).items() if key not in _OUR_ANNOTATIONS
        }
        wanted["metadata"][field] = {**noted, **(obj["metadata"].get(field) or {})}
    wanted["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    try:
        return cluster.replace(kind, wanted, dry_run=dry_run)
    except Conflict as error:
        now = cluster.get(kind, obj["metadata"]["name"], obj["metadata"].get("namespace"))
        if error.maybe_applied and now is not None and objects.contains(now, obj):
            return now
        raise


def _restore(
    cluster: Cluster, done: t.Sequence[Change], desired: Desired, probe: Object | None, timeout: float, clock: Clock
) -> str:
    """Put back what was there before; a sentence on how that went."""
    if not done:
        return "Nothing was written."
    try:
        for change in reversed(done):
            written = t.cast(Object, change.after)
            if change.before is None:
                uid = written["metadata"]["uid"]
                cluster.delete(change.kind, written["metadata"]["name"], uid=uid, dry_run=False)
            else:
                _write(cluster, change.kind, change.before, written, dry_run=False)
        former = None if any(change.before is None for change in done) else _digest_before(cluster, desired)
        if probe is None or _await_digest(cluster, probe, former, timeout, clock):
            return "What was there before is in effect again."
    except ClusterError as error:
        return f"What was there before could not be put back: {error}"
    return (
        f"What was there before was put back, but does not show in probes after {timeout:.0f} s; see whether VMs start, and "
        "run again."
    )


def _digest_before(cluster: Cluster, desired: Desired) -> str | None:
    """The digest that the restored policy says it has."""
    kind, obj = desired[0]
    live = cluster.existing(kind, obj["metadata"]["name"], obj["metadata"].get("namespace"))
    value = (live["metadata"].get("annotations") or {}).get(names.POLICY_ANNOTATION)
    return str(value) if value is not None else None


# Trying -------------------------------------------------------------------------------------------------------------


def site(cluster: Cluster, found: Snapshot) -> Site:
    """Where probes are made on this cluster, which must have a virt-handler DaemonSet."""
    namespace = cluster.existing(kinds.NAMESPACE, found.namespace)
    handler = daemonsets.handler_image(t.cast(Object, found.primary))
    return Site(
        namespace=found.namespace,
        namespace_labels=namespace["metadata"].get("labels") or {},
        launcher_image=outdated_policy.stock_image(found) or handler,
        other_image=handler,
    )


def trial(made: Launchers, stage: int, where: Site) -> Trial | None:
    """How the policy of a stage is tried; None where no probe shows what it does."""
    table, found = made.stages[stage], made.snapshot
    candidate = launcher_backends.desired(
        made.choice.backend, table, found.namespace, found.admission or Admission(), names.CANDIDATE_POLICY
    )
    if not candidate:
        return None
    return Trial(
        candidate, probes.probes(table, where, names.CANDIDATE_POLICY), probes.probes(table, where, names.POLICY)
    )


def prove(cluster: Cluster, tried: t.Sequence[Probe], timeout: float, clock: Clock) -> str | None:
    """Try a policy until all its probes come out right; what is wrong when they do not within ``timeout`` seconds."""
    wrong = Persistence(clock, _PATIENCE_SECONDS)
    problem: str | None = None

    def pending() -> str | None:
        nonlocal problem
        problem, final = _attempt(cluster, tried)
        return None if wrong.lasts(final) else problem

    clock.wait(pending, timeout)
    return problem


def _prove(cluster: Cluster, tried: t.Sequence[Probe], timeout: float, clock: Clock) -> None:
    problem = prove(cluster, tried, timeout, clock)
    if problem is not None:
        raise ClusterError(problem)


def _try_out(cluster: Cluster, trial: Trial, timeout: float, clock: Clock) -> None:
    """Try the candidate, and take it away again. A killed run may have left one."""
    live = [_ours(cluster, kind, obj) for kind, obj in trial.candidate]
    try:
        for (kind, obj), former in zip(trial.candidate, live, strict=True):
            _write(cluster, kind, obj, former, dry_run=False)
        _prove(cluster, trial.candidate_probes, timeout, clock)
    finally:
        for kind, obj in reversed(trial.candidate):
            cluster.delete(kind, obj["metadata"]["name"], dry_run=False)


def _attempt(cluster: Cluster, tried: t.Sequence[Probe]) -> tuple[str | None, bool]:
    """What is wrong with the policy, None when nothing is; and whether that is more than that it does not act yet."""
    for probe in tried:
        try:
            result = _admitted(cluster, probe.pod)
            if probes.digest_in(result) != probes.digest_in(probe.expected):
                return _not_acting(probe, result), False
            problem = probe.problem(result, _admitted(cluster, probe.expected))
        except (Denied, Invalid) as error:
            problem = f"The probe {probe.name} was refused: {error}"
        if problem is not None:
            return problem, True
    return None, False


def _admitted(cluster: Cluster, probe: Object) -> Object:
    """What admission makes of a pod or node, which is stored nowhere."""
    return cluster.create(kinds.NODE if probe["kind"] == kinds.NODE.name else kinds.POD, probe, dry_run=True)


def _subjects(probe: Object) -> str:
    """What the policy that it is a probe of acts on."""
    return "new nodes" if probe["kind"] == kinds.NODE.name else "launcher pods"


def _not_acting(probe: Probe, result: Object) -> str:
    return (
        f"The policy does not act on {_subjects(probe.pod)}: the probe {probe.name} has "
        f"{probes.digest_in(result) or 'nothing'} in its annotation {names.POLICY_ANNOTATION}, it should have "
        f"{probes.digest_in(probe.expected)}."
    )


def _await_digest(cluster: Cluster, probe: Object, digest: str | None, timeout: float, clock: Clock) -> bool:
    """Wait until the policy of this digest (None: none) acts on the probe."""

    def pending() -> str | None:
        try:
            found = probes.digest_in(_admitted(cluster, probe))
        except (Denied, Invalid) as error:
            return str(error)
        return None if found == digest else "another acts"

    return clock.wait(pending, timeout) is None
