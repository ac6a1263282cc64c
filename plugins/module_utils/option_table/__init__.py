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

import difflib
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..core.base.findings import InputErrors
from ..core.pools.inputs import shown
from . import awx, cluster, limits, plans, removal, runs, updates, verify, waves
from .option import NUMBERS, Option

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

PREFIX: t.Final = "virtpools_"
"""What every variable of ours begins with, and no variable of a user's own."""

_OF_PLAYBOOKS = ("virtpools_hosts", "virtpools_kubeconfig", "virtpools_context")
"""Variables that choose the cluster, and that no role has."""

_HANDED_ON = (
    *("virtpools_verified", "virtpools_unhealthy_clusters"),
    *("virtpools_vms", "virtpools_problems", "virtpools_listed"),
    *("virtpools_outdated_vms", "virtpools_updated_vms", "virtpools_vms_to_restart"),
    "virtpools_explained",
)
"""What our roles hand on with set_stats besides virtpools_plan and virtpools_result, which are options. AWX gives it to the later jobs of a workflow as
variables."""

_WAVE = "virtpools_wave"
"""What the user's own gates find the wave in; they may run our roles."""

_RAW = "_raw_params"
"""The variable in which Ansible puts words of ``-e`` that are no ``name=value``."""

_POOL_SOURCES = ("remove_pools", "pools_from_history", "pools", "pools_manifest", "pools_from_cluster")
"""The options that a pool list may come from. Of these, each of the first two overrides those after it."""


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
    """The arguments that were set (not empty, not null), down to suboptions."""
    return {
        name: given(value, inner) if isinstance(value, dict) and (inner := spec.get(name, {}).get("options")) else value
        for name, value in values.items()
        if value is not None and value != ""
    }


def resolve(
    role: str, variables: t.Mapping[str, t.Any], override: t.Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    """The value of each option of a role, by the option's name: what was given, in its type, or else the default.

    :param variables: variables by name. Others than the role's are ignored.
    :param override: values, by the options' names, that override variables.
    :raises InputErrors: with everything that is wrong.
    """
    own, internal = of_role(role), tuple(option for option in TABLE if role in option.internal_roles)
    options = (*own, *internal)
    names = {option.variable for option in own}
    values = {name: value for name, value in variables.items() if name in names}
    values |= {option.variable: override[option.name] for option in options if override and option.name in override}
    written = {option.variable: option for option in options if option.written or option.type == "list"}
    values |= {name: _read(written[name], value) for name, value in values.items() if name in written}
    spec = {option.variable: option.argument for option in options}
    result = ArgumentSpecValidator(spec).validate(given(values, spec))
    lowest = {option.variable: option.minimum for option in options if option.is_number}
    problems = [*result.error_messages, *_too_low(result.validated_parameters, lowest)]
    if problems:
        raise InputErrors(problems)
    return {option.name: result.validated_parameters[option.variable] for option in options}


def check_numbers(values: t.Mapping[str, t.Any], spec: Arguments) -> None:
    """Check the numbers among a module's arguments: no option of its own may be negative either.

    :param values: the arguments by name.
    :raises InputErrors: with a sentence for each that is too low.
    """
    lowest = {option.name: option.minimum for option in TABLE if option.modules}
    numbers = [name for name, argument in spec.items() if argument.get("type") in NUMBERS]
    problems = _too_low(values, {name: lowest.get(name, 0) for name in numbers})
    if problems:
        raise InputErrors(problems)


def _too_low(values: t.Mapping[str, t.Any], lowest: t.Mapping[str, int]) -> list[str]:
    """A sentence for each number that is lower than it may be, or a boolean, which Python takes for a number."""
    return [
        f"{name} is {shown(values[name])}; give a number from {least}."
        for name, least in lowest.items()
        if isinstance(value := values.get(name), (int, float)) and (isinstance(value, bool) or value < least)
    ]


def check_names(variables: t.Mapping[str, t.Any]) -> None:
    """Check that every variable with our prefix is one of ours. Ansible passes over a misspelt one without a word, and over one of
    ours whose prefix is misspelt.

    :param variables: all variables of a host, by name.
    :raises InputErrors: with a sentence for each that nothing knows.
    """
    if _RAW in variables:
        raise InputErrors(
            [f"-e {variables[_RAW]} sets no variable: write -e @{variables[_RAW]} if it is a file of variables."]
        )
    known = {option.of_role(role).variable for option in TABLE for role in option.roles}
    known.update(_OF_PLAYBOOKS, _HANDED_ON)
    if isinstance(variables.get(_WAVE), t.Mapping):
        known.add(_WAVE)
    words = sorted(each.removeprefix(PREFIX) for each in known)
    found = sorted(
        name for name in variables if name not in known and (name.startswith(PREFIX) or _is_near(name, words))
    )
    if found:
        raise InputErrors([_unknown(name, words) for name in found])


def _is_near(name: str, words: t.Collection[str]) -> bool:
    """Whether only the prefix of a variable of ours is misspelt. A longer one, such as ``our_virtpools_``, is the user's own."""
    prefix, word = _parts(name)
    own = PREFIX.rstrip("_")
    if word not in words or (own in prefix and prefix != own):
        return False
    return difflib.SequenceMatcher(None, prefix, own).ratio() > 0.88


def _parts(name: str) -> tuple[str, str]:
    """What seems to be a variable's prefix, and the rest."""
    prefix, _sign, word = name.replace("-", "_").lower().partition("_")
    return prefix, word


def _unknown(name: str, words: t.Sequence[str]) -> str:
    near = difflib.get_close_matches(_parts(name)[1], words, n=1)
    hint = f"perhaps you mean {PREFIX}{near[0]}" if near else "docs/variables.md lists all"
    free = f"a name that does not begin with {PREFIX}" if name.startswith(PREFIX) else "another name"
    return f"There is no variable {name}: {hint}. Give a variable of your own {free}."


def module_args(options: t.Mapping[str, t.Any]) -> Arguments:
    """The arguments that a role's options are to modules, by module or documentation fragment.

    :param options: the values of options by name. An option that is null is not passed, nor is one that has a default of
        its own in that module. A removal or a list of the history takes the place of every other pool list.
    """
    found: Arguments = {place: {} for option in TABLE for place in option.modules}
    unused = _unused_sources(options)
    for option in TABLE:
        value = options.get(option.name)
        if value is None or option.name in unused:
            continue
        for place in option.modules:
            if option.of_module(place).default == option.default:
                found[place][option.name] = value
    return found


def _unused_sources(options: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """The options for a pool list that others override."""
    for number, source in enumerate(_POOL_SOURCES[:2], 1):
        if options.get(source) is not None:
            return _POOL_SOURCES[number:]
    return ()


def _read(option: Option, value: t.Any) -> t.Any:
    """The value that a text stands for; any other value unchanged."""
    if not isinstance(value, str):
        return value
    if option.written == "yaml" or value.lstrip().startswith("["):
        read = _from_yaml(option.variable, value)
        # A file of variables, pasted whole into a survey.
        return read[option.variable] if isinstance(read, dict) and [*read] == [option.variable] else read
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
