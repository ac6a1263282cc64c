#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module pool_daemonsets: the virt-handler DaemonSets of pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pool_daemonsets
short_description: Create, update and delete the virt-handler DaemonSets of pools
version_added: 0.1.0
description:
  - Gives every pool its DaemonSet C(virt-handler-<pool>), derived from the live virt-handler DaemonSet of KubeVirt with the pool's images,
    nodes, tolerations and pull secrets. DaemonSets of pools that exist but are not in the list are derived again, too.
  - The DaemonSets have the update strategy C(OnDelete), so no handler restarts because of this module. M(virtpools.kubevirt.pool_nodes) replaces
    handlers node by node.
  - Before it creates or changes DaemonSets, the module pulls their images on the nodes that get such a handler first, and looks into them, unless
    O(prepull=false). When an image cannot be pulled there, or lacks something, it writes no DaemonSet, so that a node that restarts still gets its
    handler.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  state:
    description:
      - V(present) creates and updates the DaemonSets of all pools.
      - V(absent), with O(prune=true), deletes those of pools that exist and are not in the list. It is refused while such a pool owns a node that could
        be handed over. It keeps the DaemonSet of a pool with nodes that cannot leave it now.
    type: str
    default: present
    choices:
      - present
      - absent
  timeout:
    description: Seconds that a deleted DaemonSet and its pods may take to disappear.
    type: int
    default: 300
  pull_timeout:
    description: Seconds that the new images of all pools may take to be pulled.
    type: int
    default: 900
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Create the DaemonSets
  virtpools.kubevirt.pool_daemonsets:
    pools: "{{ virtpools_pools }}"
"""

RETURN = r"""
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["DaemonSet kubevirt/virt-handler-gpu: create"]
"""

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import batch_run
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import (
    image_record,
    settle,
    writes,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import daemonsets
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.plan import DaemonSetChange, Plan

ARGUMENTS = {
    **option_table.arguments("pools", "run"),
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "timeout": {"type": "int", "default": 300},
    "pull_timeout": {"type": "int", "default": 900},
}


def body(task: module_base.Task) -> dict:
    plan = task.plan()
    task.refuse_in_run(plan)
    changes = plan.daemonsets
    if task.params["state"] == "absent":
        changes = plan.retired
        # In check mode nodes have not left their pool.
        if plan.still_owning and not task.check_mode:
            raise ClusterError(" ".join(_held(pool, nodes) for pool, nodes in plan.still_owning.items()))
    if task.check_mode:
        diffs = [_carry_out(task, plan, change, dry_run=True) for change in changes]
    elif changes:
        options = batch_run.BatchOptions(pull_timeout=task.params["pull_timeout"], prepull=task.asked.options.prepull)
        with task.writing(plan.snapshot.namespace):
            contents = batch_run.pull_before_changes(task.cluster, plan, changes, options, task.clock)
            diffs = [_carry_out(task, plan, change, dry_run=False) for change in changes]
            # Not with the change: the note would stand in its diff, which check mode cannot foresee.
            for daemonset in (change.desired for change in changes):
                if daemonset is not None:
                    image_record.write(task.cluster, daemonset, contents)
            # They disappear side by side.
            for change in (change for change in changes if change.action == "delete"):
                settle.await_daemonset_gone(
                    task.cluster, change.namespace, change.name, task.params["timeout"], task.clock
                )
    else:
        diffs = []
    return {"changed": bool(changes), "changes": [str(change) for change in changes], "diff": diffs}


def _held(pool: str, nodes: t.Sequence[str]) -> str:
    return (
        f"Pool {pool} still owns {listed(nodes)}, which would be left without a virt-handler; hand them over "
        "first: run again."
    )


def _carry_out(task: module_base.Task, plan: Plan, change: DaemonSetChange, *, dry_run: bool) -> dict:
    if change.action == "delete":
        writes.delete_daemonset(task.cluster, change, dry_run=dry_run)
        return module_base.object_diff(change.live, None)
    written = writes.apply_daemonset(task.cluster, change, dry_run=dry_run)
    primary = plan.snapshot.primary
    return module_base.object_diff(change.live, written, None if primary is None else daemonsets.origin(primary))


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
