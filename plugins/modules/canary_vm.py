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
  - For every pool that has some of O(nodes), a VM is made that the pool's selector takes and that only these nodes fit. It carries the label
    C(virtpools.io/canary), so that it has the pool's new launcher image before other VMs get it.
  - It has passed when it runs, on one of the nodes, with the right launcher image in every place of its launcher pod. Then, and when it has not
    passed within O(patience) seconds, it is deleted. The module fails at the first one that has not passed.
  - A pool that takes no VMs, or not yet, has none, which RV(text) says.
  - One that a run left behind when it was killed is deleted by the next one.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
options:
  nodes:
    description: The nodes of the wave.
    type: list
    elements: str
    required: true
  of_pools:
    description: Only these pools have a VM, by their names. Without it, all that have some of O(nodes).
    type: list
    elements: str
  canary_vm:
    description:
      - The VM. V(true) is one without disks and network in the namespace V(default). Else the manifest of a VirtualMachine or of a
        VirtualMachineInstance, which is made into one; without C(spec) it is that of V(true).
      - Its C(metadata.namespace), labels and annotations count. A pool that takes no VMs of that namespace has its VM in the first one that it
        takes VMs of.
      - The name is C(virt-canary-) and the pool's. Added are a required node affinity, C(architecture) unless it is given, and what
        else the pool asks for, if the VM has none of it, a label, a nodeSelector, or the first of its devices, as one of C(hostDevices).
    type: raw
    default: true
  patience:
    description: How many seconds a VM may take to run, and to go.
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
      - Nothing of the VMs stays.
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
      description: Where it ran.
      type: str
    image:
      description: The launcher image that it had.
      type: str
    seconds:
      description: How long it took to run.
      type: float
text:
  description: The same for a person, and the pools without a VM.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import canary
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import preflight
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.canary import Draft, LeftOut, parse
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.verdicts import Judge

ARGUMENTS = {
    **_module.POOL_ARGUMENTS,
    **_module.RUN_ARGUMENTS,
    "nodes": {"type": "list", "elements": "str", "required": True},
    "of_pools": {"type": "list", "elements": "str"},
    "canary_vm": {"type": "raw", "default": True},
    "patience": {"type": "int", "default": 180},
}


def body(task: _module.Task) -> dict:
    wanted = parse(task.params["canary_vm"])
    if task.params["patience"] < 0:
        raise InputErrors(["patience is in seconds; give a number from 0."])
    if wanted is None:
        return {"changed": False, "vms": [], "text": []}
    made = task.plan()
    task.refuse(made, but=preflight.TRANSIENT)
    judge = Judge.of(made)
    nodes = [node for name, node in made.snapshot.nodes.items() if name in task.params["nodes"]]
    if task.params["of_pools"] is not None:
        nodes = [node for node in nodes if node.owner in task.params["of_pools"]]
    drafts = canary.drafts(task.cluster, wanted, judge.table, nodes, made.snapshot.kubevirt)
    left_out = [str(each) for each in drafts if isinstance(each, LeftOut)]
    found = [each for each in drafts if isinstance(each, Draft)]
    if task.check_mode:
        for each in found:
            canary.rehearse(task.cluster, each)
        return {"changed": False, "vms": [], "text": [*(f"{each} would start." for each in found), *left_out]}
    with task.writing(made.snapshot.namespace):
        canary.clear(task.cluster, task.params["patience"], task.clock)
        passed = [_passed(task, each, judge) for each in found]
    return {"changed": False, "vms": [each.to_dict() for each in passed], "text": [*map(str, passed), *left_out]}


def _passed(task: _module.Task, draft: Draft, judge: Judge) -> canary.Outcome:
    outcome = canary.try_out(task.cluster, draft, judge, task.params["patience"], task.clock)
    if outcome.problem is not None:
        raise _module.TaskFailed(
            f"The gate is closed, and the rollout stops here. {outcome} Later waves are left alone. Put this right, then "
            "run again.",
            {},
        )
    return outcome


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
