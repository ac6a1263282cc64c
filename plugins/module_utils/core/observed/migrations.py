# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Live migrations that have not ended."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.objects import KubeObject, condition, field
from .handlers import node_of
from .nodes import timestamp

_FINAL_PHASES = frozenset({"Succeeded", "Failed"})
"""Of migrations, and of VMIs."""

_WAITING_FOR_SYNC = frozenset({"WaitingForSync", "Synchronizing"})
"""Phases of the receiver and of the sender of a decentralized migration until they have found each other."""

_CLOCKS_DIFFER_SECONDS = 60.0
"""How much two clocks may differ: a source notes when a migration has ended, a target when its handler started."""

_REJECTED_BY_QUOTA = "migrationRejectedByResourceQuota"


@dataclass(frozen=True)
class Migration:
    """A live migration that has not ended."""

    namespace: str
    name: str
    vmi: str
    phase: str
    nodes: frozenset[str]
    """The nodes with pods of it: a handler that restarts there would break it. None for one that has no pod, or that cannot
    go on before something else happens, which may be never."""

    def __str__(self) -> str:
        return f"VM {self.namespace}/{self.vmi} (migration {self.name}, {self.phase})"


def active_migrations(
    migrations: t.Iterable[KubeObject], vmis: t.Iterable[KubeObject], targets: t.Iterable[KubeObject] = ()
) -> tuple[Migration, ...]:
    """The migrations that have not ended, with their source and target nodes, where known.

    The VMI names both (``status.nodeName`` and ``status.migrationState``) earlier than the migration itself. Before that only
    the target pod knows the target.

    :param vmis: at least those that are being migrated; one that is missing was deleted.
    :param targets: pods, at least those that active migrations move VMs to.
    """
    target_nodes = {(pod["metadata"].get("labels") or {}).get(names.MIGRATION_LABEL): node_of(pod) for pod in targets}
    by_name = {(vmi["metadata"].get("namespace"), vmi["metadata"]["name"]): vmi for vmi in vmis}
    active = []
    for migration in migrations:
        if not is_active(migration):
            continue
        metadata = migration["metadata"]
        vmi_name = field(migration, "spec", "vmiName") or ""
        vmi = by_name.get((metadata.get("namespace"), vmi_name))
        ends = (*_ends(migration, vmi), target_nodes.get(metadata.get("uid", "")))
        active.append(
            Migration(
                namespace=metadata.get("namespace", ""),
                name=metadata["name"],
                vmi=vmi_name,
                phase=_phase(migration) or "Pending",
                nodes=frozenset(end for end in ends if end),
            )
        )
    return tuple(sorted(active, key=lambda m: (m.namespace, m.name)))


def is_active(migration: KubeObject) -> bool:
    return _phase(migration) not in _FINAL_PHASES


def is_migrating(vmi: KubeObject) -> bool:
    """Whether the handlers of two nodes are in the middle of a live migration of this VM.

    virt-controller names the target node once the target pod runs there, and leaves the rest to the handlers (KubeVirt 1.9,
    handleTargetPodHandoff).
    """
    state = _state_of_living(vmi)
    ended = state.get("completed") or state.get("failed") or state.get("endTimestamp")
    return bool(state.get("targetNode")) and not ended


def is_taking_over(vmi: KubeObject) -> bool:
    """Whether the handler of the target has yet to clean up after a live migration that went well. It removes the label of the target
    then (KubeVirt 1.9, finalCleanup in pkg/virt-handler)."""
    state = _state_of_living(vmi)
    ended = state.get("completed") or state.get("endTimestamp")
    labels = vmi["metadata"].get("labels") or {}
    return bool(ended) and not state.get("failed") and names.MIGRATION_TARGET_LABEL in labels


def _state_of_living(vmi: KubeObject) -> KubeObject:
    """The state of the VM's last migration; empty for a VM that has ended."""
    status = vmi.get("status") or {}
    return {} if status.get("phase") in _FINAL_PHASES else status.get("migrationState") or {}


def is_evacuated(vmi: KubeObject) -> bool:
    """Whether KubeVirt migrates a running VM away from its node, because its pod was evicted there."""
    status = vmi.get("status") or {}
    node = status.get("evacuationNodeName")
    return bool(node) and node == status.get("nodeName") and status.get("phase") not in _FINAL_PHASES


@dataclass(frozen=True)
class Arrival:
    """A running VM that came to its node by live migration."""

    namespace: str
    name: str
    migration: str | None
    """The UID of that migration."""
    ended: float | None
    """When it ended, in seconds since 1970, by the clock of the former node."""
    annotations: t.Mapping[str, str]

    @classmethod
    def of(cls, vmi: KubeObject) -> Arrival | None:
        """None for a VM that did not come by live migration."""
        metadata, status = vmi["metadata"], vmi.get("status") or {}
        state = status.get("migrationState") or {}
        if status.get("phase") != "Running" or not state.get("completed") or state.get("failed"):
            return None
        if state.get("targetNode") != status.get("nodeName"):
            return None
        return cls(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            migration=state.get("migrationUid"),
            ended=timestamp(state.get("endTimestamp")),
            annotations=metadata.get("annotations") or {},
        )

    def __str__(self) -> str:
        return f"VM {self.namespace}/{self.name}"

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What no other arrival has, of this VM or another."""
        return (self.namespace, self.name, self.migration)

    def came_after(self, moment: float) -> bool:
        """Whether the VM may have come after this moment, in seconds since 1970. Clocks differ."""
        return self.ended is None or self.ended >= moment - _CLOCKS_DIFFER_SECONDS

    def may_be_forgotten(self, since: float) -> bool:
        """Whether the node's handler may have no record of the VM any more, which its successor needs to find the VM.

        At the end of a migration, the target's handler updates the VMI and then deletes its record. It writes a new one when it looks
        at the VM the next time. On a busy node that look may come before the deletion, and no other may follow (KubeVirt 1.8.2 and
        1.9.0: finalCleanup and CloseLauncherClient in pkg/virt-handler; seen with 1.9.0). The API does not show it.

        :param since: when the handler started, in seconds since 1970. It has a record of each VM that was there then.
        """
        return self.came_after(since)


def waits_for_other_half(migration: KubeObject) -> bool:
    """Whether the sender or receiver of a decentralized migration has to wait for its other half, in another namespace or
    cluster. No handler takes part in it until then."""
    phase = _phase(migration)
    sends, receives = _sends_and_receives(migration)
    if phase in _WAITING_FOR_SYNC:
        return True
    return (sends or receives) and (phase in (None, "Pending") or (sends and phase == "Scheduling"))


def _phase(migration: KubeObject) -> str | None:
    return t.cast("str | None", field(migration, "status", "phase") or None)


def _sends_and_receives(migration: KubeObject) -> tuple[bool, bool]:
    """Whether the migration is the sender, and whether it is the receiver, of a decentralized one."""
    spec = migration.get("spec") or {}
    sends, receives = spec.get("sendTo") is not None, spec.get("receive") is not None
    return sends and not receives, receives and not sends


def _ends(migration: KubeObject, vmi: KubeObject | None) -> tuple[str | None, ...]:
    """The nodes that the migration and its VMI name."""
    if vmi is None or field(vmi, "status", "phase") in _FINAL_PHASES:
        return ()  # KubeVirt names nodes of a VM that has ended, but the VM has no pods there.
    if waits_for_other_half(migration) or condition(migration, _REJECTED_BY_QUOTA).get("status") == "True":
        return ()
    node = field(vmi, "status", "nodeName")
    if any(_sends_and_receives(migration)):
        return (node,)  # The other end is a node of another cluster, which may have the name of one of ours.
    states = [field(obj, "status", "migrationState") or {} for obj in (migration, vmi)]
    uid = migration["metadata"].get("uid")
    # A VMI keeps the state of its last migration until the next one begins.
    own = [state for state in states if uid is None or state.get("migrationUid") in (None, uid)]
    return (*(state.get(end) for state in own for end in ("sourceNode", "targetNode")), node)
