# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds, plan, report
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.snapshot import Admission
from ansible_collections.virtpools.kubevirt.tests.unit import builders

A100, L40S = "nvidia.com/A100", "nvidia.com/L40S"
GPU = builders.pool("gpu", selector={"deviceNames": [A100, L40S]})
SERVED = Admission(policy_kind=kinds.MUTATING_ADMISSION_POLICIES[0])


def node(name, owner=None, former=None, **devices):
    made = builders.node(name, owner, former, {"hw": "gpu"})
    made["status"]["allocatable"] = {"cpu": "8", **{f"nvidia.com/{key}": str(count) for key, count in devices.items()}}
    return made


def lines(*nodes, pools=(GPU,)):
    found = builders.snapshot_of([*nodes, builders.node("stays")], [GPU], admission=SERVED)
    return [line for line in report.plan_lines(plan.make(found, pools, Options())) if "partly moved" in line]


def test_devices_are_told_on_both_sides():
    found = lines(node("n1", "gpu", A100=4), node("n2", "gpu", A100=2, L40S=1), node("n3", A100=8))
    assert found == [
        f"Pool gpu is partly moved: 6 of {A100} on its 2 node(s), 8 on 1 node(s) still to move.",
        f"Pool gpu is partly moved: 1 of {L40S} on its 2 node(s), 0 on 1 node(s) still to move.",
    ]


def test_a_node_whose_handover_is_not_finished_is_still_to_move():
    found = lines(node("n1", "gpu", A100=4), node("n2", "gpu", "primary", A100=2))
    assert found[0] == f"Pool gpu is partly moved: 4 of {A100} on its 1 node(s), 2 on 1 node(s) still to move."


@pytest.mark.parametrize("owner", [None, "gpu"], ids=["none is moved", "all are moved"])
def test_nothing_is_said_where_one_side_has_all_nodes(owner):
    assert lines(node("n1", owner, A100=4), node("n2", owner, A100=4)) == []


def test_nothing_is_said_of_a_pool_that_selects_by_no_device():
    assert lines(node("n1", "gpu", A100=4), node("n2", A100=4), pools=[builders.pool("gpu")]) == []
