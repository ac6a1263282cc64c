# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import vm_lookup
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading.vm_lookup import (
    ClusterSource,
    FileSource,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.tests.unit.support import vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import ApiServer, World

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plain", "labels": {"tier": "gold"}}}
NETWORK = {
    "apiVersion": "k8s.cni.cncf.io/v1",
    "kind": "NetworkAttachmentDefinition",
    "metadata": {"name": "vf", "namespace": "plain", "annotations": {"k8s.v1.cni.cncf.io/resourceName": "x/vf"}},
}
INSTANCETYPE = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineClusterInstancetype",
    "metadata": {"name": "large"},
    "spec": {"gpus": [{"name": "g", "deviceName": "of/instancetype"}]},
}


def vm(name="vm", namespace="plain", instancetype=None, **template):
    spec = {"template": {"metadata": {}, "spec": template}}
    if instancetype:
        spec["instancetype"] = {"name": instancetype}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def owned(vmi, by="vm"):
    reference = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": by, "controller": True}
    return {**vmi, "metadata": {**vmi["metadata"], "ownerReferences": [reference]}}


def pod(**fields):
    made = vms.launcher(**fields)
    made["metadata"]["labels"]["kubevirt.io/created-by"] = made["metadata"]["ownerReferences"][0]["uid"]
    return made


def gpus(subject):
    return subject.vm["spec"]["template"]["spec"].get("domain", {}).get("devices", {}).get("gpus")


def source(kind, *objects, **server):
    if kind == "cluster":
        return ClusterSource(ApiServer(*objects, **server).client(retry_seconds=0))
    return FileSource([{"kind": "List", "items": list(objects)}], "the dump here")


BOTH = pytest.mark.parametrize("kind", ["cluster", "dump"])


@BOTH
class TestFind:
    def test_a_running_vm_has_instance_pods_namespace_and_networks(self, kind):
        networked = vm(networks=[{"name": "fast", "multus": {"networkName": "vf"}}])
        other = pod(name="other")
        found = vm_lookup.find_vm(source(kind, networked, vms.vmi(), pod(), other, NAMESPACE, NETWORK), "plain/vm")
        assert found.vm["spec"] == networked["spec"]
        assert found.vmi["metadata"]["name"] == "vm"
        assert [each.name for each in found.pods] == ["virt-launcher-vm"]
        assert found.namespace_labels == {"tier": "gold"}
        assert found.pods[0].attributes.namespace_labels == {"tier": "gold"}
        assert found.networks == {"plain/vf": "x/vf"}
        assert found.in_cluster

    def test_a_halted_vm_comes_alone(self, kind):
        found = vm_lookup.find_vm(source(kind, vm(), pod(name="other")), " plain/vm ")
        assert (found.vmi, found.pods, found.namespace_labels, found.networks) == (None, (), None, {})

    def test_an_instance_comes_with_the_vm_that_made_it(self, kind):
        objects = [vm("maker"), owned(vms.vmi(), by="maker"), pod()]
        found = vm_lookup.find_vmi(source(kind, *objects), "plain/vm")
        assert (found.name, found.vm["metadata"]["name"], len(found.pods)) == ("vm", "maker", 1)
        assert vm_lookup.find_vmi(source(kind, vms.vmi()), "plain/vm").vm is None

    def test_an_instancetype_is_applied(self, kind):
        found = vm_lookup.find_vm(source(kind, vm(instancetype="large"), INSTANCETYPE), "plain/vm")
        assert gpus(found) == [{"name": "g", "deviceName": "of/instancetype"}]

    @pytest.mark.parametrize(
        ("call", "present", "words"),
        [
            (vm_lookup.find_vm, (), "VirtualMachine plain/vm is not in .*; check namespace and name."),
            (vm_lookup.find_vm, (vms.vmi(),), "only a VirtualMachineInstance has that name: give it as vmi."),
            (vm_lookup.find_vmi, (), "VirtualMachineInstance plain/vm is not in .*; check namespace and name."),
            (vm_lookup.find_vmi, (vm(),), "the VirtualMachine of that name is not running: give it as vm."),
        ],
    )
    def test_what_is_not_there_is_an_error_with_a_hint(self, kind, call, present, words):
        with pytest.raises(InputErrors, match=words):
            call(source(kind, *present), "plain/vm")

    @pytest.mark.parametrize("address", ["vm", "plain/", "/vm", "a/b/c", ""])
    def test_an_address_has_two_parts(self, kind, address):
        with pytest.raises(InputErrors, match=r"^virtpools_vm is .*; give namespace/name\.$"):
            vm_lookup.find_vm(source(kind), address)


class TestCluster:
    def test_kubevirts_own_expansion_goes_first(self):
        expanded = vm(domain={"devices": {"gpus": [{"deviceName": "of/virt-api"}]}})
        expanded["apiVersion"] = "subresources.kubevirt.io/v1"
        found = vm_lookup.find_vm(source("cluster", vm(instancetype="large"), INSTANCETYPE, expanded), "plain/vm")
        assert gpus(found) == [{"deviceName": "of/virt-api"}]

    def test_is_asked_to_expand_only_what_needs_it(self):
        server = ApiServer(vm())
        vm_lookup.find_vm(ClusterSource(server.client()), "plain/vm")
        assert not [request.path for request in server.requests if "subresources" in request.path]

    def test_only_the_pods_of_the_instance_are_read(self):
        server = ApiServer(vm(), vms.vmi(), pod())
        vm_lookup.find_vm(ClusterSource(server.client()), "plain/vm")
        (query,) = [dict(request.query) for request in server.requests if request.path.endswith("/pods")]
        assert query["labelSelector"] == "kubevirt.io=virt-launcher,kubevirt.io/created-by=uid-vm"

    def test_what_may_not_be_read_is_unknown(self):
        networked = vm(networks=[{"name": "fast", "multus": {"networkName": "vf"}}])
        denied = {("get", "namespaces"), ("get", "network-attachment-definitions")}
        world = World(networked, NAMESPACE, NETWORK, denied=denied)
        live = ClusterSource(world.client())
        found = vm_lookup.find_vm(live, "plain/vm")
        assert (found.namespace_labels, found.networks) == (None, {})


class TestManifest:
    def find(self, *objects, behind=()):
        return vm_lookup.find_in_manifest(objects, "The manifest m.yaml", source("dump", NAMESPACE, *behind))

    def test_has_the_instancetype_beside_the_vm_or_in_the_cluster(self):
        for objects, behind in (([INSTANCETYPE], []), ([], [INSTANCETYPE])):
            found = self.find(vm(instancetype="large"), *objects, behind=behind)
            assert gpus(found) == [{"name": "g", "deviceName": "of/instancetype"}]
            assert not found.in_cluster
            assert found.namespace_labels == {"tier": "gold"}

    def test_overrides_the_cluster_and_needs_no_namespace(self):
        own = {
            "kind": "VirtualMachineInstancetype",
            "metadata": {"name": "own"},
            "spec": {"gpus": [{"deviceName": "of/manifest"}]},
        }
        given = vm(instancetype="own")
        del given["metadata"]["namespace"]
        given["spec"]["instancetype"]["kind"] = "VirtualMachineInstancetype"
        found = self.find({"kind": "List", "items": [given, own]})
        assert gpus(found) == [{"deviceName": "of/manifest"}]
        assert found.namespace == "default"

    @pytest.mark.parametrize(
        "obj",
        [
            {
                "kind": "VirtualMachineInstanceReplicaSet",
                "metadata": {"name": "set"},
                "spec": {"template": {"spec": {}}},
            },
            {
                "kind": "VirtualMachinePool",
                "metadata": {"name": "set"},
                "spec": {"virtualMachineTemplate": {"spec": {"template": {"spec": {}}}}},
            },
            {"metadata": {"name": "set", "labels": {"a": "b"}}, "spec": {"domain": {}}},
            {"kind": "VirtualMachine", "metadata": {"generateName": "set"}, "spec": {"template": {}}},
        ],
    )
    def test_may_have_what_makes_vms(self, obj):
        found = self.find(obj)
        assert (found.namespace, found.name, found.vmi) == ("default", "set", None)
        assert isinstance(found.vm["spec"]["template"], dict)

    def test_of_a_pool_gives_vms_the_labels_of_its_template(self):
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"metadata": {"labels": {"c": "d"}}}}}
        metadata = {"name": "set", "labels": {"of": "the pool"}}
        spec = {"virtualMachineTemplate": template}
        found = self.find({"kind": "VirtualMachinePool", "metadata": metadata, "spec": spec})
        assert found.vm["metadata"]["labels"] == {"a": "b"}
        assert found.vm["spec"]["template"]["metadata"]["labels"] == {"c": "d"}

    def test_of_a_bare_template_keeps_its_labels(self):
        found = self.find({"metadata": {"labels": {"a": "b"}}, "spec": {"domain": {}}})
        assert found.name == "unnamed"
        assert found.vm["spec"]["template"]["metadata"]["labels"] == {"a": "b"}

    def test_may_have_an_instance(self):
        found = self.find(vms.vmi())
        assert (found.vm, found.vmi["metadata"]["name"], found.pods) == (None, "vm", ())

    @pytest.mark.parametrize(
        ("objects", "words"),
        [
            ([], "it holds none; give one"),
            ([INSTANCETYPE, NAMESPACE], "it holds none; give one"),
            ([vm("a"), vm("b"), vms.vmi("c")], r"it holds 3 \(a, b, c\); leave one"),
            ([{"kind": "VirtualMachine", "metadata": {"name": "x"}}], "VirtualMachine default/x has no spec.template"),
            (
                [{"kind": "VirtualMachinePool", "metadata": {"name": "x"}}],
                "VirtualMachine default/x has no spec.template",
            ),
        ],
    )
    def test_must_have_one(self, objects, words):
        with pytest.raises(InputErrors, match=words):
            self.find(*objects)
