# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What meta/ says agrees with the collection. Usage: check_meta.py FOLDER

The action group names all modules, and their documentation says so: module_defaults would silently miss one. The
requirements of an execution environment are everybody's.
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
OWN_GROUP = "kubevirt"


def documented_members(modules: set[str]) -> set[str]:
    """Return the modules whose documentation says that they are members of the group."""
    if not modules:
        return set()
    command = ["ansible-doc", "--json", "--type", "module", *(f"{COLLECTION}.{module}" for module in sorted(modules))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    documentation: dict[str, t.Any] = json.loads(output)
    members = set()
    for name, content in documentation.items():
        attribute = content["doc"].get("attributes", {}).get("action_group", {})
        if f"{COLLECTION}.{GROUP}" in attribute.get("membership", []):
            members.add(name.removeprefix(f"{COLLECTION}."))
    return members


def differences(what: str, are: set[str], should_be: set[str]) -> list[str]:
    """Say what is missing from a set and what is too much in it."""
    return [f"{what} lacks {name}" for name in sorted(should_be - are)] + [
        f"{what} has {name}, which does not exist" for name in sorted(are - should_be)
    ]


def requirements(file: Path) -> set[str]:
    """Return the lines of a requirements file that are not comments."""
    return {line for line in file.read_text("utf-8").splitlines() if line and not line.startswith("#")}


def main() -> int:
    root = Path(sys.argv[1])
    modules = {file.stem for file in (root / "plugins/modules").glob("*.py") if file.stem != "__init__"}
    groups = yaml.safe_load((root / "meta/runtime.yml").read_text("utf-8"))["action_groups"]
    problems = [
        *differences(f"meta/runtime.yml: action group {GROUP}", set(groups[GROUP]), modules),
        *differences(f"meta/runtime.yml: action group {OWN_GROUP}", set(groups[OWN_GROUP]), modules),
        *differences(f"documentation of action group {GROUP}", documented_members(modules), modules),
        *differences(
            "meta/ee-requirements.txt",
            requirements(root / "meta/ee-requirements.txt"),
            requirements(root / "requirements.txt"),
        ),
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
