# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The findings of a move between the modes."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import findings
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.collection import CollectionMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


def test_findings_on_kubevirt_in_the_first_part_are_not_repeated():
    snapshot = builders.snapshot_of([builders.node("n1", owner="gpu")], [builders.pool()])
    found = CollectionMode().takedown(snapshot, PlanRequest())
    passing = findings.error("kubevirt_not_available", "It is not available.")
    lasting = findings.error("version_skew", "Another version.")
    codes = [each.code for each in found.findings((passing, lasting, lasting))]
    assert "kubevirt_not_available" not in codes
    assert codes.count("version_skew") == 1
    assert codes.count("moving") == 1
