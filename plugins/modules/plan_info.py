#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module plan_info: what a run would do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: plan_info
short_description: Plan virt-handler pools on a cluster, without changing anything
version_added: 0.1.0
description:
  - Compares a list of pools with a cluster and returns everything that a run of the playbook C(virtpools.kubevirt.site) would do, in order, and
    everything its user should know first.
  - Needs only the rights of the ClusterRole C(virtpools-reader).
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
options:
  expected_plan:
    description:
      - Digest of the plan that was approved. The module fails, and says what changed since, when the plan is no longer that one.
      - An approved plan still holds after an interruption, since the digest does not cover what is left to do.
    type: str
  for_run:
    description:
      - Whether a run follows. Then the rights that it needs are checked, too, and missing ones reported together; and the module waits up to
        O(settle_timeout) seconds for a KubeVirt that an interrupted run of ours left unsettled.
    type: bool
    default: false
  settle_timeout:
    description: How many seconds to wait with O(for_run).
    type: int
    default: 1800
  dump:
    description:
      - A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to plan from instead of a cluster.
      - Needed are KubeVirt, DaemonSets, nodes and the pods of KubeVirt's namespace; HyperConverged where there is one; for O(vms) the
        launcher pods, and the namespaces where pools select them; for what the launcher policy does now the policies.
    type: path
  stop_after_wave:
    description:
      - The name or number of the last wave that the run carries out. The digest of the plan does not depend on it.
    type: raw
  canary_vm:
    description:
      - The VM that M(virtpools.kubevirt.canary_vm) starts after each wave, as that module takes it. A finding tells for which pools. With
        O(for_run) the API server checks each one in a dry run.
    type: raw
  vms:
    description:
      - Whether to read the launcher pods of all namespaces, to name the running VMs that the mapping keeps off the nodes they run on, or
        off all nodes that they could run on.
    type: bool
    default: false
  remove_vms:
    description:
      - With O(removed), what becomes of the VMs that run with the launcher image of a pool that goes, or on its nodes. Needs O(vms).
      - V(refuse) makes them an error. V(leave) lets them run on where they are, since a guest lives in its launcher pod; they start with KubeVirt's own
        image next time. V(migrate) says that they are live-migrated first, V(wait) that their nodes go back when they have ended.
    type: str
    default: refuse
    choices:
      - refuse
      - leave
      - migrate
      - wait
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: What would happen?
  virtpools.kubevirt.plan_info:
    pools:
      - name: gpu
        nodeSelector:
          accelerator: nvidia
        virtHandlerImage: registry.example/virt-handler:v1.9.0-gpu
  register: plan

- name: Show it
  ansible.builtin.debug:
    var: plan.text
"""

RETURN = r"""
pending:
  description: Whether a run has anything to do, as far as O(stop_after_wave) lets it.
  returned: success
  type: bool
recorded:
  description: Whether the newest list in the history has these pools. It has not where a run was killed between its last change and its record.
  returned: success
  type: bool
settling:
  description: Whether KubeVirt has not rolled out yet what an earlier run asked of it; the run waits for that.
  returned: success
  type: bool
digest:
  description: What the plan is approved by. It covers desired objects, the owner of every node and options that change writes.
  returned: success
  type: str
  sample: 4be2a0fcd1c1-77d0ff0ae914-0a1b2c3d4e5f
changes:
  description: Every change, one line each, in the order of the run.
  returned: success
  type: list
  elements: str
  sample: ["DaemonSet kubevirt/virt-handler-gpu: create", "Node gpu-0: primary -> gpu"]
batches:
  description: The moves of nodes, in groups that run side by side.
  returned: success
  type: list
  elements: list
waves:
  description: The waves, in order. Without O(waves) there is one.
  returned: success
  type: list
  elements: dict
  contains:
    number:
      description: Its place, from 1.
      type: int
    name:
      description: Its name.
      type: str
    nodes:
      description: All its nodes, those that are done included.
      type: list
      elements: str
    pools:
      description: The pools that get nodes or new handlers in it.
      type: list
      elements: str
    done:
      description: How many are as they should be.
      type: int
    left:
      description: How many are to be touched.
      type: int
    batches:
      description: Which of RV(batches) are its own, as indices.
      type: list
      elements: int
    due:
      description: Whether it has something to do, if only to pass its gate, and O(stop_after_wave) does not come before it.
      type: bool
    open:
      description: What the history calls it, if an earlier run began it and its gate has not passed since. Empty for any other.
      type: str
stop:
  description: Where the run stops before its end, and how to go on; empty when it does not.
  returned: success
  type: str
progress:
  description: For every one of RV(batches), where the rollout stands before it; for M(virtpools.kubevirt.pool_nodes).
  returned: success
  type: list
  elements: dict
launcher_steps:
  description: After how many batches the launcher policy changes; 0 is before the first.
  returned: success
  type: list
  elements: int
  sample: [0, 1, 4]
node_policy:
  description: Whether the run changes what gives new nodes their owner.
  returned: success
  type: bool
guard:
  description: Whether the run changes what keeps others from changing owners of nodes and the exclusion.
  returned: success
  type: bool
leftovers:
  description: What an interrupted run left behind, pods that pull images and canary VMs; the run deletes it.
  returned: success
  type: list
  elements: str
  sample: ["VirtualMachine default/virt-canary-gpu: delete"]
retire:
  description: Names of the pools whose DaemonSet is deleted at the end.
  returned: success
  type: list
  elements: str
exclusion:
  description: Whether the run changes what keeps the primary off pool nodes. With O(removed) that comes last.
  returned: success
  type: bool
cleared:
  description: What else is deleted at the very end, when no pool stays.
  returned: success
  type: list
  elements: str
  sample: ["ConfigMap kubevirt/virtpools-history: delete"]
findings:
  description: What the user should know. Errors forbid a run.
  returned: success
  type: list
  elements: dict
  contains:
    severity:
      description: V(error), V(warning) or V(note).
      type: str
    code:
      description: A stable name for this kind of finding.
      type: str
    message:
      description: One sentence.
      type: str
errors:
  description: The messages of those findings that forbid a run.
  returned: success
  type: list
  elements: str
owners:
  description: How many nodes every owner has now, and will have.
  returned: success
  type: dict
text:
  description: The plan for a person, as lines.
  returned: success
  type: list
  elements: str
"""

import contextlib
import time
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import canary as canary_vms
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import dump, live, settle
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import (
    canary,
    history,
    kept_off,
    kinds,
    launchers,
    names,
    permissions,
    plan,
    preflight,
    progress,
    removal,
    report,
    snapshot,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import Finding, InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool

ARGUMENTS = {
    **_module.POOL_ARGUMENTS,
    "expected_plan": {"type": "str"},
    "for_run": {"type": "bool", "default": False},
    "settle_timeout": {"type": "int", "default": 1800},
    "dump": {"type": "path"},
    "stop_after_wave": {"type": "raw"},
    "canary_vm": {"type": "raw"},
    "vms": {"type": "bool", "default": False},
    "remove_vms": {"type": "str", "default": "refuse", "choices": list(removal.VMS)},
}

_TRANSIENT_SECONDS = 60


def body(task: _module.Task) -> dict:
    options, pools = task.options(), task.pools()
    made, more = _plan(task, pools, options)
    expected = task.params["expected_plan"]
    if expected:
        changed = made.digest.mismatch(expected)
        if changed:
            raise InputErrors(
                [
                    f"The plan is not the approved one: {changed} changed since. Read the plan again, then approve {made.digest}."
                ]
            )
    made = made.noting(more)
    # Where a plan has errors they are what counts, and it may have no waves at all.
    due = progress.Due.of(made, None if made.errors else task.params["stop_after_wave"])
    return {
        "changed": False,
        "pending": due.pending,
        "recorded": _recorded(made, pools, options),
        "settling": made.settling,
        "digest": str(made.digest),
        "changes": list(made.changes()),
        "batches": [[move.to_dict() for move in batch] for batch in made.batches],
        "waves": due.to_list(),
        "stop": due.stop or "",
        "progress": [each.to_dict() for each in due.progress(time.time())],
        "launcher_steps": list(made.launcher_steps),
        "node_policy": bool(made.node_policy_changes),
        "guard": bool(made.guard_changes),
        "leftovers": list(made.leftovers),
        "retire": [change.pool for change in made.retired],
        "exclusion": made.exclusion.changed,
        "cleared": [launchers.line(obj, "delete") for obj in made.cleared],
        "findings": [finding.to_dict() for finding in made.findings],
        "errors": [finding.message for finding in made.errors],
        "owners": report.owners(made),
        "text": report.plan_lines(made, due),
    }


def _recorded(made: plan.Plan, pools: t.Sequence[Pool], options: Options) -> bool:
    admission = made.snapshot.admission
    if made.undoing or admission is None:
        return True
    known = history.of(admission.objects.get((kinds.CONFIG_MAP.name, names.HISTORY)))
    return known.has(history.entry_of(pools, plan.recorded(made.snapshot), options, "", ""))


def _plan(task: _module.Task, pools: t.Sequence[Pool], options: Options) -> tuple[plan.Plan, tuple[Finding, ...]]:
    """The plan, and what it means for VMs."""
    if task.params["dump"]:
        objects = dump.read_objects(task.params["dump"])
        found = snapshot.from_objects(objects, task.params["kubevirt_namespace"], task.params["kubevirt_name"])
        made = plan.make(found, pools, options)
        return made, _of_vms(task, made, dump.launcher_pods(objects))
    made = _live_plan(task, pools, options)
    return made, (*_of_vms(task, made, live.launcher_pods(task.cluster)), *_canary_vms(task, made))


def _of_vms(task: _module.Task, made: plan.Plan, pods: t.Iterable[LauncherPod]) -> tuple[Finding, ...]:
    # Canary VMs go before any node does.
    pods = (pod for pod in pods if f"{pod.namespace}/{pod.vmi}" not in made.snapshot.leftover_canaries)
    if task.params["vms"] and made.undoing:
        removed = task.options().removed
        owners = removal.leaving(removed, made.snapshot) if removed else ()
        recorded = plan.recorded(made.snapshot)
        return tuple(removal.of_vms(pods, made.snapshot.nodes, recorded, owners, task.params["remove_vms"]))
    if not task.params["vms"] or made.launchers is None or not made.launchers.full.needed:
        return ()
    return kept_off.kept_off(made.launchers.full, made.nodes_after(), pods)


def _canary_vms(task: _module.Task, made: plan.Plan) -> t.Iterator[Finding]:
    wanted = canary.parse(task.params["canary_vm"])
    if wanted is None or made.launchers is None or made.errors or not made.batches:
        return
    pools = {move.target for move in made.moves}
    nodes = [node for node in made.nodes_after().values() if node.owner in pools]
    drafts = canary_vms.drafts(task.cluster, wanted, made.launchers.stages[-1], nodes, made.snapshot.kubevirt)
    for draft in drafts if task.params["for_run"] else ():
        if isinstance(draft, canary.Draft) and draft.title not in made.snapshot.leftover_canaries:
            canary_vms.rehearse(task.cluster, draft)
    yield from canary.findings(drafts)


def _live_plan(task: _module.Task, pools: t.Sequence[Pool], options: Options) -> plan.Plan:
    found = task.snapshot()
    if task.params["for_run"]:
        first = plan.make(found, pools, options)
        backend = first.launchers.choice.backend if first.launchers else "none"
        rights = permissions.for_run(
            hco=found.hyperconverged is not None,
            backend=backend,
            node_policy=bool(first.node_policy_changes),
            guard=first.guard is not None and first.guard.in_force,
            migrates=options.drain.vms == "migrate",
            canary_vms=bool(canary.parse(task.params["canary_vm"]) or found.leftover_canaries),
        )
        task.require({*rights, *(permissions.LEFTOVERS if first.cleared else ())})
        if first.settling:
            settle.own_change(task.cluster, found, task.params["settle_timeout"], task.clock)
        elif preflight.TRANSIENT & {finding.code for finding in first.errors}:
            # So it is for some seconds when nodes were handed over. What lasts is refused.
            with contextlib.suppress(ClusterError):
                task.settle(_TRANSIENT_SECONDS)
        else:
            return first
        found = task.snapshot()
    return plan.make(found, pools, options)


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
