# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import hypervisor
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GATE = {"developerConfiguration": {"featureGates": ["ConfigurableHypervisor"]}}
CONFIGURED = {"hypervisors": [{"name": "hyperv-direct"}]}


def kubevirt(configuration=(), **status):
    obj = builders.excluding_kubevirt(**status)
    obj["spec"]["configuration"] = dict(configuration)
    return obj


@pytest.mark.parametrize(
    ("configuration", "name"),
    [
        ({}, "kvm"),
        (CONFIGURED, "kvm"),  # without its gate
        (GATE, "kvm"),
        ({**GATE, **CONFIGURED}, "hyperv-direct"),
        ({**GATE, "hypervisors": [{}]}, "kvm"),
    ],
)
def test_of_the_cluster_is_that_of_its_configuration(configuration, name):
    assert hypervisor.of_cluster(kubevirt(configuration)) == name
