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
  - Brings nodes to the owner that the pools give them, side by side. The old handler is gone before the new one starts, so that a node never
    has two, and everything that can be known before is checked before the first node is touched. The node is Ready, the new handler would be
    scheduled there, its images are on the node, no live migration runs through it.
  - A node whose new handler does not get Ready in time goes back to its former owner, and the module fails with a report of every node.
  - Handler pods that were made from an old template of their pool's DaemonSet are replaced in the same way.
  - Run M(virtpools.kubevirt.primary_exclusion) and M(virtpools.kubevirt.pool_daemonsets) before.
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
      - Bring only these nodes to their owners, all at once. Normally a batch of a plan from M(virtpools.kubevirt.plan_info).
      - Without it, all nodes that need it, in batches that O(max_unavailable) allows.
      - An empty list only deletes what an interrupted run left behind, pods that pull images and canary VMs.
    type: list
    elements: str
  progress:
    description:
      - Where the rollout stands before O(nodes), as M(virtpools.kubevirt.plan_info) returned it for the batch. Then the text ends with a line on
        how far it is, and how long it may still take.
    type: dict
  settle_timeout:
    description: How many seconds to wait for KubeVirt to be available and settled before a batch.
    type: int
    default: 300
  node_timeout:
    description: How many seconds an old handler may take to end, and then the new one to get Ready, before the node goes back.
    type: int
    default: 300
  pull_timeout:
    description: How many seconds the images of a batch may take to be pulled.
    type: int
    default: 900
  migration_timeout:
    description:
      - How many seconds to wait for live migrations through the nodes of a batch. With O(vms_on_nodes), how many one migration may take, and VMs
        that are waited for.
    type: int
    default: 900
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Hand over what needs it
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
  description: What became of every node. Empty in check mode.
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
      description: V(move), V(finish) an unproven handover, or V(replace) an outdated handler.
      type: str
    result:
      description:
        - V(done), V(returned) to its former owner, V(stuck) when a person must look, or V(failed) when a replaced handler does not get Ready.
      type: str
    message:
      description: Why it is not done.
      type: str
    seconds_without_handler:
      description: From the moment the old handler was told to end until the next was Ready.
      type: float
text:
  description: The same for a person, as lines.
  returned: success
  type: list
  elements: str
  sample: ["Node gpu-0: primary -> gpu, 31.4 s without a handler"]
"""

import time

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import batches, live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.handover import Outcome
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import preflight
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.progress import Progress

ARGUMENTS = {
    **_module.POOL_ARGUMENTS,
    **_module.RUN_ARGUMENTS,
    "nodes": {"type": "list", "elements": "str"},
    "progress": {"type": "dict"},
    "settle_timeout": {"type": "int", "default": 300},
    "node_timeout": {"type": "int", "default": 300},
    "pull_timeout": {"type": "int", "default": 900},
    "migration_timeout": {"type": "int", "default": 900},
}


def body(task: _module.Task) -> dict:
    nodes = task.params["nodes"]
    stands = None if task.params["progress"] is None else Progress.of(task.params["progress"])
    made = task.plan(nodes)
    task.refuse(made, but=() if task.check_mode else preflight.TRANSIENT)
    groups = made.batches or ((),) if nodes is None else (made.moves,)
    # Whoever hands over some nodes removes what is left behind as well, but only one of several calls can count it.
    changes = [] if nodes else list(made.leftovers)
    changes += [str(move) for group in groups for move in group]
    changed = bool(changes)
    result: dict = {"changed": changed, "changes": changes, "nodes": [], "text": changes, "diff": _diff(made)}
    if task.check_mode or not changed:
        return result
    outcomes: list[Outcome] = []
    with task.writing(made.snapshot.namespace):
        for group in groups:
            try:
                if not made.undoing:  # pools can go while KubeVirt is not well
                    task.settle(task.params["settle_timeout"])
                outcomes += _carry_out(task, task.plan([move.node for move in group]))
            except (ClusterError, InputErrors) as error:
                # Nodes of earlier batches are reported all the same.
                raise _module.TaskFailed(str(error), result) from error
            result["nodes"] = [outcome.to_dict() for outcome in outcomes]
            result["text"] = [*map(str, outcomes), *_progress(task, stands, made, outcomes)]
            _refuse_to_go_on(outcomes, result)
    return result


def _carry_out(task: _module.Task, made: Plan) -> list[Outcome]:
    """Carry out a plan for some nodes, made under the Lease: what was true before may not be any more."""
    task.refuse(made)
    timeouts = batches.Timeouts(
        handler=task.params["node_timeout"],
        pull=task.params["pull_timeout"],
        migrations=task.params["migration_timeout"],
    )
    options = task.options()
    return batches.carry_out(
        task.cluster, made, made.moves, timeouts, task.clock, prepull=options.prepull, vms=options.drain
    )


def _progress(task: _module.Task, stands: Progress | None, made: Plan, outcomes: list[Outcome]) -> list[str]:
    if stands is None:
        return []
    try:
        without = live.without_handler(task.cluster, made.snapshot.namespace)
    except ClusterError:  # no line about a batch is worth a run
        return []
    return [stands.line(sum(outcome.result == "done" for outcome in outcomes), without, time.time())]


def _refuse_to_go_on(outcomes: list[Outcome], result: dict) -> None:
    failed = [outcome for outcome in outcomes if outcome.result != "done"]
    if failed:
        raise _module.TaskFailed(
            f"{len(failed)} of {len(outcomes)} node(s) failed, and the run stops here. {' '.join(f'{o}.' for o in failed)}",
            result,
        )


def _diff(made: Plan) -> dict:
    owners = [move for move in made.moves if move.action != "replace"]
    replaced = sorted(move.node for move in made.moves if move.action == "replace")
    before: dict = {move.node: made.snapshot.nodes[move.node].owner for move in owners}
    after: dict = {move.node: move.target for move in owners}
    for name in replaced:
        before[name], after[name] = "handler from an old template", "handler from the present template"
    return {"before_header": "owners of nodes", "after_header": "owners of nodes", "before": before, "after": after}


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
