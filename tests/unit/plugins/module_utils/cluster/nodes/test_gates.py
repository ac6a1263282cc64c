# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import gates
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.gates import GateProblem
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_migrations import vm

OLD, NEW = GateProblem("old", "n1", "It is old."), GateProblem("new", "n1", "It is new.")
FINAL = GateProblem("final", "n1", "It is final.", final=True)


@pytest.fixture
def world():
    nodes = [builders.node("n1"), builders.node("n2")]
    sets = [builders.primary(excluded=False, desired=2)]
    return World(builders.kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets))


def wait(world, *rounds, baseline=(), timeout=20):
    """What is left, and how long it took; ``rounds``: the problems at each look, the last for ever."""
    looks = iter(rounds)
    found = []

    def find():
        found[:] = next(looks, found)
        return list(found)

    began = world.now
    left = gates.await_open(find, baseline, timeout, world.clock())
    return left, world.now - began


class TestAwaitOpen:
    def test_without_problems_takes_no_time(self, world):
        assert wait(world, []) == ([], 0)

    def test_waits_until_the_problem_has_passed(self, world):
        left, seconds = wait(world, [NEW], [NEW], [])
        assert left == []
        assert 0 < seconds < 20

    def test_ignores_problems_of_the_baseline(self, world):
        assert wait(world, [OLD], baseline=[OLD.key]) == ([], 0)

    def test_returns_what_is_left_after_the_timeout(self, world):
        left, seconds = wait(world, [NEW])
        assert left == [NEW]
        assert seconds >= 20

    def test_ends_at_once_for_a_final_problem(self, world):
        left, seconds = wait(world, [NEW, FINAL])
        assert (left, seconds) == ([NEW, FINAL], 0)


class TestFindProblems:
    def test_of_a_healthy_cluster_are_none(self, world):
        assert gates.find_problems(world.client(), builders.NAMESPACE, "kubevirt", ["n1"], world.now) == []

    @pytest.mark.parametrize(("nodes", "found"), [(["n1"], True), (["n2"], False)])
    def test_are_those_of_the_waves_nodes(self, world, nodes, found):
        world.drop(kinds.POD, "virt-handler-n1", builders.NAMESPACE)
        problems = gates.find_problems(world.client(), builders.NAMESPACE, "kubevirt", nodes, world.now)
        assert any("n1" in str(problem) for problem in problems) == found

    def test_are_none_on_a_node_that_the_primary_cannot_serve(self, world):
        world.drop(kinds.POD, "virt-handler-n1", builders.NAMESPACE)
        taint = {"key": "a", "effect": "NoSchedule"}
        world.put(builders.node("n1", labels={"hw": "gpu"}, taints=[taint]))
        assert gates.find_problems(world.client(), builders.NAMESPACE, "kubevirt", ["n1"], world.now) == []


class TestVmsThatFailedWithAFormerImage:
    """Their launcher refused an argument of a newer KubeVirt. Where VMs get another image by now, the run has cured that."""

    OLD = "registry.example/virt-launcher:v1.7.0-gpu"

    def policy(self, world, image, **canaries):
        pool = builders.pool("gpu", virtLauncherImage=image, selector={"vmLabels": {"matchLabels": {"for": "gpu"}}})
        table = Table.for_pools([pool], canaries=canaries)
        for _kind, obj in launcher_policy.derive(table, builders.NAMESPACE, kinds.MUTATING_ADMISSION_POLICIES[0]):
            world.put(obj)

    def failed(self, world, *, exit_code=2, labels=None, by_webhook=False):
        vmi, pod = vm("a", "n1", self.OLD, phase="Failed", labels={"for": "gpu"} if labels is None else labels)
        vmi["metadata"]["labels"] = {names.NODE_NAME_LABEL: "n1"}
        ended = {"name": "compute", "state": {"terminated": {"exitCode": exit_code}}}
        pod["status"] = {"phase": "Failed", "containerStatuses": [ended]}
        if by_webhook:
            vms.by_webhook(pod, "registry.example/virt-launcher:aie")
        world.put(kinds.NAMESPACE.object("plain"))
        world.put(vmi)
        world.put(pod)

    def codes(self, world):
        found = gates.find_problems(world.client(), builders.NAMESPACE, "kubevirt", ["n1"], world.now)
        return [problem.code for problem in found]

    def test_do_not_close_the_gate(self, world):
        self.policy(world, builders.GPU_LAUNCHER_IMAGE)
        self.failed(world)
        assert self.codes(world) == []

    def test_close_it_while_vms_still_get_that_image(self, world):
        self.policy(world, self.OLD)
        self.failed(world)
        assert self.codes(world) == ["vmi_failed"]

    def test_close_it_where_canaries_get_that_image(self, world):
        self.policy(world, builders.GPU_LAUNCHER_IMAGE, gpu=self.OLD)
        self.failed(world)
        assert self.codes(world) == ["vmi_failed"]

    def test_close_it_when_they_failed_for_another_reason(self, world):
        self.policy(world, builders.GPU_LAUNCHER_IMAGE)
        self.failed(world, exit_code=1)
        assert self.codes(world) == ["vmi_failed"]

    def test_close_it_where_a_webhooks_own_rule_gave_the_image(self, world):
        self.policy(world, builders.GPU_LAUNCHER_IMAGE)
        self.failed(world, by_webhook=True)
        assert self.codes(world) == ["vmi_failed"]

    def test_close_it_without_a_policy(self, world):
        self.failed(world)
        assert self.codes(world) == ["vmi_failed"]


def test_a_soak_takes_its_time_and_keeps_the_lease_alive(world):
    beats = []
    clock = world.clock()
    clock = type(clock)(beat=lambda: beats.append(world.now), now=clock.now, sleep=clock.sleep)
    began = world.now
    gates.soak(30, clock)
    assert 30 <= world.now - began < 36
    assert len(beats) > 5
