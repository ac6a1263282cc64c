# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The builds of KubeVirt that have pools of their own, as one table: where the pools are, and what the build makes of them.

Each entry says what was read in the code of one proposal to KubeVirt: pull requests 16692 (``additionalVirtHandlers``), 17048
(``virtHandlerPools``, later ``workerPools``) and 17597 (``WorkerPool`` objects). No other code asks which build it is.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..base import kinds, names
from ..base.kinds import Kind
from ..base.objects import KubeObject
from ..kubevirt import feature_gates
from ..kubevirt.daemonsets import LAUNCHER_CONTAINERS
from ..pools.criteria import Fields
from ..pools.dialects import DIALECTS, CustomResources, Dialect, KubeVirtField
from ..pools.forms import leaf_names


@dataclass(frozen=True)
class Build:
    """A build of KubeVirt with pools of its own."""

    name: str
    """That of its dialect, by which users know it."""
    pool_label: str
    """On a pool's DaemonSet and handler pods, and as annotation on the launcher pods that the pool took."""
    image_containers: frozenset[str]
    """The containers of a pool's handler pod that get the pool's images. The others keep KubeVirt's own."""
    replaces_image_everywhere: bool
    """Whether it gives a VM's launcher image to every place of the pod; else image volumes and hotplug pods keep KubeVirt's own."""
    inherits_placement: bool
    """Whether pool DaemonSets follow the affinity and tolerations of KubeVirt's spec.workloads.nodePlacement."""
    inherits_node_selector: bool
    """Whether they also follow the primary's nodeSelector."""
    exclusion_in_every_term: bool
    """Whether the primary's exclusion is ANDed with the terms of nodePlacement; else these are ORed to it, and defeat it."""
    requires_node_labels: bool
    """Whether it requires the pool's node labels of the VMs that the pool takes."""
    gate_with_list: bool
    """Whether the gate may be turned off together with the list; else only once the operator has followed the list."""
    rolls_out_all: bool
    """Whether a change of the pools looks like an upgrade of KubeVirt to the version that it has."""
    restarts: str
    """What the operator restarts on every change of the pools, beyond the handlers of the nodes that change owners."""
    joining_first: str
    """What nodes that get a pool have while the gate is still off, until the operator is done."""
    joining: str
    """The same where the gate is on already."""
    leaving: str
    """What nodes that go back to the primary, or from one pool to another, have until then."""
    upgrade: str = ""
    """What an upgrade of KubeVirt does to its pools, beyond leaving their images as they are."""
    stalls_upgrades: bool = False
    """Whether its way of upgrades leaves the pools' handlers at the former version, although virt-operator waits for them."""

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.name]

    @property
    def gate(self) -> str:
        """The feature gate that turns its pools on."""
        source = self.dialect.source
        return source.gate if isinstance(source, KubeVirtField) else feature_gates.WORKER_POOLS_GATE

    @property
    def field(self) -> str | None:
        """The field of the KubeVirt object's spec with the list; None for objects."""
        return self.dialect.source.name if isinstance(self.dialect.source, KubeVirtField) else None

    @property
    def kind(self) -> Kind | None:
        """The kind of its objects; None for a list."""
        return self.dialect.source.kind if isinstance(self.dialect.source, CustomResources) else None

    @property
    def by_name(self) -> bool:
        """Whether the first pool by name takes a VM that several match, and not the first in the list."""
        return self.dialect.by_name

    @property
    def place(self) -> str:
        """Where its pools are, for messages."""
        return f"{self.kind} objects" if self.field is None else f"spec.{self.field} of the KubeVirt object"

    @property
    def fields(self) -> Fields:
        """Where its form has each field of a pool that it supports."""
        return self.dialect.form.written_fields

    def supports(self, attribute: str) -> bool:
        """Whether its form has this field of a pool."""
        return attribute in leaf_names(self.fields)

    def images(self, handler: str | None, launcher: str | None) -> dict[str, str]:
        """The images that a pool's handler pod gets instead of KubeVirt's own, by container."""
        wanted = {names.HANDLER: handler, **dict.fromkeys(LAUNCHER_CONTAINERS, launcher)}
        return {name: image for name, image in wanted.items() if image and name in self.image_containers}

    def pool_of(self, obj: KubeObject) -> str | None:
        """The pool that an object's label names; None for an object without it."""
        value = ((obj.get("metadata") or {}).get("labels") or {}).get(self.pool_label)
        return None if value is None else str(value)

    def pool_daemonsets(self, daemonsets: t.Iterable[KubeObject]) -> dict[str, KubeObject]:
        """Those among these DaemonSets that belong to its pools, by pool."""
        by_pool = ((self.pool_of(daemonset), daemonset) for daemonset in daemonsets)
        return {pool: daemonset for pool, daemonset in by_pool if pool is not None}

    def __str__(self) -> str:
        return self.name


_BARE: t.Final = (
    "The primary leaves nodes that join a pool all at once, and the pools' handlers come later, one pool after the other: these nodes have "
    "no handler in between."
)
_DOUBLE: t.Final = (
    "Nodes that leave a pool have two handlers for some seconds: the primary's comes before the pool's goes."
)

_LIST = Build(
    name="virtHandlerPools",
    pool_label=names.OPERATOR_POOL_LABELS[0],
    image_containers=frozenset((names.HANDLER, *LAUNCHER_CONTAINERS)),
    replaces_image_everywhere=False,
    inherits_placement=True,
    inherits_node_selector=True,
    exclusion_in_every_term=False,
    requires_node_labels=True,
    gate_with_list=True,
    rolls_out_all=False,
    restarts="virt-operator restarts every primary handler when the exclusion changes",
    joining_first=_BARE,
    joining=_BARE,
    leaving=_DOUBLE,
    upgrade=(
        "an upgrade does not end while there are pools: virt-operator does not renew their handlers in it, and waits for them. The primary "
        "loses its exclusion, and every pool node gets a second handler, until a run of site makes virt-operator notice the pools again"
    ),
    stalls_upgrades=True,
)

BUILDS: t.Mapping[str, Build] = {
    build.name: build
    for build in (
        Build(
            name="additionalVirtHandlers",
            pool_label=names.OPERATOR_POOL_LABELS[0],
            image_containers=frozenset((names.HANDLER, *LAUNCHER_CONTAINERS)),
            replaces_image_everywhere=True,
            inherits_placement=False,
            inherits_node_selector=False,
            exclusion_in_every_term=True,
            requires_node_labels=False,
            gate_with_list=False,
            rolls_out_all=True,
            restarts="virt-operator rolls out all of KubeVirt like an upgrade: every handler, virt-api and virt-controller",
            joining_first="Nodes that join a pool have no handler until the primary's rollout has ended.",
            joining="Nodes that join a pool have no handler until the primary's rollout has ended.",
            leaving=_DOUBLE,
        ),
        _LIST,
        replace(_LIST, name="workerPools"),
        Build(
            name="WorkerPool",
            pool_label=names.OPERATOR_POOL_LABELS[1],
            image_containers=frozenset((names.HANDLER,)),
            replaces_image_everywhere=False,
            inherits_placement=True,
            inherits_node_selector=False,
            exclusion_in_every_term=False,
            requires_node_labels=True,
            gate_with_list=True,
            rolls_out_all=False,
            restarts="virt-operator restarts every primary handler when the exclusion changes",
            joining_first=_BARE,
            joining="Nodes that join a pool have two handlers until the run has changed the KubeVirt object and virt-operator has followed.",
            leaving=(
                "Nodes that leave a pool have no handler until then; or two, when virt-operator follows another change of the KubeVirt "
                "object first."
            ),
        ),
    )
}
"""Every build, by its name."""

FIELDS: t.Final = {build.field: build for build in BUILDS.values() if build.field is not None}
"""The builds with a list in the KubeVirt object, by its field."""

OBJECTS: t.Final = next(build for build in BUILDS.values() if build.kind is kinds.WORKER_POOL)
"""The build with an object for each pool."""
