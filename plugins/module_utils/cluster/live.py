# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a cluster's state. Objects are reduced to what a Snapshot keeps while the pages come in."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    feature_gates,
    hco,
    health,
    kinds,
    names,
    snapshot,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Snapshot

Object = dict[str, t.Any]

HANDLER_PODS = f"{names.KUBEVIRT_LABEL}={names.HANDLER}"

LAUNCHER_PODS = f"{names.KUBEVIRT_LABEL}={names.LAUNCHER}"

_CANARY_VMS = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},{names.CANARY_LABEL}"
"""VMs of others have the second label alone."""

_MOST_SINGLE_READS = 100
"""Up to so many nodes are read one by one; more are cheaper as a list of all. A batch of 5% of a pool reads its own handlers once a
second: those of 3,000 nodes are 40 MB."""

_MOST_IN_SELECTOR = 50
"""So many nodes are named in one selector: proxies refuse URLs of more than 8 kB."""

_LONGEST_LABEL_VALUE = 63


def take_snapshot(
    cluster: Cluster,
    namespace: str | None = None,
    name: str | None = None,
    nodes: t.Collection[str] | None = None,
) -> Snapshot:
    """The state of the cluster.

    :param namespace: of the KubeVirt object; None for the only one there is.
    :param nodes: read only these nodes and their handler pods, and no migrations; a node that does not exist is left out.
    :raises InputErrors: when there is not exactly one KubeVirt that fits.
    :raises ClusterError: when the API server refuses or does not answer.
    """
    kubevirt = find_kubevirt(cluster, namespace, name)
    home = kubevirt["metadata"]["namespace"]
    if nodes is not None and not health.Health.of(kubevirt).settled:
        # Whether that is only because of nodes that are not Ready, those of the whole cluster tell.
        return take_snapshot(cluster, home, kubevirt["metadata"]["name"]).only(nodes)
    # Those of a whole fleet, ended ones included: not for some nodes, which nobody changes without asking for them first.
    migrations, vmis = _migrations(cluster) if nodes is None else ([], [])
    pods = list(cluster.list(kinds.POD, home, label_selector=names.PULL_LABEL))
    return snapshot.build(
        kubevirts=[kubevirt],
        hyperconvergeds=_hyperconvergeds(cluster, home),
        daemonsets=cluster.list(kinds.DAEMON_SET, home),
        nodes=_nodes(cluster, nodes),
        pods=_chained(pods, handler_pods(cluster, home, nodes)),
        migrations=migrations,
        vmis=vmis,
        canaries=() if nodes else canary_vms(cluster),
        admission=admission(cluster, home) if nodes is None else None,
        complete=nodes is None,
    )


def admission(cluster: Cluster, namespace: str) -> snapshot.Admission:
    """What can change or refuse objects on this cluster, and what of ours does.

    :param namespace: KubeVirt's.
    """
    policy = cluster.first_served(*kinds.MUTATING_ADMISSION_POLICIES)
    kyverno = cluster.first_served(kinds.KYVERNO_MUTATING_POLICY)
    wanted: list[tuple[kinds.Kind, str, str | None]] = [
        (kinds.CONFIG_MAP, name, namespace) for name in (names.AIE_CONFIG, names.HISTORY)
    ]
    if policy is not None:
        binding = kinds.MUTATING_ADMISSION_POLICY_BINDINGS[kinds.MUTATING_ADMISSION_POLICIES.index(policy)]
        wanted += [(kind, name, None) for kind in (policy, binding) for name in names.POLICIES]
    validating = cluster.first_served(kinds.VALIDATING_ADMISSION_POLICY)
    if validating is not None:
        guards = (validating, kinds.VALIDATING_ADMISSION_POLICY_BINDING)
        wanted += [(kind, name, None) for kind in guards for name in names.GUARDS]
    if kyverno is not None:
        wanted.append((kyverno, names.POLICY, None))
    found = {(kind.name, name): cluster.get(kind, name, where) for kind, name, where in wanted}
    objects = {key: obj for key, obj in found.items() if obj is not None}
    return snapshot.Admission(
        policy_kind=policy,
        validating=validating is not None,
        kyverno=kyverno is not None,
        aie=(kinds.CONFIG_MAP.name, names.AIE_CONFIG) in objects,
        version=cluster.version(),
        objects=objects,
    )


def find_kubevirt(cluster: Cluster, namespace: str | None, name: str | None) -> Object:
    """The one KubeVirt object that fits.

    :raises InputErrors: when there is none, or several.
    """
    if not cluster.exists_api(kinds.KUBEVIRT):
        raise InputErrors(
            [
                f"The cluster at {cluster.server} has no KubeVirt: it does not serve {kinds.KUBEVIRT.api_version}; install KubeVirt first."
            ]
        )
    found = list(cluster.list(kinds.KUBEVIRT, namespace))
    return t.cast(Object, snapshot.choose_kubevirt(found, namespace, name))


def handler_pods(cluster: Cluster, namespace: str, nodes: t.Collection[str] | None = None) -> t.Iterator[Object]:
    """Handler pods, of all nodes or of some."""
    return _of_nodes(cluster, namespace, HANDLER_PODS, nodes)


def _of_nodes(
    cluster: Cluster, namespace: str | None, labels: str, nodes: t.Collection[str] | None
) -> t.Iterator[Object]:
    if nodes is None or len(nodes) > _MOST_SINGLE_READS:
        for pod in cluster.list(kinds.POD, namespace, label_selector=labels):
            if nodes is None or pod["spec"].get("nodeName") in nodes:
                yield pod
        return
    for node in sorted(nodes):
        yield from cluster.list(kinds.POD, namespace, label_selector=labels, field_selector=f"spec.nodeName={node}")


def without_handler(cluster: Cluster, namespace: str) -> int:
    """How many nodes have no Ready handler now: those of DaemonSets, as these count them, and those that belong to none."""
    found = list(cluster.list(kinds.DAEMON_SET, namespace))
    pools = [str(ds["metadata"]["labels"][names.OWNER_LABEL]) for ds in found if snapshot.is_ours(ds)]
    handlers = (ds for ds in found if ds["metadata"]["name"] == names.HANDLER or snapshot.is_ours(ds))
    statuses = [daemonset.get("status") or {} for daemonset in handlers]
    missing = sum(max(0, s.get("desiredNumberScheduled", 0) - s.get("numberReady", 0)) for s in statuses)
    nobodys = f"{names.OWNER_LABEL},{names.OWNER_LABEL} notin ({','.join(pools)})" if pools else names.OWNER_LABEL
    return missing + sum(1 for _node in cluster.list(kinds.NODE, label_selector=nobodys))


def nodes(cluster: Cluster) -> tuple[snapshot.Node, ...]:
    """All nodes."""
    return tuple(snapshot.Node.of(node) for node in cluster.list(kinds.NODE))


def _nodes(cluster: Cluster, nodes: t.Collection[str] | None) -> t.Iterator[Object]:
    if nodes is None or len(nodes) > _MOST_SINGLE_READS:
        for node in cluster.list(kinds.NODE):
            if nodes is None or node["metadata"]["name"] in nodes:
                yield node
        return
    for name in sorted(nodes):
        found = cluster.get(kinds.NODE, name)
        if found is not None:
            yield found


def find_hyperconverged(cluster: Cluster, kubevirt: Object) -> Object | None:
    """The HyperConverged object that manages this KubeVirt; None where none does."""
    return t.cast("Object | None", hco.hco_of(kubevirt, _hyperconvergeds(cluster, kubevirt["metadata"]["namespace"])))


def native_pool_fields(cluster: Cluster) -> list[str]:
    """The fields for pools of its own that this build of KubeVirt has."""
    crd = cluster.get(kinds.CUSTOM_RESOURCE_DEFINITION, "kubevirts.kubevirt.io")
    return list(feature_gates.native_pool_fields(crd)) if crd else []


def _hyperconvergeds(cluster: Cluster, namespace: str) -> list[Object]:
    kind = cluster.first_served(kinds.HYPER_CONVERGED, kinds.HYPER_CONVERGED_V1BETA1)
    return [] if kind is None else list(cluster.list(kind, namespace, missing_ok=True))


def _migrations(cluster: Cluster) -> tuple[list[Object], list[Object]]:
    """The migrations that have not ended, and the VMIs that they move."""
    kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
    active = [m for m in cluster.list(kind, missing_ok=True) if snapshot.is_active(m)]
    vmis = []
    for namespace, vmi in sorted({(m["metadata"]["namespace"], m["spec"].get("vmiName", "")) for m in active}):
        found = cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE, vmi, namespace) if vmi else None
        if found is not None:
            vmis.append(found)
    return active, vmis


def canary_vms(cluster: Cluster) -> t.Iterator[Object]:
    """The canary VMs that runs have made, in all namespaces."""
    return cluster.list(kinds.VIRTUAL_MACHINE, label_selector=_CANARY_VMS, missing_ok=True)


def migrations(cluster: Cluster) -> tuple[snapshot.Migration, ...]:
    """The live migrations that are running now."""
    return snapshot.active_migrations(*_migrations(cluster))


def namespaces(cluster: Cluster) -> dict[str, dict[str, str]]:
    """The labels of every namespace."""
    found = (namespace["metadata"] for namespace in cluster.list(kinds.NAMESPACE))
    return {metadata["name"]: dict(metadata.get("labels") or {}) for metadata in found}


def launcher_pods(cluster: Cluster, nodes: t.Collection[str] | None = None) -> t.Iterator[LauncherPod]:
    """The launcher pods of all namespaces, of all nodes or of some, page by page: of 100,000 of them only one page is held
    at a time."""
    labels = namespaces(cluster)
    for pod in _of_nodes(cluster, None, LAUNCHER_PODS, nodes):
        yield LauncherPod.of(pod, labels.get(pod["metadata"]["namespace"]))


def pending_launcher_pods(cluster: Cluster) -> t.Iterator[LauncherPod]:
    """Those of all namespaces that do not run yet; the server looks for them."""
    for pod in cluster.list(kinds.POD, label_selector=LAUNCHER_PODS, field_selector="status.phase=Pending"):
        yield LauncherPod.of(pod)


def vmis_on(cluster: Cluster, nodes: t.Collection[str]) -> t.Iterator[Object]:
    """The VM instances on these nodes; of 100,000 the server looks for them, by the label that virt-controller gives them."""
    # KubeVirt cannot put a VM on a node whose name is no label's value.
    labelled = sorted(node for node in nodes if len(node) <= _LONGEST_LABEL_VALUE)
    for start in range(0, len(labelled), _MOST_IN_SELECTOR):
        few = f"{names.NODE_NAME_LABEL} in ({','.join(labelled[start : start + _MOST_IN_SELECTOR])})"
        yield from cluster.list(kinds.VIRTUAL_MACHINE_INSTANCE, label_selector=few, missing_ok=True)


def _chained(*parts: t.Iterable[Object]) -> t.Iterator[Object]:
    for part in parts:
        yield from part
