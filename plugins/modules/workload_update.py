#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module workload_update: give outdated VMs the launcher image that the mapping gives them now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: workload_update
short_description: Live-migrate the VMs whose launcher image is outdated
version_added: 0.1.0
description:
  - Finds the VMs whose launcher pods have other launcher images than new ones would get now, after a pool changed its image, after KubeVirt
    was upgraded, or because they are older than the pool. Neither the label C(kubevirt.io/outdatedLauncherImage) nor KubeVirt's status is evidence of that,
    since to stock KubeVirt every VM with a pool's image is outdated.
  - Live-migrates those that can be migrated, a few at a time, and looks at each one afterwards. It must have the right images, on a node of its pool.
    A migration that another one of the same VM precedes waits for it. The others are listed, with the reason, for their owners to restart.
  - What new launcher pods get is read from the live launcher policy. The module refuses to work where that is missing or was changed by hand, and
    while KubeVirt itself would update these VMs again and again.
  - A VM with the right images stays where it is, however old it is.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  namespaces:
    description: Only VMs of these namespaces; of all by default.
    type: list
    elements: str
    default: []
  batch:
    description: How many VMs to migrate at once. KubeVirt has limits of its own, 5 in a cluster and 2 from a node by default.
    type: int
    default: 2
  max_failures:
    description: After so many failed updates no further one begins; those under way are followed to their end.
    type: int
    default: 1
  timeout:
    description:
      - How many seconds one VM may take, the wait for another migration of it included. A migration of ours that takes longer is cancelled.
    type: int
    default: 900
  removed:
    description: The pools that are being taken away, as for M(virtpools.kubevirt.plan_info). Their VMs are to get KubeVirt's own launcher image, so no
      launcher policy is missing on their account.
    type: raw
  limit:
    description: Of how many single VMs to tell at most in RV(vms) and in RV(restarts); all are counted.
    type: int
    default: 1000
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Update what can be updated
  virtpools.kubevirt.workload_update:
    batch: 4
  register: updated

- name: Tell whom to ask for a restart
  ansible.builtin.debug:
    var: updated.restarts
"""

RETURN = r"""
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["VM default/db: migrate for registry.example/virt-launcher:v1.9.0-gpu of gpu"]
counts:
  description: How many VMs are outdated (C(outdated)), of these can be migrated (C(migrate)) and need a restart (C(restart)), and what became of the former
    by C(result).
  returned: always
  type: dict
  sample: {"outdated": 3, "migrate": 2, "restart": 1, "done": 2, "gone": 0, "failed": 0, "not_started": 0}
vms:
  description: What became of the VMs to migrate. Empty in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    namespace:
      description: Of the VM.
      type: str
    name:
      description: Of its VirtualMachineInstance.
      type: str
    pool:
      description: The pool that it belongs to, or V(primary).
      type: str
    expected_image:
      description: The launcher image that it should have.
      type: str
    images:
      description: The wrong images that it had, by the place where they were.
      type: dict
    node:
      description: Where it was.
      type: str
    how:
      description: V(migrate).
      type: str
    reason:
      description: Empty.
      type: str
    result:
      description: V(done), V(gone), V(restart) when it can no longer be migrated, V(failed), or V(not_started) after too many failures.
      type: str
    message:
      description: Why it is not done.
      type: str
    seconds:
      description: How long it took.
      type: float
restarts:
  description: The outdated VMs that only a restart updates, in the same form as RV(vms), with the reason and without a result.
  returned: always
  type: list
  elements: dict
text:
  description: All of it for a person, as lines.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import updates as cluster_updates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.updates import Limits, Outcome
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import permissions, removal
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.updates import Mapping, Update

ARGUMENTS = {
    **_module.RUN_ARGUMENTS,
    "namespaces": {"type": "list", "elements": "str", "default": []},
    "batch": {"type": "int", "default": 2},
    "max_failures": {"type": "int", "default": 1},
    "timeout": {"type": "int", "default": 900},
    "removed": {"type": "raw"},
    "limit": {"type": "int", "default": 1000},
}


def body(task: _module.Task) -> dict:
    limits = _limits(task.params)
    found = task.snapshot()
    wanted = _find(task, found)
    migrate = [update for update in wanted if update.how == "migrate"]
    if task.check_mode or not migrate:
        return _result(wanted, [], task.params["limit"])
    task.require(permissions.WORKLOAD_UPDATE)
    outcomes: list[Outcome] = []
    with task.writing(found.namespace):
        # Another run may have worked until now.
        found = task.snapshot()
        wanted = _find(task, found)
        migrate = [update for update in wanted if update.how == "migrate"]
        try:
            mapping = _mapping(task, found)
            for outcome in cluster_updates.carry_out(task.cluster, mapping, migrate, limits, task.clock):
                outcomes.append(outcome)  # noqa: PERF402 (those before a failure are kept)
        except ClusterError as error:
            raise _module.TaskFailed(str(error), _result(wanted, outcomes, task.params["limit"])) from error
    result = _result(wanted, outcomes, task.params["limit"])
    _refuse_failures(outcomes, result)
    return result


def _limits(params: dict) -> Limits:
    problems = [
        f"{option} is {params[option]}; give a number from 1."
        for option in ("batch", "max_failures", "timeout")
        if params[option] < 1
    ]
    if problems:
        raise InputErrors(problems)
    return Limits(params["batch"], params["max_failures"], params["timeout"])


def _find(task: _module.Task, found: Snapshot) -> list[Update]:
    return cluster_updates.find(task.cluster, _mapping(task, found), task.params["namespaces"])


def _mapping(task: _module.Task, found: Snapshot) -> Mapping:
    return Mapping.in_effect(found, removal.parse(task.params["removed"]))


def _result(wanted: list[Update], outcomes: list[Outcome], limit: int) -> dict:
    migrate = [update for update in wanted if update.how == "migrate"]
    restart = [update for update in wanted if update.how == "restart"]
    became = [outcome.result for outcome in outcomes]
    counts = {"outdated": len(wanted), "migrate": len(migrate), "restart": len(restart) + became.count("restart")}
    counts.update({result: became.count(result) for result in ("done", "gone", "failed", "not_started")})
    return {
        "changed": bool(migrate),
        "changes": [str(update) for update in migrate],
        "counts": counts,
        "vms": [outcome.to_dict() for outcome in outcomes[:limit]],
        "restarts": [update.to_dict() for update in restart[:limit]],
        "text": [
            f"{len(wanted)} VM(s) are outdated: {len(migrate)} can be migrated, {len(restart)} need a restart.",
            *[str(each) for each in (outcomes or migrate)[:limit]],
            *[str(update) for update in restart[:limit]],
        ],
        "diff": {
            "before_header": "launcher images of VMs",
            "after_header": "launcher images of VMs",
            "before": {update.vm: sorted(set(update.images.values())) for update in migrate[:limit]},
            "after": {update.vm: [update.expected_image] for update in migrate[:limit]},
        },
    }


def _refuse_failures(outcomes: list[Outcome], result: dict) -> None:
    failed = [outcome for outcome in outcomes if outcome.result == "failed"]
    if failed:
        left = result["counts"]["not_started"]
        raise _module.TaskFailed(
            f"{len(failed)} of {len(outcomes)} update(s) failed, and {left} were not begun. {' '.join(f'{o}.' for o in failed)}",
            result,
        )


def main() -> None:
    _module.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
