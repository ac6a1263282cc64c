# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The hypervisor of KubeVirt's configuration, and what a pool with another one needs.

KubeVirt has one hypervisor for the whole cluster: virt-controller writes its name and device into launcher pods, and virt-handler
offers that device and gives it to VMs. The launcher policy corrects the pods of a pool; the pool's handler image must do the rest.
"""

from __future__ import annotations

import contextlib
import typing as t

from ..base.findings import Finding, InputErrors, counted, error, listed, note, warning
from ..base.objects import KubeObject, field
from ..observed.snapshot import Snapshot
from ..pools.hypervisors import ARGUMENT, HYPERVISORS, KVM, RESOURCES
from ..pools.model import Pool
from . import daemonsets, feature_gates, health

_GATE = "ConfigurableHypervisor"
_SINCE = (1, 8)
"""The first release that has other hypervisors than KVM."""


def of_cluster(kubevirt: KubeObject) -> str:
    """The name of the hypervisor that KubeVirt itself uses. Without its gate, the configuration has no effect (KubeVirt)."""
    configured = field(kubevirt, "spec", "configuration", "hypervisors") or ()
    if configured and feature_gates.is_on(kubevirt, _GATE):
        return str(configured[0].get("name") or KVM.name)
    return KVM.name


def of_daemonset(kubevirt: KubeObject, daemonset: KubeObject) -> str:
    """The name of the hypervisor that the nodes of a DaemonSet have: that of its pool, or KubeVirt's."""
    with contextlib.suppress(InputErrors):
        return daemonsets.pool_of(daemonset).hypervisor or of_cluster(kubevirt)
    return of_cluster(kubevirt)


def is_emulated(kubevirt: KubeObject) -> bool:
    """Whether VMs may run without a hypervisor. Then launcher pods ask for no device, so none gets one."""
    return bool(field(kubevirt, "spec", "configuration", "developerConfiguration", "useEmulation"))


def check(snapshot: Snapshot, pools: t.Sequence[Pool]) -> t.Iterator[Finding]:
    """Findings on pools that have a hypervisor of their own."""
    having = [pool for pool in pools if pool.hypervisor]
    for pool in having:
        yield from _too_old(snapshot, pool)
        yield from _of_handler(snapshot, pool)
    for pool in pools if having else ():
        selected = RESOURCES.intersection(pool.selector.device_names if pool.selector else ())
        if selected:
            yield error(
                "hypervisor_device_selected",
                f"Pool {pool.name}: selector.deviceNames has {listed(selected)}, which every VM gets from its hypervisor, and which changes "
                f"when pool {listed(each.name for each in having)} takes a VM; select VMs by something else, such as a label.",
            )
    for pool in pools:
        yield from _changed(snapshot, pool)


def _too_old(snapshot: Snapshot, pool: Pool) -> t.Iterator[Finding]:
    version = health.version_of(snapshot.kubevirt)
    if (health.release_of(version) or _SINCE) < _SINCE:
        yield error(
            "hypervisor_unsupported",
            f"Pool {pool.name}: hypervisor is {pool.hypervisor}, but KubeVirt {version} runs VMs on KVM only and passes no {ARGUMENT} to "
            f"virt-launcher; remove it, or upgrade KubeVirt to {health.dotted(_SINCE)} or later first.",
        )


def _of_handler(snapshot: Snapshot, pool: Pool) -> t.Iterator[Finding]:
    """What the pool's virt-handler must do, which takes its hypervisor from KubeVirt's configuration, too."""
    hypervisor, present = HYPERVISORS[pool.hypervisor or KVM.name], of_cluster(snapshot.kubevirt)
    if is_emulated(snapshot.kubevirt):
        yield warning(
            "hypervisor_emulated",
            f"Pool {pool.name}: KubeVirt's configuration has useEmulation, so launcher pods get no device and the pool's VMs are emulated, "
            f"not run on {hypervisor.name}; set useEmulation to false.",
        )
        return
    stock = None if snapshot.primary is None else daemonsets.handler_image(snapshot.primary)
    if hypervisor.name != present and pool.virt_handler_image in (None, stock):
        yield error(
            "hypervisor_needs_handler",
            f"Pool {pool.name}: KubeVirt's own virt-handler only serves {present}, the hypervisor of KubeVirt's configuration, so no VM "
            f"would start on {hypervisor.name}; give virtHandlerImage a virt-handler that serves it.",
        )
    elif hypervisor.name != present:
        yield note(
            "hypervisor_of_handler",
            f"Pool {pool.name}: its VMs run on {hypervisor.name}, those of KubeVirt's configuration on {present}. Its virtHandlerImage must "
            f"offer {hypervisor.resource} (/dev/{hypervisor.device}) to the kubelet, give launcher pods the access to that device, and must "
            "not take the hypervisor from KubeVirt's configuration, as KubeVirt's own does.",
        )
    yield from _not_offered(snapshot, pool, hypervisor.resource)


def _not_offered(snapshot: Snapshot, pool: Pool, resource: str) -> t.Iterator[Finding]:
    """Nodes whose handler runs, and does not bring what it must."""
    without = [
        node.name
        for node in snapshot.nodes.values()
        if (node.owner, node.former_owner, node.ready) == (pool.name, None, True) and not node.devices.get(resource)
    ]
    if without:
        yield warning(
            "hypervisor_not_offered",
            f"{counted(len(without), 'node')} of pool {pool.name} ({listed(without)}) {'offers' if len(without) == 1 else 'offer'} no "
            f"{resource}, so no VM of the pool starts there: the pool's virt-handler does not serve {pool.hypervisor}, or the machine has "
            "no such device.",
        )


def _changed(snapshot: Snapshot, pool: Pool) -> t.Iterator[Finding]:
    """An error where a pool with nodes would get another hypervisor: its VMs could not be migrated, and a rollout needs that."""
    live = snapshot.pools.get(pool.name)
    if snapshot.by_operator or live is None or not any(node.owner == pool.name for node in snapshot.nodes.values()):
        return
    before, after = of_daemonset(snapshot.kubevirt, live), pool.hypervisor or of_cluster(snapshot.kubevirt)
    if before != after:
        yield error(
            "hypervisor_changed",
            f"Pool {pool.name} has nodes, so its hypervisor cannot change from {before} to {after}: no VM can be migrated between the "
            "two. Give the nodes to a pool with another name.",
        )
