# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.option_table.option import Option

OPTION = Option(
    "wave_timeout",
    "int",
    "How long a wave\n  may take.\n\nIn seconds.",
    roles=("rollout",),
    role_variants={"rollout": {"default": 60}},
    module_variants={"wave_gate": {"name": "timeout"}},
)


def test_the_variable_has_our_prefix_unless_it_is_named():
    assert OPTION.variable == "virtpools_wave_timeout"
    assert Option("x", "str", "", variable_name="y").variable == "y"


def test_a_variant_applies_to_its_role_or_module_only():
    assert (OPTION.of_role("rollout").default, OPTION.of_role("pools").default) == (60, None)
    assert (OPTION.of_module("wave_gate").name, OPTION.of_module("plan_info").name) == ("timeout", "wave_timeout")


def test_paragraphs_are_single_lines():
    assert OPTION.paragraphs == ["How long a wave may take.", "In seconds."]


def test_the_argument_has_only_what_is_set():
    assert OPTION.argument == {"type": "int"}
    full = Option("x", "list", "", elements="str", choices=("a",), required=True, default=["a"])
    assert full.argument == {"type": "list", "elements": "str", "choices": ["a"], "required": True, "default": ["a"]}
