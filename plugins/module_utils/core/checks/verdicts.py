# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The verdict on one VM: whether its launcher pod has the images that the mapping gives it, on a node of its pool that has a
handler.

A pod that differs from what the mapping would make now is *outdated* when it is older than the launcher policy or was made
under an earlier mapping. It is wrong when the present policy made it, or should have.
"""

from __future__ import annotations

import collections
import datetime
import sys
import typing as t
from dataclasses import dataclass

from ..admission import launcher_backends, outdated_policy
from ..admission.live_policy import Policy
from ..base import names
from ..base.findings import counted, printable
from ..base.objects import KubeObject, condition
from ..kubevirt import launcher_arguments
from ..observed.nodes import Node, timestamp
from ..observed.snapshot import Snapshot
from ..planning.plan import Plan
from ..planning.relocation import Mobility, Targets
from ..pools.criteria import PodAttributes
from ..pools.model import Pool
from ..vms import matching
from ..vms.launcher_pods import COMPUTE_PLACE, LauncherImages, LauncherPod
from ..vms.mapping import Table

Verdict = t.Literal[
    "wrong_image", "wrong_node", "no_ready_handler", "at_risk", "pending", "unknown_image", "outdated", "correct"
]
VERDICTS: tuple[Verdict, ...] = t.get_args(Verdict)
"""The worst first: a VM has the first verdict that applies."""
FAILING: frozenset[Verdict] = frozenset({"wrong_image", "wrong_node", "no_ready_handler", "at_risk", "pending"})
"""These are problems. Others are only listed: an outdated VM gets the new images when it starts again."""
FINDINGS: t.Mapping[Verdict, str] = {
    "wrong_image": "with a launcher image or on a hypervisor other than the expected one",
    "wrong_node": "on nodes of another owner",
    "no_ready_handler": "on nodes without a Ready virt-handler",
    "at_risk": "that end when the kubelet of their node restarts",
    "pending": "that cannot start",
    "unknown_image": "with a launcher image that may be a copy of the right one or of another",
    "outdated": "outdated until the next restart or migration, which brings the current image and nodes",
}
"""Completes "3 VMs ..." in the finding about VMs with this verdict."""

_PROPAGATION_SECONDS = 30
"""How long after its creation an API server may still be unaware of a policy (measured: below 2 s)."""

_START_SECONDS = 600
"""How long a pod may wait without a reason in its status: large images take minutes to pull."""

_MOST_EXPLAINED = 200
"""How many different placements are compared with all nodes; further VMs get only the scheduler's message."""
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Vmi:
    """The parts of a VMI that are needed besides its launcher pod. Small, since those of a whole cluster are held
    at once."""

    namespace: str
    name: str
    uid: str
    node: str
    """Where it runs. During a migration, the launcher pod on this node is the one to judge."""
    mobility: Mobility
    ended: bool
    problem: str | None
    """Why KubeVirt cannot create its pod."""
    asked: PodAttributes | None = None
    """What KubeVirt's own pools look at. None where they do not matter."""

    @classmethod
    def from_object(cls, obj: KubeObject, *, by_operator: bool = False) -> Vmi:
        """
        :param by_operator: whether KubeVirt itself makes the pools.
        """
        metadata, status = obj["metadata"], obj.get("status") or {}
        synchronized = condition(obj, "Synchronized")
        failed = synchronized.get("status") == "False"
        why = synchronized.get("message") or synchronized.get("reason")
        return cls(
            namespace=sys.intern(metadata.get("namespace", "")),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            node=sys.intern(status.get("nodeName") or ""),
            mobility=Mobility.from_vmi(obj),
            ended=status.get("phase") in ("Succeeded", "Failed") or bool(metadata.get("deletionTimestamp")),
            problem=printable(why or "no reason given") if failed else None,
            asked=PodAttributes.from_vmi(obj, metadata.get("namespace", "")) if by_operator else None,
        )


@dataclass(frozen=True)
class Judgement:
    """The verdict on one VM, and the facts behind it."""

    namespace: str
    name: str
    pool: str
    expected_image: str
    images: t.Mapping[str, str]
    node: str
    owner: str
    """That of its node; empty while it has no node."""
    verdict: Verdict
    reason: str
    remedy: str

    def to_dict(self) -> dict[str, t.Any]:
        return {**vars(self), "images": dict(self.images)}


class _Fault(t.NamedTuple):
    verdict: Verdict
    reason: str
    remedy: str = ""
    """What must be done first, or alone."""
    renews: bool = False
    """Whether a new launcher pod then makes it right."""


class Judge:
    """Judges launcher pods by the mapping table, the nodes as they are, and the live launcher policy."""

    @classmethod
    def for_plan(cls, plan: Plan, policy: Policy | None = None) -> Judge:
        """A judge for the cluster of a plan, before its run: a pool that the run activates takes no VM yet.

        :param policy: the live policy, when the caller knows more about it than the plan shows.
        """
        table = Table(()) if plan.launcher_rollout is None else plan.launcher_rollout.stages[0]
        stock = outdated_policy.stock_image(plan.snapshot) or ""
        return cls(table, stock, plan.snapshot, policy or Policy.from_rollout(plan.launcher_rollout))

    def __init__(self, table: Table, stock_image: str, snapshot: Snapshot, policy: Policy) -> None:
        """``stock_image``: KubeVirt's own launcher image."""
        self.table = table
        of_webhook = (rule.image for rule in launcher_backends.other_rules(snapshot.admission))
        self._images = LauncherImages(table, stock_image, of_webhook)
        self._nodes = snapshot.nodes
        self._with_handler = {
            node for node, pods in snapshot.handlers.items() if any(pod.ready and not pod.terminating for pod in pods)
        }
        self._policy = policy
        self._read_at = snapshot.read_at
        self._targets = Targets(table, snapshot.nodes)
        launchers = {pool: image for pool, image in table.images.items() if image}
        self._unusable = launcher_arguments.unusable(launchers, snapshot.kubevirt)
        self._explained: dict[str, str] = {}

    def judge(self, pod: LauncherPod, vmi: Vmi | None = None) -> Judgement:
        """The verdict on the VM whose current launcher pod this is. ``vmi``: None where it is not known."""
        asked = vmi.asked if vmi is not None else None
        winner = matching.winner(self.table, asked or pod.attributes)
        expected = self._images.expected(winner)
        node = self._nodes.get(pod.node)
        handler_fault = self._handler_fault(pod, node)
        faults = [
            fault
            for fault in (
                self._image_fault(pod, winner, expected),
                self._hypervisor_fault(pod, winner),
                self._node_fault(pod, winner, node),
                handler_fault,
                self._kubelet_fault(pod, node),
                self._placement_fault(pod, winner),
                self._start_fault(pod, winner),
                self._delay_fault(pod),
            )
            if fault is not None
        ]
        worst = min(faults, key=lambda fault: VERDICTS.index(fault.verdict), default=_Fault("correct", ""))
        reasons, steps = [fault.reason for fault in faults], [worst.remedy]
        if worst.renews:
            # A VM can be neither migrated nor restarted before its node is in order.
            steps = [
                handler_fault.remedy if handler_fault is not None else "",
                *steps,
                *self._renewal(pod, vmi, winner),
            ]
            reasons += self._lost_by_restart(pod, winner)
        return Judgement(
            namespace=pod.namespace,
            name=pod.vmi,
            pool=_name(winner),
            expected_image=expected,
            images=pod.launcher_images,
            node=pod.node,
            owner=node.owner if node is not None else "",
            verdict=worst.verdict,
            reason="; ".join(reasons),
            remedy=", then ".join(dict.fromkeys(filter(None, steps))) or "none",
        )

    def without_pod(self, vmi: Vmi) -> Judgement:
        """The verdict on a VM for which KubeVirt cannot create a launcher pod, according to its VMI."""
        return Judgement(
            namespace=vmi.namespace,
            name=vmi.name,
            pool="",
            expected_image="",
            images={},
            node="",
            owner="",
            verdict="pending",
            reason=f"KubeVirt cannot create its launcher pod: {vmi.problem}",
            remedy="none" if self._in_order else "run site",
        )

    # Images

    def _image_fault(self, pod: LauncherPod, winner: Pool | None, expected: str) -> _Fault | None:
        images = pod.images_of(compute_only=self._policy.compute_only)
        of_webhook = self._images.is_of_webhook(pod)
        if of_webhook and winner is None:
            # Its owner wants it so: the webhook has a rule for it, and no pool takes it.
            images = {place: image for place, image in images.items() if place != COMPUTE_PLACE}
        wrong = self._images.wrong(images, expected)
        if not wrong:
            return self._copy_fault(pod, images, winner, expected)
        what = f"it has {_places(wrong)} instead of {expected}"
        if pod.by_webhook is not None and COMPUTE_PLACE in wrong:
            return self._webhook_fault(what, of_webhook=of_webhook)
        if expected == self._images.stock and self._earlier_stock(images):
            return _Fault("outdated", f"{what}, KubeVirt's launcher image now", renews=True)
        age = self._age(pod)
        if age is not None:
            return _Fault("outdated", f"{what}: {age}", renews=True)
        return _Fault("wrong_image", f"{what}, {self._cause_of_image(pod, winner)}", renews=True)

    def _hypervisor_fault(self, pod: LauncherPod, winner: Pool | None) -> _Fault | None:
        what = pod.wrong_hypervisor(winner)
        if not what:
            return None
        age = self._age(pod)
        if age is not None:
            return _Fault("outdated", f"{what}: {age}", renews=True)
        return _Fault("wrong_image", f"{what}, {self._cause_of_image(pod, winner)}", renews=True)

    def _webhook_fault(self, what: str, *, of_webhook: bool) -> _Fault:
        """The fault of a pod whose image of ``compute`` kubevirt-aie-webhook replaced, as its annotation tells."""
        if not of_webhook:
            earlier = f"{what}: kubevirt-aie-webhook gave it that by a rule that it does not have now"
            return _Fault("outdated", earlier, renews=True)
        why = f"because a rule of kubevirt-aie-webhook takes the VM, too (annotation {names.WEBHOOK_IMAGE_ANNOTATION})"
        return _Fault("wrong_image", f"{what}, {why}", "correct rule", renews=True)

    def _copy_fault(
        self, pod: LauncherPod, images: t.Mapping[str, str], winner: Pool | None, expected: str
    ) -> _Fault | None:
        # The variable says for which pool the policy gave the pod its image, before a mirror's webhook rewrote that.
        if pod.pool_env == _name(winner):
            return None
        unsure = self._images.unsure(images, expected)
        if not unsure:
            return None
        what = f"it has {_places(unsure)}, a copy of {expected} or of another launcher image"
        return _Fault("unknown_image", f"{what}: the launcher policy did not record which one it gave the pod")

    def _cause_of_image(self, pod: LauncherPod, winner: Pool | None) -> str:
        """Why a pod that the policy should have made right has a wrong image or hypervisor."""
        if pod.pool_env is None:
            return f"because its pod bypassed {self._policy.title}"
        if pod.pool_env != _name(winner):
            return f"because the policy matched it to {pod.pool_env}, and what it asks for has changed since"
        if self._policy.state != "live":
            return f"and the launcher policy is {self._policy.state}"
        return "although the launcher policy gave it the right one: something changed it afterwards"

    def _earlier_stock(self, images: t.Mapping[str, str]) -> bool:
        """Whether all images are the same and no pool's: then it is KubeVirt's own image from before an upgrade."""
        return len({*images.values()}) == 1 and not any(map(self._images.knows, images.values()))

    # Node and handler

    def _node_fault(self, pod: LauncherPod, winner: Pool | None, node: Node | None) -> _Fault | None:
        if node is None or not self.table.needed or node.owner == names.IN_TRANSIT:
            return None
        requirement = self.table.requirement(winner)
        if requirement.matches(node.labels):
            return None
        what = f"it runs on node {node.name} of {node.owner}"
        what += ", which takes no VMs without a pool" if winner is None else f", not on one of pool {winner.name}"
        age = self._age(pod)
        if age is not None:
            return _Fault("outdated", f"{what}: {age}", renews=True)
        if pod.placement.owner == requirement:
            what += ": the owner of the node has changed since it started"
        return _Fault("wrong_node", what, renews=True)

    def _handler_fault(self, pod: LauncherPod, node: Node | None) -> _Fault | None:
        if not pod.node or pod.node in self._with_handler:
            return None
        if node is None:
            return _Fault("no_ready_handler", f"its node {pod.node} does not exist", renews=True)
        if not node.ready:
            return _Fault("no_ready_handler", f"its node {node.name} is not Ready", "repair node")
        if node.owner == names.IN_TRANSIT:
            return _Fault("no_ready_handler", f"its node {node.name} is in transit and has no virt-handler", "run site")
        return _Fault(
            "no_ready_handler", f"its node {node.name} of {node.owner} has no Ready virt-handler", "repair node"
        )

    def _kubelet_fault(self, pod: LauncherPod, node: Node | None) -> _Fault | None:
        misfit = None if node is None else pod.placement.misfit(node)
        if node is None or misfit is None:
            return None
        what = f"a restart of the kubelet of node {node.name} ends it: {misfit}, which the node does not have now"
        if node.owner == names.IN_TRANSIT:
            return _Fault("at_risk", what, "run site")
        return _Fault("at_risk", what, renews=True)

    # Placement

    def _placement_fault(self, pod: LauncherPod, winner: Pool | None) -> _Fault | None:
        if pod.node or pod.unschedulable is None:
            return None
        said = f"the scheduler reports: {pod.unschedulable.rstrip('.')}"
        if pod.placement.owner not in (None, self.table.requirement(winner)) and self._in_order:
            return _Fault("pending", f"it asks for the nodes of an earlier mapping; {said}", renews=True)
        explained = self._placement(pod)
        remedy = self._remedy_of_room(pod, winner) if self._in_order else "run site"
        return _Fault("pending", f"{explained}; {said}" if explained else said, remedy)

    def _remedy_of_room(self, pod: LauncherPod, winner: Pool | None) -> str:
        """What gives a pod a node, when the scheduler finds none."""
        missing = self._targets.room(pod, winner).remedy
        if not missing and "persistentvolumeclaim" in (pod.unschedulable or "").lower():
            return ""  # It waits for a volume.
        return missing or "add node"

    def _delay_fault(self, pod: LauncherPod) -> _Fault | None:
        """The fault of a pod that has waited for long without any reason in its status: for a volume, as a rule."""
        if pod.phase != "Pending" or pod.unschedulable is not None or pod.held_up is not None:
            return None
        waited = self._read_at - (timestamp(pod.created) or self._read_at)  # below zero in a dump
        if waited < _START_SECONDS:
            return None
        who = f"the kubelet of node {pod.node} has not started it" if pod.node else "the scheduler has given it no node"
        what = f"{who} for {waited // 60:.0f} minutes and reports nothing in its pod, as while a volume is missing"
        return _Fault("pending", f"{what}; its events may tell more")

    def _start_fault(self, pod: LauncherPod, winner: Pool | None) -> _Fault | None:
        """The fault of a pod that has a node, where the kubelet cannot start it."""
        if not pod.node or pod.held_up is None:
            return None
        # A pool's launcher image is its platform engineer's; whatever else keeps a pod from starting, we cannot know.
        remedy = "correct image" if winner is not None and pod.held_up.lacks_launcher_image else ""
        return _Fault("pending", f"the kubelet of node {pod.node} cannot start it: {pod.held_up}", remedy)

    def _placement(self, pod: LauncherPod) -> str:
        """What keeps a pod off the nodes, judged by labels and taints; empty when that is not known."""
        placement = pod.placement
        key = placement.key
        if key not in self._explained:
            if len(self._explained) >= _MOST_EXPLAINED:
                return ""
            reasons = collections.Counter(placement.unfit(node) for node in self._nodes.values())
            fitting = reasons.pop(None, 0)
            if fitting:
                self._explained[key] = f"{counted(fitting, 'node has', 'nodes have')} the labels it asks for"
            else:
                shown = [f"on {count} {reason}" for reason, count in reasons.most_common(_MOST_REASONS)]
                self._explained[key] = f"none of {counted(len(self._nodes), 'node')} fits: {', '.join(shown)}"
        return self._explained[key]

    # Whether the pod went through the present policy

    @property
    def _in_order(self) -> bool:
        return not self.table.needed or (self._policy.in_order and self._policy.state != "failing")

    def _age(self, pod: LauncherPod) -> str | None:
        """Why a pod need not be as the mapping would make it now; None when it should be."""
        policy = self._policy
        if policy.created is None:
            return "there is no launcher policy"
        if policy.compute_only:
            return "this back end does not show whether it is older than the mapping"
        if pod.pool_env is None:
            # The policy sets a variable in every pod. An annotation proves nothing, since the VM's owner could set it too.
            return f"it is older than {policy.title}" if _before(pod.created, policy.created) else None
        if pod.policy_annotation != policy.digest:
            return "its pod is older than the last change of the pools"
        return "the launcher policy is not what the pools ask for" if policy.state == "outdated" else None

    def _renewal(self, pod: LauncherPod, vmi: Vmi | None, winner: Pool | None) -> t.Iterator[str]:
        """How a VM gets what the mapping gives it, step by step: ``workload_update`` migrates it, or lists it for a restart."""
        if not self._in_order:
            yield "run site"
        elif not self._by_operator:
            yield self._targets.room(pod, winner).remedy
        if _name(winner) in self._unusable:
            yield "correct image"
        reason = "" if self._by_operator else self._targets.restart_reason(pod, winner)
        restart = vmi is None or vmi.mobility.restart_reason(reason, self._targets.machine_types(winner))
        yield "restart" if restart else "migration"

    def _lost_by_restart(self, pod: LauncherPod, winner: Pool | None) -> t.Iterator[str]:
        """Why the VM must not be stopped, as a clause."""
        if self._in_order and not self._by_operator and not self._targets.room(pod, winner).later:
            yield self._targets.restart_reason(pod, winner)

    @property
    def _by_operator(self) -> bool:
        """Whether KubeVirt itself makes the pools. Then a pod does not show what its VM asks for, and what KubeVirt added."""
        return self._policy.build is not None


def _name(winner: Pool | None) -> str:
    return names.PRIMARY if winner is None else winner.name


def _places(images: t.Mapping[str, str]) -> str:
    """``a in container compute and b in volume launcher-volume``."""
    by_image: dict[str, list[str]] = {}
    for place, image in images.items():
        by_image.setdefault(image or "no image", []).append(place)
    return " and ".join(f"{image} in {', '.join(places)}" for image, places in by_image.items())


def _before(created: str, policy_created: str) -> bool:
    """Whether a pod was created before a policy was in force. Times are as the API serves them; True for an unreadable one."""
    try:
        pod, policy = (datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ") for text in (created, policy_created))
    except ValueError:
        return True
    return pod < policy + datetime.timedelta(seconds=_PROPAGATION_SECONDS)
