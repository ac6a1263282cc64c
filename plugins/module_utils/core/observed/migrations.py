# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Live migrations that have not ended."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.objects import KubeObject
from .handlers import node_of

_FINAL_MIGRATION_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class Migration:
    """A live migration that has not ended."""

    namespace: str
    name: str
    vmi: str
    nodes: frozenset[str]
    """Its source and target, if known."""


def active_migrations(
    migrations: t.Iterable[KubeObject], vmis: t.Iterable[KubeObject], targets: t.Iterable[KubeObject] = ()
) -> tuple[Migration, ...]:
    """The migrations that have not ended, with their source and target nodes, where known.

    The VMI names both (``status.nodeName`` and ``status.migrationState``) earlier than the migration itself. Before that only
    the target pod knows the target.

    :param targets: pods, at least those that active migrations move VMs to.
    """
    target_nodes = {(pod["metadata"].get("labels") or {}).get(names.MIGRATION_LABEL): node_of(pod) for pod in targets}
    by_name = {(vmi["metadata"].get("namespace"), vmi["metadata"]["name"]): vmi for vmi in vmis}
    active = []
    for migration in migrations:
        if not is_active(migration):
            continue
        metadata = migration["metadata"]
        vmi_name = (migration.get("spec") or {}).get("vmiName", "")
        vmi_status = (by_name.get((metadata.get("namespace"), vmi_name)) or {}).get("status") or {}
        states = [(migration.get("status") or {}).get("migrationState") or {}, vmi_status.get("migrationState") or {}]
        ends = [state.get(end) for state in states for end in ("sourceNode", "targetNode")]
        active.append(
            Migration(
                namespace=metadata.get("namespace", ""),
                name=metadata["name"],
                vmi=vmi_name,
                nodes=frozenset(
                    end for end in (*ends, vmi_status.get("nodeName"), target_nodes.get(metadata.get("uid", ""))) if end
                ),
            )
        )
    return tuple(sorted(active, key=lambda m: (m.namespace, m.name)))


def is_active(migration: KubeObject) -> bool:
    return (migration.get("status") or {}).get("phase") not in _FINAL_MIGRATION_PHASES
