# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect what the HTML site is made of. Usage: sources.py REPOSITORY DESTINATION

The Markdown pages keep their places, so that the links between them hold. Playbooks get a page here, because antsibull-docs
has none for them.
"""

from __future__ import annotations

import shutil
import sys
import typing as t
from pathlib import Path

import yaml

PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/*.md",
    "docs/*.md",
    "docs/*.svg",
    "docs/design/*.md",
    "testbed/README.md",
    "testbed/agent/README.md",
)
PLAYBOOKS_PAGE = "reference/playbooks.md"
PLAYBOOKS_INTRODUCTION = """# Playbooks

Run one with `ansible-playbook virtpools.kubevirt.<name>`. The argument specification of its roles documents its variables.

| playbook | first play | roles |
|---|---|---|
"""


def documented(repository: Path, role: str, entry_point: str) -> bool:
    """Say whether a role of this collection has an argument specification of an entry point: tasks without one are private."""
    specifications = repository / "roles" / role.rpartition(".")[2] / "meta/argument_specs.yml"
    return entry_point in yaml.safe_load(specifications.read_text("utf-8"))["argument_specs"]


def roles_of(tasks: list[dict[str, t.Any]]) -> t.Iterator[tuple[str, str]]:
    """Yield the roles that tasks use, each with its entry point."""
    for task in tasks:
        for action, arguments in task.items():
            if action.rpartition(".")[2] in ("import_role", "include_role"):
                yield arguments["name"], arguments.get("tasks_from", "main")
            elif action in ("block", "rescue", "always"):
                yield from roles_of(arguments)


def role_link(role: str, entry_point: str) -> str:
    """Return a link to a role's documentation as antsibull-docs labels it."""
    shown = role.rpartition(".")[2] + ("" if entry_point == "main" else f", entry point {entry_point}")
    return f"[{shown}](#ansible_collections.{role}_role__entrypoint-{entry_point})"


def playbooks_page(repository: Path) -> str:
    """Return the page of all playbooks, without those that only others import."""
    files = sorted((repository / "playbooks").glob("*.yml"))
    playbooks = {file.name: yaml.safe_load(file.read_text("utf-8")) for file in files}
    imported = {play.get("ansible.builtin.import_playbook") for plays in playbooks.values() for play in plays}
    rows = []
    for name in playbooks.keys() - imported:
        plays = [play for play in playbooks[name] if "hosts" in play]
        roles = dict.fromkeys(role for play in plays for role in roles_of(play.get("tasks", [])))
        links = "<br>".join(role_link(*role) for role in roles if documented(repository, *role))
        rows.append(f"| `{name.removesuffix('.yml')}` | {plays[0]['name']} | {links} |\n")
    return PLAYBOOKS_INTRODUCTION + "".join(sorted(rows))


def main() -> None:
    repository, destination = map(Path, sys.argv[1:])
    shutil.rmtree(destination, ignore_errors=True)
    for pattern in PAGES:
        for file in repository.glob(pattern):
            copy = destination / file.relative_to(repository)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
    # Ansible's page that antsibull-docs refers to from modules that have an action.
    architecture = destination / "docs/architecture.md"
    explained = "### Where modules run"
    text = architecture.read_text("utf-8").replace(explained, f"(action_plugins)=\n{explained}")
    architecture.write_text(text, "utf-8")
    # antsibull-docs adds its pages, and refuses a folder that others may write to.
    page = destination / PLAYBOOKS_PAGE
    page.parent.mkdir(mode=0o755)
    page.write_text(playbooks_page(repository), "utf-8")


if __name__ == "__main__":
    main()
