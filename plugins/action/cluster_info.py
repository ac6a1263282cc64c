# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action cluster_info: in_worker by the name of the first module of every playbook.

Before Ansible forks a task's worker, it loads the action that has the task's name. Workers inherit what it imported.
"""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.action.in_worker import ActionModule

__all__ = ("ActionModule",)
