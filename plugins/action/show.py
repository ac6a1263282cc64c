# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action show: lines of text in the output of ansible-playbook. Documented in plugins/modules/show.yml."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.screen import Screen


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """An action and no module, because only actions can show anything. It runs on the controller."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        # A list option would split a text at its commas.
        _validated, arguments = self.validate_argument_spec({"lines": {"type": "raw", "required": True}})
        given = arguments["lines"]
        lines = [str(line) for line in given] if isinstance(given, list) else str(given).splitlines()
        Screen(self._display, task_vars or {}, hidden=self._task.no_log).show(lines)
        return {**result, "changed": False, "lines": lines}
