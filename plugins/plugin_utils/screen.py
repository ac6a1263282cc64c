# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Lines for the person who watches ansible-playbook, as they are: a result would be printed as YAML or JSON, with quotes and escapes."""

from __future__ import annotations

import itertools
import typing as t

from ansible import constants

_COLORS = {
    "ERROR ": "COLOR_ERROR",
    "WARNING ": "COLOR_WARN",
    "+ ": "COLOR_DIFF_ADD",
    "~ ": "COLOR_CHANGED",
    "- ": "COLOR_DIFF_REMOVE",
}
"""Settings of Ansible for the color of a line, by its beginning."""
_FOR_PROGRAMS = ("json", "jsonl")
"""Names of callbacks whose output is for programs. Other lines would make it unreadable for them."""


class Display(t.Protocol):
    """Ansible's display."""

    def display(self, msg: str, color: str | None = None, stderr: bool = False) -> None: ...


class Screen:
    """Where lines of one cluster are shown. With several clusters in a play, each line begins with the cluster's name."""

    def __init__(self, display: Display, variables: t.Mapping[str, t.Any], *, hidden: bool = False) -> None:
        """
        :param variables: those of the task.
        :param hidden: show nothing, as the keyword no_log asks for.
        """
        self.hidden = hidden
        several = len(variables.get("ansible_play_hosts_all") or ()) > 1
        self._display = display
        self._prefix = f"[{variables.get('inventory_hostname')}] " if several else ""
        self.stderr = str(constants.DEFAULT_STDOUT_CALLBACK).rpartition(".")[2] in _FOR_PROGRAMS

    def show(self, lines: t.Iterable[str]) -> None:
        """Show lines, those of one color at once: lines of other clusters may come in between."""
        if self.hidden:
            return
        for color, group in itertools.groupby(lines, color_of):
            self._display.display("\n".join(self.with_names(group)), color, stderr=self.stderr)

    def with_names(self, lines: t.Iterable[str]) -> list[str]:
        """The lines as they are shown."""
        return [f"{self._prefix}{line}" for line in lines]


def color_of(line: str) -> str | None:
    """The color in which a line is shown, by its beginning; None for the terminal's own."""
    beginning = line.lstrip()
    setting = next((name for start, name in _COLORS.items() if beginning.startswith(start)), None)
    return getattr(constants, setting) if setting else None
