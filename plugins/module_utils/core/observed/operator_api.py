# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The fields and objects by which a build of KubeVirt makes pools itself; a stock KubeVirt has none."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base import kinds
from ..base.objects import KubeObject, field
from ..pools.dialects import DIALECTS, KubeVirtField

KUBEVIRT_CRD: t.Final = f"{kinds.KUBEVIRT.plural}.{kinds.KUBEVIRT.group}"
WORKER_POOL_CRD: t.Final = f"{kinds.WORKER_POOL.plural}.{kinds.WORKER_POOL.group}"

POOL_FIELDS: t.Final = {
    source.gate: source.name for dialect in DIALECTS.values() if isinstance(source := dialect.source, KubeVirtField)
}
"""Gates that only builds of KubeVirt with their own pools have, and the field of the KubeVirt spec for each."""


@dataclass(frozen=True)
class OperatorApi:
    """What the cluster has of pools that this build of KubeVirt itself manages."""

    fields: tuple[str, ...] = ()
    """The fields for a list of pools that the KubeVirt CRD has, if it was read."""
    worker_pools_served: bool = False
    """Whether the server serves WorkerPool objects."""
    worker_pools: tuple[KubeObject, ...] = ()
    """These objects."""


def operator_pool_fields(kubevirt_crd: KubeObject) -> tuple[str, ...]:
    """The fields for KubeVirt's own pools that the KubeVirt CRD has in a served version; a stock CRD has none."""
    return tuple(
        name
        for name in POOL_FIELDS.values()
        if any(
            version.get("served", True)
            and field(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", name) is not None
            for version in field(kubevirt_crd, "spec", "versions") or []
        )
    )


def operator_pools_in_use(kubevirt: KubeObject) -> tuple[str, ...]:
    """Which of these fields are not empty in the live KubeVirt object."""
    return tuple(name for name in POOL_FIELDS.values() if field(kubevirt, "spec", name))
