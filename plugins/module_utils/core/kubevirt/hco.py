# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Who manages the KubeVirt object, and how to change it when HCO (the HyperConverged cluster operator) does.

Without HCO we edit the KubeVirt object itself. HCO reverts such an edit within 300 ms. It allows changes only by the
annotation ``kubevirt.kubevirt.io/jsonpatch`` on its HyperConverged object: a string with an RFC 6902 array that all
users share and that HCO applies each time to a freshly rendered object. An operation that cannot be applied stops HCO
altogether, so our operations never use positions in a list.
"""

from __future__ import annotations

import copy
import difflib
import json
import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.findings import InputErrors
from ..base.objects import KubeObject, Object, canonical_json, field

_OPERATIONS = ("add", "copy", "move", "remove", "replace", "test")


@dataclass(frozen=True)
class Edit:
    """A whole object before and after a change.

    Code that builds an Edit compares by meaning (HCO reorders keys inside the annotation); ``changed`` does not.
    """

    kind: t.Literal["KubeVirt", "HyperConverged"]
    before: KubeObject
    after: KubeObject
    """``before`` itself when nothing changes."""
    what: str
    """The wanted state, whether or not the object has it already."""
    place: str
    """Where in the object that is."""

    @property
    def changed(self) -> bool:
        return self.before != self.after

    def __str__(self) -> str:
        return f"{title(self.before)}: {self.what} ({self.place})"


def title(item: KubeObject) -> str:
    """How messages name an object: ``KubeVirt kubevirt/kubevirt``."""
    metadata = item.get("metadata") or {}
    return f"{item.get('kind', 'object')} {metadata.get('namespace', '')}/{metadata.get('name', '')}"


def workload_placement(hyperconverged: KubeObject) -> Object | None:
    """The user's placement of workloads, which HCO renders as KubeVirt's ``spec.workloads.nodePlacement``.

    HCO renders it into CDI and CNAO, too.
    """
    placement = field(hyperconverged, *placement_path(hyperconverged).split("."))
    return placement if isinstance(placement, dict) else None


def placement_path(hyperconverged: KubeObject) -> str:
    """The field that ``workload_placement`` reads, for messages."""
    if str(hyperconverged.get("apiVersion", "")).endswith("/v1beta1"):
        return "spec.workloads.nodePlacement"
    return "spec.deployment.nodePlacements.workload"


def placement_place(hyperconverged: KubeObject | None) -> str:
    """Where the user says on which nodes workloads may run, for messages."""
    if hyperconverged is None:
        return "spec.workloads.nodePlacement of the KubeVirt object"
    return f"{placement_path(hyperconverged)} of {title(hyperconverged)}"


def shared_place(hyperconverged: KubeObject | None) -> str:
    """What the exclusion shares with settings of others, for messages."""
    if hyperconverged is None:
        return "spec.customizeComponents of the KubeVirt object"
    return f"the annotation {names.HCO_PATCH_ANNOTATION} of {title(hyperconverged)}"


def update_methods_path(hyperconverged: KubeObject) -> str:
    """The field with the methods by which KubeVirt updates VMs, for messages.

    HCO gives a missing list its default, and leaves an empty one as it is (seen).
    """
    if str(hyperconverged.get("apiVersion", "")).endswith("/v1beta1"):
        return "spec.workloadUpdateStrategy.workloadUpdateMethods"
    return "spec.virtualization.workloadUpdateStrategy.workloadUpdateMethods"


def operations(hyperconverged: KubeObject) -> list[Object]:
    """All operations in the annotation, ours and other people's, in order.

    :raises InputErrors: when HCO does not accept the annotation (an array of RFC 6902 operations on paths under
        ``/spec/``). HCO is already stuck then, and we must not overwrite the user's intention.
    """
    text = field(hyperconverged, "metadata", "annotations", names.HCO_PATCH_ANNOTATION)
    if text is None:
        return []
    where = f"annotation {names.HCO_PATCH_ANNOTATION} of {title(hyperconverged)}"
    try:
        value = json.loads(text)
    except (TypeError, ValueError) as error:
        raise InputErrors([f"The {where} is not valid JSON ({error}); correct or remove it first."]) from None
    if not isinstance(value, list):
        raise InputErrors(
            [f"The {where} must be an array of operations, not {_kind(value)}; correct or remove it first."]
        )
    problems = [
        f"Operation {index} in the {where} {problem}; correct or remove it first."
        for index, operation in enumerate(value)
        if (problem := _malformed(operation))
    ]
    if problems:
        raise InputErrors(problems)
    return value


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


def with_operations(hyperconverged: KubeObject, wanted: t.Sequence[Object]) -> KubeObject:
    """``hyperconverged`` with exactly these operations; the same object if it has them, no annotation for none.

    Operations that stay keep the text that their owner gave them, line breaks included: GitOps tools compare it.
    """
    current = operations(hyperconverged)
    if list(wanted) == current:
        return hyperconverged
    after = copy.deepcopy(dict(hyperconverged))
    metadata = after.setdefault("metadata", {})
    annotations = metadata.get("annotations") or {}
    text = _Text.parse(annotations.get(names.HCO_PATCH_ANNOTATION)).with_items(current, wanted)
    if text is not None:
        annotations[names.HCO_PATCH_ANNOTATION] = text
    else:
        annotations.pop(names.HCO_PATCH_ANNOTATION, None)
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    return after


_BLANKS = " \t\r\n"
_LIST_WAS_THERE = " "
"""What we write before the last bracket of a list that was empty: without it, we created the annotation ourselves."""


class _Item(t.NamedTuple):
    """An operation as it is written: the text before it (after the bracket or comma), its own, and that up to its comma."""

    lead: str
    body: str
    trail: str = ""


@dataclass(frozen=True)
class _Text:
    """An array as a user wrote it."""

    items: tuple[_Item, ...] = ()
    start: str = ""
    """What precedes the array."""
    end: str = ""
    """What follows the last item, up to its bracket. In an empty array, all that is between the brackets."""
    rest: str = ""
    """What follows the array."""
    exists: bool = True

    @classmethod
    def parse(cls, text: str | None) -> _Text:
        """
        :param text: a valid array in JSON; None where there is none.
        """
        if text is None:
            return cls(exists=False)
        opening = text.index("[")
        place = opening + 1
        items: list[_Item] = []
        while True:
            lead, place = _blanks(text, place)
            if text[place] == "]":
                return cls(tuple(items), text[:opening], lead, text[place + 1 :])
            _value, end = json.JSONDecoder().raw_decode(text, place)
            trail, after = _blanks(text, end)
            if text[after] == "]":
                return cls((*items, _Item(lead, text[place:end])), text[:opening], trail, text[after + 1 :])
            items.append(_Item(lead, text[place:end], trail))
            place = after + 1

    def with_items(self, current: t.Sequence[Object], wanted: t.Sequence[Object]) -> str | None:
        """The text with the operations ``wanted`` instead of ``current``; None for no annotation.

        With ``wanted`` and then ``current`` again it is as it was.
        """
        if not wanted and not self._was_empty:
            return None
        items: list[_Item] = []
        before, after = [canonical_json(each) for each in current], [canonical_json(each) for each in wanted]
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if tag == "equal":
                items += self.items[i1:i2]
            else:
                leads = [item.lead for item in self.items[i1:i2]]
                items += [_Item(leads[n] if n < len(leads) else "", body) for n, body in enumerate(after[j1:j2])]
        end = self.end
        if not self.items and self.exists:
            end += _LIST_WAS_THERE
        elif not items:
            end = end.removesuffix(_LIST_WAS_THERE)
        last = len(items) - 1
        body = ",".join(f"{lead}{body}{trail if n < last else ''}" for n, (lead, body, trail) in enumerate(items))
        return f"{self.start}[{body}{end}]{self.rest}"

    @property
    def _was_empty(self) -> bool:
        return bool(self.items) and self.end.endswith(_LIST_WAS_THERE)


def _blanks(text: str, place: int) -> tuple[str, int]:
    """The white space at a place, and where it ends."""
    end = place
    while text[end] in _BLANKS:
        end += 1
    return text[place:end], end


def is_within(path: str, field_path: str) -> bool:
    """Whether JSON pointer ``path`` is the field at ``field_path`` or inside it."""
    return path == field_path or path.startswith(field_path + "/")


def operation_title(hyperconverged: KubeObject, position: int, operation: Object) -> str:
    """How messages name an operation: by its place in the annotation as its user sees it, and what it does."""
    return (
        f"Operation {position} in the annotation {names.HCO_PATCH_ANNOTATION} of {title(hyperconverged)} "
        f"({operation['op']} {operation['path']})"
    )


def refuse_positions(hyperconverged: KubeObject, list_path: str, later: t.Iterable[Object]) -> None:
    """Refuse to remove our item from a list when a later operation uses a position in that list.

    Without our item, the items after it move up. The operation would then change another item, or none and stop HCO.

    :raises InputErrors: when there is such an operation.
    """
    for operation in later:
        if operation["path"].startswith(f"{list_path}/") and operation["path"][len(list_path) + 1 :][:1].isdigit():
            message = (
                f"The annotation {names.HCO_PATCH_ANNOTATION} of {title(hyperconverged)} has an operation on "
                f"{operation['path']} after this collection's own, which cannot be removed without changing the meaning of "
                f"that position; rewrite that operation without a position first."
            )
            raise InputErrors([message])


class NotApplicable(InputErrors):
    """An operation that cannot be applied. ``position``: where it is in the annotation."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__([message])
        self.position = position


Numbered: t.TypeAlias = "t.Sequence[tuple[int, Object]]"
"""Operations with their positions in the annotation."""


def numbered(wanted: t.Sequence[Object]) -> Numbered:
    return list(enumerate(wanted))


def rendered(hyperconverged: KubeObject, base: Object, fields: t.Sequence[str], wanted: Numbered) -> Object:
    """What HCO makes of ``base`` (a part of its fresh render) with these operations, limited to the given fields.

    HCO decodes the patched JSON into the object that it rendered (its ``applyAnnotationPatch``): a field that an
    operation removes keeps the rendered value. Operations on other fields are skipped, and so is ``test``, which HCO's
    webhook has tried.

    :raises InputErrors: for operations on these fields that can be applied only with the whole render.
    :raises NotApplicable: for the first one that cannot be applied.
    """
    patched = copy.deepcopy(base)
    for position, operation in wanted:
        sources = [operation["from"]] if operation["op"] == "move" else []
        touched = [path for path in (operation["path"], *sources) if any(is_within(path, known) for known in fields)]
        if not touched or operation["op"] == "test":
            continue
        where = operation_title(hyperconverged, position, operation)
        if operation["op"] in ("copy", "move"):
            message = f"{where} touches {touched[0]}; write its value out in an 'add' instead."
            raise InputErrors([message])
        try:
            _apply(patched, operation)
        except (LookupError, TypeError, ValueError):
            raise NotApplicable(position, f"{where} cannot be applied; correct or remove it first.") from None
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
    """``patched`` as Go decodes it into the struct ``base``: also an item of a list keeps the fields that it is not given."""
    if isinstance(base, dict) and isinstance(patched, dict):
        return {**base, **{key: _decoded_onto(base.get(key), value) for key, value in patched.items()}}
    if isinstance(base, list) and isinstance(patched, list):
        return [_decoded_onto(base[i] if i < len(base) else None, item) for i, item in enumerate(patched)]
    return patched
