# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


def patches(world):
    return world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)["spec"]["customizeComponents"].get("patches", [])


@pytest.fixture
def operator(world):
    """virt-operator, which takes a moment to carry the patches over to its DaemonSet."""

    def reconcile(request):
        if request.method == "PUT" and request.path.endswith("/kubevirts/kubevirt") and world.writes:
            excluded = any(map(exclusion._is_ours, patches(world)))
            world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)["metadata"]["generation"] = 2
            world.at[world.now + 10] = lambda: world.put(builders.primary(excluded=excluded, desired=2))

    world.after = reconcile
    return world


def migrate(world):
    """Begin a live migration."""
    vmi = kinds.VIRTUAL_MACHINE_INSTANCE.object("vm", "vms", status={"nodeName": "n1"})
    migration = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION.object("m1", "vms", spec={"vmiName": "vm"})
    for obj in (vmi, {**migration, "status": {"phase": "Running"}}):
        world.put(obj)


def end_migration(world):
    world.drop(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION, "m1", "vms")


class TestPresent:
    def test_is_installed_and_waited_for(self, run, operator):
        found = run("primary_exclusion")
        assert (found["changed"], found["object"]) == (True, "KubeVirt kubevirt/kubevirt")
        assert patches(operator) == [exclusion.PATCH]
        assert operator.now >= 1010
        assert found["changes"][0].startswith("KubeVirt kubevirt/kubevirt: keep the primary virt-handler off")
        assert operator.all(kinds.LEASE) == []

    def test_check_mode_predicts_and_writes_nothing(self, run, operator):
        predicted = run("primary_exclusion", check=True)
        assert operator.writes == []
        done = run("primary_exclusion")
        assert predicted["changes"] == done["changes"]
        assert predicted["diff"][0]["after"]["spec"] == done["diff"][0]["after"]["spec"]

    def test_twice_changes_nothing(self, run, operator):
        run("primary_exclusion")
        operator.writes.clear()
        assert run("primary_exclusion")["changed"] is False
        assert operator.writes == []

    def test_of_an_interrupted_run_is_waited_for_without_a_change(self, run, world):
        world.put(builders.excluding_kubevirt())
        world.at[world.now + 10] = lambda: world.put(builders.primary(desired=2))
        assert run("primary_exclusion")["changed"] is False
        assert world.now >= 1010

    @pytest.mark.parametrize("state", ["present", "absent"])
    def test_reminds_handlers_of_vms_before_they_restart(self, run, operator, state):
        if state == "absent":
            run("primary_exclusion")
        operator.put(builders.migrated_vmi("n1"))
        operator.writes.clear()
        assert run("primary_exclusion", state=state)["changed"] is True
        assert builders.reminders(operator.writes) == [0, 1]

    def test_reminds_also_a_handler_that_came_during_its_wait(self, run, operator):
        migrate(operator)

        def join():
            builders.joins_with_a_migrated_vm(operator)
            end_migration(operator)

        operator.at[operator.now + 60] = join
        assert run("primary_exclusion")["changed"] is True
        assert builders.reminders(operator.writes) == [0, 1]

    def test_waits_for_migrations_before_anything_is_changed(self, run, operator):
        migrate(operator)
        text = run.failure("primary_exclusion", migration_timeout=30)
        assert "Nothing was changed: live migrations did not end within 30 s, and " in text
        assert text.endswith(
            "VM vms/vm (migration m1, Running). Wait for them, or cancel them (`kubectl delete vmim m1 -n vms`), then run again."
        )
        assert patches(operator) == []

    @pytest.mark.parametrize("state", ["present", "absent"])
    def test_is_checked_again_after_it_has_waited(self, run, operator, state):
        """As when an autoscaler gives up a node, whose handler would not come back."""
        if state == "absent":
            run("primary_exclusion")
        migrate(operator)

        def taint():
            node = operator.find(kinds.NODE, "stays")
            node["spec"]["taints"] = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
            end_migration(operator)

        operator.at[operator.now + 60] = taint
        before = patches(operator)
        text = run.failure("primary_exclusion", state=state)
        assert "1 node would not get its handler back, because taint ToBeDeletedByClusterAutoscaler" in text
        assert patches(operator) == before

    def test_releases_no_node_whose_handler_works_by_then(self, run, operator):
        """The run waits for live migrations first."""
        operator.put(builders.handler_pod("n1", ready=False, waiting="ImagePullBackOff", name="broken"))
        migrate(operator)

        def repair():
            operator.put(builders.handler_pod("n1", name="broken"))
            end_migration(operator)

        operator.at[operator.now + 60] = repair
        found = run("primary_exclusion", released=["n1"])
        assert operator.node("n1").owner == names.PRIMARY
        assert len(found["changes"]) == 1  # the exclusion

    def test_is_refused_while_a_dead_node_would_hold_it_up(self, run, world):
        world.put(builders.node("dead", ready=False))
        world.put(builders.handler_pod("dead", ready=False))
        assert "would wait forever for 1 node" in run.failure("primary_exclusion")
        assert world.writes == []

    @pytest.mark.parametrize("deleted", [False, True], ids=["that stays", "that an autoscaler deletes"])
    def test_releases_a_node(self, run, operator, deleted):
        """The primary does not start there, and a pool will."""
        operator.put(builders.handler_pod("n1", ready=False, waiting="ImagePullBackOff"))

        def delete_node(request):
            if deleted and request.method == "PATCH" and request.path.endswith("/nodes/n1"):
                operator.drop(kinds.NODE, "n1")

        operator.before = delete_node
        found = run("primary_exclusion", released=["n1"])
        assert found["changes"][0] == "Node n1: primary -> in_transit"
        assert patches(operator) == [exclusion.PATCH]
        assert operator.find(kinds.NODE, "n1") is None if deleted else operator.node("n1").owner == names.IN_TRANSIT

    def test_releases_no_node_that_was_deleted_before(self, run, operator):
        """Its handler pod is still there for a while."""
        operator.put(builders.handler_pod("n1", ready=False, waiting="ImagePullBackOff"))
        operator.drop(kinds.NODE, "n1")
        (change,) = run("primary_exclusion", released=["n1"])["changes"]
        assert change.startswith("KubeVirt kubevirt/kubevirt: keep the primary virt-handler off")

    def test_is_refused_on_an_unfit_kubevirt(self, run, world):
        world.put(builders.kubevirt(conditions={"Degraded": "True"}))
        assert "is degraded" in run.failure("primary_exclusion")
        assert world.writes == []


class TestAbsent:
    def test_is_taken_back(self, run, operator):
        run("primary_exclusion")
        assert run("primary_exclusion", state="absent")["changed"]
        assert patches(operator) == []

    @pytest.mark.parametrize("owner", ["gpu", names.IN_TRANSIT, "", "primary"])
    def test_is_refused_while_a_node_would_get_a_second_handler(self, run, operator, owner):
        run("primary_exclusion")
        operator.put(builders.node("n9", owner))
        operator.writes.clear()
        text = run.failure("primary_exclusion", state="absent")
        assert "1 node still belongs to a pool (n9)" in text
        assert operator.writes == []

    def test_sees_what_another_run_did_until_it_had_the_lease(self, run, operator, other_run):
        run("primary_exclusion")
        operator.writes.clear()
        other_run(lambda: operator.put(builders.node("n9", "gpu")))
        text = run.failure("primary_exclusion", state="absent")
        assert "1 node still belongs to a pool (n9)" in text
        assert patches(operator) == [exclusion.PATCH]

    def test_of_nothing_changes_nothing(self, run, world):
        assert run("primary_exclusion", state="absent")["changed"] is False
        assert world.writes == []

    @pytest.mark.parametrize("condition", [{}, {"Available": "False"}])
    def test_that_somebody_else_removed_is_waited_for(self, run, world, condition):
        """The run has deleted the guard, and virt-operator makes up for what the guard has refused."""
        unsettled = builders.kubevirt(conditions=condition)
        unsettled["metadata"]["generation"] = unsettled["status"]["observedGeneration"] + 1
        world.put(unsettled)
        world.at[world.now + 10] = lambda: world.put(builders.kubevirt())
        assert run("primary_exclusion", state="absent")["changed"] is False
        assert world.now >= 1010
        assert world.writes == []
