# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Writes admission policies. A broken launcher policy stops every VM from starting, and API servers only compile it.

So we first try a policy as a candidate that acts on our probes only, then write it under its own name, then try it
again; if that fails, we restore what was there before. We create and replace policies, and do not use server-side
apply: it merges a policy's variables by name, and variables have an order.
"""

from __future__ import annotations

import copy
import typing as t

from ...core.admission import outdated_policy, probes
from ...core.admission.live_policy import Policy
from ...core.admission.probes import Desired, Probe, Site, Trial
from ...core.base import kinds, names, objects
from ...core.base.kinds import Kind
from ...core.base.objects import Change, KubeObject, Object, foreign_message, is_managed
from ...core.kubevirt import daemonsets
from ...core.observed.snapshot import Snapshot
from ...core.planning.plan import Plan
from ..api.client import Cluster, ClusterError, Conflict, DeleteOptions, Denied, Invalid, WebhookDown
from ..api.waiting import Clock, Persistence

_PATIENCE_SECONDS = 3.0
"""How long a probe must stay wrong to be an error: a server may still be reading the policy, or a webhook may
be restarting."""

_KINDS = (
    *kinds.MUTATING_ADMISSION_POLICIES,
    *kinds.MUTATING_ADMISSION_POLICY_BINDINGS,
    kinds.VALIDATING_ADMISSION_POLICY,
    kinds.VALIDATING_ADMISSION_POLICY_BINDING,
    kinds.KYVERNO_MUTATING_POLICY,
    kinds.CONFIG_MAP,
)
_OUR_ANNOTATIONS = (names.MAPPING_ANNOTATION, names.POLICY_ANNOTATION, names.FORMER_RULES_ANNOTATION)


def preview(cluster: Cluster, desired: Desired, leaving: t.Iterable[Change] = ()) -> list[Change]:
    """What ``put`` would change, as the server would store it, and after that the changes ``leaving``, which are known.

    :raises ClusterError: when the server refuses an object, or an object that is not ours has its name.
    """
    changes = []
    for kind, obj in desired:
        live = _live_object(cluster, kind, obj)
        change = Change(live, _write(cluster, kind, obj, live, dry_run=True))
        if change.changed:
            changes.append(change)
    return [*changes, *leaving]


def put(cluster: Cluster, desired: Desired, trial: Trial | None, timeout: float, clock: Clock) -> list[Change]:
    """Try these objects, then write those that differ on the cluster, in this order. Returns the changes.

    :param trial: None for objects whose effect no probe shows.
    :param timeout: seconds that the API servers may take to act by a policy.
    :raises ClusterError: when this fails; the objects before are then restored, or the message gives the reason.
    """
    planned = preview(cluster, desired)
    if not planned:
        return []
    title = f"{kind_of(planned[0].present)} {desired[0][1]['metadata']['name']}"
    if trial is not None:
        try:
            _try_out(cluster, trial, timeout, clock)
        except ClusterError as error:
            raise ClusterError(f"{title} was not activated, nothing has changed for VMs: {error}") from error
    done: list[Change] = []
    wanted = {(kind, obj["metadata"]["name"]): obj for kind, obj in desired}
    writes = [(each.before, wanted[kind_of(each.present), each.present["metadata"]["name"]]) for each in planned]
    try:
        for before, obj in writes:
            done.append(Change(before, _write(cluster, kind_of(obj), obj, before, dry_run=False)))
        if trial is not None:
            _prove(cluster, trial.probes, timeout, clock)
    except ClusterError as error:
        probe = trial.probes[0].pod if trial is not None else None
        unanswered = writes[len(done)] if error.maybe_applied and len(done) < len(writes) else None
        restored = _restore(cluster, done, unanswered, desired, probe, timeout, clock)
        raise ClusterError(f"{title}: {error} {restored}", maybe_applied=unanswered is not None) from error
    return done


def remove(
    cluster: Cluster, changes: t.Iterable[Change], probe: Object | None, timeout: float, clock: Clock
) -> list[Change]:
    """Remove our live objects, in this order. Returns the changes.

    :param probe: a probe of the policy, to wait until no policy acts on it; None when another policy stays.
    :raises ClusterError: when a policy still acts after ``timeout`` seconds.
    """
    done = []
    for change in changes:
        metadata = t.cast(Object, change.before)["metadata"]
        kind = kind_of(t.cast(Object, change.before))
        if change.after is not None:
            remaining = copy.deepcopy(dict(change.after))
            remaining["metadata"]["resourceVersion"] = metadata["resourceVersion"]
            done.append(Change(change.before, cluster.replace(kind, remaining, dry_run=False)))
            continue
        options = DeleteOptions(uid=metadata.get("uid"))
        cluster.delete(kind, metadata["name"], metadata.get("namespace"), options, dry_run=False)
        done.append(change)
    if probe is not None and done and not _await_digest(cluster, probe, None, timeout, clock):
        again = [
            str(change.before["kind"])
            for change in done
            if change.before and not change.after and _exists(cluster, change.before)
        ]
        advice = (
            f"another client has created its {' and '.join(again)} again. See who did that, such as a GitOps tool, and make it "
            "leave them out"
            if again
            else "check that all API servers work"
        )
        raise ClusterError(
            f"The policy was deleted but still changes {_subjects(probe)} after {timeout:.0f} s; {advice}, then run again."
        )
    return done


def _exists(cluster: Cluster, obj: KubeObject) -> bool:
    metadata = obj["metadata"]
    return cluster.get(kind_of(obj), metadata["name"], metadata.get("namespace")) is not None


def kind_of(obj: t.Mapping[str, t.Any]) -> Kind:
    """The kind of a policy, a binding or the ConfigMap, in the API version that it was read in."""
    return next(kind for kind in _KINDS if (kind.api_version, kind.name) == (obj["apiVersion"], obj["kind"]))


def _live_object(cluster: Cluster, kind: Kind, obj: Object) -> Object | None:
    """The live object with the name of ``obj``.

    :raises ClusterError: when it is not ours.
    """
    metadata = obj["metadata"]
    live = cluster.get(kind, metadata["name"], metadata.get("namespace"))
    if live is None or kind == kinds.CONFIG_MAP:  # The ConfigMap is the webhook's; our rules are a part of it.
        return live
    if not is_managed(live):
        raise ClusterError(foreign_message(f"{kind} {metadata['name']}"))
    return live


def _write(cluster: Cluster, kind: Kind, obj: KubeObject, live: KubeObject | None, *, dry_run: bool) -> Object:
    """Create the object, or replace the live one; labels and annotations of others stay."""
    if live is None:
        return cluster.create(kind, dict(obj), dry_run=dry_run)
    wanted: Object = copy.deepcopy(dict(obj))
    wanted["metadata"] = {**copy.deepcopy(live["metadata"]), **wanted["metadata"]}
    for field in ("labels", "annotations"):
        kept = {key: value for key, value in (live["metadata"].get(field) or {}).items() if key not in _OUR_ANNOTATIONS}
        wanted["metadata"][field] = {**kept, **(obj["metadata"].get(field) or {})}
    # The ConfigMap also has rules of others: what we write belongs to the version that the plan has seen.
    seen = obj["metadata"].get("resourceVersion") if kind == kinds.CONFIG_MAP else None
    wanted["metadata"]["resourceVersion"] = seen or live["metadata"]["resourceVersion"]
    try:
        return cluster.replace(kind, wanted, dry_run=dry_run)
    except Conflict as error:
        now = cluster.get(kind, obj["metadata"]["name"], obj["metadata"].get("namespace"))
        if error.maybe_applied and now is not None and objects.contains(now, _of_any_version(obj)):
            return now
        raise


def _of_any_version(obj: KubeObject) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}


def _restore(
    cluster: Cluster,
    done: t.Sequence[Change],
    unanswered: tuple[KubeObject | None, Object] | None,
    desired: Desired,
    probe: Object | None,
    timeout: float,
    clock: Clock,
) -> str:
    """Restore what was there before. Returns a sentence that says how that went.

    :param unanswered: the former and the new object of a write that got no answer, and may have been carried out.
    """
    maybe = ""
    try:
        if unanswered is not None:
            before, wanted = unanswered
            kind, name = kind_of(wanted), wanted["metadata"]["name"]
            maybe = f"{kind} {name} may have been written. "
            live = cluster.get(kind, name, wanted["metadata"].get("namespace"))
            if live is not None and objects.contains(live, _of_any_version(wanted)):
                done = [*done, Change(before, live)]
        if not done:
            return "Nothing was written."
        for change in reversed(done):
            written = t.cast(Object, change.after)
            if change.before is None:
                options = DeleteOptions(uid=written["metadata"]["uid"])
                cluster.delete(kind_of(written), written["metadata"]["name"], options=options, dry_run=False)
            else:
                live = _as_it_is_now(cluster, written)
                _write(cluster, kind_of(written), _of_any_version(change.before), live, dry_run=False)
        former = None if any(change.before is None for change in done) else _digest_before(cluster, desired)
        if probe is None or _await_digest(cluster, probe, former, timeout, clock):
            return "The former state is in effect again."
    except ClusterError as error:
        return f"{maybe}The former state could not be restored: {error}"
    return (
        f"The former state was restored, but probes do not show it after {timeout:.0f} s; check whether VMs start, then run "
        "again."
    )


def _as_it_is_now(cluster: Cluster, written: Object) -> Object:
    """An object of ours with what others have noted on it since: Kyverno writes the status of each policy. One whose content another
    client has changed stays as we wrote it, so that it is not written over."""
    live = cluster.get(kind_of(written), written["metadata"]["name"], written["metadata"].get("namespace"))
    return live if live is not None and _content(live) == _content(written) else written


def _content(obj: KubeObject) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _digest_before(cluster: Cluster, desired: Desired) -> str | None:
    """The digest in the annotation of the restored policy."""
    kind, obj = desired[0]
    return probes.digest_in(cluster.existing(kind, obj["metadata"]["name"], obj["metadata"].get("namespace")))


# Trying -------------------------------------------------------------------------------------------------------------


def probe_site(cluster: Cluster, snapshot: Snapshot) -> Site:
    """Where probes are made on this cluster, which must have a virt-handler DaemonSet."""
    namespace = cluster.existing(kinds.NAMESPACE, snapshot.namespace)
    handler = daemonsets.handler_image(t.cast(Object, snapshot.primary))
    return Site(
        namespace=snapshot.namespace,
        namespace_labels=namespace["metadata"].get("labels") or {},
        launcher_image=outdated_policy.stock_image(snapshot) or handler,
        other_image=handler,
    )


def await_probes(cluster: Cluster, tried: t.Sequence[Probe], timeout: float, clock: Clock) -> str | None:
    """Send probes until all show that the policy works. Returns what is wrong after ``timeout`` seconds, else None."""
    wrong = Persistence(clock, _PATIENCE_SECONDS)
    problem: str | None = None

    def pending() -> str | None:
        nonlocal problem
        problem, is_wrong = _problem(cluster, tried)
        return None if wrong.lasts(is_wrong) else problem

    clock.wait(pending, timeout)
    return problem


def _prove(cluster: Cluster, tried: t.Sequence[Probe], timeout: float, clock: Clock) -> None:
    problem = await_probes(cluster, tried, timeout, clock)
    if problem is not None:
        raise ClusterError(problem)


def _try_out(cluster: Cluster, trial: Trial, timeout: float, clock: Clock) -> None:
    """Write the candidate, try it, and delete it. A killed run may have left one behind."""
    live = [_live_object(cluster, kind, obj) for kind, obj in trial.candidate]
    try:
        for (kind, obj), former in zip(trial.candidate, live, strict=True):
            _write(cluster, kind, obj, former, dry_run=False)
        _prove(cluster, trial.candidate_probes, timeout, clock)
    finally:
        for kind, obj in reversed(trial.candidate):
            cluster.delete(kind, obj["metadata"]["name"], dry_run=False)


def _problem(cluster: Cluster, tried: t.Sequence[Probe]) -> tuple[str | None, bool]:
    """What is wrong with the policy, if anything; and whether that is more than a policy that does not act yet."""
    for probe in tried:
        try:
            result = _admitted(cluster, probe.pod)
            if probes.digest_in(result) != probes.digest_in(probe.expected):
                return _not_acting(probe, result), False
            problem = probe.problem(result, _admitted(cluster, probe.expected))
        except WebhookDown:  # It was tried for long enough.
            raise
        except (Denied, Invalid) as error:
            problem = f"The probe {probe.name} was refused: {error}"
        if problem is not None:
            return problem, True
    return None, False


def _admitted(cluster: Cluster, probe: Object) -> Object:
    """What admission makes of a pod or node. Nothing is stored."""
    return cluster.create(kinds.NODE if probe["kind"] == kinds.NODE.name else kinds.POD, probe, dry_run=True)


def _subjects(probe: Object) -> str:
    """What the policy of this probe acts on, in words."""
    return "new nodes" if probe["kind"] == kinds.NODE.name else "launcher pods"


def _not_acting(probe: Probe, result: Object) -> str:
    return (
        f"The policy does not act on {_subjects(probe.pod)}: the probe {probe.name} has "
        f"{probes.digest_in(result) or 'nothing'} in its annotation {names.POLICY_ANNOTATION}, it should have "
        f"{probes.digest_in(probe.expected)}."
    )


def _await_digest(cluster: Cluster, probe: Object, digest: str | None, timeout: float, clock: Clock) -> bool:
    """Wait until the policy with this digest (None: no policy) acts on the probe. Returns whether it does."""

    def pending() -> str | None:
        try:
            acting = probes.digest_in(_admitted(cluster, probe))
        except WebhookDown as error:
            # No launcher pod can be created, whatever our policies are. What was deleted must not wait for a repair.
            return None if digest is None else str(error)
        except (Denied, Invalid) as error:
            return str(error)
        return (
            None
            if acting == digest
            else f"the API servers do not act by the launcher policy {digest or 'that was deleted'} yet."
        )

    return clock.wait(pending, timeout) is None


_LIVE_PROBE_SECONDS = 10.0
"""Probes of a live policy may take so long to come out right; less than for a new one, as all servers have read it."""


def probed_policy(cluster: Cluster, plan: Plan, clock: Clock) -> Policy:
    """The state of the launcher policy. A live policy is tried with probes, which needs the right to create pods."""
    policy, rollout = Policy.from_rollout(plan.launcher_rollout), plan.launcher_rollout
    if rollout is None or policy.state != "live":
        return policy
    trial = rollout.trial_of(rollout.stages[0], lambda: probe_site(cluster, plan.snapshot))
    try:
        problem = await_probes(cluster, trial.probes, _LIVE_PROBE_SECONDS, clock) if trial is not None else None
    except WebhookDown as error:
        problem = str(error)
    return policy if problem is None else policy.failing(problem.rstrip("."))
