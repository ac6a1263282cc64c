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
  - Returns who owns how many nodes, the DaemonSets behind them, and a finding for everything that is not as it should be. Nodes without a
    handler, with two, or with that of another owner; handovers that were not finished; DaemonSets that are no longer what their pool derives
    from the primary; nodes whose labels and owner disagree.
  - Needs only the rights of the ClusterRole C(virtpools-reader), and no pool list.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
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
      description: How many nodes it owns.
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
excluded:
  description: Whether the primary keeps off pool nodes.
  returned: success
  type: bool
in_transit:
  description: Nodes that nobody owns at the moment.
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
  description: The same for a person, as lines.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import _module
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import report, state


def body(task: _module.Task) -> dict:
    found = state.examine(task.snapshot())
    return {
        "changed": False,
        "healthy": all(finding.severity != "error" for finding in found.findings),
        "owners": [owner.to_dict() for owner in found.owners],
        "excluded": found.excluded,
        "in_transit": list(found.in_transit),
        "findings": [finding.to_dict() for finding in found.findings],
        "kubevirt_version": found.version,
        "text": report.state_lines(found),
    }


def main() -> None:
    _module.run(body, {})


if __name__ == "__main__":
    main()
