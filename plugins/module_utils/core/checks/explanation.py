# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The explanation of one VM: what its launcher pod has now and why, and what its next start or a live migration will give."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ..admission import launcher_backends, outdated_policy
from ..admission.live_policy import Policy
from ..base import names
from ..base.findings import Finding, in_order, listed, warning
from ..base.objects import KubeObject, condition
from ..kubevirt import image_contents
from ..kubevirt.image_contents import Contents
from ..observed.nodes import Node
from ..observed.webhook import Rule
from ..planning import goals
from ..planning.plan import Plan
from ..pools.criteria import PodAttributes
from ..pools.model import Pool
from ..vms import matching, pool_choice, prediction
from ..vms.launcher_pods import LauncherPod, PodPlacement
from ..vms.mapping import Table
from ..vms.pool_choice import Explanation
from ..vms.prediction import Networks
from ..vms.rendering import Defaults
from .verdicts import Judge, Judgement, Vmi

When = t.Literal["now", "next start", "live migration"]


@dataclass(frozen=True)
class Subject:
    """The VM to explain, from a cluster or from files."""

    namespace: str
    name: str
    vm: KubeObject | None = None
    """With its instancetype and preference applied; None for a VM instance without a VirtualMachine."""
    vmi: KubeObject | None = None
    pods: tuple[LauncherPod, ...] = ()
    """All launcher pods of its name."""
    namespace_labels: t.Mapping[str, str] | None = None
    """None where they could not be read."""
    networks: Networks = field(default_factory=dict)
    """Those that it uses and that could be read."""
    in_cluster: bool = True


@dataclass(frozen=True)
class ExplainContext:
    """What a VM is explained by: a mapping table, all pools, and the nodes with their owners."""

    title: str
    """When this applies."""
    table: Table
    pools: tuple[Pool, ...]
    nodes: t.Mapping[str, Node]
    stock_image: str | None
    defaults: Defaults
    judge: Judge
    """Decides whether a running VM is as it should be."""
    places: bool = True
    """Whether the back end also chooses nodes for VMs, and not only images."""
    by_node_labels: bool = False
    """Whether it does so by a pool's node labels, as KubeVirt's own pools do, and not by the owner label."""
    by_webhook: bool = False
    """Whether it is kubevirt-aie-webhook."""
    findings: tuple[Finding, ...] = ()
    """What keeps the mapping from taking effect, or makes the cluster differ from it."""
    contents: t.Mapping[str, Contents] = field(default_factory=dict)
    """What images contain, where a run has looked into them."""
    webhook_rules: tuple[Rule, ...] = ()
    """The rules of kubevirt-aie-webhook that are not ours."""

    @classmethod
    def from_live_policy(cls, plan: Plan) -> ExplainContext:
        """What is in effect on the cluster now.

        :param plan: one for the pools that the cluster records.
        """
        rollout = plan.launcher_rollout
        policy, live = Policy.from_rollout(rollout), None
        if rollout is not None and plan.snapshot.admission is not None:
            live = launcher_backends.rules_object(plan.snapshot.admission)
        if rollout is None or live is None or policy.state == "missing":
            title, table = "no launcher policy is in effect; launcher pods stay as KubeVirt creates them", Table(())
        else:
            title = f"in effect now, by {live['kind']} {live['metadata']['name']}"
            table = rollout.in_effect or rollout.stages[0]
        found = cls._build(plan, title, table, goals.recorded(plan.snapshot), plan.snapshot.nodes)
        return replace(found, findings=tuple(policy.findings()))

    @classmethod
    def from_planned_policy(cls, plan: Plan, pools: t.Sequence[Pool]) -> ExplainContext:
        """What is in effect once a plan for these pools has been carried out."""
        rollout = plan.launcher_rollout
        table = Table(()) if rollout is None or rollout.choice.backend == "none" else rollout.stages[-1]
        given = {pool.name for pool in pools}
        kept = [pool for pool in goals.recorded(plan.snapshot) if pool.name in plan.desired and pool.name not in given]
        title = "as a run of site with this pool list would create it"
        return replace(cls._build(plan, title, table, (*pools, *kept), plan.nodes_after()), findings=plan.errors)

    @classmethod
    def _build(
        cls, plan: Plan, title: str, table: Table, pools: t.Sequence[Pool], nodes: t.Mapping[str, Node]
    ) -> ExplainContext:
        policy = Policy.from_rollout(plan.launcher_rollout)
        return cls(
            title=title,
            table=table,
            pools=tuple(pools),
            nodes=nodes,
            stock_image=outdated_policy.stock_image(plan.snapshot),
            defaults=Defaults.from_kubevirt(plan.snapshot.kubevirt),
            judge=Judge.for_plan(plan, policy),
            places=not policy.compute_only,
            by_webhook=policy.compute_only,
            contents=image_contents.by_image(plan.snapshot.pools),
            webhook_rules=launcher_backends.other_rules(plan.snapshot.admission),
        )


@dataclass(frozen=True)
class Case:
    """What a launcher pod gets: the present pod, or the one that a start or a migration creates."""

    when: When
    source: str
    """The object that this follows from."""
    explained: Explanation

    def to_dict(self) -> dict[str, t.Any]:
        return {"when": self.when, "source": self.source, **self.explained.to_dict()}


@dataclass(frozen=True)
class PodNow:
    """A launcher pod that exists."""

    pod: LauncherPod
    owner: str
    judgement: Judgement | None
    """None for the target of a migration."""
    by_operator: bool = False
    """Whether KubeVirt itself manages the pools."""
    by_webhook: bool = False
    """Whether kubevirt-aie-webhook is the back end."""

    def to_dict(self) -> dict[str, t.Any]:
        judged = self.judgement
        return {
            "name": self.pod.name,
            "phase": self.pod.phase,
            "node": self.pod.node,
            "owner": self.owner,
            "images": dict(self.pod.launcher_images),
            "stock_image": self.pod.stock,
            "hypervisor": self.pod.hypervisor,
            "pool": self.pod.pool_env,
            "policy": self.pod.policy_annotation,
            "webhook_image": self.pod.webhook_image,
            "migration_target": judged is None,
            "verdict": judged.verdict if judged is not None else None,
            "reason": judged.reason if judged is not None else None,
            "remedy": judged.remedy if judged is not None else None,
        }

    def lines(self) -> t.Iterator[str]:
        where = f"on node {self.pod.node} of {self.owner or 'no owner'}" if self.pod.node else "on no node yet"
        role = "target of a live migration, " if self.judgement is None else ""
        yield f"Launcher pod {self.pod.name} ({role}{self.pod.phase or 'no phase'}) {where}:"
        for place, image in self.pod.launcher_images.items():
            yield f"  {place}: {image}"
        if self.pod.stock_hypervisor is not None:
            yield f"  hypervisor: {self.pod.hypervisor}"
        yield from (f"  {line}" for line in self._admitted())
        if self.judgement is not None:
            why = f": {self.judgement.reason}" if self.judgement.reason else ""
            yield f"  verdict: {self.judgement.verdict}{why}"
            if self.judgement.remedy != "none":
                yield f"  remedy: {self.judgement.remedy}"

    def _admitted(self) -> t.Iterator[str]:
        """What kubevirt-aie-webhook, and the launcher policy or KubeVirt itself, did with the pod."""
        image = self.pod.webhook_image
        if image is not None:
            changed = "" if self.pod.by_webhook else ", and something else changed it afterwards"
            yield f"kubevirt-aie-webhook gave its container {names.COMPUTE} {image}{changed}"
        if not self.by_webhook:
            yield self._admitted_by_policy()
        elif image is None:
            yield "kubevirt-aie-webhook did not change it: no rule took it, or it was created without the webhook"

    def _admitted_by_policy(self) -> str:
        if self.by_operator and self.pod.operator_pool is None:
            return "KubeVirt recorded none of its own pools in it"
        pool, policy = self.pod.pool_env, self.pod.policy_annotation
        if self.pod.operator_pool is not None:
            return f"when it was created, KubeVirt's own pool {self.pod.operator_pool} matched it"
        if pool is None and policy is None:
            return "the launcher policy left no trace in it"
        matched = "no pool matched it" if pool in (None, names.PRIMARY) else f"pool {pool} matched it"
        return f"when it was created, {matched} (launcher policy {policy})"


@dataclass(frozen=True)
class VmExplanation:
    """The explanation of a VM."""

    title: str
    state: str
    mapping: str
    pods: tuple[PodNow, ...]
    cases: tuple[Case, ...]
    """The most important one first: the running pod or, without one, the next start."""
    notes: t.Mapping[When, str]
    """Why there is no case for the next start or a live migration."""
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, t.Any]:
        first = self.cases[0].explained if self.cases else None
        return {
            "vm": self.title,
            "state": self.state,
            "mapping": self.mapping,
            "pool": first.pool if first is not None else None,
            "image": (first.image or pool_choice.STOCK) if first is not None else None,
            "image_contents": first.contents if first is not None else "",
            "hypervisor": first.hypervisor if first is not None else None,
            "pods": [pod.to_dict() for pod in self.pods],
            "cases": [case.to_dict() for case in self.cases],
            "notes": dict(self.notes),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def lines(self) -> list[str]:
        """One page for a person."""
        lines = [f"{self.title}: {self.state}", f"Mapping: {self.mapping}"]
        lines += [f"{finding.severity.upper()} {finding.code}: {finding.message}" for finding in self.findings]
        lines += [line for pod in self.pods for line in pod.lines()]
        shown: list[Explanation] = []
        for case in self.cases:
            title = f"{case.when.capitalize()} (by {case.source})"
            if any(case.explained.answers == other.answers for other in shown):
                lines.append(f"{title}: the same, {case.explained.result()}")
            else:
                lines += [f"{title}:", *(f"  {line}" for line in case.explained.lines())]
                shown.append(case.explained)
        lines += [f"{when.capitalize()}: {note}" for when, note in self.notes.items()]
        return lines


def explain_vm(subject: Subject, context: ExplainContext) -> VmExplanation:
    """Explain a VM."""
    vmi = Vmi.from_object(subject.vmi, by_operator=context.by_node_labels) if subject.vmi is not None else None
    running = None if vmi is not None and vmi.ended else subject.vmi
    pods = _pods(subject, vmi)
    cases: list[Case] = []
    notes: dict[When, str] = {}
    findings = [*context.findings, *_unknown_namespace(subject, context)]

    def predict(when: When, source: str, template: KubeObject, pod: LauncherPod | None = None) -> None:
        predicted, nodes = _predicted(subject, context, template, pod), context.nodes
        if pod is not None:
            nodes = {name: node for name, node in nodes.items() if name != pod.node}
        findings.extend(predicted.findings)
        attributes = predicted.attributes
        if context.by_node_labels:
            attributes = PodAttributes.from_vmi(template, subject.namespace, subject.namespace_labels)
        cases.append(Case(when, source, _explained(context, attributes, predicted.placement, nodes)))

    if pods:
        current = pods[0]
        placement = current.placement.without_owner()
        asked = (vmi.asked if vmi is not None else None) or current.attributes
        cases.append(Case("now", f"launcher pod {current.name}", _explained(context, asked, placement)))
    elif running is not None:
        predict("now" if subject.in_cluster else "next start", "the VirtualMachineInstance", running)
    if subject.vm is not None:
        predict("next start", "the VirtualMachine", subject.vm["spec"]["template"])
    elif subject.in_cluster:
        notes["next start"] = "it has no VirtualMachine, so nothing starts it again once it has ended."
    if running is not None and pods:
        refusal = _non_migratable(running)
        if refusal is None:
            predict("live migration", "the VirtualMachineInstance", running, pods[0])
        else:
            notes["live migration"] = f"not possible; KubeVirt reports: {refusal}"
    return VmExplanation(
        title=f"{'VirtualMachine' if subject.vm is not None else 'VirtualMachineInstance'} {subject.namespace}/{subject.name}",
        state=_state(subject, vmi, pods),
        mapping=context.title,
        pods=tuple(_pod_now(pod, context, vmi, is_current=pod is pods[0]) for pod in pods),
        cases=tuple(cases),
        notes=notes,
        findings=in_order((*findings, *_labels_outside(subject, context, cases), *_webhook_rule(context, cases))),
    )


def _labels_outside(subject: Subject, context: ExplainContext, cases: t.Iterable[Case]) -> t.Iterator[Finding]:
    """A warning if another pool would take the VM by labels of the VirtualMachine, which do not reach its launcher pod."""
    labels = ((subject.vm or {}).get("metadata") or {}).get("labels") or {}
    asked = next((case.explained.attributes for case in cases if case.when == "next start"), None)
    if asked is None:
        return
    outside = {key: str(value) for key, value in sorted(labels.items()) if key not in asked.labels}

    def pool_with(*, without: str = "") -> str:
        added = {key: value for key, value in outside.items() if key != without}
        winner = matching.winner(context.table, replace(asked, labels={**asked.labels, **added}))
        return winner.name if winner is not None else names.PRIMARY

    now, pool = matching.winner(context.table, asked), pool_with()
    if pool != (now.name if now is not None else names.PRIMARY):
        needed = [f"{key}={value}" for key, value in outside.items() if pool_with(without=key) != pool]
        yield warning(
            "label_not_in_template",
            f"Pool {pool} would take this VM by labels that stand on the VirtualMachine only ({listed(needed)}). KubeVirt gives "
            "launcher pods the labels of spec.template.metadata: put them there, and restart the VM.",
        )


def _webhook_rule(context: ExplainContext, cases: t.Iterable[Case]) -> t.Iterator[Finding]:
    """A warning if kubevirt-aie-webhook gives the VM another image than the mapping."""
    for explained in (case.explained for case in cases):
        if context.by_webhook and explained.pool != names.PRIMARY:
            continue  # Rules of pools are the first ones.
        asked = explained.attributes
        rule = next((rule for rule in context.webhook_rules if rule.takes(asked.devices, asked.labels)), None)
        if rule is not None and rule.image != explained.image:
            yield warning(
                "aie_rule_takes_vm",
                f"Rule {rule.name} of kubevirt-aie-webhook takes this VM: its container {names.COMPUTE} starts with {rule.image}, "
                "not with the image that the mapping gives it.",
            )
            return


def _unknown_namespace(subject: Subject, context: ExplainContext) -> t.Iterator[Finding]:
    if subject.namespace_labels is None and any(map(_by_namespace_labels, context.table.rules)):
        yield warning(
            "namespace_unknown",
            f"Namespace {subject.namespace} could not be read. The explanation assumes that pools which select namespaces by "
            "labels do not match this VM.",
        )


def _predicted(
    subject: Subject, context: ExplainContext, template: KubeObject, pod: LauncherPod | None
) -> prediction.Prediction:
    """The pod that virt-controller would create from the spec of a VM instance; with ``pod`` to migrate the VM from that one."""
    return prediction.predict(
        template,
        subject.namespace,
        subject.namespace_labels,
        name=subject.name,
        defaults=context.defaults,
        networks=subject.networks,
        moving_from=None if pod is None else (pod, context.nodes.get(pod.node)),
    )


def _explained(
    context: ExplainContext,
    attributes: PodAttributes,
    placement: PodPlacement,
    nodes: t.Mapping[str, Node] | None = None,
) -> Explanation:
    rules = pool_choice.Rules(
        context.table,
        context.pools,
        context.stock_image,
        context.places,
        by_node_labels=context.by_node_labels,
        contents=context.contents,
    )
    return pool_choice.explain(rules, attributes, placement, context.nodes if nodes is None else nodes)


def _pods(subject: Subject, vmi: Vmi | None) -> list[LauncherPod]:
    """The active launcher pods, the one with the guest first; during a migration there are two."""
    active = [
        pod
        for pod in subject.pods
        if not pod.ended and not pod.terminating and pod.vmi_uid is not None and (vmi is None or pod.vmi_uid == vmi.uid)
    ]
    node = vmi.node if vmi is not None else ""
    return sorted(
        active, key=lambda pod: (pod.node != node or not node, pod.migration is not None, pod.created, pod.name)
    )


def _pod_now(pod: LauncherPod, context: ExplainContext, vmi: Vmi | None, *, is_current: bool) -> PodNow:
    node = context.nodes.get(pod.node)
    owner = node.owner if node is not None else ""
    judgement = context.judge.judge(pod, vmi) if is_current else None
    return PodNow(pod, owner, judgement, by_operator=context.by_node_labels, by_webhook=context.by_webhook)


def _by_namespace_labels(rule: Pool) -> bool:
    return rule.selector is not None and bool(rule.selector.namespaces and rule.selector.namespaces.match_labels)


def _non_migratable(vmi: KubeObject) -> str | None:
    """Why a VM instance cannot be live-migrated; None when it can, or KubeVirt does not say."""
    migratable = condition(vmi, "LiveMigratable")
    if migratable.get("status") != "False":
        return None
    return migratable.get("message") or migratable.get("reason") or "it gives no reason"


def _state(subject: Subject, vmi: Vmi | None, pods: t.Sequence[LauncherPod]) -> str:
    if not subject.in_cluster:
        return "not in the cluster"
    if vmi is None and not pods:
        vm = subject.vm or {}
        status = (vm.get("status") or {}).get("printableStatus")
        strategy = (vm.get("spec") or {}).get("runStrategy")
        parts = [status, f"runStrategy {strategy}" if strategy else None]
        return f"is not running ({', '.join(part for part in parts if part) or 'no status'})"
    phase = ((subject.vmi or {}).get("status") or {}).get("phase") or (pods[0].phase if pods else "") or "no phase"
    if pods:
        return f"{phase} on node {pods[0].node}" if pods[0].node else f"{phase}, on no node yet"
    problem = f": {vmi.problem}" if vmi is not None and vmi.problem else ""
    return f"{phase}, without a launcher pod{problem}"
