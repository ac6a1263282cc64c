# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what follows from the option table, plugins/module_utils/option_table, and from the modules. Usage: options.py

These are the roles' defaults and argument specs, the options in the documentation of modules, the surveys of the role
awx, the reference in docs/variables.md, the lists of modules in meta/runtime.yml, and the actions of modules. A unit test
reports which of them are out of date.
"""

from __future__ import annotations

import json
import re
import sys
import typing as t
from pathlib import Path

import yaml

from ansible_collections.virtpools.kubevirt.plugins.module_utils import option_table
from ansible_collections.virtpools.kubevirt.plugins.module_utils.option_table.option import Option
from ansible_collections.virtpools.kubevirt.plugins.module_utils.option_table.surveys import (
    PLAYBOOKS,
    WORKFLOWS,
    Question,
    roles_of,
)

ROOT = Path(__file__).parents[1]
VARIABLES = "docs/variables.md"
RUNTIME = "meta/runtime.yml"
SURVEYS = "roles/awx/vars/main/surveys.yml"
BEGIN, END = "<!-- variables: begin -->", "<!-- variables: end -->"

_LINE = 130
"""PyYAML breaks a line after the word that reaches so far."""
_EMPTY_IS_REFUSED = {"int": "An integer.", "bool": "A boolean.", "dict": "A dictionary.", "list": "A list."}
"""Types that an empty string or null is not of, with the words that say so in their place."""
_MARKUP = r"\b(?:RV|V|C|E|M|P)\(((?:[^()]|\([^()]*\))*)\)"
_HEADER = """# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""
_LICENSE = f"---\n{_HEADER}\n"
_RUNTIME = f"""{_LICENSE}# Written by make options, from the option table and the documentation fragments that modules name.
requires_ansible: ">=2.16.0"

# "all" is for users: authentication. The others are for our roles: those of documentation fragments, and those of one
# module each, for options that only some modules have. module_defaults of one group replace each other, so roles must not
# set "all"; those of several groups add up.
action_groups:
{{groups}}"""
_ACTION = f'''{_HEADER}"""Action {{module}}: runs the module of this name in Ansible's worker, which inherits it. Made by make options."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.modules import {{module}}
from ansible_collections.virtpools.kubevirt.plugins.plugin_utils.in_worker import ActionModule

__all__ = ("ActionModule", "{{module}}")
'''
_DEFAULTS = f"""{_LICENSE}# Made by make options. meta/argument_specs.yml describes every variable. One that is "" or null is treated as not given.
"""
_SURVEYS = f"""{_LICENSE}# Made by make options: what AWX asks before it starts a job, by playbook, and what it asks before a workflow.
"""
_BOOLEANS = ("true", "false")
"""A survey knows no booleans."""


class _Dumper(yaml.SafeDumper):
    """Lists are indented as everywhere in this collection, and nothing is an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        return super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _yaml(content: object, indent: int) -> str:
    dumped: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_LINE - indent)
    return "".join(f"{' ' * indent}{line}" if line.strip() else line for line in dumped.splitlines(keepends=True))


def _entry(paragraphs: t.Sequence[str], argument: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {"description": list(paragraphs) if len(paragraphs) > 1 else paragraphs[0], **argument}


def _of_module(name: str) -> dict[str, t.Any]:
    """What the table says in the documentation of a module or fragment."""
    options = [option.of_module(name) for option in option_table.TABLE if name in option.modules]
    return {option.name: _entry(option.paragraphs, option.argument) for option in options}


def _of_role(role: str) -> dict[str, t.Any]:
    """A role's argument spec. Ansible checks it before the role runs, and must let empty values pass.

    So ``raw`` stands for types that an empty string or null is not of. The role's first task, role_options, checks these.
    """
    options = option_table.of_role(role)
    variables = {option.name: option.variable for option in option_table.TABLE if option.roles}
    here = {option.name for option in options}

    def reference(found: re.Match[str]) -> str:
        name, value = found.groups()
        return f"{'O' if name in here else 'C'}({variables[name]}{value})"

    entries = {}
    for option in options:
        argument = option.argument
        paragraphs = option.paragraphs
        if option.type in _EMPTY_IS_REFUSED:
            argument["type"] = "raw"
            argument.pop("elements", None)
            paragraphs = [f"{paragraphs[0]} {_EMPTY_IS_REFUSED[option.type]}", *paragraphs[1:]]
        if option.choices:
            argument["choices"] = [*option.choices, ""]
        paragraphs = [re.sub(r"O\((\w+)([^)]*)\)", reference, paragraph) for paragraph in paragraphs]
        entries[option.variable] = _entry(paragraphs, argument)
    return entries


def _section(text: str, opening: str, indent: int, content: str) -> str:
    """``text`` with other lines below the line that matches ``opening``, as far as they are indented by ``indent``."""
    found = re.search(rf"^{opening}\n((?: {{{indent}}}.*\n|\n)*)", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"There is no line {opening!r}.")
    return text[: found.start(1)] + content + text[found.end(1) :]


def _fragment(name: str, text: str) -> str:
    return _section(text, "options:", 2, _yaml(_of_module(name), 2))


def _module(name: str, text: str) -> str:
    """The documentation with the entries that the table has; those of the module alone stay as they are."""
    opening = re.escape('DOCUMENTATION = r"""\n')
    found = re.search(rf'{opening}.*?"""', text, re.DOTALL)
    entries = _of_module(name)
    if found is None or not entries:
        return text
    documentation = found[0]
    options = re.search(r"^options:\n((?: {2}.*\n)*)", documentation, re.MULTILINE)
    lines = options[1] if options else ""
    for option, entry in entries.items():
        block = _yaml({option: entry}, 2)
        if re.search(rf"^  {option}:$", lines, re.MULTILINE):
            lines = _section(lines, f"  {option}:", 4, block.partition("\n")[2])
        else:
            lines += block
    if options is None:
        raise ValueError(f"The documentation of {name} has no options yet; write options: there.")
    return text.replace(documentation, documentation[: options.start(1)] + lines + documentation[options.end(1) :])


def _defaults(role: str) -> str:
    values = {
        option.variable: "" if option.default is None else option.default
        for option in option_table.of_role(role)
        if not option.required
    }
    # Double quotes for what is empty, as elsewhere.
    return _DEFAULTS + _yaml(values, 0).replace("''", '""')


def _specs(role: str, text: str) -> str:
    return _section(text, r"    options:(?: &options)?", 6, _yaml(_of_role(role), 6).replace("''\n", '""\n'))


def _asked(survey: str) -> t.Iterator[tuple[Option, Question]]:
    """What a survey asks: first what it must know, then all else in the order of the table."""
    roles = roles_of(survey)
    found = []
    for option in option_table.TABLE:
        if option.question and survey in option.question.surveys:
            role = next(role for role in reversed(roles) if role in option.roles)
            found.append((option.of_role(role), option.question))
    yield from sorted(found, key=lambda each: not each[0].required)


def _question(option: Option, question: Question) -> dict[str, t.Any]:
    """A question as AWX wants it.

    A text without a default has none, not even an empty one: AWX would send it, and hide the inventory's variable.
    """
    choices = _BOOLEANS if option.type == "bool" else option.choices
    kind = question.type or ("multiplechoice" if choices else {"int": "integer"}.get(option.type, "text"))
    limits = {"min": option.minimum if option.is_number else question.shortest, "max": question.highest}
    default = json.dumps(option.default).strip('"') if kind != "integer" else option.default
    empty = "" if option.default in (None, [], {}) else f" Left open: as the inventory says, or else {default}."
    return {
        "question_name": question.text,
        "question_description": _plain(" ".join(option.paragraphs)) + empty,
        "variable": option.variable,
        "type": kind,
        "required": option.required,
        **({"choices": list(choices)} if choices else limits),
        **({} if kind.startswith("text") else {"default": ""}),
    }


def _surveys() -> str:
    surveys = {
        survey: {
            "name": survey,
            "description": f"Questions of {survey}. docs/variables.md describes all variables.",
            "spec": [_question(option, question) for option, question in _asked(survey)],
        }
        for survey in (*PLAYBOOKS, *WORKFLOWS)
    }
    return _SURVEYS + _yaml({"__awx_surveys": surveys}, 0).replace("''\n", '""\n')


def _plain(text: str) -> str:
    """Ansible's markup as plain words."""
    variables = {option.name: option.variable for option in option_table.TABLE if option.roles}
    text = re.sub(r"O\((\w+)([^)]*)\)", lambda found: f"{variables.get(found[1], found[1])}{found[2]}", text)
    return re.sub(_MARKUP, r"\1", text)


def _markdown(text: str) -> str:
    """Ansible's markup as Markdown."""

    def variable(found: re.Match[str]) -> str:
        option = next((option for option in option_table.TABLE if option.name == found[1] and option.roles), None)
        return f"`{option.variable if option else found[1]}{found[2]}`"

    text = re.sub(r"O\((\w+)([^)]*)\)", variable, text)
    text = re.sub(r"C\(docs/([\w-]+\.md)\)", r"[\1](\1)", text)
    return re.sub(_MARKUP, r"`\1`", text)


def _entry_of_page(option: Option) -> str:
    """One variable, as the role describes it that the table names first, and what others describe differently."""
    variants = {role: option.of_role(role).paragraphs for role in option.roles}
    option = option.of_role(next(iter(option.roles)))
    kinds = {"str": "string", "int": "integer", "bool": "boolean", "raw": "any type"}
    kind = f"list of {option.elements}" if option.elements else kinds.get(option.type, option.type)
    if option.choices:
        kind = "one of " + ", ".join(f"`{choice}`" for choice in option.choices)
    default = ""
    if option.required:
        default = ", required"
    elif option.default not in (None, [], {}):
        default = ", default `{}`".format(json.dumps(option.default).strip('"'))
    roles = ", ".join(f"`{role}`" for role in option.roles)
    paragraphs = [*option.paragraphs]
    for role, described in variants.items():
        different = [paragraph for paragraph in described if paragraph not in option.paragraphs]
        paragraphs += [f"- In `{role}`: " + "\n\n  ".join(different)] if different else []
    text = "\n\n".join(map(_markdown, paragraphs))
    return f"### {option.variable}\n\n{text}\n\n*{kind[0].upper()}{kind[1:]}{default}.* Roles: {roles}.\n"


def _fragments(module: str) -> set[str]:
    """The documentation fragments of ours that a module names."""
    text = (ROOT / f"plugins/modules/{module}.py").read_text("utf-8")
    found = re.search(r'^DOCUMENTATION = r"""\n(.*?)"""', text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"The module {module} has no documentation.")
    return set(yaml.safe_load(found[1])["extends_documentation_fragment"])


def _modules() -> list[str]:
    return sorted(file.stem for file in (ROOT / "plugins/modules").glob("*.py") if file.stem != "__init__")


def _runtime() -> str:
    """The action groups."""
    modules = _modules()
    groups = {"all": modules}
    for fragment in option_table.FRAGMENTS:
        groups[fragment] = [module for module in modules if f"virtpools.kubevirt.{fragment}" in _fragments(module)]
    groups |= {module: [module] for option in option_table.TABLE for module in option.modules if module in modules}
    return _RUNTIME.format(groups=_yaml(groups, 2))


def _page() -> str:
    return "\n" + "\n".join(_entry_of_page(option) for option in option_table.TABLE if option.roles) + "\n"


def _reference(text: str) -> str:
    before, _begin, rest = text.partition(f"{BEGIN}\n")
    _old, _end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_page()}{END}{after}"


def files() -> dict[str, str]:
    """What every file that follows from the table should hold, by path."""
    texts: dict[str, str] = {}

    def add(path: str, change: t.Callable[[str], str]) -> None:
        texts[path] = change((ROOT / path).read_text("utf-8"))

    for fragment in option_table.FRAGMENTS:
        add(f"plugins/doc_fragments/{fragment}.py", lambda text, name=fragment: _fragment(name, text))  # type: ignore[misc]
    for name in sorted({name for option in option_table.TABLE for name in option.modules} - {*option_table.FRAGMENTS}):
        add(f"plugins/modules/{name}.py", lambda text, name=name: _module(name, text))  # type: ignore[misc]
    for role in sorted({role for option in option_table.TABLE for role in option.roles}):
        texts[f"roles/{role}/defaults/main.yml"] = _defaults(role)
        add(f"roles/{role}/meta/argument_specs.yml", lambda text, role=role: _specs(role, text))  # type: ignore[misc]
    texts[SURVEYS] = _surveys()
    texts[RUNTIME] = _runtime()
    texts |= {f"plugins/action/{module}.py": _ACTION.format(module=module) for module in _modules()}
    add(VARIABLES, _reference)
    return texts


def outdated() -> dict[str, str]:
    """The files that differ from what they should hold, with that."""
    return {
        path: text
        for path, text in files().items()
        if not (ROOT / path).exists() or (ROOT / path).read_text("utf-8") != text
    }


def main() -> int:
    for path, text in outdated().items():
        (ROOT / path).write_text(text, "utf-8")
        print(f"options.py wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
