# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What KubeVirt adds to launcher pods. tests/control_plane/verify/test_prediction.py compares it with real pods."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.selectors import Term
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import rendering
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.rendering import Defaults
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

ALWAYS = {"kvm", "tun", "vhost-net"}
NEW, OLD, OLDEST = Defaults(release=(1, 9)), Defaults(release=(1, 8)), Defaults(release=(1, 7))
BASE = {"kubevirt.io/schedulable", "kubernetes.io/arch", "machine-type.node.kubevirt.io/q35"}


def limits(domain=None, defaults=NEW, namespace_labels=None, **spec):
    found = rendering.limits(defaults.completed({"domain": domain or {}, **spec}), namespace_labels, defaults)
    return {name.removeprefix("devices.kubevirt.io/") for name in found}


def selector(domain=None, defaults=NEW, **spec):
    return rendering.node_selector(defaults.completed({"domain": domain or {}, **spec}), defaults)


def labels(domain=None, defaults=NEW, **spec):
    return set(selector(domain, defaults, **spec)) - BASE


def secured(**security):
    return {"launchSecurity": security}


class TestLimits:
    @pytest.mark.parametrize(
        ("domain", "expected"),
        [
            ({}, ALWAYS),
            ({"devices": {"interfaces": [{"name": "x", "model": "e1000"}]}}, {"kvm", "tun"}),
            ({"devices": {"autoattachPodInterface": False}}, {"kvm"}),
            ({"devices": {"autoattachVSOCK": True}}, {*ALWAYS, "vhost-vsock"}),
            ({"devices": {"disks": [{"name": "d", "lun": {"reservation": True}}]}}, {*ALWAYS, "pr-helper"}),
            ({"devices": {"disks": [{"name": "d", "lun": {}}]}}, ALWAYS),
            ({"devices": {"panicDevices": [{}], "downwardMetrics": {}, "tpm": {}}}, ALWAYS),
            (secured(sev={}), {*ALWAYS, "sev"}),
            (secured(snp={}), {*ALWAYS, "sev"}),
            (secured(tdx={}), {*ALWAYS, "tdx"}),
            ({"memory": {"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}}}, {*ALWAYS, "hugepages-1Gi"}),
            ({"cpu": {"dedicatedCpuPlacement": True}}, {*ALWAYS, "cpu", "memory"}),
            ({"resources": {"limits": {"x/set-by-hand": "1"}}}, {*ALWAYS, "x/set-by-hand"}),
        ],
    )
    def test_have_what_kubevirt_adds(self, domain, expected):
        assert limits(domain) == expected

    @pytest.mark.parametrize("defaults", [OLD, OLDEST])
    def test_have_no_device_for_tdx_before_1_9(self, defaults):
        assert limits(secured(tdx={}), defaults) == ALWAYS

    def test_depend_on_the_hypervisor(self):
        assert limits(defaults=Defaults(hypervisor="hyperv-direct")) == {"mshv", "tun", "vhost-net"}
        assert limits(defaults=Defaults(hypervisor="unknown")) == ALWAYS
        assert limits(defaults=Defaults(emulation=True)) == {"tun"}

    def test_depend_on_a_feature_gate(self):
        assert limits(defaults=Defaults(gates=frozenset({"IOMMUFD"}))) == {*ALWAYS, "iommufd"}

    def test_depend_on_the_namespace(self):
        defaults = Defaults(cpu_limit_namespaces=Term.from_labels({"limited": "yes"}))
        assert limits(defaults=defaults, namespace_labels={"limited": "yes"}) == {*ALWAYS, "cpu"}
        assert limits(defaults=defaults, namespace_labels=None) == ALWAYS


class TestNodeSelector:
    def test_has_the_vms_labels_and_kubevirts(self):
        assert selector(nodeSelector={"zone": "a"}) == {
            "zone": "a",
            "kubernetes.io/arch": "amd64",
            "kubevirt.io/schedulable": "true",
            "machine-type.node.kubevirt.io/q35": "true",
        }

    def test_has_the_configurations_terms_unless_the_vm_has_its_own(self):
        defaults = Defaults(architecture="arm64", node_selector={"zone": "z", "tier": "vm"})
        found = selector(defaults=defaults, nodeSelector={"zone": "a"})
        assert (found["zone"], found["tier"], found["kubernetes.io/arch"]) == ("a", "vm", "arm64")
        assert found["machine-type.node.kubevirt.io/virt"] == "true"
        assert selector(defaults=defaults, architecture="S390X")["kubernetes.io/arch"] == "s390x"

    @pytest.mark.parametrize(("defaults", "label"), [(NEW, "kubevirt.io/cpumanager"), (OLDEST, "cpumanager")])
    def test_has_what_the_cpu_needs(self, defaults, label):
        cpu = {
            "model": "Haswell",
            "dedicatedCpuPlacement": True,
            "realtime": {},
            "features": [
                *({"name": "aes"}, {"name": "avx", "policy": ""}, {"name": "fma", "policy": "require"}),
                *({"name": "vmx", "policy": "optional"}, {"name": "sse", "policy": "forbid"}),
            ],
        }
        features = {f"cpu-feature.node.kubevirt.io/{name}" for name in ("aes", "avx", "fma")}
        expected = {"cpu-model.node.kubevirt.io/Haswell", *features, "kubevirt.io/realtime"}
        assert labels({"cpu": cpu}, defaults) == {*expected, label}

    def test_has_the_machine_type(self):
        assert "machine-type.node.kubevirt.io/pc-q35-9.0" in selector({"machine": {"type": "pc-q35-9.0"}})

    @pytest.mark.parametrize(
        ("security", "architecture", "expected"),
        [
            ({"sev": {}}, "amd64", {"sev"}),
            ({"sev": {"policy": {"encryptedState": True}}}, "amd64", {"sev", "sev-es"}),
            ({"snp": {}}, "amd64", {"sev", "sev-snp"}),
            ({"tdx": {}}, "amd64", {"tdx"}),
            ({}, "amd64", set()),
        ],
    )
    def test_has_what_confidential_guests_need(self, security, architecture, expected):
        for defaults in (NEW, OLDEST):
            found = labels(secured(**security), defaults, architecture=architecture)
            assert found == {f"kubevirt.io/{name}" for name in expected}

    def test_has_what_secure_execution_needs(self):
        found = labels(secured(), architecture="s390x")
        assert found == {"kubevirt.io/s390-pv", "machine-type.node.kubevirt.io/s390-ccw-virtio"}

    def test_has_hyperv_features_only_with_a_gate(self):
        domain = {"features": {"hyperv": {"synictimer": {}, "vapic": {}, "runtime": {"enabled": False}, "evmcs": {}}}}
        assert labels(domain) == {"cpu-feature.node.kubevirt.io/vmx"}
        strict = Defaults(gates=frozenset({"HypervStrictCheck"}))
        assert labels(domain, strict) == {
            "cpu-feature.node.kubevirt.io/vmx",
            "cpu-vendor.node.kubevirt.io/Intel",
            *(f"hyperv.node.kubevirt.io/{name}" for name in ("synictimer", "synic", "vpindex")),
        }

    @pytest.mark.parametrize(
        ("hyperv", "expected"),
        [({}, set()), ({"vapic": {}}, set()), ({"runtime": {}}, {"runtime"}), ({"ipi": {}}, {"ipi", "vpindex"})],
    )
    def test_has_no_hyperv_features_that_none_needs(self, hyperv, expected):
        found = labels({"features": {"hyperv": hyperv}}, Defaults(gates=frozenset({"HypervStrictCheck"})))
        assert found == {f"hyperv.node.kubevirt.io/{name}" for name in expected}

    def test_has_no_architecture_where_others_are_emulated(self):
        emulating = Defaults(gates=frozenset({"CrossArchitectureVirtualization"}))
        found = selector(defaults=emulating, architecture="arm64")
        assert "kubernetes.io/arch" not in found
        assert found["kubevirt.io/vm-arch-arm64"] == "true"


class TestDefaults:
    @pytest.mark.parametrize(
        ("spec", "status", "expected"),
        [
            ({}, {}, Defaults()),
            ({}, {"defaultArchitecture": "arm64"}, Defaults(architecture="arm64")),
            (
                {"configuration": {"architectureConfiguration": {"defaultArchitecture": "s390x"}}},
                {"defaultArchitecture": "arm64"},
                Defaults(architecture="s390x"),
            ),
            ({"configuration": {"developerConfiguration": {"useEmulation": True}}}, {}, Defaults(emulation=True)),
            ({"configuration": {"hypervisors": [{"name": "hyperv-direct"}]}}, {}, Defaults()),
            ({"configuration": {"cpuModel": "Haswell"}}, {}, Defaults(cpu_model="Haswell")),
            (
                {"configuration": {"developerConfiguration": {"nodeSelectors": {"tier": "vm"}}}},
                {},
                Defaults(node_selector={"tier": "vm"}),
            ),
            ({}, {"observedKubeVirtVersion": "v1.8.2"}, Defaults(release=(1, 8))),
            (
                {"configuration": {"autoCPULimitNamespaceLabelSelector": {"matchLabels": {"a": "b"}}}},
                {},
                Defaults(cpu_limit_namespaces=Term.from_labels({"a": "b"})),
            ),
        ],
    )
    def test_are_kubevirts(self, spec, status, expected):
        assert Defaults.from_kubevirt({"metadata": {"name": "kubevirt"}, "spec": spec, "status": status}) == expected

    def test_have_the_machine_types_of_the_configuration(self):
        of_amd64 = {"architectureConfiguration": {"amd64": {"machineType": "pc-q35-9.0"}}}
        kubevirt = builders.kubevirt()
        kubevirt["spec"]["configuration"] = of_amd64
        found = Defaults.from_kubevirt(kubevirt).machine_types
        assert (found["amd64"], found["arm64"]) == ("pc-q35-9.0", "virt")
        kubevirt["spec"]["configuration"] = {**of_amd64, "machineType": "q35-of-all"}
        assert set(Defaults.from_kubevirt(kubevirt).machine_types.values()) == {"q35-of-all"}

    def test_have_the_gates_that_this_release_knows(self):
        gates = ["HypervStrictCheck", "IOMMUFD", "VMExport"]
        kubevirt = builders.kubevirt()
        kubevirt["spec"]["configuration"] = {"developerConfiguration": {"featureGates": gates}}
        assert Defaults.from_kubevirt(kubevirt).gates == {"HypervStrictCheck", "IOMMUFD"}
        kubevirt["status"]["observedKubeVirtVersion"] = "v1.8.2"
        assert Defaults.from_kubevirt(kubevirt).gates == {"HypervStrictCheck"}
