# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which mutants ci/mutants.py tries, and by what it knows them again."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
SOURCE = '''
class Node:
    @functools.cached_property
    def labels(self):
        """The labels."""
        return {}

    @classmethod
    def new(cls):
        return cls()

    @property
    def name(self):
        return "n"
'''
REWRITTEN = '''
class Node:
    def labels(self):
        """The labels."""
        return {}
    labels = functools.cached_property(labels)

    @classmethod
    def new(cls):
        return cls()

    def name(self):
        return "n"
    name = property(name)
'''


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "ci/mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_properties_are_written_without_a_decorator(mutants):
    assert mutants.without_decorators(SOURCE) == REWRITTEN


@pytest.mark.parametrize(
    ("before", "after", "tried"),
    [
        ('error("no_handler", f(x))', 'error("XXno_handlerXX", f(x))', True),
        ('error("no_handler", "No handler.")', 'error("no_handler", None)', True),
        ('error("no_handler", "No handler.")', 'error("no_handler", "XXNo handler.XX")', False),
        ('t.cast("dict[str, str]", found)', "t.cast(None, found)", False),
        ('t.cast("dict[str, str]", found)', 't.cast("dict[str, str]", None)', True),
        ("a < b", "a <= b", True),
    ],
)
def test_texts_and_casts_are_not_tried(mutants, before, after, tried):
    assert mutants.is_tried(before, after) is tried


def test_a_change_is_the_same_wherever_it_is(mutants):
    before = "def f(a):\n    if a:\n        return a < 1\n"
    assert mutants.change(before, before.replace("<", "<=")) == "- return a < 1\n+ return a <= 1"


def test_every_listed_mutant_has_a_reason():
    entries = yaml.safe_load((ROOT / "tests/unit/mutants.yml").read_text("utf-8"))
    for entry in entries:
        assert entry.keys() == {"file", "function", "change", "reason"}
        assert entry["reason"].endswith(".")
        assert (ROOT / "plugins/module_utils/core" / entry["file"]).is_file()
    assert len({(entry["file"], entry["function"], entry["change"]) for entry in entries}) == len(entries)
