# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action awx_objects: the objects that the role awx creates. Its documentation is plugins/modules/awx_objects.yml."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.awx_objects import Secrets, objects, with_others


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """An action and not a module, because it reads the role's secret variables, and must not return or log them."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset({"options", "workflows", "nodes"})

    def run(self, tmp: None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        secrets = {
            name: self._templar.template(variables.get(f"virtpools_awx_{name}")) or {}
            for name in ("reader", "writer", "webhook", "email")
        }
        arguments = self._task.args
        found = objects(arguments["options"], Secrets(**secrets))
        workflows = {each["item"]["name"]: each["id"] for each in arguments.get("workflows") or ()}
        links = with_others(found["links"], workflows, arguments.get("nodes") or ())
        return {**result, "changed": False, **found, "links": links}
