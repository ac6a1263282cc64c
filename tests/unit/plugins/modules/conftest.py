# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules in this process, against a cluster in memory."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.tests.unit.support.module_fixtures import excluded, other_run, run, world

__all__ = ["excluded", "other_run", "run", "world"]
