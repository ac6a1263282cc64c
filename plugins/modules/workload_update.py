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
  - Finds the VMs whose launcher pods have other launcher images than new launcher pods would get now. This happens after a pool changed its image, after
    an upgrade of KubeVirt, or when a VM is older than the pool. The module does not rely on the label C(kubevirt.io/outdatedLauncherImage) or on KubeVirt's
    status, since stock KubeVirt calls every VM with a pool's image outdated.
  - Live-migrates the VMs that can be migrated. Of each pool it migrates one VM first, and others only after such a migration has succeeded, then a few at a
    time. Afterwards each must have the right images, on a node of its pool. When another migration of the same VM runs already, the module waits for it.
    Lists the other VMs, with the reason, for their owners to restart.
  - Reads from the live launcher policy what new launcher pods get. The module refuses to work when that policy is missing or was changed by hand, and
    while KubeVirt itself would update these VMs again and again. Where that begins half-way, or an upgrade of KubeVirt does, no
    further VM is migrated.
  - A VM with the right images stays where it is.
  - At the end, makes handlers record VMs again that came by live migration since they started, by the annotation C(virtpools.io/reminder) on each, which
    it removes at once. The next handler of a node marks a VM as failed that the present one has no record of.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  namespaces:
    description: Update only VMs of these namespaces. By default those of all namespaces.
    type: list
    elements: str
    default: []
  batch:
    description: How many VMs to migrate at the same time. KubeVirt has its own limits, by default 5 in a cluster and 2 from a node.
    type: int
    default: 2
  max_failures:
    description: After this many failed updates no further update begins. The module waits for the end of those that have begun.
    type: int
    default: 1
  timeout:
    description:
      - Seconds that one VM may take, including the wait for another migration of it. When its own migration takes longer, the module cancels it.
    type: int
    default: 900
  remove_pools:
    description: The pools that are being removed, as for M(virtpools.kubevirt.plan_info). Their VMs are to get KubeVirt's own launcher
      image, so the launcher policy need not have these pools.
    type: raw
  max_listed_vms:
    description: How many single VMs to list at most in RV(vms) and in RV(restarts). All are counted.
    type: int
    default: 1000
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Live-migrate the outdated VMs that can be migrated
  virtpools.kubevirt.workload_update:
    batch: 4
  register: updated

- name: Show the VMs that need a restart
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
  description: How many VMs are outdated (C(outdated)). How many of these can be migrated (C(migrate)) or need a restart (C(restart)). How many
    migrations had each C(result).
  returned: always
  type: dict
  sample: {"outdated": 3, "migrate": 2, "restart": 1, "done": 2, "gone": 0, "failed": 0, "not_started": 0}
vms:
  description: The results of the VMs to migrate. Empty in check mode.
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
      description: The wrong images that it had, by their place in the launcher pod.
      type: dict
    node:
      description: The node where it was.
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
  description: The outdated VMs that need a restart, in the form of RV(vms), with the reason, with what must be done V(first) because the VM
    could not start again, and without a result.
  returned: always
  type: list
  elements: dict
remaining:
  description: For people, how many VMs had which outdated launcher image before any migration, and how to move them.
  returned: success
  type: list
  elements: str
events:
  description: What happened, for people. Ansible shows these lines while the module works, if it runs in Ansible's worker process.
  returned: when a VM was migrated
  type: list
  elements: str
text:
  description: For people, what was done in total and what is left to do.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import migrations as cluster_updates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.migrations import (
    Limits,
    MigrationOutcome,
    RuleInForce,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import handler_memory
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors, counted
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes import choice
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import relocation, removal
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.relocation import ImageDrift, Update

ARGUMENTS = {
    **option_table.arguments("run", "workload_update"),
    "namespaces": {"type": "list", "elements": "str", "default": []},
    "batch": {"type": "int", "default": 2},
    "max_failures": {"type": "int", "default": 1},
    "timeout": {"type": "int", "default": 900},
}


def body(task: module_base.Task) -> dict:
    limits = _limits(task.params)
    snapshot = task.snapshot()
    refused = choice.in_use(snapshot).cannot_migrate_vms(snapshot)
    if refused:
        raise InputErrors([refused])
    with task.waiting():
        outdated = _outdated(task, snapshot)
    migrate = [update for update in outdated if update.how == "migrate"]
    if task.check_mode or not migrate:
        return _result(outdated, [], task.params["max_listed_vms"])
    task.require(permissions.WORKLOAD_UPDATE)
    outcomes: list[MigrationOutcome] = []
    with task.writing(snapshot.namespace):
        # Another run may have worked until now.
        snapshot = task.snapshot()
        outdated = _outdated(task, snapshot)
        migrate = [update for update in outdated if update.how == "migrate"]
        try:
            mapping = RuleInForce(_mapping(task, snapshot), lambda: _mapping(task, task.snapshot()), task.clock)
            for outcome in cluster_updates.carry_out(task.cluster, mapping, migrate, limits, task.clock, _pool):
                outcomes.append(outcome)  # noqa: PERF402 (those before a failure are kept)
            if any(outcome.result in ("done", "failed") for outcome in outcomes):
                handler_memory.remind(task.cluster, live.handlers(task.cluster, snapshot.namespace), task.clock)
        except ClusterError as error:
            result = _result(outdated, outcomes, task.params["max_listed_vms"])
            raise module_base.TaskFailed(" ".join([str(error), *_failed(outcomes)]), result) from error
    result = _result(outdated, outcomes, task.params["max_listed_vms"])
    _refuse_failures(outcomes, result)
    return result


def _limits(params: dict) -> Limits:
    problems = [
        f"virtpools_update_{option} is {params[option]}; give a number from 1."
        for option in ("batch", "max_failures", "timeout")
        if params[option] < 1
    ]
    if problems:
        raise InputErrors(problems)
    return Limits(params["batch"], params["max_failures"], params["timeout"])


def _pool(update: Update) -> str:
    return update.pool


def _outdated(task: module_base.Task, snapshot: Snapshot) -> list[Update]:
    mapping = _mapping(task, snapshot)
    outdated = cluster_updates.find(task.cluster, mapping, task.params["namespaces"])
    mapping.refuse_broken(outdated)
    return outdated


def _mapping(task: module_base.Task, snapshot: Snapshot) -> ImageDrift:
    return ImageDrift.from_live_policy(snapshot, removal.parse(task.params["remove_pools"]))


def _result(outdated: list[Update], outcomes: list[MigrationOutcome], limit: int) -> dict:
    migrate = [update for update in outdated if update.how == "migrate"]
    restart = [update for update in outdated if update.how == "restart"]
    became = [outcome.result for outcome in outcomes]
    counts = {"outdated": len(outdated), "migrate": len(migrate), "restart": len(restart) + became.count("restart")}
    counts.update({result: became.count(result) for result in ("done", "gone", "failed", "not_started")})
    return {
        "changed": bool(migrate),
        "changes": [str(update) for update in migrate],
        "counts": counts,
        "vms": [outcome.to_dict() for outcome in outcomes[:limit]],
        "restarts": [update.to_dict() for update in restart[:limit]],
        "remaining": relocation.remaining_lines(outdated),
        "text": [
            _summary(outdated, outcomes, counts),
            *[str(update) for update in ([] if outcomes else migrate)[:limit]],
            *[str(update) for update in restart[:limit]],
        ],
        "diff": {
            "before_header": "launcher images of VMs",
            "after_header": "launcher images of VMs",
            "before": {update.vm: sorted(set(update.images.values())) for update in migrate[:limit]},
            "after": {update.vm: [update.expected_image] for update in migrate[:limit]},
        },
    }


def _summary(outdated: list[Update], outcomes: list[MigrationOutcome], counts: dict[str, int]) -> str:
    if not outcomes:
        found = f"{counted(len(outdated), 'VM is', 'VMs are')} outdated"
        return f"{found}: {counts['migrate']} to migrate, {counts['restart']} to restart."
    ended = {"gone": "have ended", "not_started": "were not begun"}
    also = "".join(f", {counts[result]} {words}" for result, words in ended.items() if counts[result])
    were = f"{counted(len(outdated), 'VM was', 'VMs were')} outdated"
    return f"{were}: {counts['done']} migrated, {counts['failed']} failed{also}, {counts['restart']} to restart."


def _refuse_failures(outcomes: list[MigrationOutcome], result: dict) -> None:
    failed = _failed(outcomes)
    if failed:
        left = result["counts"]["not_started"]
        raise module_base.TaskFailed(
            f"{len(failed)} of {counted(len(outcomes), 'update')} failed, and {left} were not begun. {' '.join(failed)}",
            result,
        )


def _failed(outcomes: list[MigrationOutcome]) -> list[str]:
    """A sentence for each update that failed."""
    return [f"{outcome}." for outcome in outcomes if outcome.result == "failed"]


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
