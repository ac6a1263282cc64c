# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Upgrades of KubeVirt with pools: at every write VMs start with an image that fits their virt-controller, and may go back."""

from __future__ import annotations

import copy
import os

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import health
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_oracle, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.admission import Admission
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour, World
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import (
    FIRST,
    FOLLOWED,
    NEXT_VERSION,
    PREPARED,
    TAKEN_BACK,
    Stage,
    at_version,
    handlers,
    outcome,
    stock,
    told,
)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif("ANSIBLE_TEST_ANSIBLE_LIB_ROOT" in os.environ, reason="make test-unit runs them"),
]

NOW = builders.VERSION


@pytest.fixture
def stage(run, monkeypatch):
    return Stage(run, monkeypatch)


@pytest.fixture
def pooled(stage):
    """The objects of a cluster with pools."""
    return once("pooled", lambda: carried_out(stage, FIRST, stock()))


@pytest.fixture
def prepared(stage, pooled):
    """The objects of a cluster whose upgrade is prepared."""
    return once("prepared", lambda: carried_out(stage, PREPARED, pooled))


@pytest.fixture
def preparing(stage, pooled):
    """What each write of the preparation leaves."""
    return once("preparing", lambda: cuts_of(stage, PREPARED, pooled))


@pytest.fixture
def following(stage, prepared):
    """What each write of the run after the upgrade leaves."""
    return once("following", lambda: cuts_of(stage, FOLLOWED, at_version(prepared, NEXT_VERSION)))


_known = {}


def once(what, make):
    if what not in _known:
        _known[what] = make()
    return copy.deepcopy(_known[what])


def carried_out(stage, run, objects, cuts=None):
    """What a run leaves of these objects. ``cuts`` gets what each of its writes leaves."""
    world, _none = stage.on(objects, cuts=cuts)
    stage.run(run.role, run.variables)
    assert world.doubled == []
    return list(world.objects.values())


def cuts_of(stage, run, objects):
    cuts = []
    carried_out(stage, run, objects, cuts)
    assert len(cuts) > 5
    return cuts


def launcher(objects, controller):
    """The release of the launcher image that a VM of the pool gets from the virt-controller of this version."""
    world = World(*copy.deepcopy(objects))
    image = f"registry.example/virt-launcher:{controller}"
    pod = vms.launcher("vm", "", labels={"class": "gpu"}, namespace="default", pool=None, device=False, image=image)
    admitted = launcher_oracle.compute(Admission(world).admitted(pod))["image"]
    assert admitted != image, "the pool's own image"
    return health.release_of_image(admitted)


def of(version):
    return health.release_of(version)


def _template(pod):
    """The digest of the template of a pool's handler; None for the primary's."""
    return pod["metadata"].get("annotations", {}).get(names.TEMPLATE_ANNOTATION)


def pool_handlers(objects):
    """The handler pods of pools."""
    return sorted(obj["metadata"]["uid"] for obj in objects if obj["kind"] == kinds.POD.name and _template(obj))


def under_way(objects, primary=NOW):
    """KubeVirt's upgrade has begun: its virt-handler has this version by now."""
    begun = at_version(objects, primary)
    (kubevirt,) = (obj for obj in begun if obj["kind"] == kinds.KUBEVIRT.name)
    kubevirt["status"].update(observedKubeVirtVersion=NOW, targetKubeVirtVersion=NEXT_VERSION)
    return begun


class TestVmsStart:
    def test_at_every_write_of_the_preparation(self, pooled, preparing):
        assert [launcher(cut, NOW) for cut in preparing] == [of(NOW)] * len(preparing)
        assert (launcher(pooled, NEXT_VERSION), launcher(preparing[-1], NEXT_VERSION)) == (of(NOW), of(NEXT_VERSION))

    def test_at_every_write_of_the_run_after_the_upgrade(self, following):
        assert [launcher(cut, NEXT_VERSION) for cut in following] == [of(NEXT_VERSION)] * len(following)

    def test_at_every_write_when_the_preparation_is_taken_back(self, stage, prepared):
        cuts = cuts_of(stage, TAKEN_BACK, prepared)
        assert [launcher(cut, NOW) for cut in cuts] == [of(NOW)] * len(cuts)


class TestTakenBack:
    """KubeVirt returns to its old version."""

    def test_after_any_write_of_the_preparation(self, stage, prepared, preparing):
        wanted = outcome_of(stage, TAKEN_BACK, prepared)
        for number, cut in enumerate(preparing, 1):
            with told(f"The power fails after write {number}"):
                assert different(outcome_of(stage, TAKEN_BACK, cut), wanted) <= LEFT

    def test_after_any_write_of_the_run_after_the_upgrade(self, stage, prepared, following):
        """Some handlers of the pool have been replaced by then."""
        wanted = outcome_of(stage, TAKEN_BACK, prepared)
        for number, cut in enumerate(following, 1):
            back, cuts = at_version(cut, NOW), []
            with told(f"KubeVirt goes back after write {number}"):
                assert different(outcome_of(stage, TAKEN_BACK, back, cuts), wanted) <= LEFT
                assert {launcher(each, NOW) for each in cuts} <= {of(NOW), of(NEXT_VERSION)}

    def test_when_the_new_handlers_do_not_work_with_it(self, stage, prepared, following):
        """A newer handler lacks rights under the old version, and never becomes Ready (KubeVirt)."""
        wanted = outcome_of(stage, TAKEN_BACK, prepared)
        world, _none = stage.on(at_version(following[-1], NOW))
        newer = {_template(pod) for pod in world.handler_pods()} - {None}
        for pod in world.handler_pods():
            if _template(pod) in newer:
                pod["status"].update(phase="Running", conditions=[{"type": "Ready", "status": "False"}])
                node = world.find(kinds.NODE, pod["spec"]["nodeName"])
                node["metadata"]["labels"][names.SCHEDULABLE_LABEL] = "false"
        works = world.behaviour
        world.behaviour = lambda pod: Behaviour(broken="CrashLoopBackOff") if _template(pod) in newer else works(pod)
        stage.run(TAKEN_BACK.role, TAKEN_BACK.variables)
        assert different(outcome(world), wanted) <= LEFT

    def test_old_images_are_there_until_a_run_follows(self, prepared):
        for primary in (NOW, NEXT_VERSION):
            during = under_way(prepared, primary)
            assert (launcher(during, NOW), launcher(during, NEXT_VERSION)) == (of(NOW), of(NEXT_VERSION))

    @pytest.mark.parametrize("primary", [NOW, NEXT_VERSION])
    def test_not_while_both_versions_may_start_vms(self, stage, prepared, primary):
        """A user takes the preparation back before KubeVirt has gone back."""
        during = under_way(prepared, primary)
        world, _none = stage.on(during)
        with pytest.raises(TaskFailed, match=f"is being upgraded from {NOW} to {NEXT_VERSION}; wait until"):
            stage.run(TAKEN_BACK.role, TAKEN_BACK.variables)
        left = list(world.objects.values())
        assert (launcher(left, NOW), launcher(left, NEXT_VERSION)) == (of(NOW), of(NEXT_VERSION))

    def test_not_before_virt_handler_has_gone_back(self, stage, prepared):
        """virt-operator says at once that it is at the old version again, and replaces virt-handler then."""
        early = at_version(prepared, NEXT_VERSION)
        (kubevirt,) = (obj for obj in early if obj["kind"] == kinds.KUBEVIRT.name)
        kubevirt["status"].update(observedKubeVirtVersion=NOW, targetKubeVirtVersion=NOW)
        world, _none = stage.on(early)
        with pytest.raises(TaskFailed, match=f"virt-handler is still of {NEXT_VERSION}"):
            stage.run(TAKEN_BACK.role, TAKEN_BACK.variables)
        left = list(world.objects.values())
        assert (launcher(left, NOW), launcher(left, NEXT_VERSION)) == (of(NOW), of(NEXT_VERSION))


class TestUnderWay:
    """KubeVirt is being upgraded, and its virt-handler is old or new by now."""

    @pytest.fixture(params=[NOW, NEXT_VERSION], ids=["old handler", "new handler"])
    def primary(self, request):
        return request.param

    @pytest.mark.parametrize("pools", [FIRST, FOLLOWED], ids=["old list", "new list"])
    @pytest.mark.parametrize("ready", [False, True], ids=["unprepared", "prepared"])
    def test_site_changes_nothing_and_says_what_to_run(self, stage, pooled, prepared, primary, pools, ready):
        cuts = []
        stage.on(under_way(prepared if ready else pooled, primary), cuts=cuts)
        hint = f"Until then you can run the playbook upgrade with virtpools_upgrade_to={NEXT_VERSION}"
        with pytest.raises(TaskFailed, match=hint):
            stage.run("pools", {"virtpools_pools": pools.variables["virtpools_pools"]})
        assert cuts == []

    def test_what_it_names_brings_the_second_image(self, stage, pooled, primary):
        left = carried_out(stage, PREPARED, under_way(pooled, primary))
        assert (launcher(left, NOW), launcher(left, NEXT_VERSION)) == (of(NOW), of(NEXT_VERSION))
        assert pool_handlers(left) == pool_handlers(pooled) != []


LEFT = {f"coordination.k8s.io/v1/leases/{builders.NAMESPACE}/{names.LEASE_NAME}"}
"""What a run leaves that is cut off, when the next has nothing to do. It expires."""


def different(found, wanted):
    """The objects that are not as they should be."""
    return {key for key in {*found, *wanted} if found.get(key) != wanted.get(key)}


def outcome_of(stage, run, objects, cuts=None):
    world, _none = stage.on(objects, cuts=cuts)
    stage.run(run.role, run.variables)
    assert world.doubled == []
    return outcome(world)


def test_a_run_waits_for_the_upgrade_and_follows(stage, pooled, prepared):
    """One run ends as two do."""
    wanted = outcome_of(stage, FOLLOWED, at_version(prepared, NEXT_VERSION))
    world, _none = stage.on(pooled)

    def upgrade():
        for obj in at_version(list(world.objects.values()), NEXT_VERSION):
            world.put(obj)

    world.at[world.now + 300] = upgrade
    stage.run(PREPARED.role, {**PREPARED.variables, "virtpools_upgrade_wait": 3600})
    assert outcome(world) == wanted
    assert handlers(world)["n1"] == ["virt-handler-gpu"]
