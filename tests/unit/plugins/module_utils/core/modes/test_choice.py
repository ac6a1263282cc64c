# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which mode a run works in, and what has to go before it."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes import choice
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.collection import CollectionMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.operator_api import OperatorApi
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.mode import OperatorMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode

B = BUILDS["virtHandlerPools"]
ENTRY = {
    "name": "gpu",
    "nodeSelector": {"hw": "gpu"},
    "virtHandlerImage": builders.GPU_IMAGE,
    "selector": {"deviceNames": ["x/y"]},
}


def operated():
    of_kubevirt = fake_operator_mode.kubevirt(entries=[ENTRY], field=B.field, gates=[B.gate])
    nodes = [builders.node("n1", labels={"hw": "gpu"})]
    return builders.build_snapshot(of_kubevirt, daemonsets=[fake_operator_mode.primary()], nodes=nodes)


def collected(**fields):
    return builders.snapshot_of([builders.node("n1", owner="gpu")], [builders.pool()], **fields)


@pytest.mark.parametrize(("snapshot", "mode"), [(operated(), OperatorMode(B)), (collected(), CollectionMode())])
def test_the_mode_is_that_of_the_pools(snapshot, mode):
    assert choice.choose("auto", snapshot) == mode
    assert choice.in_use(snapshot) == mode


class TestDeparture:
    @pytest.mark.parametrize("mode", [CollectionMode(), OperatorMode(B)])
    def test_without_pools_is_nothing(self, mode):
        assert choice.departure(mode, builders.fresh_snapshot([builders.node()]), PlanRequest()) is None

    def test_of_pools_of_the_same_mode_is_nothing(self):
        assert choice.departure(CollectionMode(), collected(), PlanRequest()) is None
        assert choice.departure(OperatorMode(B), operated(), PlanRequest()) is None

    def test_of_pools_of_the_other_mode_takes_them_down(self):
        assert choice.departure(CollectionMode(), operated(), PlanRequest()).mode == "operator"
        api = OperatorApi(fields=(B.field,))
        assert choice.departure(OperatorMode(B), collected(operator_api=api), PlanRequest()).mode == "collection"
