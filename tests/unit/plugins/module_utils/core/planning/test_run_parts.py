# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Monitoring
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan, run_parts
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms


def parts(options=None, **fields):
    found = builders.snapshot_of(vms.nodes(), [vms.gpu()], **fields)
    return [part.name for part in plan.make_plan(found, [vms.gpu()], options or Options()).parts]


def test_they_are_in_the_order_to_write_them():
    assert parts(admission=vms.admission(), monitoring=Monitoring(served=True)) == list(run_parts.NAMES)


def test_what_was_not_read_has_no_part():
    assert parts(admission=None, monitoring=None) == []
    assert parts(admission=None, monitoring=Monitoring(served=True)) == ["alerts"]


def test_nodes_that_go_back_change_no_part():
    options = Options(restore_nodes=frozenset(["rest"]))
    assert parts(options, admission=vms.admission(), monitoring=Monitoring(served=True)) == []


class TestRemoval:
    @pytest.mark.parametrize("name", run_parts.NAMES)
    def test_of_nothing_has_nothing_to_do(self, name):
        part = run_parts.removal_of(name, builders.snapshot_of([], [], admission=vms.admission()))
        assert (part.name, part.steps, part.changes(0)) == (name, (), ())

    def test_of_the_guard_deletes_its_objects(self):
        objects = [obj for _kind, obj in guard.derive(builders.NAMESPACE, ())]
        found = builders.snapshot_of([], [vms.gpu()], admission=vms.admission(*objects, validating=True))
        lines = run_parts.removal_of("guard", found).changes(0)
        assert len(lines) == len(objects)
        assert all(line.endswith(": delete") for line in lines)

    def test_of_the_launcher_policy_deletes_its_objects(self):
        found = builders.snapshot_of([], [], admission=vms.admission(*vms.policy(vms.gpu())))
        part = run_parts.removal_of("launcher_policy", found)
        kind = kinds.MUTATING_ADMISSION_POLICIES[0].name
        assert part.changes(0) == (f"{kind}Binding {names.POLICY}: delete", f"{kind} {names.POLICY}: delete")
        assert part.facts(0) == {"backend": "none", "digest": None}
