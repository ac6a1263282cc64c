#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module primary_exclusion: keep the primary virt-handler off pool nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: primary_exclusion
short_description: Keep the primary virt-handler off the nodes that pools own
version_added: 0.1.0
description:
  - Adds one required node-affinity requirement, C(virtpools.io/pool DoesNotExist), to KubeVirt's own virt-handler DaemonSet, and waits until KubeVirt has
    rolled it out. The requirement is always the same, whichever pools exist.
  - It goes into C(spec.customizeComponents.patches) of the KubeVirt object. Where C(spec.workloads.nodePlacement) has required node-affinity terms, it
    goes into each of these terms instead, since they would override the patch. On a cluster that the HyperConverged Cluster Operator manages, it
    goes into these terms by one operation in the annotation C(kubevirt.kubevirt.io/jsonpatch) of the HyperConverged object. Entries of others stay.
  - When it is added or removed, virt-operator restarts every primary handler once. The module first waits until no live migration runs, and
    makes handlers record VMs again that came by live migration since they started, since the next handler marks a VM without a record as failed.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  state:
    description:
      - Whether the primary is kept off pool nodes.
      - V(absent) is refused while a pool owns a node, since the node would get a second handler.
    type: str
    default: present
    choices:
      - present
      - absent
  after_nodes:
    description: In check mode with O(state=absent), assume that all nodes have gone back to the primary, as they have in a run.
    type: bool
    default: false
  released:
    description:
      - Nodes that get a pool and on which the primary does not start, from the plan. They lose it first, since KubeVirt's rollout would wait for it
        forever. They have no virt-handler until they are handed over. Others are ignored.
    type: list
    elements: str
  settle_timeout:
    description: Seconds that KubeVirt may take to roll out a change of its primary virt-handler.
    type: int
    default: 1800
  migration_timeout:
    description: Seconds to wait for running live migrations, before anything is changed.
    type: int
    default: 900
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Keep the primary off pool nodes
  virtpools.kubevirt.primary_exclusion:
"""

RETURN = r"""
object:
  description: The object that holds the exclusion.
  returned: success
  type: str
  sample: KubeVirt kubevirt/kubevirt
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["KubeVirt kubevirt/kubevirt: keep the primary virt-handler off nodes with the label virtpools.io/pool (spec.customizeComponents.patches)"]
"""

import contextlib
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import (
    handler_memory,
    policies,
    settle,
    writes,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing.epochs import Epochs
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing.node_owner import (
    NodeGone,
    write_owner,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import counted, listed
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion, preflight
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.hco import Edit, title
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import proposal

ARGUMENTS = {
    **option_table.arguments("run", "primary_exclusion"),
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "after_nodes": {"type": "bool", "default": False},
    "released": {"type": "list", "elements": "str"},
}


def body(task: module_base.Task) -> dict:
    present = task.params["state"] == "present"
    snapshot, edit, released = _examine(task, present)
    result = _result(snapshot, edit, released)
    if edit.changed and task.check_mode:
        _before, after = writes.edit_object(task.cluster, edit, _again(snapshot, edit, present), dry_run=True)
        return {**result, "diff": [module_base.object_diff(edit.before, after)]}
    if task.check_mode or not (result["changed"] or preflight.own_change_settling(snapshot)):
        return result
    with task.writing(snapshot.namespace):
        if edit.changed:
            began = task.clock.now()
            why = "restarting the primary's handlers would break them"
            handler_memory.before_restarts(
                task.cluster, snapshot.namespace, task.params["migration_timeout"], task.clock, why
            )
            if task.clock.is_stale(began):
                snapshot, edit, released = _examine(task, present)
                result = _result(snapshot, edit, released)
        _release(task, snapshot, released)
        if edit.changed:
            before, after = writes.edit_object(task.cluster, edit, _again(snapshot, edit, present), dry_run=False)
            result["diff"] = [module_base.object_diff(before, after)]
        timeout = task.params["settle_timeout"]
        brought = edit if present else None
        settle.await_primary(task.cluster, snapshot, timeout, task.clock, excluded=present, edit=brought)
    return result


def _examine(task: module_base.Task, present: bool) -> tuple[Snapshot, Edit, list[str]]:
    """The cluster as it is now, how the exclusion changes, and the nodes to release.

    :raises ClusterError: when something forbids the change.
    """
    snapshot = _snapshot(task, present)
    edit = _edit(snapshot, present)
    released = _released(task, snapshot) if present else []
    _refuse(snapshot, edit, present, released, owned=not (task.check_mode and task.params["after_nodes"]))
    return snapshot, edit, released


def _result(snapshot: Snapshot, edit: Edit, released: t.Sequence[str]) -> dict:
    changes = [f"Node {node}: {names.PRIMARY} -> {names.IN_TRANSIT}" for node in _owned(snapshot, released)]
    changes += [str(edit)] if edit.changed else []
    return {"changed": bool(changes), "object": title(edit.after), "changes": changes}


def _snapshot(task: module_base.Task, present: bool) -> Snapshot:
    """The cluster's state; KubeVirt is unsettled for some seconds after nodes went back to the primary, and after the guard no longer
    refuses what virt-operator writes; the latter also when another user has already removed the exclusion."""
    snapshot = task.snapshot()
    if present or task.check_mode or proposal.wait_for(preflight.fitness(snapshot)) == "none":
        return snapshot
    task.settle(task.params["settle_timeout"])
    return task.snapshot()


def _released(task: module_base.Task, snapshot: Snapshot) -> list[str]:
    """The nodes to release on which the primary still does not start. The pod of a node that was deleted outlives it for a while."""
    broken = preflight.broken_handlers(snapshot).keys() & snapshot.nodes.keys()
    return [node for node in task.params["released"] or () if node in broken]


def _owned(snapshot: Snapshot, nodes: t.Iterable[str]) -> list[str]:
    """Those of the nodes that the primary owns: an earlier run may have released the others."""
    return [node for node in nodes if snapshot.nodes[node].owner == names.PRIMARY]


def _release(task: module_base.Task, snapshot: Snapshot, nodes: t.Sequence[str]) -> None:
    """Begin the handover of these nodes, which the primary leaves as soon as it has the exclusion; their batch goes on with it."""
    owned = frozenset(_owned(snapshot, nodes))
    if not owned:
        return
    epochs = Epochs(task.cluster, lambda: policies.probe_site(task.cluster, snapshot))
    for live_node in live.nodes_named(task.cluster, owned):
        # A node that an autoscaler deletes needs no next owner.
        with contextlib.suppress(NodeGone), epochs.leaving(live_node, names.PRIMARY) as labels:
            write_owner(task.cluster, live_node, names.PRIMARY, names.IN_TRANSIT, names.PRIMARY, labels)


def _edit(snapshot: Snapshot, present: bool) -> Edit:
    change = exclusion.with_exclusion if present else exclusion.without_exclusion
    return change(snapshot.kubevirt, snapshot.hyperconverged)


def _again(snapshot: Snapshot, edit: Edit, present: bool) -> t.Callable[[dict], Edit]:
    """The same edit for the object as it is at the moment of writing."""
    change = exclusion.with_exclusion if present else exclusion.without_exclusion
    if edit.kind == "KubeVirt":
        return lambda live: change(live, None)
    return lambda live: change(snapshot.kubevirt, live)


def _refuse(snapshot: Snapshot, edit: Edit, present: bool, released: t.Sequence[str], *, owned: bool) -> None:
    found = preflight.for_exclusion(snapshot, edit, released) if present else preflight.for_removal(snapshot, edit)
    problems = [f.message for f in found if f.severity == "error"]
    held = [node.name for node in snapshot.nodes.values() if node.owner != names.PRIMARY]
    if not present and owned and held:
        problems.append(
            f"{counted(len(held), 'node still belongs', 'nodes still belong')} to a pool ({listed(held)}) and would get a second handler; "
            "give them back to the primary first."
        )
    if not present and owned and guard.is_live(snapshot.admission):
        problems.append(
            "The guard keeps KubeVirt from letting virt-handler back; delete it first, with run_part (part: guard)."
        )
    if problems:
        raise ClusterError(" ".join(problems))


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
