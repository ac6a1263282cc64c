#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module leftovers: what is left when no pool is there any more."""

from __future__ import annotations

DOCUMENTATION = r"""
module: leftovers
short_description: Delete what remains after the last pool, or after KubeVirt itself, was removed
version_added: 0.1.0
description:
  - When no pool is left, deletes the ConfigMap with the history of runs, which nothing else needs.
  - When KubeVirt itself was removed, pools can no longer be removed in the normal way, and no node can be handed over. Then the module deletes everything
    that this collection created, which the removal of KubeVirt leaves behind. These are the admission policies, the alerts, DaemonSets in all namespaces with
    their pods, image pull pods, the history and the Lease. From nodes it removes the owner label and the annotation about a former owner.
  - Changes nothing while there are pools.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  kubevirt_namespace:
    description:
      - Namespace of the KubeVirt object, or where it was.
      - Without it, the only KubeVirt object of the cluster is taken. Where none is left, it is the namespace of the pools' DaemonSets,
        or C(kubevirt).
    type: str
  only_without_kubevirt:
    description: Change nothing when the cluster has a KubeVirt object.
    type: bool
    default: false
  remove_pools:
    description: The pools that were to be removed, as for M(virtpools.kubevirt.plan_info). Where KubeVirt no longer exists, only V(all)
      can be removed.
    type: raw
    default: all
  timeout:
    description: Seconds that a deleted DaemonSet and its pods may take to disappear.
    type: int
    default: 300
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Clean up after a KubeVirt that was uninstalled before its pools were removed
  virtpools.kubevirt.leftovers:
    only_without_kubevirt: true
"""

RETURN = r"""
kubevirt:
  description: Whether the cluster has a KubeVirt object.
  returned: success
  type: bool
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["DaemonSet kubevirt/virt-handler-gpu: delete", "Node gpu-0: forget its owner gpu"]
text:
  description: The same for people, as lines, with what it means.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import leftovers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names, permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import change_line
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import removal

ARGUMENTS = {
    **option_table.arguments("run", "leftovers"),
    "only_without_kubevirt": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 300},
}


def body(task: module_base.Task) -> dict:
    removed = removal.parse(task.params["remove_pools"])
    if leftovers.has_kubevirt(task.cluster):
        result = _unneeded(task)
        return {"kubevirt": True, **result, "text": result["changes"]}
    result = _abandoned(task, removed)
    told = removal.WITHOUT_KUBEVIRT if result["changed"] else removal.NOTHING_LEFT
    return {"kubevirt": False, **result, "text": [told, *result["changes"]]}


def _unneeded(task: module_base.Task) -> dict:
    if task.params["only_without_kubevirt"]:
        return {"changed": False, "changes": [], "diff": []}
    snapshot = task.snapshot()
    needed = bool(snapshot.pools) or any(node.owner != names.PRIMARY for node in snapshot.nodes.values())
    # In check mode the pools have not been taken down.
    objects = () if needed and not task.check_mode else removal.history(snapshot)
    if objects and not task.check_mode:
        with task.writing(snapshot.namespace):
            for obj in objects:
                leftovers.delete_object(task.cluster, kinds.CONFIG_MAP, obj)
    return {
        "changed": bool(objects),
        "changes": [change_line(obj, "delete") for obj in objects],
        "diff": [module_base.object_diff(obj, None) for obj in objects],
    }


def _abandoned(task: module_base.Task, removed: removal.Removed | None) -> dict:
    if not task.check_mode:
        task.require(permissions.LEFTOVERS)
    left = leftovers.find(task.cluster, task.params["kubevirt_namespace"], with_lease=not task.created_lease)
    changes = list(left.lines)
    if changes and removed != removal.ALL:
        raise InputErrors([removal.NO_POOL_STAYS])
    if changes and not task.check_mode:
        if left.locked:
            with task.writing(left.namespace):
                leftovers.delete(task.cluster, left, task.params["timeout"], task.clock)
        else:
            leftovers.delete(task.cluster, left, task.params["timeout"], task.clock)
    gone = [*(change.before for change in left.policies), *(obj for _kind, obj in left.objects)]
    diff = [module_base.object_diff(obj, None) for obj in gone]
    if left.nodes:
        owners = {node["metadata"]["name"]: removal.owner_noted(node) for node in left.nodes}
        diff.append(
            {"before_header": "owners of nodes", "after_header": "owners of nodes", "before": owners, "after": {}}
        )
    return {"changed": bool(changes), "changes": changes, "diff": diff}


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
