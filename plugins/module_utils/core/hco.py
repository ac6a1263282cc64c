# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who owns the KubeVirt object, and how to change it when HCO does.

Without HCO the KubeVirt object is edited itself. Under HCO (the HyperConverged cluster operator) an edit of it is
reverted within 300 ms; what HCO leaves us is the annotation ``kubevirt.kubevirt.io/jsonpatch`` on its HyperConverged
object: a string with an RFC 6902 array, shared by everybody who needs something, applied to a fresh render each time.
An operation that cannot be applied stops HCO altogether, so ours never count on positions in a list.
"""

from __future__ import annotations

import copy
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Object, canonical_json

_MANAGER = "hco-operator"
_OPERATIONS = ("add", "copy", "move", "remove", "replace", "test")


ReadOnly = t.Mapping[str, t.Any]
"""A Kubernetes object that is only read."""


@dataclass(frozen=True)
class Edit:
    """A whole object before and after a change; ``after is before`` when there is nothing to change.

    ``what`` is the state wanted and ``place`` where in the object it is written, whether or not that is still to do.
    Whoever builds an Edit compares by meaning (HCO reorders keys inside the annotation), so ``changed`` need not.
    """

    kind: t.Literal["KubeVirt", "HyperConverged"]
    before: ReadOnly
    after: ReadOnly
    what: str
    place: str

    @property
    def changed(self) -> bool:
        return self.before != self.after

    def __str__(self) -> str:
        return f"{title(self.before)}: {self.what} ({self.place})"


def title(item: ReadOnly) -> str:
    """``KubeVirt kubevirt/kubevirt``: how messages name an object."""
    metadata = item.get("metadata") or {}
    return f"{item.get('kind', 'object')} {metadata.get('namespace', '')}/{metadata.get('name', '')}"


def field(item: t.Any, *path: str) -> t.Any:
    """The value at ``path``, or None when any part of it is missing or null."""
    for key in path:
        item = item.get(key) if isinstance(item, dict) else None
    return item


def hco_of(kubevirt: ReadOnly, hyperconvergeds: t.Iterable[ReadOnly]) -> ReadOnly | None:
    """The HyperConverged object that owns ``kubevirt``, if one does.

    It does when it is in KubeVirt's namespace and KubeVirt has HCO's managed-by label (which HCO restores) or a
    controller reference to it (which HCO does not restore). HCO accepts no other name than ``kubevirt-hyperconverged``.
    """
    namespace = field(kubevirt, "metadata", "namespace")
    managed = field(kubevirt, "metadata", "labels", names.MANAGED_BY_LABEL) == _MANAGER
    for candidate in hyperconvergeds:
        metadata = candidate.get("metadata") or {}
        if metadata.get("name") != names.HCO_NAME or metadata.get("namespace") != namespace:
            continue
        if managed or _controls(candidate, kubevirt):
            return candidate
    return None


def _controls(hyperconverged: ReadOnly, kubevirt: ReadOnly) -> bool:
    return any(
        reference.get("controller") is True
        and reference.get("kind") == "HyperConverged"
        and reference.get("name") == field(hyperconverged, "metadata", "name")
        for reference in field(kubevirt, "metadata", "ownerReferences") or []
    )


def workload_placement(hyperconverged: ReadOnly) -> Object | None:
    """Where the user said workloads may run.

    HCO renders it as KubeVirt's ``spec.workloads.nodePlacement``, and into CDI and CNAO too.
    """
    if str(hyperconverged.get("apiVersion", "")).endswith("/v1beta1"):
        placement = field(hyperconverged, "spec", "workloads", "nodePlacement")
    else:
        placement = field(hyperconverged, "spec", "deployment", "nodePlacements", "workload")
    return placement if isinstance(placement, dict) else None


def placement_path(hyperconverged: ReadOnly) -> str:
    """The field ``workload_placement`` reads, as messages name it."""
    if str(hyperconverged.get("apiVersion", "")).endswith("/v1beta1"):
        return "spec.workloads.nodePlacement"
    return "spec.deployment.nodePlacements.workload"


def update_methods_path(hyperconverged: ReadOnly) -> str:
    """Where the user says by which methods KubeVirt updates VMs. HCO renders its own default where nothing is said."""
    if str(hyperconverged.get("apiVersion", "")).endswith("/v1beta1"):
        return "spec.workloadUpdateStrategy.workloadUpdateMethods"
    return "spec.virtualization.workloadUpdateStrategy.workloadUpdateMethods"


def operations(hyperconverged: ReadOnly) -> list[Object]:
    """Everybody's operations in the annotation, in order.

    InputErrors when the annotation is not what HCO accepts (an array of RFC 6902 operations on paths under ``/spec/``):
    HCO is stuck on it already, and writing ours in its place would lose what somebody meant.
    """
    text = field(hyperconverged, "metadata", "annotations", names.HCO_PATCH_ANNOTATION)
    if text is None:
        return []
    where = f"annotation {names.HCO_PATCH_ANNOTATION} of {title(hyperconverged)}"
    try:
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        raise InputErrors([f"The {where} is not valid JSON ({error}); correct or remove it first."]) from None
    if not isinstance(found, list):
        raise InputErrors(
            [f"The {where} must be an array of operations, not {_kind(found)}; correct or remove it first."]
        )
    problems = [
        f"Operation {index} in the {where} {problem}; correct or remove it first."
        for index, operation in enumerate(found)
        if (problem := _malformed(operation))
    ]
    if problems:
        raise InputErrors(problems)
    return found


def _kind(value: t.Any) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _malformed(operation: t.Any) -> str | None:
    if not isinstance(operation, dict):
        return f"is {_kind(operation)}, not an object"
    if operation.get("op") not in _OPERATIONS:
        return f"has op {operation.get('op')!r}, which is not one of {', '.join(_OPERATIONS)}"
    path = operation.get("path")
    if not isinstance(path, str) or not path.startswith("/spec/"):
        return f"has path {path!r}, and HCO allows only paths under /spec/"
    if operation["op"] in ("copy", "move") and not isinstance(operation.get("from"), str):
        return f"is a {operation['op']} without 'from'"
    if operation["op"] in ("add", "replace", "test") and "value" not in operation:
        return f"is {operation['op']!r} without 'value'"
    return None


def with_operations(hyperconverged: ReadOnly, wanted: t.Sequence[Object]) -> ReadOnly:
    """``hyperconverged`` with exactly these operations: itself if it has them, without annotation if there are none."""
    if list(wanted) == operations(hyperconverged):
        return hyperconverged
    after = copy.deepcopy(dict(hyperconverged))
    metadata = after.setdefault("metadata", {})
    annotations = metadata.get("annotations") or {}
    if wanted:
        annotations[names.HCO_PATCH_ANNOTATION] = canonical_json(list(wanted))
    else:
        annotations.pop(names.HCO_PATCH_ANNOTATION, None)
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    return after


def within(path: str, field_path: str) -> bool:
    """Is JSON pointer ``path`` the field at ``field_path``, or inside it?"""
    return path == field_path or path.startswith(field_path + "/")


def refuse_positions(hyperconverged: ReadOnly, list_path: str, later: t.Iterable[Object]) -> None:
    """InputErrors when one of the operations after ours counts on a position in a list that ours is to be taken out of.

    With our item gone, those behind it move up, and the operation would hit another one, or none and stop HCO.
    """
    for operation in later:
        if operation["path"].startswith(f"{list_path}/") and operation["path"][len(list_path) + 1 :][:1].isdigit():
            message = (
                f"The annotation {names.HCO_PATCH_ANNOTATION} of {title(hyperconverged)} has an operation on "
                f"{operation['path']} after this collection's own, which cannot be taken out without changing what "
                f"that position means; rewrite it without a position first."
            )
            raise InputErrors([message])


def rendered(hyperconverged: ReadOnly, base: Object, fields: t.Sequence[str], wanted: t.Sequence[Object]) -> Object:
    """What HCO makes of ``base`` (a part of its fresh render) with these operations, as far as the given fields go.

    HCO decodes the patched JSON into the object it rendered (its ``applyAnnotationPatch``): a field that an operation
    removes keeps what was rendered; only lists are replaced. Operations on other fields are skipped, and so is
    ``test``, which HCO's webhook has tried. InputErrors for operations on these fields that cannot be applied, or not
    be followed without the whole render.
    """
    patched = copy.deepcopy(base)
    for index, operation in enumerate(wanted):
        sources = [operation["from"]] if operation["op"] == "move" else []
        touched = [path for path in (operation["path"], *sources) if any(within(path, known) for known in fields)]
        if not touched or operation["op"] == "test":
            continue
        where = f"Operation {index} in the annotation {names.HCO_PATCH_ANNOTATION} of {title(hyperconverged)}"
        if operation["op"] in ("copy", "move"):
            advice = "write its value out in an 'add' instead"
            raise InputErrors([f"{where} is a {operation['op']} that touches {touched[0]}; {advice}."])
        try:
            _apply(patched, operation)
        except (LookupError, TypeError, ValueError):
            what = f"{operation['op']} {operation['path']}"
            raise InputErrors([f"{where} ({what}) cannot be applied; correct or remove it first."]) from None
    return t.cast("Object", _decoded_onto(base, patched))


def _apply(document: Object, operation: Object) -> None:
    *parents, last = [token.replace("~1", "/").replace("~0", "~") for token in operation["path"].split("/")[1:]]
    target: t.Any = document
    for token in parents:
        target = target[int(token)] if isinstance(target, list) else target[token]
    if isinstance(target, list):
        _apply_to_list(target, last, operation)
    elif operation["op"] == "add":
        target[last] = copy.deepcopy(operation["value"])
    elif operation["op"] == "replace":
        target[last]  # replace needs something to replace
        target[last] = copy.deepcopy(operation["value"])
    else:
        del target[last]


def _apply_to_list(target: list[t.Any], last: str, operation: Object) -> None:
    if operation["op"] == "add":
        position = len(target) if last == "-" else int(last)
        if not 0 <= position <= len(target):
            raise IndexError(last)
        target.insert(position, copy.deepcopy(operation["value"]))
    elif operation["op"] == "replace":
        target[int(last)] = copy.deepcopy(operation["value"])
    else:
        del target[int(last)]


def _decoded_onto(base: t.Any, patched: t.Any) -> t.Any:
    if not (isinstance(base, dict) and isinstance(patched, dict)):
        return patched
    return {**base, **{key: _decoded_onto(base.get(key), value) for key, value in patched.items()}}
