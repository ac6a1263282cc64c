#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module pool_info: what a cluster's pools are like now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pool_info
short_description: Show the virt-handler pools of a cluster, and what is wrong with them
version_added: 0.1.0
description:
  - Returns how many nodes every owner has, the DaemonSets of the owners, and a finding for everything that is not as it should be. Examples are nodes
    without a handler, with two, or with the handler of another owner; handovers that were not finished; DaemonSets that differ from what is derived
    from the primary for their pool; and nodes whose owner does not fit their labels.
  - Needs only the rights of the ClusterRole C(virtpools-reader), and no pool list.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.mode
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Look at the pools
  virtpools.kubevirt.pool_info:
  register: pools

- name: Nothing may be wrong
  ansible.builtin.assert:
    that: pools.healthy
    fail_msg: "{{ pools.findings | map(attribute='message') | join(' ') }}"
"""

RETURN = r"""
mode:
  description: V(collection), or V(operator) where KubeVirt's own operator creates the pools.
  returned: success
  type: str
build:
  description: The build of KubeVirt that creates the pools, as in O(virtpools.kubevirt.plan_info#module:pools_dialect). Empty for collection pools.
  returned: success
  type: str
healthy:
  description: Whether no finding is an error.
  returned: success
  type: bool
owners:
  description: The primary and every pool.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the pool, or V(primary).
      type: str
    daemonset:
      description: Name of its DaemonSet.
      type: str
    nodes:
      description: How many nodes it owns. Nodes where the primary runs no handler, such as most of a control plane, are not the primary's.
      type: int
    desired:
      description: How many handler pods its DaemonSet wants.
      type: int
    ready:
      description: How many of them are Ready.
      type: int
    handler_image:
      description: Image of the container C(virt-handler).
      type: str
    hypervisor:
      description: What VMs run on there, by KubeVirt's name. That of KubeVirt's configuration, unless the pool has one of its own.
      type: str
      sample: kvm
excluded:
  description: Whether the primary is kept off pool nodes.
  returned: success
  type: bool
in_transit:
  description: Nodes in transit, which have no owner at the moment.
  returned: success
  type: list
  elements: str
findings:
  description: What is not as it should be. See M(virtpools.kubevirt.plan_info) for the fields.
  returned: success
  type: list
  elements: dict
kubevirt_version:
  description: Version of KubeVirt that is deployed.
  returned: success
  type: str
  sample: v1.9.0
text:
  description: The same for people, as lines.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.mode import in_results
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import terminal

ARGUMENTS = option_table.arguments("mode")


def body(task: module_base.Task) -> dict:
    found = task.snapshot()
    mode = task.mode(found)
    pool_state = mode.state(found)
    return {
        "changed": False,
        **in_results(mode),
        "healthy": all(finding.severity != "error" for finding in pool_state.findings),
        "owners": [owner.to_dict() for owner in pool_state.owners],
        "excluded": pool_state.excluded,
        "in_transit": list(pool_state.in_transit),
        "findings": [finding.to_dict() for finding in pool_state.findings],
        "kubevirt_version": pool_state.version,
        "text": terminal.state_lines(pool_state),
    }


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
