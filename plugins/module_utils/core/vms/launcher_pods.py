# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Launcher pods as values: what they ask for, the launcher images they have, and the nodes they can go to."""

from __future__ import annotations

import functools
import itertools
import typing as t
from dataclasses import dataclass, replace

from ..base import affinity, epochs, names
from ..base.findings import listed, printable
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject, canonical_json, condition, field
from ..base.selectors import Requirement, untolerated
from ..observed.nodes import Node
from ..pools.criteria import PodAttributes
from ..pools.hypervisors import ARGUMENT, HYPERVISORS, KVM
from ..pools.model import Pool
from .mapping import Table

_VMI_KIND = "VirtualMachineInstance"
_VMI_ANNOTATION = "kubevirt.io/domain"
_VMI_LABEL = "vm.kubevirt.io/name"

COMPUTE_PLACE = f"container {names.COMPUTE}"
"""The place of the image with which the guest runs."""
HELPER_CONTAINERS = frozenset({"guest-console-log", "container-disk-binary"})
"""The names of KubeVirt's own containers beside ``compute`` that have the launcher image."""
VIRTIOFS = "virtiofs-"
"""What KubeVirt begins the names of other such containers with, one for each file system."""


def runs_launcher_image(container: str) -> bool:
    """Whether a container of this name has the launcher image."""
    return container == names.COMPUTE or container in HELPER_CONTAINERS or container.startswith(VIRTIOFS)


@dataclass(frozen=True)
class HeldUp:
    """A container that the kubelet cannot start, and why."""

    container: str
    reason: str
    message: str = ""

    def __str__(self) -> str:
        return f"container {self.container} waits with {self.reason}{f' ({self.message})' if self.message else ''}"

    @property
    def lacks_launcher_image(self) -> bool:
        """Whether it waits for the launcher image."""
        return "Image" in self.reason and runs_launcher_image(self.container)


def is_launcher(pod: KubeObject) -> bool:
    """Whether a pod has the label of launcher pods."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(names.KUBEVIRT_LABEL) == names.LAUNCHER)


@dataclass(frozen=True)
class LauncherPod:
    """The parts of a launcher pod that decide about its VM."""

    namespace: str
    name: str
    uid: str
    vmi: str
    vmi_uid: str | None
    """None for a pod that no VMI controls: virt-controller did not create it."""
    phase: str
    terminating: bool
    created: str
    node: str
    migration: str | None
    """The uid of the migration whose target the pod is."""
    attributes: PodAttributes
    launcher_images: t.Mapping[str, str]
    """Every place that has a launcher image (``container compute``, ``init container guest-console-log``, ``volume
    launcher-volume``), with that image."""
    stock: str | None
    """A variable of ``compute`` that the launcher policy writes: KubeVirt's own image."""
    pool_env: str | None
    """A variable of ``compute`` that the launcher policy writes: the pool."""
    policy_annotation: str | None
    """An annotation, which any user may write."""
    placement: PodPlacement
    unschedulable: str | None
    """The scheduler's reason why the pod has no node."""
    webhook_image: str | None = None
    """An annotation that kubevirt-aie-webhook writes: the image that it gave the container ``compute``. Any user may write it."""
    operator_pool: str | None = None
    """The pool of KubeVirt's own that took the VM, as virt-controller noted it in an annotation."""
    exit_code: int | None = None
    """What virt-launcher ended with, in the container ``compute``."""
    hypervisor: str = KVM.name
    """What virt-launcher is told to run the guest on."""
    stock_hypervisor: str | None = None
    """A variable of ``compute`` that the launcher policy writes: the hypervisor of KubeVirt's configuration."""
    held_up: HeldUp | None = None
    """The container that the kubelet cannot start, while the pod has not begun to run."""

    @classmethod
    def from_object(cls, pod: KubeObject, namespace_labels: t.Mapping[str, str] | None = None) -> LauncherPod:
        """The launcher pod that an object is. ``namespace_labels`` are the labels of its namespace, if known."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        annotations = metadata.get("annotations") or {}
        compute = _compute(spec)
        variables = _variables(compute)
        vmi, vmi_uid = _vmi(metadata)
        return cls(
            namespace=metadata.get("namespace", ""),
            name=metadata.get("name", ""),
            uid=metadata.get("uid", ""),
            vmi=vmi,
            vmi_uid=vmi_uid,
            phase=status.get("phase", ""),
            terminating=bool(metadata.get("deletionTimestamp")),
            created=metadata.get("creationTimestamp") or "",
            node=spec.get("nodeName") or "",
            migration=(metadata.get("labels") or {}).get(names.MIGRATION_LABEL),
            attributes=PodAttributes.from_pod(pod, namespace_labels),
            launcher_images=FrozenMap(dict(_launcher_images(spec))),
            stock=variables.get(names.STOCK_IMAGE_ENV),
            pool_env=variables.get(names.POOL_ENV),
            policy_annotation=annotations.get(names.POLICY_ANNOTATION),
            placement=PodPlacement.from_spec(spec),
            unschedulable=_unschedulable(pod),
            webhook_image=annotations.get(names.WEBHOOK_IMAGE_ANNOTATION),
            operator_pool=next((annotations[key] for key in names.OPERATOR_POOL_LABELS if key in annotations), None),
            exit_code=_exit_code(status),
            hypervisor=_hypervisor(compute),
            stock_hypervisor=variables.get(names.STOCK_HYPERVISOR_ENV),
            held_up=_held_up(status) if status.get("phase") == "Pending" else None,
        )

    def images_of(self, *, compute_only: bool) -> t.Mapping[str, str]:
        """The launcher images by place; with ``compute_only`` that of the container ``compute`` alone."""
        if not compute_only:
            return self.launcher_images
        return {place: image for place, image in self.launcher_images.items() if place == COMPUTE_PLACE}

    @property
    def has_stock_image(self) -> bool:
        """Whether the pool that took it left KubeVirt's own image in it, as one without a launcher image does."""
        return set(self.launcher_images.values()) == {self.stock}

    @property
    def by_webhook(self) -> str | None:
        """The image of the container ``compute`` where kubevirt-aie-webhook gave it that; else None."""
        image = self.launcher_images.get(COMPUTE_PLACE)
        return image if image == self.webhook_image else None

    def wrong_hypervisor(self, winner: Pool | None) -> str:
        """How the hypervisor of its guest differs from that of a new pod, which ``winner`` (None: no pool) takes, as a clause; empty when
        it does not, or nothing tells what a new one would get."""
        wanted = (winner and winner.hypervisor) or self.stock_hypervisor
        return f"it runs on {self.hypervisor} instead of {wanted}" if wanted and wanted != self.hypervisor else ""

    @property
    def ended(self) -> bool:
        """Whether its guest has ended or was migrated away."""
        return self.phase in ("Succeeded", "Failed")


def _launcher_images(spec: KubeObject) -> t.Iterator[tuple[str, str]]:
    """The places of launcher images, found by name: a webhook may have replaced any image."""
    for containers, place in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(containers) or ():
            if runs_launcher_image(container["name"]):
                yield f"{place} {container['name']}", container.get("image") or ""
    for volume in spec.get("volumes") or ():
        if volume["name"] == names.LAUNCHER_VOLUME and volume.get("image"):
            yield f"volume {names.LAUNCHER_VOLUME}", volume["image"].get("reference") or ""


def _compute(spec: KubeObject) -> KubeObject:
    """The container of the guest; empty for a pod without one."""
    return next((each for each in spec.get("containers") or () if each["name"] == names.COMPUTE), {})


def _hypervisor(compute: KubeObject) -> str:
    """What virt-launcher is told; of a pod that starts none, to bind volumes to a node, the hypervisor of its device."""
    command = [*(compute.get("command") or ()), *(compute.get("args") or ())]
    if ARGUMENT in command[:-1]:
        return str(command[command.index(ARGUMENT) + 1])
    limits = field(compute, "resources", "limits") or {}
    return next((name for name, each in HYPERVISORS.items() if each.resource in limits), KVM.name)


def _variables(compute: KubeObject) -> dict[str, str]:
    """The variables that have a plain value."""
    return {each["name"]: each["value"] for each in compute.get("env") or () if each.get("value")}


def _vmi(metadata: KubeObject) -> tuple[str, str | None]:
    """Name and uid of the VMI. The label has the name too, but cut to the length of a label."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == _VMI_KIND:
            return str(reference["name"]), str(reference.get("uid", ""))
    annotation = (metadata.get("annotations") or {}).get(_VMI_ANNOTATION)
    return annotation or (metadata.get("labels") or {}).get(_VMI_LABEL, ""), None


def _unschedulable(pod: KubeObject) -> str | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    return scheduled.get("message") or scheduled.get("reason") or "it gives no reason"


_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
"""Why a container waits that the kubelet is about to start, or has not come to yet."""
_LONGEST_MESSAGE = 200


def _held_up(status: KubeObject) -> HeldUp | None:
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = field(container, "state", "waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _STARTING:
            message = printable(waiting.get("message") or "")[:_LONGEST_MESSAGE]
            return HeldUp(container["name"], waiting["reason"], message)
    return None


def _exit_code(status: KubeObject) -> int | None:
    for container in status.get("containerStatuses") or ():
        if container["name"] == names.COMPUTE:
            code: int | None = field(container, "state", "terminated", "exitCode")
            return code
    return None


# What it asks of its node -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PodPlacement:
    """What a launcher pod asks of its node, as the scheduler reads it."""

    node_selector: t.Mapping[str, str]
    terms: tuple[KubeObject, ...] | None
    """The required node-affinity terms as the API serves them; any one is enough. None: no such affinity."""
    tolerations: tuple[KubeObject, ...]
    stay_terms: tuple[KubeObject, ...] = ()
    """Terms that the launcher policy adds so that the pod may stay on a node which gets another owner."""

    @classmethod
    def from_spec(cls, spec: KubeObject) -> PodPlacement:
        """The placement in a pod's spec; a VMI's spec has the same fields."""
        required = affinity.required_terms(spec.get("affinity"))
        terms: list[KubeObject] = []
        stay_terms: list[KubeObject] = []
        for term in required or ():
            (stay_terms if epochs.is_stay_term(term) else terms).append(term)
        return cls(
            node_selector=FrozenMap(spec.get("nodeSelector")),
            terms=None if required is None else tuple(terms),
            tolerations=tuple(spec.get("tolerations") or ()),
            stay_terms=tuple(stay_terms),
        )

    @property
    def key(self) -> str:
        """The same text for equal placements."""
        return canonical_json([dict(self.node_selector), self.terms, self.tolerations])

    def requiring(self, requirement: Requirement) -> PodPlacement:
        """The placement with this requirement added to every term."""
        added = requirement.to_object()
        # An empty term matches no node; with a requirement it would match some.
        terms = tuple(
            affinity.with_requirements(term, [added]) if _has_requirements(term) else term for term in self.terms or ()
        )
        if self.terms is None:
            terms = ({"matchExpressions": [added]},)
        return replace(self, terms=terms)

    def with_pool(self, requirement: Requirement, tolerations: t.Iterable[KubeObject] = ()) -> PodPlacement:
        """The placement after the launcher policy has added a pool's requirement and tolerations."""
        return replace(self.requiring(requirement), tolerations=(*self.tolerations, *tolerations))

    def without_owner(self) -> PodPlacement:
        """The VM's own placement: without the requirement on the owner label that a launcher policy added."""
        if self.terms is None:
            return self
        # A term that loses its last requirement asked for nothing else: every node fits.
        own = tuple(_without_owner(term) if _has_requirements(term) else term for term in self.terms)
        freed = any(
            _has_requirements(before) and not _has_requirements(after)
            for before, after in zip(self.terms, own, strict=True)
        )
        return replace(self, terms=None if freed else own)

    def unfit(self, node: Node) -> str | None:
        """Why the scheduler keeps the pod off the node, as a clause that many nodes can share; None when the node fits.

        Only labels and taints count: which nodes have room and free devices, the scheduler alone knows.
        """
        owner = self.owner
        if owner is not None and not owner.matches(node.labels):
            return f"the node affinity asks for {owner}"
        for key, value in self.node_selector.items():
            if node.labels.get(key) != value:
                return f"the nodeSelector asks for {key}={value}"
        if not affinity.is_met(self.terms, node.labels, node.name):
            return "no required term of the node affinity fits"
        taints = untolerated(self.tolerations, node.taints)
        if taints:
            titles = (f"{taint['key']}={taint.get('value') or ''}:{taint['effect']}" for taint in taints)
            return f"the taint {listed(titles)} is not tolerated"
        return None

    def misfit(self, node: Node) -> str | None:
        """Why a kubelet that restarts would end the pod on this node, as a clause; None when it would let it run on.

        A kubelet that starts checks the nodeSelector and the required node affinity of running pods again (Kubernetes,
        ``predicateAdmitHandler``), but neither taints other than NoExecute nor pod affinity. The label
        ``kubevirt.io/schedulable`` is left out: KubeVirt sets it to false whenever a virt-handler restarts.
        """
        for key, value in self.node_selector.items():
            if key != names.SCHEDULABLE_LABEL and node.labels.get(key) != value:
                return f"its nodeSelector asks for {key}={value}"
        if affinity.is_met(self.terms, node.labels, node.name) or self.stays_by(node):
            return None
        return f"its node affinity asks for {self.owner or 'other labels'}"

    def stays_by(self, node: Node) -> frozenset[str]:
        """The labels of the node that let the pod stay although its owner's nodes are others now."""
        if affinity.is_met(self.terms, node.labels, node.name):
            return frozenset()
        met = (term for term in self.stay_terms if affinity.is_met((term,), node.labels, node.name))
        return frozenset(key for term in met for key in epochs.until_keys(term))

    @property
    def owner(self) -> Requirement | None:
        """The one requirement on the owner label that every required term has; None when they differ or have none."""
        distinct = {
            tuple(
                Requirement.from_object(expression)
                for expression in term.get("matchExpressions") or ()
                if expression["key"] == names.OWNER_LABEL
            )
            for term in self.terms or ()
            if _has_requirements(term)
        }
        if len(distinct) != 1:
            return None
        (requirements,) = distinct
        return requirements[0] if len(requirements) == 1 else None


def _has_requirements(term: KubeObject) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _without_owner(term: KubeObject) -> KubeObject:
    expressions = term.get("matchExpressions") or ()
    return {**term, "matchExpressions": [e for e in expressions if e["key"] != names.OWNER_LABEL]}


# Its launcher images ------------------------------------------------------------------------------------------------


class LauncherImages:
    """The launcher images that VMs can have: those of a mapping table and KubeVirt's own, ``stock``.

    ``of_webhook``: those that kubevirt-aie-webhook gives by rules which are not ours.
    """

    def __init__(self, table: Table, stock: str, of_webhook: t.Iterable[str] = ()) -> None:
        self.stock = stock
        self._of_webhook = frozenset(of_webhook)
        self.known = {stock, *table.launcher_images}
        # Thousands of VMs have few images.
        self._copied = functools.cache(self._found_copied)

    def expected(self, winner: Pool | None) -> str:
        """The image of a VM that ``winner`` (None: no pool) gets."""
        return (winner and winner.virt_launcher_image) or self.stock

    def is_of_webhook(self, pod: LauncherPod) -> bool:
        """Whether kubevirt-aie-webhook gave a pod the image of ``compute``, and would give it that again."""
        return pod.by_webhook in self._of_webhook

    def wrong(self, images: t.Mapping[str, str], expected: str) -> dict[str, str]:
        """The images of a launcher pod, by place, that are certainly not the expected one."""
        others = self._others(images, expected)
        return {place: image for place, image in others.items() if expected not in self._copied(image)}

    def unsure(self, images: t.Mapping[str, str], expected: str) -> dict[str, str]:
        """The images, by place, that may be a copy of the expected one, and as well of another."""
        others = self._others(images, expected)
        return {place: image for place, image in others.items() if expected in self._copied(image)}

    def _others(self, images: t.Mapping[str, str], expected: str) -> dict[str, str]:
        return {place: image for place, image in images.items() if not self._same(image, expected)}

    def _same(self, image: str, expected: str) -> bool:
        """Whether an image is the expected one or its copy in another registry, as a mirror's webhook writes it.

        Where the expected image has no digest, one that admission appended to the tag is ignored.
        """
        if image == expected:
            return True
        if "@" not in expected:
            image = image.partition("@")[0]
        return image == expected or self._copied(image) == {expected}

    def _found_copied(self, image: str) -> set[str]:
        """The known images of which an unknown one may be a copy: those with which it shares most of its path, from the end."""
        if self.knows(image):
            return set()
        shared = {known: _shared(image, known) for known in self.known}
        most = max(shared.values())
        return {known for known, parts in shared.items() if parts == most} if most else set()

    def knows(self, image: str) -> bool:
        """Whether this is KubeVirt's image or a pool's, with or without a digest that admission appended."""
        return image in self.known or image.partition("@")[0] in self.known


def _shared(image: str, other: str) -> int:
    """How many parts of their paths two images have in common, counted from the end."""
    pairs = zip(reversed(image.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _pair in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
