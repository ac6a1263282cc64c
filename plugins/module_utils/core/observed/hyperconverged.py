# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Which HyperConverged object manages a KubeVirt."""

from __future__ import annotations

import typing as t

from ..base import names
from ..base.objects import KubeObject, field

_MANAGER = "hco-operator"


def hco_of(kubevirt: KubeObject, hyperconvergeds: t.Iterable[KubeObject]) -> KubeObject | None:
    """The HyperConverged object that manages ``kubevirt``; None when there is none.

    It is in KubeVirt's namespace, and KubeVirt has HCO's managed-by label (which HCO restores) or a controller
    reference to it (which HCO does not restore). HCO accepts only the name ``kubevirt-hyperconverged``.
    """
    namespace = field(kubevirt, "metadata", "namespace")
    managed = field(kubevirt, "metadata", "labels", names.MANAGED_BY_LABEL) == _MANAGER
    for candidate in hyperconvergeds:
        metadata = candidate.get("metadata") or {}
        if metadata.get("name") != names.HCO_NAME or metadata.get("namespace") != namespace:
            continue
        if managed or _controls(candidate, kubevirt):
            return candidate
    return None


def _controls(hyperconverged: KubeObject, kubevirt: KubeObject) -> bool:
    return any(
        reference.get("controller") is True
        and reference.get("kind") == "HyperConverged"
        and reference.get("name") == field(hyperconverged, "metadata", "name")
        for reference in field(kubevirt, "metadata", "ownerReferences") or []
    )
