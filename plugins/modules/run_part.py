#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module run_part: writes one part of a run, such as the launcher policy, the guard or the alerts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_part
short_description: Write the launcher policy, the node policy, the guard, or the alerts
version_added: 0.1.0
description:
  - Brings one part of a run to what the pools and options ask for.
  - V(launcher_policy) gives a VM that starts or is migrated the launcher image of the first pool that selects it, on the nodes of that pool. It keeps
    other VMs off the nodes of pools that ask for that. Running VMs are not changed. A pool takes VMs once it is active, which depends on the nodes that
    it owns by now. The field C(activation) of a pool decides when.
  - V(node_policy) sets the owner label of a node while the node is created, to the first pool that selects it, with O(assign_new_nodes=true). So the
    node runs its pool's virt-handler, and no other, from the beginning. The policy sees the labels that the node is created with. A node that is
    created with an owner label keeps it. Existing nodes are not changed. When the policy fails, the node joins without an owner, which is drift.
  - V(guard) refuses two kinds of requests, unless O(guard=false). One is a change of the owner label of a node, from kubelets as from people, unless the
    user may C(assign nodeowners.virtpools.io), as the ClusterRole C(virtpools-writer) may. The other is a virt-handler DaemonSet that would run on pool
    nodes. With O(assign_new_nodes=true), a node may be created with exactly the owner that the node policy gives it.
  - V(alerts) writes the C(PrometheusRule) C(virtpools-alerts) with O(alerts=true), which names the pools that have a DaemonSet. The page
    C(docs/alerts.md) describes every alert. Where the Prometheus operator is not installed, nothing changes.
  - An option that is not set deletes the objects of its part, except O(guard), which only V(false) deletes.
  - Policies are tried before VMs or nodes depend on them. A launcher policy or node policy is first written as a copy that acts only on the module's own
    dry runs, and proven again once it is live. When that fails, the module restores the previous policy and fails.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  part:
    description: The part to write.
    type: str
    required: true
    choices:
      - launcher_policy
      - node_policy
      - guard
      - alerts
  state:
    description:
      - V(present) creates and updates the objects of the part, and deletes those that it no longer needs.
      - V(absent) deletes them, whatever the pools are. Without the launcher policy, VMs start with KubeVirt's own launcher image, on any node. This
        needs no pool list.
    type: str
    default: present
    choices:
      - present
      - absent
  step:
    description:
      - The step of the run, as RV(virtpools.kubevirt.plan_info#module:steps) has it. A number is the number of batches before it, V(last) is the end of the
        run, when pools that go have no DaemonSet left.
      - Outside check mode, a number makes no difference, because the nodes' present owners decide.
    type: str
    default: "0"
  timeout:
    description: Seconds that the API servers may take to act by a new policy.
    type: int
    default: 60
seealso:
  - module: virtpools.kubevirt.plan_info
  - module: virtpools.kubevirt.primary_exclusion
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Map VMs to the pools that are active
  virtpools.kubevirt.run_part:
    part: launcher_policy
    pools: "{{ virtpools_pools }}"

- name: Map no VM to any pool
  virtpools.kubevirt.run_part:
    part: launcher_policy
    state: absent

- name: Let only runs change who owns a node
  virtpools.kubevirt.run_part:
    part: guard
    pools: "{{ virtpools_pools }}"
    guard: true

- name: Let Prometheus watch the pools
  virtpools.kubevirt.run_part:
    part: alerts
    pools: "{{ virtpools_pools }}"
    alerts: true
    alerts_labels:
      release: monitoring
"""

RETURN = r"""
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample:
    - "MutatingAdmissionPolicy virtpools-launcher: create"
    - VMs that match pool gpu start with registry.example/virt-launcher:v1.9.0-gpu on its nodes
backend:
  description: What changes launcher pods now.
  returned: success, with O(part=launcher_policy)
  type: str
  sample: admission_policy
digest:
  description: Digest of the launcher policy, which the pods that it admits have in the annotation C(virtpools.io/policy). Null without a policy.
  returned: success, with O(part=launcher_policy)
  type: str
  sample: 5a473f578345
"""

import contextlib
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import parts
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import Change
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.parts import LAST, Part, Step
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import run_parts
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import mapping

ARGUMENTS = {
    **option_table.arguments("pools", "run"),
    "part": {"type": "str", "required": True, "choices": list(run_parts.NAMES)},
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "step": {"type": "str", "default": "0"},
    "timeout": {"type": "int", "default": 60},
}


def body(task: module_base.Task) -> dict:
    name, step = task.params["part"], task.params["step"]
    if task.params["state"] == "absent":
        snapshot = task.snapshot()
        due: Step = 0
        removal = run_parts.removal_of(name, snapshot)
        part: Part | None = removal
        problems = [finding.message for finding in removal.findings() if finding.severity == "error"]
        if problems:
            raise InputErrors(problems)
    else:
        plan = task.plan_in_run()
        snapshot, part, due = plan.snapshot, plan.part(name), _due(task, step, len(plan.batches))
    if part is None:
        return {"changed": False, "changes": [], "diff": []}
    part = part if task.check_mode else parts.as_live(part, due)
    changes, done = part.changes(due), []
    if changes and task.check_mode:
        done = parts.preview(task.cluster, part, due)
    elif changes:
        parts.check(part)
        with task.writing(snapshot.namespace):
            done = parts.put(task.cluster, snapshot, part, due, task.params["timeout"], task.clock)
    return {
        "changed": bool(changes),
        "changes": list(changes),
        **part.facts(due),
        "diff": [_diff(each) for each in done],
    }


def _due(task: module_base.Task, step: str, batches: int) -> Step:
    """The step that is due: a run has moved its nodes by then; in check mode they are where they were."""
    if step == LAST:
        return LAST
    # Outside check mode, the plan no longer has the batches that were carried out.
    if not step.isdecimal() or (task.check_mode and int(step) > batches):
        raise InputErrors([f"step is {step}; give {LAST}, or a number from 0 to {batches}, the plan's batches."])
    return int(step) if task.check_mode else 0


def _diff(change: Change) -> dict:
    # Line by line, a changed expression shows what differs; a new one is only longer.
    compared = change.before is not None and change.after is not None
    before, after = (_readable(side, line_by_line=compared) for side in (change.before, change.after))
    shown = module_base.object_diff(before, after)
    if shown["before"] == shown["after"]:  # only the mapping differs
        before, after = (_with_mapping(side) for side in (change.before, change.after))
        shown = module_base.object_diff(before, after)
    return shown


def _with_mapping(value: t.Any) -> t.Any:
    """An object whose mapping is a table for people, unless another client has edited it."""
    annotations = dict((value or {}).get("metadata", {}).get("annotations") or {})
    if not annotations.get(names.MAPPING_ANNOTATION):
        return value
    with contextlib.suppress(InputErrors):
        annotations[names.MAPPING_ANNOTATION] = mapping.restore(annotations[names.MAPPING_ANNOTATION]).to_object()
    return {**value, "metadata": {**value["metadata"], "annotations": annotations}}


def _readable(value: t.Any, *, line_by_line: bool) -> t.Any:
    """For people: expressions by their names, and not the mapping a second time."""
    if isinstance(value, dict):
        return {
            key: _expression(item, line_by_line) if key == "expression" else _readable(item, line_by_line=line_by_line)
            for key, item in value.items()
            if key != names.MAPPING_ANNOTATION
        }
    if not isinstance(value, list):
        return value
    if value and all(isinstance(item, dict) and item.keys() == {"name", "expression"} for item in value):
        return {item["name"]: _expression(item["expression"], line_by_line) for item in value}
    return [_readable(item, line_by_line=line_by_line) for item in value]


def _expression(text: str, line_by_line: bool) -> str | list[str]:
    return text.replace(", ", ",\n").split("\n") if line_by_line else text


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
