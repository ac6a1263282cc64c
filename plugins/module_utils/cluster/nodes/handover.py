# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Hands the nodes of a batch over, and replaces handler pods, all nodes side by side.

What happens on one node is one generator. It yields where it waits, and the loop sends it the node's state.
docs/design/handover.md says why.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t
from dataclasses import dataclass, replace

from ...core.base import kinds, names
from ...core.base.findings import listed
from ...core.base.objects import KubeObject, Object
from ...core.kubevirt import handler_fit
from ...core.observed.handlers import HandlerPod
from ...core.observed.nodes import Node
from ...core.planning.schedule import Move
from ..api import watch
from ..api.client import Cluster, ClusterError, DeleteOptions, NotFound, Unreachable
from ..api.lease import LeaseLost
from ..api.waiting import Clock, Persistence
from ..api.watch import Event, Watch
from ..reading import live
from ..writing.writes import OwnerChanged, write_owner

HandoverResult = t.Literal["done", "untouched", "returned", "stuck", "failed"]

_FIRST_PAUSE_SECONDS = 0.5
_PAUSE_SECONDS = 1.0

_LOOK_SECONDS = 20.0
"""A node is looked at after so long without an event: events may be lost, and times run out."""

_FOLLOW_SECONDS = 3600.0
"""The server ends a watch after so long. A batch lasts that long only when something is very wrong."""

_PROBLEM_PATIENCE_SECONDS = 15.0
"""A container that waits with an error for so long will not start by itself soon enough."""


@dataclass(frozen=True)
class HandoverOutcome:
    """What happened to one node.

    ``untouched``: the node changed since the plan, and would not get a handler now. ``returned``: the former owner has the
    node again. ``stuck``: an error half-way, a person must look. ``failed``: a
    handler pod was replaced but does not get Ready. ``gap``: seconds from the moment when the old handler was told to
    end until the next one was Ready; None when no handler was told to end.
    """

    move: Move
    result: HandoverResult
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
    """The future owner of a node. Its ``daemonset`` makes the handler from ``pod``, the template with the digest ``template``;
    None: no handler will run."""

    owner: str
    daemonset: str | None
    template: str | None = None
    pod: KubeObject | None = None

    def refusal(self, node: Node) -> str | None:
        """Why the DaemonSet would not start a handler on the node now; None when it would, or need not."""
        return handler_fit.refusal(self.pod, node) if self.pod is not None and self.daemonset is not None else None


@dataclass
class NodeView:
    """The state of a node in one round; the Node object is read only when it is needed."""

    pods: tuple[HandlerPod, ...]
    read_node: t.Callable[[], Object]

    @functools.cached_property
    def node_object(self) -> Object:
        return self.read_node()

    @functools.cached_property
    def node(self) -> Node:
        return Node.from_object(self.node_object)

    def read(self) -> Object | None:
        """The node, read now at the latest. One that does not exist is an error only for who looks at it.

        :raises ClusterError: when it cannot be read, after which one may try again.
        """
        try:
            return self.node_object
        except NotFound:
            return None


@dataclass(frozen=True)
class Pause:
    """Where a node waits. ``soon``: look at it in the next round, even without an event. ``node``: the Node object will count
    once a handler is Ready. ``problem``: the error because of which it tries again."""

    soon: bool = False
    node: bool = False
    problem: ClusterError | None = None


Steps: t.TypeAlias = "t.Generator[Pause, NodeView, HandoverOutcome]"
"""What happens on one node. It yields where it must wait."""


@dataclass(frozen=True)
class Batch:
    """A batch of nodes. ``timeout``: seconds for an old handler to end, and again for a new one to get Ready."""

    cluster: Cluster
    namespace: str
    clock: Clock
    timeout: float

    def run(
        self,
        moves: t.Sequence[tuple[Move, Target, Target]],
        handlers: t.Mapping[str, tuple[HandlerPod, ...]] | None = None,
    ) -> list[HandoverOutcome]:
        """Carry out moves side by side. With each move come its target and the target to go back to on failure.

        :param handlers: the handler pods of these nodes, read a few seconds ago; None: they are read.
        :raises LeaseLost: when another run has the Lease.
        :raises ClusterError: when the API server, or the renewal of the Lease, fails for longer than ``timeout``.
        """
        running = {move.node: _Running(move, _Steps(self, move, to, back).run()) for move, to, back in moves}
        outcomes: list[HandoverOutcome] = []
        if not running:
            return outcomes
        for node in running.values():
            next(node.steps)
        try:
            with contextlib.closing(self._follow()) as events:
                self._run(running, events, _FirstLook(self, handlers), outcomes)
        except LeaseLost as error:
            raise LeaseLost(f"{error}{_left(running)}") from error
        return outcomes

    def _follow(self) -> Watch:
        try:
            return self.cluster.follow(
                kinds.POD, self.namespace, label_selector=live.HANDLER_PODS, seconds=_FOLLOW_SECONDS
            )
        except ClusterError:
            return watch.NoWatch()

    def _run(
        self, running: dict[str, _Running], events: Watch, first: _FirstLook, outcomes: list[HandoverOutcome]
    ) -> None:
        outage = Persistence(self.clock, self.timeout)
        for woken in self._rounds(events):
            try:
                self.clock.beat()
                now = self.clock.now()
                for name, each in running.items():
                    if woken is None or name in woken:
                        each.due = now
                outcomes += self._round(running, first)
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

    def _round(self, running: dict[str, _Running], first: _FirstLook) -> t.Iterator[HandoverOutcome]:
        """One round of every node that is due; the outcomes of those that have ended, which are no longer running.

        :raises ClusterError: when a node or its handlers cannot be read. The nodes that are left stay due.
        """
        now = self.clock.now()
        due = [name for name, each in running.items() if now >= each.due]
        handlers = self.handlers([name for name in due if name in first.seen])
        for name in due:
            view = first.view(name, running) or NodeView(handlers.get(name, ()), functools.partial(self.node, name))
            if running[name].pause.node and any(pod.ready for pod in view.pods):
                view.read()
            ended, pause = self._advance(running[name], view)
            if ended is not None:
                del running[name]
                yield ended
            else:
                running[name].pause = pause
                running[name].due = now if pause.soon else now + _LOOK_SECONDS
            if isinstance(pause.problem, Unreachable):
                break  # The next node would wait as long for the server. The next round asks for it first.

    def _advance(self, node: _Running, view: NodeView) -> tuple[HandoverOutcome | None, Pause]:
        """One round of one node: its outcome when it has ended, and how it waits. An error of one node must not stop the others
        half-way."""
        try:
            return None, node.steps.send(view)
        except StopIteration as end:
            return t.cast(HandoverOutcome, end.value), Pause()
        except LeaseLost:
            raise
        except ClusterError as error:
            return HandoverOutcome(node.move, "stuck", str(error)), Pause(problem=error)

    def handlers(self, nodes: t.Collection[str]) -> dict[str, tuple[HandlerPod, ...]]:
        """The handler pods of some nodes, as they are now, by node."""
        by_node: dict[str, tuple[HandlerPod, ...]] = {}
        for pod in live.handler_pods(self.cluster, self.namespace, nodes):
            handler = HandlerPod.from_object(pod)
            by_node[handler.node] = (*by_node.get(handler.node, ()), handler)
        return by_node

    def node(self, name: str) -> Object:
        """A node, as it is now."""
        return self.cluster.retrying_for(self.timeout).existing(kinds.NODE, name)


@dataclass
class _Running:
    """A node whose steps have not ended. ``pause``: where it waits. ``due``: when it is looked at without an event."""

    move: Move
    steps: Steps
    pause: Pause = Pause()
    due: float = 0.0


class _FirstLook:
    """The first look at each node: all nodes are read in few requests, and their handler pods were just read for the plan."""

    def __init__(self, batch: Batch, handlers: t.Mapping[str, tuple[HandlerPod, ...]] | None) -> None:
        self._batch = batch
        self._handlers = handlers
        self._nodes: dict[str, Object] | None = None
        self.seen: set[str] = set()

    def view(self, name: str, nodes: t.Collection[str]) -> NodeView | None:
        """The first view of a node, None after that."""
        if name in self.seen:
            return None
        if self._nodes is None:
            self._nodes = {obj["metadata"]["name"]: obj for obj in live.nodes_named(self._batch.cluster, nodes)}
        if self._handlers is None:
            self._handlers = self._batch.handlers(nodes)
        self.seen.add(name)
        node = self._nodes.get(name)
        return NodeView(
            self._handlers.get(name, ()), functools.partial(self._batch.node, name) if node is None else lambda: node
        )


def _node_to_look_at(event: Event) -> str:
    """The node on which an event may end a wait; no node's name for one that does not."""
    pod = HandlerPod.from_object(event.object)
    worth = event.gone or pod.problem or (pod.ready and not pod.terminating)
    return pod.node if worth else ""


def _left(running: t.Collection[str]) -> str:
    """A sentence on the nodes that were given up."""
    return f" The handover of {listed(sorted(running))} was not finished, and they may have no virt-handler: run site, which finishes it."


class _Steps:
    """What happens on one node."""

    def __init__(self, batch: Batch, move: Move, to: Target, back: Target) -> None:
        self._batch = batch
        self._clock = batch.clock
        self._move = move
        self._to = to
        self._back = back
        self._owner = to.owner  # the owner that we last saw or wrote: any other owner was set by somebody else
        self._live: Object = {}  # the node as it was when we read or wrote it last
        self._ended_at: float | None = None
        self._ready_at: float | None = None

    def run(self) -> Steps:
        view = yield Pause()
        if self._move.action == "replace":
            return (yield from self._replace(view))
        if self._move.action == "finish":
            return (yield from self._prove(view))
        return (yield from self._hand_over(view))

    def _hand_over(self, view: NodeView) -> Steps:
        # The node may have changed since the plan, while the batch waited for images and migrations.
        self._look(view)
        self._owner = names.IN_TRANSIT if view.node.owner == names.IN_TRANSIT else self._move.source
        refused = self._to.refusal(view.node)
        if refused and view.pods:
            return self._untouched(refused)
        self._write(names.IN_TRANSIT, self._move.source)
        self._ended_at = self._clock.now()
        problem, view = yield from self._handlers_gone(view)
        if problem is not None:
            yield from self._persist(self._back.owner, None)
            return self._outcome("returned", f"{problem}; the node stays with {self._back.owner}")
        yield from self._persist(self._to.owner, self._move.source)
        problem, view = yield from self._handler_ready(self._to)
        return (yield from self._finish(problem, view))

    def _finish(self, problem: str | None, view: NodeView) -> Steps:
        """The end of a handover: remove the former owner when the new handler is Ready, else go back to that owner."""
        if problem is not None and self._move.source == self._move.target:
            return self._outcome("failed", f"its handler was replaced, but {problem}")
        if problem is not None:
            return (yield from self._go_back(problem, view))
        yield from self._persist(self._to.owner, None)
        return self._outcome("done")

    def _go_back(self, problem: str, view: NodeView) -> Steps:
        """The new handler does not get Ready: hand the node back to its former owner."""
        former = self._back.owner
        refused = self._back.refusal(view.node)
        if refused:
            return self._outcome("stuck", f"{problem}; it cannot go back to {former}, because {refused}")
        yield from self._persist(names.IN_TRANSIT, former)
        if self._ended_at is None:
            self._ended_at = self._clock.now()
        self._ready_at = None
        stuck, view = yield from self._handlers_gone(view)
        if stuck is not None:
            return self._outcome("stuck", f"{problem}; on the way back to {former}, {stuck}")
        yield from self._persist(former, former)
        stuck, view = yield from self._handler_ready(self._back)
        if stuck is not None:
            return self._outcome("stuck", f"{problem}; it went back to {former}, but {stuck}")
        yield from self._persist(former, None)
        return self._outcome("returned", f"{problem}; it went back to {former}")

    def _replace(self, view: NodeView) -> Steps:
        self._look(view)
        old = self._outdated(view)
        refused = self._to.refusal(view.node)
        if refused and old:
            return self._untouched(refused)
        if old:
            # If this run dies, the next one finishes the replacement like a handover: it must see the handler Ready.
            self._write(self._to.owner, self._to.owner)
        problem, view = yield from self._renewed(view, old, self._to)
        return (yield from self._finish(problem, view))

    def _prove(self, view: NodeView) -> Steps:
        """A handover that an earlier run did not prove; its handler may be from a template that has changed since."""
        self._look(view)
        old, wanted = self._outdated(view), self._to
        if old and wanted.refusal(view.node):
            old, wanted = [], replace(wanted, template=None)
        problem, view = yield from self._renewed(view, old, wanted)
        return (yield from self._finish(problem, view))

    def _outdated(self, view: NodeView) -> list[HandlerPod]:
        return [pod for pod in view.pods if pod.daemonset == self._to.daemonset and pod.template != self._to.template]

    def _renewed(
        self, view: NodeView, old: t.Sequence[HandlerPod], wanted: Target
    ) -> t.Generator[Pause, NodeView, tuple[str | None, NodeView]]:
        """Delete old handlers, and wait until the wanted one is Ready."""
        for pod in old:
            if not pod.terminating:
                only_it = DeleteOptions(uid=pod.uid)
                self._batch.cluster.delete(kinds.POD, pod.name, self._batch.namespace, only_it, dry_run=False)
        if old:
            self._ended_at = self._clock.now()
            problem, view = yield from self._handlers_gone(view, old)
            if problem is not None:
                return problem, view
        return (yield from self._handler_ready(wanted))

    # Waits. They return what did not happen, as a clause (None: it happened), and the last state of the node.

    def _handlers_gone(
        self, view: NodeView, old: t.Sequence[HandlerPod] | None = None
    ) -> t.Generator[Pause, NodeView, tuple[str | None, NodeView]]:
        """Wait until these handler pods are gone; without ``old``, until the node has no handler pod."""
        give_up = self._clock.now() + self._batch.timeout
        while True:
            view = yield Pause(soon=not view.pods)  # what is gone already causes no event
            left = [pod for pod in view.pods if old is None or pod.uid in {each.uid for each in old}]
            if not left:
                return None, view
            if self._clock.now() >= give_up:
                pods = ", ".join(pod.name for pod in left)
                return (
                    f"handler pod {pods} did not end within {self._batch.timeout:.0f} s (does the node's kubelet work? "
                    "does another DaemonSet run there?)"
                ), view

    def _handler_ready(self, wanted: Target) -> t.Generator[Pause, NodeView, tuple[str | None, NodeView]]:
        """Wait until the handler of ``wanted`` is Ready, and the node is schedulable and has that handler's heartbeat."""
        give_up = self._clock.now() + self._batch.timeout
        problem = Persistence(self._clock, _PROBLEM_PATIENCE_SECONDS)
        broken = None
        while True:
            # Only pods are followed: once one is Ready, or has a problem that must not last, it is time that counts.
            soon = wanted.daemonset is None or self._ready_at is not None or broken is not None
            view = yield Pause(soon=soon, node=True)
            waiting_for = self._not_ready(view, wanted)
            if waiting_for is None:
                return None, view
            broken = next((pod.problem for pod in _made_by(wanted, view.pods) if pod.problem), None)
            if problem.lasts(broken is not None):
                return f"the handler of {wanted.owner} does not start: {broken}", view
            if self._clock.now() >= give_up:
                return f"{waiting_for} after {self._batch.timeout:.0f} s", view

    def _not_ready(self, view: NodeView, wanted: Target) -> str | None:
        if wanted.daemonset is None:
            return None
        pods = _made_by(wanted, view.pods)
        if not pods:
            return f"DaemonSet {wanted.daemonset} had created no pod for the node"
        if not pods[0].ready:
            return f"handler pod {pods[0].name} was not Ready" + (f" ({pods[0].problem})" if pods[0].problem else "")
        if self._ready_at is None:
            self._ready_at = self._clock.now()
        if not view.node.schedulable:
            return f"handler pod {pods[0].name} was Ready, but the node was not {names.SCHEDULABLE_LABEL}=true"
        if not pods[0].has_reported(view.node):
            return f"handler pod {pods[0].name} was Ready, but had sent no heartbeat since it started"
        return None

    def _persist(self, owner: str, former: str | None) -> t.Generator[Pause, NodeView, None]:
        """Write half-way, where a node may have no handler: what fails is tried again.

        :raises LeaseLost: at once.
        :raises ClusterError: at once when somebody else changed the owner, else after the batch's timeout.
        """
        give_up = self._clock.now() + self._batch.timeout
        while True:
            try:
                self._write(owner, former)
                return
            except (LeaseLost, OwnerChanged, NotFound):
                raise
            except ClusterError as error:
                problem = error
                if self._clock.now() >= give_up:
                    raise ClusterError(
                        f"{error} The node's owner is {self._owner} now: run site, which finishes it."
                    ) from error
            yield Pause(soon=True, problem=problem)

    def _write(self, owner: str, former: str | None) -> None:
        """Give the node a new owner if it still has the owner that this handover gave it."""
        self._live = write_owner(self._batch.cluster, self._live, self._owner, owner, former)
        self._owner = owner

    def _look(self, view: NodeView) -> None:
        """Note the node as it is now, for the next write."""
        self._live = view.node_object

    def _untouched(self, refused: str) -> HandoverOutcome:
        return self._outcome("untouched", f"{self._to.owner} would start no handler there, because {refused}")

    def _outcome(self, result: HandoverResult, message: str = "") -> HandoverOutcome:
        gap = None
        if self._ended_at is not None:
            gap = (self._ready_at or self._clock.now()) - self._ended_at
        return HandoverOutcome(self._move, result, message, gap)


def _made_by(wanted: Target, pods: t.Iterable[HandlerPod]) -> list[HandlerPod]:
    """The pods that the wanted DaemonSet made from its present template and that do not end."""
    return [
        pod
        for pod in pods
        if pod.daemonset == wanted.daemonset and not pod.terminating and wanted.template in (None, pod.template)
    ]
