# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Hands one node over, or replaces its handler pod.

What happens on the node is one generator that reads from top to bottom. It yields where it waits, and is sent the node's
state. docs/design/handover.md has the reasons.
"""

from __future__ import annotations

import functools
import threading
import typing as t
from dataclasses import dataclass, field, replace

from ...core.base import kinds, names
from ...core.base.findings import listed
from ...core.base.objects import KubeObject, Object
from ...core.kubevirt import exclusion, handler_fit
from ...core.observed.handlers import HandlerPod
from ...core.observed.nodes import Node
from ...core.planning.batching import Move
from ..api.client import Cluster, ClusterError, DeleteOptions
from ..api.lease import LeaseLost
from ..api.waiting import Clock, Persistence
from ..reading.handler_work import HandlerWork
from ..writing import former_template, handler_memory, settle
from ..writing.epochs import Epochs
from ..writing.node_owner import NodeGone, OwnerChanged, existing_node, refuse_another, write_owner

HandoverResult = t.Literal["done", "gone", "untouched", "returned", "stuck", "failed", "interrupted"]

_PROBLEM_PATIENCE_SECONDS = 15.0
"""How long a container may wait with an error before we give up on it."""

_DELETED_SECONDS = 20.0
"""How long a node waits for a pod of a DaemonSet that does not exist: the tool that deleted it may create it again."""

_BUSY_SECONDS = 60.0
"""How long a handler may take for the VMs that it is starting or migrating before it is ended in the middle."""


@dataclass(frozen=True)
class HandoverOutcome:
    """What happened to one node."""

    move: Move
    result: HandoverResult
    """``gone``: the node was deleted. ``untouched``: the node changed since the plan, and would not get a handler now.
    ``returned``: the node has its former owner, or its pool's former handler, again. ``stuck``: failed midway; needs manual attention. ``failed``: a
    handler pod was replaced but does not become Ready. ``interrupted``: a request failed midway, or another client
    changed the node; the next run finishes it."""
    message: str = ""
    """Why, without a full stop."""
    gap: float | None = None
    """Seconds from the moment when the old handler was told to end until the next one was Ready; None when no
    handler was told to end."""
    began: float | None = None
    """That moment, on the clock of the batch."""

    def __str__(self) -> str:
        without = "" if self.gap is None else f", {self.gap:.1f} s without a handler"
        return f"{self.move}{without}" if self.result == "done" else f"{self.move}: {self.result}: {self.message}"

    @property
    def ends_run(self) -> bool:
        """Whether the run stops here. A node that an autoscaler deleted needs nothing more."""
        return self.result not in ("done", "gone")

    @property
    def changed(self) -> bool:
        """Whether anything about the node is, or may be, other than before."""
        return self.result in ("done", "stuck", "failed", "interrupted") or self.gap is not None

    @property
    def node_failed(self) -> bool:
        """Whether the new handler failed. Other clients and the API server cause the other results."""
        return self.result in ("returned", "stuck", "failed")

    @classmethod
    def of_deleted(cls, move: Move) -> HandoverOutcome:
        return cls(move, "gone", "the node was deleted")

    @classmethod
    def after_error(cls, move: Move, error: ClusterError) -> HandoverOutcome:
        """The outcome of a handover that a request ended. Another object that is missing does not mean that the node is."""
        if isinstance(error, NodeGone):
            return cls.of_deleted(move)
        return cls(move, "interrupted", str(error).rstrip("."))

    def to_dict(self, clock_began: float = 0.0) -> dict[str, t.Any]:
        """:param clock_began: when the clock of the batch showed 0, in seconds since 1970."""
        return {
            **self.move.to_dict(),
            "result": self.result,
            "message": self.message,
            "seconds_without_handler": None if self.gap is None else round(self.gap, 1),
            "began": None if self.began is None else round(clock_began + self.began, 1),
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
    """The state of a node in one round; all but its pods is read only when it is needed."""

    pods: tuple[HandlerPod, ...]
    read_node: t.Callable[[], Object]
    read_work: t.Callable[[], HandlerWork]

    @functools.cached_property
    def work(self) -> HandlerWork:
        """What the node's handler does for VMs. One that is not Ready does nothing."""
        return self.read_work() if any(pod.ready for pod in self.pods) else HandlerWork()

    @functools.cached_property
    def node_object(self) -> Object:
        return self.read_node()

    @functools.cached_property
    def node(self) -> Node:
        return Node.from_object(self.node_object)

    def read(self) -> Object | None:
        """The node, read now at the latest. A missing node is an error only for callers that read it.

        :raises ClusterError: when it cannot be read, after which one may try again.
        """
        try:
            return self.node_object
        except NodeGone:
            return None


@dataclass(frozen=True)
class Pause:
    """Where a node waits."""

    soon: bool = False
    """Whether to look at it in the next round, even without an event."""
    node: bool = False
    """Whether the Node object is needed once a handler is Ready."""
    problem: ClusterError | None = None
    """The error because of which it tries again."""
    waiting_for: str = ""
    """What has not happened yet, as a clause."""


NodeSteps: t.TypeAlias = "t.Generator[Pause, NodeView, HandoverOutcome]"
"""What happens on one node. It yields where it must wait."""


@dataclass(frozen=True)
class Context:
    """What the handovers of a batch share."""

    cluster: Cluster
    namespace: str
    clock: Clock
    timeout: float
    """Seconds for an old handler to end, and again for a new one to become Ready."""
    epochs: Epochs
    reminded: handler_memory.Reminded = frozenset()
    """Of what the batch has reminded handlers."""
    restored: dict[str, str] = field(default_factory=dict)
    """The digest of the former template that a DaemonSet got back in this batch, by the DaemonSet's name."""
    restoring: threading.Lock = field(default_factory=threading.Lock)
    """Held while a DaemonSet gets its former template back: one node does that for all."""


class NodeHandover:
    """What happens on one node."""

    def __init__(self, context: Context, move: Move, to: Target, back: Target) -> None:
        self._context = context
        self._clock = context.clock
        self._move = move
        self._to = to
        self._back = back
        self._owner = to.owner  # the owner that we last saw or wrote: any other owner was set by another client
        self._live: Object = {}  # the node as it was when we read or wrote it last
        self._leaves_with: dict[str, str] | None = None  # the labels of an attempt to take the node from its owner
        self._late = handler_memory.LateArrivals(context.cluster, context.clock, context.reminded)
        self._former: str | None = None  # the template of the handler that was replaced
        self._ended_at: float | None = None
        self._ready_at: float | None = None

    def steps(self) -> NodeSteps:
        view = yield Pause()
        self._look(view)  # another machine may get the node's name from now on
        if self._move.action == "replace":
            return (yield from self._replace(view))
        if self._move.action == "finish":
            return (yield from self._prove(view))
        return (yield from self._hand_over(view))

    def _hand_over(self, view: NodeView) -> NodeSteps:
        view = yield from self._handler_idle(view)
        # The node may have changed since the plan, while the batch waited for images and migrations.
        self._look(view)
        self._owner = names.IN_TRANSIT if view.node.owner == names.IN_TRANSIT else self._move.source
        refused = self._to.refusal(view.node)
        if refused and view.pods:
            return self._untouched(refused)
        yield from self._left(self._move.source, begun=False)
        self._ended_at = self._clock.now()
        problem, view = yield from self._handlers_gone(view, self._to)
        if problem is not None:
            yield from self._take_over(self._back.owner, None)
            return self._outcome("returned", f"{problem}; the node stays with {self._back.owner}")
        yield from self._take_over(self._to.owner, self._move.source)
        problem, view = yield from self._handler_ready(self._to)
        return (yield from self._finish(problem, view))

    def _finish(self, problem: str | None, view: NodeView) -> NodeSteps:
        """The end of a handover: remove the former owner when the new handler is Ready, else go back to that owner."""
        if problem is not None and self._move.source == self._move.target:
            return (yield from self._go_back_to_former_handler(problem, view))
        if problem is not None:
            return (yield from self._go_back(problem, view))
        yield from self._persist(self._to.owner, None)
        return self._outcome("done")

    def _go_back(self, problem: str, view: NodeView) -> NodeSteps:
        """The new handler does not become Ready: hand the node back to its former owner."""
        former = self._back.owner
        refused = self._back.refusal(view.node)
        if refused:
            return self._outcome("stuck", f"{problem}; it cannot go back to {former}, because {refused}")
        yield from self._left(former, begun=True)
        if self._ended_at is None:
            self._ended_at = self._clock.now()
        self._ready_at = None
        stuck, view = yield from self._handlers_gone(view, self._back)
        if stuck is not None:
            return self._outcome("stuck", f"{problem}; on the way back to {former}, {stuck}")
        yield from self._take_over(former, former)
        stuck, view = yield from self._handler_ready(self._back)
        if stuck is not None:
            return self._outcome("stuck", f"{problem}; it went back to {former}, but {stuck}")
        yield from self._persist(former, None)
        return self._outcome("returned", f"{problem}; it went back to {former}")

    def _go_back_to_former_handler(self, problem: str, view: NodeView) -> NodeSteps:
        """The new handler of the same pool does not become Ready: the pool's DaemonSet gets its former template back."""
        template = yield from self._former_template()
        if template is None:
            return self._outcome(
                "failed", problem if self._ended_at is None else f"its handler was replaced, but {problem}"
            )
        wanted = replace(self._to, template=template, pod=None)
        self._ready_at = None
        # Until the DaemonSet controller had seen that template, it may have created another pod from the new one.
        view = yield Pause(soon=True, waiting_for="it gets its former handler back")
        stuck, view = yield from self._renewed(view, _outdated(wanted, view.pods), wanted, begun=True)
        if stuck is not None:
            return self._outcome("stuck", f"{problem}; {wanted.owner} got its former handler back, but {stuck}")
        yield from self._persist(wanted.owner, None)
        return self._outcome("returned", f"{problem}; it has the former handler of {wanted.owner} again")

    def _former_template(self) -> t.Generator[Pause, NodeView, str | None]:
        """Give the DaemonSet its former template, and wait until its controller has seen it. Returns the template's digest;
        None when there is no former one.

        :raises ClusterError: as ``_persist`` does.
        """
        daemonset = self._to.daemonset
        if daemonset is None:
            return None
        cluster, namespace = self._context.cluster, self._context.namespace
        found: list[str | None] = []

        def write() -> bool:
            if not found:
                with self._context.restoring:
                    found.append(
                        former_template.restore(cluster, namespace, daemonset, self._to.template, self._former)
                    )
            return found == [None] or settle.is_daemonset_observed(cluster, namespace, daemonset)

        yield from self._until_written(write, f"The DaemonSet controller has not seen DaemonSet {daemonset}")
        if found[0] is not None:
            self._context.restored[daemonset] = found[0]
        return found[0]

    def _replace(self, view: NodeView) -> NodeSteps:
        view = yield from self._handler_idle(view)
        self._look(view)
        old = _outdated(self._to, view.pods)
        refused = self._to.refusal(view.node)
        if refused and old:
            return self._untouched(refused)
        if old:
            # If this run dies, the next one finishes the replacement like a handover: it must see the handler Ready.
            self._write(self._to.owner, self._to.owner)
        problem, view = yield from self._renewed(view, old, self._to)
        return (yield from self._finish(problem, view))

    def _prove(self, view: NodeView) -> NodeSteps:
        """A handover that an earlier run did not prove; its handler may be from a template that has changed since."""
        if _outdated(self._to, view.pods):
            view = yield from self._handler_idle(view)
        self._look(view)
        old, wanted = _outdated(self._to, view.pods), self._to
        if wanted.refusal(view.node):
            old, wanted = [], replace(wanted, template=None)
        problem, view = yield from self._renewed(view, old, wanted)
        return (yield from self._finish(problem, view))

    def _renewed(
        self, view: NodeView, old: t.Sequence[HandlerPod], wanted: Target, *, begun: bool = False
    ) -> t.Generator[Pause, NodeView, tuple[str | None, NodeView]]:
        """Delete old handlers, and wait until the wanted one is Ready.

        :param begun: as of ``_left``; for a node that may have no handler that works.
        :raises ClusterError: as ``_persist`` does.
        """
        for pod in old:
            self._former = pod.template
            if not pod.terminating:
                yield from self._until_written(functools.partial(self._end, pod), begun=begun)
        if old:
            if self._ended_at is None:
                self._ended_at = self._clock.now()
            problem, view = yield from self._handlers_gone(view, wanted, old)
            # The look that finds the old handler gone may find the new one Ready: then no event follows.
            if problem is not None or self._not_ready(view, wanted) is None:
                return problem, view
        return (yield from self._handler_ready(wanted))

    # Waits. They return what did not happen, as a clause (None: it happened), and the last state of the node.

    def _handler_idle(self, view: NodeView) -> t.Generator[Pause, NodeView, NodeView]:
        """Wait until the node's handler is starting no VM and migrating none: see ``is_starting`` and ``is_migrating``; and until it has
        recorded those that it received. One that takes too long does not hold up the run.

        The batch has waited for migrations, and reminded handlers, but some time ago: an eviction may have begun a migration since.

        :raises ClusterError: when a VM cannot be changed of which the handler is to be reminded.
        """
        give_up = self._clock.now() + _BUSY_SECONDS
        while undone := self._undone(view, give_up):
            view = yield Pause(soon=True, waiting_for=undone)
        return view

    def _undone(self, view: NodeView, give_up: float) -> str:
        """What the node's handler must do before it may end, as a clause. VMs that it received until ``give_up`` are still recorded."""
        since = handler_memory.started(view.pods)
        recorded = self._late.recorded(vm for vm in view.work.received if vm.may_be_forgotten(since))
        if view.work.busy and self._clock.now() < give_up:
            return f"its handler is {listed(view.work.busy)}"
        if not recorded and self._clock.now() < give_up + handler_memory.LATE_SECONDS:
            return "its handler records VMs again, for they may be lost that came by live migration"
        return ""

    def _handlers_gone(
        self, view: NodeView, wanted: Target, old: t.Sequence[HandlerPod] | None = None
    ) -> t.Generator[Pause, NodeView, tuple[str | None, NodeView]]:
        """Wait until these handler pods have ended; without ``old``, until the node has no handler pod. One of ``wanted`` may have
        come already, where another client has removed the exclusion and the primary is next."""
        began = self._clock.now()
        give_up = began + self._context.timeout
        known = {pod.uid for pod in view.pods}
        staying = Persistence(self._clock, _PROBLEM_PATIENCE_SECONDS)
        while True:
            # A pod that was deleted before causes no event.
            view = yield Pause(soon=not view.pods, waiting_for=f"its old handler is ending{self._since(began)}")
            left = [pod for pod in view.pods if old is None or pod.uid in {each.uid for each in old}]
            if all(pod.daemonset == wanted.daemonset and pod.uid not in known for pod in left):
                return None, view
            if not known.issuperset(pod.uid for pod in left):
                self._look(view)  # a node in transit gets no handler, but one that was created again does
            of_primary = [pod.name for pod in left if pod.daemonset == names.HANDLER and not pod.terminating]
            if staying.lasts(old is None and bool(of_primary)) and self._is(names.HANDLER, _lacks_exclusion):
                return (
                    f"handler pod {of_primary[0]} runs there while the node is in transit: another client has removed the "
                    "exclusion from the KubeVirt object, which site restores"
                ), view
            if self._clock.now() >= give_up:
                pods = ", ".join(pod.name for pod in left)
                return (
                    f"handler pod {pods} did not end within {self._context.timeout:.0f} s (does the node's kubelet work? "
                    "does another DaemonSet run there?)"
                ), view

    def _handler_ready(self, wanted: Target) -> t.Generator[Pause, NodeView, tuple[str | None, NodeView]]:
        """Wait until the handler of ``wanted`` is Ready, and the node is schedulable and has that handler's heartbeat."""
        began = self._clock.now()
        give_up = began + self._context.timeout
        problem = Persistence(self._clock, _PROBLEM_PATIENCE_SECONDS)
        broken = None
        waiting_for: str | None = "it waits for its new handler"
        while True:
            # Only pods are followed: once one is Ready, or has a problem that must not last, it is time that counts.
            soon = wanted.daemonset is None or self._ready_at is not None or broken is not None
            view = yield Pause(soon=soon, node=True, waiting_for=f"{waiting_for}{self._since(began)}")
            waiting_for = self._not_ready(view, wanted)
            if waiting_for is None:
                return None, view
            restored = self._context.restored.get(wanted.daemonset or "")
            if restored is not None and wanted.template not in (None, restored) and not _made_by(wanted, view.pods):
                return f"the handler of {wanted.owner} does not start on other nodes", view
            if wanted.daemonset is not None and not _made_by(wanted, view.pods):
                self._look(view)  # a deleted node gets no pod, or that of another owner, and ends the handover
                self._refuse_another_owner(view.node)
                if self._clock.now() - began >= _DELETED_SECONDS and self._is(wanted.daemonset, _is_deleted):
                    return f"DaemonSet {wanted.daemonset} no longer exists, so another client has deleted it", view
            broken = next((pod.problem for pod in _made_by(wanted, view.pods) if pod.problem), None)
            if problem.lasts(broken is not None):
                return f"the handler of {wanted.owner} does not start: {broken}", view
            if self._clock.now() >= give_up:
                return f"{waiting_for} after {self._context.timeout:.0f} s", view

    def _is(self, daemonset: str, so: t.Callable[[Object | None], bool]) -> bool:
        """Whether a DaemonSet certainly is so now. While it cannot be read, that is not known."""
        try:
            return so(self._context.cluster.get(kinds.DAEMON_SET, daemonset, self._context.namespace))
        except LeaseLost:
            raise
        except ClusterError:
            return False

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

    def _leave(self, former: str) -> None:
        """Take the node from its owner, with the labels by which VMs stay that the owner's nodes let in.

        A node that has no owner gets no labels.
        """
        if self._owner == names.IN_TRANSIT:
            self._write(names.IN_TRANSIT, former)
            return
        with self._context.epochs.leaving(self._live, self._owner) as labels:
            self._leaves_with = self._written_already() or labels
            self._write(names.IN_TRANSIT, former, self._leaves_with)
        self._leaves_with = None

    def _written_already(self) -> dict[str, str] | None:
        """The labels of an attempt that got no answer and was carried out. They are right: no pod has come since."""
        if self._leaves_with is None:
            return None
        live = existing_node(self._context.cluster, self._move.node)
        refuse_another(self._live, live)
        self._live = live
        written = {names.OWNER_LABEL: names.IN_TRANSIT, **self._leaves_with}
        return self._leaves_with if Node.from_object(self._live).labels.items() >= written.items() else None

    def _left(self, former: str, *, begun: bool) -> t.Generator[Pause, NodeView, None]:
        """Take the node from its owner.

        :param begun: whether the handover is half-way already; else an error that changed nothing ends it.
        :raises ClusterError: as ``_persist`` does.
        """

        def write() -> bool:
            self._leave(former)
            return True

        yield from self._until_written(write, begun=begun)

    def _take_over(self, owner: str, former: str | None) -> t.Generator[Pause, NodeView, None]:
        """Give the node its next owner, once no new pod can come to it as one that may stay.

        :raises ClusterError: as ``_persist`` does.
        """

        def write() -> bool:
            unneeded = self._context.epochs.settle(self._live, owner)
            if unneeded is not None:
                self._write(owner, former, unneeded)
            return unneeded is not None

        yield from self._until_written(write)

    def _persist(self, owner: str, former: str | None) -> t.Generator[Pause, NodeView, None]:
        """Write half-way, where a node may have no handler: what fails is tried again.

        :raises LeaseLost: at once.
        :raises ClusterError: at once when another client changed the owner or deleted the node, else after the batch's timeout.
        """

        def write() -> bool:
            self._write(owner, former)
            return True

        yield from self._until_written(write)

    def _until_written(
        self,
        write: t.Callable[[], bool],
        pending: str = "The launcher policy did not take effect",
        *,
        begun: bool = True,
    ) -> t.Generator[Pause, NodeView, None]:
        """Call ``write`` until it returns True, also after errors (see ``_persist``).

        :param pending: why it does not, for the error.
        :param begun: False raises errors until the first one after which the write may have been carried out.
        """
        give_up = self._clock.now() + self._context.timeout
        problem: ClusterError | None = None
        while True:
            try:
                if write():
                    return
                problem = None
            except (LeaseLost, OwnerChanged, NodeGone):
                raise
            except ClusterError as error:
                begun = begun or error.maybe_applied
                if not begun:
                    raise
                problem = error
                if self._clock.now() >= give_up:
                    raise ClusterError(
                        f"{error} The node's owner is {self._owner} now: run the same playbook again to finish."
                    ) from error
            if problem is None and self._clock.now() >= give_up:
                raise ClusterError(
                    f"{pending} within {self._context.timeout:.0f} s. The node's owner is "
                    f"{self._owner} now: run the same playbook again to finish."
                )
            yield Pause(soon=True, problem=problem, waiting_for=str(problem or pending))

    def _write(self, owner: str, former: str | None, until: t.Mapping[str, str | None] | None = None) -> None:
        """Give the node a new owner if it still has the owner that this handover gave it."""
        self._live = write_owner(self._context.cluster, self._live, self._owner, owner, former, until)
        self._owner = owner

    def _end(self, pod: HandlerPod) -> bool:
        """Delete the handler pod, and no other one of its name."""
        only_it = DeleteOptions(uid=pod.uid)
        self._context.cluster.delete(kinds.POD, pod.name, self._context.namespace, only_it, dry_run=False)
        return True

    def _look(self, view: NodeView) -> None:
        """Note the node as it is now, for the next write.

        :raises NodeGone: when it was deleted, also when it was created again.
        """
        refuse_another(self._live, view.node_object)
        self._live = view.node_object

    def _refuse_another_owner(self, node: Node) -> None:
        """
        :raises OwnerChanged: when another client has given the node another owner, whose DaemonSet it waits for in vain.
        """
        if node.owner != self._owner:
            raise OwnerChanged(
                f"Node {node.name} waited for its handler of {self._owner}, but another client has changed its label "
                f"{names.OWNER_LABEL}: it is {node.owner} now. Find out who did that, then run again."
            )

    def _untouched(self, refused: str) -> HandoverOutcome:
        return self._outcome("untouched", f"{self._to.owner} would start no handler there, because {refused}")

    def _since(self, began: float) -> str:
        return f" ({self._clock.now() - began:.0f} s of at most {self._context.timeout:.0f} s)"

    def _outcome(self, result: HandoverResult, message: str = "") -> HandoverOutcome:
        gap = None
        if self._ended_at is not None:
            gap = (self._ready_at or self._clock.now()) - self._ended_at
        return HandoverOutcome(self._move, result, message, gap, self._ended_at)


def _is_deleted(daemonset: Object | None) -> bool:
    return daemonset is None


def _lacks_exclusion(primary: Object | None) -> bool:
    """Whether KubeVirt's virt-handler runs on nodes in transit as well."""
    return primary is not None and not exclusion.has_exclusion(primary)


def _made_by(wanted: Target, pods: t.Iterable[HandlerPod]) -> list[HandlerPod]:
    """The pods that the wanted DaemonSet created from its present template and that do not end."""
    return [
        pod
        for pod in pods
        if pod.daemonset == wanted.daemonset and not pod.terminating and wanted.template in (None, pod.template)
    ]


def _outdated(wanted: Target, pods: t.Iterable[HandlerPod]) -> list[HandlerPod]:
    """The pods that the wanted DaemonSet created from another template."""
    return [pod for pod in pods if pod.daemonset == wanted.daemonset and pod.template != wanted.template]
