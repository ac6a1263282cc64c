# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The state of a cluster as one plain value, from a live cluster or from files."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ..base import kinds, names
from ..base.findings import InputErrors
from ..base.objects import KubeObject, is_managed, named
from . import leftovers, operator_api
from .handlers import HandlerPod, has_ended, node_of
from .hyperconverged import hco_of
from .leftovers import Leftover
from .migrations import Migration, active_migrations
from .nodes import Node
from .operator_api import OperatorApi
from .webhook import ReadConfig, Webhook


@dataclass(frozen=True)
class Admission:
    """What can change or refuse objects on this cluster, and which of that is ours."""

    policy_kind: kinds.Kind | None = None
    """MutatingAdmissionPolicy in the API version that the server serves."""
    validating: bool = False
    """Whether the server serves ValidatingAdmissionPolicy."""
    may_guard: bool = True
    """Whether the user may write the guard. Only a run asks."""
    kyverno: bool = False
    """Whether it serves Kyverno's policies."""
    version: str | None = None
    """The server's."""
    objects: t.Mapping[tuple[str, str], KubeObject] = field(default_factory=dict)
    """Policies, bindings and ConfigMaps with names that we use, ours or not, by kind and name."""
    webhook: Webhook | None = None
    """kubevirt-aie-webhook; None without its ConfigMap."""
    assumed: bool = False
    """Whether this is assumed, since a dump does not show what is served."""

    @classmethod
    def from_dump(
        cls, objects: t.Iterable[KubeObject], namespace: str, read_config: ReadConfig | None = None
    ) -> Admission:
        """From the objects of a dump. A dump does not tell which APIs the server serves, so policies are assumed.

        :param read_config: reads the rules of kubevirt-aie-webhook; without it, they are not known.
        """
        objects = tuple(objects)
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
            webhook=_webhook(objects, live.get((kinds.CONFIG_MAP.name, names.AIE_CONFIG)), read_config),
            assumed=True,
        )


def _webhook(
    dump: t.Iterable[KubeObject], config_map: KubeObject | None, read_config: ReadConfig | None
) -> Webhook | None:
    if config_map is None or read_config is None:
        return None
    by_kind: dict[str, list[KubeObject]] = {}
    for obj in dump:
        by_kind.setdefault(obj.get("kind", ""), []).append(obj)
    deployments = {
        (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj
        for obj in by_kind.get(kinds.DEPLOYMENT.name, ())
    }
    configurations = by_kind.get(kinds.MUTATING_WEBHOOK_CONFIGURATION.name) if deployments else None
    return Webhook.from_objects(
        config_map, read_config, configurations, lambda namespace, name: deployments.get((namespace, name))
    )


@dataclass(frozen=True)
class Monitoring:
    """The Prometheus operator's objects on this cluster."""

    served: bool = False
    """Whether the server serves PrometheusRule."""
    rules: tuple[KubeObject, ...] = ()
    """PrometheusRules with the name that we use, ours or not, in any namespace."""
    missing_namespaces: frozenset[str] = frozenset()
    """Those that were asked for and do not exist."""
    assumed: bool = False
    """Whether this is assumed, since a dump does not show what is served."""

    @classmethod
    def from_dump(cls, objects: t.Iterable[KubeObject]) -> Monitoring:
        """From the PrometheusRules of a dump."""
        rules = (obj for obj in objects if obj["metadata"]["name"] == names.ALERTS)
        return cls(served=True, rules=tuple(rules), assumed=True)


@dataclass(frozen=True)
class Snapshot:
    """The state of one cluster."""

    namespace: str
    kubevirt: KubeObject
    hyperconverged: KubeObject | None
    primary: KubeObject | None
    daemonsets: t.Mapping[str, KubeObject]
    """Every other DaemonSet in KubeVirt's namespace that is ours or has a name that ours could have, by name."""
    nodes: t.Mapping[str, Node]
    handlers: t.Mapping[str, tuple[HandlerPod, ...]]
    """Handler pods by node, in any state (virt-api counts them all); pods without a node are left out."""
    leftover_pulls: tuple[Leftover, ...]
    """Image pull pods that a run left behind."""
    leftover_canaries: tuple[Leftover, ...]
    """Canary VMs that a run left behind; unknown when only some nodes were read."""
    migrations: tuple[Migration, ...]
    primary_not_ready: t.Mapping[str, str]
    """The primary's pods that are not Ready, with their nodes; ``limited_to`` keeps all, for KubeVirt's health."""
    unready_nodes: frozenset[str]
    """Nodes that are not Ready; ``limited_to`` keeps them all."""
    controller: KubeObject | None = None
    """virt-controller's Deployment; None also in a dump without it."""
    admission: Admission | None = None
    """None when it was not read, as when only some nodes were read; so is the next one."""
    monitoring: Monitoring | None = None
    complete: bool = True
    """False when only some nodes were read: then a missing node does not mean that it does not exist."""
    operator_api: OperatorApi = field(default_factory=OperatorApi)
    """Unknown when only some nodes were read."""
    read_at: int = field(default=0, compare=False)
    """When it was read, in seconds since 1970; 0 for a dump."""
    by_operator: bool = False
    """Whether the pool DaemonSets are virt-operator's and not derived by us, as in the view that operator mode makes."""

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
    deployments: t.Iterable[KubeObject] = ()
    """At least virt-controller's."""
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
    operator_api: OperatorApi | None = None,
    read_at: int = 0,
    complete: bool = True,
) -> Snapshot:
    """The snapshot that these objects make; see Snapshot for the other parameters."""
    namespace = kubevirt["metadata"]["namespace"]
    local = {ds["metadata"]["name"]: ds for ds in objects.daemonsets if ds["metadata"].get("namespace") == namespace}
    title = namespace, names.CONTROLLER
    found = (d for d in objects.deployments if (d["metadata"].get("namespace"), d["metadata"]["name"]) == title)
    handlers, pulls = _pods(objects.pods, namespace)
    by_name = {node.name: node for node in sorted(map(Node.from_object, objects.nodes), key=lambda n: n.name)}
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
        leftover_canaries=tuple(sorted(Leftover.from_object(vm) for vm in objects.canaries)),
        migrations=active_migrations(objects.migrations, objects.vmis, objects.targets),
        primary_not_ready={
            pod.name: node
            for node, pods in handlers.items()
            for pod in pods
            if pod.daemonset == names.HANDLER and not pod.ready
        },
        unready_nodes=frozenset(node.name for node in by_name.values() if not node.ready),
        controller=next(found, None),
        admission=admission,
        monitoring=monitoring,
        complete=complete,
        operator_api=operator_api or OperatorApi(),
        read_at=read_at,
    )


def from_objects(
    objects: t.Iterable[KubeObject],
    namespace: str | None = None,
    name: str | None = None,
    read_config: ReadConfig | None = None,
) -> Snapshot:
    """The snapshot of a dump: objects in any order, also in ``List`` objects; kinds that we do not need are ignored.

    :param read_config: reads the rules of kubevirt-aie-webhook; without it, they are not known.
    :raises InputErrors: when not exactly one KubeVirt fits, or when there is no node.
    """
    by_kind: dict[str, list[KubeObject]] = {}
    for obj in named(objects):
        by_kind.setdefault(obj.get("kind", ""), []).append(obj)
    if not by_kind.get("Node"):
        raise InputErrors(["The dump holds no Node object; add the output of `kubectl get nodes -o yaml`."])
    kubevirt = choose_kubevirt(by_kind.get("KubeVirt", ()), namespace, name)
    admission = Admission.from_dump(
        (obj for group in by_kind.values() for obj in group), kubevirt["metadata"]["namespace"], read_config
    )
    dump = ClusterObjects(
        hyperconvergeds=by_kind.get("HyperConverged", ()),
        daemonsets=by_kind.get("DaemonSet", ()),
        deployments=by_kind.get(kinds.DEPLOYMENT.name, ()),
        nodes=by_kind["Node"],
        pods=by_kind.get("Pod", ()),
        migrations=by_kind.get("VirtualMachineInstanceMigration", ()),
        vmis=by_kind.get("VirtualMachineInstance", ()),
        targets=by_kind.get("Pod", ()),
    )
    monitoring = Monitoring.from_dump(by_kind.get(kinds.PROMETHEUS_RULE.name, ()))
    crds = {crd["metadata"]["name"]: crd for crd in by_kind.get(kinds.CUSTOM_RESOURCE_DEFINITION.name, ())}
    worker_pools = tuple(by_kind.get(kinds.WORKER_POOL.name, ()))
    found_api = OperatorApi(
        fields=operator_api.operator_pool_fields(crds.get(operator_api.KUBEVIRT_CRD) or {}),
        worker_pools_served=bool(worker_pools) or operator_api.WORKER_POOL_CRD in crds,
        worker_pools=worker_pools,
    )
    return build(kubevirt, dump, admission=admission, monitoring=monitoring, operator_api=found_api)


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
            [
                f"No KubeVirt object{title} was found; install KubeVirt, or check virtpools_kubevirt_namespace and virtpools_kubevirt_name."
            ]
        )
    titles = ", ".join(sorted(f"{kv['metadata']['namespace']}/{kv['metadata']['name']}" for kv in fitting))
    raise InputErrors(
        [
            f"There are {len(fitting)} KubeVirt objects ({titles}); choose one with virtpools_kubevirt_namespace and virtpools_kubevirt_name."
        ]
    )


def is_pool_daemonset(obj: KubeObject) -> bool:
    """Whether a DaemonSet is ours and belongs to a pool. A copy of one under another name is not."""
    pool = (obj["metadata"].get("labels") or {}).get(names.OWNER_LABEL)
    return is_managed(obj) and pool is not None and obj["metadata"]["name"] == names.pool_daemonset_name(pool)


def _pods(
    pods: t.Iterable[KubeObject], namespace: str
) -> tuple[dict[str, tuple[HandlerPod, ...]], tuple[Leftover, ...]]:
    """The handler pods by node, and the pods that pull images."""
    handlers: dict[str, list[HandlerPod]] = {}
    pulls = []
    for pod in pods:
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        if metadata.get("namespace") != namespace:
            continue
        if leftovers.is_pull_pod(pod):
            pulls.append(Leftover.from_object(pod))
        elif labels.get(names.KUBEVIRT_LABEL) == names.HANDLER and node_of(pod) and not has_ended(pod):
            handlers.setdefault(node_of(pod), []).append(HandlerPod.from_object(pod))
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
