# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Every option that users set: as a variable of our roles, as an option of our modules, or as both.

Modules take their argument specs from here. ``make options`` writes the roles' argument specs and defaults, the options of
the documentation fragments, the documentation of the modules' options that stand here, and the reference in
docs/variables.md. An option that only one module has, and no role, stands in that module.

An option that is empty ("") or null was not given, everywhere: surveys of AWX send every question that was not answered as
an empty string. Surveys have text areas, but neither lists nor mappings, so roles take both as text, too.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..core.base.findings import InputErrors
from . import awx, cluster, limits, plans, removal, runs, updates, verify, waves
from .option import Option

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

Arguments = dict[str, dict[str, t.Any]]

FRAGMENTS = ("kubevirt", "mode", "pools", "run")
"""Documentation fragments. What they have, every module has that names them."""

TABLE: tuple[Option, ...] = (
    *cluster.OPTIONS,
    *runs.OPTIONS,
    *waves.OPTIONS,
    *plans.OPTIONS,
    *removal.OPTIONS,
    *verify.OPTIONS,
    *updates.OPTIONS,
    *awx.OPTIONS,
    *limits.OPTIONS,
)
"""All options, in the order of the page of variables and of the argument specs."""


def arguments(*modules: str) -> Arguments:
    """The argument spec of what these modules, or documentation fragments, have."""
    return {
        option.name: option.of_module(module).argument
        for module in modules
        for option in TABLE
        if module in option.modules
    }


def of_role(role: str) -> tuple[Option, ...]:
    """The options of a role, in the order of the table."""
    return tuple(option.of_role(role) for option in TABLE if role in option.roles)


def given(values: t.Mapping[str, t.Any], spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What of an argument spec was given: neither empty nor null, down to suboptions."""
    return {
        name: given(value, inner) if isinstance(value, dict) and (inner := spec.get(name, {}).get("options")) else value
        for name, value in values.items()
        if value is not None and value != ""
    }


def resolve(
    role: str, variables: t.Mapping[str, t.Any], override: t.Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    """The value of each option of a role, by the option's name: what was given, in its type, or else the default.

    :param variables: variables by name. Only those of the role count.
    :param override: values, by the options' names, that count instead of variables.
    :raises InputErrors: with everything that is wrong.
    """
    options = of_role(role)
    written = {option.variable: option for option in options if option.written or option.type == "list"}
    spec = {option.variable: option.argument for option in options}
    instead = {option.variable: override[option.name] for option in options if override and option.name in override}
    values = {**variables, **instead}
    values |= {name: _read(written[name], value) for name, value in values.items() if name in written}
    result = ArgumentSpecValidator(spec).validate(given({name: values[name] for name in spec if name in values}, spec))
    if result.error_messages:
        raise InputErrors(result.error_messages)
    return {option.name: result.validated_parameters[option.variable] for option in options}


def _read(option: Option, value: t.Any) -> t.Any:
    """What a text stands for; any other value is what it is."""
    if not isinstance(value, str):
        return value
    if option.written == "yaml":
        return _from_yaml(option.variable, value)
    items = [item.strip() for item in value.replace(",", "\n").splitlines() if item.strip()]
    # One item may be a word of its own, such as all; none was not given.
    return items if items and (option.type == "list" or len(items) > 1) else "".join(items)


def _from_yaml(variable: str, text: str) -> t.Any:
    if yaml is None:
        raise InputErrors(["The Python package PyYAML is missing where Ansible runs; install it."])
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())[:200]
        raise InputErrors([f"{variable} is text that is not valid YAML: {problem}."]) from error
