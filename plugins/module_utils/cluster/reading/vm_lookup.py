# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Finds a VM to explain, with everything that decides about its launcher pod, in a cluster, a dump or a manifest."""

from __future__ import annotations

import contextlib
import typing as t

from ...core.base import kinds, names
from ...core.base.findings import InputErrors, listed
from ...core.base.kinds import Kind
from ...core.base.objects import KubeObject, flat, named
from ...core.checks.explanation import Subject
from ...core.vms import expansion, launcher_pods, prediction
from ...core.vms.launcher_pods import LauncherPod
from ..api.client import Cluster, ClusterError, Forbidden

_EXPAND_SECONDS = 5.0
"""virt-api may take so long to expand a VM; then we expand it here."""

_TEMPLATES = {"VirtualMachineInstanceReplicaSet": "template", "VirtualMachinePool": "virtualMachineTemplate"}
"""Kinds that make VM instances or VMs from a template, and the field of their spec that holds it."""


class Source(t.Protocol):
    """Where objects are read from."""

    title: str

    def get(self, kind: Kind, name: str, namespace: str | None) -> KubeObject | None:
        """The object; None when it does not exist. May raise Forbidden."""

    def launcher_pods(self, namespace: str, vmi: KubeObject | None) -> t.Iterable[KubeObject]:
        """The launcher pods of a VM instance. When ``vmi`` is None, any pods of the namespace that may belong to it."""

    def expanded(self, vm: KubeObject) -> KubeObject:
        """The VM with its instancetype and preference applied."""


class ClusterSource:
    """Objects of a live cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.title = f"the cluster at {cluster.server}"

    def get(self, kind: Kind, name: str, namespace: str | None) -> KubeObject | None:
        return self._cluster.get(kind, name, namespace)

    def launcher_pods(self, namespace: str, vmi: KubeObject | None) -> t.Iterable[KubeObject]:
        if vmi is None:
            return ()
        selector = f"{names.KUBEVIRT_LABEL}={names.LAUNCHER},{names.CREATED_BY_LABEL}={vmi['metadata']['uid']}"
        return self._cluster.list(kinds.POD, namespace, label_selector=selector)

    def expanded(self, vm: KubeObject) -> KubeObject:
        metadata = vm["metadata"]
        with contextlib.suppress(ClusterError):
            return self._cluster.retrying_for(_EXPAND_SECONDS).subresource(
                kinds.VIRTUAL_MACHINE_SUBRESOURCES, metadata["name"], metadata["namespace"], "expand-spec"
            )
        return expansion.expand(vm, self.get)


class FileSource:
    """Objects from files. A manifest hides the same objects of the source behind it; a dump has no source behind it."""

    def __init__(self, objects: t.Iterable[t.Any], title: str, behind: Source | None = None) -> None:
        self.title = title
        self._behind = behind
        self._pods: dict[str, list[KubeObject]] = {}
        self._objects: dict[tuple[str, str | None, str], KubeObject] = {}
        for obj in named(objects):
            namespace, kind = obj["metadata"].get("namespace"), obj.get("kind", "")
            self._objects[kind, namespace, obj["metadata"]["name"]] = obj
            if kind == kinds.POD.name and launcher_pods.is_launcher(obj):
                self._pods.setdefault(namespace or "", []).append(obj)

    def get(self, kind: Kind, name: str, namespace: str | None) -> KubeObject | None:
        # Objects of a manifest that go to the namespace of the VM may leave out their namespace.
        obj = self._objects.get((kind.name, namespace, name)) or self._objects.get((kind.name, None, name))
        return obj if obj is not None or self._behind is None else self._behind.get(kind, name, namespace)

    def launcher_pods(self, namespace: str, vmi: KubeObject | None) -> t.Iterable[KubeObject]:
        pods = self._pods.get(namespace, ())
        return pods if vmi is None else [pod for pod in pods if _controlled_by(pod, vmi)]

    def expanded(self, vm: KubeObject) -> KubeObject:
        return expansion.expand(vm, self.get)


def find_vm(source: Source, address: str) -> Subject:
    """The VirtualMachine at ``namespace/name``, running or not.

    :raises InputErrors: when it, or something it refers to, does not exist.
    """
    namespace, name = _address("vm", address)
    vm = source.get(kinds.VIRTUAL_MACHINE, name, namespace)
    vmi = source.get(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
    if vm is None:
        hint = "only a VirtualMachineInstance has that name: give it as vmi" if vmi else _CHECK
        raise InputErrors([f"VirtualMachine {address} is not in {source.title}; {hint}."])
    return _subject(source, namespace, name, vm, vmi)


def find_vmi(source: Source, address: str) -> Subject:
    """The VirtualMachineInstance at ``namespace/name``, with the VirtualMachine that controls it, if any.

    :raises InputErrors: when it, or something it refers to, does not exist.
    """
    namespace, name = _address("vmi", address)
    vmi = source.get(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
    if vmi is None:
        halted = source.get(kinds.VIRTUAL_MACHINE, name, namespace) is not None
        hint = "the VirtualMachine of that name is not running: give it as vm" if halted else _CHECK
        raise InputErrors([f"VirtualMachineInstance {address} is not in {source.title}; {hint}."])
    controllers = (
        reference["name"]
        for reference in vmi["metadata"].get("ownerReferences") or ()
        if reference.get("controller") and reference.get("kind") == kinds.VIRTUAL_MACHINE.name
    )
    controller = next(controllers, None)
    vm = source.get(kinds.VIRTUAL_MACHINE, controller, namespace) if controller is not None else None
    return _subject(source, namespace, name, vm, vmi)


def find_in_manifest(objects: t.Sequence[t.Any], title: str, behind: Source) -> Subject:
    """The only VM of a manifest. What it refers to is in the manifest too, or in the source ``behind``.

    :raises InputErrors: when the manifest has no VM or several, or when something the VM refers to does not exist.
    """
    vms = [vm for obj in _objects(objects) if (vm := _vm_in(obj)) is not None]
    if len(vms) != 1:
        several = f"{len(vms)} ({listed(map(_name_of, vms))}); leave one" if vms else "none; give one"
        raise InputErrors(
            [f"{title} must hold one VirtualMachine, VirtualMachineInstance or template of one, it holds {several}."]
        )
    (vm,) = vms
    name, namespace = _name_of(vm), vm["metadata"].get("namespace") or "default"
    vm = {**vm, "metadata": {**vm["metadata"], "name": name, "namespace": namespace}}
    source = FileSource([obj for obj in _objects(objects) if obj is not vms[0]], title, behind)
    if vm.get("kind") == kinds.VIRTUAL_MACHINE_INSTANCE.name:
        return _subject(source, namespace, name, None, vm, in_cluster=False)
    return _subject(source, namespace, name, vm, None, in_cluster=False)


_CHECK = "check namespace and name"


def _subject(
    source: Source, namespace: str, name: str, vm: KubeObject | None, vmi: KubeObject | None, *, in_cluster: bool = True
) -> Subject:
    if vm is not None:
        _check_template(vm)
        if vm["spec"].get("instancetype") or vm["spec"].get("preference"):
            vm = source.expanded(vm)
    namespace_object = _readable(source, kinds.NAMESPACE, namespace, None)
    pods = source.launcher_pods(namespace, vmi) if in_cluster else ()
    labels = None if namespace_object is None else namespace_object["metadata"].get("labels") or {}
    launchers = (LauncherPod.from_object(pod, labels) for pod in pods)
    templates = [template for template in (vmi, vm and vm["spec"]["template"]) if template is not None]
    return Subject(
        namespace=namespace,
        name=name,
        vm=vm,
        vmi=vmi,
        pods=tuple(pod for pod in launchers if pod.vmi == name),
        namespace_labels=labels,
        networks=_networks(source, namespace, templates),
        in_cluster=in_cluster,
    )


def _controlled_by(pod: KubeObject, vmi: KubeObject) -> bool:
    return any(owner.get("uid") == vmi["metadata"].get("uid") for owner in pod["metadata"].get("ownerReferences") or ())


def _networks(source: Source, namespace: str, templates: t.Iterable[KubeObject]) -> dict[str, str | None]:
    """The device that each network of a VM asks for (None: no device), for networks that can be read."""
    devices: dict[str, str | None] = {}
    for title in sorted({title for template in templates for title in prediction.network_names(template, namespace)}):
        home, _slash, name = title.partition("/")
        network = _readable(source, kinds.NETWORK_ATTACHMENT_DEFINITION, name, home)
        if network is not None:
            annotations = network["metadata"].get("annotations") or {}
            devices[title] = annotations.get(prediction.NETWORK_RESOURCE_ANNOTATION)
    return devices


def _readable(source: Source, kind: Kind, name: str, namespace: str | None) -> KubeObject | None:
    """The object; None also when we may not read it, which a finding reports."""
    with contextlib.suppress(Forbidden):
        return source.get(kind, name, namespace)
    return None


def _address(option: str, text: str) -> tuple[str, str]:
    namespace, slash, name = text.strip().partition("/")
    if not namespace or not slash or not name or "/" in name:
        raise InputErrors([f"virtpools_{option} is {text!r}; give namespace/name."])
    return namespace, name


def _objects(documents: t.Iterable[t.Any]) -> t.Iterator[KubeObject]:
    """The objects of a manifest, also those without metadata, such as templates."""
    for obj in flat(documents):
        if isinstance(obj, dict):
            yield obj if isinstance(obj.get("metadata"), dict) else {**obj, "metadata": {}}


def _vm_in(obj: KubeObject) -> dict[str, t.Any] | None:
    """The VM or VM instance that an object of a manifest is or makes; None for any other object."""
    kind, spec = obj.get("kind"), obj.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if kind in (kinds.VIRTUAL_MACHINE.name, kinds.VIRTUAL_MACHINE_INSTANCE.name):
        return {**obj, "spec": spec}
    metadata = {key: obj["metadata"][key] for key in ("name", "generateName", "namespace") if key in obj["metadata"]}
    if kind == "VirtualMachinePool":
        template = spec.get(_TEMPLATES[kind]) or {}
        metadata["labels"] = (template.get("metadata") or {}).get("labels")
        return {"kind": kinds.VIRTUAL_MACHINE.name, "metadata": metadata, "spec": template.get("spec") or {}}
    if kind in _TEMPLATES:
        return {"kind": kinds.VIRTUAL_MACHINE.name, "metadata": metadata, "spec": {"template": spec.get("template")}}
    if kind is None and "domain" in spec:
        return {"kind": kinds.VIRTUAL_MACHINE.name, "metadata": metadata, "spec": {"template": obj}}
    return None


def _name_of(vm: KubeObject) -> str:
    metadata = vm["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "unnamed")


def _check_template(vm: KubeObject) -> None:
    if not isinstance((vm.get("spec") or {}).get("template"), dict):
        metadata = vm["metadata"]
        raise InputErrors(
            [f"VirtualMachine {metadata['namespace']}/{metadata['name']} has no spec.template; KubeVirt requires one."]
        )
