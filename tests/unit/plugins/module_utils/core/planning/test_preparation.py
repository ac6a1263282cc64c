# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan, preparation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

NEXT = "v99.0.0"
NEW_IMAGE = "registry.example/virt-launcher:v99.0.0-gpu"
POOLS = [vms.gpu(virtLauncherImage=NEW_IMAGE, virtHandlerImage="registry.example/virt-handler:v99.0.0-gpu")]


def written(rollout):
    """The live objects after the policy of a rollout was written, as an admission part."""
    return vms.admission(*(obj for _kind, obj in rollout.policy(0)))


def snapshot(admission=None, **kubevirt):
    found = builders.snapshot_of(vms.nodes(), [vms.gpu()], admission=admission or vms.admission(*vms.policy()))
    return dataclasses.replace(found, kubevirt=builders.kubevirt(**kubevirt)) if kubevirt else found


def prepared():
    return preparation.prepare(snapshot(), POOLS, Options(), NEXT).rollout


class TestPrepare:
    def test_adds_what_the_next_version_needs_and_nothing_else(self):
        rollout = prepared()
        (table,) = rollout.stages
        assert table.images == {"gpu": vms.IMAGE}
        assert table.upcoming == Upcoming(vms.STOCK, NEXT, {"gpu": NEW_IMAGE})
        assert rollout.changes(0) == (
            "MutatingAdmissionPolicy virtpools-launcher: update",
            f"VMs that match pool gpu start with {NEW_IMAGE} once KubeVirt {NEXT} starts them",
        )

    def test_what_only_the_next_version_can_run_is_not_refused_now(self):
        mshv = builders.pool("mshv", hypervisor="hyperv-direct", selector={"vmLabels": {"matchLabels": {"on": "mshv"}}})
        today = snapshot(observedKubeVirtVersion="v1.7.0", targetKubeVirtVersion="v1.7.0")
        found = preparation.prepare(today, [*POOLS, mshv], Options(), NEXT)
        assert "hypervisor_unsupported" in builders.codes(found.plan.findings)
        assert "hypervisor_unsupported" not in builders.codes(found.findings)

    def test_twice_changes_nothing(self):
        again = preparation.prepare(snapshot(written(prepared())), POOLS, Options(), NEXT)
        assert (again.rollout.changes(0), again.rollout.steps) == ((), ())

    def test_is_tried_with_pods_of_both_versions(self):
        site = preparation.launcher_rollout.probes.Site(builders.NAMESPACE, {}, vms.STOCK, builders.HANDLER_IMAGE)
        trial = prepared().trial_of(prepared().stages[0], lambda: site)
        given = {
            (p.pod["spec"]["containers"][1]["image"], p.expected["spec"]["containers"][1]["image"])
            for p in trial.probes
        }
        later = Upcoming(vms.STOCK, NEXT, {}).next_stock
        assert given == {(vms.STOCK, vms.STOCK), (vms.STOCK, vms.IMAGE), (later, later), (later, NEW_IMAGE)}

    def test_the_version_that_is_there_takes_it_back(self):
        version = builders.kubevirt()["status"]["observedKubeVirtVersion"]
        back = preparation.prepare(snapshot(written(prepared())), [vms.gpu()], Options(), version).rollout
        assert back.stages[0].upcoming is None
        assert back.changes(0) == (
            "MutatingAdmissionPolicy virtpools-launcher: update",
            f"VMs that KubeVirt {NEXT} starts get no other images any more",
        )
        assert preparation.prepare(snapshot(), [vms.gpu()], Options(), version).rollout.changes(0) == ()

    def test_the_correction_of_outdated_vms_stays_where_it_is(self):
        policy = vms.policy()
        correction = preparation.launcher_rollout.outdated_policy.derive(
            prepared().in_effect, vms.STOCK, builders.NAMESPACE, vms.admission().policy_kind
        )
        live = vms.admission(*policy, *(obj for _kind, obj in correction))
        rollout = preparation.prepare(snapshot(live), POOLS, Options(), NEXT).rollout
        assert names.OUTDATED_POLICY in {obj["metadata"]["name"] for _kind, obj in rollout.correction(0)}

    def test_has_the_images_to_pull(self):
        made = preparation.prepare(snapshot(), POOLS, Options(), NEXT)
        assert NEW_IMAGE in made.plan.desired["gpu"]["spec"]["template"]["spec"]["initContainers"][0]["image"]


class TestAfterwards:
    """Runs of site find what was prepared."""

    def plan_of(self, admission, pools, stock=vms.STOCK):
        found = snapshot(admission)
        if stock != vms.STOCK:
            found.primary["spec"]["template"]["spec"]["initContainers"][0]["image"] = stock
        return plan.make_plan(found, pools, Options())

    def test_one_with_the_present_list_leaves_it(self):
        live = written(prepared())
        assert self.plan_of(live, [vms.gpu()]).part("launcher_policy").steps == ()

    def test_after_the_upgrade_the_former_images_leave(self):
        later = Upcoming(vms.STOCK, NEXT, {}).next_stock
        made = self.plan_of(written(prepared()), POOLS, later)
        assert {str(table.images) for table in made.launcher_rollout.stages} == {str({"gpu": NEW_IMAGE})}
        assert {table.upcoming for table in made.launcher_rollout.stages} == {None}
        assert made.part("launcher_policy").changes(0) == ("MutatingAdmissionPolicy virtpools-launcher: update",)


class TestUnderWay:
    @pytest.mark.parametrize(("version", "expected"), [(NEXT, True), ("v98.0.0", False)])
    def test_only_what_was_prepared_for_it(self, version, expected):
        upgrading = snapshot(written(prepared()))
        upgrading.kubevirt["status"]["targetKubeVirtVersion"] = NEXT
        assert preparation.prepare(upgrading, POOLS, Options(), version).under_way is expected

    def test_not_without_preparation(self):
        upgrading = snapshot()
        upgrading.kubevirt["status"]["targetKubeVirtVersion"] = NEXT
        assert not preparation.prepare(upgrading, POOLS, Options(), NEXT).under_way


class TestUnfinished:
    """An upgrade that is taken back: KubeVirt's status names the old version before its components are replaced."""

    OLD = builders.VERSION

    def found(self, admission=None, **of_primary):
        state = snapshot(admission or written(prepared()))
        state.primary["metadata"]["annotations"].update(of_primary.pop("annotations", {}))
        state.primary["status"].update(of_primary)
        return preparation.prepare(state, [vms.gpu()], Options(), self.OLD).unfinished

    def test_while_virt_handler_is_of_the_other_version(self):
        assert self.found(annotations={names.VERSION_ANNOTATION: NEXT}) == (
            f"KubeVirt kubevirt/kubevirt is at {self.OLD} by its status, but virt-handler is still of {NEXT}, so either version may "
            "start VMs now; wait until virt-operator has finished, then run again."
        )

    def test_while_virt_handler_is_being_replaced(self):
        state = snapshot(written(prepared()))
        state.primary["status"]["updatedNumberScheduled"] = 0
        kubevirt = builders.excluding_kubevirt(conditions={"Available": "False", "Progressing": "True"})
        state = dataclasses.replace(state, kubevirt=kubevirt)
        made = preparation.prepare(state, [vms.gpu()], Options(), self.OLD)
        assert "but virt-handler is being replaced, so" in made.unfinished

    def test_not_when_it_has_settled_or_nothing_was_prepared(self):
        assert self.found() is None
        assert self.found(vms.admission(*vms.policy()), annotations={names.VERSION_ANNOTATION: NEXT}) is None
