# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A VirtualMachine with its instancetype and preference applied, as KubeVirt does when it starts.

Only what a launcher pod's pool and nodes depend on is applied.
"""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors, listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import Kind

KubeObject = t.Mapping[str, t.Any]
Get = t.Callable[[Kind, str, "str | None"], "KubeObject | None"]
"""How objects are read: kind, name and namespace (None for kinds without)."""

_REVISED_OBJECT_LABEL = "instancetype.kubevirt.io/object-name"
"""On a ControllerRevision: the name of the instancetype or preference that it keeps."""

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
}
"""Where an instancetype's fields go in the VM instance's spec; one that both have is a conflict."""

_FROM_GUEST_CPUS = tuple(("domain", "cpu", field) for field in ("sockets", "cores", "threads"))
"""What KubeVirt works out from an instancetype's ``cpu.guest``; the VM must not have it."""


def expanded(vm: KubeObject, get: Get) -> KubeObject:
    """The VM with what its instancetype and preference add to its template.

    :raises InputErrors: when one is not there, or contradicts the VM.
    """
    return expand(vm, find(vm, "instancetype", get), find(vm, "preference", get))


def expand(vm: KubeObject, instancetype: KubeObject | None, preference: KubeObject | None) -> KubeObject:
    """The VM with these two applied to its template.

    :raises InputErrors: when the VM and the instancetype say different things; KubeVirt does not start such a VM.
    """
    if instancetype is None and preference is None:
        return vm
    made = copy.deepcopy(dict(vm))
    template = made["spec"]["template"]
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
        made["spec"].pop(field, None)
    return made


def find(vm: KubeObject, field: str, get: Get) -> KubeObject | None:
    """The instancetype or preference (``field``) of a VM; None when it has none.

    The revision that the VM is pinned to goes before the object, which may have changed since.

    :raises InputErrors: when it is not there.
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
        return _kept(revision)
    reference = (vm.get("status") or {}).get(f"{field}Ref") or {}
    noted = (reference.get("controllerRevisionRef") or {}).get("name")
    revision = get(kinds.CONTROLLER_REVISION, noted, namespace) if noted else None
    if revision is not None and _keeps(revision, matcher):
        return _kept(revision)
    name = matcher.get("name")
    if not name:
        raise InputErrors(
            [
                f"VirtualMachine {_title(vm)} takes its {field} from a volume, which is known once it is in the cluster only."
            ]
        )
    kind = _kind(vm, field, matcher)
    found = get(kind, name, namespace if kind.namespaced else None)
    if found is None:
        raise _missing(vm, field, kind, name)
    return found


def _kind(vm: KubeObject, field: str, matcher: KubeObject) -> Kind:
    """KubeVirt takes singular and plural in any case, and the cluster's kind where none is given."""
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


def _keeps(revision: KubeObject, matcher: KubeObject) -> bool:
    """Whether a noted revision is of the object that the VM names: it may name another one since."""
    label = (revision["metadata"].get("labels") or {}).get(_REVISED_OBJECT_LABEL)
    return label is None or label == matcher.get("name")


def _kept(revision: KubeObject) -> KubeObject:
    return revision.get("data") or {}


def _missing(vm: KubeObject, field: str, kind: Kind, name: str) -> InputErrors:
    message = (
        f"{kind.name} {name}, the {field} of VirtualMachine {_title(vm)}, is not there, and without it nobody knows what "
        "the VM asks for; create it, or add it to the manifest or dump."
    )
    return InputErrors([message])


def _title(vm: KubeObject) -> str:
    metadata = vm["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _apply(instancetype: KubeObject, template: dict[str, t.Any]) -> list[str]:
    """Apply an instancetype's spec. Returns the fields that the VM has as well."""
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
    conflicts += [".".join(("spec.template.spec", *path)) for path in _FROM_GUEST_CPUS if _at(spec, path)]
    for key, value in (instancetype.get("annotations") or {}).items():
        if (_at(template, ("metadata", "annotations", key)) or value) != value:
            conflicts.append(f"spec.template.metadata.annotations[{key}]")
        else:
            _set(template, ("metadata", "annotations", key), value)
    return conflicts


def _prefer(preference: KubeObject, spec: dict[str, t.Any]) -> None:
    """Apply a preference's spec: it says only what the VM leaves open."""
    if preference.get("preferredArchitecture"):
        spec.setdefault("architecture", preference["preferredArchitecture"])
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
