# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The history of a cluster: the pool lists that runs applied, so that a rollback can go back to one of them, and the waves
that runs began and did not prove, so that the next run proves them.

It is in a ConfigMap in KubeVirt's namespace: a rollback needs nothing but the cluster.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field, replace

from ..admission.launcher_backends import BackendOption
from ..admission.launcher_rollout import Outdated
from ..base import kinds, names, objects
from ..base.findings import Finding, InputErrors, counted, error, listed, warning
from ..base.frozen import FrozenMap, freeze, thaw
from ..base.objects import KubeObject, foreign_message, is_managed
from ..monitoring.alerts import Settings
from ..observed.snapshot import Snapshot
from ..pools.model import Pool, restore_pool
from .assignment import Overlap

MOST_ENTRIES = 10
MOST_BYTES = 900_000
"""For all entries and open waves together; Kubernetes allows 1 MiB in a ConfigMap."""
MOST_WAVES = 5
"""A run has one open wave at a time. Only a series of interrupted runs, each with other waves, leaves more behind."""

_VALUES: t.Mapping[str, tuple[object, ...]] = {
    "overlap": t.get_args(Overlap),
    "launcher_backend": t.get_args(BackendOption),
    "outdated": t.get_args(Outdated),
    "assign_new_nodes": (False, True),
    "guard": (None, False, True),
}
OPTIONS = tuple(_VALUES)
"""Options that decide what a list makes of a cluster. The other options say how to get there; each run has its own."""

_ALERTS = "alerts"
"""An option like these. An entry has it only when alerts were wanted, so that the digest of any other list stays as it was in
releases without alerts."""

_BUILD = "build"
"""The same for the build of KubeVirt by which the pools were made in operator mode."""

_DATA = "data."
_ENTRIES, _GOING_TO, _OPENED, _WAVES, _GATE = "entries", "goingTo", "opened", "openWaves", "operator"
_MOVING, _APPLYING, _REMOVING = "moving", "applying", "removing"
FIELDS = frozenset({_ENTRIES, _GOING_TO, _OPENED, _WAVES, _GATE, _MOVING, _APPLYING, _REMOVING})
"""The keys of the ConfigMap's data."""

NO_POOLS: t.Final = "no pools"
"""Stands in place of an entry's digest for the state before the first list."""


@dataclass(frozen=True)
class Entry:
    """A pool list that a run applied completely."""

    pools: tuple[Pool, ...]
    options: t.Mapping[str, t.Any] = field(default_factory=FrozenMap)
    """The values of OPTIONS by name, and the settings of the alerts as an object where there were any."""
    applied: str = ""
    """When the run completed, as RFC 3339."""
    by: str = ""
    """Who ran it, and where."""

    @property
    def digest(self) -> str:
        """Digest of the list and its options: the same list applied again has the same digest."""
        return objects.short_digest({key: self.to_object()[key] for key in ("pools", "options")})

    def to_object(self) -> dict[str, t.Any]:
        return {
            "applied": self.applied,
            "by": self.by,
            "options": thaw(self.options),
            "pools": [pool.to_object() for pool in self.pools],
        }

    @property
    def build(self) -> str | None:
        """The build of KubeVirt by which the pools were made in operator mode; None for collection pools."""
        return t.cast("str | None", self.options.get(_BUILD))

    @property
    def run_options(self) -> dict[str, t.Any]:
        """The values for a run that brings the list back, by the names of ``planning.options.Options``."""
        noted = self.options.get(_ALERTS)
        options = {name: value for name, value in self.options.items() if name != _BUILD}
        return {**options, _ALERTS: None if noted is None else Settings.from_object(noted)}

    def to_dict(self) -> dict[str, t.Any]:
        """The entry for users and programs that read the history."""
        return {"digest": self.digest, **self.to_object()}

    def __str__(self) -> str:
        pools = ", ".join(pool.name for pool in self.pools)
        return f"{self.digest}: applied {self.applied} by {self.by}, {counted(len(self.pools), 'pool')}: {pools}"


@dataclass(frozen=True)
class OpenWave:
    """A wave that a run began and whose gate has not passed since."""

    name: str
    nodes: tuple[str, ...]
    baseline: tuple[str, ...] = ()
    """The problems that existed before the wave; they do not keep its gate from passing."""
    back_to: str | None = None
    """Where a rollback goes: the digest of a list, or NO_POOLS. None for a run that applies a list."""

    @property
    def id(self) -> str:
        """Runs that lead to the same place give the same nodes the same id."""
        return objects.short_digest([sorted(self.nodes), self.back_to])

    def __str__(self) -> str:
        return f"Wave {self.name} ({counted(len(self.nodes), 'node')}) was started, and its gate has not passed: {listed(self.nodes)}"

    def to_object(self) -> dict[str, t.Any]:
        return {
            "name": self.name,
            "nodes": list(self.nodes),
            "baseline": list(self.baseline),
            "backTo": self.back_to,
        }


@dataclass(frozen=True)
class OperatorRecord:
    """What operator mode must know to undo all that it did."""

    build: str
    """The build's name."""
    gate_depth: int | None = None
    """None when its feature gate was on before; else how many of the fields ``spec``, ``configuration``,
    ``developerConfiguration`` and ``featureGates`` the KubeVirt object had then."""

    def to_object(self) -> dict[str, t.Any]:
        return {"build": self.build, "gateDepth": self.gate_depth}


@dataclass(frozen=True)
class PendingMove:
    """A move between the modes that a run began and no run has completed since: what the cluster alone no longer tells."""

    to: Entry
    """The list that the move brings, complete, with its options."""
    former: Entry | None
    """The pools of the former mode, as they were when the move began; None when there were none."""
    digest: str = ""
    """That of the plan with which it began."""
    read_from: str = ""
    """The dialect in which the list was read from the cluster, where the move may take it down; empty for any other list."""

    def to_object(self) -> dict[str, t.Any]:
        return {
            "to": self.to.to_object(),
            "former": self.former and self.former.to_object(),
            "digest": self.digest,
            "readFrom": self.read_from,
        }

    def __str__(self) -> str:
        mode = "operator" if self.to.build else "collection"
        pools = ", ".join(pool.name for pool in self.to.pools)
        return f"{self.to.digest}: a move to {mode} pools was started and has not completed, {counted(len(self.to.pools), 'pool')}: {pools}"


@dataclass(frozen=True)
class History:
    """The lists that completed runs have applied, and what an unfinished run has begun."""

    entries: tuple[Entry, ...] = ()
    """The newest last."""
    going_to: str | None = None
    """During a rollback, the digest of the list it goes back to."""
    applying: bool = False
    """Whether a run that leads to another list than the newest has begun and no run has completed since. The pools alone do not
    tell: the run may have changed only nodes so far, or only options."""
    removing: bool = False
    """The same for a removal."""
    opened: bool = False
    """Whether the history began before the cluster had pools. Without entries it is that of a first run that has
    not completed."""
    waves: tuple[OpenWave, ...] = ()
    """The open waves, in the order in which they began."""
    operator_record: OperatorRecord | None = None
    """From before operator mode's first write to after its last."""
    moving: PendingMove | None = None
    unreadable: tuple[str, ...] = ()
    """The parts of the ConfigMap that this release cannot read. What is written has them no more."""

    @property
    def is_unfinished(self) -> bool:
        """Whether a run has begun that leads away from the newest list, other than a rollback, and none has completed since."""
        return self.applying or self.removing or self.moving is not None

    @property
    def moving_back(self) -> frozenset[str]:
        """The names of the pools that an unfinished move between the modes brings back from the record, wherever it stopped."""
        former = None if self.moving is None else self.moving.former
        return frozenset(() if former is None else (pool.name for pool in former.pools))

    @property
    def newest(self) -> str:
        """The newest entry and when it was applied, or NO_POOLS: differs after another run has recorded its list."""
        return f"{self.entries[-1].digest} {self.entries[-1].applied}" if self.entries else NO_POOLS

    def require_newest(self, expected: str) -> None:
        """Check that ``newest`` is still what this run has read.

        :raises InputErrors: when another run has recorded its list since.
        """
        if self.newest == expected:
            return
        found = f"Its newest entry is {self.entries[-1]}" if self.entries else "It has no entry now"
        message = (
            f"The history ConfigMap {names.HISTORY} has changed since this run read it, so another run has applied its pool list. {found}. "
            "This run does not go back, because that would undo the other run; run plan, then decide which list is to apply."
        )
        raise InputErrors([message])

    def open_wave(self, wave_id: str) -> OpenWave:
        """The open wave with this id.

        :raises InputErrors: when there is none.
        """
        for wave in self.waves:
            if wave.id == wave_id:
                return wave
        raise InputErrors([f"The history ConfigMap {names.HISTORY} has no open wave {wave_id[:80]!r}; plan again."])

    def find(self, digest: str) -> Entry:
        """The latest entry with this digest; also the list that an unfinished move brings.

        :raises InputErrors: when there is none.
        """
        entries = [*self.entries, *([self.moving.to] if self.moving else [])]
        for entry in reversed(entries):
            if entry.digest == digest:
                return entry
        known = listed(dict.fromkeys(entry.digest for entry in reversed(entries))) or "none"
        raise InputErrors(
            [
                f"The history ConfigMap {names.HISTORY} has no pool list {digest[:80]!r}; it has: {known}{self._not_read}."
            ]
        )

    @property
    def newest_options(self) -> t.Mapping[str, t.Any]:
        """The options that the newest list came with."""
        return self.entries[-1].options if self.entries else {}

    @property
    def _not_read(self) -> str:
        return f", and {listed(self.unreadable)} cannot be read by this release" if self.unreadable else ""

    def rollback_target(self, recorded: t.Iterable[Pool], build: str | None = None) -> Entry:
        """The list that a rollback goes back to when the user names none.

        This is the target of an interrupted rollback. Else it is the newest list, if a later run did not complete or the
        cluster has other pools. Else it is the list before the newest.

        :param recorded: the pools that the cluster has.
        :param build: the build of KubeVirt whose pools these are; None for collection pools.
        :raises InputErrors: when there is no such list.
        """
        going_to = next((entry for entry in reversed(self.entries) if entry.digest == self.going_to), None)
        if going_to is not None:
            return going_to
        if self.entries:
            newest = self.entries[-1]
            if self.is_unfinished or not same_pools(recorded, newest.pools) or build != newest.build:
                return newest
        if len(self.entries) < 2:
            message = (
                f"There is no earlier pool list to go back to: the history ConfigMap {names.HISTORY} has "
                f"{counted(len(self.entries), 'list')}{self._not_read}, and only a run that changes pools and completes adds one; run the "
                "playbook site with the list that you want, or the playbook remove."
            )
            raise InputErrors([message])
        return self.entries[-2]

    @property
    def present(self) -> str:
        """The digest of the newest list, or NO_POOLS."""
        return self.entries[-1].digest if self.entries else NO_POOLS

    def undo_target(self, brings: str, before: str) -> Entry:
        """The list that a rollback goes back to which undoes the run of an approved plan, wherever that run stopped. After a run
        that was refused, the cluster has it still.

        :param brings: the digest of the list that the run was to bring.
        :param before: ``present`` when it was planned.
        :raises InputErrors: when there is no such list, or when another run has applied its list since.
        """
        if self.present not in (brings, before):
            message = (
                f"The approved plan was to bring list {brings}, and before it the cluster had {before}. Another run has applied list "
                f"{self.present} since, and going back would undo that, too; look at the lists, and give virtpools_rollback_to."
            )
        elif brings == before:
            message = (
                f"The approved plan brings list {brings}, which the cluster had already, so there is no list to go back to; correct what "
                "keeps it from being carried out, then run again."
            )
        elif before == NO_POOLS:
            message = (
                "Before the approved plan the cluster had no pools, so there is no list to go back to; the playbook remove takes "
                "away what the run has brought."
            )
        else:
            return self.find(before)
        raise InputErrors([message])

    def fallback(self, entry: Entry, recorded: t.Collection[Pool]) -> str:
        """Where a run of the list of ``entry`` goes back to when a wave fails: the digest of the newest list, or NO_POOLS.

        :param recorded: the pools that the cluster has.
        :raises InputErrors: when there is no such list, or the history does not say which one it is.
        """
        if not self.entries:
            if self.opened or not recorded:
                return NO_POOLS
            reason = f"the cluster has pools, but the history ConfigMap {names.HISTORY} does not record which list created them"
        elif self.entries[-1].build != entry.build:
            reason = "the previous list was one of the other mode; the playbook rollback goes back to it"
        elif self.entries[-1].digest != entry.digest:
            return self.entries[-1].digest
        else:
            reason = "the run applies the list that was applied last"
        raise InputErrors([f"If a wave failed, the run would stop, since it has no list to go back to: {reason}."])

    def is_current(self, entry: Entry) -> bool:
        """Whether a run of this list that changes nothing can leave the history as it is.

        Such a run does not write only because the pools are in another order, or because ``overlap`` differs.
        """
        if self.going_to is not None or self.is_unfinished or self.waves or not self.entries:
            return False
        newest = self.entries[-1]
        same = all(
            newest.options.get(name) == entry.options.get(name)
            for name in (*OPTIONS, _ALERTS, _BUILD)
            if name != "overlap"
        )
        return same and same_pools(newest.pools, entry.pools)

    def completed(self, entry: Entry) -> History:
        """The history after a run has completed: its list is the newest, no wave is open, and no move is unfinished."""
        done = replace(self, going_to=None, applying=False, removing=False, waves=(), moving=None)
        if self.entries and self.entries[-1].digest == entry.digest:
            return done
        return replace(done, entries=(*self.entries, entry))

    def begun(
        self, digest: str | None, recorded: t.Collection[Pool], *, brings: str = "", afresh: bool = False
    ) -> History:
        """The history during a run: a rollback to the list ``digest`` or, with None, a run that applies a list.

        Open waves of runs that led elsewhere are dropped, since this run leads their nodes to another state.

        :param recorded: the pools that the cluster has.
        :param brings: the digest of the list that a run applies. When that is the newest list again, a run that does not complete
            leaves nothing of another list behind.
        :param afresh: whether to drop all open waves.
        """
        kept = () if afresh else tuple(wave for wave in self.waves if wave.back_to == digest)
        history = replace(self, waves=kept)
        if digest is not None:
            return replace(history, going_to=self.find(digest).digest)
        elsewhere = self.applying or self.going_to is not None or brings != self.present
        history = replace(history, going_to=None, applying=elsewhere)
        return history if self.entries or recorded else replace(history, opened=True)

    def move_begun(self, move: PendingMove, digest: str | None = None) -> History:
        """The history during a move, from before its first write. The pools that it takes down become the newest list, if no
        run of ours has recorded them: a rollback brings them back. What an interrupted run has left half-way is not a list.

        :param digest: during a rollback, that of the list it goes back to.
        """
        known, former = replace(self, moving=move, going_to=digest), move.former
        if former is None or self.moving or self.going_to:
            return known
        newest = self.entries[-1] if self.entries else Entry(())
        if newest.build == former.build and same_pools(newest.pools, former.pools):
            return known
        if (self.applying or self.removing) and self.entries:
            return known
        return replace(known, entries=(*self.entries, former))

    def removal_begun(self) -> History:
        """The history during a removal: a rollback undoes it even while the cluster has all its pools. An unfinished move has a
        record of its own."""
        return replace(self, removing=True) if self.entries and self.moving is None else self

    def pools_removed(
        self, removed: t.Collection[str] | None, there: t.Collection[str], applied: str, by: str
    ) -> History:
        """The history once these pools are removed. The newest list is without them then, so that no run goes back to one with them
        by itself, and going on with an unfinished move does not bring them back.

        :param removed: their names; None for all pools.
        :param there: the names of the pools that the cluster has: one that cannot go now is still in its list.
        """
        if self.moving is None:
            newest = {pool.name for pool in self.entries[-1].pools} if self.entries else set()
            return self._without((newest if removed is None else {*removed}) - {*there}, applied, by)
        if self.moving.former is None:
            return self
        pools = self.moving.former.pools
        left = tuple(p for p in pools if (p.name in there if removed is None else p.name not in removed))
        former = replace(self.moving.former, pools=left) if left else None
        return replace(self, moving=replace(self.moving, former=former))

    def _without(self, gone: t.Collection[str], applied: str, by: str) -> History:
        """The history with a newest list that lacks these pools."""
        known = replace(self, removing=False) if gone else self
        if not self.has_some_of(gone):
            return known
        left = tuple(pool for pool in self.entries[-1].pools if pool.name not in gone)
        newest = replace(self.entries[-1], pools=left, applied=applied, by=by)
        return replace(known, entries=(*self.entries, newest))

    def has_some_of(self, pools: t.Collection[str]) -> bool:
        """Whether the newest list has some of these pools, and others as well."""
        found = {pool.name in pools for pool in self.entries[-1].pools} if self.entries else set()
        return found == {True, False}

    def wave_begun(self, wave: OpenWave) -> History:
        """The history during a wave. A wave that an earlier run began keeps its baseline."""
        if any(other.id == wave.id for other in self.waves):
            return self
        return replace(self, waves=(*self.waves, wave)[-MOST_WAVES:])

    def wave_done(self, wave_id: str) -> History:
        """The history when the gate of this wave has passed, or its nodes are back where they were."""
        return replace(self, waves=tuple(wave for wave in self.waves if wave.id != wave_id))

    def to_data(self) -> dict[str, str]:
        """The ConfigMap's data. It leaves out the oldest entries and waves until it is small enough, but never the newest."""
        entries = [objects.canonical_json(entry.to_object()) for entry in self.entries[-MOST_ENTRIES:]]
        open_waves = [objects.canonical_json(wave.to_object()) for wave in self.waves]
        moving = objects.canonical_json(self.moving.to_object()) if self.moving else ""
        while len(entries) > 1 and _size(*entries, *open_waves, moving) > MOST_BYTES:
            del entries[0]
        while len(open_waves) > 1 and _size(*entries, *open_waves, moving) > MOST_BYTES:
            del open_waves[0]
        data = {_ENTRIES: f"[{','.join(entries)}]"}
        if self.going_to:
            data[_GOING_TO] = self.going_to
        if self.applying:
            data[_APPLYING] = "true"
        if self.removing:
            data[_REMOVING] = "true"
        if self.opened:
            data[_OPENED] = "true"
        if self.operator_record is not None:
            data[_GATE] = objects.canonical_json(self.operator_record.to_object())
        if moving:
            data[_MOVING] = moving
        return {**data, _WAVES: f"[{','.join(open_waves)}]"} if open_waves else data

    def to_config_map(self, namespace: str) -> objects.Object:
        config_map = kinds.CONFIG_MAP.object(names.HISTORY, namespace, data=self.to_data())
        config_map["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        return config_map


def read(config_map: KubeObject | None) -> History:
    """The history in a ConfigMap; an empty one for None. What cannot be read is left out, and named in ``unreadable``.

    :raises InputErrors: when the ConfigMap is not ours.
    """
    if config_map is None:
        return History()
    metadata = config_map["metadata"]
    if not is_managed(config_map):
        raise InputErrors([foreign_message(f"ConfigMap {metadata.get('namespace')}/{names.HISTORY}")])
    data = config_map.get("data") or {}
    unreadable: list[str] = []
    return History(
        _items(data, _ENTRIES, _entry, unreadable),
        data.get(_GOING_TO),
        applying=data.get(_APPLYING) == "true",
        removing=data.get(_REMOVING) == "true",
        opened=data.get(_OPENED) == "true",
        waves=_items(data, _WAVES, _wave, unreadable),
        operator_record=_item(data, _GATE, _operator, unreadable),
        moving=_item(data, _MOVING, read_move, unreadable),
        unreadable=tuple(unreadable),
    )


def unreadable_findings(
    known: History, namespace: str, *, undoing: bool = False, skip_pending_gates: bool = False
) -> t.Iterator[Finding]:
    """What cannot be read of the history: an error where the next run would lose what protects VMs.

    :param namespace: KubeVirt's.
    :param undoing: whether a run removes pools or restores nodes.
    """
    lists = [each for each in known.unreadable if each.startswith(f"{_DATA}{_ENTRIES}")]
    begun = [each for each in known.unreadable if each not in lists]
    where = f"ConfigMap {namespace}/{names.HISTORY}"
    if lists:
        yield warning(
            "history_unreadable",
            f"{where}: {listed(lists)} cannot be read by this release, so no rollback can go back to it, and the next run "
            "drops it. If a later release of the collection wrote it, use that one; else restore the ConfigMap from a backup.",
        )
    if begun:
        accepted = undoing or (skip_pending_gates and all(each.startswith(f"{_DATA}{_WAVES}") for each in begun))
        yield (warning if accepted else error)(
            "history_unreadable",
            f"{where}: this release cannot read {listed(begun)}, by which a run goes on with what another one began. If a later release "
            "of the collection wrote it, use that one; else restore the ConfigMap from a backup. To go on without it, delete the field.",
        )


def recorded_in(snapshot: Snapshot) -> History:
    """The history that a snapshot has; an empty one when it has none, or when the ConfigMap is not ours: the code that writes it
    reports that."""
    if snapshot.admission is None:
        return History()
    try:
        return read(snapshot.admission.objects.get((kinds.CONFIG_MAP.name, names.HISTORY)))
    except InputErrors:
        return History()


def same_pools(one: t.Iterable[Pool], other: t.Iterable[Pool]) -> bool:
    """Whether two lists have the same pools, in any order."""
    return _as_set(one) == _as_set(other)


def entry_of(
    pools: t.Sequence[Pool],
    recorded: t.Iterable[Pool],
    options: object,
    applied: str,
    by: str,
    build: str | None = None,
) -> Entry:
    """The entry for a run that has completed: its list, then the other pools that the cluster kept.

    :param options: an object with the attributes OPTIONS, and ``alerts``.
    :param build: the build's name for an operator-mode run.
    """
    given = {pool.name for pool in pools}
    kept = [pool for pool in recorded if pool.name not in given]
    noted = {name: getattr(options, name) for name in OPTIONS}
    settings = t.cast("Settings | None", getattr(options, _ALERTS))
    if settings is not None:
        noted[_ALERTS] = settings.to_object()
    if build is not None:
        noted[_BUILD] = build
    return Entry((*pools, *kept), freeze(noted), applied, by)


_T = t.TypeVar("_T")


def _items(
    data: t.Mapping[str, str], key: str, read_one: t.Callable[[object], _T | None], unreadable: list[str]
) -> tuple[_T, ...]:
    """What the list under a key holds. What cannot be read is added to ``unreadable``."""
    try:
        written = json.loads(data.get(key) or "[]")
    except (ValueError, RecursionError):
        written = None
    if not isinstance(written, list):
        unreadable.append(f"{_DATA}{key}")
        return ()
    items = [read_one(each) for each in written]
    unreadable += [f"{_DATA}{key}[{number}]" for number, item in enumerate(items) if item is None]
    return tuple(item for item in items if item is not None)


def _item(
    data: t.Mapping[str, str], key: str, read_one: t.Callable[[object], _T | None], unreadable: list[str]
) -> _T | None:
    """The same for a key that holds one thing."""
    try:
        written = json.loads(data.get(key) or "null")
        item = read_one(written)
    except (ValueError, RecursionError):
        written, item = key, None
    if item is None and written is not None:
        unreadable.append(f"{_DATA}{key}")
    return item


def _entry(written: object) -> Entry | None:
    try:
        item = t.cast("dict[str, t.Any]", written)
        options = {name: item["options"][name] for name in OPTIONS}
        unknown = item["options"].keys() - {*OPTIONS, _ALERTS, _BUILD}
        if unknown or any(value not in _VALUES[name] for name, value in options.items()):
            return None
        if _ALERTS in item["options"]:
            options[_ALERTS] = Settings.from_object(item["options"][_ALERTS]).to_object()
        if _BUILD in item["options"]:
            options[_BUILD] = str(item["options"][_BUILD])
        pools = tuple(restore_pool(pool) for pool in item["pools"])
        return Entry(pools, freeze(options), str(item["applied"]), str(item["by"])) if pools else None
    except (AttributeError, InputErrors, KeyError, TypeError):
        return None


def read_move(written: object) -> PendingMove | None:
    """The move that ``PendingMove.to_object`` wrote; None for anything else."""
    try:
        item = t.cast("dict[str, t.Any]", written)
        to, former = _entry(item["to"]), _entry(item["former"])
        return None if to is None else PendingMove(to, former, str(item["digest"]), str(item["readFrom"]))
    except (KeyError, TypeError):
        return None


def _wave(written: object) -> OpenWave | None:
    try:
        item = t.cast("dict[str, t.Any]", written)
        back_to = item["backTo"]
        return OpenWave(
            str(item["name"]),
            tuple(map(str, item["nodes"])),
            tuple(map(str, item["baseline"])),
            None if back_to is None else str(back_to),
        )
    except (KeyError, TypeError):
        return None


def _operator(written: object) -> OperatorRecord | None:
    try:
        item = t.cast("dict[str, t.Any]", written)
        depth = item["gateDepth"]
        return OperatorRecord(str(item["build"]), None if depth is None else int(depth))
    except (TypeError, KeyError, ValueError):
        return None


def _size(*written: str) -> int:
    return sum(len(each.encode()) for each in written)


def _as_set(pools: t.Iterable[Pool]) -> set[str]:
    return {objects.canonical_json(pool.to_object()) for pool in pools}
