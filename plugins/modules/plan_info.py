#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module plan_info: what a run would do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: plan_info
short_description: Plan virt-handler pools on a cluster, without changing anything
version_added: 0.1.0
description:
  - Compares a pool list with a cluster. Returns everything that a run of the playbook C(virtpools.kubevirt.site) would do, in order, and what its user
    should know first.
  - Needs only the rights of the ClusterRole C(virtpools-reader).
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.mode
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
options:
  expected_plan:
    description:
      - Digest of the plan that was approved. When the plan is no longer that one, the run is refused with what changed since, and changes
        nothing.
      - An approved plan still holds after an interruption, since the digest does not cover what is left to do. The run that completes
        it uses the approval up.
    type: str
  for_run:
    description:
      - Whether a run follows. Then the module also checks the rights that the run needs, and reports all missing ones together. It waits up to
        O(settle_timeout) seconds for a KubeVirt that an interrupted run left unsettled.
    type: bool
    default: false
  settle_timeout:
    description: Seconds to wait with O(for_run).
    type: int
    default: 1800
  run_id:
    description: The run that holds the Lease, as M(virtpools.kubevirt.run_lease) returned it. A wait with O(for_run) renews the Lease.
    type: str
  cluster_name:
    description: The cluster's name in the inventory, under which its plan is published and approved.
    type: str
    default: localhost
  planned_batches:
    description:
      - For a run that failed, RV(batches) of the plan that it began with. RV(ending) and RV(outcome) then tell how far it came.
    type: list
    elements: list
  dump:
    description:
      - A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to plan from instead of a
        cluster.
      - It must hold KubeVirt, DaemonSets, the Deployment C(virt-controller), nodes and the pods of KubeVirt's namespace; HyperConverged
        where there is one; for O(vms) the launcher pods, and the namespaces where pools select them; the policies, to see what the
        launcher policy does now; with O(alerts) the PrometheusRules.
    type: path
  stop_after_wave:
    description:
      - The name or number of the last wave that the run carries out. The run then ends successfully. To go on, run it again without
        this option or with a later wave.
      - The digest of the plan does not depend on it, so an approved plan stays approved.
    type: raw
  canary_vm:
    description:
      - The VM that M(virtpools.kubevirt.canary_vm) starts after each wave, in the form that module takes. A finding says for which pools. With
        O(for_run), the API server checks each VM in a dry run.
    type: raw
  vms:
    description:
      - Whether to read the launcher pods of all namespaces, to name the running VMs that the mapping keeps off the nodes they run on, or off all nodes that
        they could run on.
    type: bool
    default: false
  published_plan:
    description:
      - The approved plan, as an earlier job of a workflow published it. AWX passes it on. It is used where O(expected_plan) is not
        given.
      - The playbook C(plan), and C(site), C(rollout), C(rollback), C(remove) and C(upgrade) in check mode, publish their plans, each
        for its own kind of run. With several clusters there is one plan for each.
    type: raw
  require_approval:
    description: Whether a run is refused without the digest of an approved plan, from O(expected_plan) or O(published_plan).
    type: bool
    default: false
  feature_gates_present:
    description: Feature gates of KubeVirt that the run turns on before anything else. Pools on stock KubeVirt need none.
    type: list
    elements: str
    default: []
  feature_gates_absent:
    description: Feature gates of KubeVirt that the run turns off, with O(remove_pools) at its end.
    type: list
    elements: str
    default: []
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: What would happen?
  virtpools.kubevirt.plan_info:
    pools:
      - name: gpu
        nodeSelector:
          accelerator: nvidia
        virtHandlerImage: registry.example/virt-handler:v1.9.0-gpu
  register: plan

- name: Show it
  ansible.builtin.debug:
    var: plan.text
"""

RETURN = r"""
mode:
  description: V(collection) or V(operator). In an operator-mode plan, what only collection pools have is empty.
  returned: success
  type: str
build:
  description: The build of KubeVirt by whose pools an operator-mode run works, as in O(pools_dialect). Empty for collection pools.
  returned: success
  type: str
leaving:
  description:
    - Whose pools a run takes down first, V(operator) or V(collection), because it brings pools of the other mode. Empty for an ordinary run.
    - RV(changes), RV(text) and RV(owners) are then about both parts, and all else is about the second, on the cluster as the first will leave it.
  returned: success
  type: str
move:
  description:
    - For a run that moves between the modes, or that goes on with a move that an earlier run began. What M(virtpools.kubevirt.pool_history) is to record
      before the first write, as O(virtpools.kubevirt.pool_history#module:move). Empty for an ordinary run.
  returned: success
  type: dict
  contains:
    to:
      description: The list that the move brings, as an entry of the history. Its C(pools) also have those of the former mode that stay.
      type: dict
    former:
      description: The pools of the former mode, as an entry of the history. Null when there are none.
      type: dict
    digest:
      description: That of this plan.
      type: str
    readFrom:
      description: The dialect in which the list was read from the cluster. Empty for any other list.
      type: str
pending:
  description: Whether a run has anything to do, within the limit of O(stop_after_wave).
  returned: success
  type: bool
recorded:
  description: Whether the newest list in the history has these pools. It does not when a run was killed between its last change and its record.
    In a removal, whether no unfinished move between the modes brings the pools back.
  returned: success
  type: bool
settling:
  description: Whether KubeVirt has not rolled out yet what an earlier run asked of it; the run waits for that.
  returned: success
  type: bool
digest:
  description:
    - Approve the plan by this digest. It covers the desired objects, the owner of every node, the options that change what is written, and the list that
      the last completed run brought. In a move between the modes, it also covers the pools that the first part takes down.
  returned: success
  type: str
  sample: 9d3c52e7ab10-4be2a0fcd1c1-77d0ff0ae914-0a1b2c3d4e5f-5f2c81d07b9a
changes:
  description: Every change, one line each, in the order of the run.
  returned: success
  type: list
  elements: str
  sample: ["DaemonSet kubevirt/virt-handler-gpu: create", "Node gpu-0: primary -> gpu"]
batches:
  description: The moves of nodes, in groups that are handed over side by side.
  returned: success
  type: list
  elements: list
next_batches:
  description: For each batch, the next batch of its wave, for O(virtpools.kubevirt.pool_nodes#module:next_batch). Empty for the last one of a wave.
  returned: success
  type: list
  elements: list
waves:
  description: The waves, in order. Without O(waves) there is one.
  returned: success
  type: list
  elements: dict
  contains:
    number:
      description: Its position, from 1.
      type: int
    name:
      description: Its name.
      type: str
    nodes:
      description: All its nodes, including those that are done.
      type: list
      elements: str
    pools:
      description: The pools that get nodes or new handlers in it.
      type: list
      elements: str
    done:
      description: How many nodes are as they should be.
      type: int
    left:
      description: How many nodes are still to be changed.
      type: int
    held_back:
      description: How many nodes should change but cannot now, since they are not Ready for instance.
      type: int
    batches:
      description: The indices of its batches in RV(batches).
      type: list
      elements: int
    due:
      description: Whether the run carries it out, if only to check its gate. Not when it has nothing to do, or comes after O(stop_after_wave).
      type: bool
    open:
      description: Its identifier in the history, when an earlier run began it and its gate has not passed since. Otherwise empty.
      type: str
stop:
  description: Where the run stops early, and how to go on. Empty when it does not stop.
  returned: success
  type: str
progress:
  description: How far the rollout is before each of RV(batches), for M(virtpools.kubevirt.pool_nodes).
  returned: success
  type: list
  elements: dict
steps:
  description:
    - The parts that the run writes, by the names that M(virtpools.kubevirt.run_part) has for them, in their order. The keys are steps of the run. A number is
      the number of batches before the step, V(0) is before the first batch, V(last) is after the DaemonSets of pools that go are deleted.
  returned: success
  type: dict
  sample: {"0": [launcher_policy, guard, alerts], "1": [launcher_policy], "last": [alerts]}
released:
  description:
    - Nodes where KubeVirt's own virt-handler does not start and that get a pool, for O(virtpools.kubevirt.primary_exclusion#module:released).
  returned: success
  type: list
  elements: str
leftovers:
  description: Image pull pods and canary VMs that an interrupted run left behind. The run deletes them.
  returned: success
  type: list
  elements: str
  sample: ["VirtualMachine default/virt-canary-gpu: delete"]
retire:
  description: Names of the pools whose DaemonSet is deleted at the end.
  returned: success
  type: list
  elements: str
found_list:
  description:
    - In operator mode, a digest of the pools that the cluster has, for O(virtpools.kubevirt.operator_pools#module:found_list). Empty in collection mode.
  returned: success
  type: str
feature_gates:
  description: Whether the run changes feature gates. That comes first or, with O(remove_pools), last.
  returned: success
  type: bool
exclusion:
  description: Whether the run changes the exclusion, which keeps the primary off pool nodes. With O(remove_pools), that comes last.
  returned: success
  type: bool
cleared:
  description: What else the run deletes at the very end, when no pool stays.
  returned: success
  type: list
  elements: str
  sample: ["ConfigMap kubevirt/virtpools-history: delete"]
findings:
  description: What the user should know. Errors forbid a run.
  returned: success
  type: list
  elements: dict
  contains:
    severity:
      description: V(error), V(warning) or V(note).
      type: str
    code:
      description: A stable name for this kind of finding.
      type: str
    message:
      description: One sentence.
      type: str
errors:
  description: The messages of the findings that forbid a run.
  returned: success
  type: list
  elements: str
owners:
  description:
    - How many nodes every owner has now, and how many it will have.
    - Nodes where the primary runs no handler, such as most of a control plane, are not the primary's.
  returned: success
  type: dict
state:
  description:
    - What the pools are like now, as lines for people, as RV(virtpools.kubevirt.pool_info#module:text) has it.
    - Empty when a run has anything to do. What it leaves is to be read after it.
  returned: success
  type: list
  elements: str
ending:
  description: The last lines for people of a run that failed, with O(planned_batches). What it did, what stayed as it was, how to go on and to go back.
  returned: success
  type: list
  elements: str
  sample:
    - "Done: 2 of 4 nodes (gpu-0, gpu-1)."
    - "As before: 2 nodes (gpu-2, gpu-3)."
    - "To go on, correct the cause and run the same command again. To go back: ansible-playbook virtpools.kubevirt.rollback"
outcome:
  description:
    - What to publish of a run that has carried this plan out or, with O(planned_batches), of the run that failed. A dictionary by O(cluster_name).
  returned: success
  type: dict
  sample:
    west:
      {"run": "site", "digest": "9d3c52e7ab10-4be2a0fcd1c1-77d0ff0ae914-0a1b2c3d4e5f-5f2c81d07b9a", "changed": true, "failed": true, "nodes": 4,
      "done": 1, "stop": "", "later": [], "summary": "failed, with 1 of 4 nodes changed"}
published:
  description: What a later job of a workflow needs to carry out this very plan. A dictionary by O(cluster_name), then by the kind of run.
  returned: success
  type: dict
  sample: {"west": {"site": {"digest": "9d3c52e7ab10-4be2a0fcd1c1-77d0ff0ae914-0a1b2c3d4e5f-5f2c81d07b9a", "nodes": 4, "pending": true}}}
text:
  description: The plan for people, as lines.
  returned: success
  type: list
  elements: str
"""

import time

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.plans.planner import Planner
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import dump
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import canary
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.feature_gates import Gates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import approval
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.outcome import RunOutcome
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import run_end
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports.plan_result import PlanFor, plan_result

ARGUMENTS = {
    **option_table.arguments("mode", "pools", "plan_info"),
    "for_run": {"type": "bool", "default": False},
    "run_id": {"type": "str"},
    "canary_vm": {"type": "raw"},
    "cluster_name": {"type": "str", "default": "localhost"},
    "vms": {"type": "bool", "default": False},
    "planned_batches": {"type": "list", "elements": "list"},
}


def body(task: module_base.Task) -> dict:
    params = task.params
    canary_vm = canary.parse(params["canary_vm"])
    request = PlanRequest(
        options=task.asked.options,
        pools=task.asked.pools,
        dialect=task.asked.dialect,
        stop_after_wave=params["stop_after_wave"],
        canary_vms=canary_vm is not None,
        asks_about_vms=params["vms"],
        gates=Gates(tuple(params["feature_gates_present"]), tuple(params["feature_gates_absent"])),
        read_from=params["pools_dialect"] if params["pools_from_cluster"] else "",
    )
    run, cluster = _run(params), task.cluster_id()
    planner = Planner(
        session=task,
        request=request,
        asked=task.asked.mode,
        canary_vm=canary_vm,
        for_run=params["for_run"],
        settle_timeout=params["settle_timeout"],
        expected=approval.expected_digest(params, run, cluster, changes=params["for_run"]),
        objects=dump.read_objects(params["dump"]) if params["dump"] else None,
        kubevirt=(params["kubevirt_namespace"], params["kubevirt_name"]),
    )
    with task.waiting():
        planned = planner.plan()
    state = None if planned.proposal.pending else planned.mode.state(planned.proposal.snapshot)
    made_for = PlanFor(run, params["cluster_name"], cluster, params["published_plan"])
    result = plan_result(planned.proposal, planned.departure, planned.move, state, made_for, time.time())
    batches = params["planned_batches"]
    if batches is None:
        ending, became = [], RunOutcome.of_completed(run, planned.proposal)
    else:
        ending = run_end.lines(batches, planned.proposal, run)
        became = RunOutcome.of_failed(run, batches, planned.proposal)
    return {**result, "ending": ending, "outcome": became.publish(params["cluster_name"])}


def _run(params: dict) -> approval.Run:
    if params["remove_pools"] is not None:
        return "remove"
    return "rollback" if params["pools_from_history"] else "site"


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
