# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens on which node, in which wave and batch."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    assignment,
    daemonsets,
    history,
    kinds,
    names,
    waves,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import (
    Finding,
    InputErrors,
    listed,
    note,
    warning,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import KubeObject, Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.waves import natural

Action = t.Literal["move", "finish", "replace"]


@dataclass(frozen=True)
class Move:
    """What happens on one node.

    ``move``: another owner, by handover. ``replace``: same owner, its handler pod is made from an old template.
    ``finish``: a handover or (same owner) a replacement that an earlier run did not prove.
    """

    node: str
    source: str
    target: str
    action: Action

    def __str__(self) -> str:
        if self.action == "move":
            return f"Node {self.node}: {self.source} -> {self.target}"
        if self.action == "finish" and self.source == self.target:
            return f"Node {self.node}: finish the replacement of the handler of {self.target}"
        if self.action == "finish":
            return f"Node {self.node}: finish the handover to {self.target}"
        return f"Node {self.node}: replace the handler of {self.target}"

    def to_dict(self) -> dict[str, str]:
        return {"node": self.node, "from": self.source, "to": self.target, "action": self.action}


@dataclass(frozen=True)
class Wave:
    """``nodes``: all of the wave, those that are done included. ``batches``: what is left to do."""

    name: str
    number: int
    nodes: tuple[str, ...]
    batches: tuple[tuple[Move, ...], ...]
    held_back: int = 0
    """Nodes with something to do that cannot be done now."""
    open: str | None = None
    """Of a wave that an earlier run began, and whose gate has not passed since: its id in the history."""
    again: bool = False
    """Only a gate: its nodes are in other waves of this plan, since the waves changed after it was begun."""

    def touches(self, nodes: t.Collection[str]) -> bool:
        """Whether anything is to be done on one of these nodes."""
        return any(move.node in nodes for batch in self.batches for move in batch)

    @property
    def due(self) -> bool:
        """Whether there is anything to do, if only to pass its gate."""
        return bool(self.batches) or self.open is not None

    @property
    def left(self) -> int:
        """How many nodes are to be touched."""
        return sum(map(len, self.batches))

    @property
    def done(self) -> int:
        """How many nodes are as they should be."""
        return len(self.nodes) - self.left - self.held_back


def needed(
    snapshot: Snapshot, assigned: assignment.Assignment, desired: t.Mapping[str, KubeObject]
) -> tuple[tuple[Move, ...], list[Finding], frozenset[str]]:
    """The moves, what is held back as findings, and the nodes that are."""
    templates = {pool: daemonsets.template_of(ds) for pool, ds in desired.items()}
    moves = []
    waiting = []
    unproven = []
    for node in sorted(snapshot.nodes.values(), key=lambda n: natural(n.name)):
        owner = assigned.wanted[node.name]
        if node.name in assigned.blocked:
            continue
        if owner != node.owner:
            source = node.former_owner or names.PRIMARY if node.owner == names.IN_TRANSIT else node.owner
            moves.append(Move(node.name, source, owner, "move"))
        elif node.former_owner in (None, owner) and _outdated(snapshot, node.name, owner, templates.get(owner)):
            if node.ready:
                moves.append(Move(node.name, owner, owner, "replace"))
            else:
                waiting.append(node.name)
        elif node.former_owner is not None:
            if node.ready:
                moves.append(Move(node.name, node.former_owner, owner, "finish"))
            else:
                unproven.append(node.name)
    findings = []
    if unproven:
        findings.append(
            warning(
                "finish_held_back",
                f"{len(unproven)} new handler(s) were never proven, and cannot be now, because the nodes are not Ready: "
                f"{listed(unproven)}.",
            )
        )
    if waiting:
        findings.append(
            warning(
                "replacement_held_back",
                f"{len(waiting)} node(s) run a handler made from an old template but are not Ready, so it stays: "
                f"{listed(waiting)}.",
            )
        )
    order: dict[str, int] = {"finish": 0, "move": 1, "replace": 2}
    held = frozenset({*assigned.blocked, *unproven, *waiting})
    return tuple(sorted(moves, key=lambda m: order[m.action])), findings, held


def _outdated(snapshot: Snapshot, node: str, owner: str, template: str | None) -> bool:
    if template is None:
        return False
    daemonset = names.pool_daemonset_name(owner)
    pods = [p for p in snapshot.handlers.get(node, ()) if p.daemonset == daemonset and not p.terminating]
    return any(pod.template != template for pod in pods)


def members(snapshot: Snapshot, assigned: assignment.Assignment) -> tuple[waves.Member, ...]:
    """The nodes that waves are made of: all that pools have or will have, whatever is done already."""
    members = []
    for node in snapshot.nodes.values():
        wanted = assigned.wanted[node.name]
        if wanted != names.PRIMARY:
            members.append(waves.Member(node.name, node.labels, wanted))
        elif node.owner != names.PRIMARY or node.former_owner is not None:
            left = node.owner if node.owner not in (names.PRIMARY, names.IN_TRANSIT) else node.former_owner
            members.append(waves.Member(node.name, node.labels, left or names.PRIMARY, leaving=True))
    return tuple(members)


def by_wave(
    moves: t.Sequence[Move],
    held: t.Collection[str],
    members: t.Collection[waves.Member],
    assigned: assignment.Assignment,
    snapshot: Snapshot,
    options: Options,
) -> tuple[Wave, ...]:
    """All waves, with what is left to do in each."""
    found = []
    for number, wave in enumerate(waves.group(options.waves, members), 1):
        within = set(wave.nodes)
        left = [move for move in moves if move.node in within]
        batches = _batches(left, assigned, snapshot, options)
        found.append(Wave(wave.name, number, wave.nodes, batches, len(within.intersection(held))))
    return tuple(found)


def batches_of(in_waves: t.Iterable[Wave]) -> tuple[tuple[Move, ...], ...]:
    """What is left to do in all these waves, in order."""
    return tuple(batch for wave in in_waves for batch in wave.batches)


def reopened(in_waves: t.Sequence[Wave], snapshot: Snapshot, options: Options) -> tuple[Wave, ...]:
    """The waves with those that an earlier run began and did not prove.

    One that has other nodes now comes once more, as nothing but a gate, when nothing is left to do on its nodes.
    """
    found = list(in_waves)
    for wave in _open_waves(snapshot, options):
        there = tuple(node for node in wave.nodes if node in snapshot.nodes)
        same = [place for place, other in enumerate(found) if set(other.nodes) == set(there) and not other.again]
        if same:
            found[same[0]] = replace(found[same[0]], open=wave.id)
        elif there:
            name = waves.unused(f"{wave.name}, begun before", [other.name for other in found])
            busy = [place for place, other in enumerate(found, 1) if other.touches(there)]
            found.insert(max(busy, default=0), Wave(name, 0, there, (), open=wave.id, again=True))
    return tuple(replace(wave, number=number) for number, wave in enumerate(found, 1))


def _open_waves(snapshot: Snapshot, options: Options) -> tuple[history.OpenWave, ...]:
    """Those of runs on the same way."""
    if snapshot.admission is None or not snapshot.complete or options.accept_closed_gates:
        return ()
    try:
        known = history.of(snapshot.admission.objects.get((kinds.CONFIG_MAP.name, names.HISTORY)))
    except InputErrors:  # not ours, which whoever writes there says
        return ()
    return tuple(wave for wave in known.waves if wave.back_to == options.back_to)


def unproven(in_waves: t.Iterable[Wave]) -> t.Iterator[Finding]:
    for wave in in_waves:
        if wave.open is not None:
            yield note(
                "gate_open",
                f"Wave {wave.number} ({wave.name}) was begun by an earlier run, and its gate has not passed since: it must before "
                "the run goes on. What was wrong before that wave does not count; to accept what is wrong now, set "
                "virtpools_accept_closed_gates.",
            )


def ahead(snapshot: Snapshot, in_waves: t.Sequence[Wave], desired: t.Mapping[str, KubeObject]) -> t.Iterator[Finding]:
    """Handlers that were replaced before their wave: Kubernetes makes one that ends from the present template (OnDelete)."""
    begun: set[str] = set()
    for wave in in_waves:
        current = {pool: daemonsets.template_of(desired[pool]) for pool in begun}
        found = [
            node
            for node in wave.nodes
            if (pool := snapshot.nodes[node].owner) in begun
            and any(pod.template == current[pool] for pod in snapshot.handlers.get(node, ()))
        ]
        if found:
            yield warning(
                "handler_ahead",
                f"{len(found)} node(s) of wave {wave.number} ({wave.name}) run a handler from the new template already, while an "
                f"earlier wave is not done: {listed(found)}. It crashed or was deleted, or the node joined meanwhile.",
            )
        begun |= {move.target for batch in wave.batches for move in batch if move.action == "replace"}


def _batches(
    moves: t.Sequence[Move], assigned: assignment.Assignment, snapshot: Snapshot, options: Options
) -> tuple[tuple[Move, ...], ...]:
    """Moves in groups that run side by side: of every pool as many nodes as max_unavailable allows, or one node
    where VMs are migrated away before."""
    queues: dict[str, list[Move]] = {}
    for move in moves:
        queues.setdefault(_pool_of(move), []).append(move)
    limits = {pool: options.at_once(_size(pool, assigned, snapshot)) for pool in queues}
    order = {move.node: number for number, move in enumerate(moves)}
    batches = []
    while any(queues.values()):
        batch = []
        for pool, queue in queues.items():
            batch += queue[: limits[pool]]
            del queue[: limits[pool]]
        batches.append(tuple(sorted(batch, key=lambda move: order[move.node])))
    if options.drain.vms == "migrate":
        # VMs would be migrated among the nodes of a batch: emptied ones are what the scheduler likes best.
        return tuple((move,) for batch in batches for move in batch)
    return tuple(batches)


def _pool_of(move: Move) -> str:
    """The pool whose availability a move costs: the one it goes to, or leaves for the primary."""
    return move.target if move.target != names.PRIMARY else move.source


def _size(pool: str, assigned: assignment.Assignment, snapshot: Snapshot) -> int:
    owned = sum(1 for node in snapshot.nodes.values() if node.owner == pool)
    return max(len(assigned.nodes_of(pool)), owned)
