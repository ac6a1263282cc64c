# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The exclusion keeps the primary virt-handler off pool nodes: one required node-affinity requirement, always the same.

It is a patch in ``spec.customizeComponents``, or part of each required term of ``spec.workloads.nodePlacement``.
docs/design/constant-exclusion.md says why.
"""

from __future__ import annotations

import copy
import json
import typing as t

from ..base import findings, names
from ..base.affinity import required_terms, with_required_terms, with_requirements, without_required_terms
from ..base.findings import Finding, InputErrors
from ..base.objects import KubeObject, Object, canonical_json, field
from . import hco
from .hco import Edit

REQUIREMENT: t.Final[Object] = {"key": names.OWNER_LABEL, "operator": "DoesNotExist"}

_PATCHES = "/spec/customizeComponents/patches"
_WORKLOADS = "/spec/workloads"
_FIELDS = ("/spec/customizeComponents", _WORKLOADS)

_TERM: t.Final[Object] = {"matchExpressions": [REQUIREMENT]}
_PATCH: t.Final[Object] = {"spec": {"template": {"spec": {"affinity": with_required_terms(None, [_TERM])}}}}
PATCH: t.Final[Object] = {
    "patch": canonical_json(_PATCH),
    "resourceName": names.HANDLER,
    "resourceType": "DaemonSet",
    "type": "strategic",
}
"""Our entry in ``spec.customizeComponents.patches``. KubeVirt applies it to the same object in every sync."""


def _without(mapping: Object, key: str) -> Object:
    return {other: value for other, value in mapping.items() if other != key}


# Node-affinity terms ----------------------------------------------------------------------------------------------


def _is_requirement(expression: Object) -> bool:
    return {key: value for key, value in expression.items() if value} == REQUIREMENT


def _terms(affinity: t.Any) -> list[Object]:
    return required_terms(affinity) or []


def _has_requirement(term: Object) -> bool:
    return any(_is_requirement(expression) for expression in term.get("matchExpressions") or [])


def _matches_nothing(term: Object) -> bool:
    """Whether a term is empty: then it matches no node, but with a requirement added it would match some."""
    return not any(term.values())


def _all_have_requirement(affinity: t.Any) -> bool:
    terms = _terms(affinity)
    return bool(terms) and all(_has_requirement(term) or _matches_nothing(term) for term in terms)


def _with_requirement(term: Object) -> Object:
    if _has_requirement(term) or _matches_nothing(term):
        return term
    return with_requirements(term, [dict(REQUIREMENT)])


def _term_without_requirement(term: Object) -> Object:
    """``term`` without the requirement; empty when it had nothing else."""
    if not _has_requirement(term):
        return term
    rest = [expression for expression in term["matchExpressions"] if not _is_requirement(expression)]
    return {**term, "matchExpressions": rest} if rest else _without(term, "matchExpressions")


def _with_terms(affinity: Object, terms: list[Object]) -> Object | None:
    """``affinity`` with these required terms; None when nothing is left of it."""
    return (with_required_terms(affinity, terms) if terms else without_required_terms(affinity)) or None


def _without_requirement(owner: Object) -> Object:
    """``owner`` (a pod spec or a nodePlacement) without the requirement and without fields that held nothing else."""
    affinity = owner.get("affinity")
    if not any(_has_requirement(term) for term in _terms(affinity)):
        return owner
    kept = [
        _term_without_requirement(term)
        for term in _terms(affinity)
        if not (_has_requirement(term) and _matches_nothing(_term_without_requirement(term)))
    ]
    left = _with_terms(t.cast("Object", affinity), kept)
    return {**owner, "affinity": left} if left else _without(owner, "affinity")


def without_exclusion_terms(pod_spec: KubeObject) -> Object:
    """``pod_spec`` of the primary without our requirement: the base of a pool's DaemonSet.

    A term that held nothing else came from our patch and is dropped. Terms of the user's nodePlacement stay.
    """
    return copy.deepcopy(_without_requirement(dict(pod_spec)))


def has_exclusion(daemonset: KubeObject) -> bool:
    """Whether this live DaemonSet certainly keeps off every node with an owner label."""
    return _all_have_requirement(field(daemonset, "spec", "template", "spec", "affinity"))


# The two places in a KubeVirt spec --------------------------------------------------------------------------------


def _placement_affinity(spec: Object) -> t.Any:
    return field(spec, "workloads", "nodePlacement", "affinity")


def _patches(spec: Object) -> list[Object]:
    return field(spec, "customizeComponents", "patches") or []


def _is_ours(patch: t.Any) -> bool:
    """Whether a patch is ours, also when somebody stored its text with other spaces or another order of keys."""
    if not isinstance(patch, dict) or {**patch, "patch": PATCH["patch"]} != PATCH:
        return False
    try:
        body: object = json.loads(patch["patch"])
    except (KeyError, TypeError, ValueError):
        return False
    return body == _PATCH


def _with_patches(spec: Object, patches: list[Object]) -> Object:
    if patches == _patches(spec):
        return spec
    customize = _without(spec.get("customizeComponents") or {}, "patches")
    return {**spec, "customizeComponents": {**customize, "patches": patches} if patches else customize}


def _with_placement(spec: Object, placement: Object) -> Object:
    return {**spec, "workloads": {**spec["workloads"], "nodePlacement": placement}}


def _spec_with_exclusion(spec: Object) -> Object:
    """``spec`` with the exclusion in its one right place."""
    others = [patch for patch in _patches(spec) if not _is_ours(patch)]
    affinity = _placement_affinity(spec)
    if not _terms(affinity):
        once = len(_patches(spec)) - len(others) == 1
        return spec if once else _with_patches(spec, [*others, dict(PATCH)])
    wanted = _with_terms(affinity, [_with_requirement(term) for term in _terms(affinity)])
    return _with_placement(_with_patches(spec, others), {**spec["workloads"]["nodePlacement"], "affinity": wanted})


def _spec_without_exclusion(spec: Object) -> Object:
    """``spec`` without the exclusion, wherever it is."""
    spec = _with_patches(spec, [patch for patch in _patches(spec) if not _is_ours(patch)])
    placement = field(spec, "workloads", "nodePlacement")
    if not placement or _without_requirement(placement) is placement:
        return spec
    return _with_placement(spec, _without_requirement(placement))


def exclusion_requested(kubevirt: KubeObject) -> bool:
    """Whether a KubeVirt object asks for the exclusion in the right place; ``has_exclusion``: the primary has it."""
    spec = _spec(kubevirt)
    affinity = _placement_affinity(spec)
    if _terms(affinity):
        return _all_have_requirement(affinity)
    return any(map(_is_ours, _patches(spec)))


# Edits ------------------------------------------------------------------------------------------------------------


def with_exclusion(kubevirt: KubeObject, hyperconverged: KubeObject | None) -> Edit:
    """The edit that makes the primary keep off pool nodes: of HyperConverged if there is one, else of KubeVirt.

    :raises InputErrors: when our operations cannot be merged into HyperConverged's annotation.
    """
    what = f"keep the primary {names.HANDLER} off nodes with the label {names.OWNER_LABEL}"
    if hyperconverged is not None:
        return _hco_edit(hyperconverged, what, _operations_with_exclusion(hyperconverged))
    return _kubevirt_edit(kubevirt, what, _spec_with_exclusion(_spec(kubevirt)))


def without_exclusion(kubevirt: KubeObject, hyperconverged: KubeObject | None) -> Edit:
    """The edit that lets the primary run everywhere again; it restores the state before ``with_exclusion``.

    It makes no difference between states that mean the same to KubeVirt: an empty list of patches and none; an empty
    annotation and none; and, directly before our operation, somebody's operation that makes an empty list and our own.
    """
    what = f"let the primary {names.HANDLER} run on every node again"
    if hyperconverged is not None:
        return _hco_edit(hyperconverged, what, _operations_without_exclusion(hyperconverged))
    return _kubevirt_edit(kubevirt, what, _spec_without_exclusion(_spec(kubevirt)))


def primary_after(primary: KubeObject, edit: Edit) -> KubeObject:
    """The primary once KubeVirt has followed an edit by ``with_exclusion``.

    HCO renders required terms that the user has changed only with that edit. KubeVirt itself follows its user at once.
    """
    if edit.kind == "KubeVirt":
        return primary
    workloads = _rendered(edit.after, hco.operations(edit.after))["workloads"]
    wanted = _without_empty(_terms(field(workloads, "nodePlacement", "affinity")))
    if wanted == _terms(field(primary, "spec", "template", "spec", "affinity")):
        return primary
    after = copy.deepcopy(dict(primary))
    pod_spec = after["spec"]["template"]["spec"]
    pod_spec["affinity"] = with_required_terms(pod_spec.get("affinity"), wanted)
    return after


def _spec(kubevirt: KubeObject) -> Object:
    return kubevirt.get("spec") or {}


def _kubevirt_edit(kubevirt: KubeObject, what: str, spec: Object) -> Edit:
    after = kubevirt if spec == _spec(kubevirt) else copy.deepcopy({**kubevirt, "spec": spec})
    has_terms = _terms(_placement_affinity(_spec(kubevirt)))
    place = "spec.workloads.nodePlacement" if has_terms else "spec.customizeComponents.patches"
    return Edit(kind="KubeVirt", before=kubevirt, after=after, what=what, place=place)


def _hco_edit(hyperconverged: KubeObject, what: str, operations: list[Object]) -> Edit:
    after = hco.with_operations(hyperconverged, operations)
    place = f"annotation {names.HCO_PATCH_ANNOTATION}, spec.workloads.nodePlacement of KubeVirt"
    return Edit(kind="HyperConverged", before=hyperconverged, after=after, what=what, place=place)


# The operation in HyperConverged's annotation ---------------------------------------------------------------------


def _is_our_operation(operation: Object) -> bool:
    if operation["op"] != "add" or operation["path"] != _WORKLOADS:
        return False
    affinity = field(operation["value"], "nodePlacement", "affinity")
    return _all_have_requirement(affinity) and any(map(_has_requirement, _terms(affinity)))


def _rendered(hyperconverged: KubeObject, operations: t.Sequence[Object]) -> Object:
    """What the exclusion depends on in the KubeVirt spec that HCO renders with these operations.

    HCO itself renders ``customizeComponents`` empty, and ``workloads`` only from the user's placement.
    """
    base: Object = {"spec": {"customizeComponents": {}}}
    placement = hco.workload_placement(hyperconverged)
    if placement is not None:
        base["spec"]["workloads"] = {"nodePlacement": placement}
    spec = hco.rendered(hyperconverged, base, _FIELDS, operations)["spec"]
    return {"customizeComponents": spec.get("customizeComponents"), "workloads": spec.get("workloads")}


def _operations_with_exclusion(hyperconverged: KubeObject) -> list[Object]:
    current = hco.operations(hyperconverged)
    others = [operation for operation in current if not _is_our_operation(operation)]
    theirs = _rendered(hyperconverged, others)
    given = _terms(_placement_affinity(theirs))
    if given and any(map(_is_ours, _patches(theirs))):  # KubeVirt would OR them to our requirement
        raise InputErrors([_embedded_message(hyperconverged)])
    terms = [_with_requirement(term) for term in given] or [_TERM]
    if not any(map(_has_requirement, terms)):
        return others  # terms that match no node
    ours, wanted = _operation({}, terms), _operation(theirs["workloads"] or {}, terms)
    if not _renders(hyperconverged, [*others, ours], wanted):
        ours = wanted  # one of theirs is on spec.workloads, too
    if [*filter(_is_our_operation, current)] == [ours] and _renders(hyperconverged, current, wanted):
        return current
    return [*others, ours]


def _operation(workloads: Object, terms: list[Object]) -> Object:
    """The operation that puts these required terms into ``workloads``."""
    value = copy.deepcopy(workloads)
    placement = value.get("nodePlacement") or {}
    affinity = with_required_terms(placement.get("affinity"), [_written_out(term) for term in terms])
    value["nodePlacement"] = {**placement, "affinity": affinity}
    return {"op": "add", "path": _WORKLOADS, "value": value}


def _written_out(term: Object) -> Object:
    """``term`` with all its fields, also the empty ones.

    Go decodes an item of a list into the item that is at its position already. A field that ours left out would keep what
    the user's placement has there: a DoesNotExist with values, which no API server accepts.
    """
    return {
        place: [{"values": [], **requirement} for requirement in term.get(place) or ()]
        for place in ("matchExpressions", "matchFields")
    }


def _renders(hyperconverged: KubeObject, operations: t.Sequence[Object], wanted: Object) -> bool:
    """Whether HCO renders ``spec.workloads`` with these operations as the operation ``wanted`` has it."""
    rendered = _rendered(hyperconverged, operations)["workloads"]
    return bool(_without_empty(rendered) == _without_empty(wanted["value"]))


def _without_empty(value: t.Any) -> t.Any:
    """``value`` without empty fields, which Go does not write (``omitempty``)."""
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if isinstance(value, dict):
        plain = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in plain.items() if item not in (None, [], {})}
    return value


def _operations_without_exclusion(hyperconverged: KubeObject) -> list[Object]:
    others = [operation for operation in hco.operations(hyperconverged) if not _is_our_operation(operation)]
    theirs = _rendered(hyperconverged, others)
    if theirs != _spec_without_exclusion(theirs):
        raise InputErrors([_embedded_message(hyperconverged)])
    return others


def _embedded_message(hyperconverged: KubeObject) -> str:
    return (
        f"The requirement {names.OWNER_LABEL} DoesNotExist is part of a setting of {hco.title(hyperconverged)} that is "
        f"not ours, either {hco.placement_path(hyperconverged)} or a larger value in the annotation "
        f"{names.HCO_PATCH_ANNOTATION}; remove it there, this collection adds and removes its own."
    )


# Conflicts with what others patch ---------------------------------------------------------------------------------

_TEMPLATE = ("spec", "template", "spec")
_TO_TERMS = (*_TEMPLATE, "affinity", "nodeAffinity", names.REQUIRED_AFFINITY)
_TO_SELECTOR = (*_TEMPLATE, "nodeSelector")


def conflicts(kubevirt: KubeObject, hyperconverged: KubeObject | None = None) -> list[Finding]:
    """Findings on settings of others that defeat the exclusion of the primary, or that the exclusion would break."""
    conflicting: list[Finding] = []
    for index, patch in enumerate(_patches(_spec(kubevirt))):
        if not _is_ours(patch) and _targets_primary(patch):
            where = f"{hco.title(kubevirt)}: spec.customizeComponents.patches[{index}]"
            conflicting.extend(_patch_findings(where, patch, _placement_place(hyperconverged)))
    conflicting.extend(_placement_findings(kubevirt, hyperconverged))
    return conflicting


def _placement_place(hyperconverged: KubeObject | None) -> str:
    """Where the user says on which nodes workloads may run."""
    if hyperconverged is None:
        return "spec.workloads.nodePlacement"
    return f"{hco.placement_path(hyperconverged)} of {hco.title(hyperconverged)}"


def _targets_primary(patch: Object) -> bool:
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
    """An error when the user's placement uses the owner label; our own requirement there does not count."""
    placement = field(kubevirt, "spec", "workloads", "nodePlacement") or {}
    placements = [(f"{hco.title(kubevirt)}: spec.workloads.nodePlacement", _without_requirement(placement))]
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
    terms = [*_terms(placement.get("affinity")), *(field(item, "preference") or {} for item in preferred)]
    return any(
        expression.get("key") == names.OWNER_LABEL
        for term in terms
        for expression in term.get("matchExpressions") or []
    )
