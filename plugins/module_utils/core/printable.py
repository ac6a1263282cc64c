# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from a cluster as a file for people or tools may hold it."""

from __future__ import annotations


def printable(text: object) -> str:
    """``text`` on one line, with escapes for what XML forbids, no encoding takes, or turns what is beside it around."""
    found = str(text)
    if found.isprintable():
        return found
    found = " ".join(found.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in found)
