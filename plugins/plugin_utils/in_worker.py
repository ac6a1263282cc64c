# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of all modules: it runs a module in Ansible's worker process, where Ansible would start this Python on this machine anyway.

plugins/action/ has it by the name of every module, which it imports. Before Ansible forks a task's worker, it loads the action that has
the task's name, and workers inherit what it imported. docs/design/modules-in-worker.md explains this.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import sys
import tempfile
import typing as t

from ansible import constants, context
from ansible.module_utils import basic
from ansible.plugins.action import ActionBase, normal

from ansible_collections.virtpools.kubevirt.plugins.plugin_utils import awx, interruption, lost_cluster
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.screen import Screen

try:
    from ansible.module_utils.common.json import Direction, get_module_encoder
except ImportError:  # ansible-core before 2.19
    get_module_encoder = None
try:
    from ansible.vars.clean import remove_internal_keys
except ImportError:  # ansible-core from 2.21 on, where results of tasks are objects with a method of that name
    remove_internal_keys = None

PROFILE = "legacy"
WITHOUT_RUN = ("cluster_info",)
"""Modules that have no option run_by."""
PLUGINS = "ansible_collections.virtpools.kubevirt.plugins"
PLAYBOOKS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "playbooks")

# Once, before workers are forked.
module_base: t.Any = importlib.import_module(f"{PLUGINS}.module_utils.module_base")
# A worker then collects no garbage among what it inherited: looking through that would copy it page by page.
gc.freeze()


class ActionModule(normal.ActionModule):  # type: ignore[misc]  # Ansible has no types
    def run(self, tmp: None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        variables = task_vars or {}
        lost = self._lost_cluster(variables)
        if lost:
            return {"failed": True, "msg": "\n".join(lost)}
        self._name_job(variables)
        folder = self._loader.get_basedir()
        try:
            # Ansible starts a module of this machine in this folder. The loader is this worker's own copy.
            self._loader.set_basedir(_start_of_paths(folder))
            return self._run_module(tmp, variables)
        finally:
            self._loader.set_basedir(folder)

    def _run_module(self, tmp: None, variables: dict[str, t.Any]) -> dict[str, t.Any]:
        screen = Screen(self._display, variables, hidden=self._task.no_log)
        if not self._is_at_home(variables):
            late = t.cast("dict[str, t.Any]", super().run(tmp, variables))
            screen.show(late.get("events") or ())
            return late
        gc.freeze()  # looking through what the worker inherited would copy it page by page
        result: dict[str, t.Any] = ActionBase.run(self, tmp, variables)
        arguments = dict(self._task.args)
        self._update_module_args(self._task.action, arguments, variables)

        def note(lines: list[str]) -> None:
            host = str(variables.get("inventory_hostname"))
            interruption.note(host, [] if screen.hidden else screen.with_names(lines), stderr=screen.stderr)

        with _in_folder(self._loader.get_basedir()):
            output = _run(self._module, arguments, lambda line: screen.show([line]), note)
        outcome = self._parse_returned_data({"stdout": output, "stderr": ""}, PROFILE)
        return {**result, **_cleaned(outcome)}

    @property
    def _module(self) -> str:
        """The module's name as the task has it, without the collection's."""
        return str(self._task.action.rpartition(".")[2])

    def _name_job(self, variables: dict[str, t.Any]) -> None:
        """Tell the module who runs it, which only AWX's variables show."""
        job = awx.job(variables)
        if job and self._module not in WITHOUT_RUN:
            self._task.args = {"run_by": job, **self._task.args}

    def _lost_cluster(self, variables: dict[str, t.Any]) -> list[str]:
        """A sentence for each variable that chooses a cluster and does not reach the module."""
        given = self._task.args
        render = self._templar.template
        lost = [] if given.get("dump") or given.get("host") else lost_cluster.lost(variables, given, render)
        return [] if lost and "K8S_AUTH_" in self._compute_environment_string() else lost

    def _is_at_home(self, variables: dict[str, t.Any]) -> bool:
        """Whether the module would run as this user, in this environment, with this Python, on this machine."""
        task, interpreter = self._task, variables.get("ansible_python_interpreter")
        elsewhere = task.async_val or task.delegate_to or self._connection.become or self._compute_environment_string()
        parsing = inspect.signature(ActionBase._parse_returned_data)  # noqa: SLF001
        return (
            get_module_encoder is not None
            and "profile" in parsing.parameters
            and (remove_internal_keys is not None or "UnifiedTaskResult" in str(parsing.return_annotation))
            and self._connection.transport == "local"
            and not elsewhere
            and not constants.DEFAULT_KEEP_REMOTE_FILES  # it keeps the archive, for debugging
            and self._templar.template(interpreter) == sys.executable
        )


def _start_of_paths(playbook: str) -> str:
    """The folder at which relative paths start, in options and in the environment, when a module runs on this machine.

    It is that of the playbook, as for Ansible's own modules. The playbooks of this collection are in a folder where users have
    no files: with them it is the folder of the user's playbook that imports one, or the one where Ansible was started.
    """
    if os.path.realpath(playbook) != PLAYBOOKS:
        return playbook
    started = {
        os.path.dirname(os.path.abspath(path)) for path in context.CLIARGS.get("args") or () if os.path.isfile(path)
    }
    return started.pop() if len(started) == 1 else os.getcwd()


@contextlib.contextmanager
def _in_folder(folder: str) -> t.Iterator[None]:
    former = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(former)
        os.close(former)


def _cleaned(outcome: t.Any) -> dict[str, t.Any]:
    """What a module returned, without what only Ansible itself may say, as Ansible's own action cleans it."""
    if remove_internal_keys is None:
        outcome.remove_internal_keys()
        return t.cast("dict[str, t.Any]", outcome.as_result_dict(for_round_trip=True))
    remove_internal_keys(outcome)
    return t.cast("dict[str, t.Any]", outcome)


def _run(
    name: str, arguments: dict[str, t.Any], show: t.Callable[[str], None], note: t.Callable[[list[str]], None]
) -> str:
    """Run a module, which reads its arguments like in a process of its own, and return what it prints."""
    module_base.show, module_base.note = show, note
    encoder = get_module_encoder(PROFILE, Direction.CONTROLLER_TO_MODULE)
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}, cls=encoder).encode()  # noqa: SLF001
    basic._ANSIBLE_PROFILE = PROFILE  # noqa: SLF001
    output = io.StringIO()
    with _left_for_the_end(), contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        importlib.import_module(f"{PLUGINS}.modules.{name}").main()
    return output.getvalue()


@contextlib.contextmanager
def _left_for_the_end() -> t.Iterator[None]:
    """Do at a module's end what was left for the end of its process: a worker ends without it, and may run a module again.

    That is how the Kubernetes client removes the files to which it writes a kubeconfig's certificates and private keys.
    Those of a worker that Ctrl-C or a time-out kills go with Ansible's local temporary folder, when ansible-playbook ends.
    """
    register, folder = atexit.register, tempfile.tempdir
    with contextlib.ExitStack() as end:
        atexit.register = end.callback  # takes and returns the same
        tempfile.tempdir = constants.DEFAULT_LOCAL_TMP
        try:
            yield
        finally:
            atexit.register, tempfile.tempdir = register, folder
