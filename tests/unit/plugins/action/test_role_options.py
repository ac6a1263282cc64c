# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What only Ansible itself gives to the action; tests/unit/test_option_table.py has the rest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BIN = Path(sys.executable).parent
TASKS = [
    {"virtpools.kubevirt.role_options": {"role": "pools"}, "register": "found"},
    {"ansible.builtin.debug": {"msg": "check_mode is {{ found.check_mode }}"}},
]


@pytest.mark.parametrize(
    ("keywords", "arguments", "expected"),
    [
        ({}, [], False),
        ({"check_mode": True}, [], True),
        ({}, ["--check"], True),
        ({"check_mode": False}, ["--check"], False),
    ],
    ids=str,
)
def test_check_mode_is_that_of_the_task(tmp_path, keywords, arguments, expected):
    play = {"hosts": "localhost", "gather_facts": False, "tasks": TASKS, **keywords}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    command = [str(BIN / "ansible-playbook"), "play.yml", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=True)
    assert f"check_mode is {expected}" in done.stdout


ALL = "group/virtpools.kubevirt.all"
LOST = [
    (
        {"virtpools_kubeconfig": "a"},
        {},
        f"virtpools_kubeconfig is set, but .* module_defaults: {{{ALL}: {{kubeconfig: ",
    ),
    (
        {"virtpools_kubeconfig": "a", "virtpools_context": "b"},
        {ALL: {"kubeconfig": "a"}},
        "virtpools_context is set, but",
    ),
    (
        {},
        {"group/virtpools.kubevirt.kubevirt": {"host": "a"}},
        r"group/virtpools\.kubevirt\.kubevirt have host, which roles replace",
    ),
]
"""Variables and module_defaults of a play, and what the role says."""
KEPT = [
    ({"virtpools_kubeconfig": "a", "virtpools_context": ""}, {ALL: {"kubeconfig": "a"}}),
    ({"virtpools_context": "{{ '' }}"}, {ALL: {"host": "a"}}),
]


def test_a_cluster_that_modules_would_not_get(tmp_path):
    """They would change the cluster of the environment."""

    def play(variables, defaults):
        block = {"block": TASKS[:1], "module_defaults": {"group/virtpools.kubevirt.run": "{{ {} }}"}}
        of_play = {"vars": variables, "module_defaults": defaults, "ignore_errors": True}
        return {"hosts": "localhost", "gather_facts": False, "tasks": [block], **of_play}

    plays = [play(variables, defaults) for variables, defaults, *_said in (*LOST, *KEPT)]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    command = [str(BIN / "ansible-playbook"), "play.yml"]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=True)
    refused = re.findall(r"^fatal: .*", done.stdout, re.MULTILINE)
    assert len(refused) == len(LOST)
    for line, (*_given, said) in zip(refused, LOST, strict=True):
        assert re.search(said, line.replace('\\"', '"')), line


def test_what_is_refused_before_a_run_begins(tmp_path):
    """A gate's file is looked for after the first wave. Within a run, names are not checked: gates may have set variables."""
    (tmp_path / "gate.yml").write_text("[]")
    of_run = {"virtpools.kubevirt.role_options": {"role": "pools", "override": {"mode": "auto"}}}
    mine = {"virtpools_mine": 1}
    gates = {"virtpools_gates": f"{tmp_path}/gate.yml,gate.yml,{tmp_path}/none.yml"}
    fine = {"virtpools_gates": f"{tmp_path}/gate.yml"}
    tasks = [{**of_run, "vars": mine}, *({**TASKS[0], "vars": given} for given in (mine, gates, fine))]
    play = {"hosts": "localhost", "gather_facts": False, "ignore_errors": True, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    command = [str(BIN / "ansible-playbook"), "play.yml"]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=True)
    of_name, of_gates = re.findall(r"^fatal: .*", done.stdout, re.MULTILINE)
    assert "There is no variable virtpools_mine" in of_name
    assert re.findall(r"virtpools_gates has (\S+),", of_gates) == ["gate.yml", f"{tmp_path}/none.yml"]
