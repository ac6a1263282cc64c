# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a build of KubeVirt offers for pools that virt-operator makes."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.operator_api import (
    operator_pool_fields,
    operator_pools_in_use,
)


class TestOperatorPools:
    def crd(self, *fields, **version):
        schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": {name: {} for name in fields}}}}}
        return {"spec": {"versions": [{"name": "v1", "served": True, "schema": schema, **version}]}}

    def test_fields_of_the_crd(self):
        assert operator_pool_fields(self.crd("infra", "workerPools", "virtHandlerPools")) == (
            "virtHandlerPools",
            "workerPools",
        )

    def test_a_stock_crd_has_none(self):
        assert operator_pool_fields(self.crd("infra", "workloads")) == ()
        assert operator_pool_fields({}) == ()

    def test_a_version_that_is_not_served_does_not_count(self):
        assert operator_pool_fields(self.crd("workerPools", served=False)) == ()

    def test_in_use(self):
        assert operator_pools_in_use({"spec": {"workerPools": [{"name": "a"}], "virtHandlerPools": []}}) == (
            "workerPools",
        )
        assert operator_pools_in_use({}) == ()
