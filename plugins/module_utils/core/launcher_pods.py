# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launcher pods as values: what they asked for, the launcher images they have, and the nodes they may go to."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.matching import Asked, words
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import (
    Requirement,
    Term,
    node_selector_matches,
    untolerated,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Node

KubeObject = t.Mapping[str, t.Any]

_VMI_KIND = "VirtualMachineInstance"
_VMI_ANNOTATION = "kubevirt.io/domain"
_VMI_LABEL = "vm.kubevirt.io/name"
_MIGRATION_LABEL = "kubevirt.io/migrationJobUID"

_LAUNCHER_CONTAINERS = frozenset({names.COMPUTE, "guest-console-log", "container-disk-binary"})
_VIRTIOFS = "virtiofs-"
_LAUNCHER_VOLUME = "launcher-volume"


@dataclass(frozen=True)
class Placement:
    """What a launcher pod asks of its node, as the scheduler reads it.

    ``terms`` are the required node-affinity terms as the API serves them, ORed; None for no such affinity.
    """

    node_selector: t.Mapping[str, str]
    terms: tuple[KubeObject, ...] | None
    tolerations: tuple[KubeObject, ...]

    @classmethod
    def of_spec(cls, spec: KubeObject) -> Placement:
        """The placement in a pod's spec; a VMI's spec has the same fields."""
        required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        return cls(
            node_selector=FrozenMap(spec.get("nodeSelector")),
            terms=None if required is None else tuple(required.get("nodeSelectorTerms") or ()),
            tolerations=tuple(spec.get("tolerations") or ()),
        )

    def requiring(self, requirement: Requirement) -> Placement:
        """The placement that also asks for this, in every term."""
        added = requirement.to_object()
        # A term without any requirement matches no node, and must not be given one.
        terms = tuple(
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), added]} if _asks(term) else term
            for term in self.terms or ()
        )
        if self.terms is None:
            terms = ({"matchExpressions": [added]},)
        return replace(self, terms=terms)

    def with_pool(self, requirement: Requirement, tolerations: t.Iterable[KubeObject] = ()) -> Placement:
        """The placement that the launcher policy makes of this one."""
        return replace(self.requiring(requirement), tolerations=(*self.tolerations, *tolerations))

    def without_owner(self) -> Placement:
        """The placement without what it asks of the owner label: the VM's own, before any launcher policy."""
        if self.terms is None:
            return self
        # A term that loses its last requirement asked for nothing else: all nodes are fine.
        own = tuple(_without_owner(term) if _asks(term) else term for term in self.terms)
        freed = any(_asks(before) and not _asks(after) for before, after in zip(self.terms, own, strict=True))
        return replace(self, terms=None if freed else own)

    def unfit(self, node: Node) -> str | None:
        """Why the scheduler keeps the pod off the node, as a clause that groups nodes; None when it fits.

        Labels and taints only: whether the node has room and free devices, the scheduler alone knows.
        """
        owner = self.owner
        if owner is not None and not owner.matches(node.labels):
            return f"the node affinity asks for {words(Term((owner,)))}"
        for key, value in self.node_selector.items():
            if node.labels.get(key) != value:
                return f"the nodeSelector asks for {key}={value}"
        required = None if self.terms is None else {"nodeSelectorTerms": self.terms}
        if not node_selector_matches(required, node.labels, node.name):
            return "no required term of the node affinity fits"
        taints = untolerated(self.tolerations, node.taints)
        if taints:
            shown = (f"{t_['key']}={t_.get('value') or ''}:{t_['effect']}" for t_ in taints)
            return f"the taint {listed(shown)} is not tolerated"
        return None

    @property
    def owner(self) -> Requirement | None:
        """What every required term asks of the owner label; None where they do not agree on one thing."""
        found = {
            tuple(
                Requirement.of_object(expression)
                for expression in term.get("matchExpressions") or ()
                if expression["key"] == names.OWNER_LABEL
            )
            for term in self.terms or ()
            if _asks(term)
        }
        if len(found) != 1:
            return None
        (asked,) = found
        return asked[0] if len(asked) == 1 else None


@dataclass(frozen=True)
class LauncherPod:
    """What we need of a launcher pod.

    ``launcher_images`` maps every place that has a launcher image (``container compute``, ``init container
    guest-console-log``, ``volume launcher-volume``) to the image there. ``stock`` and ``pool_env`` are what the launcher
    policy noted in the variables of ``compute``, ``pool_annotation`` and ``policy_annotation`` what is in annotations,
    where anybody may write. ``vmi_uid`` is None for a pod that no VMI controls: virt-controller did not make it.
    ``migration`` is the migration that the pod was made for as target. ``unschedulable`` is what the scheduler says.
    """

    namespace: str
    name: str
    uid: str
    vmi: str
    vmi_uid: str | None
    phase: str
    terminating: bool
    created: str
    node: str
    migration: str | None
    asked: Asked
    launcher_images: t.Mapping[str, str]
    stock: str | None
    pool_env: str | None
    pool_annotation: str | None
    policy_annotation: str | None
    terms: tuple[KubeObject, ...] | None
    tolerations: tuple[KubeObject, ...]
    unschedulable: str | None

    @classmethod
    def of(cls, pod: KubeObject, namespace_labels: t.Mapping[str, str] | None = None) -> LauncherPod:
        """The launcher pod that this object is. ``namespace_labels``: of its namespace."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        annotations = metadata.get("annotations") or {}
        variables = _variables(spec)
        vmi, vmi_uid = _vmi(metadata)
        placement = Placement.of_spec(spec)
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
            migration=(metadata.get("labels") or {}).get(_MIGRATION_LABEL),
            asked=Asked.of_pod(pod, namespace_labels),
            launcher_images=FrozenMap(dict(_launcher_images(spec))),
            stock=variables.get(names.STOCK_IMAGE_ENV),
            pool_env=variables.get(names.POOL_ENV),
            pool_annotation=annotations.get(names.OWNER_LABEL),
            policy_annotation=annotations.get(names.POLICY_ANNOTATION),
            terms=placement.terms,
            tolerations=placement.tolerations,
            unschedulable=_unschedulable(status),
        )

    @property
    def node_selector(self) -> t.Mapping[str, str]:
        return self.asked.node_selector

    @property
    def placement(self) -> Placement:
        return Placement(self.node_selector, self.terms, self.tolerations)

    @property
    def ended(self) -> bool:
        """Whether its guest is gone, or was migrated away."""
        return self.phase in ("Succeeded", "Failed")


def _asks(term: KubeObject) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _without_owner(term: KubeObject) -> KubeObject:
    expressions = term.get("matchExpressions") or ()
    return {**term, "matchExpressions": [e for e in expressions if e["key"] != names.OWNER_LABEL]}


def is_launcher(pod: KubeObject) -> bool:
    """Whether a pod is labelled as launcher pod."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(names.KUBEVIRT_LABEL) == names.LAUNCHER)


def _launcher_images(spec: KubeObject) -> t.Iterator[tuple[str, str]]:
    """Places and images, by name: a stock image tells nothing of a pod whose images were replaced."""
    for field, place in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(field) or ():
            name = container["name"]
            if name in _LAUNCHER_CONTAINERS or name.startswith(_VIRTIOFS):
                yield f"{place} {name}", container.get("image") or ""
    for volume in spec.get("volumes") or ():
        if volume["name"] == _LAUNCHER_VOLUME and volume.get("image"):
            yield f"volume {_LAUNCHER_VOLUME}", volume["image"].get("reference") or ""


def _variables(spec: KubeObject) -> dict[str, str]:
    """The plain variables of ``compute``."""
    return {
        variable["name"]: variable["value"]
        for container in spec.get("containers") or ()
        if container["name"] == names.COMPUTE
        for variable in container.get("env") or ()
        if variable.get("value")
    }


def _vmi(metadata: KubeObject) -> tuple[str, str | None]:
    """Name and uid of the VMI. The label has the name too, but shortened to what a label can hold."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == _VMI_KIND:
            return str(reference["name"]), str(reference.get("uid", ""))
    annotated = (metadata.get("annotations") or {}).get(_VMI_ANNOTATION)
    return annotated or (metadata.get("labels") or {}).get(_VMI_LABEL, ""), None


def _unschedulable(status: KubeObject) -> str | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("message") or condition.get("reason") or "it gives no reason"
    return None
