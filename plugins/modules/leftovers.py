#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module leftovers: what is left when no pool is there any more."""

from __future__ import annotations

DOCUMENTATION = r"""
module: leftovers
short_description: Delete what is left when no pool, or no KubeVirt, is there any more
version_added: 0.1.0
description:
  - Once no pool is left, deletes what only runs needed, which is the ConfigMap with their history.
  - Where KubeVirt itself is gone, pools can no longer be taken down in good order, and no node can be handed over. Then it deletes all that this
    collection made, which KubeVirt's own removal leaves behind. These are the admission policies, DaemonSets in all namespaces with their pods, image pull
    pods, the history and the Lease; and from nodes the owner label and the annotation about a former owner.
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
      - Without it, the only KubeVirt object of the cluster is taken. Where none is left, the namespace of our DaemonSets, or C(kubevirt).
    type: str
  only_without_kubevirt:
    description: Change nothing where there is a KubeVirt.
    type: bool
    default: false
  removed:
    description:
      - The pools that were to be removed, as for M(virtpools.kubevirt.plan_info). Where KubeVirt is gone, only V(all) can be.
    type: raw
    default: all
  timeout:
    description: How many seconds a deleted DaemonSet and its pods may take to go.
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
  description: The same for a person, as lines, with what it means.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import leftovers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    kinds,
    launchers,
    names,
    permissions,
    removal,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors

ARGUMENTS = {
    **_module.RUN_ARGUMENTS,
    "only_without_kubevirt": {"type": "bool", "default": False},
    "removed": {"type": "raw", "default": removal.ALL},
    "timeout": {"type": "int", "default": 300},
}


def body(task: _module.Task) -> dict:
    removed = removal.parse(task.params["removed"])
    if leftovers.has_kubevirt(task.cluster):
        result = _unneeded(task)
        return {"kubevirt": True, **result, "text": result["changes"]}
    result = _abandoned(task, removed)
    told = removal.WITHOUT_KUBEVIRT if result["changed"] else removal.NOTHING_LEFT
    return {"kubevirt": False, **result, "text": [told, *result["changes"]]}


def _unneeded(task: _module.Task) -> dict:
    if task.params["only_without_kubevirt"]:
        return {"changed": False, "changes": [], "diff": []}
    found = task.snapshot()
    needed = bool(found.pools) or any(node.owner != names.PRIMARY for node in found.nodes.values())
    # In check mode the pools have not been taken down.
    objects = () if needed and not task.check_mode else removal.history(found)
    if objects and not task.check_mode:
        with task.writing(found.namespace):
            for obj in objects:
                leftovers.delete_object(task.cluster, kinds.CONFIG_MAP, obj)
    return {
        "changed": bool(objects),
        "changes": [launchers.line(obj, "delete") for obj in objects],
        "diff": [_module.object_diff(obj, None) for obj in objects],
    }


def _abandoned(task: _module.Task, removed: removal.Removed | None) -> dict:
    if not task.check_mode:
        task.require(permissions.LEFTOVERS)
    left = leftovers.find(task.cluster, task.params["kubevirt_namespace"])
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
    diff = [_module.object_diff(obj, None) for obj in gone]
    if left.nodes:
        owners = {node["metadata"]["name"]: removal.owner_noted(node) for node in left.nodes}
        diff.append(
            {"before_header": "owners of nodes", "after_header": "owners of nodes", "before": owners, "after": {}}
        )
    return {"changed": bool(changes), "changes": changes, "diff": diff}


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
