# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Reads the state of a live cluster. While the pages come in, objects are reduced to what a Snapshot keeps."""

from __future__ import annotations

import functools
import itertools
import typing as t

from ...core.base import kinds, names, permissions
from ...core.base.findings import InputErrors
from ...core.base.objects import Object
from ...core.kubevirt import health
from ...core.observed import hyperconverged, leftovers, operator_api, snapshot
from ...core.observed.handlers import HandlerPod, has_ended
from ...core.observed.migrations import Migration, active_migrations, is_active
from ...core.observed.nodes import Node, deleted_since
from ...core.observed.snapshot import Snapshot
from ...core.observed.webhook import Webhook
from ...core.vms.launcher_pods import LauncherPod
from ..api import at_once, waiting
from ..api.client import Cluster, Forbidden, NotFound
from . import webhook_config

HANDLER_PODS = f"{names.KUBEVIRT_LABEL}={names.HANDLER}"

OPERATOR_PODS = f"{names.KUBEVIRT_LABEL} in (virt-operator,virt-operator-strategy-dumper)"

LAUNCHER_PODS = f"{names.KUBEVIRT_LABEL}={names.LAUNCHER}"

_CANARY_VMS = f"{names.OURS},{names.CANARY_LABEL}"

MOST_SINGLE_READS = 100
"""Nodes read individually, up to this number; for more, a list of all nodes is cheaper. A batch reads its handlers once a
second, and the handlers of 3,000 nodes are 40 MB."""

_MOST_IN_SELECTOR = 50
"""Maximum nodes in one selector: proxies refuse URLs of more than 8 kB."""

_LONGEST_LABEL_VALUE = 63

_HOSTNAME_LABEL = "kubernetes.io/hostname"


def take_snapshot(
    cluster: Cluster,
    namespace: str | None = None,
    name: str | None = None,
    nodes: t.Collection[str] | None = None,
    alerts_namespace: str | None = None,
    *,
    schema: bool = False,
) -> Snapshot:
    """The state of the cluster.

    :param namespace: of the KubeVirt object; None when the cluster has only one.
    :param nodes: read only these nodes and their handler pods, and no migrations; nodes that do not exist are left out.
    :param alerts_namespace: where the user wants the alerts to be; None for KubeVirt's namespace.
    :param schema: whether to look for fields for pools in the KubeVirt CRD that are not in use.
    :raises InputErrors: when not exactly one KubeVirt fits.
    :raises ClusterError: when the API server refuses or does not answer.
    """
    kubevirt = find_kubevirt(cluster, namespace, name)
    home = kubevirt["metadata"]["namespace"]
    if nodes is not None and not health.Health.from_kubevirt(kubevirt).settled:
        # Only the nodes of the whole cluster tell whether that is just because of nodes that are not Ready.
        return take_snapshot(cluster, home, kubevirt["metadata"]["name"]).limited_to(nodes)
    read_at = waiting.seconds_since_1970()
    # All migrations of a fleet, ended ones too, are too much for a few nodes; a batch asks for them when it needs them.
    migrations, vmis, targets = _migrations(cluster) if nodes is None else ([], [], [])
    pods = pull_pods(cluster, home)
    objects = snapshot.ClusterObjects(
        hyperconvergeds=_hyperconvergeds(cluster, home),
        daemonsets=cluster.list(kinds.DAEMON_SET, home),
        deployments=_named(cluster, kinds.DEPLOYMENT, (names.CONTROLLER,), home),
        nodes=all_nodes(cluster) if nodes is None else nodes_named(cluster, nodes),
        pods=itertools.chain(pods, handler_pods(cluster, home, nodes)),
        migrations=migrations,
        vmis=vmis,
        targets=targets,
        canaries=() if nodes else canary_vms(cluster),
    )
    if nodes is not None:
        return snapshot.build(kubevirt, objects, read_at=read_at, complete=False)
    alerts = monitoring(cluster, alerts_namespace)
    return snapshot.build(
        kubevirt,
        objects,
        admission=admission(cluster, home),
        monitoring=alerts,
        operator_api=read_operator_api(cluster, kubevirt, schema=schema),
        read_at=read_at,
    )


def uid(cluster: Cluster) -> str | None:
    """What tells the cluster from every other one: the UID of its namespace kube-system. None when we may not read that."""
    try:
        namespace = cluster.get(kinds.NAMESPACE, "kube-system")
    except Forbidden:
        return None
    return str(namespace["metadata"]["uid"]) if namespace else None


def admission(cluster: Cluster, namespace: str) -> snapshot.Admission:
    """What can change or refuse objects on this cluster, and which of that is ours.

    :param namespace: KubeVirt's namespace.
    """
    policy = cluster.first_served(*kinds.MUTATING_ADMISSION_POLICIES)
    kyverno = cluster.first_served(kinds.KYVERNO_MUTATING_POLICY)
    validating = cluster.first_served(kinds.VALIDATING_ADMISSION_POLICY)
    found = [_named(cluster, kinds.CONFIG_MAP, (names.AIE_CONFIG, names.HISTORY), namespace)]
    if policy is not None:
        binding = kinds.MUTATING_ADMISSION_POLICY_BINDINGS[kinds.MUTATING_ADMISSION_POLICIES.index(policy)]
        found += [_listed(cluster, kind, names.POLICIES) for kind in (policy, binding)]
    if validating is not None:
        guards = (validating, kinds.VALIDATING_ADMISSION_POLICY_BINDING)
        found += [_listed(cluster, kind, names.GUARDS) for kind in guards]
    if kyverno is not None:
        found.append(_named(cluster, kyverno, (names.POLICY,)))
    objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in itertools.chain.from_iterable(found)}
    return snapshot.Admission(
        policy_kind=policy,
        validating=validating is not None,
        kyverno=kyverno is not None,
        version=cluster.version(),
        objects=objects,
        webhook=_webhook(cluster, objects.get((kinds.CONFIG_MAP.name, names.AIE_CONFIG))),
    )


def _webhook(cluster: Cluster, config_map: Object | None) -> Webhook | None:
    """kubevirt-aie-webhook, whose ConfigMap this is."""
    if config_map is None:
        return None
    configurations = list(cluster.list(kinds.MUTATING_WEBHOOK_CONFIGURATION))
    return Webhook.from_objects(
        config_map,
        webhook_config.read,
        configurations,
        lambda namespace, name: cluster.get(kinds.DEPLOYMENT, name, namespace),
    )


def _listed(cluster: Cluster, kind: kinds.Kind, wanted: t.Collection[str]) -> t.Iterable[Object]:
    """The cluster-scoped objects with these names: by one list, or one by one without the right to list them."""
    if cluster.missing_permissions([right for right in permissions.LIST_POLICIES if right.resource == kind.plural]):
        return _named(cluster, kind, wanted)
    return [obj for obj in cluster.list(kind) if obj["metadata"]["name"] in wanted]


def _named(
    cluster: Cluster, kind: kinds.Kind, wanted: t.Iterable[str], namespace: str | None = None
) -> t.Iterable[Object]:
    found = (cluster.get(kind, name, namespace) for name in wanted)
    return [obj for obj in found if obj is not None]


def monitoring(cluster: Cluster, namespace: str | None = None) -> snapshot.Monitoring:
    """The Prometheus operator's objects on this cluster.

    :param namespace: one that must exist.
    """
    if not cluster.serves(kinds.PROMETHEUS_RULE):
        return snapshot.Monitoring()
    rules = cluster.list(kinds.PROMETHEUS_RULE, field_selector=f"metadata.name={names.ALERTS}", missing_ok=True)
    missing = {namespace} if namespace and cluster.get(kinds.NAMESPACE, namespace) is None else ()
    return snapshot.Monitoring(served=True, rules=tuple(rules), missing_namespaces=frozenset(missing))


def find_kubevirt(cluster: Cluster, namespace: str | None, name: str | None) -> Object:
    """The one KubeVirt object that fits.

    :raises InputErrors: when there is none, or several.
    """
    try:
        kubevirts = list(cluster.list(kinds.KUBEVIRT, namespace))
    except NotFound as error:
        raise InputErrors(
            [
                f"The cluster at {cluster.server} has no KubeVirt: it does not serve {kinds.KUBEVIRT.api_version}; install KubeVirt first."
            ]
        ) from error
    return t.cast(Object, snapshot.choose_kubevirt(kubevirts, namespace, name))


def handler_pods(cluster: Cluster, namespace: str, nodes: t.Collection[str] | None = None) -> t.Iterator[Object]:
    """The handler pods of all nodes, or of some."""
    return _pods_on(cluster, namespace, HANDLER_PODS, nodes)


def handlers(cluster: Cluster, namespace: str, nodes: t.Collection[str] | None = None) -> t.Iterator[HandlerPod]:
    """The handlers of all nodes, or of some: as in a snapshot, without those that have ended."""
    yield from map(HandlerPod.from_object, itertools.filterfalse(has_ended, handler_pods(cluster, namespace, nodes)))


def operator_pods(cluster: Cluster, namespace: str) -> t.Iterator[HandlerPod]:
    """The pods of virt-operator, and of its Jobs that prepare the installation of a version or of a list of pools."""
    yield from map(HandlerPod.from_object, cluster.list(kinds.POD, namespace, label_selector=OPERATOR_PODS))


def _pods_on(
    cluster: Cluster, namespace: str | None, labels: str, nodes: t.Collection[str] | None
) -> t.Iterator[Object]:
    read = functools.partial(cluster.list, kinds.POD, namespace, label_selector=labels, managed_fields=False)
    if nodes is None or len(nodes) > MOST_SINGLE_READS:
        for pod in read():
            if nodes is None or pod["spec"].get("nodeName") in nodes:
                yield pod
        return

    def on(node: str) -> list[Object]:
        return list(read(field_selector=f"spec.nodeName={node}"))

    for pods in at_once.results(on, sorted(nodes)):
        yield from pods


def count_without_handler(cluster: Cluster, namespace: str) -> int:
    """How many nodes have no Ready handler now: nodes of DaemonSets, by their status, and nodes without a DaemonSet."""
    daemonsets = list(cluster.list(kinds.DAEMON_SET, namespace))
    pools = {str(ds["metadata"]["labels"][names.OWNER_LABEL]) for ds in daemonsets if snapshot.is_pool_daemonset(ds)}
    handlers = (ds for ds in daemonsets if ds["metadata"]["name"] == names.HANDLER or snapshot.is_pool_daemonset(ds))
    statuses = [daemonset.get("status") or {} for daemonset in handlers]
    missing = sum(max(0, s.get("desiredNumberScheduled", 0) - s.get("numberReady", 0)) for s in statuses)
    # The server selects the nodes, unless the pools are too many for a request's line.
    served = ",".join(sorted(pools)[:_MOST_IN_SELECTOR])
    labelled = f"{names.OWNER_LABEL},{names.OWNER_LABEL} notin ({served})" if served else names.OWNER_LABEL
    owners = (
        node["metadata"]["labels"][names.OWNER_LABEL] for node in cluster.list(kinds.NODE, label_selector=labelled)
    )
    return missing + sum(owner not in pools for owner in owners)


def nodes(cluster: Cluster) -> tuple[Node, ...]:
    """All nodes."""
    return tuple(map(Node.from_object, all_nodes(cluster)))


def all_nodes(cluster: Cluster) -> t.Iterator[Object]:
    """The objects of all nodes."""
    return cluster.list(kinds.NODE, managed_fields=False)


def nodes_named(cluster: Cluster, nodes: t.Collection[str]) -> t.Iterator[Object]:
    """The existing nodes with these names."""
    if len(nodes) > MOST_SINGLE_READS:
        yield from (node for node in all_nodes(cluster) if node["metadata"]["name"] in nodes)
        return
    # Most clusters name nodes in this label as they are called, and a request can select many. What it does not find is read
    # by its name.
    left = set(nodes)
    for node in _labelled(cluster, kinds.NODE, _HOSTNAME_LABEL, {n for n in nodes if len(n) <= _LONGEST_LABEL_VALUE}):
        name = node["metadata"]["name"]
        if name in left:
            left.discard(name)
            yield node
    for name in sorted(left):
        one = cluster.get(kinds.NODE, name)
        if one is not None:
            yield one


def deleted_nodes(cluster: Cluster, nodes: t.Collection[Node]) -> frozenset[str]:
    """Which of these nodes were deleted, also when others have their names now."""
    return deleted_since(nodes, map(Node.from_object, nodes_named(cluster, {node.name for node in nodes})))


def find_hyperconverged(cluster: Cluster, kubevirt: Object) -> Object | None:
    """The HyperConverged object that manages this KubeVirt; None when none does."""
    return t.cast(
        "Object | None", hyperconverged.hco_of(kubevirt, _hyperconvergeds(cluster, kubevirt["metadata"]["namespace"]))
    )


def operator_pool_fields(cluster: Cluster) -> list[str]:
    """The fields of the KubeVirt spec for KubeVirt's own pools that this build has; none in stock KubeVirt."""
    crd = cluster.get(kinds.CUSTOM_RESOURCE_DEFINITION, operator_api.KUBEVIRT_CRD)
    return list(operator_api.operator_pool_fields(crd)) if crd else []


def read_operator_api(cluster: Cluster, kubevirt: Object, *, schema: bool = False) -> operator_api.OperatorApi:
    """The pools of the cluster that KubeVirt itself creates.

    :param schema: read the KubeVirt CRD, too. It is large, and a field that is in use is in it.
    """
    fields = operator_pool_fields(cluster) if schema else operator_api.operator_pools_in_use(kubevirt)
    served = cluster.serves(kinds.WORKER_POOL)
    worker_pools = cluster.list(kinds.WORKER_POOL, missing_ok=True) if served else ()
    return operator_api.OperatorApi(tuple(fields), served, tuple(worker_pools))


def _hyperconvergeds(cluster: Cluster, namespace: str) -> list[Object]:
    kind = cluster.first_served(kinds.HYPER_CONVERGED, kinds.HYPER_CONVERGED_V1BETA1)
    return [] if kind is None else list(cluster.list(kind, namespace, missing_ok=True))


def _migrations(cluster: Cluster) -> tuple[list[Object], list[Object], list[Object]]:
    """The migrations that have not ended, their VMIs, and the pods that they move these to."""
    kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION
    active = [m for m in cluster.list(kind, missing_ok=True) if is_active(m)]
    vmis = []
    for namespace, name in sorted({(m["metadata"]["namespace"], m["spec"].get("vmiName", "")) for m in active}):
        vmi = cluster.get(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace) if name else None
        if vmi is not None:
            vmis.append(vmi)
    uids = (migration["metadata"]["uid"] for migration in active)
    return active, vmis, list(_labelled(cluster, kinds.POD, names.MIGRATION_LABEL, uids))


def _labelled(cluster: Cluster, kind: kinds.Kind, label: str, values: t.Iterable[str]) -> t.Iterator[Object]:
    """The objects whose label has one of these values. The server selects them, as many values at once as a request can name."""
    ordered = sorted(values)
    for start in range(0, len(ordered), _MOST_IN_SELECTOR):
        few = f"{label} in ({','.join(ordered[start : start + _MOST_IN_SELECTOR])})"
        yield from cluster.list(kind, label_selector=few, missing_ok=True, managed_fields=False)


def canary_vms(cluster: Cluster) -> list[Object]:
    """The canary VMs that runs have created, in all namespaces."""
    labelled = cluster.list(kinds.VIRTUAL_MACHINE, label_selector=_CANARY_VMS, missing_ok=True)
    return [vm for vm in labelled if leftovers.is_canary_vm(vm)]


def pull_pods(cluster: Cluster, namespace: str | None = None) -> list[Object]:
    """The image pull pods that runs have created, in one namespace or in all."""
    labelled = cluster.list(kinds.POD, namespace, label_selector=f"{names.OURS},{names.PULL_LABEL}")
    return [pod for pod in labelled if leftovers.is_pull_pod(pod)]


def migrations(cluster: Cluster) -> tuple[Migration, ...]:
    """The live migrations that are running now."""
    return active_migrations(*_migrations(cluster))


def namespaces(cluster: Cluster) -> dict[str, dict[str, str]]:
    """The labels of every namespace."""
    metadata = (namespace["metadata"] for namespace in cluster.list(kinds.NAMESPACE))
    return {each["name"]: dict(each.get("labels") or {}) for each in metadata}


def launcher_pods(cluster: Cluster, nodes: t.Collection[str] | None = None) -> t.Iterator[LauncherPod]:
    """The launcher pods of all namespaces on all nodes, or on some. They come page by page: there may be 100,000."""
    labels = namespaces(cluster)
    for pod in _pods_on(cluster, None, LAUNCHER_PODS, nodes):
        yield LauncherPod.from_object(pod, labels.get(pod["metadata"]["namespace"]))


def launcher_pods_on(cluster: Cluster, node: str) -> t.Iterator[Object]:
    """The launcher pods of all namespaces on a node."""
    return _pods_on(cluster, None, LAUNCHER_PODS, (node,))


def pending_launcher_pods(cluster: Cluster) -> t.Iterator[LauncherPod]:
    """The launcher pods of all namespaces that do not run yet. The server selects them."""
    for pod in cluster.list(kinds.POD, label_selector=LAUNCHER_PODS, field_selector="status.phase=Pending"):
        yield LauncherPod.from_object(pod)


def failed_launcher_pods(cluster: Cluster) -> t.Iterator[LauncherPod]:
    """The launcher pods of all namespaces that have failed. The server selects them."""
    labels = namespaces(cluster)
    for pod in cluster.list(kinds.POD, label_selector=LAUNCHER_PODS, field_selector="status.phase=Failed"):
        yield LauncherPod.from_object(pod, labels.get(pod["metadata"]["namespace"]))


def vmis_on(cluster: Cluster, nodes: t.Collection[str], label: str = names.NODE_NAME_LABEL) -> t.Iterator[Object]:
    """The VM instances on these nodes. The server selects them, by the label that virt-controller gives them.

    :param label: that of another node of theirs, as of the target of a migration.
    """
    # KubeVirt cannot run a VM on a node whose name is too long for a label value.
    possible = (node for node in nodes if len(node) <= _LONGEST_LABEL_VALUE)
    yield from _labelled(cluster, kinds.VIRTUAL_MACHINE_INSTANCE, label, possible)
