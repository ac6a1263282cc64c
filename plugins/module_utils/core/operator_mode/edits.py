# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Edits of the KubeVirt object, or of HyperConverged's annotation: the list of pools, the feature gate, and the touch.

The gate is only appended and taken out again: unlike the role feature_gate, operator mode leaves the list of disabled gates alone.
HCO decodes what its annotation makes into its own KubeVirt type. A field that this type lacks is lost; the run sees that when
the KubeVirt object does not get the list, and reports it.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ..base import names
from ..base.findings import InputErrors, counted
from ..base.objects import KubeObject, Object, field
from ..kubevirt import feature_gates, hco
from ..kubevirt.hco import Edit
from .builds import Build

_TO_GATES = ("spec", "configuration", "developerConfiguration", "featureGates")
_GATES_PATH = f"/{'/'.join(_TO_GATES)}"

TOUCH: t.Final = "VirtpoolsTouch"
"""A feature gate that no KubeVirt knows. It is turned on and off again, only to make virt-operator look at the pools: KubeVirt
accepts any name, ignores those that it does not know, and every change of its spec counts for virt-operator. An annotation
would not do, since it does not change the object's generation."""


@dataclass(frozen=True)
class WantedParts:
    """What an edit makes of the KubeVirt object. None leaves a part as it is."""

    entries: t.Sequence[Object] | None = None
    """The list of pools; empty to remove it."""
    gate: bool | None = None
    """Whether the build's gate is on."""
    depth: int = len(_TO_GATES)
    """How many of the fields down to the list of gates stay when they are empty."""
    touch: bool | None = None
    """Whether TOUCH is on."""


def gate_depth(kubevirt: KubeObject, gate: str) -> int | None:
    """How many of the fields down to the list of gates the object has; None when the gate is on already."""
    if feature_gates.is_on(kubevirt, gate):
        return None
    for depth in range(len(_TO_GATES), 0, -1):
        if field(kubevirt, *_TO_GATES[:depth]) is not None:
            return depth
    return 0


def is_touched(kubevirt: KubeObject) -> bool:
    """Whether the KubeVirt object has TOUCH, which a run that died may have left behind."""
    return TOUCH in (field(kubevirt, *_TO_GATES) or ())


def will_be_touched(hyperconverged: KubeObject | None) -> bool:
    """Whether HCO's annotation has TOUCH, which HCO may not have written into the KubeVirt object yet."""
    return hyperconverged is not None and _with_gate(TOUCH) in hco.operations(hyperconverged)


def edit(build: Build, kubevirt: KubeObject, hyperconverged: KubeObject | None, wanted: WantedParts) -> Edit:
    """The edit that brings what is wanted: of HyperConverged if there is one, else of KubeVirt.

    :raises InputErrors: when the gate is among the disabled ones, or when HCO's annotation does not allow the edit.
    """
    what = "; ".join(_words(build, wanted))
    if hyperconverged is not None:
        after = hco.with_operations(hyperconverged, _operations(build, kubevirt, hyperconverged, wanted))
        return Edit(
            kind="HyperConverged",
            before=hyperconverged,
            after=after,
            what=what,
            place=f"annotation {names.HCO_PATCH_ANNOTATION}",
        )
    place = f"spec.{build.field}" if wanted.entries is not None else ".".join(_TO_GATES)
    return Edit(kind="KubeVirt", before=kubevirt, after=_edited(build, kubevirt, wanted), what=what, place=place)


def _words(build: Build, wanted: WantedParts) -> t.Iterator[str]:
    if wanted.entries is not None:
        named = ", ".join(str(entry["name"]) for entry in wanted.entries)
        yield f"{counted(len(wanted.entries), 'pool')}: {named}" if named else "no pools"
    if wanted.gate is not None:
        yield f"feature gate {build.gate} {'on' if wanted.gate else 'off'}"
    if wanted.touch is not None:
        yield f"feature gate {TOUCH}, which has no effect, on and off again, so that virt-operator notices the pools"


def _gates_wanted(build: Build, wanted: WantedParts) -> dict[str, bool]:
    asked = {build.gate: wanted.gate, TOUCH: wanted.touch}
    return {gate: on for gate, on in asked.items() if on is not None}


def _edited(build: Build, kubevirt: KubeObject, wanted: WantedParts) -> KubeObject:
    after: Object = copy.deepcopy(dict(kubevirt))
    spec = after.setdefault("spec", {})
    if wanted.entries:
        spec[build.field] = list(copy.deepcopy(wanted.entries))
    elif wanted.entries is not None and build.field is not None:
        spec.pop(build.field, None)
    for gate, on in _gates_wanted(build, wanted).items():
        _set_gate(after, gate, on=on, depth=wanted.depth)
    return kubevirt if after == kubevirt else after


def _set_gate(kubevirt: Object, gate: str, *, on: bool, depth: int) -> None:
    gates = field(kubevirt, *_TO_GATES) or []
    if (gate in gates) is on:
        return
    if on:
        _refuse_disabled(kubevirt, gate)
    owners: list[Object] = [kubevirt]
    for key in _TO_GATES[:-1]:
        if owners[-1].get(key) is None:
            owners[-1][key] = {}
        owners.append(owners[-1][key])
    owners[-1][_TO_GATES[-1]] = [*gates, gate] if on else [other for other in gates if other != gate]
    if on:
        return
    for level in range(len(_TO_GATES) - 1, depth - 1, -1):
        if owners[level][_TO_GATES[level]]:
            break
        del owners[level][_TO_GATES[level]]


def _refuse_disabled(kubevirt: KubeObject, gate: str, hyperconverged: KubeObject | None = None) -> None:
    if gate in (field(kubevirt, *_TO_GATES[:-1], "disabledFeatureGates") or ()):
        place = "there" if hyperconverged is None else f"in {hco.shared_place(hyperconverged)}"
        message = (
            f"{hco.title(kubevirt)} has {gate} in disabledFeatureGates, and KubeVirt refuses a gate in both lists; "
            f"remove it {place} first."
        )
        raise InputErrors([message])


# Under HCO ----------------------------------------------------------------------------------------------------------


def _operations(build: Build, kubevirt: KubeObject, hyperconverged: KubeObject, wanted: WantedParts) -> list[Object]:
    operations = hco.operations(hyperconverged)
    if wanted.entries is not None and build.field is not None:
        operations = _with_list(hyperconverged, operations, f"/spec/{build.field}", wanted.entries)
    for gate, on in _gates_wanted(build, wanted).items():
        ours = _with_gate(gate)
        if on and ours not in operations and not feature_gates.is_on(kubevirt, gate):
            _refuse_disabled(kubevirt, gate, hyperconverged)
            operations = [*operations, ours]
        elif not on and ours in operations:
            later = operations[operations.index(ours) + 1 :]
            hco.refuse_positions(hyperconverged, _GATES_PATH, later)
            operations = [operation for operation in operations if operation != ours]
    return operations


def _with_gate(gate: str) -> Object:
    return {"op": "add", "path": f"{_GATES_PATH}/-", "value": gate}


def _with_list(
    hyperconverged: KubeObject, operations: t.Sequence[Object], path: str, entries: t.Sequence[Object]
) -> list[Object]:
    inside = [each for each in operations if each["path"].startswith(f"{path}/")]
    if inside:
        message = (
            f"The annotation {names.HCO_PATCH_ANNOTATION} of {hco.title(hyperconverged)} has an operation on {inside[0]['path']}, "
            f"inside the list that this run writes as a whole; remove that operation first."
        )
        raise InputErrors([message])
    kept = [each for each in operations if each["path"] != path]
    wanted = {"op": "add", "path": path, "value": list(entries)}
    if [each for each in operations if each["path"] == path] == [wanted]:
        return list(operations)
    return [*kept, wanted] if entries else kept
