# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs beside another user are in plugins/modules/test_operator_pools.py."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import found_list
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.edits import WantedParts
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode

BUILD = BUILDS["virtHandlerPools"]
GPU, FPGA = {"name": "gpu", "nodeSelector": {"hw": "gpu"}}, {"name": "fpga", "nodeSelector": {"hw": "fpga"}}


def refuse(now, expected, wanted):
    snapshot = builders.snapshot_of([builders.node("n1")])
    found = fake_operator_mode.kubevirt(entries=now, field="virtHandlerPools")
    found_list.refuse_changed_list(BUILD, snapshot, found, expected, wanted)


def test_the_list_of_the_plan_may_be_replaced():
    refuse([GPU], [GPU], WantedParts(entries=[FPGA]))
    refuse([], [], WantedParts(gate=False))


def test_a_list_that_is_written_already_is_ours():
    """The answer to our own write was lost."""
    refuse([FPGA], [GPU], WantedParts(entries=[FPGA]))


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        ([GPU, FPGA], WantedParts(entries=[GPU])),
        ([FPGA], WantedParts(entries=[])),
        ([GPU, FPGA], WantedParts(gate=False)),
    ],
)
def test_any_other_list_may_not(now, wanted):
    with pytest.raises(
        InputErrors, match=r"changed spec.virtHandlerPools of the KubeVirt object since .* \(pool .*fpga"
    ):
        refuse(now, [GPU], wanted)


def test_what_does_not_touch_the_list_is_no_matter():
    refuse([GPU, FPGA], [GPU], WantedParts(gate=True))
    refuse([GPU, FPGA], [GPU], WantedParts(touch=True))


def test_a_status_or_label_of_an_object_does_not_count():
    build = BUILDS["WorkerPool"]
    before = fake_operator_mode.worker_pool("gpu", nodeSelector={"hw": "gpu"})
    now = {**before, "status": {"x": 1}, "metadata": {**before["metadata"], "labels": {"a": "b"}}}
    found_list.refuse_changed_objects(build, [before], [now])
    with pytest.raises(InputErrors, match="pool gpu"):
        found_list.refuse_changed_objects(build, [before], [{**now, "spec": {"nodeSelector": {"hw": "other"}}}])
