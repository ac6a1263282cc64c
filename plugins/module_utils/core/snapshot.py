# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a cluster as one plain value, read from a live cluster or from files.

Only what planning, handing over and checking need is kept of nodes and pods, so that thousands of them stay small.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import hco_of

KubeObject = t.Mapping[str, t.Any]

_FINAL_MIGRATION_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class Node:
    """What we need of a node. ``owner`` is the owner label's value, ``primary`` where there is none.

    A label that is empty or spells ``primary`` was set by hand and keeps the primary off: then ``owner`` is the value in
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

    @property
    def schedulable(self) -> bool:
        """Whether virt-handler says that VMs may start here."""
        return self.labels.get(names.SCHEDULABLE_LABEL) == "true"

    def owned_by(self, owner: str) -> Node:
        """The node as it is once it is handed over to this owner."""
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
            ready=_condition(status, "Ready") == "True",
            owner=_owner(labels),
            former_owner=annotations.get(names.FORMER_OWNER_ANNOTATION),
            heartbeat=annotations.get(names.HEARTBEAT_ANNOTATION),
            images=frozenset(name for image in status.get("images") or () for name in image.get("names") or ()),
            devices=_devices(status.get("allocatable") or {}),
        )


@dataclass(frozen=True)
class HandlerPod:
    """A virt-handler pod. ``daemonset`` is its controller's name; ``problem`` says why it does not get Ready, if known."""

    name: str
    uid: str
    node: str
    daemonset: str | None
    template: str | None
    ready: bool
    terminating: bool
    problem: str | None

    @classmethod
    def of(cls, obj: KubeObject) -> HandlerPod:
        metadata = obj.get("metadata") or {}
        status = obj.get("status") or {}
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            node=_node_of(obj),
            daemonset=_controller(metadata, "DaemonSet"),
            template=(metadata.get("annotations") or {}).get(names.TEMPLATE_ANNOTATION),
            ready=status.get("phase") == "Running" and _condition(status, "Ready") == "True",
            terminating=bool(metadata.get("deletionTimestamp")),
            problem=pod_problem(obj),
        )


@dataclass(frozen=True)
class Migration:
    """A live migration that has not ended; ``nodes`` are the ends that are known already."""

    namespace: str
    name: str
    vmi: str
    nodes: frozenset[str]


@dataclass(frozen=True)
class Admission:
    """What can change or refuse objects on this cluster, and what of ours does.

    ``policy_kind`` is the version of MutatingAdmissionPolicy that the server serves. ``validating``: whether it serves
    ValidatingAdmissionPolicy. ``aie``: whether kubevirt-aie-webhook's ConfigMap is in KubeVirt's namespace.
    ``assumed``: what is served is not known (a dump).
    """

    policy_kind: kinds.Kind | None = None
    validating: bool = False
    kyverno: bool = False
    aie: bool = False
    version: str | None = None
    objects: t.Mapping[tuple[str, str], KubeObject] = field(default_factory=dict)
    """Policies, bindings and ConfigMaps of names that we use, ours or not, by kind and name."""
    assumed: bool = False

    @classmethod
    def of_dump(cls, objects: t.Iterable[KubeObject], namespace: str) -> Admission:
        """From the objects of a dump. Which APIs the server has it does not say: policies are assumed."""
        found = {
            (obj["kind"], obj["metadata"]["name"]): obj
            for obj in objects
            if obj["metadata"].get("namespace") in (None, namespace) and _is_admission(obj)
        }
        versions = {obj["apiVersion"] for (kind, _name), obj in found.items() if kind == "MutatingAdmissionPolicy"}
        served = next(
            (kind for kind in kinds.MUTATING_ADMISSION_POLICIES if kind.api_version in versions),
            kinds.MUTATING_ADMISSION_POLICIES[0],
        )
        return cls(
            policy_kind=served,
            validating=True,
            kyverno=any(kind == kinds.KYVERNO_MUTATING_POLICY.name for kind, _name in found),
            aie=("ConfigMap", names.AIE_CONFIG) in found,
            objects=found,
            assumed=True,
        )


@dataclass(frozen=True)
class Snapshot:
    """The state of one cluster.

    ``complete`` is false when only some nodes were read: then nothing may be concluded from a node's absence.
    """

    namespace: str
    kubevirt: KubeObject
    hyperconverged: KubeObject | None
    primary: KubeObject | None
    daemonsets: t.Mapping[str, KubeObject]
    """Every other DaemonSet in KubeVirt's namespace that is ours or has a name we would use, by name."""
    nodes: t.Mapping[str, Node]
    handlers: t.Mapping[str, tuple[HandlerPod, ...]]
    """Handler pods by node, in whatever state (virt-api counts them all); pods without a node left out."""
    leftover_pulls: tuple[str, ...]
    """Names of image pull pods that a run left behind."""
    leftover_canaries: tuple[str, ...]
    """Canary VMs that a run left behind, as ``namespace/name``; none are known where only some nodes were read."""
    migrations: tuple[Migration, ...]
    primary_not_ready: t.Mapping[str, str]
    """The primary's pods that are not Ready, with their nodes; ``only`` keeps them all, since KubeVirt's health tells of all."""
    unready_nodes: frozenset[str]
    """Nodes that are not Ready; ``only`` keeps them all."""
    admission: Admission | None = None
    """None where it was not read, as when only some nodes were."""
    complete: bool = True

    @property
    def kubevirt_name(self) -> str:
        return f"{self.namespace}/{self.kubevirt['metadata']['name']}"

    @property
    def pools(self) -> t.Mapping[str, KubeObject]:
        """Our pool DaemonSets by the name of their pool."""
        return {ds["metadata"]["labels"][names.OWNER_LABEL]: ds for ds in self.daemonsets.values() if is_ours(ds)}

    @property
    def dead_primary_handlers(self) -> int:
        """How many of the primary's pods are not Ready because their node is not."""
        return sum(node in self.unready_nodes for node in self.primary_not_ready.values())

    def only(self, nodes: t.Collection[str]) -> Snapshot:
        """The same state, restricted to some nodes."""
        return replace(
            self,
            nodes={name: node for name, node in self.nodes.items() if name in nodes},
            handlers={name: pods for name, pods in self.handlers.items() if name in nodes},
            admission=None,
            complete=False,
        )


def build(
    *,
    kubevirts: t.Iterable[KubeObject],
    hyperconvergeds: t.Iterable[KubeObject] = (),
    daemonsets: t.Iterable[KubeObject] = (),
    nodes: t.Iterable[KubeObject] = (),
    pods: t.Iterable[KubeObject] = (),
    migrations: t.Iterable[KubeObject] = (),
    vmis: t.Iterable[KubeObject] = (),
    canaries: t.Iterable[KubeObject] = (),
    admission: Admission | None = None,
    namespace: str | None = None,
    name: str | None = None,
    complete: bool = True,
) -> Snapshot:
    """A snapshot from API objects; nodes and pods may be given page by page.

    :raises InputErrors: when there is not exactly one KubeVirt that fits ``namespace`` and ``name``.
    """
    kubevirt = choose_kubevirt(kubevirts, namespace, name)
    home = kubevirt["metadata"]["namespace"]
    local = {ds["metadata"]["name"]: ds for ds in daemonsets if ds["metadata"].get("namespace") == home}
    handlers, pulls = _pods(pods, home)
    by_name = {node.name: node for node in sorted(map(Node.of, nodes), key=lambda n: n.name)}
    return Snapshot(
        namespace=home,
        kubevirt=kubevirt,
        hyperconverged=hco_of(kubevirt, list(hyperconvergeds)),
        primary=local.get(names.HANDLER),
        daemonsets={n: ds for n, ds in sorted(local.items()) if n.startswith(f"{names.HANDLER}-") or is_ours(ds)},
        nodes=by_name,
        handlers=handlers,
        leftover_pulls=pulls,
        leftover_canaries=tuple(f"{vm['metadata']['namespace']}/{vm['metadata']['name']}" for vm in canaries),
        migrations=active_migrations(migrations, vmis),
        primary_not_ready={
            pod.name: node
            for node, found in handlers.items()
            for pod in found
            if pod.daemonset == names.HANDLER and not pod.ready
        },
        unready_nodes=frozenset(node.name for node in by_name.values() if not node.ready),
        admission=admission,
        complete=complete,
    )


def from_objects(objects: t.Iterable[KubeObject], namespace: str | None = None, name: str | None = None) -> Snapshot:
    """A snapshot from a dump: any objects in any order, ``List`` objects included; kinds we do not need are ignored.

    :raises InputErrors: when there is not exactly one KubeVirt that fits, or no node.
    """
    by_kind: dict[str, list[KubeObject]] = {}
    for obj in flat(objects):
        by_kind.setdefault(obj.get("kind", ""), []).append(obj)
    if not by_kind.get("Node"):
        raise InputErrors(["The dump holds no Node object; add the output of `kubectl get nodes -o yaml`."])
    kubevirt = choose_kubevirt(by_kind.get("KubeVirt", ()), namespace, name)
    return build(
        kubevirts=[kubevirt],
        hyperconvergeds=by_kind.get("HyperConverged", ()),
        daemonsets=by_kind.get("DaemonSet", ()),
        nodes=by_kind["Node"],
        pods=by_kind.get("Pod", ()),
        migrations=by_kind.get("VirtualMachineInstanceMigration", ()),
        vmis=by_kind.get("VirtualMachineInstance", ()),
        admission=Admission.of_dump(
            (obj for found in by_kind.values() for obj in found), kubevirt["metadata"]["namespace"]
        ),
    )


def choose_kubevirt(kubevirts: t.Iterable[KubeObject], namespace: str | None, name: str | None) -> KubeObject:
    """The one KubeVirt that fits.

    :raises InputErrors: when none fits, or several do.
    """
    found = [
        kv
        for kv in kubevirts
        if namespace in (None, kv["metadata"]["namespace"]) and name in (None, kv["metadata"]["name"])
    ]
    if len(found) == 1:
        return found[0]
    wanted = "/".join(part or "*" for part in (namespace, name)) if namespace or name else ""
    if not found:
        looked = f" named {wanted}" if wanted else ""
        raise InputErrors(
            [f"No KubeVirt object{looked} was found; install KubeVirt, or check kubevirt_namespace and kubevirt_name."]
        )
    listed = names_of(found)
    raise InputErrors(
        [f"There are {len(found)} KubeVirt objects ({listed}); say which with kubevirt_namespace and kubevirt_name."]
    )


def names_of(objects: t.Iterable[KubeObject]) -> str:
    return ", ".join(sorted(f"{o['metadata'].get('namespace')}/{o['metadata']['name']}" for o in objects))


def is_ours(obj: KubeObject) -> bool:
    """Whether we made this object."""
    labels = obj["metadata"].get("labels") or {}
    return labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY and names.OWNER_LABEL in labels


def active_migrations(migrations: t.Iterable[KubeObject], vmis: t.Iterable[KubeObject]) -> tuple[Migration, ...]:
    """The migrations that have not ended, with the nodes they run through as far as known.

    The VMI knows both ends (``status.nodeName`` and ``status.migrationState``); the migration itself only later.
    """
    by_name = {(vmi["metadata"].get("namespace"), vmi["metadata"]["name"]): vmi for vmi in vmis}
    found = []
    for migration in migrations:
        if not is_active(migration):
            continue
        metadata = migration["metadata"]
        vmi_name = (migration.get("spec") or {}).get("vmiName", "")
        vmi_status = (by_name.get((metadata.get("namespace"), vmi_name)) or {}).get("status") or {}
        states = [(migration.get("status") or {}).get("migrationState") or {}, vmi_status.get("migrationState") or {}]
        ends = [state.get(end) for state in states for end in ("sourceNode", "targetNode")]
        found.append(
            Migration(
                namespace=metadata.get("namespace", ""),
                name=metadata["name"],
                vmi=vmi_name,
                nodes=frozenset(end for end in (*ends, vmi_status.get("nodeName")) if end),
            )
        )
    return tuple(sorted(found, key=lambda m: (m.namespace, m.name)))


def is_active(migration: KubeObject) -> bool:
    return (migration.get("status") or {}).get("phase") not in _FINAL_MIGRATION_PHASES


def pod_problem(pod: KubeObject) -> str | None:
    """Why a pod's containers do not run, as the kubelet says it: ``ImagePullBackOff: …``; None when nothing is wrong."""
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
    by_node = {node: tuple(sorted(found, key=lambda p: p.name)) for node, found in sorted(handlers.items())}
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


def _devices(allocatable: t.Mapping[str, t.Any]) -> dict[str, int]:
    return {name: int(amount) for name, amount in allocatable.items() if "/" in name and str(amount).isdigit()}


def _node_of(pod: KubeObject) -> str:
    """The node a pod is bound to; empty while it waits for the scheduler."""
    spec = pod.get("spec") or {}
    return str(spec.get("nodeName") or "")


def _controller(metadata: KubeObject, kind: str) -> str | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == kind:
            return str(reference["name"])
    return None


def _condition(status: KubeObject, kind: str) -> str | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            return str(condition.get("status"))
    return None


def flat(objects: t.Iterable[KubeObject]) -> t.Iterator[KubeObject]:
    """The objects that have a name, those inside ``List`` objects in their place."""
    for obj in objects:
        if isinstance(obj, dict) and isinstance(obj.get("items"), list):
            yield from flat(obj["items"])
        elif isinstance(obj, dict) and isinstance(obj.get("metadata"), dict) and obj["metadata"].get("name"):
            yield obj
