# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import leftovers
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.leftovers import Leftover
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms


class TestPullPod:
    @pytest.mark.parametrize("purpose", [names.PULL, names.START])
    def test_has_the_name_that_its_node_gives_it(self, purpose):
        pod = builders.pull_pod()
        pod["metadata"]["name"] = names.pull_pod_name(purpose, "n1")
        assert leftovers.is_pull_pod(pod)

    @pytest.mark.parametrize("name", ["copy", names.pull_pod_name(names.PULL, "n2")])
    def test_is_not_a_copy_of_one(self, name):
        pod = builders.pull_pod()
        pod["metadata"]["name"] = name
        assert not leftovers.is_pull_pod(pod)

    @pytest.mark.parametrize("label", [names.PULL_LABEL, names.MANAGED_BY_LABEL])
    def test_has_both_labels(self, label):
        pod = builders.pull_pod()
        del pod["metadata"]["labels"][label]
        assert not leftovers.is_pull_pod(pod)

    def test_has_a_node(self):
        pod = builders.pull_pod()
        del pod["spec"]
        assert not leftovers.is_pull_pod(pod)


class TestCanaryVm:
    def test_has_the_name_that_its_pool_gives_it(self):
        assert leftovers.is_canary_vm(vms.canary_vm())

    def test_is_not_a_copy_of_one(self):
        assert not leftovers.is_canary_vm(vms.canary_vm("ml-training"))
        assert not leftovers.is_canary_vm(vms.canary_vm(**{names.CANARY_LABEL: "rt"}))

    def test_is_not_one_of_another_client(self):
        assert not leftovers.is_canary_vm(vms.canary_vm(**{names.MANAGED_BY_LABEL: "other"}))


def test_a_leftover_is_known_by_its_uid():
    first, second = vms.canary_vm(), vms.canary_vm()
    first["metadata"]["uid"], second["metadata"]["uid"] = "1", "2"
    assert Leftover.from_object(first) != Leftover.from_object(second)
    assert str(Leftover.from_object(first)) == "team-a/virt-canary-gpu"
