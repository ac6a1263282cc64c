# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.api.client import ClusterError
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import canary
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes.canary import CanaryOutcome
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.canary import Draft
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.leftovers import Leftover
from ansible_collections.virtpools.kubevirt.tests.unit.support import vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World


def titles(world):
    return [vm["metadata"]["name"] for vm in world.all(kinds.VIRTUAL_MACHINE)]


def test_only_the_given_vms_are_removed():
    world = World(vms.canary_vm("one"), vms.canary_vm("two"))
    one = Leftover.from_object(world.find(kinds.VIRTUAL_MACHINE, "one", "team-a"))
    canary.remove(world.client(), [one, Leftover("team-a", "missing", "1"), Leftover("team-a", "two", "1")])
    assert titles(world) == ["two"], "it has another uid"


class TestLeftovers:
    def test_of_killed_runs_are_deleted(self):
        theirs = kinds.VIRTUAL_MACHINE.object("theirs", "team-a", spec={})
        world = World(vms.canary_vm(), theirs)
        canary.remove_leftovers(world.client(), 20, world.clock())
        assert titles(world) == ["theirs"]

    def test_that_do_not_go_are_an_error_after_the_timeout(self):
        world = World(vms.canary_vm(), kinds.VIRTUAL_MACHINE_INSTANCE.object("virt-canary-gpu", "team-a", spec={}))
        began = world.now
        with pytest.raises(ClusterError, match="VirtualMachineInstance team-a/virt-canary-gpu.* still exists 20 s"):
            canary.remove_leftovers(world.client(), 20, world.clock())
        assert world.now - began >= 20


class TestOutcome:
    DRAFT = Draft("gpu", frozenset({"n1"}), vms.canary_vm(), None)
    IMAGE = "registry.example/virt-launcher:gpu"

    def test_of_a_vm_that_passed_names_node_and_image(self):
        text = str(CanaryOutcome(self.DRAFT, 3.21, "n1", self.IMAGE))
        assert text == f"Canary VM team-a/virt-canary-gpu of pool gpu ran on node n1 with {self.IMAGE} after 3.2 s."

    def test_of_a_vm_that_has_not_passed_has_the_problem(self):
        assert "has not passed after 3.2 s: it failed" in str(CanaryOutcome(self.DRAFT, 3.21, problem="it failed"))

    def test_is_published_with_the_vm(self):
        assert CanaryOutcome(self.DRAFT, 3.21, "n1", self.IMAGE).to_dict() == {
            "pool": "gpu",
            "vm": "team-a/virt-canary-gpu",
            "node": "n1",
            "image": self.IMAGE,
            "seconds": 3.2,
        }
