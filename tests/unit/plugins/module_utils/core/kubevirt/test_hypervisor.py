# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion, hypervisor, preflight
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

SELECTOR = {"vmLabels": {"matchLabels": {"kubevirt.io/hypervisor": "mshv"}}}
MSHV_DEVICE = "devices.kubevirt.io/mshv"
GATE = {"developerConfiguration": {"featureGates": ["ConfigurableHypervisor"]}}
CONFIGURED = {"hypervisors": [{"name": "hyperv-direct"}]}
EMULATING = {"developerConfiguration": {"useEmulation": True}}


def pool(name="mshv", **fields):
    return builders.pool(name, **{"hypervisor": "hyperv-direct", "selector": SELECTOR, **fields})


def kubevirt(configuration=(), **status):
    obj = builders.excluding_kubevirt(**status)
    obj["spec"]["configuration"] = dict(configuration)
    return obj


def node(*, devices=(MSHV_DEVICE,), **fields):
    obj = builders.node("n1", "mshv", **fields)
    obj["status"]["allocatable"] = dict.fromkeys(devices, "1k")
    return obj


def found(*pools, configuration=(), nodes=(), live=(), **status):
    snapshot = builders.snapshot_of(nodes, live, of_kubevirt=kubevirt(configuration, **status))
    return list(hypervisor.check(snapshot, pools))


def codes(*args, **options):
    return {each.code: each.severity for each in found(*args, **options)}


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


def test_a_list_without_hypervisors_needs_nothing():
    by_kvm = pool("gpu", hypervisor=None, selector={"deviceNames": ["devices.kubevirt.io/kvm"]})
    assert codes(by_kvm, configuration=EMULATING, observedKubeVirtVersion="v1.7.0") == {}


class TestCheck:
    def test_tells_what_the_handler_must_bring(self):
        assert codes(pool()) == {"hypervisor_of_handler": "note"}
        (finding,) = found(pool())
        assert "must offer devices.kubevirt.io/mshv (/dev/mshv) to the kubelet" in finding.message

    @pytest.mark.parametrize(
        ("name", "configuration"), [("kvm", {}), ("kvm", CONFIGURED), ("hyperv-direct", {**GATE, **CONFIGURED})]
    )
    def test_kubevirts_own_handler_serves_that_of_the_configuration(self, name, configuration):
        stock = pool(hypervisor=name, virtHandlerImage=builders.HANDLER_IMAGE)
        assert codes(stock, configuration=configuration) == {}

    @pytest.mark.parametrize("image", [None, builders.HANDLER_IMAGE])
    def test_kubevirts_own_handler_serves_no_other(self, image):
        without = pool(virtHandlerImage=image, virtLauncherImage=builders.GPU_LAUNCHER_IMAGE)
        assert codes(without) == {"hypervisor_needs_handler": "error"}

    def test_a_kubevirt_without_the_argument_is_refused(self):
        (finding,) = [each for each in found(pool(), observedKubeVirtVersion="v1.7.3") if each.severity == "error"]
        assert finding.code == "hypervisor_unsupported"
        assert "KubeVirt v1.7.3 runs VMs on KVM only and passes no --hypervisor" in finding.message
        assert codes(pool(), observedKubeVirtVersion="v1.8.0") == {"hypervisor_of_handler": "note"}

    def test_emulation_makes_it_void(self):
        assert codes(pool(), configuration=EMULATING) == {"hypervisor_emulated": "warning"}

    def test_no_pool_may_select_by_a_device_that_changes(self):
        """The policy is called again for the pod that it has changed."""
        by_device = builders.pool("gpu", selector={"deviceNames": ["devices.kubevirt.io/kvm", "a.example/b"]})
        assert codes(by_device) == {}
        assert codes(by_device, pool()) == {
            "hypervisor_device_selected": "error",
            "hypervisor_of_handler": "note",
        }

    def test_nodes_without_the_device_are_named(self):
        assert codes(pool(), nodes=[node()]) == {"hypervisor_of_handler": "note"}
        (finding,) = [each for each in found(pool(), nodes=[node(devices=())]) if each.severity == "warning"]
        assert finding.code == "hypervisor_not_offered"
        assert finding.message.startswith("1 node of pool mshv (n1) offers no devices.kubevirt.io/mshv, so no VM")

    @pytest.mark.parametrize("fields", [{"ready": False}, {"former": "primary"}])
    def test_a_node_without_a_handler_yet_offers_none(self, fields):
        assert codes(pool(), nodes=[node(devices=(), **fields)]) == {"hypervisor_of_handler": "note"}

    @pytest.mark.parametrize(("before", "after"), [(None, "hyperv-direct"), ("hyperv-direct", "kvm")])
    def test_a_pool_with_nodes_cannot_change_it(self, before, after):
        live, wanted = pool(hypervisor=before), pool(hypervisor=after)
        errors = [each for each in found(wanted, nodes=[node()], live=[live]) if each.severity == "error"]
        assert [each.code for each in errors] == ["hypervisor_changed"]
        assert f"cannot change from {before or 'kvm'} to {after}" in errors[0].message
        assert "hypervisor_changed" not in codes(wanted, live=[live])

    def test_to_write_down_what_it_is_anyway_is_no_change(self):
        assert "hypervisor_changed" not in codes(pool(hypervisor="kvm"), nodes=[node()], live=[pool(hypervisor=None)])

    def test_is_part_of_the_checks_before_a_change(self):
        snapshot = builders.snapshot_of(of_kubevirt=kubevirt(observedKubeVirtVersion="v1.7.0"))
        edit = exclusion.with_exclusion(snapshot.kubevirt, None)
        assert "hypervisor_unsupported" in builders.codes(list(preflight.check(snapshot, [pool()], edit)))
