# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""tests/control_plane/policies/test_hypervisors.py shows what KubeVirt makes of them."""

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import hypervisors


def test_are_kubevirts():
    found = {name: (each.name, each.resource, each.virt_type) for name, each in hypervisors.HYPERVISORS.items()}
    assert found == {
        "kvm": ("kvm", "devices.kubevirt.io/kvm", "kvm"),
        "hyperv-direct": ("hyperv-direct", "devices.kubevirt.io/mshv", "hyperv"),
    }


def test_no_two_have_one_device():
    """The launcher policy tells the hypervisor of a pod without virt-launcher by its device."""
    assert len(hypervisors.RESOURCES) == len(hypervisors.HYPERVISORS)
