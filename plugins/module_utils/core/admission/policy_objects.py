# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Our admission policies and bindings as objects: which are live, which must be written, and how plans name them."""

from __future__ import annotations

import typing as t

from ..base import kinds
from ..base.findings import Finding, error
from ..base.kinds import Kind
from ..base.objects import Change, KubeObject, Object, change_line, foreign_message, is_managed
from ..base.parts import Step
from ..observed.snapshot import Admission
from . import launcher_backends


def live_objects(admission: Admission | None, *policies: str) -> tuple[KubeObject, ...]:
    """Our live objects of these policies, in the order to delete them: first the binding, without which a policy rests."""
    live = [(name, obj) for (_kind, name), obj in (admission.objects if admission else {}).items() if is_managed(obj)]
    live.sort(key=lambda item: str(item[1]["kind"]), reverse=True)
    return tuple(obj for policy in policies for name, obj in live if name == policy)


def to_write(desired: t.Iterable[tuple[Kind, Object]], admission: Admission) -> tuple[Object, ...]:
    """The desired objects that are missing on the cluster or differ there."""
    return tuple(obj for kind, obj in desired if launcher_backends.drift([(kind, obj)], admission))


def foreign_findings(desired: t.Iterable[tuple[Kind, Object]], admission: Admission) -> t.Iterator[Finding]:
    """An error for each desired object whose name belongs to an object that is not ours."""
    for kind, obj in desired:
        name = obj["metadata"]["name"]
        live = admission.objects.get((kind.name, name))
        if live is not None and kind != kinds.CONFIG_MAP and not is_managed(live):
            yield error("launcher_policy_foreign", foreign_message(f"{kind} {name}"))


def removals(live: t.Iterable[KubeObject]) -> tuple[Change, ...]:
    """The deletion of these live objects."""
    return tuple(Change(obj, None) for obj in live)


def change_lines(to_write: t.Iterable[Object], to_remove: t.Iterable[Change], admission: Admission) -> tuple[str, ...]:
    """What happens to these objects, one line each."""
    written = [(obj, (obj["kind"], obj["metadata"]["name"]) in admission.objects) for obj in to_write]
    return (*(change_line(obj, "update" if exists else "create") for obj, exists in written), *map(str, to_remove))


class WrittenFirst:
    """A part of a run whose policies are all written before the first batch. A subclass has the three attributes below."""

    if t.TYPE_CHECKING:

        @property
        def admission(self) -> Admission: ...

        @property
        def desired(self) -> list[tuple[Kind, Object]]:
            """The policies and their bindings, in the order to write them."""

        @property
        def to_delete(self) -> tuple[KubeObject, ...]:
            """Our live objects that are not needed, in the order to delete them."""

    @property
    def to_write(self) -> tuple[Object, ...]:
        """The desired objects that are missing on the cluster or differ there."""
        return to_write(self.desired, self.admission)

    @property
    def steps(self) -> tuple[Step, ...]:
        return (0,) if self.changes(0) else ()

    def changes(self, step: Step) -> tuple[str, ...]:
        """What happens to each object, one line each."""
        return change_lines(self.to_write, removals(self.to_delete), self.admission) if step == 0 else ()

    def facts(self, _step: Step) -> t.Mapping[str, t.Any]:
        return {}
