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
  - With O(assign_new_nodes=true) writes a policy that sets the owner label of a node while it is created, to the first pool that selects it. So the
    node runs its pool's virt-handler and no other from the beginning. Without it deletes that policy.
  - The policy sees the labels that the node is created with. A node that brings an owner label along keeps it, and nodes that are there already are
    not touched. Should the policy fail, the node joins without an owner, which is drift.
  - The policy is tried out first, by creating nodes as server-side dry runs, which stores none.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  timeout:
    description: How many seconds API servers may take to act by a policy.
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

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names, node_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kinds import Kind
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.node_policy import NodePolicy

ARGUMENTS = {
    **_module.POOL_ARGUMENTS,
    **_module.RUN_ARGUMENTS,
    "timeout": {"type": "int", "default": 60},
}


def body(task: _module.Task) -> dict:
    plan = task.plan()
    task.refuse(plan)
    made = t.cast(NodePolicy, plan.node_policy)  # the snapshot is complete
    changes, done = made.changes, []
    if changes and task.check_mode:
        done = policies.preview(task.cluster, made.desired, made.to_delete)
    elif changes:
        with task.writing(plan.snapshot.namespace):
            done = _put(task, made)
    return {
        "changed": bool(changes),
        "changes": list(changes),
        "diff": [_module.object_diff(change.before, change.after) for change in done],
    }


def _put(task: _module.Task, made: NodePolicy) -> list[policies.Change]:
    timeout, done = task.params["timeout"], []
    probe = None if made.desired else node_policy.plain()
    if made.desired:
        candidate = node_policy.derive(
            made.pools, t.cast(Kind, made.admission.policy_kind), names.CANDIDATE_NODE_POLICY
        )
        tried = [node_policy.probes(made.pools, name) for name in (names.CANDIDATE_NODE_POLICY, names.NODE_POLICY)]
        done = policies.put(task.cluster, made.desired, policies.Trial(candidate, *tried), timeout, task.clock)
    return [*done, *policies.remove(task.cluster, policies.removal(made.to_delete), probe, timeout, task.clock)]


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
