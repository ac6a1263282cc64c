# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Modules run in Ansible's worker process, or in one of their own where another Python is named, and say the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import playbooks
from local_cluster import Fleet, Nodes
from playbooks import Account, Run
from scenario import pool

OTHER_PYTHON = Path(sys.executable).with_name("python{}.{}".format(*sys.version_info))


@pytest.fixture(scope="module")
def reader(start_cluster: Any) -> Account:
    fleet = Fleet.from_groups(Nodes(name="gpu", labels={"accelerator": "gpu"}), Nodes(name="plain"))
    return Account.make(start_cluster(fleet), "reader")


def plan(reader: Account, image: str, tmp_path: Path, **variables: Any) -> tuple[Run, bool]:
    """Run the playbook plan, and return whether a module had a process of its own: its archive needs a folder."""
    folder = tmp_path / "ansible"
    pools = [pool("gpu", "gpu", virtHandlerImage=image)]
    run = playbooks.run("plan", reader.kubeconfig, pools, ansible_remote_tmp=str(folder), **variables)
    return run, folder.exists()


def said(run: Run) -> list[Any]:
    """Return what the modules said, without the time of day."""
    results = [(task.name, task.status, task.result) for task in run.tasks if task.action.startswith("virtpools.")]
    for _, _, result in results:
        for each in result.get("progress", ()):
            each.pop("since")
    return results


@pytest.mark.parametrize(
    "image",
    [
        "registry.example/virt-handler:v1.9.0",
        # Between a plan that can be carried out and a module that fails.
        pytest.param("registry.example/virt-handler:v1.8.0", marks=pytest.mark.thorough),
        "",
    ],
)
def test_both_ways_say_the_same(reader: Account, tmp_path: Path, image: str) -> None:
    """Plans with and without errors, and a module that fails. No file with a certificate or a key stays."""
    here, own_process = plan(reader, image, tmp_path)
    assert not own_process
    there, own_process = plan(reader, image, tmp_path, ansible_python_interpreter=str(OTHER_PYTHON))
    assert own_process
    assert here.rc == there.rc
    assert said(here) == said(there)
    assert not here.left_behind
    assert not there.left_behind


@pytest.mark.parametrize(
    "variables",
    [
        # The test before has another Python that is there.
        pytest.param({"ansible_python_interpreter": "/nowhere/python"}, marks=pytest.mark.thorough),
        {"ansible_become": True, "ansible_become_user": "nobody", "ansible_become_exe": "/nowhere/sudo"},
    ],
)
def test_what_the_user_asks_of_ansible_counts(reader: Account, tmp_path: Path, variables: dict[str, Any]) -> None:
    run, _ = plan(reader, "registry.example/virt-handler:v1.9.0", tmp_path, **variables)
    assert run.rc != 0
    assert "/nowhere/" in run.stdout + run.stderr
