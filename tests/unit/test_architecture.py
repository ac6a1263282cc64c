# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders of module_utils: each imports only those above it, says what lives in it, and is on the page for contributors."""

from __future__ import annotations

import ast
import re
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_UTILS = ROOT / "plugins/module_utils"
COLLECTION = "ansible_collections.virtpools.kubevirt.plugins.module_utils"

ROOMS = {
    "core": (
        "base",
        "pools",
        "observed",
        "kubevirt",
        "vms",
        "admission",
        "monitoring",
        "planning",
        "checks",
        "operator_mode",
        "modes",
        "reports",
    ),
    "cluster": ("api", "reading", "writing", "nodes", "plans"),
}
ORDER = [f"{package}.{room}" for package, rooms in ROOMS.items() for room in rooms]
"""From the top down."""


def module_name(file: Path, top: Path) -> str:
    return ".".join(file.relative_to(top).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, module: str) -> t.Iterator[tuple[int, str]]:
    """The modules of ours that a module imports, at any depth of its code, with their lines."""
    for found in ast.walk(ast.parse(source)):
        if isinstance(found, ast.Import):
            yield from ((found.lineno, alias.name) for alias in found.names)
        elif isinstance(found, ast.ImportFrom):
            above = module.split(".")[: -found.level] if found.level else []
            yield from (
                (found.lineno, ".".join([*above, *filter(None, [found.module]), alias.name])) for alias in found.names
            )


def room_of(module: str) -> str | None:
    return next((room for room in ORDER if f"{module}.".startswith(f"{room}.")), None)


def violations(source: str, module: str) -> list[str]:
    """What a module imports although it stands below it, or is no relative import."""
    found = []
    for line, imported in imports(source, module):
        if imported.startswith("ansible_collections.virtpools"):
            found.append(f"{module}:{line} imports {imported} absolutely")
        theirs, ours = room_of(imported), room_of(module)
        if theirs is not None and ours is not None and ORDER.index(theirs) > ORDER.index(ours):
            found.append(f"{module}:{line} imports {imported}, but {theirs} stands below {ours}")
    return found


def test_no_folder_imports_one_below_it():
    files = sorted(MODULE_UTILS.rglob("*.py"))
    assert len(files) > 80
    found = [each for file in files for each in violations(file.read_text("utf-8"), module_name(file, MODULE_UTILS))]
    assert found == []


def test_real_imports_are_seen():
    seen = {
        (room_of(module_name(file, MODULE_UTILS)), room_of(imported))
        for file in MODULE_UTILS.rglob("*.py")
        for _line, imported in imports(file.read_text("utf-8"), module_name(file, MODULE_UTILS))
    }
    assert {
        ("core.reports", "core.checks"),
        ("core.planning", "core.admission"),
        ("cluster.nodes", "core.planning"),
    } <= seen


@pytest.mark.parametrize(
    "planted",
    [
        "from ..reports import terminal",
        "from ..reports.terminal import plan_lines",
        "from ..checks.state import examine as _examine",
        "def later():\n    from ...cluster.api import lease",
        "if t.TYPE_CHECKING:\n    from ..checks import state",
        f"import {COLLECTION}.core.base.names",
        f"from {COLLECTION}.core.base import names",
    ],
)
def test_a_violation_is_found(planted):
    source = (MODULE_UTILS / "core/planning/plan.py").read_text("utf-8")
    assert violations(source, "core.planning.plan") == []
    assert len(violations(f"{source}\n{planted}\n", "core.planning.plan")) == 1


@pytest.mark.parametrize("package", ROOMS)
def test_every_folder_is_a_room_and_says_what_lives_there(package):
    folders = sorted(file.parent.name for file in (MODULE_UTILS / package).glob("*/__init__.py"))
    assert folders == sorted(ROOMS[package])
    assert [file.name for file in (MODULE_UTILS / package).glob("*.py")] == ["__init__.py"]
    for folder in folders:
        said = ast.get_docstring(ast.parse((MODULE_UTILS / package / folder / "__init__.py").read_text("utf-8")))
        assert said is not None
        assert 1 <= len(said.splitlines()) <= 3


@pytest.mark.parametrize("package", ROOMS)
def test_the_page_lists_the_rooms_in_order_and_every_file_once(package):
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| ((?:`\w+`(?:, )?)+) \|$", page, re.MULTILINE))
    assert [room for room in rows if room in ROOMS[package]] == list(ROOMS[package])
    assert set(rows) == {room for rooms in ROOMS.values() for room in rooms}
    for room in ROOMS[package]:
        named = re.findall(r"`(\w+)`", rows[room])
        there = {file.stem for file in (MODULE_UTILS / package / room).glob("*.py")} - {"__init__"}
        assert sorted(named) == sorted(there)


def public_types(source: str) -> list[str]:
    """The names of the classes and type aliases of a module, without private ones."""
    found = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ClassDef):
            found.append(statement.name)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.append(statement.target.id)
        elif isinstance(statement, ast.Assign):
            found += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [name for name in found if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)]


def shared_names(sources: t.Mapping[str, str]) -> dict[str, list[str]]:
    """Names of types that several modules declare, with these modules."""
    by_name: dict[str, list[str]] = {}
    for module, source in sources.items():
        for name in public_types(source):
            by_name.setdefault(name, []).append(module)
    return {name: modules for name, modules in by_name.items() if len(modules) > 1}


def test_no_two_types_share_a_name():
    sources = {module_name(file, MODULE_UTILS): file.read_text("utf-8") for file in sorted(MODULE_UTILS.rglob("*.py"))}
    assert {"Pool", "Snapshot", "KubeObject", "HandoverResult"} <= {
        name for source in sources.values() for name in public_types(source)
    }
    assert shared_names(sources) == {}


@pytest.mark.parametrize(
    "planted", ["class Pool:\n    pass", "Pool = t.Mapping[str, int]", 'Pool: t.TypeAlias = "dict[str, int]"']
)
def test_a_shared_name_is_found(planted):
    sources = {"model": "class Pool:\n    pass", "other": planted}
    assert shared_names(sources) == {"Pool": ["model", "other"]}
    assert (
        shared_names({"model": "class Pool:\n    pass", "other": "POOL = 1\n_Pool = 2\nclass Pools:\n    pass"}) == {}
    )
