# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.criteria import PodAttributes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import prediction
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.rendering import Defaults
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, launcher_cases

ALWAYS = {"devices.kubevirt.io/kvm", "devices.kubevirt.io/tun", "devices.kubevirt.io/vhost-net"}


def predicted(spec=None, *, labels=None, name="vm", **more):
    return prediction.predict({"metadata": {"name": name, "labels": labels or {}}, "spec": spec or {}}, "demo", **more)


def devices(**own):
    return {"domain": {"devices": own}}


def test_is_the_launcher_pod_that_virt_controller_makes():
    pod = launcher_cases.launcher_pod(
        "gpu", labels={"workload": "gpu"}, node_selector={"zone": "a"}, devices={"devices.kubevirt.io/vhost-net": 1}
    )
    spec = {**devices(gpus=[{"name": "g", "deviceName": launcher_cases.A100}]), "nodeSelector": {"zone": "a"}}
    found = prediction.predict(
        {"metadata": {"labels": {"workload": "gpu"}}, "spec": spec}, "plain", {"t": "1"}, name="vm"
    ).attributes
    real = PodAttributes.from_pod(pod, {"t": "1"})
    assert (found.namespace, found.namespace_labels, found.node_selector, found.devices) == (
        real.namespace,
        real.namespace_labels,
        {**real.node_selector, **builders.MACHINE_TYPE},
        real.devices,
    )
    assert found.labels["workload"] == "gpu"
    assert found.labels["kubevirt.io"] == "virt-launcher"
    assert found.labels["vm.kubevirt.io/name"] == "vm"


def test_labels_of_kubevirt_go_before_those_of_the_vm():
    assert predicted(labels={"kubevirt.io": "other", "a": "b"}).attributes.labels == {
        "a": "b",
        "kubevirt.io": "virt-launcher",
        "vm.kubevirt.io/name": "vm",
        "vmi.kubevirt.io/id": "vm",
    }


@pytest.mark.parametrize(
    ("name", "spec", "label", "identity"),
    [
        ("db.prod", {}, "db", "db.prod"),
        ("db", {"hostname": "web"}, "web", "db"),
        ("d" * 64, {}, "d" * 63, f"{'d' * 54}-7d4f9b6d"),
    ],
)
def test_labels_with_the_name_are_as_kubevirt_cuts_it(name, spec, label, identity):
    labels = predicted(spec, name=name).attributes.labels
    assert (labels["vm.kubevirt.io/name"], labels["vmi.kubevirt.io/id"]) == (label, identity)


class TestDevices:
    def test_of_gpus_host_devices_and_limits_count(self):
        spec = devices(gpus=[{"deviceName": "a/gpu"}], hostDevices=[{"deviceName": "b/nic"}, {"deviceName": "b/nic"}])
        spec["domain"]["resources"] = {"limits": {"c/set-by-hand": "1", "memory": "1Gi"}}
        assert predicted(spec).attributes.devices == {*ALWAYS, "a/gpu", "b/nic", "c/set-by-hand", "memory"}

    def test_of_a_resource_claim_are_reported_as_unknown(self):
        found = predicted(devices(gpus=[{"name": "g", "claimName": "claim-1", "requestName": "r"}]))
        assert found.attributes.devices == ALWAYS
        assert builders.codes(found.findings) == ["device_from_claim"]
        assert "Device g of demo/vm comes from resource claim claim-1" in found.findings[0].message


NETWORKED = {
    **devices(interfaces=[{"name": "pod"}, {"name": "fast", "sriov": {}}, {"name": "slow", "bridge": {}}]),
    "networks": [
        {"name": "pod", "pod": {}},
        {"name": "fast", "multus": {"networkName": "vf"}},
        {"name": "slow", "multus": {"networkName": "shared/br"}},
    ],
}


class TestNetworks:
    def test_bring_the_device_that_their_definition_names(self):
        found = predicted(NETWORKED, networks={"demo/vf": "x/vf", "shared/br": None})
        assert found.attributes.devices == {*ALWAYS, "x/vf"}
        assert found.findings == ()

    def test_are_named_with_their_namespace(self):
        assert prediction.network_names({"spec": NETWORKED}, "demo") == ("demo/vf", "shared/br")

    def test_that_cannot_be_read_are_told_where_they_bring_a_device(self):
        found = predicted(NETWORKED)
        assert found.attributes.devices == ALWAYS
        assert "NetworkAttachmentDefinition demo/vf" in builders.message(found.findings, "network_unknown")


class TestPlacement:
    def node(self, **labels):
        made = builders.node(labels={"kubernetes.io/arch": "amd64", **labels})
        return Node.from_object(made)

    def test_avoids_obsolete_host_models_unless_a_cpu_model_is_given(self):
        obsolete = self.node(**{"node-labeller.kubevirt.io/obsolete-host-model": "true"})
        assert predicted().placement.unfit(obsolete) is not None
        assert predicted({"domain": {"cpu": {"model": "host-passthrough"}}}).placement.unfit(obsolete) is None
        assert predicted().placement.unfit(self.node()) is None
        assert predicted(defaults=Defaults(cpu_model="host-passthrough")).placement.unfit(obsolete) is None

    def test_of_arm_guests_has_no_host_model(self):
        assert predicted({"architecture": "arm64"}).placement.terms is None

    def test_keeps_off_nodes_with_a_forbidden_feature(self):
        spec = {"domain": {"cpu": {"features": [{"name": "vmx", "policy": "forbid"}]}}}
        assert predicted(spec).placement.unfit(self.node(**{"cpu-feature.node.kubevirt.io/vmx": "true"})) is not None

    def test_is_the_vms_own_beside_that(self):
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        spec = {
            "affinity": builders.affinity(term),
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "nodeSelector": {"rack": "1"},
        }
        placement = predicted(spec).placement
        assert placement.unfit(self.node(zone="a", rack="1")) is None
        assert placement.unfit(self.node(zone="b", rack="1")) is not None
        assert placement.unfit(self.node(zone="a")) is not None
        assert placement.tolerations == ({"key": "gpu", "operator": "Exists"},)
