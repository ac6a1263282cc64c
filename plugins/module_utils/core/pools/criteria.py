# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The criteria by which a pool selects VMs, and what they look at in a launcher pod.

To add a criterion, give ``VmSelector`` its fields and add an entry to ``CRITERIA``. If it looks at something new in the
pod, add that to ``PodAttributes``. Our own form of pools, the matcher, the launcher policy, its probes, explanations,
canary VMs and the rules of kubevirt-aie-webhook follow from the entry.
"""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields

from ..base import cel, names
from ..base.findings import listed
from ..base.frozen import FrozenMap, freeze
from ..base.objects import KubeObject
from ..base.selectors import LABEL_OPERATORS, Requirement, Term, device_name_problem, dns_label_problem, example_labels
from . import inputs
from .inputs import FieldPath

Fields: t.TypeAlias = "t.Mapping[str, str | Fields]"
"""The fields of a mapping: the model's field that each one holds, or the fields below it."""

Readers: t.TypeAlias = "t.Mapping[str, t.Callable[[FieldPath, object], object | None]]"
"""How fields of the model are read: the value, or None after the reader reported what is wrong with it."""

Trait: t.TypeAlias = "tuple[str, ...]"
"""Something that launcher pods have: ``(device, name)``, ``(label, key, value)`` or ``(node, key, value)``, of the node selector."""

ARCHITECTURE_LABEL = "kubernetes.io/arch"
"""virt-controller puts the VMI's ``spec.architecture`` under it into the launcher pod's nodeSelector."""
EMULATED_ARCHITECTURE = "kubevirt.io/vm-arch-"
"""With the feature gate CrossArchitectureVirtualization, virt-controller puts a label there in its place that begins with this."""


@dataclass(frozen=True)
class PodAttributes:
    """What criteria look at in a launcher pod. An admission policy sees no more of the VM than this."""

    namespace: str
    namespace_labels: t.Mapping[str, str] = field(default_factory=FrozenMap)
    labels: t.Mapping[str, str] = field(default_factory=FrozenMap)
    node_selector: t.Mapping[str, str] = field(default_factory=FrozenMap)
    """The VM's own labels and KubeVirt's."""
    devices: frozenset[str] = frozenset()
    """The names in the limits of ``compute``: devices, but also what else KubeVirt or the VM's owner put there."""

    @classmethod
    def from_pod(cls, pod: KubeObject, namespace_labels: t.Mapping[str, str] | None = None) -> PodAttributes:
        """The attributes of a launcher pod, given the labels of its namespace."""
        metadata, spec = pod["metadata"], pod["spec"]
        compute: KubeObject = next((c for c in spec.get("containers") or () if c.get("name") == names.COMPUTE), {})
        return cls(
            namespace=metadata.get("namespace", ""),
            namespace_labels=FrozenMap(namespace_labels),
            labels=FrozenMap(metadata.get("labels")),
            node_selector=FrozenMap(spec.get("nodeSelector")),
            devices=frozenset((compute.get("resources") or {}).get("limits") or ()),
        )

    @classmethod
    def from_vmi(
        cls, vmi: KubeObject, namespace: str, namespace_labels: t.Mapping[str, str] | None = None
    ) -> PodAttributes:
        """What builds of KubeVirt with pools of their own look at: the VM instance, or a VM's template, and not its pod. A device in
        limits, and labels and a node selector that only the pod has, take no part."""
        spec = vmi.get("spec") or {}
        devices = (spec.get("domain") or {}).get("devices") or {}
        asked = (*(devices.get("gpus") or ()), *(devices.get("hostDevices") or ()))
        return cls(
            namespace=namespace,
            namespace_labels=FrozenMap(namespace_labels),
            labels=FrozenMap((vmi.get("metadata") or {}).get("labels")),
            node_selector=FrozenMap(spec.get("nodeSelector")),
            devices=frozenset(device["deviceName"] for device in asked if device.get("deviceName")),
        )

    def traits(self, keys: t.Iterable[tuple[str, str]]) -> t.Iterator[Trait]:
        """The traits of the pod: its devices, and of its labels and node selector those with these keys, ``(label, key)`` or ``(node,
        key)``. A pod has many others, for which no pool asks."""
        for name in self.devices:
            yield ("device", name)
        for kind, key in keys:
            value = (self.labels if kind == "label" else self.node_selector).get(key)
            if value is not None:
                yield (kind, key, value)


@dataclass(frozen=True)
class Example:
    """What a VM must have, and its launcher pod then has, to meet a criterion."""

    labels: t.Mapping[str, str] = FrozenMap()
    node_selector: t.Mapping[str, str] = FrozenMap()
    device: str | None = None
    spec: t.Mapping[str, t.Any] = FrozenMap()
    """Further fields, which virt-controller copies from the VM instance's ``spec`` to the pod's."""


# The selector -------------------------------------------------------------------------------------------------------


def freeze_fields(instance: object, sets: t.Collection[str]) -> None:
    """Make the fields of a frozen dataclass immutable, and sort those in ``sets``: their order has no meaning."""
    for each in dataclass_fields(t.cast("t.Any", instance)):
        value = freeze(getattr(instance, each.name))
        if each.name in sets:
            value = tuple(sorted(set(value), key=repr))
        object.__setattr__(instance, each.name, value)


@dataclass(frozen=True)
class Namespaces:
    """The namespaces with one of these names, and those with all of these labels: no criterion, but the restriction
    of all criteria of a pool.
    """

    path: t.ClassVar[str] = "selector.namespaces"

    names: tuple[str, ...] = ()
    match_labels: t.Mapping[str, str] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        freeze_fields(self, sets=("names",))

    def match(self, name: str, labels: t.Mapping[str, str]) -> bool:
        """Whether a namespace with this name and these labels is one of them."""
        return name in self.names or (bool(self.match_labels) and self._term.matches(labels))

    def met(self, attributes: PodAttributes) -> bool:
        return self.match(attributes.namespace, attributes.namespace_labels)

    def wanted(self) -> str:
        by_name = [f"one of {listed(self.names)}"] if self.names else []
        return " or ".join([*by_name, *([f"a namespace with {self._term}"] if self.match_labels else [])])

    def condition(self) -> str:
        by_name = [f"request.namespace in {cel.literal(self.names)}"] if self.names else []
        by_labels = [cel.meets_term(self._term, "variables.namespaceLabels")] if self.match_labels else []
        return cel.any_of([*by_name, *by_labels])

    def to_object(self) -> dict[str, t.Any]:
        given = {"names": list(self.names), "matchLabels": dict(self.match_labels)}
        return {key: value for key, value in given.items() if value}

    @property
    def _term(self) -> Term:
        return Term.from_labels(self.match_labels)


@dataclass(frozen=True)
class VmSelector:
    """Which VMs a pool is for: any criterion is enough, and ``namespaces`` restricts them all. Labels are those of
    the VM instance."""

    device_names: tuple[str, ...] = ()
    match_labels: t.Mapping[str, str] = field(default_factory=FrozenMap)
    match_expressions: tuple[Requirement, ...] = ()
    """Together with ``match_labels`` one criterion."""
    match_node_selector: bool = False
    """The VM's ``nodeSelector`` has all of the pool's."""
    architectures: tuple[str, ...] = ()
    namespaces: Namespaces | None = None

    def __post_init__(self) -> None:
        freeze_fields(self, sets=("device_names", "match_expressions", "architectures"))

    @functools.cached_property
    def labels(self) -> Term:
        """What the VM's labels must be like to match; without requirements when the pool does not select by them."""
        return Term((*Term.from_labels(self.match_labels).requirements, *self.match_expressions))

    @functools.cached_property
    def criteria(self) -> tuple[Criterion, ...]:
        """The criteria that are given."""
        return tuple(c for c in CRITERIA if any(getattr(self, attribute) for attribute in c.readers))


# Reading its fields -------------------------------------------------------------------------------------------------


_OTHER_NAMES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
_ARCHITECTURE = re.compile(r"[a-z0-9]+", re.ASCII)


def _architecture_problem(name: str) -> str | None:
    if name in _OTHER_NAMES:
        return f"Kubernetes calls {_OTHER_NAMES[name]}; write {_OTHER_NAMES[name]}"
    return None if _ARCHITECTURE.fullmatch(name[:32]) else "is not an architecture like amd64, arm64 or s390x"


_namespace_names = inputs.texts("names of namespaces", dns_label_problem)


def _namespaces(place: FieldPath, value: object) -> Namespaces | None:
    if isinstance(value, (list, tuple)):
        plain = _namespace_names(place, value)
        return Namespaces(plain) if plain is not None else None
    before = place.problems.count
    given = inputs.mapping(place, value, ("names", "matchLabels"))
    if given is None:
        return None
    if not given and place.problems.count == before:
        place.invalid(value, "; give a list of names, or a mapping with names or matchLabels")
    by_name = _namespace_names(place.field("names"), given["names"]) if "names" in given else ()
    labels = inputs.labels(place.field("matchLabels"), given["matchLabels"]) if "matchLabels" in given else {}
    return Namespaces(by_name or (), labels or {}) if place.problems.count == before else None


# The criteria -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """What a pool selects VMs by: its selector, and its node selector for the criterion that compares with it."""

    selector: VmSelector
    node_selector: t.Mapping[str, str]


@dataclass(frozen=True)
class Criterion:
    """One way to select VMs: where it stands in our form, how it is read, and what it means for a pool's selection.

    Every criterion must show in the launcher pod, since admission policies see nothing else of a VM: ``met`` gets
    what ``PodAttributes.from_pod`` reads, and ``condition`` reads the same from the pod in admission.
    """

    path: str
    """Where it stands in our form."""
    fields: str | Fields
    """The field of ``VmSelector`` that stands there, or the fields below it."""
    readers: Readers
    """How each of these fields of ``VmSelector`` is read. The pool has the criterion when one of them has a value."""
    met: t.Callable[[Selection, PodAttributes], bool]
    wanted: t.Callable[[Selection], str]
    """What it asks for, in words."""
    present: t.Callable[[Selection, PodAttributes], str]
    """What the pod has of that, in words."""
    condition: t.Callable[[Selection], str]
    """What ``met`` says, in CEL. The launcher policy has the variables ``asked`` (names of devices), ``labels`` and
    ``selected`` (the node selector) for it."""
    needs: t.Callable[[Selection], t.Collection[Trait]]
    """Traits of which every pod that meets it has one; none when there are no such traits. They avoid testing every VM
    against every pool."""
    examples: t.Callable[[Selection], t.Sequence[Example]]
    """What meets it, one for each alternative: probes use the first, canary VMs one that their nodes have. Empty when no VM
    can meet it: then the pool is refused."""
    in_aie_rules: bool = False
    """Whether rules of kubevirt-aie-webhook have it, written as in our form. These rules lead no VM to nodes, so set it
    only where the criterion itself keeps the VM on the pool's nodes, as a device does."""
    for_canary_vms: bool = True
    """Whether a canary VM may be changed to meet it."""

    @property
    def field(self) -> str:
        """Its field below ``selector``."""
        return self.path.removeprefix("selector.")


def _labels_of(term: Term, labels: t.Mapping[str, str]) -> str:
    """What there is of the labels that a term asks about."""
    keys = sorted({requirement.key for requirement in term.requirements})
    return ", ".join(f"{key}={labels[key]}" if key in labels else f"no {key}" for key in keys)


def _traits(kind: str, term: Term) -> list[Trait]:
    needed = term.narrowest
    return [(kind, needed.key, value) for value in needed.values] if needed is not None else []


def _devices_present(pool: Selection, pod: PodAttributes) -> str:
    present = pod.devices.intersection(pool.selector.device_names)
    return listed(present) if present else f"none of them in the limits of {names.COMPUTE}"


@functools.cache  # verifications ask for every VM
def _architectures(wanted: tuple[str, ...]) -> tuple[Requirement, ...]:
    """The requirements on a pod's nodeSelector of which one is enough."""
    emulated = (Requirement(EMULATED_ARCHITECTURE + name, "In", ("true",)) for name in wanted)
    return (Requirement(ARCHITECTURE_LABEL, "In", wanted), *emulated)


def _architecture_of(pod: PodAttributes) -> str:
    emulated = (key.removeprefix(EMULATED_ARCHITECTURE) for key in pod.node_selector if EMULATED_ARCHITECTURE in key)
    return pod.node_selector.get(ARCHITECTURE_LABEL) or ", ".join(sorted(emulated)) or "no architecture"


def _label_examples(pool: Selection) -> list[Example]:
    labels = example_labels(pool.selector.labels)
    return [] if labels is None else [Example(labels=labels)]


CRITERIA: tuple[Criterion, ...] = (
    Criterion(
        path="selector.deviceNames",
        fields="device_names",
        readers={"device_names": inputs.texts("device names", device_name_problem)},
        met=lambda pool, pod: not pod.devices.isdisjoint(pool.selector.device_names),
        wanted=lambda pool: f"one of {listed(pool.selector.device_names)}",
        present=_devices_present,
        condition=lambda pool: cel.any_of(
            f"{cel.literal(name)} in variables.asked" for name in pool.selector.device_names
        ),
        needs=lambda pool: [("device", device) for device in pool.selector.device_names],
        examples=lambda pool: [Example(device=device) for device in pool.selector.device_names],
        in_aie_rules=True,
    ),
    Criterion(  # virt-controller gives the pod the labels of the VM instance
        path="selector.vmLabels",
        fields={"matchLabels": "match_labels", "matchExpressions": "match_expressions"},
        readers={
            "match_labels": inputs.labels,
            "match_expressions": lambda place, value: inputs.requirements(place, value, LABEL_OPERATORS),
        },
        met=lambda pool, pod: pool.selector.labels.matches(pod.labels),
        wanted=lambda pool: str(pool.selector.labels),
        present=lambda pool, pod: _labels_of(pool.selector.labels, pod.labels),
        condition=lambda pool: cel.meets_term(pool.selector.labels, "variables.labels"),
        needs=lambda pool: _traits("label", pool.selector.labels),
        examples=_label_examples,
    ),
    Criterion(
        path="selector.matchNodeSelector",
        fields="match_node_selector",
        readers={"match_node_selector": inputs.boolean},
        met=lambda pool, pod: pool.node_selector.items() <= pod.node_selector.items(),
        wanted=lambda pool: f"nodeSelector with {Term.from_labels(pool.node_selector)}",
        present=lambda pool, pod: _labels_of(Term.from_labels(pool.node_selector), pod.node_selector),
        condition=lambda pool: cel.meets_term(Term.from_labels(pool.node_selector), "variables.selected"),
        needs=lambda pool: _traits("node", Term.from_labels(pool.node_selector)),
        examples=lambda pool: [Example(node_selector=pool.node_selector)],
    ),
    Criterion(
        path="selector.architectures",
        fields="architectures",
        readers={"architectures": inputs.texts("architectures", _architecture_problem)},
        met=lambda pool, pod: any(
            wanted.matches(pod.node_selector) for wanted in _architectures(pool.selector.architectures)
        ),
        wanted=lambda pool: f"one of {listed(pool.selector.architectures)}",
        present=lambda _pool, pod: _architecture_of(pod),
        condition=lambda pool: cel.any_of(
            cel.meets(each, "variables.selected") for each in _architectures(pool.selector.architectures)
        ),
        needs=lambda pool: [
            ("node", each.key, value) for each in _architectures(pool.selector.architectures) for value in each.values
        ],
        examples=lambda pool: [Example(node_selector={ARCHITECTURE_LABEL: a}) for a in pool.selector.architectures],
        for_canary_vms=False,  # the architecture of a VM is that of its node
    ),
)
"""Every criterion, in the order in which policies check them and explanations list them."""

SELECTOR_FORM: Fields = {**{criterion.field: criterion.fields for criterion in CRITERIA}, "namespaces": "namespaces"}
"""``selector`` in our form."""
SELECTOR_READERS: Readers = {
    **{attribute: reader for criterion in CRITERIA for attribute, reader in criterion.readers.items()},
    "namespaces": _namespaces,
}
"""How each field of ``VmSelector`` is read."""
