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
  - For the first pools, runs do so with O(state=pulled), before M(virtpools.kubevirt.primary_exclusion) lets KubeVirt restart its handlers.
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
      - V(pulled) does what V(present) does before that, and writes no DaemonSet. Once a pool has a DaemonSet, it does nothing, because an exclusion
        that was lost must not wait for images.
      - V(absent), with O(prune=true), deletes those of pools that exist and are not in the list. It is refused while such a pool owns a node that could
        be handed over. It keeps the DaemonSet of a pool with nodes that cannot leave it now.
    type: str
    default: present
    choices:
      - present
      - pulled
      - absent
  contents:
    description: What images contain, from RV(contents) of V(state=pulled). The module does not look into these images again.
    type: dict
    default: {}
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

- name: Find out whether nodes get the images of the first pools
  virtpools.kubevirt.pool_daemonsets:
    state: pulled
    pools: "{{ virtpools_pools }}"
"""

RETURN = r"""
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["DaemonSet kubevirt/virt-handler-gpu: create"]
contents:
  description: What the images contain, for O(contents). Empty in check mode, and when a pool has a DaemonSet.
  returned: success, with O(state=pulled)
  type: dict
  sample: {"registry.example/virt-launcher:v1.9.0-gpu": {"qemu": "10.1.0", "libvirt": "11.9.0"}}
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
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import KubeObject
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import daemonsets
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.image_contents import Contents
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.plan import DaemonSetChange, Plan

ARGUMENTS = {
    **option_table.arguments("pools", "run"),
    "state": {"type": "str", "default": "present", "choices": ["present", "pulled", "absent"]},
    "contents": {"type": "dict", "default": {}},
    "timeout": {"type": "int", "default": 300},
    "pull_timeout": {"type": "int", "default": 900},
}


def body(task: module_base.Task) -> dict:
    plan = task.plan_in_run()
    if task.params["state"] == "pulled":
        return {"changed": False, "changes": [], "contents": _pulled(task, plan)}
    changes = plan.daemonsets
    if task.params["state"] == "absent":
        changes = plan.retired
        # In check mode nodes have not left their pool.
        if plan.still_owning and not task.check_mode:
            raise ClusterError(" ".join(_held(pool, nodes) for pool, nodes in plan.still_owning.items()))
    if task.check_mode:
        diffs = [_carry_out(task, plan, change, dry_run=True) for change in changes]
    elif changes:
        with task.writing(plan.snapshot.namespace):
            contents: dict[str, Contents] = {}
            if task.params["state"] == "present":
                plan, contents = _plan_with_images(task, plan)
                changes = plan.daemonsets
                batch_run.note_unproven(task.cluster, plan)
            diffs = [_carry_out(task, plan, change, dry_run=False) for change in changes]
            # Not with the change: the note would stand in its diff, which check mode cannot foresee.
            for daemonset in (change.desired for change in changes):
                if daemonset is not None:
                    image_record.write(task.cluster, daemonset, contents)
            # They disappear side by side.
            for deleted in (change.live for change in changes if change.action == "delete" and change.live is not None):
                settle.await_daemonset_gone(task.cluster, deleted, task.params["timeout"], task.clock)
    else:
        diffs = []
    return {"changed": bool(changes), "changes": [str(change) for change in changes], "diff": diffs}


def _pulled(task: module_base.Task, plan: Plan) -> dict[str, dict]:
    """Pull the images of the first pools, and return what is in them. Later, a lost exclusion would have to wait for this."""
    if task.check_mode or plan.snapshot.pools:
        return {}
    with task.writing(plan.snapshot.namespace):
        return {image: found.to_object() for image, found in _pull(task, plan, _given(task)).items()}


def _plan_with_images(task: module_base.Task, plan: Plan) -> tuple[Plan, dict[str, Contents]]:
    """The plan whose images are pulled, with what is in them: in a quarter of an hour of pulls, KubeVirt may have been upgraded, and
    another client may have created a DaemonSet with the name of ours.

    :raises InputErrors: when the plan has errors by then.
    """
    contents = _given(task)
    while True:
        began = task.clock.now()
        contents = _pull(task, plan, contents)
        if not task.clock.is_stale(began):
            return plan, contents
        planned = _desired(plan)
        plan = task.plan_in_run()
        if _desired(plan) == planned:
            return plan, contents


def _given(task: module_base.Task) -> dict[str, Contents]:
    given = {image: obj for image, obj in task.params["contents"].items() if isinstance(obj, dict)}
    return {image: Contents.from_object(obj) for image, obj in given.items()}


def _desired(plan: Plan) -> list[tuple[str, KubeObject | None]]:
    return [(change.action, change.desired) for change in plan.daemonsets]


def _pull(task: module_base.Task, plan: Plan, known: t.Mapping[str, Contents]) -> dict[str, Contents]:
    options = batch_run.BatchOptions(pull_timeout=task.params["pull_timeout"], prepull=task.asked.options.prepull)
    return batch_run.pull_before_changes(task.cluster, plan, options, task.clock, known)


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
