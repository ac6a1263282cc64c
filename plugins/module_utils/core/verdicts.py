# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is one VM right: has its launcher pod the images that the mapping gives it, on a node of its pool, with a handler?

A pod that is not as the mapping would make it now is *outdated* when it was made before, and wrong when it was made under
the very policy that should have made it right, or passed it by.
"""

from __future__ import annotations

import collections
import datetime
import sys
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import matching, names, outdated_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_images import LauncherImages
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.live_policy import Policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import canonical_json
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.printable import printable
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import KubeObject, Node, Snapshot

Verdict = t.Literal["wrong_image", "wrong_node", "not_covered", "pending", "outdated", "correct"]
VERDICTS: tuple[Verdict, ...] = t.get_args(Verdict)
"""The worst first: a VM has the first one that fits."""
FAILING: frozenset[Verdict] = frozenset({"wrong_image", "wrong_node", "not_covered", "pending"})
"""An outdated VM is listed, and nothing is wrong with it: it gets what is new when it starts again."""

_PROPAGATION_SECONDS = 30
"""For so long after a policy was created an API server may not know it (measured: below 2 s)."""

_MOST_EXPLAINED = 200
"""So many different placements are compared with all nodes; for more VMs the scheduler's own words must do."""
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Vmi:
    """What we need of a VMI beside its launcher pod.

    ``node``: where it runs; of two launcher pods during a migration the one there counts. ``migratable``: None while
    KubeVirt does not say. ``trouble``: why KubeVirt cannot make its pod. Small, since all of a cluster are held at once.
    """

    namespace: str
    name: str
    uid: str
    node: str
    migratable: bool | None
    ended: bool
    trouble: str | None

    @classmethod
    def of(cls, obj: KubeObject) -> Vmi:
        metadata, status = obj["metadata"], obj.get("status") or {}
        conditions = {found.get("type"): found for found in status.get("conditions") or ()}
        migratable = (conditions.get("LiveMigratable") or {}).get("status")
        synchronized = conditions.get("Synchronized") or {}
        failed = synchronized.get("status") == "False"
        said = synchronized.get("message") or synchronized.get("reason")
        return cls(
            namespace=sys.intern(metadata.get("namespace", "")),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            node=sys.intern(status.get("nodeName") or ""),
            migratable=None if migratable is None else migratable == "True",
            ended=status.get("phase") in ("Succeeded", "Failed") or bool(metadata.get("deletionTimestamp")),
            trouble=printable(said or "no reason given") if failed else None,
        )


@dataclass(frozen=True)
class Judgement:
    """The verdict on one VM, and what it rests on. ``owner`` is that of its node, empty while it has none."""

    namespace: str
    name: str
    pool: str
    expected_image: str
    images: t.Mapping[str, str]
    node: str
    owner: str
    verdict: Verdict
    reason: str
    remedy: str

    def to_dict(self) -> dict[str, t.Any]:
        return {**vars(self), "images": dict(self.images)}


class _Fault(t.NamedTuple):
    verdict: Verdict
    reason: str
    remedy: str


class Judge:
    """Judges launcher pods by a mapping ``table``, the nodes as they are, and the policy that is live."""

    @classmethod
    def of(cls, made: Plan, policy: Policy | None = None) -> Judge:
        """By what is due now on a plan's cluster: a pool that becomes active during the next run takes no VM yet.

        :param policy: where more is known of it than the plan shows.
        """
        table = Table(()) if made.launchers is None else made.launchers.stages[0]
        stock = outdated_policy.stock_image(made.snapshot) or ""
        return cls(table, stock, made.snapshot, policy or Policy.of(made.launchers))

    def __init__(self, table: Table, stock_image: str, snapshot: Snapshot, policy: Policy) -> None:
        """``stock_image``: KubeVirt's own launcher image."""
        self.table = table
        self._images = LauncherImages(table, stock_image)
        self._nodes = snapshot.nodes
        self._covered = {
            node for node, pods in snapshot.handlers.items() if any(pod.ready and not pod.terminating for pod in pods)
        }
        self._policy = policy
        self._explained: dict[str, str] = {}

    def judge(self, pod: LauncherPod, vmi: Vmi | None = None) -> Judgement:
        """The verdict on the VM whose current launcher pod this is. ``vmi``: where it is known."""
        winner = matching.winner(self.table, pod.asked)
        expected = self._images.expected(winner)
        node = self._nodes.get(pod.node)
        faults = [
            fault
            for fault in (
                self._image_fault(pod, vmi, winner, expected),
                self._node_fault(pod, vmi, winner, node),
                self._handler_fault(pod, node),
                self._placement_fault(pod, winner),
            )
            if fault is not None
        ]
        worst = min(faults, key=lambda fault: VERDICTS.index(fault.verdict), default=_Fault("correct", "", "none"))
        return Judgement(
            namespace=pod.namespace,
            name=pod.vmi,
            pool=_name(winner),
            expected_image=expected,
            images=pod.launcher_images,
            node=pod.node,
            owner=node.owner if node is not None else "",
            verdict=worst.verdict,
            reason="; ".join(fault.reason for fault in faults),
            remedy=worst.remedy,
        )

    def without_pod(self, vmi: Vmi) -> Judgement:
        """The verdict on a VM whose launcher pod cannot be made, as its VMI says."""
        return Judgement(
            namespace=vmi.namespace,
            name=vmi.name,
            pool="",
            expected_image="",
            images={},
            node="",
            owner="",
            verdict="pending",
            reason=f"KubeVirt cannot make its launcher pod: {vmi.trouble}",
            remedy="none" if self._in_order else "run site",
        )

    # Images

    def _image_fault(self, pod: LauncherPod, vmi: Vmi | None, winner: Pool | None, expected: str) -> _Fault | None:
        found = pod.launcher_images
        if self._policy.compute_only:
            found = {place: image for place, image in found.items() if place == f"container {names.COMPUTE}"}
        wrong = self._images.wrong(found, expected)
        if not wrong:
            return None
        what = f"it has {_places(wrong)} instead of {expected}"
        if expected == self._images.stock and self._earlier_stock(found):
            return _Fault("outdated", f"{what}, KubeVirt's launcher image now", self._again(vmi))
        age = self._age(pod)
        if age is not None:
            return _Fault("outdated", f"{what}: {age}", self._again(vmi))
        why, remedy = self._how_it_came(pod, vmi, winner)
        return _Fault("wrong_image", f"{what}, {why}", remedy)

    def _how_it_came(self, pod: LauncherPod, vmi: Vmi | None, winner: Pool | None) -> tuple[str, str]:
        """Why a pod has a wrong image that was made under the policy, and what helps."""
        if pod.pool_env is None:
            return "because its pod passed the launcher policy by", self._again(vmi)
        if pod.pool_env != _name(winner):
            taken = f"the policy took it for one of {pod.pool_env}"
            return f"because {taken}: what it asks for has changed since", self._again(vmi)
        if self._policy.state != "live":
            return f"and the launcher policy is {self._policy.state}", self._again(vmi)
        return "although the launcher policy gave it the right one: something changed it afterwards", "none"

    def _earlier_stock(self, images: t.Mapping[str, str]) -> bool:
        """Whether all images are one that is no pool's: KubeVirt's own, before an upgrade."""
        return len({*images.values()}) == 1 and self._images.known.isdisjoint(images.values())

    # Node and handler

    def _node_fault(self, pod: LauncherPod, vmi: Vmi | None, winner: Pool | None, node: Node | None) -> _Fault | None:
        if node is None or not self.table.needed or node.owner == names.IN_TRANSIT:
            return None
        requirement = self.table.requirement(winner)
        if requirement.matches(node.labels):
            return None
        what = f"it runs on node {node.name} of {node.owner}"
        what += ", which keeps VMs without a pool off" if winner is None else f", not on one of pool {winner.name}"
        age = self._age(pod)
        if age is not None:
            return _Fault("outdated", f"{what}: {age}", self._again(vmi))
        if pod.placement.owner == requirement:
            what += ": the node has changed hands since it started"
        return _Fault("wrong_node", what, self._again(vmi))

    def _handler_fault(self, pod: LauncherPod, node: Node | None) -> _Fault | None:
        if not pod.node or pod.node in self._covered:
            return None
        if node is None:
            return _Fault("not_covered", f"its node {pod.node} does not exist", "restart")
        if not node.ready:
            return _Fault("not_covered", f"its node {node.name} is not Ready", "repair node")
        if node.owner == names.IN_TRANSIT:
            return _Fault("not_covered", f"its node {node.name} is in transit and has no virt-handler", "run site")
        return _Fault("not_covered", f"its node {node.name} of {node.owner} has no Ready virt-handler", "repair node")

    # Placement

    def _placement_fault(self, pod: LauncherPod, winner: Pool | None) -> _Fault | None:
        if pod.node or pod.unschedulable is None:
            return None
        said = f"the scheduler says: {pod.unschedulable.rstrip('.')}"
        if pod.placement.owner not in (None, self.table.requirement(winner)) and self._in_order:
            return _Fault("pending", f"it asks for the nodes of an earlier mapping; {said}", "restart")
        explained = self._placement(pod)
        remedy = "add node" if self._in_order else "run site"
        return _Fault("pending", f"{explained}; {said}" if explained else said, remedy)

    def _placement(self, pod: LauncherPod) -> str:
        """What keeps a pod off the nodes, as far as labels and taints tell."""
        placement = pod.placement
        key = canonical_json([dict(placement.node_selector), placement.terms, placement.tolerations])
        if key not in self._explained:
            if len(self._explained) >= _MOST_EXPLAINED:
                return ""
            reasons = collections.Counter(placement.unfit(node) for node in self._nodes.values())
            fitting = reasons.pop(None, 0)
            if fitting:
                self._explained[key] = f"{fitting} node(s) have the labels it asks for"
            else:
                shown = [f"on {count} {reason}" for reason, count in reasons.most_common(_MOST_REASONS)]
                self._explained[key] = f"of {len(self._nodes)} node(s) none fits: {', '.join(shown)}"
        return self._explained[key]

    # Before or under the policy

    @property
    def _in_order(self) -> bool:
        return not self.table.needed or self._policy.in_order

    def _age(self, pod: LauncherPod) -> str | None:
        """Why a pod need not be as the mapping would make it now; None when it should be."""
        policy = self._policy
        if policy.created is None:
            return "there is no launcher policy"
        if policy.compute_only:
            return "whether it is older than the mapping cannot be told with this back end"
        if pod.pool_env is None:
            # The policy leaves a variable in every pod; its annotations could be the VM owner's as well.
            return "it is older than the launcher policy" if _before(pod.created, policy.created) else None
        if pod.policy_annotation != policy.digest:
            return "it was made under an earlier mapping"
        return "the launcher policy is not what the pools ask for" if policy.state == "outdated" else None

    def _again(self, vmi: Vmi | None) -> str:
        """How a VM gets what the mapping gives it."""
        how = "migration" if vmi is not None and vmi.migratable else "restart"
        return how if self._in_order else f"run site, then {how}"


def _name(winner: Pool | None) -> str:
    return names.PRIMARY if winner is None else winner.name


def _places(images: t.Mapping[str, str]) -> str:
    """``a in container compute and b in volume launcher-volume``."""
    by_image: dict[str, list[str]] = {}
    for place, image in images.items():
        by_image.setdefault(image or "no image", []).append(place)
    return " and ".join(f"{image} in {', '.join(places)}" for image, places in by_image.items())


def _before(created: str, policy_created: str) -> bool:
    """Whether a pod was made before a policy was in force. Times are as the API serves them; unknown ones prove nothing."""
    try:
        pod, policy = (datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ") for text in (created, policy_created))
    except ValueError:
        return True
    return pod < policy + datetime.timedelta(seconds=_PROPAGATION_SECONDS)
