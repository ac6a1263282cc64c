# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The list of pools as a run found it. A run writes the list as a whole, so it must not write over a change of another user."""

from __future__ import annotations

import typing as t

from ..base import names
from ..base.findings import InputErrors, listed
from ..base.objects import KubeObject, Object, field, short_digest
from ..kubevirt import hco
from ..observed.snapshot import Snapshot
from ..pools.model import Pool
from . import forms
from .builds import Build
from .edits import WantedParts


def digest(build: Build, snapshot: Snapshot, entries: t.Iterable[KubeObject]) -> str:
    """Digest of the list, or of the objects, on which a plan is based.

    :param entries: the list, or the objects, as the cluster has them.
    """
    try:
        operations = _operations(build, snapshot.hyperconverged)
    except InputErrors:
        # The plan has that as an error.
        operations = []
    return short_digest([list(map(_content, entries)), operations])


def refuse_another(build: Build, now: str, planned: str) -> None:
    """Refuse to write when the list is not the one on which the run's plan is based.

    :param now: the digest of the list; ``planned``: that of the plan.
    :raises InputErrors: when they differ.
    """
    if now != planned:
        raise InputErrors([_message(build.place, "")])


def refuse_changed_objects(build: Build, expected: t.Iterable[KubeObject], found: t.Iterable[KubeObject]) -> None:
    """Refuse to write when objects of pools are not those that the run expects.

    :raises InputErrors: when another user has changed, created or deleted some.
    """
    before, now = ({str(obj["metadata"]["name"]): _content(obj) for obj in objects} for objects in (expected, found))
    if before != now:
        raise InputErrors([_message(build.place, _names(before, now))])


def refuse_changed_list(
    build: Build, snapshot: Snapshot, found: KubeObject, expected: t.Sequence[KubeObject], wanted: WantedParts
) -> None:
    """Refuse an edit of the list, or of the gate without which it has no effect, when it is not the list that the run expects.

    :param found: the KubeVirt or HyperConverged object as it is now.
    :raises InputErrors: when another user has changed the list.
    """
    if build.field is None or (wanted.entries is None and wanted.gate is not False):
        return
    if found.get("kind") == "KubeVirt":
        now = list((found.get("spec") or {}).get(build.field) or ())
        # After a write whose answer was lost, the list is there already.
        if now not in (list(expected), list(wanted.entries or ())):
            raise InputErrors([_message(build.place, _names(_by_name(expected), _by_name(now)))])
        return
    planned = _operations(build, snapshot.hyperconverged) if wanted.entries is not None else []
    ours = [{"op": "add", "path": f"/spec/{build.field}", "value": list(wanted.entries)}] if wanted.entries else []
    if _operations(build, found) not in (planned, ours):
        place = (
            f"the operation on /spec/{build.field} in the annotation {names.HCO_PATCH_ANNOTATION} of {hco.title(found)}"
        )
        raise InputErrors([_message(place, "")])


def refuse_another_list(build: Build, entries: t.Iterable[KubeObject], expected: t.Iterable[t.Sequence[Pool]]) -> None:
    """End the wait for virt-operator when it follows a list that is not the run's.

    :param entries: the list, or the objects, as the cluster has them now.
    :param expected: what they may say: the pools of the run and, as long as HCO may not have written these yet, those before.
    :raises InputErrors: when another user has changed the list in the meantime.
    """
    pools = forms.from_build(build, [entry for entry in entries if not field(entry, "metadata", "deletionTimestamp")])
    now, *known = ({pool.name: forms.to_build(build, pool) for pool in each} for each in (pools, *expected))
    if now not in known:
        changed = (
            f"Another user has changed {build.place}{_names(known[0], now)} while this run waited for virt-operator"
        )
        raise InputErrors([f"{changed}, which now follows that change: plan again."])


def _content(entry: KubeObject) -> Object:
    """What users write of an entry of the list, or of an object of a pool."""
    if "metadata" not in entry:
        return dict(entry)
    return {"name": entry["metadata"]["name"], "spec": entry.get("spec")}


def _operations(build: Build, hyperconverged: KubeObject | None) -> list[Object]:
    """The operations of HCO's annotation on the list."""
    if build.field is None or hyperconverged is None:
        return []
    return [each for each in hco.operations(hyperconverged) if hco.is_within(each["path"], f"/spec/{build.field}")]


def _by_name(entries: t.Iterable[KubeObject]) -> dict[str, KubeObject]:
    return {str(entry.get("name")): entry for entry in entries}


def _names(before: t.Mapping[str, KubeObject], now: t.Mapping[str, KubeObject]) -> str:
    """The pools that differ, as a part of a sentence; empty when only their order does."""
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return f" (pool {listed(changed)})" if changed else ""


def _message(place: str, what: str) -> str:
    return (
        f"Another user has changed {place} since this run was planned{what}, and the run would undo that: plan again."
    )
