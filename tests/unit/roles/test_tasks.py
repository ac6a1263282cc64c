# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for the tasks of all roles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import Play

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "roles").glob("*/tasks/*.yml"))


def tasks_of(tasks):
    """The tasks, with those in their blocks."""
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part, ()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: "-".join(file.parts[-3::2]))
def test_check_mode_is_what_role_options_found(file):
    """Ansible's variable knows of --check alone, and not of the keyword check_mode of a play or a role."""
    assert "ansible_check_mode" not in file.read_text("utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: "-".join(file.parts[-3::2]))
def test_a_task_that_only_looks_counts_no_change(file):
    """In check mode a module tells what it would change."""
    looking = [task for task in tasks_of(yaml.safe_load(file.read_text("utf-8"))) if task.get("check_mode") is True]
    assert [task["name"] for task in looking if task.get("changed_when") is not False] == []


def test_refusals_end_the_role_awx_where_a_play_ignores_errors():
    """test_in_plays.py shows this of the roles that change clusters."""
    (everything,) = yaml.safe_load((ROOT / "roles/awx/tasks/manage_objects.yml").read_text("utf-8"))
    assert everything["ignore_errors"] is False
    assert [task for task in tasks_of(everything["block"]) if "ignore_errors" in task] == []


def test_no_task_runs_once_for_all_clusters():
    """The strategy host_pinned, which docs/clusters.md recommends, warns of such a task, and runs it for each."""
    lists = [yaml.safe_load(file.read_text("utf-8")) for file in FILES]
    for file in (ROOT / "playbooks").glob("*.yml"):
        lists += [play.get("tasks", ()) for play in yaml.safe_load(file.read_text("utf-8"))]
    assert [task["name"] for tasks in lists for task in tasks_of(tasks) if "run_once" in task] == []


PUBLISHED_BY_HOST = {
    "explain": {"virtpools_explained"},
    "pools": {"virtpools_plan", "virtpools_result"},
    "upgrade": {"virtpools_plan"},
    "verify": {"virtpools_verified"},
}
COUNTS = {
    "verify": {"virtpools_vms", "virtpools_problems", "virtpools_listed", "virtpools_unhealthy_clusters"},
    "workload_update": {"virtpools_outdated_vms", "virtpools_updated_vms", "virtpools_vms_to_restart"},
}


def test_roles_publish_only_counts_and_mappings_by_host():
    """Ansible adds what several hosts publish, also two texts."""
    published = {}
    for file in FILES:
        for task in tasks_of(yaml.safe_load(file.read_text("utf-8"))):
            if "ansible.builtin.set_stats" in task:
                names = re.findall(r"(?<!_)virtpools_\w+", str(task["ansible.builtin.set_stats"]["data"]))
                published.setdefault(file.parts[-3], set()).update(names)
    assert published == {
        role: PUBLISHED_BY_HOST.get(role, set()) | COUNTS.get(role, set()) for role in PUBLISHED_BY_HOST | COUNTS
    }


def test_explain_publishes_the_answer_of_every_host():
    answers = iter(
        {"vm": "a/vm", "pool": pool, "image": f"registry.example/{pool}", "text": []} for pool in ("gpu", "arm")
    )
    play = Play(lambda _name, **_arguments: next(answers))
    for host in ("east", "west"):
        play.role("explain", inventory_hostname=host, virtpools_vm="a/vm")
    assert play.stats == {
        "virtpools_explained": {
            "east": {"vm": "a/vm", "pool": "gpu", "image": "registry.example/gpu"},
            "west": {"vm": "a/vm", "pool": "arm", "image": "registry.example/arm"},
        }
    }
