# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the keywords of a user's own play do to our roles, with ansible-playbook itself, against a cluster in memory."""

from __future__ import annotations

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
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World
from ansible_collections.virtpools.kubevirt.tests.unit.support.served import serving

ANSIBLE_PLAYBOOK = shutil.which("ansible-playbook", path=Path(sys.executable).parent)
POOLS = [{"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": builders.GPU_IMAGE}]
OTHER_PLAN = "-".join(["0" * 12] * 5)

pytestmark = pytest.mark.skipif(ANSIBLE_PLAYBOOK is None, reason="ansible-test's environments have no ansible-playbook")


@pytest.fixture
def world():
    sets, node = [builders.primary(desired=1)], builders.node("n1", labels={"hw": "gpu"})
    return World(builders.excluding_kubevirt(), *sets, node, *builders.handlers_of([node], sets))


def fatal(folder, world, *tasks, **keywords):
    """The failures of a play with these keywords."""
    variables = {"ansible_python_interpreter": sys.executable, "virtpools_pools": POOLS, "virtpools_guard": False}
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks, **keywords}
    (folder / "play.yml").write_text(json.dumps([play]), "utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "K8S_", "KUBE"))}
    with serving(world) as url:
        env = {**kept, "K8S_AUTH_HOST": url, "K8S_AUTH_API_KEY": "x", "ANSIBLE_NOCOLOR": "1", "NO_PROXY": "127.0.0.1"}
        command = [ANSIBLE_PLAYBOOK, "play.yml"]
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
def test_a_refused_run_ends_where_errors_are_ignored(tmp_path, world, role, options, told):
    """A run that goes on after an error would carry out a plan that is not approved, or begin the next batch after a failed one."""
    variables = {f"virtpools_{name}": value for name, value in options.items()}
    imported = {"ansible.builtin.import_role": {"name": f"virtpools.kubevirt.{role}"}, "vars": variables}
    (only,) = fatal(tmp_path, world, imported, ignore_errors=True)
    assert told in only
    assert [each["metadata"]["name"] for each in world.all(kinds.DAEMON_SET)] == ["virt-handler"]
