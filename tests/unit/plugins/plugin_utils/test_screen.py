# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib

import pytest

LINES = [
    "First:",
    "  + DaemonSet kubevirt/a",
    "  + DaemonSet kubevirt/b",
    "  ~ KubeVirt kubevirt/kubevirt: edit",
    "WARNING skew: It differs.",
]


class Terminal:
    def __init__(self):
        self.shown = []

    def display(self, msg, color=None, stderr=False):
        self.shown.append((msg, color, stderr))


@pytest.fixture
def terminal():
    return Terminal()


@pytest.fixture
def screen(on_controller):
    return importlib.import_module("ansible_collections.virtpools.kubevirt.plugins.plugin_utils.screen")


def test_lines_of_one_color_are_shown_at_once(terminal, screen):
    screen.Screen(terminal, {"inventory_hostname": "east", "ansible_play_hosts_all": ["east"]}).show(LINES)
    assert terminal.shown == [
        ("First:", None, False),
        ("  + DaemonSet kubevirt/a\n  + DaemonSet kubevirt/b", screen.constants.COLOR_DIFF_ADD, False),
        ("  ~ KubeVirt kubevirt/kubevirt: edit", screen.constants.COLOR_CHANGED, False),
        ("WARNING skew: It differs.", screen.constants.COLOR_WARN, False),
    ]


def test_with_several_clusters_each_line_has_its_name(terminal, screen):
    variables = {"inventory_hostname": "east", "ansible_play_hosts_all": ["east", "west"]}
    screen.Screen(terminal, variables).show(["OWNER  NODES", "gpu    3"])
    assert terminal.shown == [("[east] OWNER  NODES\n[east] gpu    3", None, False)]


@pytest.mark.parametrize("callback", ["json", "ansible.posix.json", "ansible.posix.jsonl"])
def test_the_output_of_a_callback_for_programs_stays_readable(terminal, screen, monkeypatch, callback):
    monkeypatch.setattr(screen.constants, "DEFAULT_STDOUT_CALLBACK", callback)
    screen.Screen(terminal, {}).show(["one"])
    assert terminal.shown == [("one", None, True)]
