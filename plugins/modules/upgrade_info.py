#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module upgrade_info: is a cluster with pools fit for an upgrade of KubeVirt?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: upgrade_info
short_description: Check before an upgrade of KubeVirt whether the pools will survive it, and which images they need
version_added: 0.1.0
description:
  - Finds what would keep KubeVirt's rollout from ending, what is wrong with the pools already, and what the upgrade would cause, such as a policy of
    O(outdated=correct) that no longer fits.
  - Lists the images that the pools name, and the images of the new version that the run of C(site) after the upgrade needs. That run updates the
    pools' DaemonSets, and refuses images of another version unless a pool has C(allowSkew).
  - With a pool list, checks the images of that list, as it will be given to that run, and those of the cluster's other pools, which that run
    keeps unless O(prune). Without one, checks the pools that the cluster records.
  - Needs only the rights of the ClusterRole C(virtpools-reader).
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.kubevirt
  - virtpools.kubevirt.mode
  - virtpools.kubevirt.pools
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
options:
  version:
    description: KubeVirt's version after the upgrade, such as V(v1.9.1).
    type: str
    required: true
  dump:
    description:
      - A directory of YAML or JSON files with Kubernetes objects, as C(kubectl get -o yaml) writes them, to check instead of a cluster.
      - It must hold KubeVirt, DaemonSets, the Deployment C(virt-controller), nodes, the pods of KubeVirt's namespace, and the launcher
        policy with its binding.
    type: path
seealso:
  - module: virtpools.kubevirt.verification_info
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: Check before the upgrade
  virtpools.kubevirt.upgrade_info:
    version: v1.9.1
    pools: "{{ pools_for_1_9_1 }}"
  register: upgrade

- name: Nothing may stand in its way
  ansible.builtin.assert:
    that: upgrade.verdict != 'blocked'
    fail_msg: "{{ upgrade.text | join('\n') }}"
"""

RETURN = r"""
verdict:
  description: V(blocked) when a finding is an error, V(prepare) when one is a warning, else V(ready).
  returned: success
  type: str
  sample: prepare
summary:
  description: The verdict as a sentence.
  returned: success
  type: str
  sample: The upgrade of KubeVirt from v1.9.0 to v1.9.1 can go ahead.
kubevirt_version:
  description: Version of KubeVirt that is deployed.
  returned: success
  type: str
  sample: v1.9.0
images:
  description: The images that the pools name.
  returned: success
  type: list
  elements: dict
  contains:
    pool:
      description: Name of the pool.
      type: str
    field:
      description: V(virtHandlerImage) or V(virtLauncherImage).
      type: str
    image:
      description: The image.
      type: str
    skew:
      description: Whether its tag names the new version. V(same), V(different), or V(unknown).
      type: str
    needed:
      description: The same image for the new version. Null when the tag does not name a version.
      type: str
findings:
  description: What the user should know. See M(virtpools.kubevirt.plan_info) for the fields.
  returned: success
  type: list
  elements: dict
text:
  description: The same for people, as lines.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base, option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import terminal

ARGUMENTS = {
    **option_table.arguments("mode", "pools", "upgrade_info"),
    "version": {"type": "str", "required": True},
}


def body(task: module_base.Task) -> dict:
    options = task.asked.options
    pools = task.asked.pools if task.asked.pools_given else None
    found, _objects = task.observed()
    checked = task.mode(found).upgrade(found, task.params["version"], pools, options)
    return {
        "changed": False,
        "verdict": checked.verdict,
        "summary": checked.summary,
        "kubevirt_version": checked.current,
        "images": [image.to_dict() for image in checked.images],
        "findings": [finding.to_dict() for finding in checked.findings],
        "text": terminal.upgrade_lines(checked),
    }


def main() -> None:
    module_base.run(body, ARGUMENTS)


if __name__ == "__main__":
    main()
