# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the keywords of a user's own play do to our roles, with ansible-playbook itself, against a cluster in memory."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour, World
from ansible_collections.virtpools.kubevirt.tests.unit.support.served import serving

ANSIBLE_PLAYBOOK = shutil.which("ansible-playbook", path=Path(sys.executable).parent)
POOLS = [{"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": builders.GPU_IMAGE}]
OTHER_PLAN = "-".join(["0" * 12] * 5)

pytestmark = pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook")


def cluster():
    """A node for the pool, and one that stays."""
    sets, nodes = [builders.primary(desired=2)], [builders.node("n1", labels={"hw": "gpu"}), builders.node("n2")]
    return World(builders.excluding_kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets))


def fatal(folder, worlds, role, options, **keywords):
    """The failures of a play with these keywords that imports the role, with a host for each cluster."""
    options = {"pools": POOLS, "guard": False, **options}
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        **{f"virtpools_{name}": value for name, value in options.items()},
    }
    play = {
        "hosts": "all",
        "gather_facts": False,
        "module_defaults": {"group/virtpools.kubevirt.all": {"host": "{{ address }}", "api_key": "secret"}},
        "tasks": [{"ansible.builtin.import_role": {"name": f"virtpools.kubevirt.{role}"}}],
        **keywords,
    }
    (folder / "play.yml").write_text(json.dumps([play]), "utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "K8S_", "KUBE"))}
    env = {**kept, "ANSIBLE_NOCOLOR": "1", "NO_PROXY": "127.0.0.1"}
    with contextlib.ExitStack() as served:
        hosts = {name: {"address": served.enter_context(serving(world))} for name, world in worlds.items()}
        (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": variables}}), "utf-8")
        command = [ANSIBLE_PLAYBOOK, "-i", "hosts.json", "play.yml"]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=900)
    return re.findall(r"^fatal: .*", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("role", "options", "told"),
    [
        ("pools", {"expected_plan": OTHER_PLAN}, "The plan is not the approved one"),
        ("pools", {"report_html": "/none/a.html"}, "/none/a.html"),
        ("rollout", {}, "virtpools_waves is missing"),
        ("rollback", {}, "There is no earlier pool list"),
    ],
    ids=["plan", "page", "waves", "history"],
)
def test_a_refused_run_ends_where_errors_are_ignored(tmp_path, role, options, told):
    """A run that goes on would carry out a plan that is not approved, or begin the next batch after a failed one."""
    world = cluster()
    (only,) = fatal(tmp_path, {"east": world}, role, options, ignore_errors=True)
    assert told in only
    assert [each["metadata"]["name"] for each in world.all(kinds.DAEMON_SET)] == ["virt-handler"]


def test_a_time_limit_for_all_tasks_ends_no_batch(tmp_path):
    """Ansible kills the worker of such a task: the batch would end half-way, without its rollback."""
    world = cluster()
    world.behave["virt-handler-gpu", "n1"] = Behaviour(start=8)
    assert fatal(tmp_path, {"east": world}, "pools", {"prepull": False}, timeout=6) == []
    (first, _other) = world.all(kinds.NODE)
    assert first["metadata"]["labels"]["virtpools.io/pool"] == "gpu"


def test_the_failure_of_another_cluster_ends_no_rollback(tmp_path):
    """With any_errors_fatal a failure also ends the runs of other clusters, where no wave has failed."""
    worlds = {"east": cluster(), "west": cluster()}
    worlds["east"].behave["virt-handler-gpu", "n1"] = Behaviour(start=None, broken="CrashLoopBackOff")
    options = {"waves": [{"match": {"hw": "gpu"}}], "on_failure": "rollback_wave", "prepull": False, "node_timeout": 5}
    failures = fatal(tmp_path, worlds, "pools", options, any_errors_fatal=True)
    failed, rolled_back = (each for each in failures if "[east]" in each)
    assert "1 of 1 node failed" in failed
    assert "Wave 1 (hw=gpu) failed, and its nodes went back to: no pools" in rolled_back
    (ended,) = (each for each in failures if "[west]" in each)
    assert "neither a node nor a gate failed" in ended
