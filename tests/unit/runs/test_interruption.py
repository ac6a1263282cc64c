# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person sees who presses Ctrl-C, with ansible-playbook itself on a terminal, against a cluster in memory.

tests/control_plane/disturbances/test_interruption.py shows that the same command goes on.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour, World
from ansible_collections.virtpools.kubevirt.tests.unit.support.served import serving

IN_WORKER = importlib.util.find_spec("ansible.module_utils._internal") is not None
ANSIBLE_PLAYBOOK = shutil.which("ansible-playbook", path=Path(sys.executable).parent)
POOLS = [{"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": builders.GPU_IMAGE}]

CHECK = {"virtpools.kubevirt.role_options": {"role": "pools"}}
TAKE = {"virtpools.kubevirt.run_lease": {}, "register": "lease"}
LEASE = {"run_id": "{{ lease.run_id }}"}
RENEW = {"virtpools.kubevirt.run_lease": {**LEASE, "state": "renewed", "duration": 600}}
RELEASE = {"virtpools.kubevirt.run_lease": {**LEASE, "state": "absent"}}
HAND_OVER = {
    "virtpools.kubevirt.pool_nodes": {**LEASE, "pools": POOLS, "nodes": ["n1", "n2"], "prepull": False},
}
SLEEP = {"ansible.builtin.shell": "touch {{ playbook_dir }}/sleeps-{{ inventory_hostname }} && sleep 120"}

pytestmark = [
    pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook"),
    pytest.mark.skipif(not IN_WORKER, reason="before ansible-core 2.19 modules run in processes of their own"),
]


@pytest.fixture
def world():
    """Two nodes for the pool, the first of which does not lose its handler, and one that stays."""
    nodes = [builders.node(name, labels={"hw": "gpu"} if name != "n3" else {}) for name in ("n1", "n2", "n3")]
    sets = [builders.primary(desired=3), builders.pool_daemonset(builders.pool("gpu"), desired=0)]
    world = World(builders.excluding_kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets))
    world.behave[names.HANDLER, "n1"] = Behaviour(stop=None)
    return world


class Playbook:
    """A playbook on a pseudo-terminal."""

    def __init__(self, folder, url, tasks, *hosts):
        play = {
            "hosts": "all" if hosts else "localhost",
            "gather_facts": False,
            "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
            "tasks": tasks,
        }
        (folder / "play.yml").write_text(json.dumps([play]))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "K8S_", "KUBE"))}
        env = {**kept, "K8S_AUTH_HOST": url, "K8S_AUTH_API_KEY": "x", "ANSIBLE_NOCOLOR": "1", "NO_PROXY": "127.0.0.1"}
        self._folder, self._hosts = folder, hosts or ["localhost"]
        self._ours, theirs = pty.openpty()
        inventory = ["-i", f"{','.join(hosts)},"] if hosts else []
        command = [ANSIBLE_PLAYBOOK, "play.yml", *inventory]
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        self._process = subprocess.Popen(command, cwd=folder, env=env, start_new_session=True, **streams)
        os.close(theirs)
        self._printed = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # how Linux tells that the other side is closed
            while part := os.read(self._ours, 65536):
                self._printed += part

    @property
    def printed(self):
        return self._printed.decode().replace("\r\n", "\n")

    def sleeps(self):
        """Whether the task that sleeps has begun: while Ansible starts it, Ctrl-C may be lost."""
        return all((self._folder / f"sleeps-{host}").exists() for host in self._hosts)

    def interrupt(self, happened):
        """Press Ctrl-C once this has happened. Return what we say then; Ansible says different things, depending on the moment."""
        try:
            give_up = time.monotonic() + 900
            while not happened(self):
                assert self._process.poll() is None, self.printed
                assert time.monotonic() < give_up, self.printed
                time.sleep(0.05)
            self._process.send_signal(signal.SIGINT)
            assert self._process.wait(200) != 0, self.printed
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            os.close(self._ours)
        _before, ours, rest = self.printed.rpartition("\n[ERROR]: ")
        assert ours, self.printed
        return rest.splitlines()[1:]


@pytest.fixture
def interrupted(tmp_path, world):
    """Interrupts a playbook of these tasks."""

    def interrupted(happened, *tasks, hosts=()):
        with serving(world) as url:
            return Playbook(tmp_path, url, [CHECK, *tasks], *hosts).interrupt(happened)

    return interrupted


def test_in_a_batch_names_the_nodes_that_are_half_way(interrupted, world):
    assert interrupted(lambda book: "Node n2: primary -> gpu" in book.printed, TAKE, HAND_OVER) == [
        "The run was interrupted. Half way: n1. VMs keep running there, but may not be managed until the next run has finished this node.",
        "To go on, run the same command again. It waits for up to 30 s until this run's Lease has expired.",
    ]
    assert world.find(kinds.NODE, "n1")["metadata"]["labels"][names.OWNER_LABEL] == names.IN_TRANSIT
    assert world.all(kinds.LEASE), "without it the next run would not wait for what this one has sent last"


def test_between_modules_a_run_waits_for_the_lease(interrupted):
    """Such as in a gate of the user, before which the Lease was extended."""
    assert interrupted(Playbook.sleeps, TAKE, RENEW, SLEEP) == [
        "The run was interrupted. No node is half way.",
        "To go on, run the same command again. It waits for up to 600 s until this run's Lease has expired.",
    ]


@pytest.mark.parametrize("tasks", [[], [TAKE, RELEASE]], ids=["before", "after"])
def test_outside_a_run_nothing_is_said(interrupted, tasks):
    assert interrupted(Playbook.sleeps, *tasks, SLEEP) == []


def test_with_several_clusters_each_is_named(interrupted):
    only = {"when": "inventory_hostname == 'east'"}
    printed = interrupted(Playbook.sleeps, {**TAKE, **only}, SLEEP, hosts=("east", "west"))
    assert [line.partition(" ")[0] for line in printed] == ["[east]", "[east]"]
