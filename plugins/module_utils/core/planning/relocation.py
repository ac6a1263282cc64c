# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""VMs that must leave their launcher pod because it is outdated or on a node to be emptied: by live migration or restart.

A VM is outdated when its launcher pod has other launcher images than a new one would get. KubeVirt's own label and
status say something else: whether the image is KubeVirt's own.
"""

from __future__ import annotations

import functools
import sys
import typing as t
from dataclasses import dataclass, field, replace

from ..admission import launcher_backends, outdated_policy
from ..admission.launcher_backends import Backend
from ..base import names
from ..base.findings import InputErrors, counted, listed, printable
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject, condition
from ..kubevirt import launcher_arguments, preflight
from ..observed.nodes import Node
from ..observed.snapshot import Admission, Snapshot
from ..pools.model import Pool
from ..vms import matching
from ..vms.launcher_pods import COMPUTE_PLACE, LauncherImages, LauncherPod
from ..vms.mapping import Table
from ..vms.node_fit import NodeFit, Room
from . import goals, removal

How = t.Literal["migrate", "restart"]


@dataclass(frozen=True, kw_only=True)
class Relocation:
    """A VM that must leave its launcher pod."""

    namespace: str
    vmi: str
    uid: str
    node: str
    how: How
    reason: str = ""
    """Why it cannot be migrated."""
    machine_types: frozenset[str] | None = None
    """Those that the nodes have to which it can be migrated; None when that is not known."""

    @property
    def vm(self) -> str:
        return f"{self.namespace}/{self.vmi}"

    def __str__(self) -> str:
        return f"VM {self.vm}"

    def to_dict(self) -> dict[str, t.Any]:
        vm = {"namespace": self.namespace, "name": self.vmi, "node": self.node}
        return {**vm, "how": self.how, "reason": self.reason}


AnyRelocation = t.TypeVar("AnyRelocation", bound=Relocation)


class RelocationRule(t.Protocol[AnyRelocation]):
    """A reason to migrate VMs. It finds the VMs that it applies to, and checks them after their migration."""

    def relocation_for(self, pod: LauncherPod) -> AnyRelocation | None:
        """What the VM of this pod needs, judged by the pod; None for nothing."""

    def problem(self, moved: AnyRelocation, pod: LauncherPod, node: Node | None) -> str | None:
        """What is wrong with a migrated VM that is now in this pod on this node; None for nothing."""


@dataclass(frozen=True, kw_only=True)
class Update(Relocation):
    """What an outdated VM needs."""

    pool: str
    expected_image: str
    images: t.Mapping[str, str]
    """Its wrong images, by their place in the pod."""
    misfit: str = ""
    """Why it must leave its node, as a clause; empty when it may stay there."""
    first: str = ""
    """What must be done before it is stopped, because it could not start again; empty for nothing."""

    def __str__(self) -> str:
        purpose = f"for {self.expected_image} of {self.pool}" if self.images else f"to a node of {self.pool}"
        if self.how == "migrate":
            return f"VM {self.vm}: migrate {purpose}" + (f", because {self.misfit}" if self.misfit else "")
        first = f"{self.first}, then " if self.first else ""
        return f"VM {self.vm}: {first}restart {purpose}, since {self.reason}"

    def to_dict(self) -> dict[str, t.Any]:
        more = {
            "pool": self.pool,
            "expected_image": self.expected_image,
            "images": dict(self.images),
            "misfit": self.misfit,
            "first": self.first,
        }
        return {**super().to_dict(), **more}


def remaining_lines(updates: t.Sequence[Update]) -> list[str]:
    """How many VMs still run with which image, or on a node, that they would not get now, and how to move them."""
    if not updates:
        return ["Every VM has the launcher image that it would get now."]
    by_image: dict[str, list[str]] = {}
    for update in updates:
        for image in sorted(set(update.images.values())) or ["on another node"]:
            by_image.setdefault(image, []).append(update.vm)
    restart = [update.vm for update in updates if update.how == "restart"]
    migrating = len(updates) - len(restart)
    steps = []
    if migrating:
        steps.append(f"ansible-playbook virtpools.kubevirt.workload_update live-migrates {migrating}")
    if restart:
        steps.append(f"restart {listed(restart)}, which cannot be migrated")
    running = counted(
        len(updates),
        "VM still runs with an image or on a node that it would not get now",
        "VMs still run with images or on nodes that they would not get now",
    )
    return [
        f"{running}:",
        *(
            f"  {printable(image)}: {counted(len(vms), 'VM')} ({listed(vms)})"
            for image, vms in sorted(by_image.items())
        ),
        f"To change that: {'; '.join(steps)}.",
    ]


_PAUSED_BY_USER = "PausedByUser"
"""Why a VM is paused that KubeVirt migrates, and that is paused afterwards, too (domainIsActiveOnTarget in pkg/virt-handler). Others
do not get active on the target, such as one with an I/O error."""


@dataclass(frozen=True, slots=True)
class Mobility:
    """What a VM instance says about live migration. Small, since a verification holds those of a whole cluster."""

    refusal: str
    """Why it cannot be migrated now, as a clause; empty when it can."""
    machine: str
    """Its machine type; empty when it does not say."""

    @classmethod
    def from_vmi(cls, vmi: KubeObject) -> Mobility:
        status = vmi.get("status") or {}
        phase = status.get("phase") or "Pending"
        migratable, paused = condition(vmi, "LiveMigratable"), condition(vmi, "Paused")
        refusal = ""
        if phase != "Running":
            refusal = f"it is {phase}, and only running VMs can be migrated"
        elif paused.get("status") == "True" and paused.get("reason") != _PAUSED_BY_USER:
            refusal = f"it is paused ({_why(paused)})"
        elif migratable.get("status") != "True":
            refusal = f"it cannot be migrated ({_why(migratable)})"
        return cls(sys.intern(refusal), sys.intern(str((status.get("machine") or {}).get("type") or "")))

    def restart_reason(self, reason: str, machine_types: frozenset[str] | None) -> str:
        """Why the VM can only be restarted, as a clause; empty when it can be migrated.

        :param reason: what ``Targets`` says of its pod.
        :param machine_types: those of the nodes to which it may go; None when that is not known.
        """
        if self.refusal or reason:
            return self.refusal or reason
        if machine_types is not None and self.machine and self.machine not in machine_types:
            return f"no Ready node to which it may go has its machine type {self.machine}"
        return ""


def _why(stated: KubeObject) -> str:
    """The reason in a condition of a VM instance."""
    return stated.get("message") or stated.get("reason") or "KubeVirt gives no reason"


class Targets:
    """The nodes to which the mapping lets VMs go. ``workload_update`` and the remedies of verdicts follow the same rule."""

    def __init__(self, table: Table, nodes: t.Mapping[str, Node]) -> None:
        self._table = table
        self._nodes = nodes
        self._places = NodeFit(table, nodes.values())
        self._machine_types: dict[str, frozenset[str] | None] = {}

    def room(self, pod: LauncherPod, winner: Pool | None) -> Room:
        """Where a new pod of the VM can go."""
        return self._places.room(pod.placement, winner)

    def restart_reason(self, pod: LauncherPod, winner: Pool | None) -> str:
        """Why the VM of a pod can only be restarted because of nodes, as a clause; empty when it can be migrated."""
        node, room, pool = self._nodes.get(pod.node), self.room(pod, winner), _name(winner)
        if not room.later:
            where = f", only those of {listed(room.elsewhere)}" if room.elsewhere else ""
            what = f"what it asks for allows no node of {pool}{where}" if room.allowed else f"{pool} has no node"
            return f"{what}: once stopped, it cannot start again"
        hypervisor = pod.wrong_hypervisor(winner)
        if hypervisor:
            return f"{hypervisor}, and no VM can be migrated to another hypervisor"
        if pod.node and (node is None or not node.ready):
            return f"its node {pod.node} {'does not exist' if node is None else 'is not Ready'}"
        return "" if any(name != pod.node for name in room.ready) else f"no other Ready node of {pool} fits it"

    def machine_types(self, winner: Pool | None) -> frozenset[str] | None:
        """The machine types of all Ready nodes that the mapping allows; None when a node does not say."""
        name = _name(winner)
        if name not in self._machine_types:
            requirement = self._table.requirement(winner)
            nodes = (node for node in self._nodes.values() if node.ready and requirement.matches(node.labels))
            said = [node.machine_types for node in nodes]
            self._machine_types[name] = frozenset().union(*said) if said and all(said) else None
        return self._machine_types[name]


def _name(winner: Pool | None) -> str:
    return winner.name if winner is not None else names.PRIMARY


class ImageDrift:
    """The difference between the launcher images that VMs have and those that the mapping gives them now."""

    def __init__(
        self,
        table: Table,
        stock: str,
        nodes: t.Iterable[Node],
        *,
        compute_only: bool = False,
        of_webhook: t.Iterable[str] = (),
        kubevirt: KubeObject | None = None,
    ) -> None:
        """``table``: the mapping in effect. ``stock``: KubeVirt's own launcher image. ``compute_only``: whether the back end
        changes only the image of the container compute. ``of_webhook``: see LauncherImages. ``kubevirt``: what passes arguments
        to launchers."""
        self._kubevirt = kubevirt or {}
        self._table = table
        self._images = LauncherImages(table, stock, of_webhook)
        self._nodes = {node.name: node for node in nodes}
        self._targets = Targets(table, self._nodes)
        self._compute_only = compute_only

    @classmethod
    def from_live_policy(cls, snapshot: Snapshot, removed: removal.Removed | None = None) -> ImageDrift:
        """The drift from what the live launcher policy gives VMs.

        :param removed: pools that are being removed.
        :raises InputErrors: when the policy is not the one that the pools need, or KubeVirt is not fit for migrations: a VM
            that is migrated now could get a wrong image.
        """
        admission = snapshot.admission or Admission()
        backend = launcher_backends.backend_in_use(admission)
        pools = tuple(pool.name for pool in goals.recorded(snapshot))
        # Without a policy, nothing keeps a VM off the nodes of any pool.
        table = launcher_backends.recorded_table(admission) or Table((), allow=pools)
        stock = outdated_policy.stock_image(snapshot)
        checks = (*preflight.fitness(snapshot), *outdated_policy.examine(snapshot, table))
        problems = [f.message for f in checks if f.severity == "error" and f.code not in preflight.TRANSIENT]
        problems += _policy_problems(snapshot, admission, backend, table, removed)
        if problems or stock is None:
            raise InputErrors(problems)
        return cls(
            table.as_of(stock),
            stock,
            snapshot.nodes.values(),
            compute_only=backend == "aie_webhook",
            of_webhook=(rule.image for rule in launcher_backends.other_rules(admission)),
            kubevirt=snapshot.kubevirt,
        )

    def refuse_broken(self, updates: t.Iterable[Update]) -> None:
        """Refuse updates that would give VMs a launcher image which refuses what KubeVirt passes: a migration would fail, and a VM
        that is stopped would not start again.

        :raises InputErrors: with the pools and what helps.
        """
        pools = {update.pool for update in updates}
        images = {pool: image for pool, image in self._table.images.items() if image and pool in pools}
        problems = [finding.message for finding in launcher_arguments.examine(images, self._kubevirt)]
        if problems:
            raise InputErrors(problems)

    def relocation_for(self, pod: LauncherPod) -> Update | None:
        """What the VM of this pod needs, judged by the pod; None when its images are right and it may stay on its node.

        Also None for a pod that has ended, and for one that virt-controller did not create.
        """
        if pod.ended or pod.terminating or pod.vmi_uid is None:
            return None
        winner = matching.winner(self._table, pod.attributes)
        expected = self._images.expected(winner)
        images = pod.images_of(compute_only=self._compute_only)
        if self._images.is_of_webhook(pod):
            # A migration would bring the same image.
            images = {place: image for place, image in images.items() if place != COMPUTE_PLACE}
        wrong = self._images.wrong(images, expected)
        node = self._nodes.get(pod.node)
        misfit = ("" if node is None else self._misfit(pod, winner, node)) or pod.wrong_hypervisor(winner)
        if not wrong and not misfit:
            return None
        reason = self._targets.restart_reason(pod, winner)
        return Update(
            namespace=pod.namespace,
            vmi=pod.vmi,
            uid=pod.vmi_uid,
            pool=_name(winner),
            expected_image=expected,
            images=FrozenMap(wrong),
            misfit=misfit,
            node=pod.node,
            how="restart" if reason else "migrate",
            reason=reason,
            first=self._targets.room(pod, winner).remedy,
            machine_types=self._targets.machine_types(winner),
        )

    def problem(self, moved: Update, pod: LauncherPod, node: Node | None) -> str | None:
        needed = self.relocation_for(pod)
        if needed is not None and needed.images:
            return f"its pod {pod.name} has {', '.join(sorted(set(needed.images.values())))} again"
        if node is None or self.misplaced(pod, node):
            return f"it is on node {pod.node}, which is not of {moved.pool}"
        return None

    def _misfit(self, pod: LauncherPod, winner: Pool | None, node: Node) -> str:
        """Why a pod must leave its node: the mapping keeps it off, or a kubelet that restarts would end it."""
        if node.owner == names.IN_TRANSIT:
            return ""  # its next owner is not known yet
        if self._table.needed and not self._table.requirement(winner).matches(node.labels):
            return f"node {node.name} is one of {node.owner}"
        misfit = pod.placement.misfit(node)
        return f"a restart of the kubelet of {node.name} would end it" if misfit else ""

    def misplaced(self, pod: LauncherPod, node: Node) -> bool:
        """Whether the mapping keeps the VM of this pod off this node."""
        return not self._table.requirement(matching.winner(self._table, pod.attributes)).matches(node.labels)


def _policy_problems(
    snapshot: Snapshot,
    admission: Admission,
    backend: Backend | None,
    table: Table,
    removed: removal.Removed | None,
) -> t.Iterator[str]:
    if backend is None:
        leaving = removal.leaving(removed, snapshot) if removed else frozenset()
        staying = [pool for pool in goals.recorded(snapshot) if pool.name not in leaving]
        pools = [pool.name for pool in staying if pool.selector and pool.virt_launcher_image]
        if pools:
            yield (
                f"{counted(len(pools), 'pool has', 'pools have')} launcher images ({listed(pools)}), but no launcher policy is in force: a VM that is "
                "migrated now would get KubeVirt's own image; run site first."
            )
        return
    epoch = launcher_backends.live_epoch(admission) or 0
    wanted = launcher_backends.desired(backend, table, snapshot.namespace, admission, epoch=epoch)
    differences = [str(difference) for difference in launcher_backends.drift(wanted, admission)]
    if differences or not wanted:
        unreadable = f"its annotation {names.MAPPING_ANNOTATION} does not record what it maps"
        yield f"The launcher policy was changed by hand: {differences[0] if differences else unreadable}; run site first."


def with_vmi(update: AnyRelocation, vmi: KubeObject | None) -> AnyRelocation | None:
    """The same update, but by a restart where the VMI allows no migration; None when the VM instance no longer exists or is ending."""
    if vmi is None or vmi["metadata"].get("uid") != update.uid or vmi["metadata"].get("deletionTimestamp"):
        return None
    if (vmi.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    reason = Mobility.from_vmi(vmi).restart_reason(update.reason, update.machine_types)
    return replace(update, how="restart" if reason else "migrate", reason=reason)


@dataclass(frozen=True)
class Evacuation:
    """The rule of nodes that are to be emptied."""

    ready: t.Mapping[str, bool]
    """For each of them, whether it has a Ready virt-handler."""
    table: Table = field(default_factory=lambda: Table(()))
    """The mapping in effect, by which the target of a migration gets its launcher image."""
    kubevirt: KubeObject = field(default_factory=dict)
    """What passes arguments to launchers."""

    @classmethod
    def from_snapshot(cls, ready: t.Mapping[str, bool], snapshot: Snapshot, admission: Admission) -> Evacuation:
        """The rule for nodes of this cluster.

        :param admission: with the live launcher policy, by which the target of a migration gets its launcher image.
        """
        table = launcher_backends.recorded_table(admission) or Table(())
        return cls(ready, table.as_of(outdated_policy.stock_image(snapshot)), snapshot.kubevirt)

    @functools.cached_property
    def _refusals(self) -> t.Mapping[str, str]:
        images = {pool: image for pool, image in self.table.images.items() if image}
        return launcher_arguments.refusals(images, self.kubevirt)

    def _refusal(self, pod: LauncherPod) -> str:
        winner = matching.winner(self.table, pod.attributes)
        hypervisor = pod.wrong_hypervisor(winner)
        if hypervisor:
            return f"{hypervisor}, which a migration would bring"
        return self._refusals.get(winner.name, "") if winner is not None else ""

    def relocation_for(self, pod: LauncherPod) -> Relocation | None:
        if pod.node not in self.ready or pod.ended or pod.terminating or pod.vmi_uid is None:
            return None
        reason = self._refusal(pod) if self.ready[pod.node] else f"virt-handler is not Ready on node {pod.node}"
        return Relocation(
            namespace=pod.namespace,
            vmi=pod.vmi,
            uid=pod.vmi_uid,
            node=pod.node,
            how="restart" if reason else "migrate",
            reason=reason,
        )

    def problem(self, moved: Relocation, pod: LauncherPod, node: Node | None) -> str | None:
        """None for a VM that came to another of these nodes: the next look finds it there and migrates it again."""
        if node is None or pod.node == moved.node:
            return f"it is on node {pod.node}, which {'no longer exists' if node is None else 'it was to leave'}"
        return None
