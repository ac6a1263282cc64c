# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action role_options: the values of a role's options, and what they are to modules. Documented in plugins/modules/role_options.yml."""

from __future__ import annotations

import importlib
import os
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.virtpools.kubevirt.plugins.module_utils import option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import AUTH_ARGUMENTS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils import lost_cluster
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.lost_cluster import FOR_ALL


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """An action and no module, because only actions see a role's variables. It runs on the controller."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset({"role", "override", "use_variables", "collections"})

    def run(self, tmp: None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        role, override = self._task.args["role"], self._task.args.get("override") or {}
        try:
            _need(self._task.args.get("collections") or [])
            if not override:  # within a run, which a variable that the user's gates have set must not stop
                option_table.check_names(task_vars or {})
            _refuse_lost_cluster(role, task_vars or {}, self._task.module_defaults or [], self._templar.template)
            options = option_table.resolve(role, self._variables(role, task_vars or {}), override)
            _require_files(options.get("gates") or ())
        except InputErrors as error:
            return {**result, "failed": True, "msg": "\n".join(error.messages)}
        secrets = {option.name for option in option_table.of_role(role) if option.secret}
        shown = {name: value for name, value in options.items() if name not in secrets}
        return {
            **result,
            "changed": False,
            "options": shown,
            "module_args": option_table.module_args(shown),
            "check_mode": bool(self._task.check_mode),
        }

    def _variables(self, role: str, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """The role's variables, rendered; none if the task does not use them."""
        if not boolean(self._task.args.get("use_variables", True)):
            return {}
        names = {option.variable for option in option_table.of_role(role)}
        found: dict[str, t.Any] = self._templar.template(
            {name: value for name, value in task_vars.items() if name in names}
        )
        return found


def _refuse_lost_cluster(
    role: str,
    variables: t.Mapping[str, t.Any],
    defaults: t.Sequence[t.Mapping[str, t.Any]],
    render: t.Callable[[t.Any], t.Any],
) -> None:
    """Refuse a play whose cluster the modules of the role would not get: they would change the one of the environment.

    :param defaults: module_defaults of the play and its blocks. A group whose arguments are one expression is not looked into.
    :param render: renders a variable.
    """
    if not any(option.name == "kubevirt_name" for option in option_table.of_role(role)):
        return  # a role without a cluster
    given = {group: arguments or {} for each in defaults for group, arguments in each.items()}
    passed = given.get(FOR_ALL, {})
    problems = [] if isinstance(passed, str) else lost_cluster.lost(variables, passed, render)
    for group, arguments in given.items():
        lost = [] if isinstance(arguments, str) else sorted(AUTH_ARGUMENTS.keys() & arguments.keys())
        if lost and group.startswith("group/virtpools.kubevirt.") and group != FOR_ALL:
            problems.append(
                f"module_defaults of {group} have {lost[0]}, which roles replace, so another cluster would be used; name {FOR_ALL} instead."
            )
    if problems:
        raise InputErrors(problems)


def _require_files(gates: t.Sequence[str]) -> None:
    """Require the user's gates, which Ansible would look for only after the first wave, and first among the files of our role."""
    missing = [path for path in gates if not (os.path.isabs(path) and os.path.isfile(path))]
    if missing:
        raise InputErrors(
            [f"virtpools_gates has {path}, which is not the absolute path of a file; correct it." for path in missing]
        )


def _need(collections: t.Sequence[str]) -> None:
    """Require these collections. Ansible itself would only report that it cannot resolve a module."""
    missing = [name for name in collections if not _is_installed(name)]
    if missing:
        raise InputErrors(
            [f"The collection {name} is missing: ansible-galaxy collection install {name}" for name in missing]
        )


def _is_installed(collection: str) -> bool:
    try:
        importlib.import_module(f"ansible_collections.{collection}")
    except ModuleNotFoundError:
        return False
    return True
