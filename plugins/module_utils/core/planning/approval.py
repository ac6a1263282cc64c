# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The approval of plans in a workflow: what one job publishes of its plans, and the digest that a later job takes from it.

What is published is ``{host: {run: {"digest": ..., ...}}}``, one entry for each cluster and kind of run. Ansible merges what
several hosts publish.
"""

from __future__ import annotations

import typing as t
from collections import Counter

from ..base.findings import Finding, InputErrors, counted, error, listed
from .history import Entry, History
from .plan import DESIRED_OBJECTS, Digest, Plan
from .progress import RolloutScope

Run = t.Literal["site", "rollback", "remove", "upgrade"]
"""``site``: a run that brings a pool list, in waves or not."""

Published: t.TypeAlias = "dict[str, dict[str, dict[str, t.Any]]]"

_MOST_PAIRS = 10


class ClusterId(t.NamedTuple):
    """What tells a cluster from others."""

    server: str
    """The API server's address; empty for objects from files."""
    uid: str
    """Empty where the user may not read it."""

    def __str__(self) -> str:
        return f"{self.server} (UID {self.uid})"


class Approvable(t.Protocol):
    """A plan, as its approval knows it."""

    @property
    def digest(self) -> Digest: ...

    @property
    def pending(self) -> bool: ...

    @property
    def findings(self) -> tuple[Finding, ...]: ...

    @property
    def sizes(self) -> t.Mapping[str, int]: ...

    @property
    def summary(self) -> str: ...


class Lists(t.NamedTuple):
    """Of a run that brings a list: what a job that undoes or verifies it must know. Both are digests as the history has them."""

    list: str
    before: str
    """``History.present`` when the run was planned."""


def publish(
    host: str,
    run: Run,
    proposal: Approvable,
    cluster: ClusterId,
    lists: Lists | None = None,
    earlier: t.Any = None,
) -> Published:
    """What a job publishes of its plan.

    :param host: the cluster's name in the inventory.
    :param lists: None for a run that brings no list.
    :param earlier: what an earlier job published. AWX keeps only the last value of a variable, and later jobs need the plans
        of other kinds of runs, too.
    """
    severities = Counter(finding.severity for finding in proposal.findings)
    entry = {
        "digest": str(proposal.digest),
        "pending": proposal.pending,
        **proposal.sizes,
        "errors": severities["error"],
        "warnings": severities["warning"],
        "summary": proposal.summary,
        **cluster._asdict(),
        **(lists._asdict() if lists is not None else {}),
    }
    kept = earlier.get(host) if isinstance(earlier, dict) else None
    return {host: {**(kept or {}), run: entry}}


def summary(plan: Plan, scope: RolloutScope) -> str:
    """A plan in one line, for the person who approves it."""
    if plan.errors:
        return f"refused, because {' '.join(finding.message for finding in plan.errors)}"
    if not scope.pending:
        return "no change"
    parts = [*plan.gates.lines]
    if plan.exclusion.changed:
        parts.append("every primary virt-handler restarts" if not plan.undoing else "the exclusion is removed")
    if plan.daemonsets:
        parts.append(counted(len(plan.daemonsets), "DaemonSet changes", "DaemonSets change"))
    if plan.moves:
        parts.append(moves_in_words(plan))
    if plan.launcher_rollout and plan.launcher_rollout.steps:
        parts.append("the launcher policy changes")
    if plan.retired:
        parts.append(f"DaemonSets of {listed(change.pool for change in plan.retired)} are deleted")
    warnings = sum(finding.severity == "warning" for finding in plan.findings)
    if warnings:
        parts.append(counted(warnings, "warning"))
    return "; ".join(parts or ["policies and records change"])


def moves_in_words(plan: Plan) -> str:
    """How many nodes change, and how."""
    pairs = Counter(
        f"{move.source} -> {move.target}" if move.source != move.target else f"new handlers in {move.target}"
        for move in plan.moves
    )
    shown = [f"{pair}: {count}" for pair, count in sorted(pairs.items())]
    more = f", {len(shown) - _MOST_PAIRS} more" if len(shown) > _MOST_PAIRS else ""
    nodes, batches = counted(len(plan.moves), "node"), counted(len(plan.batches), "batch", "batches")
    return f"{nodes} in {batches} ({', '.join(shown[:_MOST_PAIRS])}{more})"


def digest_of(published: t.Any, host: str, run: Run, cluster: ClusterId) -> str | None:
    """The digest of the plan that was published for this host and kind of run; None when there is none of this kind.

    :param cluster: the one that the host's name stands for now.
    :raises InputErrors: when there is one for other hosts only or for another cluster, and for what no job of ours publishes.
    """
    try:
        entries = {name: runs.get(run) for name, runs in published.items()}
        plans = {
            name: (str(entry["digest"]), ClusterId(entry["server"], entry["uid"]))
            for name, entry in entries.items()
            if entry is not None
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise InputErrors(
            ["virtpools_plan is not what the playbook plan publishes; leave it out, and give virtpools_expected_plan."]
        ) from error
    if not plans:
        return None
    if host not in plans:
        others = f"virtpools_plan has a plan of {run} for {listed(plans)}, but not for {host}"
        raise InputErrors([f"{others}; plan for {host} as well, or limit the run to the others."])
    digest, there = plans[host]
    if there.uid and cluster.uid and there.uid != cluster.uid:
        other = f"virtpools_plan has a plan of {run} that was made for {there}, but {host} is {cluster} now"
        raise InputErrors([f"{other}; correct how {host} reaches its cluster, or plan again and approve that plan."])
    return digest


def expected_digest(params: t.Mapping[str, t.Any], run: Run, cluster: ClusterId, *, changes: bool) -> str | None:
    """The digest of the approved plan, by a module's options; None when there is none.

    :param cluster: the one that the run is about to change.
    :param changes: whether the plan is carried out, so that the approval may be required.
    :raises InputErrors: when it is required and missing, or when it is of other clusters.
    """
    host = params["cluster_name"]
    expected: str | None = params["expected_plan"] or digest_of(params["published_plan"] or {}, host, run, cluster)
    if params["require_approval"] and changes and not expected:
        raise InputErrors([_missing(host, run)])
    return expected


def rollback_target(published: t.Any, host: str, cluster: ClusterId, known: History) -> Entry | None:
    """The list that a rollback goes back to in a workflow: that of the rollback that was approved or, before, the one that the
    cluster had when its plan was made. None when no plan of these kinds was published.

    :raises InputErrors: when the published plan is of other clusters, and when there is no list to go back to.
    """
    approved = _lists(published, host, "rollback", cluster)
    if approved is not None:
        return known.find(approved.list)
    undone = _lists(published, host, "site", cluster)
    return known.undo_target(*undone) if undone is not None else None


def missing_list(published: t.Any, host: str, cluster: ClusterId, known: History) -> Finding | None:
    """An error when the cluster does not have the list of the plan that was approved: its run was refused, failed or was undone.

    :raises InputErrors: when the published plan is of other clusters.
    """
    lists = _lists(published, host, "site", cluster)
    if lists is None or known.present == lists.list:
        return None
    has = "what it had before" if known.present == lists.before else f"list {known.present}, of another run"
    return error(
        "approved_list_missing",
        f"The cluster does not have the approved list {lists.list}, but {has}: the run was refused or failed, or a rollback undid it.",
    )


def _lists(published: t.Any, host: str, run: Run, cluster: ClusterId) -> Lists | None:
    if digest_of(published or {}, host, run, cluster) is None:
        return None
    entry = published[host][run]
    return Lists(entry["list"], entry["before"])


def check(
    digest: Digest, expected: str | None, *, begun: str = "", objects: str = DESIRED_OBJECTS, pending: bool = True
) -> None:
    """Compare a plan with the approved one.

    :param expected: the approved digest; None when no plan was approved.
    :param begun: the digest with which an unfinished move began.
    :param objects: what the digest's part for objects is about, in words.
    :param pending: whether the plan would change anything.
    :raises InputErrors: with what changed since.
    """
    changed = digest.mismatch(expected, begun=begun, objects=objects, pending=pending) if expected else None
    if changed:
        again = f"Read the plan again, then approve {digest}."
        raise InputErrors([f"The plan is not the approved one: {changed} changed since. {again}"])


def _missing(host: str, run: Run) -> str:
    """The sentence that refuses a run which needs an approval and has none."""
    how = "the playbook plan" if run == "site" else f"{run} --check"
    return (
        f"virtpools_require_approval is true, and no plan of {run} was approved for {host}: run {how}, read the plan, and "
        "give its digest as virtpools_expected_plan. In a workflow of AWX the digest comes from the job before."
    )
