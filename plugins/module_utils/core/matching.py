# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pool a launcher pod belongs to, and why."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.mapping import Table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool, VmSelector
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.selectors import Requirement, Term

KubeObject = t.Mapping[str, t.Any]

ARCHITECTURE_LABEL = "kubernetes.io/arch"
"""virt-controller puts the VMI's ``spec.architecture`` under it into the launcher pod's nodeSelector."""


@dataclass(frozen=True)
class Asked:
    """What decides a launcher pod's pool: all that an admission policy sees of the VM.

    ``devices`` are the names in the limits of ``compute``: devices, but also what else KubeVirt or the VM's owner put
    there. ``node_selector`` has the VM's own labels and KubeVirt's.
    """

    namespace: str
    namespace_labels: t.Mapping[str, str] = field(default_factory=FrozenMap)
    labels: t.Mapping[str, str] = field(default_factory=FrozenMap)
    node_selector: t.Mapping[str, str] = field(default_factory=FrozenMap)
    devices: frozenset[str] = frozenset()

    @classmethod
    def of_pod(cls, pod: KubeObject, namespace_labels: t.Mapping[str, str] | None = None) -> Asked:
        """What a launcher pod asks for. ``namespace_labels``: of its namespace."""
        metadata, spec = pod["metadata"], pod["spec"]
        compute: KubeObject = next((c for c in spec.get("containers") or () if c.get("name") == names.COMPUTE), {})
        return cls(
            namespace=metadata.get("namespace", ""),
            namespace_labels=FrozenMap(namespace_labels),
            labels=FrozenMap(metadata.get("labels")),
            node_selector=FrozenMap(spec.get("nodeSelector")),
            devices=frozenset((compute.get("resources") or {}).get("limits") or ()),
        )


@dataclass(frozen=True)
class Criterion:
    """One criterion of a pool's selector (in our form's words), and whether a VM meets it.

    ``wanted`` and ``found`` are words for a person.
    """

    field: str
    met: bool
    wanted: str
    found: str

    def to_dict(self) -> dict[str, t.Any]:
        return {"field": self.field, "met": self.met, "wanted": self.wanted, "found": self.found}


def winner(table: Table, asked: Asked) -> Pool | None:
    """The rule that wins, the first that matches; of a canary VM with the image that it gets before others do."""
    found = next((rule for rule in table.rules if matches(rule, asked)), None)
    if found is not None and is_canary(table, found, asked):
        return replace(found, virt_launcher_image=table.canaries[found.name])
    return found


def is_canary(table: Table, winner: Pool, asked: Asked) -> bool:
    """Whether a VM that this pool wins gets the pool's new launcher image before it is in effect."""
    return winner.name in table.canaries and asked.labels.get(names.CANARY_LABEL) == winner.name


def matches(pool: Pool, asked: Asked) -> bool:
    """Whether a pool's selector takes a VM: its namespace is among the pool's, and any criterion is met."""
    selector = pool.selector
    if selector is None or not _in_namespaces(selector, asked):
        return False
    return (
        _has_device(selector, asked)
        or _has_labels(selector, asked)
        or _selects_nodes(pool, selector, asked)
        or _has_architecture(selector, asked)
    )


def criteria(pool: Pool, asked: Asked) -> tuple[Criterion, ...]:
    """Every criterion that the pool has, any of which is enough."""
    selector = pool.selector
    if selector is None:
        return ()
    found = []
    if selector.device_names:
        common = asked.devices.intersection(selector.device_names)
        found.append(
            Criterion(
                "selector.deviceNames",
                _has_device(selector, asked),
                f"one of {listed(selector.device_names)}",
                listed(common) if common else f"none of them in the limits of {names.COMPUTE}",
            )
        )
    if selector.labels is not None:
        wanted, present = words(selector.labels), _of_those(selector.labels, asked.labels)
        found.append(Criterion("selector.vmLabels", _has_labels(selector, asked), wanted, present))
    if selector.match_node_selector:
        term = Term.of_labels(pool.node_selector)
        wanted, present = f"nodeSelector with {words(term)}", _of_those(term, asked.node_selector)
        met = _selects_nodes(pool, selector, asked)
        found.append(Criterion("selector.matchNodeSelector", met, wanted, present))
    if selector.architectures:
        present = asked.node_selector.get(ARCHITECTURE_LABEL, "no architecture")
        wanted = f"one of {listed(selector.architectures)}"
        found.append(Criterion("selector.architectures", _has_architecture(selector, asked), wanted, present))
    return tuple(found)


def namespace_criterion(pool: Pool, asked: Asked) -> Criterion | None:
    """The restriction to namespaces, which must be met besides; None where the pool has none."""
    selector = pool.selector
    if selector is None or selector.namespaces is None:
        return None
    wanted = []
    if selector.namespaces.names:
        wanted.append(f"one of {listed(selector.namespaces.names)}")
    if selector.namespaces.match_labels:
        wanted.append(f"a namespace with {words(Term.of_labels(selector.namespaces.match_labels))}")
    return Criterion("selector.namespaces", _in_namespaces(selector, asked), " or ".join(wanted), asked.namespace)


def words(term: Term) -> str:
    """A term as people write it: ``a=b, c in (d, e), !f``."""
    return ", ".join(map(_word, term.requirements))


def _word(requirement: Requirement) -> str:
    key, values = requirement.key, ", ".join(requirement.values)
    if requirement.operator == "In":
        return f"{key}={values}" if len(requirement.values) == 1 else f"{key} in ({values})"
    if requirement.operator == "NotIn":
        return f"{key} not in ({values})"
    if requirement.operator == "Exists":
        return key
    if requirement.operator == "DoesNotExist":
        return f"no {key}"
    return f"{key} {'>' if requirement.operator == 'Gt' else '<'} {values}"


def _of_those(term: Term, labels: t.Mapping[str, str]) -> str:
    """What there is of the labels that a term asks about."""
    keys = sorted({requirement.key for requirement in term.requirements})
    return ", ".join(f"{key}={labels[key]}" if key in labels else f"no {key}" for key in keys)


def _has_device(selector: VmSelector, asked: Asked) -> bool:
    return not asked.devices.isdisjoint(selector.device_names)


def _has_labels(selector: VmSelector, asked: Asked) -> bool:
    return selector.labels is not None and selector.labels.matches(asked.labels)


def _selects_nodes(pool: Pool, selector: VmSelector, asked: Asked) -> bool:
    return selector.match_node_selector and pool.node_selector.items() <= asked.node_selector.items()


def _has_architecture(selector: VmSelector, asked: Asked) -> bool:
    return asked.node_selector.get(ARCHITECTURE_LABEL) in selector.architectures


def _in_namespaces(selector: VmSelector, asked: Asked) -> bool:
    return selector.namespaces is None or selector.namespaces.match(asked.namespace, asked.namespace_labels)
