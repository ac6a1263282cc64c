# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plan_info: runs the module of this name in Ansible's worker, which inherits it. Made by make options."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.modules import plan_info
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.in_worker import ActionModule

__all__ = ("ActionModule", "plan_info")
