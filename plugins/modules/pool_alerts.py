#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module pool_alerts: what Prometheus watches of pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pool_alerts
short_description: Write the alerts on pools for Prometheus, or delete them
version_added: 0.1.0
description:
  - With O(alerts=true), writes the C(PrometheusRule) C(virtpools-alerts), which names the pools that have a DaemonSet. Without it, deletes that one.
  - Where the Prometheus operator is not installed, changes nothing.
  - The page C(docs/alerts.md) of the collection's documentation describes every alert, and the metrics that it needs.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  after_removal:
    description:
      - Leave out pools that are being removed, whether or not their DaemonSets still exist. For the end of a run, when it has deleted them. Before that these pools
        are watched, too.
    type: bool
    default: false
seealso:
  - module: virtpools.kubevirt.pool_daemonsets
  - module: virtpools.kubevirt.verification_info
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Let Prometheus watch the pools
  virtpools.kubevirt.pool_alerts:
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
  sample: ["PrometheusRule kubevirt/virtpools-alerts: create"]
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import alerts

ARGUMENTS = {
    **option_table.arguments("pools", "run"),
    "after_removal": {"type": "bool", "default": False},
}


def body(task: module_base.Task) -> dict:
    plan = task.plan()
    task.refuse_in_run(plan)
    target, last = plan.alerts, task.params["after_removal"]
    if target is None:
        return {"changed": False, "changes": [], "diff": []}
    if last and task.check_mode and not plan.undoing:
        # What the run would have written before.
        target = target.after_first()
    changes = target.changes(after_removal=last)
    done = []
    if changes and task.check_mode:
        done = alerts.put(task.cluster, target, after_removal=last, dry_run=True)
    elif changes:
        with task.writing(plan.snapshot.namespace):
            done = alerts.put(task.cluster, target, after_removal=last, dry_run=False)
    return {
        "changed": bool(changes),
        "changes": list(changes),
        "diff": [module_base.object_diff(before, after) for before, after in done],
    }


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
