#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module operator_pools: pools that a build of KubeVirt itself makes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: operator_pools
short_description: Write pools into a KubeVirt that creates them itself, and wait until it is done
version_added: 0.1.0
description:
  - For builds of KubeVirt with pools of their own. Turns on the build's feature gate and writes the pools, as a list in the KubeVirt object or as
    C(WorkerPool) objects. With O(remove_pools), takes them away again, and the gate if this module turned it on.
  - The API server tries every write as a dry run first, so that the build's own webhooks can object before anything is stored.
  - virt-operator decides when each handler restarts. The module waits until every node has the one Ready handler that it should have, judged from the
    DaemonSets and their pods, and returns which nodes had none or two on the way.
  - Before the first write, waits until no live migration runs, and makes handlers record VMs again that came by live migration since they started, since
    the next handler marks a VM without a record as failed.
  - Where virt-operator follows a change of C(WorkerPool) objects only with the next change of the KubeVirt object, and where it has lost a change, the module
    turns a feature gate without effect on and off again.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.mode
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  found_list:
    description:
      - RV(virtpools.kubevirt.plan_info#module:found_list) of the plan that is carried out. When the module would write the pools, and another user has
        changed them since that plan, it fails instead and writes nothing.
      - With or without it, the module does not write over pools that change while it waits.
    type: str
  migration_timeout:
    description: Seconds to wait for running live migrations, before anything is changed.
    type: int
    default: 900
  settle_timeout:
    description: Seconds that virt-operator may take to follow a change of the pools, for each step of the plan.
    type: int
    default: 1800
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Let KubeVirt create the pools
  virtpools.kubevirt.operator_pools:
    mode: operator
    pools: "{{ virtpools_pools }}"

- name: Take them all away again
  virtpools.kubevirt.operator_pools:
    remove_pools: all
"""

RETURN = r"""
build:
  description: The build of KubeVirt by whose pools the module works, as in O(pools_dialect).
  returned: success
  type: str
  sample: virtHandlerPools
changes:
  description: What was, or would be, done, and what virt-operator does with the nodes then.
  returned: success
  type: list
  elements: str
  sample: ["KubeVirt kubevirt/kubevirt: 1 pool: gpu; feature gate VirtHandlerPools on (spec.virtHandlerPools)"]
without_handler:
  description: The nodes that had no handler for a while, with the seconds that the module saw this.
  returned: success
  type: dict
  sample: {"gpu-0": 12.5}
with_two_handlers:
  description: The nodes that had two handlers for a while, with the seconds that the module saw this.
  returned: success
  type: dict
install_strategies:
  description:
    - ConfigMaps in KubeVirt's namespace with install strategies for lists of pools, which virt-operator keeps and nothing needs any more.
    - They are returned when the last pool was removed from a build that rolls out all of KubeVirt for each list (C(additionalVirtHandlers)).
  returned: success
  type: list
  elements: str
  sample: [kubevirt-install-strategy-7xk2p]
text:
  description: The same for people, as lines.
  returned: success
  type: list
  elements: str
"""

import typing as t
from dataclasses import replace
from datetime import datetime, timezone

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import DeleteOptions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import (
    handler_memory,
    operator_pools,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import history as live_history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors, counted
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import Change
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import found_list
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.mode import OperatorMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.plan import OperatorPlan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import History
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest

ARGUMENTS = {
    **option_table.arguments("mode", "pools", "run", "operator_pools"),
    "found_list": {"type": "str"},
}


def body(task: module_base.Task) -> dict:
    planned = _planned(task)
    planned_on = task.params["found_list"]
    if planned_on and planned.writes_list:
        found_list.refuse_another(planned.build, planned.found_list, planned_on)
    recorded = planned.removing or planned.is_recorded(task.asked.options)
    changes = list(planned.changes()) if planned.changed else []
    result: dict[str, t.Any] = {"changed": planned.changed, "build": planned.build.name, "changes": changes}
    windows = operator_pools.Windows()
    diffs = operator_pools.try_out(task.cluster, planned)
    strategies: list[str] = []
    if not task.check_mode and (planned.pending or not recorded):
        with task.writing(planned.snapshot.namespace):
            diffs = _carry_out(task, planned, windows)
        if planned.removing and not planned.pools:
            strategies = operator_pools.unneeded_strategies(task.cluster, planned)
    return {
        **result,
        "diff": [module_base.object_diff(before, after) for before, after in diffs],
        "without_handler": dict(sorted(windows.bare.items())),
        "with_two_handlers": dict(sorted(windows.doubled.items())),
        "install_strategies": strategies,
        "text": [*changes, *windows.lines(), *_offer(planned, strategies)] or ["No change."],
    }


def _offer(planned: OperatorPlan, strategies: t.Sequence[str]) -> t.Iterator[str]:
    if strategies:
        yield (
            f"virt-operator keeps {counted(len(strategies), 'install strategy', 'install strategies')} that nothing needs any more. To "
            f"delete them: kubectl delete configmap -n {planned.snapshot.namespace} {' '.join(strategies)}"
        )


def _planned(task: module_base.Task) -> OperatorPlan:
    """The plan for the cluster as it is now.

    :raises InputErrors: when it has errors.
    """
    found = task.snapshot()
    mode = task.mode(found)
    if not isinstance(mode, OperatorMode):
        raise InputErrors(
            [
                (
                    f"KubeVirt {found.kubevirt_name} has no pools of its own now, and mode does not ask for them; set mode: operator, or use "
                    "the modules for collection pools."
                )
            ]
        )
    asked = task.asked
    planned = mode.propose(found, PlanRequest(asked.pools, asked.options, asked.dialect)).plan
    if planned.errors:
        raise InputErrors([finding.message for finding in planned.errors])
    return planned


def _carry_out(task: module_base.Task, planned: OperatorPlan, windows: operator_pools.Windows) -> list[Change]:
    """Returns what was written."""
    namespace = planned.snapshot.namespace
    if planned.steps:
        began = task.clock.now()
        why = "virt-operator restarts handlers without waiting for them"
        handler_memory.before_restarts(task.cluster, namespace, task.params["migration_timeout"], task.clock, why)
        if task.clock.is_stale(began):
            _planned(task)
        going_to = task.params["pools_from_history"] or None
        brings = planned.entry(task.asked.options, "", "").digest

        def begin(known: History) -> History:
            # The history knows already where a move leads of which this is the first part.
            is_part = planned.removing and known.moving is not None
            begun = known if is_part else known.begun(going_to, planned.before, brings=brings)
            return replace(begun, operator_record=planned.record)

        live_history.write(task.cluster, namespace, begin, dry_run=False)
    changes = operator_pools.carry_out(task.cluster, planned, task.params["settle_timeout"], task.clock, windows)
    operator_pools.await_settled(task.cluster, planned, task.clock)
    if planned.removing and not planned.pools:
        if planned.keeps_history:
            live_history.write(
                task.cluster, namespace, lambda known: replace(known, operator_record=None), dry_run=False
            )
        else:
            _forget(task, namespace)
    else:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        entry = planned.entry(task.asked.options, now, task.run_by)
        live_history.write(task.cluster, namespace, lambda known: known.completed(entry), dry_run=False)
    return changes


def _forget(task: module_base.Task, namespace: str) -> None:
    """Delete the history, which is useless without pools."""
    live = task.cluster.get(kinds.CONFIG_MAP, names.HISTORY, namespace)
    if live is not None:
        options = DeleteOptions(uid=live["metadata"].get("uid"))
        task.cluster.delete(kinds.CONFIG_MAP, names.HISTORY, namespace, options, dry_run=False)


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
