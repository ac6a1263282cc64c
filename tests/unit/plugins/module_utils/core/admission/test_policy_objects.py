# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import launcher_policy, policy_objects
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

SERVED = kinds.MUTATING_ADMISSION_POLICIES[0]
POLICY, BINDING = f"{SERVED} {names.POLICY}", f"{SERVED}Binding {names.POLICY}"


def table(image):
    selector = {"deviceNames": ["nvidia.com/A100"]}
    return Table.for_pools([builders.pool("gpu", virtLauncherImage=image, selector=selector)])


def derived(image="registry.example/virt-launcher:gpu"):
    return launcher_policy.derive(table(image), builders.NAMESPACE, SERVED)


def live(desired, *, ours=True):
    objects = [copy.deepcopy(obj) for _kind, obj in desired]
    for obj in objects:
        if not ours:
            obj["metadata"].pop("labels", None)
    return Admission(policy_kind=SERVED, objects={(obj["kind"], obj["metadata"]["name"]): obj for obj in objects})


class TestLiveObjects:
    def test_come_with_the_binding_first(self):
        found = policy_objects.live_objects(live(derived()), names.POLICY)
        assert [f"{obj['kind']} {obj['metadata']['name']}" for obj in found] == [BINDING, POLICY]

    def test_of_others_are_left_out(self):
        assert policy_objects.live_objects(live(derived(), ours=False), names.POLICY) == ()

    @pytest.mark.parametrize("admission", [None, Admission()])
    def test_are_none_where_none_exist(self, admission):
        assert policy_objects.live_objects(admission, names.POLICY) == ()


class TestToWrite:
    def test_has_what_is_missing(self):
        desired = derived()
        assert policy_objects.to_write(desired, Admission(policy_kind=SERVED)) == tuple(obj for _kind, obj in desired)

    def test_has_nothing_where_all_is_as_desired(self):
        assert policy_objects.to_write(derived(), live(derived())) == ()

    def test_has_only_what_differs(self):
        found = policy_objects.to_write(derived("registry.example/virt-launcher:next"), live(derived()))
        assert [obj["kind"] for obj in found] == [str(SERVED)]


def test_objects_of_others_under_our_names_are_errors():
    found = list(policy_objects.foreign_findings(derived(), live(derived(), ours=False)))
    assert builders.codes(found, "error") == ["launcher_policy_foreign"] * 2
    assert POLICY in found[0].message
    assert not list(policy_objects.foreign_findings(derived(), live(derived())))


def test_changes_are_lines_with_what_happens():
    objects = [obj for _kind, obj in derived()]
    assert policy_objects.change_lines(objects[:1], policy_objects.removals(objects[1:]), Admission()) == (
        f"{POLICY}: create",
        f"{BINDING}: delete",
    )
    assert policy_objects.change_lines(objects[:1], (), live(derived())) == (f"{POLICY}: update",)
