# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool lists that runs brought to a cluster, so that a run can go back to an earlier one, and the waves that runs began
and did not prove, so that the next run does.

They are in a ConfigMap beside KubeVirt, the newest last: a rollback depends on nothing but the cluster.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, names, objects, removal
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors, listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.frozen import FrozenMap
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool, restore_pool
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import KubeObject

MOST_ENTRIES = 10
MOST_BYTES = 900_000
"""Of all entries and open waves together: a ConfigMap may have 1 MiB."""
MOST_WAVES = 5
"""A run has one open wave. More are left behind only by runs that were stopped one after the other, with other waves each."""

OPTIONS = ("overlap", "launcher_backend", "outdated", "assign_new_nodes", "guard")
"""Options that decide what a list makes of a cluster. The others say how to get there, which every run says itself."""

_ENTRIES, _GOING_TO, _OPENED, _WAVES = "entries", "goingTo", "opened", "openWaves"

NO_POOLS: t.Final = "no pools"
"""What a cluster was before its first list, where an entry's digest would stand."""


@dataclass(frozen=True)
class Entry:
    """A list that a run brought to its end."""

    pools: tuple[Pool, ...]
    options: t.Mapping[str, t.Any] = field(default_factory=FrozenMap)
    """The values of OPTIONS, by name."""
    applied: str = ""
    """When, as RFC 3339."""
    by: str = ""
    """Who ran it, where."""

    @property
    def digest(self) -> str:
        """Of the list and its options: the same list applied again has the same one."""
        return objects.digest({key: self.to_object()[key] for key in ("pools", "options")})[:12]

    def to_object(self) -> dict[str, t.Any]:
        return {
            "applied": self.applied,
            "by": self.by,
            "options": dict(self.options),
            "pools": [pool.to_object() for pool in self.pools],
        }

    def to_dict(self) -> dict[str, t.Any]:
        """For people and programs that look at the history."""
        return {"digest": self.digest, **self.to_object()}

    def __str__(self) -> str:
        pools = ", ".join(pool.name for pool in self.pools)
        return f"{self.digest}: applied {self.applied} by {self.by}, {len(self.pools)} pool(s): {pools}"


@dataclass(frozen=True)
class OpenWave:
    """A wave that a run began, and whose gate has not passed since."""

    name: str
    nodes: tuple[str, ...]
    baseline: tuple[str, ...] = ()
    """What was wrong before it, which closes no gate."""
    back_to: str | None = None
    """What the run goes back to: the digest of a list, or NO_POOLS. None for a run that brings a list."""

    @property
    def id(self) -> str:
        """The same nodes on the same way have the same one."""
        return objects.digest([sorted(self.nodes), self.back_to])[:12]

    def __str__(self) -> str:
        return f"Wave {self.name} of {len(self.nodes)} node(s) was begun, and its gate has not passed: {listed(self.nodes)}"

    def to_object(self) -> dict[str, t.Any]:
        return {
            "name": self.name,
            "nodes": list(self.nodes),
            "baseline": list(self.baseline),
            "backTo": self.back_to,
        }


@dataclass(frozen=True)
class History:
    """``entries``: the newest last. ``going_to``: digest of the list that a rollback goes back to, until it is there.

    ``opened``: since the cluster had no pools. One without entries belongs to a first run that has not completed.
    ``waves``: those that are open, in the order in which they were begun.
    """

    entries: tuple[Entry, ...] = ()
    going_to: str | None = None
    opened: bool = False
    waves: tuple[OpenWave, ...] = ()

    def wave(self, number: str) -> OpenWave:
        """The open wave with this id.

        :raises InputErrors: when there is none.
        """
        found = next((wave for wave in self.waves if wave.id == number), None)
        if found is None:
            raise InputErrors([f"The history ConfigMap {names.HISTORY} has no open wave {number[:80]!r}; plan again."])
        return found

    def find(self, digest: str) -> Entry:
        """The latest entry with this digest.

        :raises InputErrors: when there is none.
        """
        found = next((entry for entry in reversed(self.entries) if entry.digest == digest), None)
        if found is None:
            known = listed(dict.fromkeys(entry.digest for entry in reversed(self.entries)))
            raise InputErrors(
                [f"The history ConfigMap {names.HISTORY} has no pool list {digest[:80]!r}; it has: {known or 'none'}."]
            )
        return found

    def target(self, recorded: t.Iterable[Pool]) -> Entry:
        """What to go back to when nobody says it.

        The list that an interrupted rollback was going to. Else the newest, when the cluster has other pools than it says
        because a run since then did not complete. Else the one before it.

        :param recorded: the pools that the cluster has.
        :raises InputErrors: when there is no such list.
        """
        going_to = next((entry for entry in reversed(self.entries) if entry.digest == self.going_to), None)
        if going_to is not None:
            return going_to
        if self.entries and _set(recorded) != _set(self.entries[-1].pools):
            return self.entries[-1]
        if len(self.entries) < 2:
            told = (
                f"There is no earlier pool list to go back to: the history ConfigMap {names.HISTORY} has "
                f"{len(self.entries)} list(s), and only a run that changes pools and completes adds one; run the playbook site "
                "with the list that you want, or remove."
            )
            raise InputErrors([told])
        return self.entries[-2]

    def before(self, entry: Entry, recorded: t.Collection[Pool]) -> str:
        """What a run of the list of ``entry`` goes back to when it fails: the digest of the newest list, or NO_POOLS.

        :param recorded: the pools that the cluster has.
        :raises InputErrors: when there is no such list, or nobody knows.
        """
        if not self.entries:
            if self.opened or not recorded:
                return NO_POOLS
            told = (
                f"the cluster has pools, but the history ConfigMap {names.HISTORY} does not say which list brought them"
            )
        elif self.entries[-1].digest != entry.digest:
            return self.entries[-1].digest
        else:
            told = "it brings the list that was applied last"
        raise InputErrors([f"The run has no list to go back to should a wave fail, and would stop there: {told}."])

    def has(self, entry: Entry) -> bool:
        """Whether a run of this list that has nothing to do can leave the history alone.

        Another order of its pools, or another answer for nodes that several select, is not worth a write: it changes nothing then.
        """
        if self.going_to is not None or self.waves or not self.entries:
            return False
        newest = self.entries[-1]
        same = all(newest.options[name] == entry.options[name] for name in OPTIONS if name != "overlap")
        return same and _set(newest.pools) == _set(entry.pools)

    def completed(self, entry: Entry) -> History:
        """The history after a run: its list is the newest, and no wave is open."""
        if self.entries and self.entries[-1].digest == entry.digest:
            return replace(self, going_to=None, waves=())
        return replace(self, entries=(*self.entries, entry), going_to=None, waves=())

    def begun(self, digest: str | None, recorded: t.Collection[Pool], *, afresh: bool = False) -> History:
        """The history while a run is under way: a rollback to the list ``digest``, or (None) one that brings a list.

        Waves of runs that went elsewhere are forgotten: their nodes are on another way now.

        :param recorded: the pools that the cluster has.
        :param afresh: to forget all open waves.
        """
        same_way = () if afresh else tuple(wave for wave in self.waves if wave.back_to == digest)
        known = replace(self, waves=same_way)
        if digest is not None:
            return replace(known, going_to=self.find(digest).digest)
        return known if self.entries or recorded else replace(known, opened=True)

    def wave_begun(self, wave: OpenWave) -> History:
        """The history while a wave is under way. One that an earlier run began keeps what was wrong before that."""
        if any(known.id == wave.id for known in self.waves):
            return self
        return replace(self, waves=(*self.waves, wave)[-MOST_WAVES:])

    def wave_done(self, number: str) -> History:
        """The history when the gate of the wave with this id has passed, or its nodes are back where they were."""
        return replace(self, waves=tuple(wave for wave in self.waves if wave.id != number))

    def to_data(self) -> dict[str, str]:
        """The ConfigMap's data: the oldest entries are left out until it is small enough, never the newest."""
        entries = [objects.canonical_json(entry.to_object()) for entry in self.entries[-MOST_ENTRIES:]]
        open_waves = [objects.canonical_json(wave.to_object()) for wave in self.waves]
        while len(entries) > 1 and _size(*entries, *open_waves) > MOST_BYTES:
            del entries[0]
        while open_waves and _size(*entries, *open_waves) > MOST_BYTES:
            del open_waves[0]
        data = {_ENTRIES: f"[{','.join(entries)}]"}
        if self.going_to:
            data[_GOING_TO] = self.going_to
        if self.opened:
            data[_OPENED] = "true"
        return {**data, _WAVES: f"[{','.join(open_waves)}]"} if open_waves else data

    def to_config_map(self, namespace: str) -> objects.Object:
        made = kinds.CONFIG_MAP.object(names.HISTORY, namespace, data=self.to_data())
        made["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        return made


def of(config_map: KubeObject | None) -> History:
    """The history in a ConfigMap. Lists that cannot be read (any more) are left out: a run must not fail on them.

    :raises InputErrors: when the ConfigMap is not ours.
    """
    if config_map is None:
        return History()
    metadata = config_map["metadata"]
    if not removal.is_managed(config_map):
        told = (
            f"ConfigMap {metadata.get('namespace')}/{names.HISTORY} is there but not ours (it lacks the label "
            f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}); delete or rename it, then run again."
        )
        raise InputErrors([told])
    data = config_map.get("data") or {}
    entries = (_entry(item) for item in _items(data, _ENTRIES))
    open_waves = (_wave(item) for item in _items(data, _WAVES))
    return History(
        tuple(entry for entry in entries if entry is not None),
        data.get(_GOING_TO),
        opened=data.get(_OPENED) == "true",
        waves=tuple(wave for wave in open_waves if wave is not None),
    )


def entry_of(pools: t.Sequence[Pool], recorded: t.Iterable[Pool], options: object, applied: str, by: str) -> Entry:
    """The entry for a run that has completed: its list, then the pools that the cluster kept besides.

    :param options: an object that has OPTIONS.
    """
    given = {pool.name for pool in pools}
    kept = [pool for pool in recorded if pool.name not in given]
    return Entry((*pools, *kept), FrozenMap({name: getattr(options, name) for name in OPTIONS}), applied, by)


def _items(data: t.Mapping[str, str], key: str) -> list[object]:
    try:
        written = json.loads(data.get(key) or "[]")
    except (ValueError, RecursionError):
        return []
    return written if isinstance(written, list) else []


def _entry(written: object) -> Entry | None:
    try:
        found = t.cast("dict[str, t.Any]", written)
        options = {name: found["options"][name] for name in OPTIONS}
        pools = tuple(restore_pool(pool) for pool in found["pools"])
        return Entry(pools, FrozenMap(options), str(found["applied"]), str(found["by"])) if pools else None
    except (InputErrors, KeyError, TypeError):
        return None


def _wave(written: object) -> OpenWave | None:
    try:
        found = t.cast("dict[str, t.Any]", written)
        back_to = found["backTo"]
        return OpenWave(
            str(found["name"]),
            tuple(map(str, found["nodes"])),
            tuple(map(str, found["baseline"])),
            None if back_to is None else str(back_to),
        )
    except (KeyError, TypeError):
        return None


def _size(*written: str) -> int:
    return sum(len(each.encode()) for each in written)


def _set(pools: t.Iterable[Pool]) -> set[str]:
    return {objects.canonical_json(pool.to_object()) for pool in pools}
