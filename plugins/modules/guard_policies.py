#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module guard_policies: who may change owners of nodes, and what keeps the exclusion."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guard_policies
short_description: Keep others from changing the owners of nodes or dropping the exclusion
version_added: 0.1.0
description:
  - With O(guard=true), writes two policies. One refuses requests that change, add or remove the owner label of a node, from kubelets as from people, unless
    the user may C(assign nodeowners.virtpools.io), as the ClusterRole C(virtpools-writer) may. The other refuses a virt-handler DaemonSet that would run
    on pool nodes. Without it, deletes these policies.
  - With O(assign_new_nodes=true), a node may be created with exactly the owner that the policy of M(virtpools.kubevirt.node_policies) gives it.
  - The module proves that the policies work by creating nodes and DaemonSets as server-side dry runs, which stores none.
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
  - module: virtpools.kubevirt.node_policies
  - module: virtpools.kubevirt.primary_exclusion
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Only runs change who owns a node
  virtpools.kubevirt.guard_policies:
    pools: "{{ virtpools_pools }}"
    guard: true
"""

RETURN = r"""
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["ValidatingAdmissionPolicy virtpools-guard-owner: create", "ValidatingAdmissionPolicyBinding virtpools-guard-owner: create"]
"""

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import guard, policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.guard import Guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion

ARGUMENTS = {
    **option_table.arguments("pools", "run"),
    "timeout": {"type": "int", "default": 60},
}


def body(task: module_base.Task) -> dict:
    plan = task.plan()
    task.refuse_in_run(plan)
    target = t.cast(Guard, plan.guard)  # the snapshot is complete
    changes, done = target.changes, []
    if changes and task.check_mode:
        done = policies.preview(task.cluster, target.desired, target.to_delete)
    elif changes:
        if target.to_write and not exclusion.has_exclusion(plan.snapshot.primary or {}):
            raise ClusterError(
                "The primary virt-handler is not kept off pool nodes yet, and the guard would keep KubeVirt from changing "
                "it; install the exclusion first."
            )
        with task.writing(plan.snapshot.namespace):
            done = guard.put(task.cluster, target, task.params["timeout"], task.clock)
    return {
        "changed": bool(changes),
        "changes": list(changes),
        "diff": [module_base.object_diff(change.before, change.after) for change in done],
    }


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
