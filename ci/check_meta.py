# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What meta/ says agrees with the collection. Usage: check_meta.py FOLDER

An action group names all modules that take its options, and their documentation agrees: module_defaults would silently
miss one. Every module has its action, without which it is slow. An execution environment has the same requirements as
any other installation.
"""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml

COLLECTION = "virtpools.kubevirt"
GROUP = "all"
OPTION_OF_GROUP = {
    "all": "kubeconfig",
    "kubevirt": "kubevirt_namespace",
    "mode": "mode",
    "pools": "pools_from_cluster",
    "run": "lease_timeout",
}
"""The action groups, each with an option that its modules have and other modules lack."""
RUNTIME = "meta/runtime.yml (run make options)"


def documentation_of(modules: set[str]) -> dict[str, t.Any]:
    """Return the documentation of modules by their names."""
    if not modules:
        return {}
    command = ["ansible-doc", "--json", "--type", "module", *(f"{COLLECTION}.{module}" for module in sorted(modules))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name.removeprefix(f"{COLLECTION}."): each["doc"] for name, each in json.loads(output).items()}


def documented_members(documentation: dict[str, t.Any]) -> set[str]:
    """Return the modules whose documentation says that they are members of the group."""
    attributes = {name: each.get("attributes", {}).get("action_group", {}) for name, each in documentation.items()}
    return {name for name, each in attributes.items() if f"{COLLECTION}.{GROUP}" in each.get("membership", [])}


def differences(what: str, are: set[str], should_be: set[str]) -> list[str]:
    """Say what is missing from a set and what is too much in it."""
    return [f"{what} lacks {name}" for name in sorted(should_be - are)] + [
        f"{what} has {name}, which does not belong there" for name in sorted(are - should_be)
    ]


def requirements(file: Path) -> set[str]:
    """Return the lines of a requirements file that are not comments."""
    return {line for line in file.read_text("utf-8").splitlines() if line and not line.startswith("#")}


def main() -> int:
    root = Path(sys.argv[1])
    modules = {file.stem for file in (root / "plugins/modules").glob("*.py") if file.stem != "__init__"}
    runtime = yaml.safe_load((root / "meta/runtime.yml").read_text("utf-8"))
    documentation = documentation_of(modules)
    problems = [
        *differences(f"documentation of action group {GROUP}", documented_members(documentation), modules),
        *differences(
            "meta/ee-requirements.txt",
            requirements(root / "meta/ee-requirements.txt"),
            requirements(root / "requirements.txt"),
        ),
    ]
    for group, option in OPTION_OF_GROUP.items():
        with_option = {name for name, each in documentation.items() if option in each["options"]}
        problems += differences(f"{RUNTIME}: action group {group}", set(runtime["action_groups"][group]), with_option)
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
