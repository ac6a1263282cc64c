# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import vm_verification
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import policies
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verification import Verifier
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

VMS = [vms.vmi(), vms.launcher(), vms.vmi("bad"), vms.launcher("bad", pool=None)]
SPACES = [kinds.NAMESPACE.object("plain"), kinds.NAMESPACE.object(builders.NAMESPACE)]


def wrong_vms(report):
    return [(vm.name, vm.verdict) for vm in report.vms]


def test_vmis_are_read_before_their_pods():
    """So a VM that starts meanwhile is a pod with an unknown VMI, and never a VMI without a pod."""
    world = World(*VMS, *SPACES)
    report = vm_verification.verify_cluster(world.client(), Verifier(vms.plan_of()))
    assert wrong_vms(report) == [("bad", "wrong_image")]
    assert report.verdicts["correct"] == 1
    lists = [request.path.rpartition("/")[2] for request in world.requests]
    assert lists.index("virtualmachineinstances") < lists.index("pods")


def test_a_cluster_without_vmis():
    world = World(*SPACES, unserved=["VirtualMachineInstance"])
    assert sum(vm_verification.verify_cluster(world.client(), Verifier(vms.plan_of())).verdicts.values()) == 0


def test_a_dump_has_everything_in_any_order():
    others = [builders.handler_pod("gpu-0"), {"kind": "Note"}, {"kind": "List", "items": VMS[:2]}]
    for objects in ([*others, *VMS[2:]], [*VMS[:1:-1], *others]):
        report = vm_verification.verify_dump(objects, Verifier(vms.plan_of()))
        assert (wrong_vms(report), report.verdicts["correct"]) == ([("bad", "wrong_image")], 1)


@pytest.mark.parametrize(("objects", "state"), [(None, "failing"), ([], "missing")], ids=["live", "missing"])
def test_only_a_policy_that_is_as_it_should_be_is_tried(objects, state):
    world = World(*SPACES)
    policy = policies.probed_policy(world.client(), vms.plan_of(objects=objects), world.clock())
    assert policy.state == state
    assert any(request.method == "POST" for request in world.requests) == (state == "failing")
    assert world.writes == []
