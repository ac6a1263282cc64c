# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Run the collection's playbooks as a user would: from another folder, and with the rights of a shipped ClusterRole."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from local_cluster import LocalCluster

CLUSTER_ROLES = Path(__file__).parents[3] / "playbooks" / "files" / "clusterroles.yml"
OTHER_VENV = os.environ.get("VIRTPOOLS_TEST_VENV")
"""A venv with another Ansible to run the playbooks with. ``ci/user_journey.sh`` sets it."""
ANSIBLE_PLAYBOOK = (Path(OTHER_VENV) / "bin" if OTHER_VENV else Path(sys.executable).parent) / "ansible-playbook"
CONFIG = Path(__file__).with_name("ansible.cfg")
"""Settings of Ansible for the playbooks of tests."""
# All processes of a run inherit this variable, so that they can be identified after the run itself was killed.
MARKER = "VIRTPOOLS_TEST_RUN"


@dataclass(frozen=True)
class Account:
    """Who runs playbooks: bound to one of the ClusterRoles that the collection ships."""

    kubeconfig: Path
    user: str
    """The user's name in the audit log."""

    @classmethod
    def make(cls, cluster: LocalCluster, role: str, name: str = "") -> Account:
        """Make an account, by default named after its role, that has the role ``reader`` or ``writer`` and no other."""
        cluster.apply(CLUSTER_ROLES)
        kubeconfig = cluster.kubeconfig_for(name or role, [f"virtpools-{role}"])
        return cls(kubeconfig, f"system:serviceaccount:virtpools-system:{name or role}")


@dataclass(frozen=True)
class TaskResult:
    """The result of one task on one host."""

    name: str
    host: str
    action: str
    status: str
    """ok, changed, failed or skipped."""
    result: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Run:
    """A playbook run that has ended."""

    rc: int
    stdout: str = field(repr=False)
    stderr: str = field(repr=False)
    seconds: float
    left_behind: list[str] = field(repr=False)
    """Names of its temporary files that are still there."""

    @cached_property
    def tasks(self) -> list[TaskResult]:
        """Return the results of all tasks, in order."""
        return list(_results(self._events))

    @cached_property
    def recap(self) -> dict[str, dict[str, int]]:
        """Return Ansible's recap: counts by host. Empty when Ansible did not get that far."""
        return next((event["stats"] for event in self._events if event["_event"] == "v2_playbook_on_stats"), {})

    @property
    def changed(self) -> int:
        """Return how many tasks reported a change."""
        return sum(counts["changed"] for counts in self.recap.values())

    @property
    def error(self) -> str:
        """Return the messages of all failed tasks."""
        return "\n".join(str(task.result.get("msg")) for task in self.tasks if task.status == "failed")

    @property
    def plan(self) -> dict[str, Any]:
        """Return the result of the first plan: what the run meant to do."""
        return self.results_of("virtpools.kubevirt.plan_info")[0].result

    @property
    def changes(self) -> list[str]:
        """Return the changes that the modules carried out, or in check mode would, in order."""
        writing = (task for task in self.tasks if task.status == "changed")
        return [line for task in writing for line in task.result["changes"]]

    def results_of(self, action: str) -> list[TaskResult]:
        """Return the results of the tasks that ran this module, without skipped tasks."""
        return [task for task in self.tasks if task.action == action and task.status != "skipped"]

    def succeeded(self) -> Run:
        """Return the run itself, or fail with what went wrong. Certificates and keys must not stay in files."""
        assert self.rc == 0, str(self)
        assert not self.left_behind
        return self

    def refused(self) -> str:
        """Return the error of a run that must have failed."""
        assert self.rc != 0, f"The run should have been refused.\n{self}"
        assert self.error, f"No task said why the run failed.\n{self}"
        return self.error

    def __str__(self) -> str:
        """Return what a person needs to see of a run that ended unexpectedly."""
        tasks = "\n".join(f"  {task.status:8} {task.name}" for task in self.tasks)
        return f"ansible-playbook ended with {self.rc} after {self.seconds:.1f} s\n{tasks}\n{self.error}\n{self.stderr[-4000:]}"

    @cached_property
    def _events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]


def _results(events: Sequence[dict[str, Any]]) -> Iterator[TaskResult]:
    for event in events:
        if event["_event"].startswith("v2_runner_on_") and event["_event"] != "v2_runner_on_start":
            for host, result in event["hosts"].items():
                action = result.pop("action", "")
                yield TaskResult(event["task"]["name"], host, action, _status(event["_event"], result), result)


def _status(event: str, result: Mapping[str, Any]) -> str:
    outcome = event.removeprefix("v2_runner_on_")
    return "changed" if outcome == "ok" and result.get("changed") else outcome


class RunningPlaybook:
    """A playbook run in progress."""

    _started_here: ClassVar[list[RunningPlaybook]] = []

    def __init__(self, process: subprocess.Popen[bytes], mark: str, folder: tempfile.TemporaryDirectory[str]) -> None:
        """Use start instead."""
        self._started_here.append(self)
        self.process = process
        self._mark = mark
        self._folder = folder
        self._started = time.monotonic()

    def ended(self) -> bool:
        """Say whether ansible-playbook itself has ended."""
        return self.process.poll() is not None

    def wait(self, timeout: float = 900) -> Run:
        """Wait for its end; kill it if it takes more than ``timeout`` seconds."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"The run did not end within {timeout:g} s.\n{self._run()}") from None
        finally:
            run = self._run()
        self._folder.cleanup()
        return run

    def interrupt(self) -> None:
        """Press Ctrl-C: the terminal does not tell Ansible's workers, which are in sessions of their own."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill ansible-playbook alone, as the kernel does when memory runs out; the processes that it started go on."""
        self.process.kill()
        self.process.wait(30)

    def kill_all(self) -> None:
        """Kill ansible-playbook and all that it started, as a power failure would."""
        # Stop it first, so that it starts nothing more. Its workers are in sessions of their own.
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGSTOP)
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait(30)
            time.sleep(0.01)

    @classmethod
    def kill_leftovers(cls) -> None:
        """Kill the runs that a failed test left behind: they would disturb the next test."""
        while cls._started_here:
            leftover = cls._started_here.pop()
            if not leftover.ended():
                leftover.kill_all()

    def pids(self) -> list[int]:
        """Return the pids of the run's processes that still live."""
        mark = f"{MARKER}={self._mark}".encode()
        pids = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
        return pids

    def said(self, text: str) -> bool:
        """Say whether the person who watches the run has seen this text so far."""
        return text in (Path(self._folder.name) / "stderr").read_text("utf-8", "replace")

    def orphans(self) -> list[int]:
        """Return the pids of the processes that outlive a killed ansible-playbook."""
        return [pid for pid in self.pids() if pid != self.process.pid]

    def _run(self) -> Run:
        folder = Path(self._folder.name)
        stdout, stderr = ((folder / name).read_text("utf-8", "replace") for name in ("stdout", "stderr"))
        returncode = self.process.poll()
        left_behind = [file.name for file in (folder / "temporary").iterdir()]
        return Run(
            -1 if returncode is None else returncode, stdout, stderr, time.monotonic() - self._started, left_behind
        )


def start(
    playbook: str,
    kubeconfig: Path,
    pools: Sequence[Mapping[str, Any]] | None = None,
    *arguments: str,
    **variables: Any,
) -> RunningPlaybook:
    """Start a playbook of the collection, such as ``site``, with these pools, command-line arguments and variables.

    It writes no guard unless a test asks for one: most tests compare all that a run changes, and some disturb what the guard
    protects. ``virtpools_guard=None`` is what users have.
    """
    folder = tempfile.TemporaryDirectory(prefix="virtpools-run-")
    here, mark = Path(folder.name), uuid.uuid4().hex
    given = {"virtpools_guard": False, **({} if pools is None else {"virtpools_pools": pools}), **variables}
    (here / "variables.json").write_text(json.dumps(given), "utf-8")
    temporary = here / "temporary"
    temporary.mkdir()
    command = [str(ANSIBLE_PLAYBOOK), f"virtpools.kubevirt.{playbook}", "-e", "@variables.json", *arguments]
    with (here / "stdout").open("wb") as stdout, (here / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=here,
            env={**_environment(), "KUBECONFIG": str(kubeconfig), "TMPDIR": str(temporary), MARKER: mark},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    return RunningPlaybook(process, mark, folder)


def run(
    playbook: str,
    kubeconfig: Path,
    pools: Sequence[Mapping[str, Any]] | None = None,
    *arguments: str,
    timeout: float = 900,
    **variables: Any,
) -> Run:
    """Run a playbook to its end, be it success or failure; see ``start``."""
    return start(playbook, kubeconfig, pools, *arguments, **variables).wait(timeout)


def _environment() -> dict[str, str]:
    """Return the environment without the developer's settings for Ansible and clusters."""
    ours = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ANSIBLE_", "K8S_AUTH_", "PYTEST_", "PYTHONPATH"))
    }
    # The other venv has no more than it needs, and our callback is not of that.
    callback = {"ANSIBLE_COLLECTIONS_PATH": str(Path(OTHER_VENV) / "callback")} if OTHER_VENV else {}
    return {
        **ours,
        **callback,
        "ANSIBLE_CONFIG": str(CONFIG),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl",
        "ANSIBLE_NOCOLOR": "1",
        # A proxy that the environment names cannot reach this machine's loopback.
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
