# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How our pools go before those of virt-operator come. Whole moves are in tests/unit/runs/test_moving.py."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.collection import CollectionMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


def takedown(snapshot):
    return CollectionMode().takedown(snapshot, PlanRequest())


class TestTakedown:
    def test_the_cluster_afterwards_has_no_trace_of_the_pools(self):
        found = takedown(builders.snapshot_of([builders.node("n1", owner="gpu")], [builders.pool()]))
        assert (found.mode, found.pools) == ("collection", ("gpu",))
        assert {node.owner for node in found.after.nodes.values()} == {names.PRIMARY}
        assert not exclusion.exclusion_requested(found.after.kubevirt)
        assert not exclusion.has_exclusion(found.after.primary)
        assert not found.after.pools

    def test_an_exclusion_that_an_interrupted_run_left_goes_too(self):
        left = builders.snapshot_of([builders.node("n1")], [])
        found = takedown(left)
        (said,) = [each.message for each in found.findings(()) if each.code == "moving"]
        assert "first it ends their removal" in said

    def test_of_a_cluster_without_our_pools_is_nothing(self):
        assert takedown(builders.fresh_snapshot([builders.node()])) is None
