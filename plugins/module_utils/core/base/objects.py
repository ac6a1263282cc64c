# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Kubernetes objects as plain values: comparing them, showing what differs, and digests.

No function modifies its arguments. Results share no mutable part with them unless the function documents it.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import re
import typing as t
from dataclasses import dataclass

from . import names

KubeObject = t.Mapping[str, t.Any]
"""A Kubernetes object, or a part of one, as the API serves it; read only."""
Object = dict[str, t.Any]
"""The same as a dict, for code that makes or changes an object."""

SERVER_METADATA = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
"""Fields of ``metadata`` that the server sets. An object without them can be written whatever the live object is."""
_SERVER_ANNOTATIONS = (
    "deprecated.daemonset.template.generation",
    "kubectl.kubernetes.io/last-applied-configuration",
)
_SECRET_FIELDS = ("data", "stringData")
_HIDDEN = "***"
_CONTEXT = 20
"""Characters shown before the place where two long texts begin to differ."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][-A-Za-z0-9_]*")


class _Absent:
    """The type of ABSENT: a missing value, which differs from null."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: t.Final = _Absent()


@dataclass(frozen=True)
class Difference:
    """One place where ``desired`` and ``live`` differ; a side without a value is ABSENT.

    ``path`` reads like ``spec.template.spec.containers[virt-handler].image``. Items of a list are named when all have a
    name, else numbered; keys with other characters than letters, digits, ``-`` and ``_`` stand in brackets. When only
    the order of named items differs, both sides are lists of names.
    """

    path: str
    desired: t.Any
    live: t.Any

    def __str__(self) -> str:
        if self.live is ABSENT:
            return f"{self.path} is missing, it should be {_short(self.desired)}"
        if self.desired is ABSENT:
            return f"{self.path} should not exist, it is {_short(self.live)}"
        live, desired = _short_pair(self.live, self.desired)
        return f"{self.path} is {live}, it should be {desired}"

    @property
    def change(self) -> str:
        """What an update changes here."""
        live, desired = _short_pair(self.live, self.desired)
        return f"{self.path}: {live} -> {desired}"


class Change(t.NamedTuple):
    """An object before and after a write; None: it does not exist."""

    before: KubeObject | None
    after: KubeObject | None

    @property
    def changed(self) -> bool:
        """Whether anything but the server's own fields differs."""
        shown = diff(t.cast("Object | None", self.before), t.cast("Object | None", self.after))
        return bool(shown["before"] or shown["after"])

    @property
    def present(self) -> KubeObject:
        """The object after the write, or the one that was deleted."""
        return self.after or self.before or {}

    def __str__(self) -> str:
        return change_line(self.present, "create" if self.before is None else "update" if self.after else "delete")


def change_line(obj: KubeObject, action: str) -> str:
    """``Kind namespace/name: action``, as plans and results name a change."""
    namespace = obj["metadata"].get("namespace")
    return f"{obj['kind']} {f'{namespace}/' if namespace else ''}{obj['metadata']['name']}: {action}"


def field(item: t.Any, *path: str) -> t.Any:
    """The value at ``path``, or None when any part of it is missing or null."""
    for key in path:
        item = item.get(key) if isinstance(item, dict) else None
    return item


def condition(obj: t.Any, kind: str) -> Object:
    """The condition of this type in the status of an object; empty when there is none."""
    for each in field(obj, "status", "conditions") or ():
        if each.get("type") == kind:
            return t.cast(Object, each)
    return {}


def flat(documents: t.Iterable[t.Any]) -> t.Iterator[t.Any]:
    """The documents, where the items of each ``List`` replace the list. Those of a ``PodList`` need no kind of their own."""
    for document in documents:
        kind = str(document.get("kind", "")) if isinstance(document, t.Mapping) else ""
        items = document.get("items") if kind.endswith("List") else None
        if not isinstance(items, (list, tuple)):
            yield document
        elif kind == "List":
            yield from flat(items)
        else:
            of_list = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
            yield from flat({**of_list, **item} if isinstance(item, dict) else item for item in items)


def named(documents: t.Iterable[t.Any]) -> t.Iterator[Object]:
    """The objects with a name in these documents and in their ``List`` objects."""
    return (
        obj
        for obj in flat(documents)
        if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict) and obj["metadata"].get("name")
    )


def is_managed(obj: KubeObject) -> bool:
    """Whether an object has our ``app.kubernetes.io/managed-by`` label, so that we may write and delete it."""
    return bool(field(obj, "metadata", "labels", names.MANAGED_BY_LABEL) == names.MANAGED_BY)


def foreign_message(title: str) -> str:
    """The message for an object that has a name of ours but not our label, which we must not touch."""
    return (
        f"{title} exists but is not ours (it lacks the label {names.OURS}); delete or rename it or, if another client has "
        "taken the label away, restore it, then run again."
    )


def canonical_json(value: t.Any) -> str:
    """``value`` as JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: t.Any) -> str:
    """SHA-256 of the canonical JSON of ``value``, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def short_digest(value: t.Any) -> str:
    """The first twelve digits of ``digest``: enough to tell two values apart, and short enough for people to compare."""
    return digest(value)[:12]


def diff(before: Object | None, after: Object | None) -> dict[str, Object]:
    """The differences of two objects as ``{"before": …, "after": …}`` for Ansible's diff mode.

    ``None`` stands for an object that does not exist; its side is ``{}``. Both sides are ``{}`` when nothing differs.
    A side keeps kind, name, namespace and the path to what differs. Of lists of named items (containers, env) it keeps
    the items that differ, of other lists of mappings (tolerations) the items that the other side does not have.
    Status and metadata that the server sets are left out; values of Secrets are hidden.
    """
    old = _without_server_fields(before) if before is not None else {}
    new = _without_server_fields(after) if after is not None else {}
    if old == new:
        return {"before": {}, "after": {}}
    if before is not None and after is not None:
        identities = _identity(old), _identity(new)
        old, new = _differing(old, new)
        old, new = _merged(identities[0], old), _merged(identities[1], new)
    return {
        "before": _hide_secrets(old, f"{_HIDDEN} (before)", kind=_kind(before, after)),
        "after": _hide_secrets(new, f"{_HIDDEN} (after)", kind=_kind(before, after)),
    }


def differences(desired: t.Any, live: t.Any, path: str = "") -> tuple[Difference, ...]:
    """Every place where ``live`` is not exactly ``desired``, in order of path.

    Nothing is ignored: a default that the server adds is a difference, and so is null instead of absent. So compare
    only the parts that you own. ``path`` is the path of the two values inside their object.
    """
    return tuple(_differences(desired, live, path))


def contains(live: t.Any, desired: t.Any) -> bool:
    """Whether ``live`` has everything that ``desired`` has, and perhaps more, such as the server's defaults.

    Each item of a list in ``desired`` must be contained in some item of the list in ``live``.
    """
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(k in live and contains(live[k], v) for k, v in desired.items())
    if isinstance(desired, list):
        return isinstance(live, list) and all(any(contains(each, item) for each in live) for item in desired)
    return bool(live == desired)


def metadata_patch(
    obj: Object,
    labels: t.Mapping[str, str | None] | None = None,
    annotations: t.Mapping[str, str | None] | None = None,
) -> list[Object]:
    """A JSON patch (RFC 6902) that gives ``obj`` these labels and annotations; None removes one.

    The patch first tests that each of these keys is as in ``obj``. So the API server refuses the patch when another client
    has changed one of them since, and ignores other changes. A key that has its value already is only tested.
    """
    tests: list[Object] = []
    changes: list[Object] = []
    for field, wanted in (("labels", labels or {}), ("annotations", annotations or {})):
        _add_field_patch(tests, changes, f"/metadata/{field}", obj["metadata"].get(field), wanted)
    return tests + changes


def _add_field_patch(
    tests: list[Object],
    changes: list[Object],
    path: str,
    live: t.Mapping[str, str] | None,
    wanted: t.Mapping[str, str | None],
) -> None:
    new = {key: value for key, value in wanted.items() if value is not None}
    if not live:
        # No JSON pointer leads into an absent mapping, not even for a test. The API serves empty ones as absent.
        if wanted:
            tests.append({"op": "test", "path": path, "value": None})
        if new:
            changes.append({"op": "add", "path": path, "value": new})
        return
    for key, value in wanted.items():
        pointer = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        tests.append({"op": "test", "path": pointer, "value": live.get(key)})  # null: it must be absent
        if key in new and live.get(key) != value:
            changes.append({"op": "add", "path": pointer, "value": value})
        elif value is None and key in live:
            changes.append({"op": "remove", "path": pointer})


# Server-set fields, Secrets ---------------------------------------------------------------------------------------


def _without_server_fields(obj: Object) -> Object:
    cleaned = {key: copy.deepcopy(value) for key, value in obj.items() if key != "status"}
    metadata = cleaned.get("metadata")
    if not isinstance(metadata, dict):
        return cleaned
    for key in SERVER_METADATA:
        metadata.pop(key, None)
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        for key in _SERVER_ANNOTATIONS:
            annotations.pop(key, None)
        if not annotations:
            del metadata["annotations"]
    return cleaned


def _kind(*sides: Object | None) -> t.Any:
    return next((side.get("kind") for side in sides if side is not None), None)


def _hide_secrets(obj: Object, replacement: str, kind: t.Any = None) -> Object:
    if (kind or obj.get("kind")) != "Secret":
        return obj
    hidden = dict(obj)
    for field in _SECRET_FIELDS:
        if isinstance(obj.get(field), dict):
            hidden[field] = dict.fromkeys(obj[field], replacement)
    return hidden


def _identity(obj: Object) -> Object:
    """What identifies an object: kind, name and namespace."""
    identity: Object = {"kind": obj["kind"]} if "kind" in obj else {}
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        named = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
        if named:
            identity["metadata"] = named
    return identity


def _merged(identity: Object, rest: Object) -> Object:
    merged = {**identity, **rest}
    if "metadata" in identity and "metadata" in rest:
        merged["metadata"] = {**identity["metadata"], **rest["metadata"]}
    return merged


# The readable diff: prune both sides to what differs --------------------------------------------------------------


def _differing(old: t.Any, new: t.Any) -> tuple[t.Any, t.Any]:
    """Two different values, reduced to what differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        return _differing_mappings(old, new)
    if isinstance(old, list) and isinstance(new, list):
        by_name_old, by_name_new = _by_name(old), _by_name(new)
        if by_name_old is not None and by_name_new is not None:
            return _differing_named(by_name_old, by_name_new)
        if all(isinstance(item, dict) for item in [*old, *new]):
            return _differing_items(old, new)
    return old, new


def _differing_mappings(old: Object, new: Object) -> tuple[Object, Object]:
    left: Object = {}
    right: Object = {}
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in new:
            left[key] = old[key]
        elif key not in old:
            right[key] = new[key]
        elif old[key] != new[key]:
            left[key], right[key] = _differing(old[key], new[key])
    return left, right


def _differing_named(old: dict[str, Object], new: dict[str, Object]) -> tuple[t.Any, t.Any]:
    left = []
    right = []
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            left.append(old[name])
        elif name not in old:
            right.append(new[name])
        elif old[name] != new[name]:
            item_left, item_right = _differing(old[name], new[name])
            left.append({"name": name, **item_left})
            right.append({"name": name, **item_right})
    if not left and not right:  # the same items in another order
        return [{"name": name} for name in old], [{"name": name} for name in new]
    return left, right


def _differing_items(old: list[t.Any], new: list[t.Any]) -> tuple[list[t.Any], list[t.Any]]:
    left, right = _minus(old, new), _minus(new, old)
    if not left and not right:  # the same items in another order
        return old, new
    return left, right


def _minus(items: list[t.Any], others: list[t.Any]) -> list[t.Any]:
    """``items`` without those of ``others``; each item of ``others`` removes one equal item."""
    rest = list(others)
    result = []
    for item in items:
        if item in rest:
            rest.remove(item)
        else:
            result.append(item)
    return result


def _by_name(items: list[t.Any]) -> dict[str, Object] | None:
    """The items by their ``name``; None when an item has no name or two have the same."""
    named = {}
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or name in named:
            return None
        named[name] = item
    return named


# The exact comparison: every place that differs ---------------------------------------------------------------------


def _differences(desired: t.Any, live: t.Any, path: str) -> t.Iterator[Difference]:
    if isinstance(desired, dict) and isinstance(live, dict):
        for key in sorted(desired.keys() | live.keys()):
            yield from _differences(desired.get(key, ABSENT), live.get(key, ABSENT), _under(path, key))
    elif isinstance(desired, list) and isinstance(live, list):
        yield from _list_differences(desired, live, path)
    elif desired is ABSENT or live is ABSENT or type(desired) is not type(live) or desired != live:
        yield Difference(path, desired, live)


def _list_differences(desired: list[t.Any], live: list[t.Any], path: str) -> t.Iterator[Difference]:
    desired_named, live_named = _by_name(desired), _by_name(live)
    if desired_named is None or live_named is None:
        for index in range(max(len(desired), len(live))):
            yield from _differences(_item(desired, index), _item(live, index), f"{path}[{index}]")
        return
    for name in sorted(desired_named.keys() | live_named.keys()):
        yield from _differences(desired_named.get(name, ABSENT), live_named.get(name, ABSENT), f"{path}[{name}]")
    if desired_named.keys() == live_named.keys() and list(desired_named) != list(live_named):
        yield Difference(path, list(desired_named), list(live_named))


def _item(items: list[t.Any], index: int) -> t.Any:
    return items[index] if index < len(items) else ABSENT


def _under(path: str, key: str) -> str:
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _short(value: t.Any, most: int = 120) -> str:
    text = canonical_json(value)
    return text if len(text) <= most else f"{text[:most]}…"


def _short_pair(one: t.Any, other: t.Any, most: int = 120) -> tuple[str, str]:
    """Two values that differ. Of long ones it is the part where they differ."""
    texts = [repr(value) if value is ABSENT else canonical_json(value) for value in (one, other)]
    alike = sum(1 for _same in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    start = max(0, alike - _CONTEXT) if max(map(len, texts)) > most else 0
    shown = [
        f"{'…' if start else ''}{text[start : start + most]}{'…' if len(text) > start + most else ''}" for text in texts
    ]
    return shown[0], shown[1]
