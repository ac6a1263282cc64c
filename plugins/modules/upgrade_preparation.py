#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module upgrade_preparation: gives the VMs that the next version of KubeVirt starts the launcher images that fit it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: upgrade_preparation
short_description: Prepare pools for an upgrade of KubeVirt, so that their VMs start at every moment of it
version_added: 0.1.0
description:
  - KubeVirt passes arguments to virt-launcher that fit its own version, and virt-launcher ends at an argument that it does not know. So a VM needs the
    launcher image of the version that starts it. During an upgrade, both versions start VMs one after the other.
  - Adds the launcher images of the pool list, which is the list for O(version), to the launcher policy. The policy then looks at KubeVirt's own launcher
    image in each pod. VMs that the present KubeVirt starts get the images that they got before. VMs that any other version starts get those of the list.
    The policy is tried with pods of both versions before VMs depend on it.
  - Handlers, nodes, and the recorded pool list stay as they are. Run C(site) with the same list after the upgrade. It replaces the handlers, and the former
    images leave the policy.
  - Before that, checks the cluster as M(virtpools.kubevirt.upgrade_info) does, and refuses what that reports as an error, and what would keep C(site) from
    applying the list after the upgrade. Waits until no VM on a node of a pool is being migrated or evicted, and refuses to go on when that takes longer
    than O(migration_timeout). With O(prepull=true), pulls the images of the list to the nodes of the pools, and looks whether they have all that KubeVirt
    needs. Makes handlers record VMs again that came by live migration since they started, since the next handler marks a VM without a record as failed.
  - An approval covers the cluster, O(version), the list, the owner of every node, and the options that change what is written. It holds before, during
    and after the upgrade.
  - When KubeVirt has O(version) already, prepares nothing. What was prepared for another version is then taken back, for an upgrade that does not take
    place.
  - When the upgrade has begun without preparation, still prepares it, so that VMs start from then on.
  - Refuses to take it back as long as virt-operator is replacing components of KubeVirt, because either version may start VMs then.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.mode
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  version:
    description: KubeVirt's version after the upgrade, such as V(v1.9.1).
    type: str
    required: true
  pull_timeout:
    description: Seconds for the images of 50 nodes, which pull at the same time.
    type: int
    default: 900
  migration_timeout:
    description: Seconds to wait for live migrations and evictions of VMs on the nodes of pools, before anything is changed.
    type: int
    default: 900
  wait:
    description: Seconds to wait afterwards until KubeVirt has been upgraded. V(0) does not wait. The module does not hold the Lease while it waits.
    type: int
    default: 0
  timeout:
    description: Seconds that the API servers may take to act by a new policy.
    type: int
    default: 60
  cluster_name:
    description: The cluster's name in the inventory, under which the preparation is published and approved.
    type: str
    default: localhost
  feature_gates_present:
    description: Feature gates of KubeVirt that the run turns on before anything else. Pools on stock KubeVirt need none.
    type: list
    elements: str
    default: []
  feature_gates_absent:
    description: Feature gates of KubeVirt that the run turns off before anything else.
    type: list
    elements: str
    default: []
  expected_plan:
    description:
      - Digest of the plan that was approved. When the plan is no longer that one, the run is refused with what changed since, and changes
        nothing.
      - An approved plan still holds after an interruption, since the digest does not cover what is left to do. The run that completes
        it uses the approval up.
    type: str
  published_plan:
    description:
      - The approved plan, as an earlier job of a workflow published it. AWX passes it on. It is used where O(expected_plan) is not
        given.
      - The playbook C(plan), and C(site), C(rollout), C(rollback), C(remove) and C(upgrade) in check mode, publish their plans, each
        for its own kind of run. With several clusters there is one plan for each.
    type: raw
  require_approval:
    description: Whether a run is refused without the digest of an approved plan, from O(expected_plan) or O(published_plan).
    type: bool
    default: false
seealso:
  - module: virtpools.kubevirt.upgrade_info
  - module: virtpools.kubevirt.run_part
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Prepare the pools before the upgrade
  virtpools.kubevirt.upgrade_preparation:
    version: v1.9.1
    pools: "{{ pools_for_1_9_1 }}"
"""

RETURN = r"""
upgraded:
  description: Whether KubeVirt has the version now, so that C(site) can follow.
  returned: success
  type: bool
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
digest:
  description: Approve the upgrade by this digest, as O(expected_plan).
  returned: success
  type: str
  sample: 9d3c52e7ab10-4be2a0fcd1c1-77d0ff0ae914-0a1b2c3d4e5f-000000000000
published:
  description: What a later job of a workflow needs to carry out this very upgrade. A dictionary by O(cluster_name), then V(upgrade).
  returned: success
  type: dict
  sample: {"west": {"upgrade": {"digest": "9d3c52e7ab10-4be2a0fcd1c1-77d0ff0ae914-0a1b2c3d4e5f-000000000000", "nodes": 4, "pending": true}}}
findings:
  description: What the user should know. See M(virtpools.kubevirt.plan_info) for the fields.
  returned: success
  type: list
  elements: dict
text:
  description: The same for people, with what to do next, as lines.
  returned: success
  type: list
  elements: str
"""

from dataclasses import dataclass

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import next_images
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import handler_memory, parts, settle
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import upgrade
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.upgrade import Upgrade
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.feature_gates import Gates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import approval, preparation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.preparation import Preparation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import terminal

ARGUMENTS = {
    **option_table.arguments("mode", "pools", "run", "upgrade_preparation"),
    "version": {"type": "str", "required": True},
    "pull_timeout": {"type": "int", "default": 900},
    "migration_timeout": {"type": "int", "default": 900},
    "wait": {"type": "int", "default": 0},
    "timeout": {"type": "int", "default": 60},
    "cluster_name": {"type": "str", "default": "localhost"},
}


def body(task: module_base.Task) -> dict:
    seen = _examine(task)
    done, upgraded, made = [], seen.check.done, seen.made
    if made.changes and task.check_mode:
        done = parts.preview(task.cluster, made.rollout, 0)
    elif made.changes:
        with task.writing(seen.snapshot.namespace):
            # Once it has begun, the images may be what the migrations wait for.
            if not upgraded and not made.begun:
                _await_migrations(task, seen.snapshot)
                handler_memory.remind(task.cluster, live.handlers(task.cluster, seen.snapshot.namespace), task.clock)
            if task.asked.options.prepull and not upgraded:
                next_images.pull(task.cluster, made.plan, task.params["pull_timeout"], task.clock)
            # While this waited for the Lease, and for images, others may have changed what it had read.
            seen = _examine(task)
            made = seen.made
            if made.changes:
                done = parts.put(task.cluster, seen.snapshot, made.rollout, 0, task.params["timeout"], task.clock)
    if not upgraded and not task.check_mode:
        metadata = seen.snapshot.kubevirt["metadata"]
        where = (metadata["namespace"], metadata["name"], task.params["version"])
        upgraded = settle.await_version(task.cluster, *where, task.params["wait"], task.clock) is None
        if upgraded:
            # In hours of waiting, nodes may have joined, and the list may have been edited where it comes from. What follows brings
            # the approved list to the approved nodes only.
            task.forget()
            _examine(task)
    return {
        "changed": bool(made.changes),
        "changes": list(made.changes),
        "upgraded": upgraded,
        "digest": str(made.digest),
        "published": approval.publish(task.params["cluster_name"], "upgrade", made, task.cluster_id()),
        "findings": [finding.to_dict() for finding in made.findings],
        "text": terminal.preparation_lines(
            seen.check, made, upgraded=upgraded, waited=None if task.check_mode else task.params["wait"]
        ),
        "diff": [module_base.object_diff(each.before, each.after) for each in done],
    }


@dataclass(frozen=True)
class _Examined:
    """The cluster as it is now, and what is to be done."""

    snapshot: Snapshot
    check: Upgrade
    made: Preparation


def _examine(task: module_base.Task) -> _Examined:
    """Read the cluster.

    :raises InputErrors: when the upgrade must wait, cannot be prepared, or is not the approved one.
    """
    params, asked = task.params, task.asked
    version, cluster = params["version"], task.cluster_id()
    expected = approval.expected_digest(params, "upgrade", cluster, changes=not task.check_mode)
    snapshot = task.snapshot()
    if task.mode(snapshot).name != "collection":
        raise InputErrors([preparation.BY_OPERATOR])
    gates = Gates(tuple(params["feature_gates_present"]), tuple(params["feature_gates_absent"]))
    made = preparation.prepare(snapshot, asked.pools, asked.options, version, gates)
    checked = upgrade.check(snapshot, version, asked.pools, asked.options, prepares=True)
    made = made.with_findings(checked.findings)
    errors = [finding.message for finding in made.findings if finding.severity == "error"]
    if made.unfinished is not None and not errors:
        errors = [made.unfinished]
    if errors:
        raise InputErrors(errors)
    approval.check(made.digest, expected, objects=preparation.APPROVED)
    return _Examined(snapshot, checked, made)


def _await_migrations(task: module_base.Task, snapshot: Snapshot) -> None:
    """Wait until no VM on a node of a pool is being migrated or evicted.

    :raises ClusterError: when that takes too long.
    """
    nodes = [node.name for node in snapshot.nodes.values() if node.owner in snapshot.pools]
    timeout, clock = task.params["migration_timeout"], task.clock
    what = f"KubeVirt must not be upgraded yet, and nothing was changed, because within {timeout} s"
    problem = settle.await_migrations(task.cluster, nodes, timeout, clock)
    if problem is not None:
        raise ClusterError(f"{what} live migrations of VMs on nodes of pools did not end: {problem}")
    problem = settle.await_evacuations(task.cluster, nodes, timeout, clock)
    if problem is not None:
        raise ClusterError(f"{what} evicted VMs did not leave their nodes: {problem}")


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
