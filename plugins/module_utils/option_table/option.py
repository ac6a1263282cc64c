# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""What the table holds for one option."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from .surveys import Question

Variants = t.Mapping[str, t.Mapping[str, t.Any]]
"""Fields that differ in some places, such as the text: by the name of the role or module, then of the field."""

NUMBERS = ("int", "float")
"""The types of numbers."""


@dataclass(frozen=True)
class Option:
    """One option that users set."""

    name: str
    type: str
    text: str
    """Its description in Ansible's markup, with empty lines between paragraphs. ``O(name)`` is another option."""
    roles: tuple[str, ...] = ()
    """The roles that have it as a variable. docs/variables.md describes it as the first one has it, and what differs in others."""
    role_variants: Variants = field(default_factory=dict)
    internal_roles: tuple[str, ...] = ()
    """The roles to which only other roles of ours give it, as an override. They have no variable for it."""
    modules: tuple[str, ...] = ()
    """The modules, or documentation fragments, that have it as an option of this name."""
    module_variants: Variants = field(default_factory=dict)
    default: t.Any = None
    choices: tuple[str, ...] = ()
    minimum: int = 0
    """The lowest number, if it is one."""
    elements: str | None = None
    required: bool = False
    variable_name: str = ""
    """The variable's name, if it is not ``virtpools_`` with the option's name."""
    written: t.Literal["", "items", "yaml"] = ""
    """How a role reads text: as items, one per line, separated by commas or in brackets (every list is read so), or as YAML."""
    question: Question | None = None
    """How surveys of AWX ask for it. Without it, none does."""
    secret: bool = False
    """Whether its value must not be shown. role_options then checks it, but does not return it."""

    def of_role(self, role: str) -> Option:
        """The option as this role has it."""
        return replace(self, **self.role_variants.get(role, {}))

    def of_module(self, module: str) -> Option:
        """The option as this module, or documentation fragment, has it."""
        return replace(self, **self.module_variants.get(module, {}))

    @property
    def is_number(self) -> bool:
        return self.type in NUMBERS

    @property
    def variable(self) -> str:
        """The variable of roles."""
        return self.variable_name or f"virtpools_{self.name}"

    @property
    def paragraphs(self) -> list[str]:
        """Its description."""
        return [" ".join(paragraph.split()) for paragraph in self.text.split("\n\n")]

    @property
    def argument(self) -> dict[str, t.Any]:
        """Its entry in an argument spec."""
        return {
            "type": self.type,
            **({"elements": self.elements} if self.elements else {}),
            **({"choices": list(self.choices)} if self.choices else {}),
            **({"required": True} if self.required else {}),
            **({"default": self.default} if self.default is not None else {}),
        }
