#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module wave_gate: may a rollout go on?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: wave_gate
short_description: Check the nodes of a wave before a rollout goes on
version_added: 0.1.0
description:
  - Checks KubeVirt, the nodes of a wave, and the VMs that have their pods there. KubeVirt must be deployed and healthy. Every node must be Ready and open
    for VMs (C(kubevirt.io/schedulable)). It must have exactly one handler, that of its owner, which is Ready and has sent a heartbeat in the
    last three minutes. No VM instance there may be Failed, or stay C(Scheduling) or C(Scheduled). In the whole cluster, no VM instance may run on a
    node without a Ready handler, or find no node only because of the pools.
  - Without O(baseline), the module only returns what is wrong, as RV(baseline). With it, what was wrong before is ignored. The module fails when
    something new is wrong and does not go away within O(timeout) seconds. A VM instance that has failed does not go away.
  - Needs only the rights of the ClusterRole C(virtpools-reader), unless O(run_id) is given.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
options:
  nodes:
    description: The nodes of the wave. One that does not exist is refused. With O(run_id) it was deleted since the plan of the run, and passes.
    type: list
    elements: str
    required: true
  baseline:
    description: What was wrong before the wave, as this module returned it then.
    type: list
    elements: str
  timeout:
    description: Seconds that something may be wrong, and that a VM instance may take to start.
    type: int
    default: 180
  soak:
    description: Seconds to wait before the check.
    type: int
    default: 0
  run_id:
    description:
      - The run that this task belongs to, as returned by M(virtpools.kubevirt.run_lease). The module renews its Lease while it waits.
    type: str
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Note what is wrong before the wave
  virtpools.kubevirt.wave_gate:
    nodes: [gpu-0, gpu-1]
  register: before

- name: Check the wave after ten minutes
  virtpools.kubevirt.wave_gate:
    nodes: [gpu-0, gpu-1]
    baseline: "{{ before.baseline }}"
    soak: 600
"""

RETURN = r"""
baseline:
  description: What is wrong now, to be ignored by a later check.
  returned: success
  type: list
  elements: str
  sample: ["not_schedulable gpu-1"]
problems:
  description: What is wrong that was not before, one sentence each. Empty when the check has passed.
  returned: always
  type: list
  elements: str
wave_failed:
  description: Whether a problem means that the wave failed, so that a run with C(virtpools_on_failure) goes back. Any other error only stops the run.
  returned: failure
  type: bool
text:
  description: What is wrong now, for people. Empty when the check has passed, which RV(events) tells.
  returned: success
  type: list
  elements: str
events:
  description: That the check has passed, for people. Ansible shows it when the module runs in Ansible's worker process.
  returned: when the check has passed
  type: list
  elements: str
"""

import time

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import gates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import counted
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.gates import GateProblem, baseline_of

ARGUMENTS: option_table.Arguments = {
    "nodes": {"type": "list", "elements": "str", "required": True},
    "baseline": {"type": "list", "elements": "str"},
    "timeout": {"type": "int", "default": 180},
    "soak": {"type": "int", "default": 0},
    "run_id": {"type": "str"},
}

_MOST_NAMED = 10


def body(task: module_base.Task) -> dict:
    nodes, baseline = task.params["nodes"], task.params["baseline"]
    task.check_nodes(nodes)
    kubevirt = live.find_kubevirt(task.cluster, task.params["kubevirt_namespace"], task.params["kubevirt_name"])
    metadata = kubevirt["metadata"]

    def look() -> list[GateProblem]:
        return gates.find_problems(task.cluster, metadata["namespace"], metadata["name"], nodes, time.time())

    with task.waiting(metadata["namespace"]):
        if baseline is None:
            return _result(look())
        gates.soak(task.params["soak"], task.clock)
        left = gates.await_open(look, baseline, task.params["timeout"], task.clock)
    if left:
        shown = " ".join(problem.message for problem in left[:_MOST_NAMED])
        more = f" And {len(left) - _MOST_NAMED} more." if len(left) > _MOST_NAMED else ""
        raise module_base.TaskFailed(
            f"The gate has not passed, and the rollout stops here, because of {counted(len(left), 'problem')} that did not "
            f"exist before the wave. {shown}{more} Later waves are left alone. Repair this, then run again: this gate comes first. To accept it instead, set "
            "virtpools_skip_pending_gates.",
            {
                "problems": [problem.message for problem in left],
                "wave_failed": any(problem.of_wave for problem in left),
            },
        )
    task.status.say(f"The gate has passed: no new problem on {counted(len(nodes), 'node')} of the wave, or with VMs.")
    return {"changed": False, "baseline": baseline, "problems": [], "text": []}


def _result(problems: list[GateProblem]) -> dict:
    text = [problem.message for problem in problems] or ["No problems."]
    return {"changed": False, "baseline": baseline_of(problems), "problems": [], "text": text}


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
