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
  - Before that, checks the cluster as M(virtpools.kubevirt.upgrade_info) does, and refuses what that reports as an error. Waits until no VM on a node of a
    pool is being migrated or evicted, and refuses to go on when that takes longer than O(migration_timeout). With O(prepull=true), pulls the
    images of the list to the nodes of the pools, and looks whether they have all that KubeVirt needs.
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
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import parts, settle
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.launcher_rollout import (
    LauncherPolicyRollout,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import Finding, InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import upgrade
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.upgrade import Upgrade
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.health import Health
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import preparation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.plan import Plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import terminal

ARGUMENTS = {
    **option_table.arguments("mode", "pools", "run"),
    "version": {"type": "str", "required": True},
    "pull_timeout": {"type": "int", "default": 900},
    "migration_timeout": {"type": "int", "default": 900},
    "wait": {"type": "int", "default": 0},
    "timeout": {"type": "int", "default": 60},
}


def body(task: module_base.Task) -> dict:
    seen = _examine(task)
    done, upgraded = [], seen.check.done
    if seen.changes and task.check_mode:
        done = parts.preview(task.cluster, seen.part, 0)
    elif seen.changes:
        with task.writing(seen.snapshot.namespace):
            # Once it has begun, the images may be what the migrations wait for.
            if not upgraded and Health.from_kubevirt(seen.snapshot.kubevirt).upgrading is None:
                _await_migrations(task, seen.snapshot)
            if task.asked.options.prepull and not upgraded:
                next_images.pull(task.cluster, seen.plan, task.params["pull_timeout"], task.clock)
            # While this waited for the Lease, and for images, others may have changed what it had read.
            seen = _examine(task)
            if seen.changes:
                done = parts.put(task.cluster, seen.snapshot, seen.part, 0, task.params["timeout"], task.clock)
    if not upgraded and not task.check_mode:
        metadata = seen.snapshot.kubevirt["metadata"]
        where = (metadata["namespace"], metadata["name"], task.params["version"])
        upgraded = settle.await_version(task.cluster, *where, task.params["wait"], task.clock) is None
    return {
        "changed": bool(seen.changes),
        "changes": list(seen.changes),
        "upgraded": upgraded,
        "findings": [finding.to_dict() for finding in seen.findings],
        "text": terminal.preparation_lines(
            seen.check,
            seen.findings,
            seen.changes,
            begun=Health.from_kubevirt(seen.snapshot.kubevirt).upgrading is not None,
            upgraded=upgraded,
            waited=task.params["wait"],
        ),
        "diff": [module_base.object_diff(each.before, each.after) for each in done],
    }


@dataclass(frozen=True)
class _Examined:
    """The cluster as it is now, and what is to be done."""

    snapshot: Snapshot
    check: Upgrade
    plan: Plan
    part: LauncherPolicyRollout
    findings: tuple[Finding, ...]
    changes: tuple[str, ...]


def _examine(task: module_base.Task) -> _Examined:
    """Read the cluster.

    :raises InputErrors: when the upgrade must wait, or cannot be prepared.
    """
    version, asked = task.params["version"], task.asked
    snapshot = task.snapshot()
    if task.mode(snapshot).name != "collection":
        raise InputErrors([preparation.BY_OPERATOR])
    made = preparation.prepare(snapshot, asked.pools, asked.options, version)
    checked = upgrade.check(snapshot, version, asked.pools, asked.options, prepares=True)
    part = made.rollout
    findings = () if made.under_way else (*checked.findings, *part.findings())
    errors = [finding.message for finding in findings if finding.severity == "error"]
    if made.unfinished is not None and not errors:
        errors = [made.unfinished]
    if errors:
        raise InputErrors(errors)
    return _Examined(snapshot, checked, made.plan, part, findings, () if made.under_way else part.changes(0))


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
