# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is everything as the pools ask for: every VM's launcher image and node, every node's handler, DaemonSets, the policy.

VMs come in one by one and are counted; only those with something to tell are kept, up to a limit.
"""

from __future__ import annotations

import collections
import contextlib
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    daemonsets,
    names,
    outdated_policy,
    preflight,
    state,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    InputErrors,
    error,
    in_order,
    listed,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.live_policy import Policy, leftovers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import DaemonSetChange, Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import KubeObject, Snapshot, is_ours
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verdicts import (
    FAILING,
    VERDICTS,
    Judge,
    Judgement,
    Verdict,
    Vmi,
)

_TOLD_ANEW = frozenset(
    {"daemonset_drift", "node_drift", "pool_unreadable", "workload_updates_never_end", "outdated_policy_not_served"}
)
"""Findings of a state (compared with the recorded pools) and of a plan (what a run may do) for which a report has its own."""

_CODE = re.compile(r"[a-z]+(_[a-z]+)*")
_MOST_DIFFERENCES = 3
_MOST_NAMED = 5
"""In a finding; a report lists more."""


FailOn: t.TypeAlias = "t.Literal['problems', 'any'] | frozenset[str]"


def read_fail_on(raw: object) -> FailOn:
    """What a check is to fail on: ``problems``, ``any`` (what is only listed, too), ``none``, or a list of codes.

    :raises InputErrors: when it is something else.
    """
    if raw in ("problems", "any", "none"):
        return frozenset() if raw == "none" else t.cast("t.Literal['problems', 'any']", raw)
    codes = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(codes, (list, tuple)) or not all(isinstance(c, str) and _CODE.fullmatch(c) for c in codes):
        expected = "problems, any, none, or verdicts and codes of findings such as [wrong_image, no_handler]"
        raise InputErrors([f"fail_on is {raw!r}; give {expected}."])
    return frozenset(codes)


@dataclass(frozen=True)
class Report:
    """What was found. ``vms`` are those with something to tell, the worst first; ``left_out`` more were not kept."""

    pools: tuple[dict[str, t.Any], ...]
    verdicts: t.Mapping[Verdict, int]
    unjudged: int
    vms: tuple[Judgement, ...]
    left_out: int
    nodes: tuple[dict[str, t.Any], ...]
    daemonsets: tuple[dict[str, t.Any], ...]
    policy: Policy
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> dict[str, int]:
        """What is wrong, by code: how many VMs have a verdict, how many other errors there are."""
        return self._by_code("error", FAILING)

    @property
    def listed(self) -> dict[str, int]:
        """What is told without being wrong, by code."""
        return self._by_code("warning", frozenset(VERDICTS) - FAILING - {"correct"})

    @property
    def healthy(self) -> bool:
        return not self.problems

    def failing(self, fail_on: FailOn = "problems") -> dict[str, int]:
        """What makes a check fail; see ``read_fail_on``."""
        if fail_on == "problems":
            return self.problems
        found = {**self.listed, **self.problems}
        return found if fail_on == "any" else {code: count for code, count in found.items() if code in fail_on}

    @property
    def summary(self) -> str:
        """All of it in one sentence."""
        vms, nodes = sum(self.verdicts.values()), len(self.nodes)
        extent = f"{vms} VM(s) on {nodes} node(s) with {len(self.pools) - 1} pool(s)"
        if self.healthy:
            more = _words(self.listed)
            return f"Everything is in order: {extent}" + (f"; to know: {more}." if more else ".")
        return f"Something is wrong: {_words(self.problems)}; looked at {extent}."

    def to_dict(self) -> dict[str, t.Any]:
        """The report as plain data."""
        return {
            "healthy": self.healthy,
            "summary": self.summary,
            "counts": {
                "vms": sum(self.verdicts.values()),
                "unjudged": self.unjudged,
                "nodes": len(self.nodes),
                "pools": len(self.pools) - 1,
                "problems": sum(self.problems.values()),
                "listed": sum(self.listed.values()),
            },
            "problems": self.problems,
            "listed": self.listed,
            "pools": list(self.pools),
            "verdicts": dict(self.verdicts),
            "vms": [found.to_dict() for found in self.vms],
            "vms_left_out": self.left_out,
            "nodes": list(self.nodes),
            "daemonsets": list(self.daemonsets),
            "policy": self.policy.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def _by_code(self, severity: str, verdicts: t.Collection[Verdict]) -> dict[str, int]:
        found: dict[str, int] = {
            verdict: self.verdicts[verdict] for verdict in VERDICTS if verdict in verdicts and self.verdicts[verdict]
        }
        for finding in self.findings:
            if finding.severity == severity and finding.code not in VERDICTS:
                found[finding.code] = found.get(finding.code, 0) + 1
        return found


@dataclass
class _Kept:
    """Judgements of one verdict: how many there are, and the first ``limit`` of them."""

    limit: int
    count: int = 0
    kept: list[Judgement] = field(default_factory=list)

    def add(self, found: Judgement) -> None:
        self.count += 1
        if len(self.kept) < max(self.limit, _MOST_NAMED):
            self.kept.append(found)

    def names(self) -> str:
        shown = [f"{found.namespace}/{found.name}" for found in self.kept[:_MOST_NAMED]]
        more = self.count - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")


class Verifier:
    """Takes in the VMs of a cluster: first all VMIs, then all launcher pods, then it reports.

    Where VMIs are not known, pods are judged by themselves.
    """

    def __init__(
        self, plan: Plan, policy: Policy | None = None, *, allow_skew: bool = False, limit: int = 1000
    ) -> None:
        """``policy``: where more is known of it than the plan shows. ``limit``: how many VMs with something to tell are
        kept."""
        self._plan = plan
        self._policy = policy or Policy.of(plan.launchers)
        self._allow_skew = allow_skew
        self._limit = limit
        self._judge = Judge.of(plan, self._policy)
        self._table = self._judge.table
        self._stock = outdated_policy.stock_image(plan.snapshot) or ""
        self._vmis: dict[tuple[str, str], Vmi] = {}
        self._waiting: dict[tuple[str, str], LauncherPod] = {}
        self._judged: set[tuple[str, str]] = set()
        self._kept: dict[Verdict, _Kept] = {verdict: _Kept(limit) for verdict in VERDICTS}
        self._by_pool: collections.Counter[tuple[str, Verdict]] = collections.Counter()

    def add_vmi(self, vmi: KubeObject) -> None:
        found = Vmi.of(vmi)
        if not found.ended:
            self._vmis[found.namespace, found.name] = found

    def add_pod(self, pod: LauncherPod) -> None:
        """A launcher pod. One that has ended, or that virt-controller did not make, is nothing to judge."""
        key = pod.namespace, pod.vmi
        if pod.ended or pod.terminating or pod.vmi_uid is None or key in self._judged:
            return
        vmi = self._vmis.get(key)
        if vmi is not None and (vmi.uid, vmi.node) == (pod.vmi_uid, pod.node):
            del self._vmis[key]
            self._judged.add(key)
            self._take(self._judge.judge(pod, vmi))
            return
        # Its VMI is not known, or was read before the pod was bound to its node or a migration ended. Of several pods the
        # guest is in the oldest, until that one ends.
        waiting = self._waiting.get(key)
        if waiting is None or pod.created < waiting.created:
            self._waiting[key] = pod

    def report(self) -> Report:
        unjudged = self._judge_waiting()
        vms = [found for verdict in VERDICTS if verdict != "correct" for found in self._kept[verdict].kept]
        worst = {verdict: number for number, verdict in enumerate(VERDICTS)}
        vms.sort(key=lambda found: (worst[found.verdict], found.namespace, found.name))
        known = sum(kept.count for verdict, kept in self._kept.items() if verdict != "correct")
        examined = state.examine(self._plan.snapshot)
        problems = self._node_problems()
        sets, about_sets = self._daemonsets()
        findings = [
            *self._about_nodes(problems),
            *about_sets,
            *self._policy.findings(),
            *leftovers(self._plan.launchers),
            *outdated_policy.examine(self._plan.snapshot, self._table),
            *self._about_vms(),
            *(found for found in examined.findings if found.code not in _TOLD_ANEW),
        ]
        told = {found.code for found in findings} | _TOLD_ANEW
        findings += [found for found in self._plan.findings if found.code not in told]
        return Report(
            pools=tuple(self._pools(examined)),
            verdicts={verdict: self._kept[verdict].count for verdict in VERDICTS},
            unjudged=unjudged,
            vms=tuple(vms[: self._limit]),
            left_out=known - len(vms[: self._limit]),
            nodes=tuple(self._nodes(problems)),
            daemonsets=sets,
            policy=self._policy,
            findings=in_order(found for found in findings if found.severity != "note"),
        )

    # VMs

    def _take(self, found: Judgement) -> None:
        if found.verdict == "correct":
            self._kept["correct"].count += 1
        else:
            self._kept[found.verdict].add(found)
        self._by_pool[found.pool or names.PRIMARY, found.verdict] += 1

    def _judge_waiting(self) -> int:
        """Judge the pods that were not where a VMI said; how many VMIs have none to judge."""
        for key, pod in self._waiting.items():
            if key not in self._judged:
                vmi = self._vmis.pop(key, None)
                self._take(self._judge.judge(pod, vmi if vmi is not None and vmi.uid == pod.vmi_uid else None))
        self._waiting.clear()
        refused = [vmi for vmi in self._vmis.values() if vmi.trouble is not None and not vmi.node]
        for vmi in refused:
            self._take(self._judge.without_pod(vmi))
        return len(self._vmis) - len(refused)

    def _about_vms(self) -> t.Iterator[Finding]:
        wrong_image, wrong_node = self._kept["wrong_image"], self._kept["wrong_node"]
        not_covered, pending = self._kept["not_covered"], self._kept["pending"]
        outdated = self._kept["outdated"]
        if wrong_image.count:
            yield error(
                "wrong_image",
                f"{wrong_image.count} VM(s) run a launcher image that is not the one they should have: "
                f"{wrong_image.names()}.",
            )
        if wrong_node.count:
            yield error("wrong_node", f"{wrong_node.count} VM(s) run on nodes of another owner: {wrong_node.names()}.")
        if not_covered.count:
            yield error(
                "not_covered",
                f"{not_covered.count} VM(s) run on nodes without a Ready virt-handler: {not_covered.names()}.",
            )
        if pending.count:
            yield error("pending", f"{pending.count} VM(s) cannot start: {pending.names()}.")
        if outdated.count:
            yield warning(
                "outdated",
                f"{outdated.count} VM(s) are older than what they would get now, and get it when they are restarted or "
                f"migrated: {outdated.names()}.",
            )

    # Pools, nodes and DaemonSets

    def _pools(self, examined: state.State) -> t.Iterator[dict[str, t.Any]]:
        owners = {owner.name: owner for owner in examined.owners}
        listed_pools = {*self._plan.pools, *self._plan.desired, *owners} - {names.PRIMARY}
        order = [*self._plan.pools, *sorted(listed_pools - {*self._plan.pools})]
        rules = self._table.images
        later = {} if self._plan.launchers is None else self._plan.launchers.full.images
        for name in (names.PRIMARY, *order):
            owner = owners.get(name)
            desired = self._plan.desired.get(name)
            image = daemonsets.handler_image(desired) if desired is not None else ""
            yield {
                "name": name,
                "nodes": owner.nodes if owner is not None else 0,
                "ready": owner.ready if owner is not None else 0,
                "daemonset": _daemonset_name(name),
                "handler_image": owner.handler_image if owner is not None else image,
                "launcher_image": rules.get(name, later.get(name)) or self._stock,
                "active": name in rules or name not in later,
                "vms": {verdict: self._by_pool[name, verdict] for verdict in VERDICTS},
            }

    def _node_problems(self) -> dict[str, str]:
        """The code of what is wrong with each node."""
        found = state.node_problems(self._plan.snapshot)
        codes = {"move": "wrong_owner", "finish": "handover_unfinished", "replace": "handler_outdated"}
        for move in self._plan.moves:
            found.setdefault(move.node, codes[move.action])
        for node in self._plan.snapshot.nodes.values():
            if self._plan.wanted.get(node.name, node.owner) != node.owner:
                found.setdefault(node.name, "node_held_back")
        return found

    def _about_nodes(self, problems: t.Mapping[str, str]) -> t.Iterator[Finding]:
        """What comparing with the pools tells beyond ``state.examine``."""
        strayed = [node for node, code in problems.items() if code == "wrong_owner"]
        if strayed:
            shown = [f"{n} ({self._plan.snapshot.nodes[n].owner}, not {self._plan.wanted[n]})" for n in strayed]
            yield error(
                "wrong_owner",
                f"{len(strayed)} node(s) belong to another owner than the pools say: {listed(shown)}; run site.",
            )
        stale = [node for node, code in problems.items() if code == "handler_outdated"]
        if stale:
            yield error(
                "handler_outdated",
                f"{len(stale)} node(s) run a handler made from an earlier template of its DaemonSet: {listed(stale)}; run "
                "site.",
            )

    def _nodes(self, problems: t.Mapping[str, str]) -> t.Iterator[dict[str, t.Any]]:
        for node in self._plan.snapshot.nodes.values():
            yield {
                "name": node.name,
                "owner": node.owner,
                "wanted": self._plan.wanted.get(node.name, node.owner),
                "problem": problems.get(node.name),
                "handlers": len(self._plan.snapshot.handlers.get(node.name, ())),
                "ready": node.ready,
            }

    def _daemonsets(self) -> tuple[tuple[dict[str, t.Any], ...], list[Finding]]:
        """Every owner's DaemonSet with what is wrong with it, and the findings on them."""
        snapshot = self._plan.snapshot
        changes = {change.pool: change for change in (*self._plan.daemonsets, *self._plan.retired)}
        primary = {} if snapshot.primary is None else {names.PRIMARY: snapshot.primary}
        live: dict[str, KubeObject] = {**primary, **snapshot.pools}
        entries, findings = [], []
        for pool in dict.fromkeys((*live, *changes)):
            status = live.get(pool, {}).get("status") or {}
            desired, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
            name = _daemonset_name(pool)
            told = [
                *_daemonset_change(changes.get(pool)),
                *self._skew(self._plan.desired.get(pool)),
                *_daemonset_readiness(name, desired, ready, _on_unready_nodes(snapshot, name)),
            ]
            entry = {"name": name, "pool": pool, "desired": desired, "ready": ready}
            entries.append({**entry, "problems": [found.message for found in told if found.severity == "error"]})
            findings += told
        return tuple(entries), findings

    def _skew(self, daemonset: KubeObject | None) -> t.Iterator[Finding]:
        """Whether a pool's images are of another version than KubeVirt, as after its upgrade."""
        if daemonset is not None and is_ours(daemonset):
            with contextlib.suppress(InputErrors):
                pool = daemonsets.pool_of(daemonset)
                yield from preflight.skew(self._plan.snapshot, [pool], self._allow_skew)


def _daemonset_name(pool: str) -> str:
    return names.HANDLER if pool == names.PRIMARY else names.pool_daemonset_name(pool)


def _daemonset_change(change: DaemonSetChange | None) -> t.Iterator[Finding]:
    """What a run would do about a DaemonSet, as what is wrong with it."""
    if change is None:
        return
    if change.action == "create":
        yield error("daemonset_missing", f"Pool {change.pool} has no DaemonSet {change.name}; run site.")
    elif change.action == "delete":
        yield error(
            "daemonset_left",
            f"DaemonSet {change.name} is there, and pool {change.pool} is gone from the list; run site.",
        )
    else:
        shown = "; ".join(map(str, change.differences[:_MOST_DIFFERENCES]))
        more = "; and more" if len(change.differences) > _MOST_DIFFERENCES else ""
        yield error(
            "daemonset_drift",
            f"DaemonSet {change.name} is not what pool {change.pool} derives from the primary: {shown}{more}; run site.",
        )


def _daemonset_readiness(name: str, desired: int, ready: int, excused: int) -> t.Iterator[Finding]:
    if ready + excused < desired:
        told = f" ({excused} more are on nodes that are not Ready)" if excused else ""
        yield error("daemonset_not_ready", f"DaemonSet {name} wants {desired} pod(s), and {ready} are Ready{told}.")


def _on_unready_nodes(snapshot: Snapshot, daemonset: str) -> int:
    """How many pods of a DaemonSet are not Ready because their node is not."""
    return sum(
        pod.daemonset == daemonset and not pod.ready
        for node in snapshot.unready_nodes
        for pod in snapshot.handlers.get(node, ())
    )


def _words(codes: t.Mapping[str, int]) -> str:
    """``2 wrong_image, 1 no_handler``."""
    return ", ".join(f"{count} {code}" for code, count in codes.items())
