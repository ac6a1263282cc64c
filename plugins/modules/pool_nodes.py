#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module pool_nodes: hand nodes over to their owners, and replace outdated handlers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pool_nodes
short_description: Hand nodes over between the primary and pools, and replace outdated handler pods
version_added: 0.1.0
description:
  - Hands nodes over, side by side, to the owner that the pools give them. The new handler starts only after the old one has ended, so a node never has
    two. Before it changes the first node, the module checks that every node is Ready, that the new handler would be scheduled there, that its
    images are on the node, and that no live migration runs through the node. It waits up to a minute for VMs that a node's handler is starting or migrating.
  - The next handler of a node marks a VM as failed that the present one has no record of, which may be so after a live migration. So the module first
    makes the handlers record such VMs again, by the annotation C(virtpools.io/reminder) on each, which it removes at once.
  - A node whose new handler does not become Ready in time goes back to its former owner, and the module fails with a report on every node.
  - Handler pods that were created from an old template of their pool's DaemonSet are replaced in the same way.
  - Run M(virtpools.kubevirt.primary_exclusion) and M(virtpools.kubevirt.pool_daemonsets) first.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  nodes:
    description:
      - Hand over only these nodes, side by side. Normally a batch of a plan from M(virtpools.kubevirt.plan_info).
      - A node that does not exist is refused. With O(run_id) or O(next_batch) it was deleted since the plan of the run; RV(events) reports it.
      - Without it, the module hands over all nodes that need it, in batches that O(max_unavailable) allows.
      - An empty list only deletes the image pull pods and canary VMs that an interrupted run left behind.
    type: list
    elements: str
  progress:
    description:
      - How far the rollout is before O(nodes), as M(virtpools.kubevirt.plan_info) returned it for the batch. With it, RV(events) ends with a line that
        says how far the rollout is, and how long it may still take.
    type: dict
  next_batch:
    description:
      - The moves that follow O(nodes), as M(virtpools.kubevirt.plan_info) returned them in RV(virtpools.kubevirt.plan_info#module:next_batches). Their
        images are pulled while O(nodes) are handed over, so that the next batch need not wait for them.
      - An image that cannot be pulled is not an error here. The next batch pulls again what is missing.
    type: list
    elements: dict
  first_batch:
    description:
      - When the first batch of the run began, as RV(first_batch) of the batch before; the time that the run may still take is estimated from then on.
      - By default, this batch is the first.
    type: float
  settle_timeout:
    description: Seconds to wait for KubeVirt to be available and settled before a batch.
    type: int
    default: 300
  node_timeout:
    description: Seconds to wait for the old handler to stop, and again for the new one to become Ready, before the node goes back to
      its former owner.
    type: int
    default: 300
  pull_timeout:
    description: Seconds that the images of a batch may take to be pulled.
    type: int
    default: 900
  migration_timeout:
    description: Seconds to wait for live migrations that a restart of a handler would break. With O(drain), also the seconds that one
      migration, and the end of VMs that are waited for, may take.
    type: int
    default: 900
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Hand over all nodes that need it
  virtpools.kubevirt.pool_nodes:
    pools: "{{ virtpools_pools }}"
    max_unavailable: 10%
"""

RETURN = r"""
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["Node gpu-0: primary -> gpu"]
nodes:
  description: The result of every node. Empty in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    node:
      description: Its name.
      type: str
    from:
      description: The owner it had.
      type: str
    to:
      description: The owner it was to get.
      type: str
    action:
      description: V(move), V(finish) for a handover that is not proven yet, or V(replace) for an outdated handler.
      type: str
    result:
      description:
        - V(done), V(gone) when the node was deleted, V(untouched) where the next handler would not start now, V(returned) to its former owner,
          V(stuck) when a person must repair it, V(failed) when a replaced handler does not become Ready, or V(interrupted) when a request
          failed or another client changed the node. The module fails unless each node is V(done) or V(gone).
      type: str
    message:
      description: Why it is not done.
      type: str
    seconds_without_handler:
      description: Seconds from the deletion of the old handler until the new one was Ready.
      type: float
    began:
      description: When the old handler was told to end, in seconds since 1970. Null when none was.
      type: float
wave_failed:
  description:
    - Whether a node failed, so that a run with C(virtpools_on_failure) goes back. A lost Lease, an API server that cannot be reached, or a change by
      another client only stops the run.
  returned: failure
  type: bool
first_batch:
  description: O(first_batch) or, without it, when the module began, in seconds since 1970.
  returned: success
  type: float
events:
  description:
    - What happened, for people, and in the end what was done in total. In check mode, what would be done.
    - Ansible shows these lines while the module works, if it runs in Ansible's worker process.
  returned: when a node was, or would be, changed or deleted
  type: list
  elements: str
  sample: ["Node gpu-0: primary -> gpu, 31.4 s without a handler", "1 of 1 node done."]
"""

import time
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import batch_run, images
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.node_handover import HandoverOutcome
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors, counted
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import preflight
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.batching import Move
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.progress import Progress

ARGUMENTS = {
    **option_table.arguments("pools", "run", "pool_nodes"),
    "nodes": {"type": "list", "elements": "str"},
    "progress": {"type": "dict"},
    "next_batch": {"type": "list", "elements": "dict"},
    "first_batch": {"type": "float"},
}


def body(task: module_base.Task) -> dict:
    began = time.time()
    clock_began = began - task.clock.now()
    nodes, following = task.params["nodes"], [Move.from_argument(move) for move in task.params["next_batch"] or ()]
    stands = None if task.params["progress"] is None else Progress.from_argument(task.params["progress"])
    # A batch of a run that has the Lease: no other run hands over nodes, so one plan is enough.
    task.check_nodes(nodes or (), planned=task.params["next_batch"] is not None)
    is_batch = bool(nodes and task.params["run_id"]) and not task.check_mode
    if is_batch:
        _settle(task)
    plan = task.plan(nodes)
    for name in sorted(set(nodes or ()) - plan.snapshot.nodes.keys()):
        task.status.say(f"Node {name}: gone: the node was deleted")
    # Otherwise each batch waits until these have passed, or fails because they do not.
    task.refuse(plan, but=() if is_batch or task.check_mode else preflight.PASSING)
    groups = plan.batches or ((),) if nodes is None else (plan.moves,)
    # A call that hands over some nodes removes what is left behind as well, but only one of several calls can count it.
    changes = [] if nodes else list(plan.leftovers)
    changes += [str(move) for group in groups for move in group]
    changed = bool(changes)
    result: dict = {
        "changed": changed,
        "changes": changes,
        "nodes": [],
        "first_batch": task.params["first_batch"] or began,
        "diff": _diff(plan),
    }
    if task.check_mode:
        task.status.say_all(changes)
    if task.check_mode or not changed:
        return result
    outcomes: list[HandoverOutcome] = []
    with task.writing(plan.snapshot.namespace):
        for group, ahead in zip(groups, (*groups[1:], following), strict=True):
            names = [move.node for move in group]
            try:
                if not is_batch:
                    _settle(task)
                present = plan if is_batch else _planned(task, names)
                for outcome in _carry_out(task, present, names, ahead):
                    outcomes.append(outcome)
                    result["nodes"].append(outcome.to_dict(clock_began))
            except (ClusterError, InputErrors) as error:
                # Nodes that are done are still reported.
                failed = isinstance(error, images.ImagesMissing)
                raise module_base.TaskFailed(str(error), {**_done(result, outcomes), "wave_failed": failed}) from error
            _refuse_to_go_on(outcomes, result)
        task.status.say_all(_progress(task, stands, plan, outcomes, result["first_batch"]))
    return result


def _settle(task: module_base.Task) -> None:
    if not task.asked.options.undoing:  # pools can go while KubeVirt is not well
        task.settle(task.params["settle_timeout"])


def _planned(task: module_base.Task, nodes: list[str]) -> Plan:
    """The plan for some nodes under the Lease: what was true before may not be any more."""
    plan = task.plan(nodes)
    task.refuse(plan)
    return plan


def _carry_out(
    task: module_base.Task, plan: Plan, nodes: list[str], ahead: t.Sequence[Move]
) -> t.Iterator[HandoverOutcome]:
    options = batch_run.BatchOptions(
        handler_timeout=task.params["node_timeout"],
        pull_timeout=task.params["pull_timeout"],
        migration_timeout=task.params["migration_timeout"],
        prepull=task.asked.options.prepull,
        drain=task.asked.options.drain,
        drain_of_pools=task.asked.options.drain_of_pools,
    )
    return batch_run.carry_out(
        task.cluster, plan, plan.moves, options, task.clock, lambda: _planned(task, nodes), ahead
    )


def _progress(
    task: module_base.Task, stands: Progress | None, plan: Plan, outcomes: list[HandoverOutcome], first_batch: float
) -> list[str]:
    done = sum(outcome.result == "done" for outcome in outcomes)
    if stands is None:
        return [f"{done} of {counted(len(outcomes), 'node')} done."]
    try:
        without = live.count_without_handler(task.cluster, plan.snapshot.namespace)
    except ClusterError:  # no line about a batch is worth a run
        return []
    return [stands.line(done, without, time.time(), first_batch)]


def _refuse_to_go_on(outcomes: list[HandoverOutcome], result: dict) -> None:
    failed = [outcome for outcome in outcomes if outcome.ends_run]
    if failed:
        raise module_base.TaskFailed(
            f"{len(failed)} of {counted(len(outcomes), 'node')} failed, and the run stops here. {' '.join(f'{o}.' for o in failed)}",
            {**_done(result, outcomes), "wave_failed": any(outcome.node_failed for outcome in failed)},
        )


def _done(result: dict, outcomes: list[HandoverOutcome]) -> dict:
    """The result of a task that failed: only what was done is a change."""
    changes = [str(outcome.move) for outcome in outcomes if outcome.changed]
    return {**result, "changed": bool(changes), "changes": changes, "diff": []}


def _diff(plan: Plan) -> dict:
    owners = [move for move in plan.moves if move.action != "replace"]
    replaced = sorted(move.node for move in plan.moves if move.action == "replace")
    before: dict = {move.node: plan.snapshot.nodes[move.node].owner for move in owners}
    after: dict = {move.node: move.target for move in owners}
    for name in replaced:
        before[name], after[name] = "handler from an old template", "handler from the present template"
    return {"before_header": "owners of nodes", "after_header": "owners of nodes", "before": before, "after": after}


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
