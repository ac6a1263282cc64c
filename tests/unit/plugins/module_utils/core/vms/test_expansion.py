# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms import expansion, prediction

GPU = {"name": "gpu1", "deviceName": "nvidia.com/A100"}
INSTANCETYPE = {"metadata": {"name": "gpu.large"}, "spec": {"cpu": {"guest": 2}, "gpus": [GPU]}}


def vm(instancetype=None, preference=None, status=None, template=None, **spec):
    fields = {"instancetype": instancetype, "preference": preference, **spec}
    made = {"metadata": {"name": "vm", "namespace": "demo"}, "spec": {k: v for k, v in fields.items() if v}}
    made["spec"]["template"] = {"spec": template or {}}
    return {**made, "status": status} if status else made


def store(*objects):
    """A function that reads from these pairs of kind and object."""
    known = {(kind, obj["metadata"].get("namespace"), obj["metadata"]["name"]): obj for kind, obj in objects}
    return lambda kind, name, namespace: known.get((kind, namespace, name))


def revision(name, of="gpu.large", **spec):
    labels = {"instancetype.kubevirt.io/object-name": of} if of else {}
    return kinds.CONTROLLER_REVISION, {
        "metadata": {"name": name, "namespace": "demo", "labels": labels},
        "data": {"metadata": {"name": of}, "spec": {"gpus": [{"name": "g", "deviceName": f"from/{name}"}], **spec}},
    }


def devices(found):
    return {
        device
        for device in prediction.predict(found["spec"]["template"], "demo").attributes.devices
        if not device.startswith("devices.kubevirt.io/")
    }


LIVE = (kinds.CLUSTER_INSTANCETYPE, INSTANCETYPE)
NAMED = {"name": "gpu.large"}


class TestExpand:
    def test_gives_the_vm_what_the_instancetype_has(self):
        spec = {
            **INSTANCETYPE["spec"],
            "hostDevices": [{"name": "h", "deviceName": "x/nic"}],
            "nodeSelector": {"zone": "a"},
            "schedulerName": "other",
            "annotations": {"a": "b"},
            "cpu": {"guest": 2, "model": "Haswell", "dedicatedCPUPlacement": True, "realtime": {}},
            "memory": {"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}},
        }
        before = vm(NAMED)
        given = copy.deepcopy(before)
        found = expansion.expand_with(before, {"spec": spec}, None)
        assert before == given
        assert devices(found) == {"nvidia.com/A100", "x/nic", "hugepages-1Gi", "cpu", "memory"}
        template = found["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"zone": "a"}
        assert template["spec"]["schedulerName"] == "other"
        assert template["spec"]["domain"]["cpu"] == {
            "model": "Haswell",
            "dedicatedCpuPlacement": True,
            "realtime": {},
        }
        assert template["metadata"]["annotations"] == {"a": "b"}
        assert "instancetype" not in found["spec"]

    def test_leaves_a_vm_without_either_alone(self):
        alone = vm()
        assert expansion.expand(alone, store()) is alone

    @pytest.mark.parametrize(
        ("template", "instancetype", "field"),
        [
            ({"domain": {"devices": {"gpus": [GPU]}}}, {"gpus": [GPU]}, "spec.template.spec.domain.devices.gpus"),
            ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"c": "d"}}, "spec.template.spec.nodeSelector"),
            ({"domain": {"cpu": {"sockets": 2}}}, {"cpu": {"guest": 2}}, "spec.template.spec.domain.cpu.sockets"),
            ({"domain": {"cpu": {"model": "a"}}}, {"cpu": {"model": "a"}}, "spec.template.spec.domain.cpu.model"),
        ],
    )
    def test_refuses_what_both_say_as_kubevirt_does(self, template, instancetype, field):
        with pytest.raises(InputErrors, match=rf"VirtualMachine demo/vm and its instancetype both set {field}: "):
            expansion.expand_with(vm(NAMED, template=template), {"spec": instancetype}, None)

    def test_refuses_annotations_with_another_value(self):
        given = vm(NAMED)
        given["spec"]["template"]["metadata"] = {"annotations": {"same": "1", "other": "1"}}
        with pytest.raises(InputErrors, match=r"both set spec.template.metadata.annotations\[other\]: "):
            expansion.expand_with(given, {"spec": {"annotations": {"same": "1", "other": "2", "new": "3"}}}, None)

    def test_a_preference_decides_what_kubevirt_adds_to_the_pod(self):
        preference = {
            "spec": {
                "machine": {"preferredMachineType": "pc-q35-9.0"},
                "devices": {"preferredInterfaceModel": "e1000", "preferredAutoattachPodInterface": False},
                "preferredLaunchSecurity": {"snp": {}},
            }
        }
        template = {"domain": {"devices": {"interfaces": [{"name": "a"}, {"name": "b", "model": "virtio"}]}}}
        given = vm(preference=NAMED, template=template)
        domain = expansion.expand_with(given, None, preference)["spec"]["template"]["spec"]["domain"]
        assert domain["machine"] == {"type": "pc-q35-9.0"}
        assert domain["launchSecurity"] == {"snp": {}}
        assert domain["devices"]["autoattachPodInterface"] is False
        assert [each["model"] for each in domain["devices"]["interfaces"]] == ["e1000", "virtio"]
        assert "model" not in given["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]

    def test_a_preference_says_only_what_the_vm_leaves_open(self):
        preference = {
            "spec": {
                "preferredArchitecture": "arm64",
                "cpu": {"preferredCPUFeatures": [{"name": "aes", "policy": "require"}, {"name": "vmx"}]},
            }
        }
        for template in ({}, {"architecture": ""}):
            found = expansion.expand_with(vm(preference=NAMED, template=template), None, preference)
            assert found["spec"]["template"]["spec"]["architecture"] == "arm64"
        template = {"architecture": "amd64", "domain": {"cpu": {"features": [{"name": "vmx", "policy": "forbid"}]}}}
        found = expansion.expand_with(vm(preference=NAMED, template=template), None, preference)["spec"]["template"][
            "spec"
        ]
        assert found["architecture"] == "amd64"
        assert [(f["name"], f.get("policy")) for f in found["domain"]["cpu"]["features"]] == [
            ("vmx", "forbid"),
            ("aes", "require"),
        ]

    def test_a_preference_brings_hyperv_features(self):
        preference = {"spec": {"features": {"preferredHyperv": {"evmcs": {}, "ipi": {}, "reset": None}}}}
        template = {"domain": {"features": {"hyperv": {"ipi": {"enabled": False}}}}}
        found = expansion.expand_with(vm(preference=NAMED, template=template), None, preference)["spec"]["template"]
        assert found["spec"]["domain"]["features"]["hyperv"] == {"evmcs": {}, "ipi": {"enabled": False}}
        selector = prediction.predict(found, "demo").attributes.node_selector
        assert "cpu-feature.node.kubevirt.io/vmx" in selector


class TestFind:
    def test_takes_the_revision_of_the_spec_before_the_noted_one(self):
        noted = {"instancetypeRef": {"controllerRevisionRef": {"name": "noted"}}}
        get = store(revision("pinned"), revision("noted"), LIVE)
        pinned = vm({**NAMED, "revisionName": "pinned"}, status=noted)
        assert devices(expansion.expand(pinned, get)) == {"from/pinned"}
        assert devices(expansion.expand(vm(NAMED, status=noted), get)) == {"from/noted"}
        assert devices(expansion.expand(vm(NAMED), get)) == {"nvidia.com/A100"}

    def test_skips_a_noted_revision_of_another_or_a_deleted_object(self):
        noted = {"instancetypeRef": {"controllerRevisionRef": {"name": "noted"}}}
        for known in (revision("noted", of="former"), revision("unrelated")):
            assert devices(expansion.expand(vm(NAMED, status=noted), store(known, LIVE))) == {"nvidia.com/A100"}
        unlabelled = store(revision("noted", of=""), LIVE)
        assert devices(expansion.expand(vm(NAMED, status=noted), unlabelled)) == {"from/noted"}

    @pytest.mark.parametrize("kind", ["VirtualMachineInstancetype", "virtualmachineinstancetypes"])
    def test_knows_the_namespaces_own_kind_by_both_names(self, kind):
        own = {"metadata": {"name": "gpu.large", "namespace": "demo"}, "spec": {"gpus": [{"deviceName": "own/gpu"}]}}
        get = store((kinds.INSTANCETYPE, own), LIVE)
        assert devices(expansion.expand(vm({**NAMED, "kind": kind}), get)) == {"own/gpu"}

    @pytest.mark.parametrize(
        ("matcher", "words"),
        [
            (
                NAMED,
                "VirtualMachineClusterInstancetype gpu.large, the instancetype of VirtualMachine demo/vm, does not exist",
            ),
            ({**NAMED, "revisionName": "r1"}, "ControllerRevision r1, the instancetype of VirtualMachine demo/vm"),
            ({**NAMED, "kind": "Deployment"}, "spec.instancetype.kind 'Deployment'; it must be"),
            ({"inferFromVolume": "disk"}, "takes its instancetype from a volume"),
        ],
    )
    def test_says_what_is_missing(self, matcher, words):
        with pytest.raises(InputErrors, match=words):
            expansion.expand(vm(matcher), store())

    def test_finds_preferences_the_same_way(self):
        preference = {"metadata": {"name": "arm"}, "spec": {"preferredArchitecture": "arm64"}}
        found = expansion.expand(vm(preference={"name": "arm"}), store((kinds.CLUSTER_PREFERENCE, preference)))
        assert found["spec"]["template"]["spec"]["architecture"] == "arm64"
