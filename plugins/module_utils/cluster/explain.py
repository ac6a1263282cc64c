# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding the VM that is to be explained, with all that decides its launcher pod: in a cluster, a dump, or a manifest."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster, ClusterError, Forbidden
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    expansion,
    kinds,
    launcher_pods,
    names,
    prediction,
    snapshot,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors, listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import Kind
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.outlook import Subject

Object = t.Mapping[str, t.Any]

_EXPAND_SECONDS = 5.0
"""How long virt-api may take to expand a VM; without its answer it is done here."""

_TEMPLATES = {"VirtualMachineInstanceReplicaSet": "template", "VirtualMachinePool": "virtualMachineTemplate"}
"""Kinds that make VM instances or VMs out of a template, and where it is in their spec."""


class Source(t.Protocol):
    """Where objects are read."""

    title: str

    def get(self, kind: Kind, name: str, namespace: str | None) -> Object | None:
        """The object; None where it is not there, or may not be read."""

    def launcher_pods(self, namespace: str, vmi: Object | None) -> t.Iterable[Object]:
        """The launcher pods of a VM instance; where it is not known, all that there may be."""

    def expanded(self, vm: Object) -> Object:
        """The VM with its instancetype and preference applied."""


class Live:
    """A cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.title = f"the cluster at {cluster.server}"

    def get(self, kind: Kind, name: str, namespace: str | None) -> Object | None:
        return self._cluster.get(kind, name, namespace)

    def launcher_pods(self, namespace: str, vmi: Object | None) -> t.Iterable[Object]:
        if vmi is None:
            return ()
        selector = f"{names.KUBEVIRT_LABEL}={names.LAUNCHER},{names.CREATED_BY_LABEL}={vmi['metadata']['uid']}"
        return self._cluster.list(kinds.POD, namespace, label_selector=selector)

    def expanded(self, vm: Object) -> Object:
        metadata = vm["metadata"]
        with contextlib.suppress(ClusterError):
            return self._cluster.within(_EXPAND_SECONDS).subresource(
                kinds.VIRTUAL_MACHINE_SUBRESOURCES, metadata["name"], metadata["namespace"], "expand-spec"
            )
        return expansion.expanded(vm, self.get)


class Files:
    """Objects from files, in front of another source (for a manifest) or alone (for a dump)."""

    def __init__(self, objects: t.Iterable[t.Any], title: str, behind: Source | None = None) -> None:
        self.title = title
        self._behind = behind
        self._pods: dict[str, list[Object]] = {}
        self._objects: dict[tuple[str, str | None, str], Object] = {}
        for obj in snapshot.flat(objects):
            namespace, kind = obj["metadata"].get("namespace"), obj.get("kind", "")
            self._objects[kind, namespace, obj["metadata"]["name"]] = obj
            if kind == kinds.POD.name and launcher_pods.is_launcher(obj):
                self._pods.setdefault(namespace or "", []).append(obj)

    def get(self, kind: Kind, name: str, namespace: str | None) -> Object | None:
        # In a manifest, what goes to the namespace of the VM need not say so.
        found = self._objects.get((kind.name, namespace, name)) or self._objects.get((kind.name, None, name))
        return found if found is not None or self._behind is None else self._behind.get(kind, name, namespace)

    def launcher_pods(self, namespace: str, vmi: Object | None) -> t.Iterable[Object]:
        found = self._pods.get(namespace, ())
        return found if vmi is None else [pod for pod in found if _controlled_by(pod, vmi)]

    def expanded(self, vm: Object) -> Object:
        return expansion.expanded(vm, self.get)


def find_vm(source: Source, address: str) -> Subject:
    """The VirtualMachine at ``namespace/name``, running or not.

    :raises InputErrors: when it is not there, or what it refers to is not.
    """
    namespace, name = _address("vm", address)
    vm = source.get(kinds.VIRTUAL_MACHINE, name, namespace)
    vmi = source.get(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
    if vm is None:
        hint = "there is only a VirtualMachineInstance of that name: give it as vmi" if vmi else _CHECK
        raise InputErrors([f"VirtualMachine {address} is not in {source.title}; {hint}."])
    return _subject(source, namespace, name, vm, vmi)


def find_vmi(source: Source, address: str) -> Subject:
    """The VirtualMachineInstance at ``namespace/name``, with the VirtualMachine that made it where there is one.

    :raises InputErrors: when it is not there, or what it refers to is not.
    """
    namespace, name = _address("vmi", address)
    vmi = source.get(kinds.VIRTUAL_MACHINE_INSTANCE, name, namespace)
    if vmi is None:
        halted = source.get(kinds.VIRTUAL_MACHINE, name, namespace) is not None
        hint = "the VirtualMachine of that name does not run: give it as vm" if halted else _CHECK
        raise InputErrors([f"VirtualMachineInstance {address} is not in {source.title}; {hint}."])
    made_by = (
        owner["name"]
        for owner in vmi["metadata"].get("ownerReferences") or ()
        if owner.get("controller") and owner.get("kind") == kinds.VIRTUAL_MACHINE.name
    )
    owner = next(made_by, None)
    vm = source.get(kinds.VIRTUAL_MACHINE, owner, namespace) if owner is not None else None
    return _subject(source, namespace, name, vm, vmi)


def find_in_manifest(objects: t.Sequence[t.Any], title: str, behind: Source) -> Subject:
    """The one VM of a manifest that is in no cluster yet; what it refers to is there too, or in the source ``behind``.

    :raises InputErrors: when there is not exactly one, or what it refers to is not there.
    """
    found = [vm for obj in _flat(objects) if (vm := _vm_in(obj)) is not None]
    if len(found) != 1:
        several = f"{len(found)} ({listed(map(_name_of, found))}); leave one" if found else "none; give one"
        raise InputErrors(
            [f"{title} must hold one VirtualMachine, VirtualMachineInstance or template of one, it holds {several}."]
        )
    (vm,) = found
    name, namespace = _name_of(vm), vm["metadata"].get("namespace") or "default"
    vm = {**vm, "metadata": {**vm["metadata"], "name": name, "namespace": namespace}}
    source = Files([o for o in _flat(objects) if o is not found[0]], title, behind)
    if vm.get("kind") == kinds.VIRTUAL_MACHINE_INSTANCE.name:
        return _subject(source, namespace, name, None, vm, in_cluster=False)
    return _subject(source, namespace, name, vm, None, in_cluster=False)


_CHECK = "check namespace and name"


def _subject(
    source: Source, namespace: str, name: str, vm: Object | None, vmi: Object | None, *, in_cluster: bool = True
) -> Subject:
    if vm is not None:
        _check_template(vm)
        if vm["spec"].get("instancetype") or vm["spec"].get("preference"):
            vm = source.expanded(vm)
    home = _readable(source, kinds.NAMESPACE, namespace, None)
    pods = source.launcher_pods(namespace, vmi) if in_cluster else ()
    labels = None if home is None else home["metadata"].get("labels") or {}
    found = tuple(LauncherPod.of(pod, labels) for pod in pods)
    templates = [template for template in (vmi, vm and vm["spec"]["template"]) if template is not None]
    return Subject(
        namespace=namespace,
        name=name,
        vm=vm,
        vmi=vmi,
        pods=tuple(pod for pod in found if pod.vmi == name),
        namespace_labels=labels,
        networks=_networks(source, namespace, templates),
        in_cluster=in_cluster,
    )


def _controlled_by(pod: Object, vmi: Object) -> bool:
    return any(owner.get("uid") == vmi["metadata"].get("uid") for owner in pod["metadata"].get("ownerReferences") or ())


def _networks(source: Source, namespace: str, templates: t.Iterable[Object]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    wanted = {title for template in templates for title in prediction.network_names(template, namespace)}
    for title in sorted(wanted):
        home, _slash, name = title.partition("/")
        network = _readable(source, kinds.NETWORK_ATTACHMENT_DEFINITION, name, home)
        if network is not None:
            annotations = network["metadata"].get("annotations") or {}
            found[title] = annotations.get(prediction.NETWORK_RESOURCE_ANNOTATION)
    return found


def _readable(source: Source, kind: Kind, name: str, namespace: str | None) -> Object | None:
    """The object; None also where it may not be read, which a finding tells."""
    with contextlib.suppress(Forbidden):
        return source.get(kind, name, namespace)
    return None


def _address(option: str, text: str) -> tuple[str, str]:
    namespace, slash, name = text.strip().partition("/")
    if not namespace or not slash or not name or "/" in name:
        raise InputErrors([f"{option} is {text!r}; give namespace/name."])
    return namespace, name


def _flat(objects: t.Iterable[t.Any]) -> t.Iterator[Object]:
    """The objects of a manifest; ones without a name, too, such as templates."""
    for obj in objects:
        if isinstance(obj, dict) and isinstance(obj.get("items"), list):
            yield from _flat(obj["items"])
        elif isinstance(obj, dict):
            yield obj if isinstance(obj.get("metadata"), dict) else {**obj, "metadata": {}}


def _vm_in(obj: Object) -> dict[str, t.Any] | None:
    """The VM or VM instance that an object of a manifest is or makes; None for another object."""
    kind, spec = obj.get("kind"), obj.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if kind in (kinds.VIRTUAL_MACHINE.name, kinds.VIRTUAL_MACHINE_INSTANCE.name):
        return {**obj, "spec": spec}
    metadata = {key: obj["metadata"][key] for key in ("name", "generateName", "namespace") if key in obj["metadata"]}
    if kind == "VirtualMachinePool":
        template = spec.get(_TEMPLATES[kind]) or {}
        return {"kind": kinds.VIRTUAL_MACHINE.name, "metadata": metadata, "spec": template.get("spec") or {}}
    if kind in _TEMPLATES:
        return {"kind": kinds.VIRTUAL_MACHINE.name, "metadata": metadata, "spec": {"template": spec.get("template")}}
    if kind is None and "domain" in spec:
        return {"kind": kinds.VIRTUAL_MACHINE.name, "metadata": metadata, "spec": {"template": obj}}
    return None


def _name_of(vm: Object) -> str:
    metadata = vm["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "unnamed")


def _check_template(vm: Object) -> None:
    if not isinstance((vm.get("spec") or {}).get("template"), dict):
        metadata = vm["metadata"]
        raise InputErrors(
            [f"VirtualMachine {metadata['namespace']}/{metadata['name']} has no spec.template; KubeVirt requires one."]
        )
