# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The verification: whether VMs, nodes, handlers, DaemonSets and the launcher policy are as the pools ask for.

A verifier takes in VMs one by one and counts them. It keeps only those that are not correct, up to a limit.
"""

from __future__ import annotations

import collections
import contextlib
import re
import typing as t
from dataclasses import dataclass, field, replace

from ..admission import outdated_policy
from ..admission.live_policy import Policy, leftovers
from ..base import names
from ..base.findings import CODES, Finding, InputErrors, Severity, counted, error, in_order
from ..base.objects import KubeObject
from ..kubevirt import daemonsets, image_contents, launcher_arguments, preflight
from ..observed.snapshot import Snapshot, is_pool_daemonset
from ..planning import assignment
from ..planning.outcome import RunOutcome
from ..planning.plan import DaemonSetChange, Plan
from ..pools.inputs import suggestion
from ..vms import matching
from ..vms.launcher_pods import LauncherImages, LauncherPod
from ..vms.mapping import Table
from . import node_checks, state
from .node_checks import NodeProblem
from .verdicts import FAILING, FINDINGS, VERDICTS, Judge, Judgement, Verdict, Vmi

_REPLACED = frozenset(
    {
        *("daemonset_drift", "launcher_refuses_arguments", "node_drift", "pool_unreadable"),
        *("workload_updates_never_end", "outdated_policy_not_served"),
    }
)
"""Findings of a state (by the recorded pools) and of a plan (on what a run may do) that a report replaces by its own."""

_ALWAYS_FAILING = frozenset({"approved_list_missing"})
"""An answer that a workflow waits for: without the approved change it must not end well."""

_ABOUT_LIST = _ALWAYS_FAILING | {"list_not_applied"}
"""Errors that come before all others: everything else is compared with another list than the given one."""

_CODE = re.compile(r"[a-z]+(_[a-z]+)*")
_MOST_DIFFERENCES = 3
_MOST_NAMED = 5
"""VMs that a finding names; a report lists more."""


FailOn: t.TypeAlias = "t.Literal['problems', 'any'] | frozenset[str]"


def read_fail_on(raw: object) -> FailOn:
    """What makes a check fail: ``problems``, ``any`` (also what is only listed), ``none``, or a list of codes.

    :raises InputErrors: for anything else.
    """
    if raw in ("problems", "any", "none"):
        return frozenset() if raw == "none" else t.cast("t.Literal['problems', 'any']", raw)
    codes = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(codes, (list, tuple)) or not all(isinstance(c, str) and _CODE.fullmatch(c) for c in codes):
        expected = "problems, any, none, or verdicts and codes of findings such as [wrong_image, no_handler]"
        raise InputErrors([f"virtpools_fail_on is {raw!r}; give {expected}."])
    known = {*CODES, "problems", "any", "none"}
    unknown = [
        f"virtpools_fail_on has {code}, which no verification reports{suggestion(code, known)}."
        for code in codes
        if code not in CODES
    ]
    if unknown:
        raise InputErrors(unknown)
    return frozenset(codes)


ReportDict = t.Mapping[str, t.Any]
"""What ``Report.to_dict`` returns."""


@dataclass(frozen=True)
class Report:
    """The result of a verification."""

    pools: tuple[dict[str, t.Any], ...]
    verdicts: t.Mapping[Verdict, int]
    unjudged: int
    """How many VMs have no launcher pod yet."""
    vms: tuple[Judgement, ...]
    """Those that are not correct, the worst first."""
    left_out: int
    """How many more of them there are."""
    nodes: tuple[dict[str, t.Any], ...]
    daemonsets: tuple[dict[str, t.Any], ...]
    policy: Policy
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> dict[str, int]:
        """What is wrong, by code: how many VMs have a failing verdict, and how many other errors there are."""
        return self._by_code("error", FAILING)

    @property
    def listed(self) -> dict[str, int]:
        """What is listed without being wrong, by code."""
        return self._by_code("warning", frozenset(VERDICTS) - FAILING - {"correct"})

    @property
    def healthy(self) -> bool:
        return not self.problems

    def failing(self, fail_on: FailOn = "problems") -> dict[str, int]:
        """What makes a check fail, by code; see ``read_fail_on``."""
        if fail_on == "problems":
            return self.problems
        codes = {**self.listed, **self.problems}
        chosen = codes if fail_on == "any" else fail_on | _ALWAYS_FAILING
        return {code: count for code, count in codes.items() if code in chosen}

    def failure(self, fail_on: FailOn = "problems") -> str:
        """Why a check fails, for people; empty when it does not."""
        failing = self.failing(fail_on)
        if not failing:
            return ""
        first = [finding.message for finding in self.findings if finding.code in _ABOUT_LIST & failing.keys()]
        others = sorted(failing.keys() - _ABOUT_LIST)
        if first and not self.problems.keys() - _ABOUT_LIST:
            return f"{' '.join(first)} Everything else is in order."
        because = [f"Failed because of: {', '.join(others)} (virtpools_fail_on)."] if others else []
        return " ".join([*first, self.summary, *because])

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        vms, nodes = sum(self.verdicts.values()), len(self.nodes)
        extent = f"{counted(vms, 'VM')} on {counted(nodes, 'node')} with {counted(len(self.pools) - 1, 'pool')}"
        extent += f", and {self.unjudged} more without a launcher pod yet" if self.unjudged else ""
        if self.healthy:
            more = code_counts(self.listed)
            return f"Everything is in order: {extent}" + (f"; listed: {more}." if more else ".")
        return f"Problems found: {code_counts(self.problems)}; checked {extent}."

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
            "vms": [vm.to_dict() for vm in self.vms],
            "vms_left_out": self.left_out,
            "nodes": list(self.nodes),
            "daemonsets": list(self.daemonsets),
            "policy": self.policy.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def _by_code(self, severity: str, verdicts: t.Collection[Verdict]) -> dict[str, int]:
        counts: dict[str, int] = {
            verdict: self.verdicts[verdict] for verdict in VERDICTS if verdict in verdicts and self.verdicts[verdict]
        }
        for finding in self.findings:
            if finding.severity == severity and finding.code not in VERDICTS:
                counts[finding.code] = counts.get(finding.code, 0) + 1
        return counts


@dataclass
class _Kept:
    """The judgements with one verdict: how many there are, and the first ``limit`` of them."""

    limit: int
    count: int = 0
    kept: list[Judgement] = field(default_factory=list)

    def add(self, judgement: Judgement) -> None:
        self.count += 1
        if len(self.kept) < max(self.limit, _MOST_NAMED):
            self.kept.append(judgement)

    def names(self) -> str:
        shown = [f"{vm.namespace}/{vm.name}" for vm in self.kept[:_MOST_NAMED]]
        more = self.count - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")


class Verifier:
    """Takes in the VMs of a cluster, first all VMIs and then all launcher pods, and then reports.

    A pod whose VMI is not known is judged without it.
    """

    def __init__(
        self,
        plan: Plan,
        policy: Policy | None = None,
        *,
        limit: int = 1000,
        seen: t.Callable[[LauncherPod], LauncherPod] | None = None,
        conflict: Finding | None = None,
        pause: RunOutcome | None = None,
    ) -> None:
        """
        :param policy: the live launcher policy, when the caller knows more about it than the plan shows.
        :param limit: how many VMs that are not correct are kept.
        :param seen: how a launcher pod is to be seen, where KubeVirt itself makes the pools.
        :param conflict: why the plan is not for the list that was given, but for the one that the cluster has.
        :param pause: of a run of these pools that stopped where it was asked to.
        """
        self._plan = plan
        self._conflict = conflict
        self._pause = pause
        self._policy = policy or Policy.from_rollout(plan.launcher_rollout)
        self._seen = seen or (lambda pod: pod)
        self._limit = limit
        self._judge = Judge.for_plan(plan, self._policy)
        self._table = self._judge.table
        self._stock = outdated_policy.stock_image(plan.snapshot) or ""
        self._vmis: dict[tuple[str, str], Vmi] = {}
        self._waiting: dict[tuple[str, str], LauncherPod] = {}
        self._judged: set[tuple[str, str]] = set()
        self._kept: dict[Verdict, _Kept] = {verdict: _Kept(limit) for verdict in VERDICTS}
        self._by_pool: collections.Counter[tuple[str, Verdict]] = collections.Counter()
        in_effect = None if plan.launcher_rollout is None else plan.launcher_rollout.in_effect
        self._in_effect = in_effect or Table(())
        images = {pool: image for pool, image in self._in_effect.images.items() if image}
        self._unusable = {pool: images[pool] for pool in launcher_arguments.unusable(images, plan.snapshot.kubevirt)}
        self._failed: collections.Counter[str] = collections.Counter()
        """Launcher pods of these pools that ended because virt-launcher refused an argument."""

    def add_vmi(self, vmi: KubeObject) -> None:
        known = Vmi.from_object(vmi, by_operator=self._plan.snapshot.by_operator)
        if not known.ended:
            self._vmis[known.namespace, known.name] = known

    def add_pod(self, pod: LauncherPod) -> None:
        """Take in a launcher pod. One that has ended is only counted where its launcher refuses what KubeVirt passes to it; one
        that virt-controller did not create is ignored."""
        pod = self._seen(pod)
        if self._unusable and pod.phase == "Failed" and pod.exit_code == launcher_arguments.EXIT_CODE:
            self._note_failure(pod)
        key = pod.namespace, pod.vmi
        if pod.ended or pod.terminating or pod.vmi_uid is None or key in self._judged:
            return
        vmi = self._vmis.get(key)
        if vmi is not None and (vmi.uid, vmi.node) == (pod.vmi_uid, pod.node):
            del self._vmis[key]
            self._judged.add(key)
            self._count(self._judge.judge(pod, vmi))
            return
        # Its VMI is not known, or was read before the pod was bound to its node or before a migration ended. When there are
        # several pods, the guest is in the oldest until that one ends.
        waiting = self._waiting.get(key)
        if waiting is None or pod.created < waiting.created:
            self._waiting[key] = pod

    def _note_failure(self, pod: LauncherPod) -> None:
        winner = matching.winner(self._in_effect, pod.attributes)
        image = self._unusable.get(winner.name) if winner is not None and pod.vmi_uid is not None else None
        if winner is None or image is None:
            return
        if not LauncherImages(self._in_effect, self._stock).wrong(pod.images_of(compute_only=True), image):
            self._failed[winner.name] += 1

    def report(self) -> Report:
        """The report on everything taken in."""
        unjudged = self._judge_waiting()
        vms = [vm for verdict in VERDICTS if verdict != "correct" for vm in self._kept[verdict].kept]
        rank = {verdict: number for number, verdict in enumerate(VERDICTS)}
        vms.sort(key=lambda vm: (rank[vm.verdict], vm.namespace, vm.name))
        incorrect = sum(kept.count for verdict, kept in self._kept.items() if verdict != "correct")
        examined = state.examine(self._plan.snapshot)
        problems = self._node_problems()
        sets, about_sets = self._daemonsets()
        findings = [
            *_about_nodes(problems.values()),
            *about_sets,
            *self._policy.findings(),
            *leftovers(self._plan.launcher_rollout),
            *(() if self._plan.snapshot.by_operator else outdated_policy.examine(self._plan.snapshot, self._table)),
            *self._about_vms(),
            *launcher_arguments.examine(self._unusable, self._plan.snapshot.kubevirt, self._failed),
            *(finding for finding in examined.findings if finding.code not in _REPLACED),
        ]
        codes = {finding.code for finding in findings} | _REPLACED
        findings += [finding for finding in self._plan.findings if finding.code not in codes]
        report = Report(
            pools=tuple(self._pools(examined)),
            verdicts={verdict: self._kept[verdict].count for verdict in VERDICTS},
            unjudged=unjudged,
            vms=tuple(vms[: self._limit]),
            left_out=incorrect - len(vms[: self._limit]),
            nodes=tuple(self._nodes(problems)),
            daemonsets=sets,
            policy=self._policy,
            findings=in_order(finding for finding in findings if finding.severity != "note"),
        )
        return report if self._conflict is None else _on_recorded_list(report, self._conflict)

    # VMs

    def _count(self, judgement: Judgement) -> None:
        if judgement.verdict == "correct":
            self._kept["correct"].count += 1
        else:
            self._kept[judgement.verdict].add(judgement)
        self._by_pool[judgement.pool or names.PRIMARY, judgement.verdict] += 1

    def _judge_waiting(self) -> int:
        """Judge the pods that were not where their VMI said. Returns how many VMIs have no pod to judge."""
        for key, pod in self._waiting.items():
            if key not in self._judged:
                vmi = self._vmis.pop(key, None)
                self._count(self._judge.judge(pod, vmi if vmi is not None and vmi.uid == pod.vmi_uid else None))
        self._waiting.clear()
        refused = [vmi for vmi in self._vmis.values() if vmi.problem is not None and not vmi.node]
        for vmi in refused:
            self._count(self._judge.without_pod(vmi))
        return len(self._vmis) - len(refused)

    def _about_vms(self) -> t.Iterator[Finding]:
        for verdict, words in FINDINGS.items():
            kept = self._kept[verdict]
            if kept.count:
                severity: Severity = "error" if verdict in FAILING else "warning"
                yield Finding(severity, verdict, f"{counted(kept.count, 'VM')} {words}: {kept.names()}.")

    # Pools, nodes and DaemonSets

    def _pools(self, examined: state.State) -> t.Iterator[dict[str, t.Any]]:
        owners = {owner.name: owner for owner in examined.owners}
        listed_pools = {*self._plan.pools, *self._plan.desired, *owners} - {names.PRIMARY}
        order = [*self._plan.pools, *sorted(listed_pools - {*self._plan.pools})]
        rules = self._table.images
        known = image_contents.by_image(self._plan.snapshot.pools)
        later = {} if self._plan.launcher_rollout is None else self._plan.launcher_rollout.full.images
        for name in (names.PRIMARY, *order):
            owner = owners.get(name)
            desired = self._plan.desired.get(name)
            image = daemonsets.handler_image(desired) if desired is not None else ""
            launcher = rules.get(name, later.get(name)) or self._stock
            yield {
                "name": name,
                "nodes": owner.nodes if owner is not None else 0,
                "ready": owner.ready if owner is not None else 0,
                "daemonset": _daemonset_name(name),
                "handler_image": owner.handler_image if owner is not None else image,
                "launcher_image": launcher,
                "launcher_contents": str(known.get(launcher or "", "")),
                "active": name in rules or name not in later,
                "starts_fail": name in self._unusable,
                "failed_launchers": self._failed[name],
                "vms": {verdict: self._by_pool[name, verdict] for verdict in VERDICTS},
            }

    def _node_problems(self) -> dict[str, NodeProblem]:
        """The first problem of each node that has one."""
        later = frozenset(self._pause.later if self._pause else ())
        facts = node_checks.Facts(self._plan.snapshot, plan=self._plan, later=later)
        checks = node_checks.VERIFICATION
        problems = (node_checks.first_problem(checks, facts, node) for node in facts.snapshot.nodes.values())
        return {problem.node: problem for problem in problems if problem is not None}

    def _nodes(self, problems: t.Mapping[str, NodeProblem]) -> t.Iterator[dict[str, t.Any]]:
        """Every node but those that have no handler, need none and have no problem."""
        snapshot = self._plan.snapshot
        left_out = assignment.idle(snapshot, snapshot.nodes) - problems.keys()
        for node in snapshot.nodes.values():
            if node.name in left_out:
                continue
            yield {
                "name": node.name,
                "owner": node.owner,
                "wanted": self._plan.wanted.get(node.name, node.owner),
                "problem": problems[node.name].check.code if node.name in problems else None,
                "handlers": len(snapshot.handlers.get(node.name, ())),
                "ready": node.ready,
            }

    def _daemonsets(self) -> tuple[tuple[dict[str, t.Any], ...], list[Finding]]:
        """Every owner's DaemonSet with its problems, and the findings on all of them."""
        snapshot = self._plan.snapshot
        changes = {change.pool: change for change in (*self._plan.daemonsets, *self._plan.retired)}
        live = node_checks.Facts(snapshot).daemonsets
        entries, findings = [], []
        for pool in dict.fromkeys((*live, *changes)):
            status = live.get(pool, {}).get("status") or {}
            desired, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
            name = _daemonset_name(pool)
            of_pool = [
                *self._daemonset_change(changes.get(pool)),
                *self._skew(self._plan.desired.get(pool)),
                *_daemonset_readiness(name, desired, ready, _on_unready_nodes(snapshot, name)),
            ]
            entry = {"name": name, "pool": pool, "desired": desired, "ready": ready}
            entries.append({**entry, "problems": [f.message for f in of_pool if f.severity == "error"]})
            findings += of_pool
        return tuple(entries), findings

    def _daemonset_change(self, change: DaemonSetChange | None) -> t.Iterator[Finding]:
        # A run deletes DaemonSets of pools that go when all nodes are handed over.
        if change is not None and not (change.action == "delete" and self._pause):
            yield _daemonset_change(change)

    def _skew(self, daemonset: KubeObject | None) -> t.Iterator[Finding]:
        """The version skew between a pool's images and KubeVirt, as after an upgrade of KubeVirt."""
        if daemonset is not None and is_pool_daemonset(daemonset):
            with contextlib.suppress(InputErrors):
                pool = daemonsets.pool_of(daemonset)
                yield from preflight.skew(self._plan.snapshot, [pool])


def _on_recorded_list(report: Report, conflict: Finding) -> Report:
    """The report on a cluster that has another list than the given one. A run of the given one would undo that list, so whatever
    advises a run says with which list."""

    def told(text: str) -> str:
        return text.replace("run site", "run site with the list that the cluster has")

    return replace(
        report,
        vms=tuple(replace(vm, remedy=told(vm.remedy)) for vm in report.vms),
        daemonsets=tuple({**each, "problems": [*map(told, each["problems"])]} for each in report.daemonsets),
        findings=(conflict, *(replace(finding, message=told(finding.message)) for finding in report.findings)),
    )


def _about_nodes(problems: t.Collection[NodeProblem]) -> t.Iterator[Finding]:
    """What comparing nodes with the pools tells beyond ``state.examine`` and the plan."""
    for check in (node_checks.WRONG_OWNER, node_checks.HANDLER_OUTDATED, node_checks.OTHER_IMAGE):
        of_check = [problem for problem in problems if problem.check is check]
        if of_check:
            yield check.finding(of_check)


def _daemonset_name(pool: str) -> str:
    return names.HANDLER if pool == names.PRIMARY else names.pool_daemonset_name(pool)


def _daemonset_change(change: DaemonSetChange) -> Finding:
    """What is wrong with a DaemonSet, by what a run would do about it."""
    if change.action == "create":
        return error("daemonset_missing", f"Pool {change.pool} has no DaemonSet {change.name}; run site.")
    if change.action == "delete":
        return error(
            "daemonset_left",
            f"DaemonSet {change.name} still exists, but pool {change.pool} is no longer in the list; run site.",
        )
    shown = "; ".join(map(str, change.differences[:_MOST_DIFFERENCES]))
    more = "; and more" if len(change.differences) > _MOST_DIFFERENCES else ""
    return error(
        "daemonset_drift",
        f"DaemonSet {change.name} is not what pool {change.pool} derives from the primary: {shown}{more}; run site.",
    )


def _daemonset_readiness(name: str, desired: int, ready: int, excused: int) -> t.Iterator[Finding]:
    if ready + excused < desired:
        more = f" ({excused} more are on nodes that are not Ready)" if excused else ""
        yield error(
            "daemonset_not_ready",
            f"DaemonSet {name} should have {counted(desired, 'Ready pod')}, and has {ready}{more}.",
        )


def _on_unready_nodes(snapshot: Snapshot, daemonset: str) -> int:
    """How many pods of a DaemonSet are not Ready because their node is not."""
    return sum(
        pod.daemonset == daemonset and not pod.ready
        for node in snapshot.unready_nodes
        for pod in snapshot.handlers.get(node, ())
    )


def code_counts(codes: t.Mapping[str, int]) -> str:
    """``2 wrong_image, 1 no_handler``."""
    return ", ".join(f"{count} {code}" for code, count in codes.items())
