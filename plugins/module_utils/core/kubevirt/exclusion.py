# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The exclusion keeps the primary virt-handler off pool nodes: one required node-affinity requirement, always the same.

It is a patch in ``spec.customizeComponents``, or part of each required term of ``spec.workloads.nodePlacement``.
docs/design/constant-exclusion.md explains this.
"""

from __future__ import annotations

import copy
import json
import typing as t

from ..base import names
from ..base.affinity import required_terms, with_required_terms, with_requirements, without_required_terms
from ..base.findings import Finding, InputErrors, error
from ..base.objects import KubeObject, Object, canonical_json, field
from . import hco
from .hco import Edit

REQUIREMENT: t.Final[Object] = {"key": names.OWNER_LABEL, "operator": "DoesNotExist"}

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


def without_exclusion_terms(owner: KubeObject) -> Object:
    """A pod spec of the primary, or a nodePlacement, without our requirement. The pod spec is the base of a pool's DaemonSet.

    A term that held nothing else came from our patch and is dropped. Terms of the user's nodePlacement stay.
    """
    return copy.deepcopy(_without_requirement(dict(owner)))


def has_exclusion(daemonset: KubeObject) -> bool:
    """Whether this live DaemonSet certainly keeps off every node with an owner label."""
    return _all_have_requirement(field(daemonset, "spec", "template", "spec", "affinity"))


# The two places in a KubeVirt spec --------------------------------------------------------------------------------


def _placement_affinity(spec: Object) -> t.Any:
    return field(spec, "workloads", "nodePlacement", "affinity")


def _patches(spec: Object) -> list[Object]:
    return field(spec, "customizeComponents", "patches") or []


def _is_ours(patch: t.Any) -> bool:
    """Whether a patch is ours, also when its text was stored with other spaces or another order of keys."""
    if not isinstance(patch, dict) or {**patch, "patch": PATCH["patch"]} != PATCH:
        return False
    try:
        body: object = json.loads(patch["patch"])
    except (KeyError, TypeError, ValueError):
        return False
    return body == _PATCH


def patches_of_others(kubevirt: KubeObject) -> list[tuple[int, Object]]:
    """The entries of a KubeVirt's ``spec.customizeComponents.patches`` that are not ours, with their positions."""
    return [(index, patch) for index, patch in enumerate(_patches(_spec(kubevirt))) if not _is_ours(patch)]


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

_KEEP_OFF: t.Final = f"keep the primary {names.HANDLER} off nodes with the label {names.OWNER_LABEL}"
_HCO_PLACE: t.Final = f"annotation {names.HCO_PATCH_ANNOTATION}, spec.workloads.nodePlacement of KubeVirt"


def with_exclusion(kubevirt: KubeObject, hyperconverged: KubeObject | None) -> Edit:
    """The edit that keeps the primary off pool nodes: of HyperConverged if there is one, else of KubeVirt.

    :raises InputErrors: when our operations cannot be merged into HyperConverged's annotation.
    """
    if hyperconverged is not None:
        return _hco_edit(hyperconverged, _KEEP_OFF, _operations_with_exclusion(hyperconverged))
    return _kubevirt_edit(kubevirt, _KEEP_OFF, _spec_with_exclusion(_spec(kubevirt)))


def without_exclusion(kubevirt: KubeObject, hyperconverged: KubeObject | None) -> Edit:
    """The edit that lets the primary run everywhere again; it restores the state before ``with_exclusion``.

    It makes no difference between states that mean the same to KubeVirt: an empty list of patches and none; an empty
    annotation and none; and, directly before our operation, an operation of others that creates an empty list and our own.
    """
    what = f"let the primary {names.HANDLER} run on every node again"
    if hyperconverged is not None:
        return _hco_edit(hyperconverged, what, _operations_without_exclusion(hyperconverged))
    return _kubevirt_edit(kubevirt, what, _spec_without_exclusion(_spec(kubevirt)))


def unchanged(kubevirt: KubeObject, hyperconverged: KubeObject | None) -> Edit:
    """No edit, of the object that ``with_exclusion`` would edit."""
    if hyperconverged is None:
        return _kubevirt_edit(kubevirt, _KEEP_OFF, _spec(kubevirt))
    return Edit("HyperConverged", hyperconverged, hyperconverged, _KEEP_OFF, _HCO_PLACE)


def edit_findings(problem: InputErrors) -> tuple[Finding, ...]:
    """The errors for an edit that ``with_exclusion`` or ``without_exclusion`` refuses."""
    return tuple(error("exclusion_edit_impossible", message) for message in problem.messages)


def is_overwritten(hyperconverged: KubeObject) -> bool:
    """Whether HyperConverged's annotation lacks the operation that pools need, as after another client has replaced it.

    Call it only for a cluster with pools: without any, the operation is rightly missing.
    """
    try:
        return not _is_complete(hyperconverged)
    except InputErrors:
        return False  # a plan says what is wrong with the annotation


def is_asked_for(kubevirt: KubeObject, hyperconverged: KubeObject | None) -> bool:
    """Whether the object that its user edits asks for the exclusion. HCO may have yet to bring it to KubeVirt, or to drop it."""
    if hyperconverged is not None:
        try:
            return _is_complete(hyperconverged)
        except InputErrors:
            pass
    return exclusion_requested(kubevirt)


def _is_complete(hyperconverged: KubeObject) -> bool:
    current = hco.operations(hyperconverged)
    return any(map(_has_exclusion, current)) or _operations_with_exclusion(hyperconverged) == current


def primary_after(primary: KubeObject, edit: Edit) -> KubeObject:
    """The primary once KubeVirt has followed an edit by ``with_exclusion``.

    HCO renders required terms that the user has changed only with that edit. KubeVirt itself follows its user at once.
    """
    if edit.kind == "KubeVirt":
        return primary
    workloads = _rendered(edit.after, hco.numbered(hco.operations(edit.after)))["workloads"]
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
    return Edit(kind="HyperConverged", before=hyperconverged, after=after, what=what, place=_HCO_PLACE)


# The operation in HyperConverged's annotation ---------------------------------------------------------------------


def _has_exclusion(operation: Object) -> bool:
    if operation["op"] != "add" or operation["path"] != _WORKLOADS:
        return False
    affinity = field(operation["value"], "nodePlacement", "affinity")
    return _all_have_requirement(affinity) and any(map(_has_requirement, _terms(affinity)))


def _has_more(operation: Object) -> bool:
    """Whether an operation with the exclusion has settings beside required terms, such as tolerations. Ours has them only after
    another operation on workloads, whose settings it repeats."""
    workloads = operation["value"]
    affinity = without_required_terms(field(workloads, "nodePlacement", "affinity") or {})
    placement = {**(workloads.get("nodePlacement") or {}), "affinity": affinity}
    return bool(_without_empty({**workloads, "nodePlacement": placement}))


def _of_others(operations: t.Sequence[Object]) -> list[tuple[int, Object]]:
    """The operations without the exclusion, with their positions. An administrator's own operation on workloads only loses the
    requirement."""
    others: list[tuple[int, Object]] = []
    for position, operation in enumerate(operations):
        if not _has_exclusion(operation):
            others.append((position, operation))
        elif _has_more(operation) and not any(_sets_workloads(other) for _position, other in others):
            workloads = operation["value"]
            placement = without_exclusion_terms(workloads["nodePlacement"])
            others.append((position, {**operation, "value": {**workloads, "nodePlacement": placement}}))
    return others


def _sets_workloads(operation: Object) -> bool:
    return operation["op"] != "test" and hco.is_within(operation["path"], _WORKLOADS)


def _rendered(hyperconverged: KubeObject, operations: hco.Numbered) -> Object:
    """What the exclusion depends on in the KubeVirt spec that HCO renders with these operations.

    HCO itself renders ``customizeComponents`` empty, and ``workloads`` only from the user's placement.
    """
    base: Object = {"spec": {"customizeComponents": {}}}
    placement = hco.workload_placement(hyperconverged)
    if placement is not None:
        base["spec"]["workloads"] = {"nodePlacement": placement}
    spec = hco.rendered(hyperconverged, base, _FIELDS, operations)["spec"]
    return {"customizeComponents": spec.get("customizeComponents"), "workloads": spec.get("workloads")}


def _rendered_by_others(hyperconverged: KubeObject, current: t.Sequence[Object]) -> Object:
    """What HCO renders without our operation.

    :raises InputErrors: when an operation of others cannot be applied, or only because ours comes before it.
    """
    try:
        return _rendered(hyperconverged, _of_others(current))
    except hco.NotApplicable as problem:
        position = problem.position
        ours = [index for index, operation in enumerate(current[:position]) if _has_exclusion(operation)]
        if not ours:
            raise
        try:
            _rendered(hyperconverged, hco.numbered(current[: position + 1]))
        except hco.NotApplicable:
            raise problem from None
        raise InputErrors([_builds_on_ours_message(hyperconverged, position, current[position], ours[-1])]) from None


def _builds_on_ours_message(hyperconverged: KubeObject, position: int, operation: Object, ours: int) -> str:
    inside = operation["path"].removeprefix(_WORKLOADS).lstrip("/").split("/")
    place = f"{hco.placement_path(hyperconverged)} of {hco.title(hyperconverged)}"
    advice = (
        f"set {inside[1]} in {place} instead, and take operation {position} out of the annotation"
        if inside[0] == "nodePlacement" and inside[1:]
        else f"put it before operation {ours}, as an 'add' of {_WORKLOADS}"
    )
    return (
        f"{hco.operation_title(hyperconverged, position, operation)} builds on operation {ours}, which is this collection's own "
        f"and comes and goes with the pools; {advice}."
    )


def _operations_with_exclusion(hyperconverged: KubeObject) -> list[Object]:
    current = hco.operations(hyperconverged)
    others = [operation for _position, operation in _of_others(current)]
    theirs = _rendered_by_others(hyperconverged, current)
    given = _terms(_placement_affinity(theirs))
    if given and any(map(_is_ours, _patches(theirs))):  # KubeVirt would OR them to our requirement
        raise InputErrors([_embedded_message(hyperconverged)])
    terms = [_with_requirement(term) for term in given] or [_TERM]
    if not any(map(_has_requirement, terms)):
        return others  # terms that match no node
    ours, wanted = _operation({}, terms), _operation(theirs["workloads"] or {}, terms)
    if not _renders(hyperconverged, [*others, ours], wanted):
        ours = wanted  # one of theirs is on spec.workloads, too
    found = [*filter(_has_exclusion, current)]
    # An administrator's own operation may have the requirement already.
    kept = found == [ours] or (len(found) == 1 and len(others) == len(current))
    if kept and _renders(hyperconverged, current, wanted):
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
    rendered = _rendered(hyperconverged, hco.numbered(operations))["workloads"]
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
    current = hco.operations(hyperconverged)
    theirs = _rendered_by_others(hyperconverged, current)
    if theirs != _spec_without_exclusion(theirs):
        raise InputErrors([_embedded_message(hyperconverged)])
    return [operation for _position, operation in _of_others(current)]


def _embedded_message(hyperconverged: KubeObject) -> str:
    return (
        f"The requirement {names.OWNER_LABEL} DoesNotExist is part of a setting of {hco.title(hyperconverged)} that is "
        f"not ours, either {hco.placement_path(hyperconverged)} or a larger value in the annotation "
        f"{names.HCO_PATCH_ANNOTATION}; remove it there, this collection adds and removes its own."
    )
