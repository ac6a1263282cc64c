# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Handing nodes over, and replacing handler pods: a batch of nodes side by side.

Never two handlers on a node: the old one must be *gone* before the node gets its new owner. Never none for long: all
that can be known or done before (node Ready, images pulled, migrations ended) comes before, and a new handler that does
not get Ready in time is taken back.

What happens on one node reads as one generator, from top to bottom; it yields wherever it must wait, and the loop gives
it the node's state each time round.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import (
    Cluster,
    ClusterError,
    Unreachable,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.lease import LeaseLost
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.waiting import Clock, Persistence
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writes import write_owner
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.schedule import Move
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import HandlerPod, Node

Result = t.Literal["done", "returned", "stuck", "failed"]

_LONGEST_PAUSE_SECONDS = 1.0

_PROBLEM_PATIENCE_SECONDS = 15.0
"""A container that waits with an error for so long will not start by itself in any useful time."""


@dataclass(frozen=True)
class Outcome:
    """What became of one node.

    ``done``; ``returned``: its former owner has it again; ``stuck``: an error in between, a person must look;
    ``failed``: a handler pod was replaced but does not get Ready. ``gap``: seconds from the moment the old handler was told to end until
    the next one was Ready, None when neither happened.
    """

    move: Move
    result: Result
    message: str = ""
    gap: float | None = None

    def __str__(self) -> str:
        without = "" if self.gap is None else f", {self.gap:.1f} s without a handler"
        return f"{self.move}{without}" if self.result == "done" else f"{self.move}: {self.result}: {self.message}"

    def to_dict(self) -> dict[str, t.Any]:
        return {
            **self.move.to_dict(),
            "result": self.result,
            "message": self.message,
            "seconds_without_handler": None if self.gap is None else round(self.gap, 1),
        }


@dataclass(frozen=True)
class Target:
    """Who is to own a node: ``daemonset`` makes its handler (None: none will run there), from ``template``."""

    owner: str
    daemonset: str | None
    template: str | None = None


@dataclass
class View:
    """A node as it is this time round; the node object is read only when asked for."""

    pods: tuple[HandlerPod, ...]
    read_node: t.Callable[[], Node]
    _node: Node | None = field(default=None, repr=False)

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = self.read_node()
        return self._node


Steps = t.Generator[None, View, Outcome]


@dataclass(frozen=True)
class Batch:
    """What all nodes of a batch share. ``timeout``: seconds for an old handler to end, and for a new one to get Ready."""

    cluster: Cluster
    namespace: str
    clock: Clock
    timeout: float

    def run(self, moves: t.Sequence[tuple[Move, Target, Target]]) -> list[Outcome]:
        """Carry out moves side by side; each comes with where the node goes, and where it goes back to on failure."""
        running = {move.node: _Steps(self, move, to, back).run() for move, to, back in moves}
        by_node = {move.node: move for move, _to, _back in moves}
        outcomes = []
        for steps in running.values():
            next(steps)
        for _pause in self.clock.pauses(longest=_LONGEST_PAUSE_SECONDS):
            pods = self._pods(list(running))
            for name in list(running):
                outcome = self._advance(running[name], by_node[name], pods.get(name, ()))
                if outcome is not None:
                    del running[name]
                    outcomes.append(outcome)
            if not running:
                break
        return outcomes

    def _advance(self, steps: Steps, move: Move, pods: tuple[HandlerPod, ...]) -> Outcome | None:
        """One round of one node. What fails on a node stays there: the others must not be left half way."""
        try:
            steps.send(View(pods, lambda: self._node(move.node)))
        except StopIteration as end:
            return t.cast(Outcome, end.value)
        except (LeaseLost, Unreachable):
            raise
        except ClusterError as error:
            return Outcome(move, "stuck", str(error))
        return None

    def _pods(self, nodes: t.Sequence[str]) -> dict[str, tuple[HandlerPod, ...]]:
        found: dict[str, tuple[HandlerPod, ...]] = {}
        for pod in live.handler_pods(self.cluster, self.namespace, nodes):
            handler = HandlerPod.of(pod)
            found[handler.node] = (*found.get(handler.node, ()), handler)
        return found

    def _node(self, name: str) -> Node:
        return Node.of(self.cluster.existing(kinds.NODE, name))


class _Steps:
    """What happens on one node."""

    def __init__(self, batch: Batch, move: Move, to: Target, back: Target) -> None:
        self._batch = batch
        self._clock = batch.clock
        self._move = move
        self._to = to
        self._back = back
        self._owner = to.owner  # whom the node belongs to as far as we know: another one was set by somebody else
        self._ended_at: float | None = None
        self._ready_at: float | None = None

    def run(self) -> t.Generator[None, View, Outcome]:
        view = yield
        if self._move.action == "replace":
            return (yield from self._replace(view))
        if self._move.action == "finish":
            problem, view = yield from self._handler_ready(self._to, None)
            return (yield from self._proven_or_back(problem, view))
        return (yield from self._hand_over(view))

    def _hand_over(self, view: View) -> t.Generator[None, View, Outcome]:
        # The plan may be older than waits for images and migrations.
        self._owner = names.IN_TRANSIT if view.node.owner == names.IN_TRANSIT else self._move.source
        self._write(view.node, names.IN_TRANSIT, self._move.source)
        self._ended_at = self._clock.now()
        problem, view = yield from self._handlers_gone()
        if problem is not None:
            self._write(view.node, self._back.owner, None)
            return self._outcome("returned", f"{problem}; the node stays with {self._back.owner}")
        self._write(view.node, self._to.owner, self._move.source)
        problem, view = yield from self._handler_ready(self._to, view.node.heartbeat)
        return (yield from self._proven_or_back(problem, view))

    def _proven_or_back(self, problem: str | None, view: View) -> t.Generator[None, View, Outcome]:
        """The end of a handover: forget the former owner when the new handler is proven, else go back to it."""
        if problem is not None and self._move.source == self._move.target:
            return self._outcome("failed", f"its handler was replaced, but {problem}")
        if problem is not None:
            return (yield from self._go_back(problem, view))
        self._write(view.node, self._to.owner, None)
        return self._outcome("done")

    def _go_back(self, problem: str, view: View) -> t.Generator[None, View, Outcome]:
        """The new handler does not get Ready: the same way backwards."""
        former = self._back.owner
        self._write(view.node, names.IN_TRANSIT, former)
        if self._ended_at is None:
            self._ended_at = self._clock.now()
        self._ready_at = None
        stuck, view = yield from self._handlers_gone()
        if stuck is not None:
            return self._outcome("stuck", f"{problem}; on the way back to {former}, {stuck}")
        self._write(view.node, former, former)
        stuck, view = yield from self._handler_ready(self._back, view.node.heartbeat)
        if stuck is not None:
            return self._outcome("stuck", f"{problem}; it went back to {former}, but {stuck}")
        self._write(view.node, former, None)
        return self._outcome("returned", f"{problem}; it went back to {former}")

    def _replace(self, view: View) -> t.Generator[None, View, Outcome]:
        old = [pod for pod in view.pods if pod.daemonset == self._to.daemonset and pod.template != self._to.template]
        # Read before: the next handler may be there, and have sent its own, before we see that the old one is gone.
        heartbeat = view.node.heartbeat if old else None
        if old:  # a run that dies now leaves a handler that nobody has seen Ready: noted as the end of a handover is
            self._write(view.node, self._to.owner, self._to.owner)
        for pod in old:
            if not pod.terminating:
                self._batch.cluster.delete(kinds.POD, pod.name, self._batch.namespace, uid=pod.uid, dry_run=False)
        self._ended_at = self._clock.now()
        problem, view = yield from self._handlers_gone(old)
        if problem is None:
            problem, view = yield from self._handler_ready(self._to, heartbeat)
        return (yield from self._proven_or_back(problem, view))

    # Waits: what did not happen, in words (None: it did), and the node as it was seen then

    def _handlers_gone(
        self, old: t.Sequence[HandlerPod] | None = None
    ) -> t.Generator[None, View, tuple[str | None, View]]:
        """Wait until these handler pods are gone; without ``old``, until the node has none at all."""
        give_up = self._clock.now() + self._batch.timeout
        while True:
            view = yield
            left = [pod for pod in view.pods if old is None or pod.uid in {each.uid for each in old}]
            if not left:
                return None, view
            if self._clock.now() >= give_up:
                pods = ", ".join(pod.name for pod in left)
                return (
                    f"handler pod {pods} did not end within {self._batch.timeout:.0f} s (does the node's kubelet work? "
                    "is somebody else's DaemonSet there?)"
                ), view

    def _handler_ready(self, wanted: Target, heartbeat: str | None) -> t.Generator[None, View, tuple[str | None, View]]:
        """Wait for the handler of ``wanted``: Ready, and the node schedulable with another heartbeat than this one."""
        give_up = self._clock.now() + self._batch.timeout
        problem = Persistence(self._clock, _PROBLEM_PATIENCE_SECONDS)
        while True:
            view = yield
            waiting_for = self._not_ready(view, wanted, heartbeat)
            if waiting_for is None:
                return None, view
            broken = next((pod.problem for pod in _made_by(wanted, view.pods) if pod.problem), None)
            if problem.lasts(broken is not None):
                return f"the handler of {wanted.owner} does not start: {broken}", view
            if self._clock.now() >= give_up:
                return f"{waiting_for} after {self._batch.timeout:.0f} s", view

    def _not_ready(self, view: View, wanted: Target, heartbeat: str | None) -> str | None:
        if wanted.daemonset is None:
            return None
        pods = _made_by(wanted, view.pods)
        if not pods:
            return f"DaemonSet {wanted.daemonset} had made no pod for the node"
        if not pods[0].ready:
            return f"handler pod {pods[0].name} was not Ready" + (f" ({pods[0].problem})" if pods[0].problem else "")
        if self._ready_at is None:
            self._ready_at = self._clock.now()
        if not view.node.schedulable:
            return f"handler pod {pods[0].name} was Ready, but the node was not {names.SCHEDULABLE_LABEL}=true"
        if heartbeat is not None and view.node.heartbeat == heartbeat:
            return f"handler pod {pods[0].name} was Ready, but had sent no heartbeat"
        return None

    def _write(self, node: Node, owner: str, former: str | None) -> None:
        """Give the node an owner, provided that it still has the one that this handover knows of."""
        if (node.owner, node.former_owner) != (owner, former):
            expected = replace(node, owner=self._owner)
            write_owner(self._batch.cluster, expected, owner, former)
        self._owner = owner

    def _outcome(self, result: Result, message: str = "") -> Outcome:
        gap = None
        if self._ended_at is not None:
            gap = (self._ready_at or self._clock.now()) - self._ended_at
        return Outcome(self._move, result, message, gap)


def _made_by(wanted: Target, pods: t.Iterable[HandlerPod]) -> list[HandlerPod]:
    """The pods that are to stay: made by the wanted DaemonSet from its present template."""
    return [
        pod
        for pod in pods
        if pod.daemonset == wanted.daemonset and not pod.terminating and wanted.template in (None, pod.template)
    ]
