# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Settings of others that defeat the exclusion, or that the exclusion would break.

These are patches of the primary in ``spec.customizeComponents``, and the user's nodePlacement.
"""

from __future__ import annotations

import json
import typing as t

from ..base import findings, names
from ..base.affinity import required_terms
from ..base.findings import Finding
from ..base.objects import KubeObject, Object, field
from . import exclusion, hco

_TEMPLATE = ("spec", "template", "spec")
_TO_TERMS = (*_TEMPLATE, "affinity", "nodeAffinity", names.REQUIRED_AFFINITY)
_TO_SELECTOR = (*_TEMPLATE, "nodeSelector")


def conflicts(kubevirt: KubeObject, hyperconverged: KubeObject | None = None) -> list[Finding]:
    """Findings on settings of others that defeat the exclusion of the primary, or that the exclusion would break."""
    conflicting: list[Finding] = []
    for index, patch in exclusion.patches_of_others(kubevirt):
        if targets_primary(patch):
            where = f"{hco.title(kubevirt)}: spec.customizeComponents.patches[{index}]"
            if hyperconverged is not None:
                where = f"{where}, which comes from {hco.shared_place(hyperconverged)},"
            conflicting.extend(_patch_findings(where, patch, hco.placement_place(hyperconverged)))
    conflicting.extend(_placement_findings(kubevirt, hyperconverged))
    return conflicting


def targets_primary(patch: Object) -> bool:
    """Whether KubeVirt applies a patch to the primary: it ignores case, and ``*`` matches any resource."""
    wanted = (("resourceType", "daemonset"), ("resourceName", names.HANDLER))
    return all(str(patch.get(key, "")).lower() in (value, "*") for key, value in wanted)


def _patch_findings(where: str, patch: Object, placement: str) -> t.Iterator[Finding]:
    effect = _effect(patch)
    if effect is None:
        yield findings.error(
            "patch_unreadable",
            f"{where} is not a {patch.get('type')!r} patch that KubeVirt could apply (types: json, merge, strategic; the "
            f"body is JSON text); correct or remove it.",
        )
        return
    if effect.affinity:
        yield findings.error(
            "patch_on_primary_affinity",
            f"{where} changes the required node affinity of {names.HANDLER}, where this collection keeps it off pool "
            f"nodes, and only one patch can win; move its terms to {placement} and remove the patch.",
        )
    if effect.selector == "defeats":
        yield findings.error(
            "patch_on_primary_node_selector",
            f"{where} sets {names.OWNER_LABEL} in the nodeSelector of {names.HANDLER}, or replaces or removes the "
            f"whole nodeSelector; move the other labels to {placement} and remove the patch.",
        )
    elif effect.selector == "extends":
        yield findings.note(
            "primary_node_selector_patched",
            f"{where} adds to the nodeSelector of {names.HANDLER}; the handlers of pools are derived from it and "
            f"inherit that.",
        )


_SelectorEffect = t.Literal["none", "extends", "defeats"]


class _Effect(t.NamedTuple):
    """What a patch does to the primary's scheduling: whether it changes the affinity, and how the nodeSelector."""

    affinity: bool
    selector: _SelectorEffect


def _effect(patch: Object) -> _Effect | None:
    """The effect of a patch; None when KubeVirt cannot apply it."""
    try:
        body = json.loads(patch["patch"])
    except (KeyError, TypeError, ValueError):
        return None
    if patch.get("type") in ("strategic", "merge") and isinstance(body, dict):
        return _Effect(_value_at(body, _TO_TERMS) is not _UNTOUCHED, _merge_patch_effect(body))
    if patch.get("type") == "json" and isinstance(body, list) and all(map(_is_json_operation, body)):
        return _Effect(any(map(_touches_affinity, body)), _json_patch_effect(body))
    return None


_UNTOUCHED: t.Final = object()


def _value_at(body: t.Any, path: t.Sequence[str]) -> t.Any:
    """What a merge patch puts at ``path``: None when it replaces or removes a parent, _UNTOUCHED for no change."""
    for key in path:
        if not isinstance(body, dict) or "$retainKeys" in body or body.get("$patch", "merge") != "merge":
            return None
        if key not in body:
            return _UNTOUCHED
        body = body[key]
    return body


def _merge_patch_effect(body: Object) -> _SelectorEffect:
    selector = _value_at(body, _TO_SELECTOR)
    if selector is _UNTOUCHED:
        return "none"
    if not isinstance(selector, dict) or names.OWNER_LABEL in selector or {"$patch", "$retainKeys"} & selector.keys():
        return "defeats"
    return "extends" if selector else "none"


def _is_json_operation(operation: t.Any) -> bool:
    return (
        isinstance(operation, dict) and isinstance(operation.get("op"), str) and isinstance(operation.get("path"), str)
    )


def _written_paths(operation: Object) -> list[tuple[str, ...]]:
    """The paths that a JSON patch operation writes or, with ``test``, relies on."""
    paths = [operation["path"]]
    if operation["op"] == "move":
        paths.append(str(operation.get("from", "")))
    return [tuple(token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]) for path in paths]


def _is_prefix(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    return inner[: len(outer)] == outer


def _touches_affinity(operation: Object) -> bool:
    affinity = (*_TEMPLATE, "affinity")
    return any(_is_prefix(path, affinity) or _is_prefix(affinity, path) for path in _written_paths(operation))


def _json_patch_effect(operations: t.Sequence[Object]) -> _SelectorEffect:
    effects = {_selector_effect(operation, path) for operation in operations for path in _written_paths(operation)}
    return "defeats" if "defeats" in effects else "extends" if "extends" in effects else "none"


def _selector_effect(operation: Object, path: tuple[str, ...]) -> _SelectorEffect:
    if _is_prefix(path, _TO_SELECTOR):
        # KubeVirt adds its own nodeSelector after the patches, so a JSON patch must "add" a whole one to make any.
        value = operation.get("value")
        makes_one = (
            path == _TO_SELECTOR
            and operation["op"] == "add"
            and isinstance(value, dict)
            and names.OWNER_LABEL not in value
        )
        return "none" if operation["op"] == "test" else "extends" if makes_one else "defeats"
    if not _is_prefix(_TO_SELECTOR, path):
        return "none"
    return "defeats" if names.OWNER_LABEL in path else "extends"


def _placement_findings(kubevirt: KubeObject, hyperconverged: KubeObject | None) -> t.Iterator[Finding]:
    """An error when the user's placement uses the owner label; our own requirement there is ignored."""
    placement = field(kubevirt, "spec", "workloads", "nodePlacement") or {}
    placements = [
        (f"{hco.title(kubevirt)}: spec.workloads.nodePlacement", exclusion.without_exclusion_terms(placement))
    ]
    if hyperconverged is not None:
        source = hco.workload_placement(hyperconverged) or {}
        placements.insert(0, (f"{hco.title(hyperconverged)}: {hco.placement_path(hyperconverged)}", source))
    for where, by_hand in placements:
        if _mentions_owner_label(by_hand):
            yield findings.error(
                "placement_uses_owner_label",
                f"{where} uses the label {names.OWNER_LABEL}; remove it there, this collection keeps the primary off "
                f"pool nodes by itself.",
            )
            return


def _mentions_owner_label(placement: Object) -> bool:
    if names.OWNER_LABEL in (placement.get("nodeSelector") or {}):
        return True
    preferred = field(placement, "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution") or []
    terms = [
        *(required_terms(placement.get("affinity")) or ()),
        *(field(item, "preference") or {} for item in preferred),
    ]
    return any(
        expression.get("key") == names.OWNER_LABEL
        for term in terms
        for expression in term.get("matchExpressions") or []
    )
