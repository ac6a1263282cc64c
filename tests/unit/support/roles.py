# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Roles in this process: their tasks as they are shipped, read as Ansible reads them, as far as ours use it.

A whole run takes milliseconds, so that thousands of them can be disturbed.
"""

from __future__ import annotations

import contextlib
import functools
import re
import types
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils import option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors

yaml = pytest.importorskip("yaml")  # ansible-test's environment for modules need not have them
jinja2 = pytest.importorskip("jinja2")
nativetypes = pytest.importorskip("jinja2.nativetypes")

ROOT = Path(__file__).parents[3]
OURS = "virtpools.kubevirt."
_OMIT = object()


@functools.cache
def _read(file):
    return yaml.safe_load(file.read_text("utf-8")) or {}


def _variables(role):
    return (ROOT / "roles" / role / folder / "main.yml" for folder in ("defaults", "vars"))


_GROUPS = _read(ROOT / "meta/runtime.yml")["action_groups"]
_ENVIRONMENT = nativetypes.NativeEnvironment(undefined=jinja2.StrictUndefined)
_ENVIRONMENT.filters["bool"] = bool
_ENVIRONMENT.filters["combine"] = lambda *mappings: {key: value for each in mappings for key, value in each.items()}
_ENVIRONMENT.tests["failed"] = lambda result: bool(result.get("failed"))
_ENVIRONMENT.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
_KEYWORDS = (
    *("name", "when", "vars", "register", "loop", "loop_control", "changed_when", "module_defaults", "block"),
    *("rescue", "always", "tags", "check_mode", "failed_when", "ignore_errors", "any_errors_fatal", "timeout"),
)


def _merged(first, second):
    """Two mappings as Ansible's set_stats aggregates them. Its own function is the controller's, whose import changes modules."""
    both = {
        key: _merged(first[key], second[key])
        for key in first.keys() & second.keys()
        if isinstance(first[key], dict) and isinstance(second[key], dict)
    }
    return {**first, **second, **both}


class TaskFailed(Exception):
    """A task failed, with the message and the result it fails with. As text, it is all that people see of the failure: also the
    error that led to it, and what was shown after it."""

    def __init__(self, message, result=None, action=""):
        super().__init__(message)
        self.result = {"msg": message, **(result or {})}
        self.action = action
        self.artifacts = {}
        """What set_stats published before, where the role was run as a job."""
        self._seen = [message]

    def __str__(self):
        return "\n".join(self._seen)

    def followed_by(self, lines):
        self._seen += lines
        return self

    def preceded_by(self, error):
        self._seen = [*error._seen, *self._seen]
        return self


class Play:
    """Runs roles with ``module(name, **arguments)``, which returns a module's result.

    ``check``: whether it has the keyword ``check_mode: true``, which leaves the variable ``ansible_check_mode`` false.
    """

    def __init__(self, module, *, check=False):
        self._module = module
        self._check = check
        self._registered = {}
        self._folder = None
        self.stats = {}
        self.shown = []
        """The lines that people see."""

    def role(self, name, *, validate=True, tasks="main", **variables):
        """Run a role with these variables.

        :param validate: whether Ansible checks first that required variables are set.
        :param tasks: the file of tasks to run.

        :raises TaskFailed: when a task does, after the role's own ``always``.
        """
        outer, self._folder = self._folder, ROOT / "roles" / name / "tasks"
        defaults, own = (_read(file) if file.exists() else {} for file in _variables(name))
        scope = {
            "ansible_check_mode": False,
            "inventory_hostname": "localhost",
            "omit": _OMIT,
            **defaults,
            **own,
            **variables,
        }
        required = [option.variable for option in option_table.of_role(name) if option.required]
        missing = [variable for variable in required if variable not in scope]
        if validate and missing:
            raise TaskFailed(f"missing required arguments: {', '.join(missing)}")
        try:
            self._file(f"{tasks}.yml", scope, {})
        finally:
            self._folder = outer

    def _file(self, name, scope, defaults):
        for task in _read(self._folder / name):
            self._task(task, scope, defaults)

    def _task(self, task, scope, defaults):
        if "loop" not in task:
            self._once(task, scope, defaults)
            return
        if not self._holds(task, scope, only_defined=True):
            return
        control = task.get("loop_control", {})
        for index, item in enumerate(self._rendered(task["loop"], scope)):
            places = {control.get("loop_var", "item"): item, control.get("index_var", "index"): index}
            self._once(task, {**scope, **places}, defaults)

    def _skip(self, task):
        """Register the result of a skipped task. Ansible asks each task of a block, so they register theirs as well."""
        self._register(task, {"changed": False, "skipped": True})
        for inner in (*task.get("block", ()), *task.get("always", ())):
            self._skip(inner)

    def _once(self, task, scope, defaults):
        scope = dict(scope)
        for key, value in (task.get("vars") or {}).items():
            # Ansible renders a variable when it is read. By then its own name means itself.
            assert not re.search(rf"{{{{.*\b{key}\b", str(value)), f"{key} asks for itself: {value}"
            with contextlib.suppress(jinja2.UndefinedError):  # read by nobody when the task is skipped
                scope[key] = self._rendered(value, scope)
        if not self._holds(task, scope):
            self._skip(task)
            return
        if "module_defaults" in task:
            defaults = {**defaults, **task["module_defaults"]}
        if "block" in task:
            self._block(task, scope, defaults)
            return
        (action,) = (key for key in task if key not in _KEYWORDS)
        try:
            given, checking = task[action] or {}, task.get("check_mode", self._check)
            self._register(task, self._act(action, given, scope, defaults, checking=checking))
        except TaskFailed as error:
            never = task.get("failed_when") is False
            self._register(task, {**error.result, "failed": not never})
            if not (never or task.get("ignore_errors")):
                raise

    def _block(self, task, scope, defaults):
        def each(part):
            for inner in task.get(part, ()):
                self._task(inner, scope, defaults)

        def always_after(error):
            before = len(self.shown)
            each("always")
            return error.followed_by(self.shown[before:])

        try:
            each("block")
        except TaskFailed as error:
            if "rescue" not in task:
                raise always_after(error) from error
            scope["ansible_failed_result"] = error.result
            scope["ansible_failed_task"] = {"action": error.action}
            try:
                each("rescue")
            except TaskFailed as later:
                raise always_after(later.preceded_by(error)) from later
        each("always")

    def _act(self, action, given, scope, defaults, *, checking):
        short = action.removeprefix("ansible.builtin.")
        if short in ("include_tasks", "import_tasks"):
            if isinstance(given, str):
                # Ansible reads what stands before an equals sign as the name of an option, be it in an expression.
                assert "=" not in given, f"{given} needs the option file"
                given = {"file": given}
            self._file(self._rendered(given, scope)["file"], scope, defaults)
            return {}
        arguments = self._rendered(given, scope)
        if short in ("include_role", "import_role"):
            validate = arguments.get("rolespec_validate", True)
            tasks = arguments.get("tasks_from", "main")
            self.role(arguments["name"].removeprefix(OURS), validate=validate, tasks=tasks, **scope)
        elif short == "fail":
            raise TaskFailed(arguments["msg"], action=action)
        elif short == "set_fact":
            self._registered.update(arguments)
        elif action == f"{OURS}role_options":
            return self._options(arguments, scope, checking)
        elif short == "set_stats":
            self.stats |= {name: self._aggregated(name, value) for name, value in arguments["data"].items()}
        elif action == f"{OURS}show":
            self.shown += arguments["lines"] if isinstance(arguments["lines"], list) else [arguments["lines"]]
        else:
            assert action.startswith(OURS), f"{action} is not understood here"
            more = {"check": True} if checking else {}
            return self._result(action.removeprefix(OURS), {**arguments, **more}, scope, defaults)
        return {}

    def _aggregated(self, name, value):
        """What set_stats makes of this value and of that which it has: a mapping of both, or the sum, also of two texts."""
        if name not in self.stats:
            return value
        return _merged(self.stats[name], value) if isinstance(value, dict) else self.stats[name] + value

    def _options(self, arguments, scope, checking):
        try:
            variables = scope if arguments.get("use_variables", True) else {}
            if not arguments.get("override"):
                option_table.check_names({**scope, **self._registered})
            options = option_table.resolve(arguments["role"], variables, arguments.get("override"))
            return {"options": options, "module_args": option_table.module_args(options), "check_mode": checking}
        except InputErrors as error:
            raise TaskFailed("\n".join(error.messages)) from error

    def _result(self, module, arguments, scope, defaults):
        for group, values in defaults.items():
            if module in _GROUPS[group.removeprefix(f"group/{OURS}")]:
                arguments = {**self._rendered(values, scope), **arguments}
        result = self._module(module, **arguments)
        if result.get("failed"):
            raise TaskFailed(result["msg"], result, action=f"{OURS}{module}")
        return result

    def _register(self, task, result):
        if "register" in task:
            self._registered[task["register"]] = result

    def _holds(self, task, scope, only_defined=False):
        """Whether ``when`` holds; in a loop some of it may be about an item, which is there only later."""
        conditions = task.get("when", [])
        conditions = conditions if isinstance(conditions, list) else [conditions]
        try:
            return all(self._rendered(f"{{{{ {condition} }}}}", scope) for condition in conditions)
        except jinja2.UndefinedError:
            if only_defined:
                return True
            raise

    def _rendered(self, value, scope):
        if isinstance(value, dict):
            pairs = [(key, self._rendered(item, scope)) for key, item in value.items()]
            return {key: item for key, item in pairs if item is not _OMIT}
        if isinstance(value, list):
            return [self._rendered(item, scope) for item in value]
        if isinstance(value, str) and "{{" in value:
            made = _template(value).render({**scope, **self._registered})
            return list(made) if isinstance(made, types.GeneratorType) else made
        return value


_template = functools.cache(_ENVIRONMENT.from_string)
