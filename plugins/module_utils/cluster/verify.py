# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verifying all VMs of a cluster, or of a dump: VMIs and launcher pods go by page by page, and only what counts is kept."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import dump, live, policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.live_policy import Policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verification import Report, Verifier

_PROBE_SECONDS = 10.0
"""How long a live policy may take to come out right: it has been there for a while."""


def of_cluster(cluster: Cluster, verifier: Verifier) -> Report:
    """The report on a cluster whose snapshot ``verifier`` has."""
    vmis = cluster.list(kinds.VIRTUAL_MACHINE_INSTANCE, missing_ok=True)
    return _report(verifier, vmis, live.launcher_pods(cluster))


def tried_out(cluster: Cluster, plan: Plan, clock: Clock) -> Policy:
    """The launcher policy, after probes of the live one where it is as it should be. Needs the right to create pods."""
    policy, made = Policy.of(plan.launchers), plan.launchers
    if made is None or policy.state != "live":
        return policy
    tried = policies.trial(made, 0, policies.site(cluster, plan.snapshot))
    problem = policies.prove(cluster, tried.probes, _PROBE_SECONDS, clock) if tried is not None else None
    return policy if problem is None else policy.failing(problem.rstrip("."))


def of_dump(objects: t.Iterable[t.Any], verifier: Verifier) -> Report:
    """The report on the objects of a dump."""
    found = list(snapshot.flat(objects))
    vmis = (obj for obj in found if obj.get("kind") == kinds.VIRTUAL_MACHINE_INSTANCE.name)
    return _report(verifier, vmis, dump.launcher_pods(found))


def _report(verifier: Verifier, vmis: t.Iterable[snapshot.KubeObject], pods: t.Iterable[LauncherPod]) -> Report:
    for vmi in vmis:
        verifier.add_vmi(vmi)
    for pod in pods:
        verifier.add_pod(pod)
    return verifier.report()
