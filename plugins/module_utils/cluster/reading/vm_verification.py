# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Feeds all VMIs and launcher pods of a cluster or of a dump to a Verifier, page by page."""

from __future__ import annotations

import typing as t

from ...core.base import kinds
from ...core.base.objects import KubeObject, named
from ...core.checks.verification import Report, Verifier
from ...core.vms.launcher_pods import LauncherPod
from ..api.client import Cluster
from . import dump, live


def verify_cluster(cluster: Cluster, verifier: Verifier) -> Report:
    """The report on a cluster, of which ``verifier`` has the snapshot."""
    vmis = cluster.list(kinds.VIRTUAL_MACHINE_INSTANCE, missing_ok=True, managed_fields=False)
    return _report(verifier, vmis, live.launcher_pods(cluster))


def verify_dump(objects: t.Iterable[t.Any], verifier: Verifier) -> Report:
    """The report on the objects of a dump."""
    dumped = list(named(objects))
    vmis = (obj for obj in dumped if obj.get("kind") == kinds.VIRTUAL_MACHINE_INSTANCE.name)
    return _report(verifier, vmis, dump.launcher_pods(dumped))


def _report(verifier: Verifier, vmis: t.Iterable[KubeObject], pods: t.Iterable[LauncherPod]) -> Report:
    for vmi in vmis:
        verifier.add_vmi(vmi)
    for pod in pods:
        verifier.add_pod(pod)
    return verifier.report()
