#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module canary_vm: do VMs start on the nodes of a wave?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: canary_vm
short_description: Start a VM on the nodes of a wave, verify it, and delete it
version_added: 0.1.0
description:
  - For every pool that owns some of O(nodes), creates a VM that the pool's selector matches and that fits only these nodes. The VM carries the label
    C(virtpools.io/canary), so that it gets the pool's new launcher image before other VMs do.
  - The VM passes when it runs on one of the nodes, with the right launcher image in every place of its launcher pod, within O(timeout) seconds. It
    is always deleted afterwards. The module fails at the first VM that does not pass.
  - A pool that takes no VMs, or none yet, gets no canary VM. RV(text) reports this.
  - A canary VM that a killed run left behind is deleted by the next run. Its name and its uid identify it, not its labels, so that a copy of it under
    another name stays.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
options:
  nodes:
    description: The nodes of the wave. One that does not exist is refused. With O(run_id) it was deleted since the plan of the run, and gets no VM.
    type: list
    elements: str
    required: true
  of_pools:
    description: Names of the pools that get a VM. Without it, all pools that own some of O(nodes).
    type: list
    elements: str
  canary_vm:
    description:
      - The VM. V(true) is a VM without disks and network in the namespace V(default). Otherwise the manifest of a VirtualMachine, or of a
        VirtualMachineInstance, from which a VirtualMachine is created. A manifest without C(spec) has that of V(true).
      - The module uses the manifest's C(metadata.namespace), labels and annotations. When a pool takes no VMs of that namespace, its VM is created in
        the first namespace that it takes VMs of.
      - The VM is called C(virt-canary-) and the pool's name. The module adds a required node affinity, C(architecture) unless it is given, and what the
        pool's selector asks for and the VM lacks. That is a label, a nodeSelector, or the first of the pool's devices, as one of C(hostDevices).
    type: raw
    default: true
  timeout:
    description: Seconds that a VM may take to run, and again to be deleted.
    type: int
    default: 180
attributes:
  check_mode:
    support: full
    details:
      - The API server checks the VMs in a dry run.
  diff_mode:
    support: N/A
    details:
      - The VMs are deleted again.
  idempotent:
    support: full
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Start a VM on the first two nodes
  virtpools.kubevirt.canary_vm:
    pools: "{{ virtpools_pools }}"
    nodes: [gpu-0, gpu-1]
    canary_vm:
      metadata:
        namespace: canaries
"""

RETURN = r"""
vms:
  description: The VMs that have passed.
  returned: success
  type: list
  elements: dict
  contains:
    pool:
      description: The pool.
      type: str
    vm:
      description: Its namespace and name.
      type: str
    node:
      description: The node where it ran.
      type: str
    image:
      description: The launcher image that it had.
      type: str
    seconds:
      description: How long it took to run.
      type: float
wave_failed:
  description: Whether a VM means that the wave failed, so that a run with C(virtpools_on_failure) goes back. Any other error only stops the run.
  returned: failure
  type: bool
events:
  description: The same for people. Ansible shows these lines while the module works, if it runs in Ansible's worker process.
  returned: when a VM was started
  type: list
  elements: str
text:
  description: The pools without a VM and, in check mode, the VMs that would start, for people.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import canary
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.canary import Draft, LeftOut, parse
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verdicts import Judge

ARGUMENTS = {
    **option_table.arguments("pools", "run"),
    "nodes": {"type": "list", "elements": "str", "required": True},
    "of_pools": {"type": "list", "elements": "str"},
    "canary_vm": {"type": "raw", "default": True},
    "timeout": {"type": "int", "default": 180},
}


def body(task: module_base.Task) -> dict:
    wanted = parse(task.params["canary_vm"])
    if wanted is None:
        return {"changed": False, "vms": [], "text": []}
    task.check_nodes(task.params["nodes"])
    plan = task.plan_in_run()
    judge = Judge.for_plan(plan)
    nodes = [node for name, node in plan.snapshot.nodes.items() if name in task.params["nodes"]]
    if task.params["of_pools"] is not None:
        nodes = [node for node in nodes if node.owner in task.params["of_pools"]]
    everywhere = plan.snapshot.nodes.values()
    drafts = canary.draft_vms(task.cluster, wanted, judge.table, nodes, everywhere, plan.snapshot.kubevirt)
    left_out = [str(each) for each in drafts if isinstance(each, LeftOut)]
    drafted = [each for each in drafts if isinstance(each, Draft)]
    if task.check_mode:
        for each in drafted:
            canary.dry_run(task.cluster, each)
        return {"changed": False, "vms": [], "text": [*(f"{each} would start." for each in drafted), *left_out]}
    with task.writing(plan.snapshot.namespace):
        canary.remove_leftovers(task.cluster, task.params["timeout"], task.clock)
        passed = [_passed(task, each, judge) for each in drafted]
    return {"changed": False, "vms": [each.to_dict() for each in passed], "text": left_out}


def _passed(task: module_base.Task, draft: Draft, judge: Judge) -> canary.CanaryOutcome:
    outcome = canary.try_out(task.cluster, draft, judge, task.params["timeout"], task.clock)
    if outcome.problem is not None:
        raise module_base.TaskFailed(
            f"The gate has not passed, and the rollout stops here. {outcome} Later waves are left alone. Repair this, then "
            "run again.",
            {"wave_failed": True},
        )
    task.status.say(str(outcome))
    return outcome


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
