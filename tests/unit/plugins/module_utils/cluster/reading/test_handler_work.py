# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import handler_work
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading.handler_work import HandlerWork
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import ApiServer


def work_with(*vmis):
    return handler_work.read(ApiServer(*vmis).client(), ["n1", "n2"])


def vm(name, node, phase):
    vmi = kinds.VIRTUAL_MACHINE_INSTANCE.object(name, "vms", status={"phase": phase})
    vmi["metadata"]["labels"] = {names.NODE_NAME_LABEL: node}
    return vmi


def test_vms_are_started():
    found = work_with(vm("a", "n1", "Scheduled"), vm("b", "n1", "Scheduled"), vm("c", "n2", "Running"))
    assert found == {"n1": HandlerWork(("starting VM vms/a", "starting VM vms/b"))}


def test_vms_are_migrated_from_and_to_nodes():
    found = work_with(builders.migrating_vmi("n1", "n2"))
    assert found == dict.fromkeys(("n1", "n2"), HandlerWork(("migrating VM vms/moving",)))


def test_a_vm_is_taken_over_on_the_target():
    found = work_with(builders.migrating_vmi("n1", "n2", completed=True))
    assert found == {"n2": HandlerWork(("taking over VM vms/moving",))}


def test_vms_were_received():
    found = work_with(builders.migrated_vmi("n2"))
    assert {node: (work.busy, [str(vm) for vm in work.received]) for node, work in found.items()} == {
        "n2": ((), ["VM vms/migrated"])
    }


def test_of_other_nodes_is_left_out():
    assert work_with(builders.migrating_vmi("n3", "n4"), builders.migrated_vmi("n3"), vm("a", "n3", "Scheduled")) == {}
