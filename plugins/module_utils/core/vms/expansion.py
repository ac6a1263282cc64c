# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Applies instancetype and preference to a VirtualMachine, as KubeVirt does when the VM starts.

Only fields that decide about the launcher pod's pool and nodes are applied.
"""

from __future__ import annotations

import copy
import typing as t

from ..base import kinds
from ..base.findings import InputErrors, listed
from ..base.kinds import Kind
from ..base.objects import KubeObject

Get = t.Callable[[Kind, str, "str | None"], "KubeObject | None"]
"""A function that reads an object by kind, name and namespace (None for kinds without)."""

_REVISED_OBJECT_LABEL = "instancetype.kubevirt.io/object-name"
"""On a ControllerRevision: the name of the instancetype or preference whose revision it is."""

_KINDS = {
    "instancetype": (kinds.INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE),
    "preference": (kinds.PREFERENCE, kinds.CLUSTER_PREFERENCE),
}

_INSTANCETYPE_FIELDS = {
    ("nodeSelector",): ("nodeSelector",),
    ("schedulerName",): ("schedulerName",),
    ("gpus",): ("domain", "devices", "gpus"),
    ("hostDevices",): ("domain", "devices", "hostDevices"),
    ("launchSecurity",): ("domain", "launchSecurity"),
    ("cpu", "model"): ("domain", "cpu", "model"),
    ("cpu", "dedicatedCPUPlacement"): ("domain", "cpu", "dedicatedCpuPlacement"),
    ("memory", "hugepages"): ("domain", "memory", "hugepages"),
}
"""Where an instancetype's fields go in the VM instance's spec. A field that both have is a conflict."""

_PREFERRED = {
    ("preferredArchitecture",): ("architecture",),
    ("machine", "preferredMachineType"): ("domain", "machine", "type"),
    ("devices", "preferredAutoattachPodInterface"): ("domain", "devices", "autoattachPodInterface"),
    ("preferredLaunchSecurity",): ("domain", "launchSecurity"),
}
"""Where a preference's fields go in the VM instance's spec. KubeVirt knows the last one since 1.9."""

_FROM_GUEST_CPUS = tuple(("domain", "cpu", field) for field in ("sockets", "cores", "threads"))
"""Fields that KubeVirt computes from an instancetype's ``cpu.guest``; the VM must not have them."""


def expand(vm: KubeObject, get: Get) -> KubeObject:
    """The VM with its instancetype and preference, which ``get`` reads, applied to its template.

    :raises InputErrors: when one of them does not exist or contradicts the VM.
    """
    return expand_with(vm, find(vm, "instancetype", get), find(vm, "preference", get))


def expand_with(vm: KubeObject, instancetype: KubeObject | None, preference: KubeObject | None) -> KubeObject:
    """The VM with this instancetype and preference applied to its template.

    :raises InputErrors: when the VM and the instancetype contradict each other; KubeVirt does not start such a VM.
    """
    if instancetype is None and preference is None:
        return vm
    expanded = copy.deepcopy(dict(vm))
    template = expanded["spec"]["template"]
    spec = template.setdefault("spec", {})
    conflicts = _apply(instancetype.get("spec") or {}, template) if instancetype is not None else []
    if conflicts:
        message = (
            f"VirtualMachine {_title(vm)} and its instancetype both set {listed(conflicts)}: KubeVirt does not start it; "
            "remove that from the VM."
        )
        raise InputErrors([message])
    _prefer((preference or {}).get("spec") or {}, spec)
    for field in _KINDS:
        expanded["spec"].pop(field, None)
    return expanded


def find(vm: KubeObject, field: str, get: Get) -> KubeObject | None:
    """The instancetype or preference (``field``) of a VM; None when the VM has none.

    The revision that the VM uses takes precedence over the object itself, which may have changed since.

    :raises InputErrors: when it does not exist.
    """
    matcher = vm["spec"].get(field)
    if not matcher:
        return None
    namespace = vm["metadata"].get("namespace")
    pinned = matcher.get("revisionName")
    if pinned:
        revision = get(kinds.CONTROLLER_REVISION, pinned, namespace)
        if revision is None:
            raise _missing(vm, field, kinds.CONTROLLER_REVISION, pinned)
        return _content(revision)
    reference = (vm.get("status") or {}).get(f"{field}Ref") or {}
    in_status = (reference.get("controllerRevisionRef") or {}).get("name")
    revision = get(kinds.CONTROLLER_REVISION, in_status, namespace) if in_status else None
    if revision is not None and _is_revision_of(revision, matcher):
        return _content(revision)
    name = matcher.get("name")
    if not name:
        raise InputErrors(
            [
                f"VirtualMachine {_title(vm)} takes its {field} from a volume, which is known only once the VM is in the cluster."
            ]
        )
    kind = _kind(vm, field, matcher)
    obj = get(kind, name, namespace if kind.namespaced else None)
    if obj is None:
        raise _missing(vm, field, kind, name)
    return obj


def _kind(vm: KubeObject, field: str, matcher: KubeObject) -> Kind:
    """The kind of an instancetype or preference. KubeVirt accepts singular and plural in upper and lower case; no kind means the
    cluster-wide one."""
    given = str(matcher.get("kind") or "").lower()
    own, of_cluster = _KINDS[field]
    if given in ("", of_cluster.name.lower(), of_cluster.plural):
        return of_cluster
    if given in (own.name.lower(), own.plural):
        return own
    raise InputErrors(
        [
            f"VirtualMachine {_title(vm)} has spec.{field}.kind {matcher['kind']!r}; it must be {own.name} or {of_cluster.name}."
        ]
    )


def _is_revision_of(revision: KubeObject, matcher: KubeObject) -> bool:
    """Whether the revision in a VM's status is of the object that the VM names now: the VM may have changed since."""
    label = (revision["metadata"].get("labels") or {}).get(_REVISED_OBJECT_LABEL)
    return label is None or label == matcher.get("name")


def _content(revision: KubeObject) -> KubeObject:
    return revision.get("data") or {}


def _missing(vm: KubeObject, field: str, kind: Kind, name: str) -> InputErrors:
    message = (
        f"{kind.name} {name}, the {field} of VirtualMachine {_title(vm)}, does not exist, so what the VM asks for is "
        "unknown; create it, or add it to the manifest or dump."
    )
    return InputErrors([message])


def _title(vm: KubeObject) -> str:
    metadata = vm["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _apply(instancetype: KubeObject, template: dict[str, t.Any]) -> list[str]:
    """Apply an instancetype's spec to a VM's template. Returns the fields that both have."""
    spec = template["spec"]
    conflicts = []
    for source, target in _INSTANCETYPE_FIELDS.items():
        value = _at(instancetype, source)
        if not value:
            continue
        if _at(spec, target):
            conflicts.append(".".join(("spec.template.spec", *target)))
        else:
            _set(spec, target, copy.deepcopy(value))
    realtime = _at(instancetype, ("cpu", "realtime"))
    if realtime is not None:  # which may be empty
        _set(spec, ("domain", "cpu", "realtime"), copy.deepcopy(realtime))
    conflicts += [".".join(("spec.template.spec", *path)) for path in _FROM_GUEST_CPUS if _at(spec, path)]
    for key, value in (instancetype.get("annotations") or {}).items():
        if (_at(template, ("metadata", "annotations", key)) or value) != value:
            conflicts.append(f"spec.template.metadata.annotations[{key}]")
        else:
            _set(template, ("metadata", "annotations", key), value)
    return conflicts


def _prefer(preference: KubeObject, spec: dict[str, t.Any]) -> None:
    """Apply a preference's spec to a VM instance's spec: it only fills in what the VM leaves open."""
    hyperv = ("domain", "features", "hyperv")
    for feature, state in (_at(preference, ("features", "preferredHyperv")) or {}).items():
        if state is not None and _at(spec, (*hyperv, feature)) is None:
            _set(spec, (*hyperv, feature), copy.deepcopy(state))
    for source, target in _PREFERRED.items():
        value = _at(preference, source)
        if value is not None and _at(spec, target) in (None, ""):
            _set(spec, target, copy.deepcopy(value))
    model = _at(preference, ("devices", "preferredInterfaceModel"))
    for interface in (_at(spec, ("domain", "devices", "interfaces")) or ()) if model else ():
        interface["model"] = interface.get("model") or model
    features = _at(preference, ("cpu", "preferredCPUFeatures")) or ()
    present = _at(spec, ("domain", "cpu", "features")) or []
    known = {feature["name"] for feature in present}
    added = [dict(feature) for feature in features if feature["name"] not in known]
    if added:
        _set(spec, ("domain", "cpu", "features"), [*present, *added])


def _at(obj: t.Any, path: t.Iterable[str]) -> t.Any:
    for step in path:
        obj = (obj or {}).get(step)
    return obj


def _set(obj: dict[str, t.Any], path: t.Sequence[str], value: t.Any) -> None:
    for step in path[:-1]:
        obj[step] = obj.get(step) or {}
        obj = obj[step]
    obj[path[-1]] = value
