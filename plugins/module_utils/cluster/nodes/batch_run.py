# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Carries out one batch of a plan: checks and prepares everything before it touches a node, then makes the moves."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

from ...core.base import names
from ...core.base.findings import counted, listed
from ...core.base.objects import KubeObject
from ...core.kubevirt import daemonsets, exclusion, handler_fit, image_contents, preflight
from ...core.kubevirt.hco import title
from ...core.kubevirt.image_contents import Contents
from ...core.observed.nodes import Node, deleted_since
from ...core.planning.batching import Move, drain_of
from ...core.planning.options import LEAVE, Drain
from ...core.planning.plan import DaemonSetChange, Plan
from ...core.planning.relocation import Evacuation
from ..api.client import Cluster, ClusterError
from ..api.lease import LeaseLost
from ..api.waiting import Clock
from ..reading import live
from ..writing import former_template, handler_memory, image_record, policies, settle
from ..writing.epochs import Epochs
from ..writing.node_owner import NodeGone, write_owner
from . import canary, drain, handover, images
from .node_handover import HandoverOutcome, Target


@dataclass(frozen=True)
class BatchOptions:
    """How a batch is carried out. Timeouts are in seconds."""

    handler_timeout: float = 300
    """For an old handler to stop, and again for a new one to become Ready."""
    pull_timeout: float = 900
    """For the images of the batch."""
    migration_timeout: float = 900
    """For live migrations through the nodes to end, and for VMs to leave the nodes."""
    prepull: bool = True
    drain: Drain = LEAVE
    """What happens to VMs on the nodes."""
    drain_of_pools: Drain = LEAVE
    """What happens to those on nodes that leave a pool."""


def carry_out(
    cluster: Cluster,
    plan: Plan,
    moves: t.Sequence[Move],
    options: BatchOptions,
    clock: Clock,
    again: t.Callable[[], Plan] | None = None,
    ahead: t.Sequence[Move] = (),
) -> t.Iterator[HandoverOutcome]:
    """Carry out moves of ``plan`` side by side. Outcomes come as soon as they are known.

    Nodes that are deleted before they are touched are left out, for example those that an autoscaler removes, and those that should
    not change any more.

    :param again: plans the same nodes again, from the cluster as it is after long preparations.
    :param ahead: the moves of the next batch, whose images are pulled during the handovers.
    :raises ClusterError: when something forbids the batch before the first outcome; then no node of it was touched. Later, when the
        Lease is lost, or the API server fails for too long.
    """
    began = clock.now()
    gone: list[HandoverOutcome] = []
    while True:
        try:
            reminded = _prepare(cluster, plan, moves, options, clock)
            break
        except LeaseLost:
            raise
        except ClusterError as error:
            deleted = live.deleted_nodes(cluster, _nodes(plan, moves))
            if not deleted and isinstance(error, images.ImagesMissing):
                raise images.ImagesMissing(f"{error}{_with_former_templates(cluster, plan, moves)}") from error
            if not deleted:
                raise
            gone += [HandoverOutcome.of_deleted(move) for move in moves if move.node in deleted]
            moves = [move for move in moves if move.node not in deleted]
    if again is not None and clock.is_stale(began):
        before, plan = plan, again()
        deleted = deleted_since(_nodes(before, moves), plan.snapshot.nodes.values())
        gone += [HandoverOutcome.of_deleted(move) for move in moves if move.node in deleted]
        moves = [move for move in moves if move.node not in deleted]
        moves = list(_still_due(plan, moves, clock))
        _refuse_unfit(plan, moves)
    for outcome in gone:
        clock.status.say(str(outcome))
        yield outcome
    targets = [(move, _target(plan, move, move.target), _target(plan, move, move.source)) for move in moves]
    handlers = {move.node: plan.snapshot.handlers.get(move.node, ()) for move in moves}
    epochs = Epochs(cluster, lambda: policies.probe_site(cluster, plan.snapshot))
    batch = handover.Batch(cluster, plan.snapshot.namespace, clock, options.handler_timeout, epochs, reminded)
    with _pulling_ahead(cluster, plan, ahead, options, clock) as finish:
        ends_run = False
        for outcome in batch.run(targets, handlers):
            ends_run = ends_run or outcome.ends_run
            yield outcome
        if not ends_run:
            finish()


def _nodes(plan: Plan, moves: t.Iterable[Move]) -> list[Node]:
    return [plan.snapshot.nodes[move.node] for move in moves]


def _still_due(plan: Plan, moves: t.Sequence[Move], clock: Clock) -> t.Iterator[Move]:
    """The moves that a later plan still has: others may have tainted a node, or changed its labels.

    A handover that has begun goes on, to another owner if need be: its node has no handler.
    """
    due = {move.node: move for move in plan.moves}
    for move in moves:
        now = due.get(move.node)
        if now is not None and (now.target == move.target or plan.snapshot.nodes[move.node].unfinished):
            yield now
        else:
            wanted = plan.wanted[move.node]
            why = f"the pools give it to {wanted} now" if wanted != move.target else "it need not or cannot change now"
            clock.status.say(f"{move}: left alone: {why}")


@contextlib.contextmanager
def _pulling_ahead(
    cluster: Cluster, plan: Plan, moves: t.Sequence[Move], options: BatchOptions, clock: Clock
) -> t.Iterator[t.Callable[[], None]]:
    """Pull the images of the next batch while this one is handed over. Yields a function that waits for the pulls. Whatever fails is
    left to that batch, which checks and pulls as if nothing had been done."""
    pulls: list[images.Pull] = []
    if options.prepull and moves:
        with contextlib.suppress(ClusterError):
            found = map(Node.from_object, live.nodes_named(cluster, {move.node for move in moves}))
            ready = {node.name: node for node in found if node.ready}  # no other would ever pull
            pulls = _pulls(plan, moves, ready)
    with images.pulling(cluster, plan.snapshot.namespace, pulls, options.pull_timeout, clock) as wait:

        def finish() -> None:
            contents = wait().contents
            with contextlib.suppress(ClusterError):
                _note_contents(cluster, plan, moves, contents)

        yield finish


def pull_before_changes(
    cluster: Cluster,
    plan: Plan,
    options: BatchOptions,
    clock: Clock,
    known: t.Mapping[str, Contents],
) -> dict[str, Contents]:
    """Pull the images of new templates, each on the nodes of the first batch that gets handlers from it. Returns what is in them.

    From the change on, a DaemonSet starts every new pod from its new template, also on a node that restarts and is not due
    yet. So an image that cannot be pulled must be noticed before. For a new pool, all its images are reported before any policy or
    node changes.

    :param known: what this run has found in images. It does not look into them again.
    :raises images.ImagesMissing: when nodes cannot get images, or images lack something, for all changes at once.
    """
    due = [
        (change, new, _first_moves(plan, change)) for change in plan.daemonsets if (new := change.desired) is not None
    ]
    if not options.prepull or not due:
        return dict(known)
    images.remove(cluster, plan.snapshot.leftover_pulls)
    firsts = [move for _change, _new, moves in due for move in moves]
    pulls = _pulls(plan, firsts, plan.snapshot.nodes, {change.pool: new for change, new, _moves in due}, known)
    pulled = images.pull(cluster, plan.snapshot.namespace, pulls, options.pull_timeout, clock)
    pulled.problems = images.of_existing(cluster, pulled.problems, plan.snapshot.nodes)
    refused = [sentence for change, new, moves in due for sentence in _refused_by_images(change, new, moves, pulled)]
    if refused:
        raise images.ImagesMissing(" ".join([*refused, *([images.CHECK_IMAGE] if pulled.problems else [])]))
    return {**known, **pulled.contents}


def note_unproven(cluster: Cluster, plan: Plan) -> None:
    """Note on nodes whose pool gets its DaemonSet back that their handler is still to be proven.

    Once the DaemonSet exists, no plan shows that any more, neither that of the batch nor, if this run dies, that of the next one.
    """
    created = {change.pool for change in plan.daemonsets if change.action == "create"}
    proving = [move for move in plan.moves if move.action == "finish" and move.target in created]
    unnoted = {m.node: m.target for m in proving if plan.snapshot.nodes[m.node].former_owner is None}
    for node in live.nodes_named(cluster, unnoted):
        owner = unnoted[node["metadata"]["name"]]
        with contextlib.suppress(NodeGone):
            write_owner(cluster, node, owner, owner, owner)


def _first_moves(plan: Plan, change: DaemonSetChange) -> list[Move]:
    """The moves of the first batch that gets handlers from the DaemonSet. A handover that has begun must not wait for pulls."""
    of_pool = ([m for m in batch if m.target == change.pool and m.action != "finish"] for batch in plan.batches)
    return next(filter(None, of_pool), [])


def _refused_by_images(
    change: DaemonSetChange, new: KubeObject, moves: t.Sequence[Move], pulled: images.Pulled
) -> t.Iterator[str]:
    """Sentences on why a DaemonSet is not written as ``new``."""
    written = "created" if change.action == "create" else "changed"
    what = f"DaemonSet {change.namespace}/{change.name} was not {written}, because"
    missing = {move.node: pulled.problems[move.node] for move in moves if move.node in pulled.problems}
    if missing:
        nodes = f"{len(missing)} of {counted(len(moves), 'node')}"
        yield f"{what} {nodes} cannot get its images. {images.examples(missing)}."
    lacking = images.incomplete(pulled, image_contents.roles_of(new))
    if lacking:
        yield f"{what} {lacking}"


def _prepare(
    cluster: Cluster, plan: Plan, moves: t.Sequence[Move], options: BatchOptions, clock: Clock
) -> handler_memory.Reminded:
    """Check and do everything that comes before the first node is touched. Returns of what it reminded handlers.

    :raises ClusterError: when something forbids the batch.
    """
    _refuse_unfit(plan, moves)
    images.remove(cluster, plan.snapshot.leftover_pulls)
    canary.remove(cluster, plan.snapshot.leftover_canaries)
    for name in sorted(
        {plan.snapshot.pools[move.target]["metadata"]["name"] for move in moves if move.target != names.PRIMARY}
    ):
        settle.await_daemonset_observed(cluster, plan.snapshot.namespace, name, options.handler_timeout, clock)
    if options.prepull:
        _pull(cluster, plan, moves, options.pull_timeout, clock)
        _try_launchers(cluster, plan, moves, options.pull_timeout, clock)
    _drain(cluster, plan, moves, options, clock)
    _await_migrations(cluster, moves, options.migration_timeout, clock)
    handlers = [pod for move in moves for pod in plan.snapshot.handlers.get(move.node, ())]
    return handler_memory.remind(cluster, handlers, clock)


def _refuse_unfit(plan: Plan, moves: t.Sequence[Move]) -> None:
    # A removal may go on while KubeVirt is not healthy, as long as its plan has no errors.
    findings = plan.findings if plan.undoing else preflight.fitness(plan.snapshot)
    problems = [f.message for f in findings if f.severity == "error"]
    primary = plan.snapshot.primary
    if not plan.undoing and not problems and primary is not None and not exclusion.has_exclusion(primary):
        where = title(plan.snapshot.hyperconverged or plan.snapshot.kubevirt)
        problems.append(
            f"the primary virt-handler may still run on pool nodes. If another client has removed the exclusion from {where} "
            "during this run, see who did that, and run again; else run primary_exclusion first."
        )
    missing = sorted({m.target for m in moves if m.target not in (names.PRIMARY, *plan.snapshot.pools)})
    if missing:
        sets = listed(f"{plan.snapshot.namespace}/{names.pool_daemonset_name(pool)}" for pool in missing)
        problems.append(
            f"DaemonSet {sets} does not exist. If another client has deleted it during this run, see who did that, and run "
            "again; else run pool_daemonsets first."
        )
    if problems:
        raise ClusterError(f"No node of this batch was touched, because {' '.join(problems)}")


def _target(plan: Plan, move: Move, owner: str) -> Target:
    """The handler that must become Ready on the node once ``owner`` owns it; none when its DaemonSet puts no pod there."""
    node = plan.snapshot.nodes[move.node]
    if owner == names.PRIMARY:
        template = handler_fit.primary_template(t.cast("t.Mapping[str, t.Any]", plan.snapshot.primary))
        return Target(owner, None if handler_fit.unfit(template, node) else names.HANDLER, pod=template)
    daemonset = plan.snapshot.pools.get(owner)
    if daemonset is None:
        # The node cannot go back to a former owner that is not a pool, or is one no more.
        return _target(plan, move, names.PRIMARY)
    return Target(
        owner, daemonset["metadata"]["name"], daemonsets.template_of(daemonset), daemonset["spec"]["template"]
    )


def _pull(cluster: Cluster, plan: Plan, moves: t.Sequence[Move], timeout: float, clock: Clock) -> None:
    pulls = _pulls(plan, moves, plan.snapshot.nodes)
    pulled = images.pull(cluster, plan.snapshot.namespace, pulls, timeout, clock)
    what = "No node of this batch was touched, because"
    if pulled.problems:
        raise images.ImagesMissing(
            f"{what} {len(pulled.problems)} of {len(moves)} cannot get the images of their "
            f"next handler. {images.examples(pulled.problems)}. {images.CHECK_IMAGE}"
        )
    images.refuse_incomplete(what, pulled)
    _note_contents(cluster, plan, moves, pulled.contents)


def _pulls(
    plan: Plan,
    moves: t.Iterable[Move],
    nodes: t.Mapping[str, Node],
    new: t.Mapping[str, KubeObject] | None = None,
    known: t.Collection[str] = (),
) -> list[images.Pull]:
    """What the next handlers on these nodes need.

    :param new: by pool, the DaemonSets that are about to be written.
    :param known: images into which this run has looked.
    """
    pulls, stock = [], images.stock_images(plan.snapshot)
    for move in moves:
        present, node = plan.snapshot.pools.get(move.target, plan.snapshot.primary), nodes.get(move.node)
        daemonset = (new or {}).get(move.target, present)
        if daemonset is not None and node is not None and move.action != "finish":
            recorded = () if present is None else image_contents.recorded(present)
            pulls.append(images.Pull(node, daemonset, {*known, *recorded}, stock))
    return pulls


def _note_contents(cluster: Cluster, plan: Plan, moves: t.Iterable[Move], contents: t.Mapping[str, Contents]) -> None:
    """Note what was found in the images of the pools that get these nodes."""
    for pool in {move.target for move in moves} & plan.snapshot.pools.keys():
        image_record.write(cluster, plan.snapshot.pools[pool], contents)


def _try_launchers(cluster: Cluster, plan: Plan, moves: t.Sequence[Move], timeout: float, clock: Clock) -> None:
    """Launcher pods do not have the pull secrets of handlers, so that what a handler pulled may not be for them."""
    pools = {pool.name: pool for pool in plan.launcher_pools}
    starts = []
    for move in moves:
        pool, daemonset = pools.get(move.target), plan.snapshot.pools.get(move.target)
        if pool is None or daemonset is None or move.action == "finish":
            continue
        start = images.Start.of(plan.snapshot.nodes[move.node], pool)
        if start is not None and (start.secrets or daemonsets.pull_secrets_of(daemonset)):
            starts.append(start)
    problems = images.start(cluster, plan.snapshot.namespace, starts, timeout, clock)
    if problems:
        given = ", ".join(sorted({name for start in starts if start.node.name in problems for name in start.secrets}))
        raise images.ImagesMissing(
            f"No node of this batch was touched, because launcher pods would not start on {len(problems)} of {len(moves)}: "
            f"they do not have the pull secrets of their pool's handler, only those of its virtLauncherPullSecrets "
            f"({given or 'none'}). {images.examples(problems)}. Let the kubelets of the pool's nodes pull the image without a pull "
            "secret, or name one in virtLauncherPullSecrets that is in KubeVirt's namespace and in those of the pool's VMs."
        )


def _with_former_templates(cluster: Cluster, plan: Plan, moves: t.Sequence[Move]) -> str:
    """Give the DaemonSets of the batch their former templates back, because a node that restarts could not get the new image,
    and say so. Nodes of earlier batches keep their new handlers."""
    changed = []
    for pool in sorted({move.target for move in moves if move.action == "replace"}):
        daemonset = plan.snapshot.pools[pool]
        name, wanted = daemonset["metadata"]["name"], daemonsets.template_of(daemonset)
        of_batch = (pod for move in moves for pod in plan.snapshot.handlers.get(move.node, ()))
        pods = (pod for pod in of_batch if pod.daemonset == name)
        former = {pod.template for pod in pods} - {None, wanted}
        only = former.pop() if len(former) == 1 else None
        if former_template.restore(cluster, plan.snapshot.namespace, name, wanted, only) not in (None, wanted):
            changed.append(f"{plan.snapshot.namespace}/{name}")
    return f" DaemonSet {' and '.join(changed)} has its former template again, until the next run." if changed else ""


def _drain(cluster: Cluster, plan: Plan, moves: t.Sequence[Move], options: BatchOptions, clock: Clock) -> None:
    by_drain: dict[Drain, list[Move]] = {}
    for move in moves:
        by_drain.setdefault(drain_of(move, options.drain, options.drain_of_pools), []).append(move)
    for asked, of_moves in by_drain.items():
        ready = _ready_handlers(plan, of_moves)
        if asked.vms == "migrate" and ready:
            admission = live.admission(cluster, plan.snapshot.namespace)
            evacuation = Evacuation.from_snapshot(ready, plan.snapshot, admission)
        else:
            evacuation = Evacuation(ready)
        drain.carry_out(cluster, asked, evacuation, options.migration_timeout, clock)


def _ready_handlers(plan: Plan, moves: t.Sequence[Move]) -> dict[str, bool]:
    """The nodes that are to lose a handler, and whether it is Ready. A handover that has begun took it already."""
    begun = {m.node for m in moves if m.action == "finish" or plan.snapshot.nodes[m.node].owner == names.IN_TRANSIT}
    handlers = {m.node: plan.snapshot.handlers.get(m.node, ()) for m in moves if m.node not in begun}
    return {node: any(pod.ready for pod in pods) for node, pods in handlers.items() if pods}


def _await_migrations(cluster: Cluster, moves: t.Sequence[Move], timeout: float, clock: Clock) -> None:
    problem = settle.await_migrations(cluster, [move.node for move in moves], timeout, clock)
    if problem is not None:
        raise ClusterError(
            f"No node of this batch was touched, because live migrations through its nodes did not end within "
            f"{timeout:.0f} s, and a restarting handler would break them: {problem}"
        )
