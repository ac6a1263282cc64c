# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for the tasks of all roles."""

from __future__ import annotations

from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

FILES = sorted((Path(__file__).parents[3] / "roles").glob("*/tasks/*.yml"))


def tasks_of(tasks):
    """The tasks, with those in their blocks."""
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part, ()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: "-".join(file.parts[-3::2]))
def test_a_task_that_only_looks_counts_no_change(file):
    """In check mode a module tells what it would change."""
    looking = [task for task in tasks_of(yaml.safe_load(file.read_text("utf-8"))) if task.get("check_mode") is True]
    assert [task["name"] for task in looking if task.get("changed_when") is not False] == []
