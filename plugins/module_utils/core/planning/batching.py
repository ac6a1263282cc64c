# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The moves of a plan: what happens on each node, in which wave and in which batch."""

from __future__ import annotations

import collections
import itertools
import typing as t
from dataclasses import dataclass, replace

from ..base import names
from ..base.findings import Finding, InputErrors, counted, listed, note, warning
from ..base.objects import KubeObject
from ..kubevirt import daemonsets, handler_fit
from ..observed.nodes import Node
from ..observed.snapshot import Snapshot
from . import assignment, history, waves
from .options import Drain, Options
from .waves import natural

Action = t.Literal["move", "finish", "replace"]


@dataclass(frozen=True)
class Move:
    """What happens on one node.

    ``move``: a handover gives it another owner. ``replace``: the owner stays, and its handler pod, which was made from an old
    template, is replaced. ``finish``: an earlier run did not prove its handover, or (same owner) its replacement, or the
    run creates the owner's DaemonSet, which another client has deleted.
    """

    node: str
    source: str
    target: str
    action: Action

    @property
    def leaves_pool(self) -> bool:
        return self.source not in (names.PRIMARY, self.target)

    def __str__(self) -> str:
        return f"Node {self.node}: {self.what}"

    @property
    def what(self) -> str:
        """What happens, without the node."""
        if self.action == "move":
            return f"{self.source} -> {self.target}"
        if self.action == "finish" and self.source == self.target != names.PRIMARY:
            return f"finish the replacement of the handler of {self.target}"
        if self.action == "finish":
            return f"finish the handover to {self.target}"
        return f"replace the handler of {self.target}"

    def to_dict(self) -> dict[str, str]:
        return {"node": self.node, "from": self.source, "to": self.target, "action": self.action}

    @classmethod
    def from_argument(cls, move: t.Mapping[str, t.Any]) -> Move:
        """What ``to_dict`` gave.

        :raises InputErrors: when it is something else.
        """
        try:
            return cls(*(move[key] for key in ("node", "from", "to", "action")))
        except KeyError as error:
            raise InputErrors(["next_batch is not what plan_info returned; give that, or leave it out."]) from error


@dataclass(frozen=True)
class Wave:
    """A part of a rollout, with a gate at its end."""

    name: str
    number: int
    nodes: tuple[str, ...]
    """All nodes of the wave, also those that are done."""
    batches: tuple[tuple[Move, ...], ...]
    """What is left to do."""
    held_back: int = 0
    """How many nodes should change but cannot now."""
    open: str | None = None
    """The wave's id in the history, when an earlier run began it and its gate has not passed since."""
    gate_only: bool = False
    """The wave is nothing but a gate: the waves changed after it was begun, and its nodes are in other waves of this plan."""

    def touches(self, nodes: t.Collection[str]) -> bool:
        """Whether the wave changes one of these nodes."""
        return any(move.node in nodes for batch in self.batches for move in batch)

    @property
    def due(self) -> bool:
        """Whether there is anything to do, even if it is only to pass the gate."""
        return bool(self.batches) or self.open is not None

    @property
    def remaining(self) -> int:
        """How many nodes are still to change."""
        return sum(map(len, self.batches))

    @property
    def done(self) -> int:
        """How many nodes are as they should be."""
        return len(self.nodes) - self.remaining - self.held_back


def plan_moves(
    snapshot: Snapshot, assigned: assignment.Assignment, desired: t.Mapping[str, KubeObject]
) -> tuple[tuple[Move, ...], list[Finding], frozenset[str]]:
    """The moves, findings on the nodes that are held back, and the names of these nodes."""
    templates = {pool: daemonsets.template_of(ds) for pool, ds in desired.items()}
    moves = []
    unreplaced: dict[str, list[str]] = {}
    unproven = []
    for node in sorted(snapshot.nodes.values(), key=lambda n: natural(n.name)):
        owner = assigned.wanted[node.name]
        if node.name in assigned.blocked:
            continue
        if owner != node.owner:
            source = node.former_owner or names.PRIMARY if node.owner == names.IN_TRANSIT else node.owner
            moves.append(Move(node.name, source, owner, "move"))
        elif node.former_owner in (None, owner) and _outdated(snapshot, node.name, owner, templates.get(owner)):
            refused = handler_fit.refusal(desired[owner]["spec"]["template"], node)
            if refused is None:
                moves.append(Move(node.name, owner, owner, "replace"))
            elif node.former_owner is None or not node.ready:
                unreplaced.setdefault(refused, []).append(node.name)
            else:
                moves.append(Move(node.name, owner, owner, "finish"))
        elif node.former_owner is not None:
            if node.ready:
                moves.append(Move(node.name, node.former_owner, owner, "finish"))
            else:
                unproven.append(node.name)
        elif _awaits_daemonset(snapshot, node, desired):
            moves.append(Move(node.name, owner, owner, "finish"))
    findings = []
    if unproven:
        findings.append(
            warning(
                "handover_held_back",
                f"{counted(len(unproven), 'node has', 'nodes have')} a new handler that was never proven, and cannot "
                f"be proven while the node is not Ready: {listed(unproven)}.",
            )
        )
    for reason, nodes in unreplaced.items():
        findings.append(
            warning(
                "replacement_held_back",
                f"{counted(len(nodes), 'node runs', 'nodes run')} a handler created from an old template, which stays because {reason}: {listed(nodes)}.",
            )
        )
    order: dict[str, int] = {"finish": 0, "move": 1, "replace": 2}
    held = frozenset({*assigned.blocked, *unproven, *itertools.chain(*unreplaced.values())})
    return tuple(sorted(moves, key=lambda m: order[m.action])), findings, held


def _awaits_daemonset(snapshot: Snapshot, node: Node, desired: t.Mapping[str, KubeObject]) -> bool:
    """Whether the node gets a handler when the run creates the DaemonSet of its pool, which another client has deleted."""
    if node.owner in snapshot.pools or node.owner not in desired:
        return False
    return node.ready and handler_fit.refusal(desired[node.owner]["spec"]["template"], node) is None


def _outdated(snapshot: Snapshot, node: str, owner: str, template: str | None) -> bool:
    if template is None:
        return False
    daemonset = names.pool_daemonset_name(owner)
    pods = [p for p in snapshot.handlers.get(node, ()) if p.daemonset == daemonset and not p.terminating]
    return any(pod.template != template for pod in pods)


def left_behind(
    snapshot: Snapshot, batches: t.Iterable[t.Iterable[Move]], desired: t.Mapping[str, KubeObject]
) -> dict[str, list[str]]:
    """The nodes that take VMs and have an older handler of their pool, which these batches do not replace, by pool."""
    moved = {move.node for batch in batches for move in batch}
    templates = {pool: daemonsets.template_of(ds) for pool, ds in desired.items()}
    found: dict[str, list[str]] = {}
    for node in snapshot.nodes.values():
        takes_vms = node.ready and node.schedulable and not node.pressure and not node.cordoned
        if (
            takes_vms
            and node.name not in moved
            and _outdated(snapshot, node.name, node.owner, templates.get(node.owner))
        ):
            found.setdefault(node.owner, []).append(node.name)
    return found


def members(snapshot: Snapshot, assigned: assignment.Assignment) -> tuple[waves.Member, ...]:
    """The nodes that waves are made of: all that pools have, will have, or have with the newest list of the history, so that a
    node that has left its pool stays in its wave."""
    entries = history.recorded_in(snapshot).entries
    before = assignment.selected(snapshot.nodes, entries[-1].pools if entries else ())
    members = []
    for node in snapshot.nodes.values():
        wanted = assigned.wanted[node.name]
        if wanted != names.PRIMARY:
            members.append(waves.Member(node.name, node.labels, wanted))
        elif node.owner != names.PRIMARY or node.former_owner is not None or node.name in before:
            former = node.owner if node.owner not in (names.PRIMARY, names.IN_TRANSIT) else node.former_owner
            pool = former or before.get(node.name, names.PRIMARY)
            members.append(waves.Member(node.name, node.labels, pool, leaving=True))
    return tuple(members)


def sort_into_waves(
    moves: t.Sequence[Move],
    held: t.Collection[str],
    groups: t.Iterable[waves.Group],
    assigned: assignment.Assignment,
    snapshot: Snapshot,
    options: Options,
) -> tuple[Wave, ...]:
    """All waves, with what is left to do in each.

    :param held: the nodes that should change but cannot now.
    """
    in_waves = []
    for number, group in enumerate(groups, 1):
        nodes = set(group.nodes)
        of_wave = [move for move in moves if move.node in nodes]
        batches = _batches(of_wave, assigned, snapshot, options)
        in_waves.append(
            Wave(
                name=group.name,
                number=number,
                nodes=group.nodes,
                batches=batches,
                held_back=len(nodes.intersection(held)),
            )
        )
    return tuple(in_waves)


def batches_of(in_waves: t.Iterable[Wave]) -> tuple[tuple[Move, ...], ...]:
    """What is left to do in all these waves, in order."""
    return tuple(batch for wave in in_waves for batch in wave.batches)


def open_waves(snapshot: Snapshot, options: Options) -> tuple[history.OpenWave, ...]:
    """The open waves of runs that led to the same place: that brought a list, or went back to the same former list."""
    if not snapshot.complete or options.skip_pending_gates:
        return ()
    return tuple(wave for wave in history.recorded_in(snapshot).waves if wave.back_to == options.back_to)


def begun_apart(
    groups: t.Sequence[waves.Group], begun: t.Iterable[history.OpenWave], moves: t.Iterable[Move], snapshot: Snapshot
) -> tuple[waves.Group, ...]:
    """The waves, and apart from them those that an earlier run began with other waves and did not prove.

    Else ``site`` after a rollout that stopped would change all nodes before the gate of that rollout's wave. One that is nothing but
    a gate comes first of all. One whose nodes have to change comes right before the others of their wave: waves before that one,
    such as canaries of a newer list, stay first. An open wave stays in the given waves if its nodes are in several of these: they
    may be there to put some of its nodes last.
    """
    changing = {move.node for move in moves}
    gates: list[waves.Group] = []
    left = list(groups)
    for wave in begun:
        nodes = _present(wave, snapshot)
        inside = frozenset(nodes)
        index = next((at for at, group in enumerate(left) if inside and inside < frozenset(group.nodes)), None)
        if index is None:
            continue
        apart = waves.Group(_begun_name(wave, [*gates, *left]), nodes)
        others = tuple(node for node in left[index].nodes if node not in inside)
        left[index] = replace(left[index], nodes=others)
        if inside & changing:
            left.insert(index, apart)
        else:
            gates.append(apart)
    return (*gates, *left)


def with_open_waves(
    in_waves: t.Sequence[Wave], begun: t.Iterable[history.OpenWave], snapshot: Snapshot
) -> tuple[Wave, ...]:
    """The waves together with those that an earlier run began and did not prove.

    An open wave whose nodes make up a wave of this plan is that wave. Any other is added as nothing but a gate, after the last
    wave that changes one of its nodes.
    """
    merged = list(in_waves)
    for wave in begun:
        nodes = _present(wave, snapshot)
        same = [index for index, other in enumerate(merged) if set(other.nodes) == set(nodes) and not other.gate_only]
        if same:
            merged[same[0]] = replace(merged[same[0]], open=wave.id)
        elif nodes:
            name = _begun_name(wave, merged)
            touching = [number for number, other in enumerate(merged, 1) if other.touches(nodes)]
            merged.insert(
                max(touching, default=0),
                Wave(name=name, number=0, nodes=nodes, batches=(), open=wave.id, gate_only=True),
            )
    return tuple(replace(wave, number=number) for number, wave in enumerate(merged, 1))


def _present(wave: history.OpenWave, snapshot: Snapshot) -> tuple[str, ...]:
    """The nodes of the wave that still exist."""
    return tuple(node for node in wave.nodes if node in snapshot.nodes)


def _begun_name(wave: history.OpenWave, others: t.Iterable[waves.Group | Wave]) -> str:
    return waves.unused(f"{wave.name}, begun before", [other.name for other in others])


def pending_gates(in_waves: t.Iterable[Wave]) -> t.Iterator[Finding]:
    for wave in in_waves:
        if wave.open is not None:
            yield note(
                "gate_pending",
                f"An earlier run began wave {wave.number} ({wave.name}), and its gate has not passed since: it must pass before "
                "this run goes on. Problems that existed before the wave are ignored; to accept those that exist now, set "
                "virtpools_skip_pending_gates.",
            )


def early_replacements(
    snapshot: Snapshot, in_waves: t.Sequence[Wave], desired: t.Mapping[str, KubeObject]
) -> t.Iterator[Finding]:
    """Handlers that were replaced before their wave.

    With the update strategy OnDelete, the DaemonSet controller makes every new pod from the present template (Kubernetes).
    """
    unfinished: set[str] = set()
    for wave in in_waves:
        templates = {pool: daemonsets.template_of(desired[pool]) for pool in unfinished}
        early = [node for node in wave.nodes if _has_handler_from(templates, snapshot, node)]
        if early:
            yield warning(
                "handler_replaced_early",
                f"Wave {wave.number} ({wave.name}) has {counted(len(early), 'node')} that already "
                f"{'runs' if len(early) == 1 else 'run'} a handler from the new template, while an "
                f"earlier wave is not done: {listed(early)}. The old handler crashed or was deleted, or the node joined since.",
            )
        unfinished |= {move.target for batch in wave.batches for move in batch if move.action == "replace"}


def _has_handler_from(templates: t.Mapping[str, str | None], snapshot: Snapshot, node: str) -> bool:
    """Whether the node has a handler from its pool's template, of these templates by pool."""
    pool = snapshot.nodes[node].owner
    pods = snapshot.handlers.get(node, ())
    return pool in templates and any(pod.template == templates[pool] for pod in pods)


def _batches(
    moves: t.Sequence[Move], assigned: assignment.Assignment, snapshot: Snapshot, options: Options
) -> tuple[tuple[Move, ...], ...]:
    """Moves in groups that run side by side: of every pool as many nodes as max_unavailable allows, or a single node where
    VMs are migrated away first."""
    order = {move.node: number for number, move in enumerate(moves)}
    queues: dict[frozenset[str], collections.deque[Move]] = {}
    for move in moves:
        queues.setdefault(_pools_of(move), collections.deque()).append(move)
    wanted = collections.Counter(assigned.wanted.values())
    owned = collections.Counter(node.owner for node in snapshot.nodes.values())
    limits = {pool: options.unavailable_of(max(wanted[pool], owned[pool])) for pool in frozenset().union(*queues)}
    batches: list[tuple[Move, ...]] = []
    while left := [pools for pools, queue in queues.items() if queue]:
        batch: list[Move] = []
        free = dict(limits)
        for pools in sorted(left, key=lambda pools: order[queues[pools][0].node]):
            for _place in range(min(len(queues[pools]), *(free[pool] for pool in pools))):
                batch.append(queues[pools].popleft())
                free.update({pool: free[pool] - 1 for pool in pools})
        batch.sort(key=lambda move: order[move.node])
        if any(drain_of(move, options.drain, options.drain_of_pools).vms == "migrate" for move in batch):
            # Else VMs would be migrated from one node of the batch to another: the scheduler prefers emptied nodes.
            batches += [(move,) for move in batch]
        else:
            batches.append(tuple(batch))
    return tuple(batches)


def drain_of(move: Move, drain: Drain, of_pools: Drain) -> Drain:
    """What happens to the VMs on a node before this move.

    :param of_pools: what does where the node leaves a pool.
    """
    return of_pools if move.leaves_pool else drain


def _pools_of(move: Move) -> frozenset[str]:
    """The pools of which a node is unavailable during a move: the one that loses it, if it has it still, and the one that gets it.

    No limit holds for the primary, unless a handover that gives it its own node back is finished.
    """
    pools = {move.target} if move.action == "finish" else {move.source, move.target}
    return frozenset(pools - {names.PRIMARY} or {move.source})
