# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Hands the nodes of a batch over, and replaces handler pods, all nodes side by side.

``node_handover`` has what happens on one node. Here is the loop that sends each node's state to its handover: after an
event of its handler pods, and now and then without one. Where events cannot be followed, it looks at every node once a
second. docs/design/handover.md explains this.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ...core.base import kinds
from ...core.base.findings import counted, listed
from ...core.base.objects import Object
from ...core.observed.handlers import HandlerPod, has_ended
from ...core.planning.batching import Move
from ..api import at_once, watch
from ..api.client import ClusterError, Unreachable
from ..api.lease import LeaseLost
from ..api.waiting import Persistence
from ..api.watch import Event, Watch
from ..reading import handler_work, live
from ..reading.handler_work import HandlerWork
from ..writing.node_owner import existing_node
from . import side_by_side
from .node_handover import Context, HandoverOutcome, NodeHandover, NodeView, Pause, Target

_FIRST_PAUSE_SECONDS = 0.5
_PAUSE_SECONDS = 1.0

_LOOK_SECONDS = 20.0
"""Poll interval without events, because events can be lost and timeouts must fire."""

_FOLLOW_SECONDS = 3600.0
"""How long a watch lasts until the server ends it. A batch lasts that long only when something is very wrong."""


_Jobs = dict[str, side_by_side.Job[Pause, NodeView, HandoverOutcome]]
"""The handovers that have not ended, by node."""


class Batch(Context):
    """A batch of nodes."""

    def run(
        self,
        moves: t.Sequence[tuple[Move, Target, Target]],
        handlers: t.Mapping[str, tuple[HandlerPod, ...]] | None = None,
    ) -> t.Iterator[HandoverOutcome]:
        """Carry out moves side by side. With each move come its target and the target to go back to on failure.

        Outcomes come as soon as they are known.

        :param handlers: the handler pods of these nodes, read a few seconds ago; None: they are read.
        :raises LeaseLost: when another run has the Lease.
        :raises ClusterError: when the API server, or the renewal of the Lease, fails for longer than ``timeout``.
        """
        running: _Jobs = {move.node: self._job(move, to, back) for move, to, back in moves}
        if not running:
            return
        for job in running.values():
            job.begin()
        self.clock.status.half_way(running)
        try:
            with contextlib.closing(self._follow()) as events:
                yield from self._run(running, events, _FirstLook(self, handlers))
        except LeaseLost as error:
            raise LeaseLost(f"{error}{_left(running)}") from error

    def _job(self, move: Move, to: Target, back: Target) -> side_by_side.Job[Pause, NodeView, HandoverOutcome]:
        return side_by_side.Job(
            NodeHandover(self, move, to, back).steps(), lambda error: HandoverOutcome.after_error(move, error)
        )

    def _follow(self) -> Watch:
        try:
            return self.cluster.follow(
                kinds.POD, self.namespace, label_selector=live.HANDLER_PODS, seconds=_FOLLOW_SECONDS
            )
        except ClusterError:
            return watch.NoWatch()

    def _run(self, running: _Jobs, events: Watch, first: _FirstLook) -> t.Iterator[HandoverOutcome]:
        outage = Persistence(self.clock, self.timeout)
        due_at = dict.fromkeys(running, self.clock.now())
        for woken in self._rounds(events):
            now = self.clock.now()
            due_at.update((name, now) for name in running if woken is None or name in woken)
            try:
                self.clock.beat()
                for outcome in self._round(running, due_at, first):
                    self.clock.status.half_way(running)
                    self.clock.status.say(str(outcome))
                    yield outcome
                self.clock.status.remind(lambda: _still(running))
            except LeaseLost:
                raise
            except ClusterError as error:
                if outage.lasts(True):
                    raise ClusterError(f"{error}{_left(running)}") from error
                continue
            outage.lasts(False)
            if not running:
                return

    def _rounds(self, events: Watch) -> t.Iterator[frozenset[str] | None]:
        """Rounds, a second apart or less: the nodes that may have got further, None for all.

        A proxy may keep events back. So they count once the first has come, which is soon: the old handlers are ended.
        """
        yield None
        pause = _FIRST_PAUSE_SECONDS
        they_come = False
        while True:
            told = events.wait(pause)
            they_come = they_come or bool(told)
            if told is None:
                self.clock.sleep(pause)
            yield frozenset(_node_to_look_at(event) for event in told) if told is not None and they_come else None
            pause = min(pause * 1.2, _PAUSE_SECONDS)

    def _round(self, running: _Jobs, due_at: dict[str, float], first: _FirstLook) -> t.Iterator[HandoverOutcome]:
        """One round of every node that is due; the outcomes of those that have ended, which are no longer running.

        :param due_at: when each node is looked at next, even without an event.
        :raises ClusterError: when a node or its handlers cannot be read. The nodes that are left stay due.
        """
        now = self.clock.now()
        due = [name for name in running if now >= due_at[name]]
        seen = [name for name in due if name in first.seen]
        # For that many nodes a list of all handlers is cheaper. Fewer are read side by side.
        listed = self.handlers(seen) if len(seen) > live.MOST_SINGLE_READS else None
        if len(seen) < len(due):
            first.look(running)

        def view_of(name: str) -> NodeView:
            view = first.view(name)
            if view is None:
                pods = (self.handlers([name]) if listed is None else listed).get(name, ())
                view = NodeView(pods, functools.partial(self.node, name), functools.partial(self.work, name))
            pause = running[name].wait
            if pause is not None and pause.node and any(pod.ready for pod in view.pods):
                view.read()
            return view

        for name, job in side_by_side.one_round(running, due, view_of, most=at_once.MOST, ends_round=_lacks_the_server):
            if job.outcome is not None:
                yield job.outcome
            elif job.wait is not None:
                due_at[name] = now if job.wait.soon else now + _LOOK_SECONDS

    def handlers(self, nodes: t.Collection[str]) -> dict[str, tuple[HandlerPod, ...]]:
        """The handler pods of some nodes, as they are now, by node."""
        by_node: dict[str, tuple[HandlerPod, ...]] = {}
        for handler in live.handlers(self.cluster, self.namespace, nodes):
            by_node[handler.node] = (*by_node.get(handler.node, ()), handler)
        return by_node

    def node(self, name: str) -> Object:
        """A node, as it is now. Raises NodeGone when it was deleted."""
        return existing_node(self.cluster.retrying_for(self.timeout), name)

    def work(self, node: str) -> HandlerWork:
        """What the handler of a node does for VMs now."""
        return handler_work.read(self.cluster, [node]).get(node, HandlerWork())


class _FirstLook:
    """The first look at each node: all nodes and their VMs are read in few requests, and their handler pods were just read for
    the plan."""

    def __init__(self, batch: Batch, handlers: t.Mapping[str, tuple[HandlerPod, ...]] | None) -> None:
        self._batch = batch
        self._given = handlers
        self._handlers: t.Mapping[str, tuple[HandlerPod, ...]] = {}
        self._nodes: dict[str, Object] = {}
        self._work: dict[str, HandlerWork] = {}
        self.seen: set[str] = set()

    def look(self, nodes: t.Collection[str]) -> None:
        """Read what the first views of these nodes need: once, or again where an outage has kept some nodes from theirs."""
        given, self._given = self._given, None
        self._nodes = {obj["metadata"]["name"]: obj for obj in live.nodes_named(self._batch.cluster, nodes)}
        self._handlers = self._batch.handlers(nodes) if given is None else given
        self._work = handler_work.read(self._batch.cluster, nodes)

    def view(self, name: str) -> NodeView | None:
        """The first view of a node, None after that."""
        if name in self.seen:
            return None
        self.seen.add(name)
        node = self._nodes.get(name)
        work = self._work.get(name, HandlerWork())
        return NodeView(
            self._handlers.get(name, ()),
            functools.partial(self._batch.node, name) if node is None else lambda: node,
            lambda: work,
        )


def _lacks_the_server(job: side_by_side.Job[Pause, NodeView, HandoverOutcome]) -> bool:
    """Whether the next node would wait as long for the server. The next round asks for this one first."""
    return isinstance(job.error or (job.wait and job.wait.problem), Unreachable)


def _node_to_look_at(event: Event) -> str:
    """The node on which an event may end a wait; no node's name for one that does not."""
    pod = HandlerPod.from_object(event.object)
    worth = event.gone or has_ended(event.object) or pod.problem or (pod.ready and not pod.terminating)
    return pod.node if worth else ""


def _still(running: _Jobs) -> str:
    """What nodes wait for, for a person who watches."""
    waits = (f"{name}: {job.wait.waiting_for}" for name, job in running.items() if job.wait is not None)
    return f"{counted(len(running), 'node is', 'nodes are')} not done: {listed(waits)}"


def _left(running: t.Collection[str]) -> str:
    """A sentence on the nodes that were given up."""
    nodes = listed(sorted(running))
    return f" The handover of {nodes} was not finished, and they may have no virt-handler: run the same playbook again to finish."
