# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import migrations
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

MIGRATION = {"metadata": {"namespace": "vms", "name": "m"}, "spec": {"vmiName": "vm"}}
VMI = {"metadata": {"namespace": "vms", "name": "vm"}, "status": {"nodeName": "n1"}}
SENDER, RECEIVER = {"sendTo": {"migrationID": "x"}}, {"receive": {"migrationID": "x"}}


def migration(phase=None, state=None, conditions=(), **spec):
    status = {"phase": phase, "migrationState": state, "conditions": list(conditions)}
    metadata = {**MIGRATION["metadata"], "uid": "m-uid"}
    return {"metadata": metadata, "spec": {**MIGRATION["spec"], **spec}, "status": status}


def nodes_of(of, *vmis, target=None):
    pods = [{"metadata": {"labels": {names.MIGRATION_LABEL: "m-uid"}}, "spec": {"nodeName": target}}] if target else []
    (found,) = migrations.active_migrations([of], vmis or [VMI], pods)
    return found.nodes


HERE = {"phase": "Running", "nodeName": "n2"}
CAME = {"completed": True, "targetNode": "n2", "endTimestamp": "2026-11-27T12:00:00Z"}
ENDED = 1795780800.0


class TestArrivals:
    @pytest.mark.parametrize(
        ("status", "started", "forgotten"),
        [
            ({**HERE, "migrationState": CAME}, ENDED - 1000, True),
            ({**HERE, "migrationState": CAME}, ENDED + 59, True),
            ({**HERE, "migrationState": CAME}, ENDED + 61, False),
            ({**HERE, "migrationState": {**CAME, "endTimestamp": None}}, ENDED + 61, True),
            ({**HERE, "migrationState": {**CAME, "failed": True}}, 0, False),
            ({**HERE, "migrationState": {**CAME, "completed": False}}, 0, False),
            ({**HERE, "migrationState": {**CAME, "targetNode": "n1"}}, 0, False),
            ({**HERE, "phase": "Succeeded", "migrationState": CAME}, 0, False),
            (HERE, 0, False),
            (None, 0, False),
        ],
    )
    def test_came_to_the_handler_that_runs_there(self, status, started, forgotten):
        arrival = migrations.Arrival.of({"metadata": {"name": "vm"}, "status": status})
        assert (arrival is not None and arrival.may_be_forgotten(started)) is forgotten

    def test_of_one_vm_have_a_key_each(self):
        states = ({**CAME, "migrationUid": uid} for uid in ("first", "second", "second"))
        first, second, again = (
            migrations.Arrival.of({"metadata": {"name": "vm"}, "status": {**HERE, "migrationState": state}})
            for state in states
        )
        assert first.key != second.key == again.key


class TestMigratingVm:
    @pytest.mark.parametrize(
        "ended", [{}, {"completed": True}, {"failed": True}, {"endTimestamp": "2026-11-30T12:00:00Z"}], ids=str
    )
    def test_migrates_until_that_has_ended(self, ended):
        assert migrations.is_migrating(builders.migrating_vmi("n1", "n2", **ended)) is not bool(ended)

    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            ({}, False),
            ({"endTimestamp": "2026-11-30T12:00:00Z"}, True),
            ({"completed": True}, True),
            ({"completed": True, "failed": True}, False),
        ],
        ids=str,
    )
    def test_is_taken_over_after_it_has_ended_well(self, state, expected):
        assert migrations.is_taking_over(builders.migrating_vmi("n1", "n2", **state)) is expected

    def test_is_taken_over_until_its_target_has_cleaned_up(self):
        assert not migrations.is_taking_over(builders.migrated_vmi("n2"))

    @pytest.mark.parametrize(
        "status",
        [
            {},
            {"phase": "Running", "migrationState": {"sourceNode": "n1"}},
            {"phase": "Failed", "migrationState": {"targetNode": "n2"}},
        ],
        ids=["no migration", "no target yet", "the VM has ended"],
    )
    def test_needs_no_handler_otherwise(self, status):
        assert not migrations.is_migrating({"metadata": {"name": "vm"}, "status": status})


class TestMigrations:
    def test_end_where_their_vmi_says(self):
        vmi = {
            "metadata": {"namespace": "vms", "name": "vm"},
            "status": {"nodeName": "n1", "migrationState": {"sourceNode": "n1", "targetNode": "n2"}},
        }
        (found,) = migrations.active_migrations([MIGRATION], [vmi])
        assert (found.namespace, found.name, found.vmi) == ("vms", "m", "vm")
        assert found.nodes == {"n1", "n2"}

    def test_of_a_vmi_in_another_namespace_have_no_pods(self):
        vmi = {"metadata": {"namespace": "other", "name": "vm"}, "status": {"nodeName": "n1"}}
        (found,) = migrations.active_migrations([MIGRATION], [vmi])
        assert found.nodes == frozenset()

    def test_come_in_the_order_of_their_names(self):
        places = [("b", "m"), ("a", "z"), ("a", "m")]
        several = [{**MIGRATION, "metadata": {"namespace": namespace, "name": name}} for namespace, name in places]
        found = migrations.active_migrations(several, [])
        assert [(each.namespace, each.name) for each in found] == sorted(places)

    def test_are_described_with_their_vm(self):
        (found,) = migrations.active_migrations([MIGRATION], [VMI])
        assert str(found) == "VM vms/vm (migration m, Pending)"

    def test_end_at_their_target_pod_before_the_vmi_reports_it(self):
        migration = {"metadata": {**MIGRATION["metadata"], "uid": "m-uid"}, "spec": MIGRATION["spec"]}
        pods = [
            {"metadata": {"labels": {names.MIGRATION_LABEL: uid}}, "spec": {"nodeName": node}}
            for uid, node in (("m-uid", "n2"), ("other", "n3"))
        ]
        (found,) = migrations.active_migrations([migration], [], pods)
        assert found.nodes == {"n2"}

    def test_end_where_they_say_themselves(self):
        assert nodes_of(migration("Running", {"targetNode": "n3"})) == {"n1", "n3"}

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_that_have_ended_do_not_count(self, phase):
        assert migrations.active_migrations([{**MIGRATION, "status": {"phase": phase}}], []) == ()


class TestThatMayNeverEnd:
    """They have no pod, or cannot go on before another one than KubeVirt does something."""

    @pytest.mark.parametrize(
        ("phase", "spec"),
        [
            ("WaitingForSync", RECEIVER),
            ("Pending", RECEIVER),
            ("Synchronizing", SENDER),
            ("Pending", SENDER),
            ("Scheduling", SENDER),
            (None, SENDER),
        ],
    )
    def test_hold_no_node_without_their_other_half(self, phase, spec):
        of = migration(phase, **spec)
        assert migrations.waits_for_other_half(of)
        assert nodes_of(of) == frozenset()

    @pytest.mark.parametrize(("phase", "spec"), [("Scheduling", RECEIVER), ("Scheduled", SENDER), ("Running", SENDER)])
    def test_hold_nodes_once_they_have_it(self, phase, spec):
        of = migration(phase, **spec)
        assert not migrations.waits_for_other_half(of)
        assert nodes_of(of) == {"n1"}

    def test_hold_the_node_of_a_target_pod_always(self):
        assert nodes_of(migration("Pending", **RECEIVER), target="n2") == {"n2"}

    def test_do_not_take_a_node_of_the_other_cluster_for_one_here(self):
        assert nodes_of(migration("Running", {"sourceNode": "n1", "targetNode": "n7"}, **SENDER)) == {"n1"}

    def test_hold_no_node_of_a_vm_that_does_not_exist(self):
        deleted = migration("Scheduling", {"sourceNode": "n1"})
        assert migrations.active_migrations([deleted], [])[0].nodes == frozenset()

    def test_hold_no_node_of_a_vm_that_has_ended(self):
        ended = {**VMI, "status": {"nodeName": "n1", "phase": "Failed"}}
        assert nodes_of(migration("Pending"), ended) == frozenset()

    def test_hold_no_node_while_a_quota_rejects_their_pod(self):
        condition = {"type": "migrationRejectedByResourceQuota", "status": "True"}
        assert nodes_of(migration("Pending", conditions=[condition])) == frozenset()

    def test_hold_no_node_of_an_earlier_migration_of_the_vm(self):
        earlier = {"migrationUid": "earlier", "sourceNode": "n8", "targetNode": "n1"}
        assert nodes_of(migration("Pending"), {**VMI, "status": {"nodeName": "n1", "migrationState": earlier}}) == {
            "n1"
        }
