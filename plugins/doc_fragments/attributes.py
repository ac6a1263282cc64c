# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules promise about check mode, diff mode and idempotence."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and then changes nothing.
  diff_mode:
    description: Returns what would be, or was, changed.
  idempotent:
    description: A second run with the same options changes nothing.
  action_group:
    description: Use C(group/virtpools.kubevirt.all) in C(module_defaults) to set authentication options for all modules at once.
    support: full
    membership:
      - virtpools.kubevirt.all
notes:
  - The module runs on the controller and talks to the API server from there. A host of the inventory that stands for a cluster needs
    C(ansible_connection=local), and C(ansible_python_interpreter={{ ansible_playbook_python }}), the Python that has kubernetes.core's libraries.
    Otherwise Ansible connects to the cluster's name with SSH, or takes another Python. The playbooks of this collection set both.
"""

    WRITES = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - Writes that the server can judge are sent as server-side dry runs.
  diff_mode:
    support: full
  idempotent:
    support: full
"""

    READS = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module never changes anything.
  diff_mode:
    support: N/A
    details:
      - This module never changes anything.
  idempotent:
    support: full
"""
