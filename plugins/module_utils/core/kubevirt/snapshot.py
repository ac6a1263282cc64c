# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The state of a cluster as one plain value, from a live cluster or from files.

Of nodes and pods it keeps only what planning, handovers and checks need, so that thousands of them stay small.
"""

from __future__ import annotations

import sys
import typing as t
from dataclasses import dataclass, field, replace
from datetime import datetime

from ..base import kinds, names
from ..base.findings import InputErrors
from ..base.frozen import FrozenMap
from ..base.objects import KubeObject, condition, is_managed, named
from . import feature_gates
from .hco import hco_of

_PRESSURES = ("DiskPressure", "PIDPressure")
"""Under MemoryPressure the kubelet still starts pods that request resources (Kubernetes), as virt-handler does."""

_FINAL_MIGRATION_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class Node:
    """What we need of a node. ``owner`` is the value of the owner label, or ``primary`` without one.

    A label that is empty or says ``primary`` was set by hand and keeps the primary off. Then ``owner`` is the value in
    quotes, which is no pool's name.
    """

    name: str
    labels: t.Mapping[str, str]
    taints: tuple[KubeObject, ...]
    ready: bool
    owner: str
    former_owner: str | None
    heartbeat: str | None
    images: frozenset[str]
    devices: t.Mapping[str, int] = field(default_factory=dict)
    """How many of each device (extended resource, such as ``nvidia.com/A100``) the node can give to pods."""
    allocatable: t.Mapping[str, str] = field(default_factory=dict)
    """How much CPU and memory the node can give to pods, in Kubernetes' notation; empty when it does not say."""
    pressure: str | None = None
    """The condition because of which the kubelet starts no ordinary pod; None when there is none."""

    @property
    def schedulable(self) -> bool:
        """Whether virt-handler says that VMs may start here."""
        return self.labels.get(names.SCHEDULABLE_LABEL) == "true"

    @property
    def last_heartbeat(self) -> float | None:
        """When virt-handler last reported, in seconds since 1970 by the node's clock; None when it never did, or left no time.
        It writes RFC 3339 (KubeVirt's heartbeat.go); some tools show it in quotes."""
        return _seconds((self.heartbeat or "").strip('"'))

    def owned_by(self, owner: str) -> Node:
        """The node as it will be after its handover to this owner."""
        if owner == self.owner:
            return self
        labels = {key: value for key, value in self.labels.items() if key != names.OWNER_LABEL}
        if owner != names.PRIMARY:
            labels[names.OWNER_LABEL] = owner
        return replace(self, owner=owner, labels=labels)

    @classmethod
    def of(cls, obj: KubeObject) -> Node:
        metadata = obj.get("metadata") or {}
        labels = dict(metadata.get("labels") or {})
        annotations = metadata.get("annotations") or {}
        status = obj.get("status") or {}
        return cls(
            name=metadata["name"],
            labels=labels,
            taints=tuple((obj.get("spec") or {}).get("taints") or ()),
            ready=condition(obj, "Ready").get("status") == "True",
            owner=_owner(labels),
            former_owner=annotations.get(names.FORMER_OWNER_ANNOTATION),
            heartbeat=annotations.get(names.HEARTBEAT_ANNOTATION),
            images=frozenset(name for image in status.get("images") or () for name in image.get("names") or ()),
            devices=_devices(status.get("allocatable") or {}),
            allocatable=_amounts(status.get("allocatable") or {}),
            pressure=next((kind for kind in _PRESSURES if condition(obj, kind).get("status") == "True"), None),
        )


@dataclass(frozen=True)
class HandlerPod:
    """A virt-handler pod. ``daemonset`` is its DaemonSet's name; ``problem`` says why it is not Ready, if known. ``images`` are
    those of its containers, by name. ``started``: when its handler, which now runs, last started, in seconds since 1970 by
    the node's clock; None when it does not run."""

    name: str
    uid: str
    node: str
    daemonset: str | None
    template: str | None
    ready: bool
    terminating: bool
    problem: str | None
    images: t.Mapping[str, str] = field(default_factory=FrozenMap)
    started: float | None = None

    def has_reported(self, node: Node) -> bool:
        """Whether the last heartbeat of its node is its own, and not one of an earlier handler.

        Heartbeat and start are whole seconds of the same clock, the node's. An earlier handler has ended before.
        """
        beat = node.last_heartbeat
        return self.started is not None and beat is not None and beat >= self.started

    @classmethod
    def of(cls, obj: KubeObject) -> HandlerPod:
        metadata = obj.get("metadata") or {}
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            node=_node_of(obj),
            daemonset=_controller(metadata, "DaemonSet"),
            template=(metadata.get("annotations") or {}).get(names.TEMPLATE_ANNOTATION),
            ready=status.get("phase") == "Running" and condition(obj, "Ready").get("status") == "True",
            terminating=bool(metadata.get("deletionTimestamp")),
            problem=pod_problem(obj),
            images=FrozenMap({each["name"]: sys.intern(each.get("image") or "") for each in containers}),
            started=_started(obj),
        )


@dataclass(frozen=True)
class Migration:
    """A live migration that has not ended. ``nodes``: its source and target, as far as known."""

    namespace: str
    name: str
    vmi: str
    nodes: frozenset[str]


@dataclass(frozen=True)
class Admission:
    """What can change or refuse objects on this cluster, and which of that is ours.

    ``policy_kind``: MutatingAdmissionPolicy in the API version that the server serves. ``validating``: the server
    serves ValidatingAdmissionPolicy. ``kyverno``: it serves Kyverno's policies. ``version``: the server's. ``assumed``: a
    dump does not tell what is served.
    """

    policy_kind: kinds.Kind | None = None
    validating: bool = False
    kyverno: bool = False
    version: str | None = None
    objects: t.Mapping[tuple[str, str], KubeObject] = field(default_factory=dict)
    """Policies, bindings and ConfigMaps with names that we use, ours or not, by kind and name."""
    assumed: bool = False

    @classmethod
    def of_dump(cls, objects: t.Iterable[KubeObject], namespace: str) -> Admission:
        """From the objects of a dump. A dump does not tell which APIs the server serves, so policies are assumed."""
        live = {
            (obj["kind"], obj["metadata"]["name"]): obj
            for obj in objects
            if obj["metadata"].get("namespace") in (None, namespace) and _is_admission(obj)
        }
        versions = {obj["apiVersion"] for (kind, _name), obj in live.items() if kind == "MutatingAdmissionPolicy"}
        served = next(
            (kind for kind in kinds.MUTATING_ADMISSION_POLICIES if kind.api_version in versions),
            kinds.MUTATING_ADMISSION_POLICIES[0],
        )
        return cls(
            policy_kind=served,
            validating=True,
            kyverno=any(kind == kinds.KYVERNO_MUTATING_POLICY.name for kind, _name in live),
            objects=live,
            assumed=True,
        )


@dataclass(frozen=True)
class Monitoring:
    """What of the Prometheus operator is on this cluster.

    ``served``: the server serves PrometheusRule. ``missing_namespaces``: those that were asked for and do not exist.
    ``assumed``: a dump does not tell what is served.
    """

    served: bool = False
    rules: tuple[KubeObject, ...] = ()
    """PrometheusRules with the name that we use, ours or not, in any namespace."""
    missing_namespaces: frozenset[str] = frozenset()
    assumed: bool = False

    @classmethod
    def of_dump(cls, objects: t.Iterable[KubeObject]) -> Monitoring:
        """From the PrometheusRules of a dump."""
        rules = (obj for obj in objects if obj["metadata"]["name"] == names.ALERTS)
        return cls(served=True, rules=tuple(rules), assumed=True)


@dataclass(frozen=True)
class NativeApi:
    """What the cluster has of pools that this build of KubeVirt itself makes.

    ``fields``: the fields for a list of pools that the KubeVirt CRD has, as far as it was read. ``worker_pools_served``: the
    server serves WorkerPool objects; ``worker_pools`` are these.
    """

    fields: tuple[str, ...] = ()
    worker_pools_served: bool = False
    worker_pools: tuple[KubeObject, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The state of one cluster.

    ``complete`` is False when only some nodes were read: then a missing node does not mean that it does not exist.
    """

    namespace: str
    kubevirt: KubeObject
    hyperconverged: KubeObject | None
    primary: KubeObject | None
    daemonsets: t.Mapping[str, KubeObject]
    """Every other DaemonSet in KubeVirt's namespace that is ours or has a name that ours could have, by name."""
    nodes: t.Mapping[str, Node]
    handlers: t.Mapping[str, tuple[HandlerPod, ...]]
    """Handler pods by node, in any state (virt-api counts them all); pods without a node are left out."""
    leftover_pulls: tuple[str, ...]
    """Names of image pull pods that a run left behind."""
    leftover_canaries: tuple[str, ...]
    """Canary VMs that a run left behind, as ``namespace/name``; unknown when only some nodes were read."""
    migrations: tuple[Migration, ...]
    primary_not_ready: t.Mapping[str, str]
    """The primary's pods that are not Ready, with their nodes; ``limited_to`` keeps all, for KubeVirt's health."""
    unready_nodes: frozenset[str]
    """Nodes that are not Ready; ``limited_to`` keeps them all."""
    admission: Admission | None = None
    """None when it was not read, as when only some nodes were read; so is the next one."""
    monitoring: Monitoring | None = None
    complete: bool = True
    native: NativeApi = field(default_factory=NativeApi)
    """Unknown when only some nodes were read."""
    by_operator: bool = False
    """Whether the pool DaemonSets are virt-operator's and not derived by us, as in the view that native mode makes."""

    @property
    def kubevirt_name(self) -> str:
        return f"{self.namespace}/{self.kubevirt['metadata']['name']}"

    @property
    def pools(self) -> t.Mapping[str, KubeObject]:
        """Our pool DaemonSets by the name of their pool."""
        return {
            ds["metadata"]["labels"][names.OWNER_LABEL]: ds for ds in self.daemonsets.values() if is_pool_daemonset(ds)
        }

    @property
    def dead_primary_handlers(self) -> int:
        """The number of the primary's pods that are not Ready because their node is not Ready."""
        return sum(node in self.unready_nodes for node in self.primary_not_ready.values())

    def limited_to(self, nodes: t.Collection[str]) -> Snapshot:
        """The same state, restricted to some nodes."""
        return replace(
            self,
            nodes={name: node for name, node in self.nodes.items() if name in nodes},
            handlers={name: pods for name, pods in self.handlers.items() if name in nodes},
            admission=None,
            monitoring=None,
            complete=False,
        )


@dataclass(frozen=True)
class ClusterObjects:
    """The API objects that a snapshot is built from; nodes and pods may come page by page."""

    hyperconvergeds: t.Iterable[KubeObject] = ()
    daemonsets: t.Iterable[KubeObject] = ()
    nodes: t.Iterable[KubeObject] = ()
    pods: t.Iterable[KubeObject] = ()
    """Handler pods and pods that pull images; others are ignored."""
    migrations: t.Iterable[KubeObject] = ()
    vmis: t.Iterable[KubeObject] = ()
    """At least those that are being migrated."""
    targets: t.Iterable[KubeObject] = ()
    """At least the pods that VMs are being migrated to."""
    canaries: t.Iterable[KubeObject] = ()
    """Canary VMs of runs."""


def build(
    kubevirt: KubeObject,
    objects: ClusterObjects,
    *,
    admission: Admission | None = None,
    monitoring: Monitoring | None = None,
    native: NativeApi | None = None,
    complete: bool = True,
) -> Snapshot:
    """The snapshot that these objects make; see Snapshot for the other parameters."""
    namespace = kubevirt["metadata"]["namespace"]
    local = {ds["metadata"]["name"]: ds for ds in objects.daemonsets if ds["metadata"].get("namespace") == namespace}
    handlers, pulls = _pods(objects.pods, namespace)
    by_name = {node.name: node for node in sorted(map(Node.of, objects.nodes), key=lambda n: n.name)}
    return Snapshot(
        namespace=namespace,
        kubevirt=kubevirt,
        hyperconverged=hco_of(kubevirt, objects.hyperconvergeds),
        primary=local.get(names.HANDLER),
        daemonsets={
            n: ds for n, ds in sorted(local.items()) if n.startswith(f"{names.HANDLER}-") or is_pool_daemonset(ds)
        },
        nodes=by_name,
        handlers=handlers,
        leftover_pulls=pulls,
        leftover_canaries=tuple(f"{vm['metadata']['namespace']}/{vm['metadata']['name']}" for vm in objects.canaries),
        migrations=active_migrations(objects.migrations, objects.vmis, objects.targets),
        primary_not_ready={
            pod.name: node
            for node, pods in handlers.items()
            for pod in pods
            if pod.daemonset == names.HANDLER and not pod.ready
        },
        unready_nodes=frozenset(node.name for node in by_name.values() if not node.ready),
        admission=admission,
        monitoring=monitoring,
        complete=complete,
        native=native or NativeApi(),
    )


def from_objects(objects: t.Iterable[KubeObject], namespace: str | None = None, name: str | None = None) -> Snapshot:
    """The snapshot of a dump: objects in any order, also in ``List`` objects; kinds that we do not need are ignored.

    :raises InputErrors: when not exactly one KubeVirt fits, or when there is no node.
    """
    by_kind: dict[str, list[KubeObject]] = {}
    for obj in named(objects):
        by_kind.setdefault(obj.get("kind", ""), []).append(obj)
    if not by_kind.get("Node"):
        raise InputErrors(["The dump holds no Node object; add the output of `kubectl get nodes -o yaml`."])
    kubevirt = choose_kubevirt(by_kind.get("KubeVirt", ()), namespace, name)
    admission = Admission.of_dump(
        (obj for group in by_kind.values() for obj in group), kubevirt["metadata"]["namespace"]
    )
    dump = ClusterObjects(
        hyperconvergeds=by_kind.get("HyperConverged", ()),
        daemonsets=by_kind.get("DaemonSet", ()),
        nodes=by_kind["Node"],
        pods=by_kind.get("Pod", ()),
        migrations=by_kind.get("VirtualMachineInstanceMigration", ()),
        vmis=by_kind.get("VirtualMachineInstance", ()),
        targets=by_kind.get("Pod", ()),
    )
    monitoring = Monitoring.of_dump(by_kind.get(kinds.PROMETHEUS_RULE.name, ()))
    crds = {crd["metadata"]["name"]: crd for crd in by_kind.get(kinds.CUSTOM_RESOURCE_DEFINITION.name, ())}
    worker_pools = tuple(by_kind.get(kinds.WORKER_POOL.name, ()))
    native = NativeApi(
        fields=feature_gates.native_pool_fields(crds.get(feature_gates.KUBEVIRT_CRD) or {}),
        worker_pools_served=bool(worker_pools) or feature_gates.WORKER_POOL_CRD in crds,
        worker_pools=worker_pools,
    )
    return build(kubevirt, dump, admission=admission, monitoring=monitoring, native=native)


def choose_kubevirt(kubevirts: t.Iterable[KubeObject], namespace: str | None, name: str | None) -> KubeObject:
    """The one KubeVirt with this namespace and name (None: any).

    :raises InputErrors: when none fits, or several do.
    """
    fitting = [
        kv
        for kv in kubevirts
        if namespace in (None, kv["metadata"]["namespace"]) and name in (None, kv["metadata"]["name"])
    ]
    if len(fitting) == 1:
        return fitting[0]
    wanted = "/".join(part or "*" for part in (namespace, name)) if namespace or name else ""
    if not fitting:
        title = f" named {wanted}" if wanted else ""
        raise InputErrors(
            [f"No KubeVirt object{title} was found; install KubeVirt, or check kubevirt_namespace and kubevirt_name."]
        )
    titles = ", ".join(sorted(f"{kv['metadata']['namespace']}/{kv['metadata']['name']}" for kv in fitting))
    raise InputErrors(
        [f"There are {len(fitting)} KubeVirt objects ({titles}); say which with kubevirt_namespace and kubevirt_name."]
    )


def is_pool_daemonset(obj: KubeObject) -> bool:
    """Whether a DaemonSet is ours and belongs to a pool."""
    return is_managed(obj) and names.OWNER_LABEL in obj["metadata"]["labels"]


def active_migrations(
    migrations: t.Iterable[KubeObject], vmis: t.Iterable[KubeObject], targets: t.Iterable[KubeObject] = ()
) -> tuple[Migration, ...]:
    """The migrations that have not ended, with their source and target nodes as far as known.

    The VMI names both (``status.nodeName`` and ``status.migrationState``) earlier than the migration itself. Before that only
    the target pod knows the target.

    :param targets: pods, at least those that active migrations move VMs to.
    """
    target_nodes = {(pod["metadata"].get("labels") or {}).get(names.MIGRATION_LABEL): _node_of(pod) for pod in targets}
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


def _started(pod: KubeObject) -> float | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    states = (each.get("state") or {} for each in statuses if each.get("name") == names.HANDLER)
    return next((_seconds((state.get("running") or {}).get("startedAt")) for state in states), None)


def _seconds(time: str | None) -> float | None:
    """A time of Kubernetes in seconds since 1970; None when it is no time."""
    try:
        return datetime.strptime(time or "", "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None


def pod_problem(pod: KubeObject) -> str | None:
    """The kubelet's reason why a container of the pod does not run; None when nothing is wrong."""
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            message = waiting.get("message")
            return f"container {container.get('name')}: {reason}" + (f" ({message})" if message else "")
    if status.get("phase") == "Failed":
        return f"pod failed: {status.get('reason') or status.get('message') or 'no reason given'}"
    return None


def _pods(pods: t.Iterable[KubeObject], namespace: str) -> tuple[dict[str, tuple[HandlerPod, ...]], tuple[str, ...]]:
    """The handler pods by node, and the names of pods that pull images."""
    handlers: dict[str, list[HandlerPod]] = {}
    pulls = []
    for pod in pods:
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        if metadata.get("namespace") != namespace:
            continue
        if names.PULL_LABEL in labels:
            pulls.append(metadata["name"])
        elif labels.get(names.KUBEVIRT_LABEL) == names.HANDLER and _node_of(pod):
            handlers.setdefault(_node_of(pod), []).append(HandlerPod.of(pod))
    by_node = {node: tuple(sorted(group, key=lambda p: p.name)) for node, group in sorted(handlers.items())}
    return by_node, tuple(sorted(pulls))


def _is_admission(obj: KubeObject) -> bool:
    kind, name = obj.get("kind"), obj["metadata"]["name"]
    if kind == kinds.CONFIG_MAP.name:
        return name in (names.AIE_CONFIG, names.HISTORY)
    if kind in (kinds.VALIDATING_ADMISSION_POLICY.name, kinds.VALIDATING_ADMISSION_POLICY_BINDING.name):
        return name in names.GUARDS
    policies = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", kinds.KYVERNO_MUTATING_POLICY.name)
    return kind in policies and name in names.POLICIES


def _owner(labels: t.Mapping[str, str]) -> str:
    value = labels.get(names.OWNER_LABEL)
    if value is None:
        return names.PRIMARY
    return f"'{value}'" if value in ("", names.PRIMARY) else value


def _amounts(allocatable: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {name: str(allocatable[name]) for name in ("cpu", "memory") if name in allocatable}


def _devices(allocatable: t.Mapping[str, t.Any]) -> dict[str, int]:
    return {name: int(amount) for name, amount in allocatable.items() if "/" in name and str(amount).isdigit()}


def _node_of(pod: KubeObject) -> str:
    """The node of a pod; empty while the pod waits for the scheduler."""
    spec = pod.get("spec") or {}
    return str(spec.get("nodeName") or "")


def _controller(metadata: KubeObject, kind: str) -> str | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == kind:
            return str(reference["name"])
    return None
