# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import migrations

MIGRATION = {"metadata": {"namespace": "vms", "name": "m"}, "spec": {"vmiName": "vm"}}


class TestMigrations:
    def test_end_where_their_vmi_says(self):
        vmi = {
            "metadata": {"namespace": "vms", "name": "vm"},
            "status": {"nodeName": "n1", "migrationState": {"sourceNode": "n1", "targetNode": "n2"}},
        }
        (found,) = migrations.active_migrations([MIGRATION], [vmi])
        assert (found.namespace, found.name, found.vmi) == ("vms", "m", "vm")
        assert found.nodes == {"n1", "n2"}

    def test_of_a_vmi_in_another_namespace_end_nowhere_yet(self):
        vmi = {"metadata": {"namespace": "other", "name": "vm"}, "status": {"nodeName": "n1"}}
        (found,) = migrations.active_migrations([MIGRATION], [vmi])
        assert found.nodes == frozenset()

    def test_end_at_their_target_pod_before_the_vmi_reports_it(self):
        migration = {"metadata": {**MIGRATION["metadata"], "uid": "m-uid"}, "spec": MIGRATION["spec"]}
        pods = [
            {"metadata": {"labels": {names.MIGRATION_LABEL: uid}}, "spec": {"nodeName": node}}
            for uid, node in (("m-uid", "n2"), ("other", "n3"))
        ]
        (found,) = migrations.active_migrations([migration], [], pods)
        assert found.nodes == {"n2"}

    def test_end_where_they_say_themselves(self):
        migration = {**MIGRATION, "status": {"phase": "Running", "migrationState": {"targetNode": "n3"}}}
        (found,) = migrations.active_migrations([migration], [])
        assert found.nodes == {"n3"}

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_that_have_ended_do_not_count(self, phase):
        assert migrations.active_migrations([{**MIGRATION, "status": {"phase": phase}}], []) == ()
