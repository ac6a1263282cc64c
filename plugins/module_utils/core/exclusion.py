# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeping the primary virt-handler off pool nodes: one required node-affinity requirement, the same for ever.

It has two places. Normally it is a strategic merge patch in KubeVirt's ``spec.customizeComponents.patches``. But
KubeVirt appends the required terms of ``spec.workloads.nodePlacement`` to what patches made, and terms are ORed: any
such term would let the primary back onto pool nodes. So when there are such terms, the requirement goes into every one
of them, and the patch must be gone.

Under HCO the same is said by operations in HyperConverged's annotation (see ``hco``): an append to the list of patches,
or the whole of ``spec.workloads`` with the requirement added. Ours come last and other people's stay as they are: one
of theirs on ``spec.workloads`` is not edited but followed by ours, whose value is theirs plus the requirement.
"""

from __future__ import annotations

import copy
import json
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import findings, hco, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.hco import Edit, ReadOnly, field
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.objects import Object, canonical_json

REQUIREMENT: t.Final[Object] = {"key": names.OWNER_LABEL, "operator": "DoesNotExist"}

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = ("nodeAffinity", _REQUIRED, "nodeSelectorTerms")
_PATCHES = "/spec/customizeComponents/patches"
_WORKLOADS = "/spec/workloads"
_FIELDS = ("/spec/customizeComponents", _WORKLOADS)

_TERM: t.Final[Object] = {"matchExpressions": [REQUIREMENT]}
_AFFINITY: t.Final[Object] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_TERM]}}}
_PATCH: t.Final[Object] = {"spec": {"template": {"spec": {"affinity": _AFFINITY}}}}
PATCH: t.Final[Object] = {
    "patch": canonical_json(_PATCH),
    "resourceName": names.HANDLER,
    "resourceType": "DaemonSet",
    "type": "strategic",
}
"""Our entry in ``spec.customizeComponents.patches``. Idempotent: KubeVirt applies it to the same object every sync."""


def _without(mapping: Object, key: str) -> Object:
    return {other: value for other, value in mapping.items() if other != key}


# Node-affinity terms ----------------------------------------------------------------------------------------------


def _is_requirement(expression: Object) -> bool:
    return {key: value for key, value in expression.items() if value} == REQUIREMENT


def _terms(affinity: t.Any) -> list[Object]:
    return field(affinity, *_TERMS) or []


def _carries(term: Object) -> bool:
    return any(_is_requirement(expression) for expression in term.get("matchExpressions") or [])


def _matches_nothing(term: Object) -> bool:
    """An empty term matches no node; with a requirement in it, it would match some."""
    return not any(term.values())


def _all_carry(affinity: t.Any) -> bool:
    terms = _terms(affinity)
    return bool(terms) and all(_carries(term) or _matches_nothing(term) for term in terms)


def _added_to(term: Object) -> Object:
    if _carries(term) or _matches_nothing(term):
        return term
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or []), dict(REQUIREMENT)]}


def _stripped(term: Object) -> Object:
    """``term`` without the requirement: empty when it had nothing else."""
    if not _carries(term):
        return term
    rest = [expression for expression in term["matchExpressions"] if not _is_requirement(expression)]
    return {**term, "matchExpressions": rest} if rest else _without(term, "matchExpressions")


def _with_terms(affinity: Object, terms: list[Object]) -> Object | None:
    """``affinity`` with these required terms; None when nothing at all is left of it."""
    node_affinity = dict(affinity["nodeAffinity"])
    if terms:
        node_affinity[_REQUIRED] = {**node_affinity[_REQUIRED], "nodeSelectorTerms": terms}
    else:
        del node_affinity[_REQUIRED]
    rest = _without(affinity, "nodeAffinity")
    return ({**rest, "nodeAffinity": node_affinity} if node_affinity else rest) or None


def _without_requirement(owner: Object) -> Object:
    """``owner`` (a pod spec or a nodePlacement) without the requirement, and without what held nothing else."""
    affinity = owner.get("affinity")
    if not any(_carries(term) for term in _terms(affinity)):
        return owner
    kept = [_stripped(term) for term in _terms(affinity) if not (_carries(term) and _matches_nothing(_stripped(term)))]
    left = _with_terms(t.cast("Object", affinity), kept)
    return {**owner, "affinity": left} if left else _without(owner, "affinity")


def without_exclusion_terms(pod_spec: ReadOnly) -> Object:
    """``pod_spec`` of the primary without our requirement: what a pool's DaemonSet is derived from.

    A term that held nothing else came from our patch and is dropped whole; what the user's nodePlacement put there
    stays.
    """
    return copy.deepcopy(_without_requirement(dict(pod_spec)))


def exclusion_in(daemonset: ReadOnly) -> bool:
    """Does this live DaemonSet keep off every node with an owner label, for sure?"""
    return _all_carry(field(daemonset, "spec", "template", "spec", "affinity"))


# The two places in a KubeVirt spec --------------------------------------------------------------------------------


def _placement_affinity(spec: Object) -> t.Any:
    return field(spec, "workloads", "nodePlacement", "affinity")


def _patches(spec: Object) -> list[Object]:
    return field(spec, "customizeComponents", "patches") or []


def _is_ours(patch: t.Any) -> bool:
    """Our own entry, also when somebody stored its string with other spaces or another order of keys."""
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


def _excluding(spec: Object) -> Object:
    """``spec`` with the exclusion in its one right place."""
    others = [patch for patch in _patches(spec) if not _is_ours(patch)]
    affinity = _placement_affinity(spec)
    if not _terms(affinity):
        once = len(_patches(spec)) - len(others) == 1
        return spec if once else _with_patches(spec, [*others, dict(PATCH)])
    wanted = _with_terms(affinity, [_added_to(term) for term in _terms(affinity)])
    return _with_placement(_with_patches(spec, others), {**spec["workloads"]["nodePlacement"], "affinity": wanted})


def _including(spec: Object) -> Object:
    """``spec`` without the exclusion, wherever it is."""
    spec = _with_patches(spec, [patch for patch in _patches(spec) if not _is_ours(patch)])
    placement = field(spec, "workloads", "nodePlacement")
    if not placement or _without_requirement(placement) is placement:
        return spec
    return _with_placement(spec, _without_requirement(placement))


def exclusion_requested(kubevirt: ReadOnly) -> bool:
    """Does this KubeVirt object ask for the exclusion, in the right place? (Has the primary it: ``exclusion_in``.)"""
    spec = _spec(kubevirt)
    affinity = _placement_affinity(spec)
    if _terms(affinity):
        return _all_carry(affinity)
    return any(map(_is_ours, _patches(spec)))


# Edits ------------------------------------------------------------------------------------------------------------


def with_exclusion(kubevirt: ReadOnly, hyperconverged: ReadOnly | None) -> Edit:
    """The object to write so that the primary keeps off pool nodes: HyperConverged if there is one, else KubeVirt.

    InputErrors when HyperConverged's annotation cannot be merged with.
    """
    what = f"keep the primary {names.HANDLER} off nodes with the label {names.OWNER_LABEL}"
    if hyperconverged is not None:
        return _hco_edit(hyperconverged, what, _excluding_operations(hyperconverged))
    return _kubevirt_edit(kubevirt, what, _excluding(_spec(kubevirt)))


def without_exclusion(kubevirt: ReadOnly, hyperconverged: ReadOnly | None) -> Edit:
    """The object to write so that the primary runs everywhere again: what was there before ``with_exclusion``.

    Not told apart, as they mean the same to KubeVirt: an empty list of patches and none; an empty annotation and none;
    an operation that makes an empty list directly before ours, used by nobody else, and the one we make for ours.
    """
    what = f"let the primary {names.HANDLER} run on every node again"
    if hyperconverged is not None:
        return _hco_edit(hyperconverged, what, _including_operations(hyperconverged))
    return _kubevirt_edit(kubevirt, what, _including(_spec(kubevirt)))


def _spec(kubevirt: ReadOnly) -> Object:
    return kubevirt.get("spec") or {}


def _place(spec: Object) -> str:
    return "spec.workloads.nodePlacement" if _terms(_placement_affinity(spec)) else "spec.customizeComponents.patches"


def _kubevirt_edit(kubevirt: ReadOnly, what: str, spec: Object) -> Edit:
    after = kubevirt if spec == _spec(kubevirt) else copy.deepcopy({**kubevirt, "spec": spec})
    return Edit("KubeVirt", kubevirt, after, what, _place(_spec(kubevirt)))


def _hco_edit(hyperconverged: ReadOnly, what: str, operations: list[Object]) -> Edit:
    after = hco.with_operations(hyperconverged, operations)
    field_path = _place(_rendered(hyperconverged, operations))
    place = f"annotation {names.HCO_PATCH_ANNOTATION}, {field_path} of KubeVirt"
    return Edit("HyperConverged", hyperconverged, after, what, place)


# Operations in HyperConverged's annotation ------------------------------------------------------------------------


def _is_our_append(operation: Object) -> bool:
    return operation["op"] == "add" and operation["path"] == f"{_PATCHES}/-" and _is_ours(operation["value"])


def _is_our_placement(operation: Object) -> bool:
    if operation["op"] != "add" or operation["path"] != _WORKLOADS:
        return False
    affinity = field(operation["value"], "nodePlacement", "affinity")
    return _all_carry(affinity) and any(map(_carries, _terms(affinity)))


def _is_seed(operation: Object) -> bool:
    return (operation["op"], operation["path"], operation.get("value")) == ("add", _PATCHES, [])


def _count_ours(operations: t.Iterable[Object]) -> int:
    return sum(_is_our_append(operation) or _is_our_placement(operation) for operation in operations)


def _needs_list(later: t.Sequence[Object]) -> bool:
    """Does an operation use the list of patches before another makes it anew?"""
    for operation in later:
        if operation["op"] == "add" and operation["path"] in (_PATCHES, "/spec/customizeComponents"):
            return False
        if hco.within(operation["path"], _PATCHES) or hco.within(operation.get("from", ""), _PATCHES):
            return True
    return False


def _others(operations: t.Sequence[Object]) -> list[Object]:
    """The operations that are not ours: neither the exclusion nor the list made for it, unless others use that list."""
    kept: list[Object] = []
    for index, operation in enumerate(operations):
        if _is_our_placement(operation):
            continue
        if _is_our_append(operation):
            if kept and _is_seed(kept[-1]) and kept[-1] is operations[index - 1]:
                rest = [later for later in operations[index + 1 :] if not _is_our_append(later)]
                if not _needs_list(rest):
                    kept.pop()
            continue
        kept.append(operation)
    return kept


def _rendered(hyperconverged: ReadOnly, operations: t.Sequence[Object]) -> Object:
    """The two places in the KubeVirt spec that HCO makes of HyperConverged with these operations.

    HCO itself renders ``customizeComponents`` empty, and ``workloads`` only from the user's placement.
    """
    base: Object = {"spec": {"customizeComponents": {}}}
    placement = hco.workload_placement(hyperconverged)
    if placement is not None:
        base["spec"]["workloads"] = {"nodePlacement": placement}
    spec = hco.rendered(hyperconverged, base, _FIELDS, operations)["spec"]
    return {"customizeComponents": spec.get("customizeComponents"), "workloads": spec.get("workloads")}


def _same(spec: Object, other: Object) -> bool:
    """Equal but for the position of our own patch: KubeVirt orders patches by their length."""

    def view(item: Object) -> tuple[t.Any, ...]:
        patches = _patches(item)
        return item.get("workloads"), [patch for patch in patches if not _is_ours(patch)], sum(map(_is_ours, patches))

    return view(spec) == view(other)


def _excluding_operations(hyperconverged: ReadOnly) -> list[Object]:
    current = hco.operations(hyperconverged)
    _refuse_positions(hyperconverged, current)
    others = _others(current)
    theirs = _rendered(hyperconverged, others)
    wanted = _excluding(theirs)
    ours = _operations_between(theirs, wanted)
    if _count_ours(current) == _count_ours(ours) and _same(_rendered(hyperconverged, current), wanted):
        return current
    if not _same(_rendered(hyperconverged, [*others, *ours]), wanted):
        raise InputErrors([_embedded(hyperconverged)])
    return [*others, *ours]


def _including_operations(hyperconverged: ReadOnly) -> list[Object]:
    current = hco.operations(hyperconverged)
    _refuse_positions(hyperconverged, current)
    others = _others(current)
    theirs = _rendered(hyperconverged, others)
    if not _same(theirs, _including(theirs)):
        raise InputErrors([_embedded(hyperconverged)])
    return others


def _operations_between(theirs: Object, wanted: Object) -> list[Object]:
    if wanted["workloads"] != theirs["workloads"]:
        return [{"op": "add", "path": _WORKLOADS, "value": wanted["workloads"]}]
    if not any(map(_is_ours, _patches(wanted))) or any(map(_is_ours, _patches(theirs))):
        return []
    append = {"op": "add", "path": f"{_PATCHES}/-", "value": dict(PATCH)}
    if isinstance(field(theirs, "customizeComponents", "patches"), list):
        return [append]
    return [{"op": "add", "path": _PATCHES, "value": []}, append]


def _refuse_positions(hyperconverged: ReadOnly, operations: t.Sequence[Object]) -> None:
    ours = [index for index, operation in enumerate(operations) if _is_our_append(operation)]
    hco.refuse_positions(hyperconverged, _PATCHES, operations[ours[0] + 1 :] if ours else ())


def _embedded(hyperconverged: ReadOnly) -> str:
    return (
        f"The requirement {names.OWNER_LABEL} DoesNotExist is part of somebody else's setting of "
        f"{hco.title(hyperconverged)}, either {hco.placement_path(hyperconverged)} or a larger value in the annotation "
        f"{names.HCO_PATCH_ANNOTATION}; remove it there, this collection adds and removes its own."
    )


# Conflicts with what others patch ---------------------------------------------------------------------------------

_TEMPLATE = ("spec", "template", "spec")
_TO_TERMS = (*_TEMPLATE, "affinity", "nodeAffinity", _REQUIRED)
_TO_SELECTOR = (*_TEMPLATE, "nodeSelector")


def conflicts(kubevirt: ReadOnly, hyperconverged: ReadOnly | None = None) -> list[Finding]:
    """What others do to the primary's scheduling that defeats the exclusion, or that it would break."""
    found: list[Finding] = []
    for index, patch in enumerate(_patches(_spec(kubevirt))):
        if not _is_ours(patch) and _targets_primary(patch):
            found.extend(
                _patch_findings(
                    f"{hco.title(kubevirt)}: spec.customizeComponents.patches[{index}]", patch, _remedy(hyperconverged)
                )
            )
    found.extend(_placement_findings(kubevirt, hyperconverged))
    return found


def _remedy(hyperconverged: ReadOnly | None) -> str:
    if hyperconverged is None:
        return "spec.workloads.nodePlacement"
    return f"{hco.placement_path(hyperconverged)} of {hco.title(hyperconverged)}"


def _targets_primary(patch: Object) -> bool:
    """As KubeVirt matches patches to resources: regardless of case, and ``*`` for any."""
    wanted = (("resourceType", "daemonset"), ("resourceName", names.HANDLER))
    return all(str(patch.get(key, "")).lower() in (value, "*") for key, value in wanted)


def _patch_findings(where: str, patch: Object, remedy: str) -> t.Iterator[Finding]:
    effect = _effect(patch)
    if effect is None:
        yield findings.error(
            "patch_unreadable",
            f"{where} is no {patch.get('type')!r} patch that KubeVirt could apply (types: json, merge, strategic; the "
            f"body is JSON text); correct or remove it.",
        )
        return
    if effect.affinity:
        yield findings.error(
            "patch_on_primary_affinity",
            f"{where} changes the required node affinity of {names.HANDLER}, where this collection keeps it off pool "
            f"nodes, and only one patch can win; move its terms to {remedy} and remove the patch.",
        )
    if effect.selector == "defeats":
        yield findings.error(
            "patch_on_primary_node_selector",
            f"{where} sets {names.OWNER_LABEL} in the nodeSelector of {names.HANDLER}, or replaces or removes the "
            f"whole nodeSelector; move the other labels to {remedy} and remove the patch.",
        )
    elif effect.selector == "extends":
        yield findings.note(
            "primary_node_selector_patched",
            f"{where} adds to the nodeSelector of {names.HANDLER}; the handlers of pools are derived from it and "
            f"inherit that.",
        )


_SelectorEffect = t.Literal["none", "extends", "defeats"]


class _Effect(t.NamedTuple):
    """What a patch does to the primary's scheduling."""

    affinity: bool
    selector: _SelectorEffect


def _effect(patch: Object) -> _Effect | None:
    """None for a patch that KubeVirt cannot apply."""
    try:
        body = json.loads(patch["patch"])
    except (KeyError, TypeError, ValueError):
        return None
    if patch.get("type") in ("strategic", "merge") and isinstance(body, dict):
        return _Effect(_reached(body, _TO_TERMS) is not _UNTOUCHED, _merged_selector(body))
    if patch.get("type") == "json" and isinstance(body, list) and all(map(_is_json_operation, body)):
        return _Effect(any(map(_touches_affinity, body)), _patched_selector(body))
    return None


_UNTOUCHED: t.Final = object()


def _reached(body: t.Any, path: t.Sequence[str]) -> t.Any:
    """What a merge patch puts at ``path``: None if it replaces or removes what holds it, or _UNTOUCHED."""
    for key in path:
        if not isinstance(body, dict) or "$retainKeys" in body or body.get("$patch", "merge") != "merge":
            return None
        if key not in body:
            return _UNTOUCHED
        body = body[key]
    return body


def _merged_selector(body: Object) -> _SelectorEffect:
    selector = _reached(body, _TO_SELECTOR)
    if selector is _UNTOUCHED:
        return "none"
    if not isinstance(selector, dict) or names.OWNER_LABEL in selector or {"$patch", "$retainKeys"} & selector.keys():
        return "defeats"
    return "extends" if selector else "none"


def _is_json_operation(operation: t.Any) -> bool:
    return (
        isinstance(operation, dict) and isinstance(operation.get("op"), str) and isinstance(operation.get("path"), str)
    )


def _written(operation: Object) -> list[tuple[str, ...]]:
    """The paths a JSON patch operation writes, or relies on (``test``)."""
    paths = [operation["path"]]
    if operation["op"] == "move":
        paths.append(str(operation.get("from", "")))
    return [tuple(token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]) for path in paths]


def _holds(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    return inner[: len(outer)] == outer


def _touches_affinity(operation: Object) -> bool:
    affinity = (*_TEMPLATE, "affinity")
    return any(_holds(path, affinity) or _holds(affinity, path) for path in _written(operation))


def _patched_selector(operations: t.Sequence[Object]) -> _SelectorEffect:
    effects = {_selector_effect(operation, path) for operation in operations for path in _written(operation)}
    return "defeats" if "defeats" in effects else "extends" if "extends" in effects else "none"


def _selector_effect(operation: Object, path: tuple[str, ...]) -> _SelectorEffect:
    if _holds(path, _TO_SELECTOR):
        # KubeVirt adds its own nodeSelector after the patches: to "add" a whole one is how a JSON patch makes any.
        value = operation.get("value")
        makes = (
            path == _TO_SELECTOR
            and operation["op"] == "add"
            and isinstance(value, dict)
            and names.OWNER_LABEL not in value
        )
        return "none" if operation["op"] == "test" else "extends" if makes else "defeats"
    if not _holds(_TO_SELECTOR, path):
        return "none"
    return "defeats" if names.OWNER_LABEL in path else "extends"


def _placement_findings(kubevirt: ReadOnly, hyperconverged: ReadOnly | None) -> t.Iterator[Finding]:
    """The owner label in the user's placement by hand; our own requirement in the KubeVirt object's terms is not."""
    placement = field(kubevirt, "spec", "workloads", "nodePlacement") or {}
    by_hand = [(f"{hco.title(kubevirt)}: spec.workloads.nodePlacement", _without_requirement(placement))]
    if hyperconverged is not None:
        source = hco.workload_placement(hyperconverged) or {}
        by_hand.insert(0, (f"{hco.title(hyperconverged)}: {hco.placement_path(hyperconverged)}", source))
    for where, rest in by_hand:
        if _mentions_owner_label(rest):
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
