# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notes of runs. tests/unit/runs/test_interruption.py presses Ctrl-C."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture
def interruption(on_controller, monkeypatch, tmp_path):
    """The plugin util, with a folder of its own."""
    found = importlib.import_module("ansible_collections.virtpools.kubevirt.plugins.plugin_utils.interruption")
    monkeypatch.setattr(found.constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    return found


def shown(interruption, capsys):
    interruption.show()
    return capsys.readouterr()


def test_the_last_lines_of_each_host_are_shown(interruption, capsys):
    interruption.note("west/1", ["old"], stderr=False)
    interruption.note("west/1", ["one", "two"], stderr=False)
    interruption.note("east", ["three"], stderr=False)
    assert shown(interruption, capsys).out == "three\none\ntwo\n"


def test_a_run_that_ended_leaves_none(interruption, capsys, tmp_path):
    interruption.note("east", [], stderr=False)
    interruption.note("east", ["one"], stderr=False)
    interruption.note("east", [], stderr=False)
    assert shown(interruption, capsys) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_beside_output_for_programs(interruption, capsys):
    interruption.note("east", ["one"], stderr=True)
    assert shown(interruption, capsys) == ("", "one\n")


def test_where_nothing_can_be_kept_a_run_goes_on(interruption, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(interruption.constants, "DEFAULT_LOCAL_TMP", str(tmp_path / "missing"))
    interruption.note("east", ["one"], stderr=False)
    assert shown(interruption, capsys) == ("", "")
