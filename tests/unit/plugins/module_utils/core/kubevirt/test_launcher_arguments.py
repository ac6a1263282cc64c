# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import launcher_arguments
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

LAUNCHER = "registry.example/virt-launcher"


def kubevirt(version="v1.9.0", *gates):
    made = builders.kubevirt()
    made["status"]["observedKubeVirtVersion"] = version
    made["spec"]["configuration"] = {"developerConfiguration": {"featureGates": [*gates]}}
    return made


def refused(tag, controller, *gates):
    found = launcher_arguments.refused(f"{LAUNCHER}:{tag}", controller, kubevirt("v1.7.0", *gates))
    return [argument.name for argument in found]


class TestRefused:
    def test_an_argument_that_is_always_passed(self):
        assert refused("v1.7.0-gpu", "v1.8.2") == refused("v1.7.3", "v1.9.0") == ["--hypervisor"]

    @pytest.mark.parametrize(
        ("tag", "controller"),
        [("v1.8.0", "v1.8.2"), ("v1.8.2", "v1.9.0"), ("v1.9.0", "v1.8.2"), ("v1.7.0", "v1.7.3")],
    )
    def test_nothing_else_without_feature_gates(self, tag, controller):
        assert refused(tag, controller) == []

    def test_an_argument_that_comes_with_a_feature_gate(self):
        assert refused("v1.8.2-gpu", "v1.9.0", "VMStatsCollector") == ["--vm-stats-collector"]
        assert refused("v1.9.0-gpu", "v1.9.0", "VMStatsCollector") == []
        assert refused("v1.8.2-gpu", "v1.8.2", "VMStatsCollector") == []
        assert refused("v1.7.0", "v1.9.0", "VGPULiveMigration") == ["--hypervisor", "--vgpu-dedicated-hook"]

    def test_a_gate_that_was_turned_off_again(self):
        made = kubevirt("v1.8.2", "FirmwareAutoSelection")
        assert launcher_arguments.refused(f"{LAUNCHER}:v1.8.2", "v1.9.0", made)
        made["spec"]["configuration"]["developerConfiguration"]["disabledFeatureGates"] = ["FirmwareAutoSelection"]
        assert launcher_arguments.refused(f"{LAUNCHER}:v1.8.2", "v1.9.0", made) == ()

    @pytest.mark.parametrize("tag", ["latest", "gpu", "v0.0.0", "v1.7.0-beta.0-1264-g0123abc"])
    def test_an_image_of_unknown_version_is_not_judged(self, tag):
        assert refused(tag, "v1.9.0") == []

    @pytest.mark.parametrize("controller", [None, "20261101_0123abc", "devel"])
    def test_a_controller_of_unknown_version_is_not_judged(self, controller):
        assert refused("v1.7.0", controller) == []


class TestFindings:
    IMAGES = {"gpu": f"{LAUNCHER}:v1.7.0-gpu", "l4": f"{LAUNCHER}:v1.8.2-l4"}  # noqa: RUF012

    def test_before_an_upgrade(self):
        (found,) = launcher_arguments.before_upgrade(self.IMAGES, "v1.8.2", kubevirt("v1.7.0"))
        assert (found.severity, found.code) == ("error", "upgrade_breaks_vm_starts")
        assert found.message == (
            f"Pool gpu: virt-launcher of {LAUNCHER}:v1.7.0-gpu refuses --hypervisor, which KubeVirt v1.8.2 passes to it. "
            "From the upgrade on, until site has handed over the pool's last node, none of its VMs would start and none "
            "could be migrated. Before the upgrade, run the playbook upgrade with a list whose virtLauncherImage is built for v1.8.2."
        )

    def test_before_an_upgrade_with_one_image_for_both_versions(self):
        (found,) = launcher_arguments.before_upgrade(self.IMAGES, "v1.8.2", kubevirt("v1.7.0"), one_image=True)
        assert found.message.endswith(
            "Before the upgrade, run site with a list in which only virtLauncherImage is of the new version, with allowSkew: true: "
            "launchers up to 1.9 know all that an older KubeVirt passes."
        )

    def test_the_pools_whose_vms_cannot_start(self):
        assert launcher_arguments.unusable(self.IMAGES, kubevirt("v1.8.2")) == {"gpu"}
        assert launcher_arguments.unusable(self.IMAGES, kubevirt("v1.7.0")) == frozenset()

    def test_before_an_upgrade_to_a_release_that_is_not_known(self):
        found = launcher_arguments.before_upgrade({"l4": self.IMAGES["l4"]}, "v1.10.0", kubevirt("v1.9.0"))
        assert [(each.severity, each.code) for each in found] == [("note", "upgrade_arguments_unknown")]
        assert list(launcher_arguments.before_upgrade({}, "v1.10.0", kubevirt("v1.9.0"))) == []

    def test_now(self):
        assert list(launcher_arguments.examine(self.IMAGES, kubevirt("v1.7.0"))) == []
        (found,) = launcher_arguments.examine(self.IMAGES, kubevirt("v1.9.0"))
        assert (found.severity, found.code) == ("error", "launcher_refuses_arguments")
        assert found.message == (
            "VMs of pool gpu cannot start or be migrated: KubeVirt v1.9.0 passes --hypervisor, which virt-launcher of "
            f"{LAUNCHER}:v1.7.0-gpu refuses. Run site with images built for v1.9.0."
        )
        (found,) = launcher_arguments.examine(self.IMAGES, kubevirt("v1.9.0"), {"gpu": 2})
        assert "gpu refuses: 2 launcher pods have failed for it. Run site" in found.message
        assert len(list(launcher_arguments.examine(self.IMAGES, kubevirt("v1.9.0", "VMStatsCollector")))) == 2

    def test_before_a_feature_gate(self):
        at_1_9 = kubevirt("v1.9.0")
        assert list(launcher_arguments.with_gates(["HostDevices"], self.IMAGES, at_1_9)) == []
        found = list(launcher_arguments.with_gates(["VMStatsCollector"], {"l4": self.IMAGES["l4"]}, at_1_9))
        assert [each.code for each in found] == ["gate_breaks_vm_starts"]
        assert "Pool l4" in found[0].message
        assert "--vm-stats-collector (feature gate VMStatsCollector)" in found[0].message

    def test_gates_that_come_with_arguments(self):
        assert launcher_arguments.come_with(["HostDevices", "VMStatsCollector"])
        assert not launcher_arguments.come_with(["HostDevices"])
