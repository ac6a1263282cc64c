# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where tests are: those in tests/unit/plugins mirror plugins/, in both directions; all others have a folder by subject."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"
MIRROR = ROOT / "tests/unit/plugins"
LONGEST_NAME = 60

NOT_MIRRORED = {
    "doc_fragments": "only texts: sanity checks them, and test_option_table.py compares them with the table",
    "module_utils/option_table": "only the table: test_option_table.py has what follows from it",
}
"""Folders whose files need no test of their own, and why. A file may have one all the same."""

TESTED_ELSEWHERE = {
    "action/awx_objects.py": "plugin_utils/test_awx_objects.py",
    "module_utils/cluster/nodes/node_handover.py": "module_utils/cluster/nodes/test_handover.py",
    "module_utils/cluster/writing/alerts.py": "../runs/test_alerts.py",
    "module_utils/cluster/writing/guard.py": "../runs/test_guard.py",
    "module_utils/cluster/writing/operator_pools.py": "modules/test_operator_pools.py",
    "module_utils/cluster/plans/planner.py": "modules/test_plan_info.py",
    "module_utils/cluster/writing/parts.py": "modules/test_run_part.py",
    "module_utils/core/base/parts.py": "module_utils/core/planning/test_run_parts.py",
    "module_utils/core/modes/mode.py": "module_utils/core/modes/test_choice.py",
    "module_utils/core/operator_mode/mode.py": "module_utils/core/modes/test_choice.py",
    "module_utils/core/operator_mode/plan_text.py": "../runs/test_operator_mode.py",
    "module_utils/core/planning/proposal.py": "module_utils/core/planning/test_approval.py",
    "module_utils/core/planning/request.py": "module_utils/core/planning/test_approval.py",
    "module_utils/core/reports/plan_result.py": "modules/test_plan_info.py",
    "module_utils/core/operator_mode/plan.py": "modules/test_operator_pools.py",
    "module_utils/core/operator_mode/state.py": "../runs/test_operator_mode.py",
    "module_utils/core/operator_mode/view.py": "../runs/test_operator_mode.py",
    "module_utils/core/reports/page_style.py": "module_utils/core/reports/test_page.py",
    "module_utils/module_base.py": "modules/test_cluster_info.py",
    "plugin_utils/lost_cluster.py": "action/test_role_options.py",
}
"""Files whose behaviour shows only in a module or a run on the cluster in memory, and the test that has it."""

TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def sources():
    files = [file.relative_to(PLUGINS) for file in sorted(PLUGINS.rglob("*.py")) if file.name != "__init__.py"]
    return [file for file in files if not is_action_of_a_module(file)]


def is_action_of_a_module(file):
    """Whether make options makes it: test_option_table.py compares it with what that would make."""
    return file.parent == Path("action") and (PLUGINS / "modules" / file.name).exists()


def mirror_of(source):
    return MIRROR / source.parent / f"test_{source.name}"


def functions(file):
    return [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]


def imports(file):
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_every_file_of_plugins_has_its_test():
    lacking = [
        str(source)
        for source in sources()
        if not mirror_of(source).exists()
        and str(source) not in TESTED_ELSEWHERE
        and not any(str(folder) in NOT_MIRRORED for folder in source.parents)
    ]
    assert lacking == []


def test_every_test_in_the_mirror_has_its_file():
    assert sorted(set(MIRROR.rglob("test_*.py")) - {mirror_of(source) for source in sources()}) == []


@pytest.mark.parametrize(("source", "test"), TESTED_ELSEWHERE.items())
def test_every_exception_is_needed_and_names_a_test(source, test):
    assert (PLUGINS / source).exists()
    assert not mirror_of(Path(source)).exists()
    assert (MIRROR / test).exists()


@pytest.mark.parametrize("folder", NOT_MIRRORED)
def test_every_folder_without_a_mirror_exists(folder):
    assert (PLUGINS / folder).is_dir()


def test_no_test_imports_from_another_test():
    found = [(file.name, name) for file in TESTS for name in imports(file) if ".test_" in f".{name}"]
    assert found == []


def test_names_of_tests_are_short():
    names = [function.name for file in TESTS for function in functions(file) if function.name.startswith("test_")]
    assert [name for name in names if len(name) > LONGEST_NAME] == []


@pytest.mark.parametrize("folder", ["tests/control_plane", "tests/unit/plugins"])
def test_tests_are_in_folders_by_subject(folder):
    assert list((ROOT / folder).glob("test_*.py")) == []
