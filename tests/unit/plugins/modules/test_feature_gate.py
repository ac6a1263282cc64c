# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator import OperatedWorld
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import stock


@pytest.fixture
def world():
    """With virt-operator, and HCO where there is its object: the module waits for them."""
    return OperatedWorld(*stock())


def gates(world):
    spec = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)["spec"]
    return spec.get("configuration", {}).get("developerConfiguration", {}).get("featureGates", [])


def test_is_turned_on_and_the_others_stay(run, world):
    kubevirt = builders.kubevirt()
    kubevirt["spec"]["configuration"] = {"developerConfiguration": {"featureGates": ["Snapshot"]}}
    world.put(kubevirt)
    found = run("feature_gate", present=["HostDevices"])
    assert (found["changed"], found["object"]) == (True, "KubeVirt kubevirt/kubevirt")
    assert sorted(gates(world)) == ["HostDevices", "Snapshot"]
    assert run("feature_gate", present=["HostDevices"])["changed"] is False


def test_check_mode_predicts_and_writes_nothing(run, world):
    predicted = run("feature_gate", present=["HostDevices"], check=True)
    assert (predicted["changed"], world.writes) == (True, [])
    assert predicted["changes"] == [
        "KubeVirt kubevirt/kubevirt: feature gates: enable HostDevices (spec.configuration.developerConfiguration)"
    ]
    assert predicted["diff"] == run("feature_gate", present=["HostDevices"])["diff"]


def test_that_nobody_knows_is_warned_about(run):
    found = run("feature_gate", present=["HostDevicez"])
    assert [finding["severity"] for finding in found["findings"]] == ["warning"]
    assert "HostDevicez" in str(found["warnings"])


def test_a_gate_that_a_launcher_refuses_is_warned_about(run, world):
    old = vms.gpu(virtLauncherImage="registry.example/virt-launcher:v1.8.2-gpu")
    for obj in vms.admission(*vms.policy(old)).objects.values():
        world.put(obj)
    found = run("feature_gate", present=["VMStatsCollector"])
    assert [finding["code"] for finding in found["findings"]] == ["gate_breaks_vm_starts"]
    assert "refuses --vm-stats-collector" in str(found["warnings"])
    assert run("feature_gate", present=["HostDevices"])["findings"] == []


def test_nothing_asked_for_changes_nothing(run, world):
    assert run("feature_gate")["changed"] is False
    assert world.writes == []


@pytest.mark.parametrize("bad", ["", "two words", "a,b"])
def test_no_name_is_refused(run, bad):
    assert run.failure("feature_gate", present=[bad])
    assert not run.connected


def test_under_hco_goes_into_its_annotation(run, monkeypatch):
    rendered = {"configuration": {"developerConfiguration": {"featureGates": ["Snapshot"]}}}
    monkeypatch.setattr(OperatedWorld, "rendered", rendered)
    run.world = world = OperatedWorld(*stock("HCO"))
    world.sleep(5)
    found = run("feature_gate", present=["HostDevices"])
    assert found["object"] == f"HyperConverged kubevirt/{names.HCO_NAME}"
    live = world.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE)
    assert "HostDevices" in live["metadata"]["annotations"][names.HCO_PATCH_ANNOTATION]
    assert gates(world) == ["Snapshot", "HostDevices"]


def test_an_operator_that_does_not_act_is_named(run, world):
    world.sleep = lambda seconds: None
    message = run.failure("feature_gate", present=["HostDevices"], timeout=0)
    assert message.startswith(
        "The feature gates were written, but KubeVirt kubevirt/kubevirt did not settle within 0 s: "
    )
