#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module node_policies: nodes that join get their owner at once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_policies
short_description: Give nodes that join the cluster later their owner at once
version_added: 0.1.0
description:
  - With O(assign_new_nodes=true), writes a policy that sets the owner label of a node while the node is created, to the first pool that selects it. So
    the node runs its pool's virt-handler, and no other, from the beginning. Without it, deletes that policy.
  - The policy sees the labels that the node is created with. A node that is created with an owner label keeps it. Nodes that exist already are not
    changed. When the policy fails, the node joins without an owner, which is drift.
  - The module first tries out the policy by creating nodes as server-side dry runs, which stores none.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  timeout:
    description: Seconds that the API servers may take to apply a new policy.
    type: int
    default: 60
seealso:
  - module: virtpools.kubevirt.pool_nodes
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: New nodes belong to their pool from the beginning
  virtpools.kubevirt.node_policies:
    pools: "{{ virtpools_pools }}"
    assign_new_nodes: true
"""

RETURN = r"""
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["MutatingAdmissionPolicy virtpools-nodes: create", "MutatingAdmissionPolicyBinding virtpools-nodes: create"]
"""

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import node_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.node_policy import NodePolicy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.kinds import Kind

ARGUMENTS = {
    **option_table.arguments("pools", "run"),
    "timeout": {"type": "int", "default": 60},
}


def body(task: module_base.Task) -> dict:
    plan = task.plan()
    task.refuse_in_run(plan)
    policy = t.cast(NodePolicy, plan.node_policy)  # the snapshot is complete
    changes, done = policy.changes, []
    if changes and task.check_mode:
        done = policies.preview(task.cluster, policy.desired, policy.to_delete)
    elif changes:
        with task.writing(plan.snapshot.namespace):
            done = _put(task, policy)
    return {
        "changed": bool(changes),
        "changes": list(changes),
        "diff": [module_base.object_diff(change.before, change.after) for change in done],
    }


def _put(task: module_base.Task, policy: NodePolicy) -> list[policies.Change]:
    timeout, done = task.params["timeout"], []
    probe = None if policy.desired else node_policy.plain()
    if policy.desired:
        candidate = node_policy.derive(
            policy.pools, t.cast(Kind, policy.admission.policy_kind), names.CANDIDATE_NODE_POLICY
        )
        tried = [node_policy.probes(policy.pools, name) for name in (names.CANDIDATE_NODE_POLICY, names.NODE_POLICY)]
        done = policies.put(task.cluster, policy.desired, policies.Trial(candidate, *tried), timeout, task.clock)
    return [
        *done,
        *policies.remove(task.cluster, policies.removal_changes(policy.to_delete), probe, timeout, task.clock),
    ]


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
