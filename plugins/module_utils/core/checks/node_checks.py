# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The problems that nodes can have: for each its code, its words and how it is found.

States, gates and verifications check nodes with the tuples at the end of this file.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, replace

from ..base import names
from ..base.findings import Finding, Severity, counted, listed
from ..base.objects import KubeObject
from ..kubevirt import daemonsets, handler_fit, health
from ..observed.handlers import HandlerPod
from ..observed.nodes import Node
from ..observed.snapshot import Snapshot
from ..planning import assignment
from ..planning.batching import Action
from ..planning.plan import Plan

_SILENT_SECONDS = 180.0
"""A handler that is silent for this long has a problem: virt-handler sends a heartbeat every 60 to 130 seconds, and after 300
KubeVirt lets no VM onto the node any more."""
_UNUSED_SECONDS = 300.0
"""When KubeVirt itself gives a silent node up. Verifications wait that long: a gate compares with a baseline, they do not."""
_FIRST_HEARTBEAT_SECONDS = 120.0
"""How long a node may wait for the first heartbeat of a handler that has started, which comes within seconds."""


@dataclass(frozen=True)
class Facts:
    """What the checks look at."""

    snapshot: Snapshot
    now: float = 0.0
    """Seconds since 1970; only gates need it."""
    plan: Plan | None = None
    """Only verifications need it."""
    later: frozenset[str] = frozenset()
    """Nodes that a run left for later because it was asked to."""

    @functools.cached_property
    def daemonsets(self) -> dict[str, KubeObject]:
        """The DaemonSet of every owner, the primary first."""
        primary = {} if self.snapshot.primary is None else {names.PRIMARY: self.snapshot.primary}
        return {**primary, **self.snapshot.pools}

    @functools.cached_property
    def templates(self) -> dict[str, KubeObject]:
        """The pod template of every owner's DaemonSet, the primary's without our exclusion."""
        pools = {name: daemonset["spec"]["template"] for name, daemonset in self.snapshot.pools.items()}
        primary = self.snapshot.primary
        return pools if primary is None else {**pools, names.PRIMARY: handler_fit.primary_template(primary)}

    @functools.cached_property
    def idle(self) -> frozenset[str]:
        """Nodes that are to have no handler."""
        return assignment.idle(self.snapshot, self.snapshot.nodes)

    @functools.cached_property
    def actions(self) -> dict[str, Action]:
        """What a run would do on each node that it changes, but for what was left for later. It leaves no node half way."""
        moves = self.plan.moves if self.plan is not None else ()
        return {move.node: move.action for move in moves if move.action == "finish" or move.node not in self.later}

    @functools.cached_property
    def read_at(self) -> float:
        """When the nodes were read, in seconds since 1970; in a dump, when a handler last reported."""
        return self.snapshot.read_at or self._newest_heartbeat

    @functools.cached_property
    def reported_until(self) -> float:
        """When handlers last reported, by their clocks, or by ours if that is behind."""
        return min(self._newest_heartbeat, self.read_at)

    @functools.cached_property
    def _newest_heartbeat(self) -> float:
        return max((node.last_heartbeat or 0.0 for node in self.snapshot.nodes.values()), default=0.0)

    def in_use(self, node: Node) -> bool:
        """Whether a node belongs to a pool and has a handler, so that VMs should start there."""
        return node.owner in self.snapshot.pools and bool(self.handlers(node))

    def works(self, node: Node) -> bool:
        """Whether a node of a pool is Ready, and its handler too."""
        return self.in_use(node) and node.ready and all(pod.ready for pod in self.handlers(node))

    def wanted(self, node: Node) -> str:
        if self.plan is None or node.name in self.later:
            return node.owner
        return self.plan.wanted.get(node.name, node.owner)

    def handlers(self, node: Node) -> t.Sequence[HandlerPod]:
        return self.snapshot.handlers.get(node.name, ())


@dataclass(frozen=True)
class NodeCheck:
    """A problem that nodes can have."""

    code: str
    problem: str
    """Completes "Node n1 has ..." and "3 nodes have ..."."""
    find: t.Callable[[Facts, Node], bool | str]
    """Whether a node has the problem; a text is a detail of it, which messages add in brackets."""
    remedy: str = ""
    severity: Severity = "error"

    def check(self, facts: Facts, node: Node) -> NodeProblem | None:
        """The problem of this node; None when it does not have it."""
        detail = self.find(facts, node)
        return NodeProblem(self, node.name, detail if isinstance(detail, str) else "") if detail else None

    def finding(self, problems: t.Collection[NodeProblem]) -> Finding:
        """The finding on all nodes that have this problem."""
        nodes = counted(len(problems), "node has", "nodes have")
        remedy = f"; {self.remedy}" if self.remedy else ""
        message = f"{nodes} {self.problem}: {listed(map(str, problems))}{remedy}."
        return Finding(self.severity, self.code, message)


@dataclass(frozen=True)
class NodeProblem:
    """What is wrong with one node."""

    check: NodeCheck
    node: str
    detail: str

    @property
    def sentence(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"Node {self.node} has {self.check.problem}{detail}."

    def __str__(self) -> str:
        return f"{self.node} ({self.detail})" if self.detail else self.node


def findings(checks: t.Iterable[NodeCheck], facts: Facts) -> t.Iterator[Finding]:
    """A finding for each problem that any node has."""
    for check in checks:
        problems = [problem for node in facts.snapshot.nodes.values() if (problem := check.check(facts, node))]
        if problems:
            yield check.finding(problems)


def first_problem(checks: t.Iterable[NodeCheck], facts: Facts, node: Node) -> NodeProblem | None:
    """The first of these problems that a node has."""
    return next((problem for check in checks if (problem := check.check(facts, node))), None)


# How they are found -------------------------------------------------------------------------------------------------


def _no_handler(facts: Facts, node: Node) -> bool | str:
    if facts.handlers(node) or node.owner == names.IN_TRANSIT or node.name in facts.idle:
        return False
    template = facts.templates.get(node.owner)  # Nothing starts a handler for an owner that does not exist.
    return True if template is None else handler_fit.refusal(template, node) or True


def _handler_lost(facts: Facts, node: Node) -> bool | str:
    lost = node.name in facts.idle and not facts.handlers(node) and node.heartbeat is not None
    return lost and str(handler_fit.unfit(facts.templates[names.PRIMARY], node))


def _wrong_handler(facts: Facts, node: Node) -> bool:
    pods, daemonset = facts.handlers(node), facts.daemonsets.get(node.owner)
    return len(pods) == 1 and daemonset is not None and pods[0].daemonset != daemonset["metadata"]["name"]


def _handler_not_ready(facts: Facts, node: Node) -> bool | str:
    pods = facts.handlers(node)
    if len(pods) != 1 or pods[0].ready or not node.ready or _wrong_handler(facts, node):
        return False
    return pods[0].problem or "no reason known"


def _owner_unknown(facts: Facts, node: Node) -> bool | str:
    return node.owner not in (names.PRIMARY, names.IN_TRANSIT, *facts.snapshot.pools) and node.owner


def _heartbeat_unreadable(facts: Facts, node: Node) -> bool | str:
    unreadable = facts.handlers(node) and node.heartbeat is not None and node.last_heartbeat is None
    return bool(unreadable) and f"annotation {names.HEARTBEAT_ANNOTATION}: {node.heartbeat!r}"


def _heartbeat_old(facts: Facts, node: Node) -> bool | str:
    last = node.last_heartbeat
    old = facts.handlers(node) and last is not None and facts.now - last > _SILENT_SECONDS
    return bool(old) and f"the last: {node.heartbeat}"


def _not_schedulable(facts: Facts, node: Node) -> bool:
    """A handler that has just started sets the label with its first heartbeat."""
    waited = (facts.read_at - (pod.started or 0.0) for pod in facts.handlers(node))
    return facts.works(node) and not node.schedulable and min(waited) > _FIRST_HEARTBEAT_SECONDS


def _silent(facts: Facts, node: Node) -> bool | str:
    last = node.last_heartbeat
    silent = last is not None and facts.reported_until - last > _UNUSED_SECONDS
    return facts.works(node) and silent and f"the last: {node.heartbeat}"


def _cordoned(facts: Facts, node: Node) -> bool:
    return facts.in_use(node) and node.cordoned


def _wrong_owner(facts: Facts, node: Node) -> bool | str:
    return facts.actions.get(node.name) == "move" and f"{node.owner}, not {facts.wanted(node)}"


def _other_image(facts: Facts, node: Node) -> bool | str:
    """The images of a handler from the present template that are not the template's, as when its DaemonSet was edited for a while.

    Admission may rewrite where images come from, or append a digest, but never another tag.
    """
    pods, daemonset = facts.handlers(node), facts.plan.desired.get(node.owner) if facts.plan is not None else None
    template = daemonsets.template_of(daemonset) if daemonset is not None else None
    if daemonset is None or template is None or [pod.template for pod in pods] != [template]:
        return False
    wanted = daemonsets.images_of(daemonset)
    images = ((image, wanted[name]) for name, image in pods[0].images.items() if name in wanted)
    return listed(image for image, expected in images if health.is_tagged_otherwise(image, expected)) or False


# The problems: of several that a node has, the first one counts -----------------------------------------------------

STATE = (
    NodeCheck(
        "two_handlers",
        "two handler pods, and pause, console and VNC fail there",
        lambda facts, node: len(facts.handlers(node)) > 1,
    ),
    NodeCheck("wrong_handler", "the handler of another owner", _wrong_handler),
    NodeCheck("handler_not_ready", "a handler that is not Ready", _handler_not_ready),
    NodeCheck(
        "in_transit",
        "no owner, because a handover was not finished",
        find=lambda _facts, node: node.owner == names.IN_TRANSIT,
        remedy="unless a run is under way, run the playbook that stopped again to finish",
    ),
    NodeCheck("owner_unknown", "an owner that is not a pool", _owner_unknown),
    NodeCheck("no_handler", "no handler pod", _no_handler),
    NodeCheck(
        "handler_lost",
        "lost the handler, which will not be recreated",
        find=_handler_lost,
        remedy="if VMs are to run there, let virt-handler run there (KubeVirt's placement of workloads, under HCO that of HyperConverged)",
        severity="warning",
    ),
)
"""Problems that a state, a gate and a verification report."""

UNUSABLE = (
    NodeCheck(
        "node_not_ready",
        "the status NotReady, so no VM starts there",
        lambda facts, node: facts.in_use(node) and not node.ready,
        severity="warning",
    ),
    NodeCheck("node_cordoned", "been cordoned, so no VM starts there", _cordoned, severity="warning"),
    NodeCheck(
        "not_schedulable",
        f"no label {names.SCHEDULABLE_LABEL}=true, so no VM starts there",
        _not_schedulable,
        remedy="look into the log of the handler",
    ),
    NodeCheck(
        "heartbeat_old",
        f"a handler that has sent no heartbeat for more than {_UNUSED_SECONDS:.0f} seconds, so KubeVirt starts no VM there",
        _silent,
        remedy="look into the log of the handler",
    ),
)
"""Problems of nodes of pools on which no VM starts, which a state and a verification report."""

HANDOVER_UNFINISHED = NodeCheck(
    "handover_unfinished",
    "a new handler that was never proven",
    find=lambda _facts, node: bool(node.former_owner) and node.owner != names.IN_TRANSIT,
    remedy="unless a run is under way, run the playbook that stopped again to finish",
    severity="warning",
)

GATE = (
    # Warnings close no gate: a plan that gives a node to a primary which does not run there has one, too.
    *(check for check in STATE if check.severity == "error"),
    NodeCheck("node_not_ready", "the status NotReady", lambda _facts, node: not node.ready),
    NodeCheck(
        "no_heartbeat",
        f"a handler that has never reported (annotation {names.HEARTBEAT_ANNOTATION})",
        lambda facts, node: bool(facts.handlers(node)) and node.heartbeat is None,
    ),
    NodeCheck("heartbeat_unreadable", "an invalid heartbeat", _heartbeat_unreadable),
    NodeCheck(
        "heartbeat_old",
        f"a handler that has sent no heartbeat for more than {_SILENT_SECONDS:.0f} seconds",
        _heartbeat_old,
    ),
    NodeCheck(
        "not_schedulable",
        f"no label {names.SCHEDULABLE_LABEL}=true, so no VM starts there",
        lambda facts, node: bool(facts.handlers(node)) and not node.schedulable,
    ),
)

WRONG_OWNER = NodeCheck("wrong_owner", "another owner than the pools specify", find=_wrong_owner, remedy="run site")
HANDLER_OUTDATED = NodeCheck(
    "handler_outdated",
    "a handler created from an earlier template of its DaemonSet",
    find=lambda facts, node: facts.actions.get(node.name) == "replace",
    remedy="run site",
)
OTHER_IMAGE = NodeCheck(
    "handler_image",
    "a handler with another image than its DaemonSet",
    find=_other_image,
    remedy="delete these handler pods, which their DaemonSet then creates again",
)
VERIFICATION = (
    *STATE,
    WRONG_OWNER,
    replace(
        HANDOVER_UNFINISHED,
        find=lambda facts, node: bool(node.former_owner) and facts.actions.get(node.name) == "finish",
    ),
    HANDLER_OUTDATED,
    OTHER_IMAGE,
    NodeCheck(
        "node_held_back",
        "kept the current owner, since a handover is not possible now",
        lambda facts, node: facts.wanted(node) != node.owner,
        severity="warning",
    ),
    *UNUSABLE,
)
