#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module launcher_policy: VMs start with their pool's launcher image on its nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: launcher_policy
short_description: Give VMs the launcher image and the nodes of their pool
version_added: 0.1.0
description:
  - Brings the launcher policy to what the pools ask for now. The policy gives a VM that starts or is migrated the launcher image of the first pool
    that selects it, on the nodes of that pool. It keeps other VMs off the nodes of pools that ask for that. Running VMs are not changed.
  - A pool takes VMs once it is active, which depends on the nodes that it owns by now. The field C(activation) of a pool says when.
  - The module tries out a new policy twice. First as a copy that acts only on the module's own dry runs, then when the policy is live. When it fails
    there, the module puts the previous policy back and fails.
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
      - V(present) creates and updates the policy. It deletes a policy that no pool needs, or that belongs to another O(launcher_backend).
      - V(absent) deletes the policy of every back end. VMs then start with KubeVirt's own launcher image, on any node. This needs no pool list.
    type: str
    default: present
    choices:
      - present
      - absent
  stage:
    description:
      - In check mode, the number of batches of the plan after which the policy is shown. Outside check mode, the nodes' present owners decide.
    type: int
    default: 0
  timeout:
    description: Seconds that the API servers may take to apply a new policy.
    type: int
    default: 60
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Map VMs to the pools that are active
  virtpools.kubevirt.launcher_policy:
    pools: "{{ virtpools_pools }}"

- name: Map no VM to any pool
  virtpools.kubevirt.launcher_policy:
    state: absent
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
  returned: success
  type: str
  sample: admission_policy
digest:
  description: Digest of the policy, which the pods that it admits have in the annotation C(virtpools.io/policy). Null without a policy.
  returned: success
  type: str
  sample: 5a473f578345
"""

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_rollout, probes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.launcher_rollout import (
    LauncherPolicyRollout,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors

ARGUMENTS = {
    **option_table.arguments("pools", "run"),
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "stage": {"type": "int", "default": 0},
    "timeout": {"type": "int", "default": 60},
}


def body(task: module_base.Task) -> dict:
    return _absent(task) if task.params["state"] == "absent" else _present(task)


def _present(task: module_base.Task) -> dict:
    plan = task.plan()
    task.refuse_in_run(plan)
    rollout = t.cast(LauncherPolicyRollout, plan.launcher_rollout)  # the snapshot is complete
    stage = _stage(task, rollout)
    policy, changes, done = rollout.policy(stage), rollout.changes(stage) if stage in rollout.steps else (), []
    if changes and task.check_mode:
        done = policies.preview(task.cluster, [*rollout.correction(stage), *policy], rollout.to_delete(stage))
    elif changes:
        with task.writing(rollout.snapshot.namespace):
            done = _put(task, rollout, policy)
    digests = (obj["metadata"].get("annotations", {}).get(names.POLICY_ANNOTATION) for _kind, obj in policy)
    return {
        "changed": bool(changes),
        "changes": list(changes),
        "backend": rollout.choice.backend if policy else "none",
        "digest": next(filter(None, digests), None),
        "diff": _diffs(done),
    }


def _stage(task: module_base.Task, rollout: LauncherPolicyRollout) -> int:
    """What is due: a run has moved its nodes by then, in check mode they are where they were."""
    stage = task.params["stage"] if task.check_mode else 0
    if not 0 <= stage < len(rollout.stages):
        raise InputErrors([f"stage is {stage}; give a number from 0 to {len(rollout.stages) - 1}, the plan's batches."])
    return stage


def _put(task: module_base.Task, rollout: LauncherPolicyRollout, policy: policies.Desired) -> list[policies.Change]:
    timeout, where = task.params["timeout"], policies.probe_site(task.cluster, rollout.snapshot)
    done = policies.put(task.cluster, rollout.correction(0), None, timeout, task.clock)
    done += policies.put(task.cluster, policy, policies.trial_of(rollout, 0, where), timeout, task.clock)
    deletions = policies.removal_changes(rollout.to_delete(0))
    # What another policy says of a probe is not to be waited for.
    probe = None if policy else probes.plain_pod(where)
    return [*done, *policies.remove(task.cluster, deletions, probe, timeout, task.clock)]


def _absent(task: module_base.Task) -> dict:
    snapshot = task.snapshot()
    deletions = policies.removal_changes(launcher_rollout.live_objects(snapshot.admission))
    lines = [str(change) for change in deletions]
    if deletions and not task.check_mode:
        probe = probes.plain_pod(policies.probe_site(task.cluster, snapshot)) if snapshot.primary else None
        with task.writing(snapshot.namespace):
            deletions = policies.remove(task.cluster, deletions, probe, task.params["timeout"], task.clock)
    return {"changed": bool(deletions), "changes": lines, "backend": "none", "digest": None, "diff": _diffs(deletions)}


def _diffs(changes: list[policies.Change]) -> list[dict]:
    return [module_base.object_diff(_readable(change.before), _readable(change.after)) for change in changes]


def _readable(value: t.Any) -> t.Any:
    """For people: expressions line by line, and not the mapping a second time."""
    if isinstance(value, dict):
        return {
            key: item.replace(", ", ",\n").split("\n") if key == "expression" else _readable(item)
            for key, item in value.items()
            if key != names.MAPPING_ANNOTATION
        }
    return [_readable(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
