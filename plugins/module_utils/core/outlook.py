# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One VM explained: what its launcher pod has now and why, and what the next start and a live migration will give it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    explanation,
    launcher_backends,
    names,
    outdated_policy,
    plan,
    prediction,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.explanation import Explanation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, in_order, warning
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod, Placement
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.live_policy import Policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.matching import Asked
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.prediction import Defaults, Networks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verdicts import Judge, Judgement, Vmi

KubeObject = t.Mapping[str, t.Any]
When = t.Literal["now", "next start", "live migration"]


@dataclass(frozen=True)
class Subject:
    """A VM as it was found, in a cluster or in files.

    ``vm`` has its instancetype and preference applied; None for a VM instance without one. ``pods`` are all launcher pods
    of its name. ``namespace_labels``: None where they could not be read. ``networks``: those that its networks name, as far
    as they could be read.
    """

    namespace: str
    name: str
    vm: KubeObject | None = None
    vmi: KubeObject | None = None
    pods: tuple[LauncherPod, ...] = ()
    namespace_labels: t.Mapping[str, str] | None = None
    networks: Networks = field(default_factory=dict)
    in_cluster: bool = True


@dataclass(frozen=True)
class Mapping:
    """What VMs are explained with: the table, all pools, and the nodes with their owners. ``title`` says when it holds.

    ``judge``: says whether a running VM is as it should be. ``places``: whether VMs are led to nodes, too, and not only given
    images. ``findings``: what keeps the mapping from coming true.
    """

    title: str
    table: Table
    pools: tuple[Pool, ...]
    nodes: t.Mapping[str, Node]
    stock_image: str | None
    defaults: Defaults
    judge: Judge
    places: bool = True
    findings: tuple[Finding, ...] = ()

    @classmethod
    def in_effect(cls, made: Plan) -> Mapping:
        """What is in effect on a plan's cluster, whose recorded pools were planned."""
        found = made.launchers
        live = None
        if found is not None and made.snapshot.admission is not None:
            live = launcher_backends.in_effect(made.snapshot.admission)
        if found is None or live is None:
            title, table = "no launcher policy is in effect, launcher pods stay as KubeVirt makes them", Table(())
        else:
            title = f"in effect now, by {live['kind']} {live['metadata']['name']}"
            table = found.in_effect or found.stages[0]
        return cls._of(made, title, table, plan.recorded(made.snapshot), made.snapshot.nodes)

    @classmethod
    def after(cls, made: Plan, pools: t.Sequence[Pool]) -> Mapping:
        """What is in effect once a plan for these pools has been carried out."""
        found = made.launchers
        table = Table(()) if found is None or found.choice.backend == "none" else found.stages[-1]
        given = {pool.name for pool in pools}
        kept = [pool for pool in plan.recorded(made.snapshot) if pool.name in made.desired and pool.name not in given]
        nodes = {name: made.snapshot.nodes[name].owned_by(node.owner) for name, node in made.nodes_after().items()}
        title = "as a run of site with this pool list would make it"
        return replace(cls._of(made, title, table, (*pools, *kept), nodes), findings=made.errors)

    @classmethod
    def _of(cls, made: Plan, title: str, table: Table, pools: t.Sequence[Pool], nodes: t.Mapping[str, Node]) -> Mapping:
        policy = Policy.of(made.launchers)
        return cls(
            title=title,
            table=table,
            pools=tuple(pools),
            nodes=nodes,
            stock_image=outdated_policy.stock_image(made.snapshot),
            defaults=Defaults.of(made.snapshot.kubevirt),
            judge=Judge.of(made, policy),
            places=not policy.compute_only,
        )


@dataclass(frozen=True)
class Case:
    """What a launcher pod gets: the present one, or the one that a start or a migration makes. ``source``: what says so."""

    when: When
    source: str
    explained: Explanation

    def to_dict(self) -> dict[str, t.Any]:
        return {"when": self.when, "source": self.source, **self.explained.to_dict()}


@dataclass(frozen=True)
class PodNow:
    """A launcher pod that is there. Of a migration's target nothing is judged."""

    pod: LauncherPod
    owner: str
    judgement: Judgement | None

    def to_dict(self) -> dict[str, t.Any]:
        judged = self.judgement
        return {
            "name": self.pod.name,
            "phase": self.pod.phase,
            "node": self.pod.node,
            "owner": self.owner,
            "images": dict(self.pod.launcher_images),
            "stock_image": self.pod.stock,
            "pool": self.pod.pool_env,
            "policy": self.pod.policy_annotation,
            "migration_target": judged is None,
            "verdict": judged.verdict if judged is not None else None,
            "reason": judged.reason if judged is not None else None,
            "remedy": judged.remedy if judged is not None else None,
        }

    def lines(self) -> t.Iterator[str]:
        where = f"on node {self.pod.node} of {self.owner or 'nobody'}" if self.pod.node else "on no node yet"
        role = "target of a live migration, " if self.judgement is None else ""
        yield f"Launcher pod {self.pod.name} ({role}{self.pod.phase or 'no phase'}) {where}:"
        for place, image in self.pod.launcher_images.items():
            yield f"  {place}: {image}"
        yield f"  {self._admitted()}"
        if self.judgement is not None:
            why = f": {self.judgement.reason}" if self.judgement.reason else ""
            yield f"  verdict: {self.judgement.verdict}{why}"
            if self.judgement.remedy != "none":
                yield f"  remedy: {self.judgement.remedy}"

    def _admitted(self) -> str:
        """What the launcher policy made of the pod."""
        pool, policy = self.pod.pool_env, self.pod.policy_annotation
        if pool is None and policy is None:
            return "the launcher policy left no trace in it"
        taken = "no pool took it" if pool in (None, names.PRIMARY) else f"pool {pool} took it"
        return f"when it was made, {taken} (launcher policy {policy})"


@dataclass(frozen=True)
class Outlook:
    """A VM explained. ``cases`` begin with the one that counts most: the running pod, else the next start.

    ``notes`` say why there is no case for the next start or a live migration.
    """

    title: str
    state: str
    mapping: str
    pods: tuple[PodNow, ...]
    cases: tuple[Case, ...]
    notes: t.Mapping[When, str]
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, t.Any]:
        first = self.cases[0].explained if self.cases else None
        return {
            "vm": self.title,
            "state": self.state,
            "mapping": self.mapping,
            "pool": first.pool if first is not None else None,
            "image": (first.image or explanation.STOCK) if first is not None else None,
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
            if any(case.explained.same_pools(other) for other in shown):
                lines.append(f"{title}: the pools answer the same, {case.explained.result()}")
            else:
                lines += [f"{title}:", *(f"  {line}" for line in case.explained.lines())]
                shown.append(case.explained)
        lines += [f"{when.capitalize()}: {note}" for when, note in self.notes.items()]
        return lines


def look(subject: Subject, mapping: Mapping) -> Outlook:
    """Explain a VM."""
    vmi = Vmi.of(subject.vmi) if subject.vmi is not None else None
    running = None if vmi is not None and vmi.ended else subject.vmi
    pods = _pods(subject, vmi)
    cases: list[Case] = []
    notes: dict[When, str] = {}
    findings = list(mapping.findings)

    def predict(when: When, source: str, template: KubeObject, nodes: t.Mapping[str, Node] = mapping.nodes) -> None:
        found = prediction.predict(
            template,
            subject.namespace,
            subject.namespace_labels,
            name=subject.name,
            defaults=mapping.defaults,
            networks=subject.networks,
        )
        findings.extend(found.findings)
        cases.append(Case(when, source, _explained(mapping, found.asked, found.placement, nodes)))

    if pods:
        current = pods[0]
        placement = current.placement.without_owner()
        cases.append(Case("now", f"launcher pod {current.name}", _explained(mapping, current.asked, placement)))
    elif running is not None:
        predict("now" if subject.in_cluster else "next start", "the VirtualMachineInstance", running)
    if subject.vm is not None:
        predict("next start", "the VirtualMachine", subject.vm["spec"]["template"])
    elif subject.in_cluster:
        notes["next start"] = "it has no VirtualMachine, so nothing starts it again once it has ended."
    if running is not None and pods:
        refusal = _immovable(running)
        if refusal is None:
            others = {name: node for name, node in mapping.nodes.items() if name != pods[0].node}
            predict("live migration", "the VirtualMachineInstance", running, others)
        else:
            notes["live migration"] = f"not possible, KubeVirt says: {refusal}"
    if subject.namespace_labels is None and any(map(_by_namespace_labels, mapping.table.rules)):
        findings.append(
            warning(
                "namespace_unknown",
                f"Namespace {subject.namespace} could not be read, and pools select namespaces by labels; they are taken for "
                "ones that do not take this VM.",
            )
        )
    return Outlook(
        title=f"{'VirtualMachine' if subject.vm is not None else 'VirtualMachineInstance'} {subject.namespace}/{subject.name}",
        state=_state(subject, vmi, pods),
        mapping=mapping.title,
        pods=tuple(_pod_now(pod, mapping, vmi, is_current=pod is pods[0]) for pod in pods),
        cases=tuple(cases),
        notes=notes,
        findings=in_order(findings),
    )


def _explained(
    mapping: Mapping, asked: Asked, placement: Placement, nodes: t.Mapping[str, Node] | None = None
) -> Explanation:
    return explanation.explain(
        mapping.table,
        asked,
        pools=mapping.pools,
        stock_image=mapping.stock_image,
        placement=placement,
        nodes=mapping.nodes if nodes is None else nodes,
        places=mapping.places,
    )


def _pods(subject: Subject, vmi: Vmi | None) -> list[LauncherPod]:
    """The launcher pods that are at work, the one that has the guest first; during a migration there are two."""
    found = [
        pod
        for pod in subject.pods
        if not pod.ended and not pod.terminating and pod.vmi_uid is not None and (vmi is None or pod.vmi_uid == vmi.uid)
    ]
    node = vmi.node if vmi is not None else ""
    return sorted(
        found, key=lambda pod: (pod.node != node or not node, pod.migration is not None, pod.created, pod.name)
    )


def _pod_now(pod: LauncherPod, mapping: Mapping, vmi: Vmi | None, *, is_current: bool) -> PodNow:
    node = mapping.nodes.get(pod.node)
    owner = node.owner if node is not None else ""
    return PodNow(pod, owner, mapping.judge.judge(pod, vmi) if is_current else None)


def _by_namespace_labels(rule: Pool) -> bool:
    return rule.selector is not None and bool(rule.selector.namespaces and rule.selector.namespaces.match_labels)


def _immovable(vmi: KubeObject) -> str | None:
    """Why a VM instance cannot be live-migrated; None when it can, or KubeVirt does not say."""
    for condition in (vmi.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "LiveMigratable" and condition.get("status") == "False":
            return condition.get("message") or condition.get("reason") or "it gives no reason"
    return None


def _state(subject: Subject, vmi: Vmi | None, pods: t.Sequence[LauncherPod]) -> str:
    if not subject.in_cluster:
        return "not in the cluster"
    if vmi is None and not pods:
        vm = subject.vm or {}
        status = (vm.get("status") or {}).get("printableStatus")
        strategy = (vm.get("spec") or {}).get("runStrategy")
        found = [status, f"runStrategy {strategy}" if strategy else None]
        return f"does not run ({', '.join(part for part in found if part) or 'no status'})"
    phase = ((subject.vmi or {}).get("status") or {}).get("phase") or (pods[0].phase if pods else "") or "no phase"
    if pods:
        return f"{phase} on node {pods[0].node}" if pods[0].node else f"{phase}, on no node yet"
    trouble = f": {vmi.trouble}" if vmi is not None and vmi.trouble else ""
    return f"{phase}, without a launcher pod{trouble}"
