#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module feature_gate: KubeVirt's feature gates."""

from __future__ import annotations

DOCUMENTATION = r"""
module: feature_gate
short_description: Turn feature gates of KubeVirt on or off
version_added: 0.1.0
description:
  - Adds gates to, or removes them from, the lists of the KubeVirt object, and keeps all others. On a cluster that the HyperConverged Cluster
    Operator manages, it edits the annotation C(kubevirt.kubevirt.io/jsonpatch) of the HyperConverged object, since direct edits are reverted.
  - KubeVirt accepts any name of a gate silently, so a gate that is on proves nothing. The module warns about gates that
    are known not to exist in the deployed version.
  - Pools on stock KubeVirt need no gate at all.
  - A change is refused while KubeVirt is being upgraded. The module waits until KubeVirt has acted on it.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.run
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.writes
options:
  present:
    description: Names of gates to turn on.
    type: list
    elements: str
    default: []
  absent:
    description:
      - Names of gates to turn off. They leave the list C(featureGates) and, from KubeVirt 1.8, go into C(disabledFeatureGates), unless they
        are known to be off by default.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that KubeVirt, and HCO where there is one, may take to act on a change.
    type: int
    default: 300
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Allow host devices
  virtpools.kubevirt.feature_gate:
    present:
      - HostDevices
"""

RETURN = r"""
changes:
  description: What was, or would be, done.
  returned: success
  type: list
  elements: str
  sample: ["KubeVirt kubevirt/kubevirt: feature gates: enable HostDevices (spec.configuration.developerConfiguration)"]
object:
  description: The object that holds the gates.
  returned: success
  type: str
  sample: KubeVirt kubevirt/kubevirt
findings:
  description:
    - Gates that are known not to exist in this version of KubeVirt, and pools whose launcher images refuse what KubeVirt passes to them
      with a gate. They are also returned as warnings.
  returned: success
  type: list
  elements: dict
operator_pool_fields:
  description:
    - The fields for pools that this build of KubeVirt itself has. Empty for stock KubeVirt, whatever gates are on.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import settle, writes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_backends
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import Finding, InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import (
    feature_gates,
    health,
    launcher_arguments,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.feature_gates import Gates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.hco import Edit, title

ARGUMENTS = {
    **option_table.arguments("run"),
    "present": {"type": "list", "elements": "str", "default": []},
    "absent": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "int", "default": 300},
}


def body(task: module_base.Task) -> dict:
    present, absent = tuple(task.params["present"]), tuple(task.params["absent"])
    problems = feature_gates.gate_problems([*present, *absent])
    if problems:
        raise InputErrors(problems)
    kubevirt = live.find_kubevirt(task.cluster, task.params["kubevirt_namespace"], task.params["kubevirt_name"])
    hyperconverged = live.find_hyperconverged(task.cluster, kubevirt)
    edit = feature_gates.set_gates(kubevirt, hyperconverged, present, absent)
    operator = live.read_operator_api(task.cluster, kubevirt, schema=True)
    unknown = feature_gates.unknown_gates(
        [*present, *absent],
        health.version_of(kubevirt),
        operator.fields,
        worker_pools=operator.worker_pools_served,
    )
    found = [*unknown, *_broken(task, kubevirt, present)]
    for finding in found:
        task.module.warn(finding.message)
    result = {
        "changed": edit.changed,
        "changes": [str(edit)] if edit.changed else [],
        "object": title(edit.after),
        "findings": [finding.to_dict() for finding in found],
        "operator_pool_fields": list(operator.fields),
    }
    if not edit.changed:
        return result

    def again(obj: dict) -> Edit:
        if edit.kind == "KubeVirt":
            return feature_gates.set_gates(obj, None, present, absent)
        return feature_gates.set_gates(kubevirt, obj, present, absent)

    upgrade = health.upgrade_under_way(kubevirt)
    if upgrade is not None:
        raise InputErrors([upgrade.message])
    if task.check_mode:
        before, after = writes.edit_object(task.cluster, edit, again, dry_run=True)
    else:
        with task.writing(kubevirt["metadata"]["namespace"]):
            before, after = writes.edit_object(task.cluster, edit, again, dry_run=False)
            settle.await_gates(task.cluster, kubevirt, Gates(present, absent), task.params["timeout"], task.clock)
    return {**result, "diff": [module_base.object_diff(before, after)]}


def _broken(task: module_base.Task, kubevirt: dict, gates: tuple[str, ...]) -> list[Finding]:
    """Warnings about pools whose launchers refuse what KubeVirt passes to them with these gates."""
    if not launcher_arguments.come_with(gates):
        return []
    admission = live.admission(task.cluster, kubevirt["metadata"]["namespace"])
    return [*launcher_arguments.with_gates(gates, launcher_backends.images_in_effect(admission, None), kubevirt)]


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
