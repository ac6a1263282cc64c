#!/usr/bin/python
# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module cluster_info: which cluster the credentials lead to."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_info
short_description: Tell which cluster the credentials lead to
version_added: 0.1.0
description:
  - Returns the address of the API server and the UID of the namespace C(kube-system), which no two clusters share.
  - The module is refused, as are all of this collection, when options and environment may mean two clusters. That is so when a kubeconfig or a context
    is given in one place, and a host in another.
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - virtpools.kubevirt.attributes
  - virtpools.kubevirt.attributes.reads
author:
  - the virtpools.kubevirt authors (@virtpools)
"""

EXAMPLES = r"""
- name: See which cluster this is
  virtpools.kubevirt.cluster_info:
    kubeconfig: "{{ virtpools_kubeconfig }}"
  register: cluster

- name: Show it
  ansible.builtin.debug:
    msg: "{{ cluster.text }}"
"""

RETURN = r"""
server:
  description: Address of the API server.
  returned: success
  type: str
  sample: https://east.example:6443
uid:
  description: UID of the namespace C(kube-system). Empty when the user may not read that namespace.
  returned: success
  type: str
  sample: 0c2f2e6e-6f43-4d2c-9b1c-0d5b6f1b8a52
identity:
  description: What tells this cluster from others. The UID, or else the address of the API server.
  returned: success
  type: str
text:
  description: The same for people, in one line.
  returned: success
  type: str
  sample: "Cluster https://east.example:6443, UID 0c2f2e6e-6f43-4d2c-9b1c-0d5b6f1b8a52"
"""

from ansible_collections.virtpools.kubevirt.plugins.module_utils import module_base
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import terminal


def body(task: module_base.Task) -> dict:
    cluster = task.cluster_id()
    return {
        "changed": False,
        **cluster._asdict(),
        "identity": cluster.uid or cluster.server,
        "text": terminal.cluster_line(cluster),
    }


def main() -> None:
    module_base.run(body, {}, of_kubevirt=False)


if __name__ == "__main__":
    main()
