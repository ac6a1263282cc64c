# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.tests.unit import builders
from ansible_collections.virtpools.kubevirt.tests.unit.fake_cluster import ApiServer

GPU = builders.pool_daemonset(builders.pool("gpu"))


def fleet(count=3, of_kubevirt=None, **fields):
    nodes = [builders.node(f"n{index}", **fields) for index in range(count)]
    sets = [builders.primary(), GPU]
    return ApiServer(of_kubevirt or builders.excluding_kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets))


def paths(server):
    return [request.path for request in server.requests]


class TestSnapshot:
    def test_of_everything(self):
        pull = builders.handler_pod("n1", name="virtpools-pull-1")
        pull["metadata"]["labels"] = {names.PULL_LABEL: "true"}
        server = fleet()
        server.put(pull)
        found = live.take_snapshot(server.client())
        assert (found.namespace, found.complete) == (builders.NAMESPACE, True)
        assert list(found.nodes) == list(found.handlers) == ["n0", "n1", "n2"]
        assert list(found.pools) == ["gpu"]
        assert found.leftover_pulls == ("virtpools-pull-1",)
        assert server.writes == []

    def test_of_some_nodes_reads_no_others(self):
        server = fleet(60)
        found = live.take_snapshot(server.client(), nodes=["n7", "n9", "gone"])
        assert list(found.nodes) == list(found.handlers) == ["n7", "n9"]
        assert not found.complete
        assert "/api/v1/nodes" not in paths(server)

    def test_of_many_nodes_reads_all_at_once(self):
        server = fleet(160)
        found = live.take_snapshot(server.client(), nodes=[f"n{index}" for index in range(150)])
        assert len(found.nodes) == len(found.handlers) == 150
        assert len(server.requests) < 20

    def test_of_no_node(self):
        found = live.take_snapshot(fleet().client(), nodes=[])
        assert (dict(found.nodes), dict(found.handlers), found.complete) == ({}, {}, False)

    def test_of_some_nodes_knows_of_dead_ones_elsewhere_when_kubevirt_waits_for_them(self):
        server = fleet(of_kubevirt=builders.excluding_kubevirt(conditions={"Available": "False"}))
        server.put(builders.node("dead", ready=False))
        server.put(builders.handler_pod("dead", ready=False))
        found = live.take_snapshot(server.client(), nodes=["n1"])
        assert list(found.nodes) == ["n1"]
        assert found.dead_primary_handlers == 1

    @pytest.mark.parametrize("version", ["v1", "v1beta1"])
    def test_finds_the_hyperconverged_object_in_whatever_version(self, version):
        kubevirt = builders.kubevirt()
        kubevirt["metadata"]["labels"] = {names.MANAGED_BY_LABEL: "hco-operator"}
        server = fleet(of_kubevirt=kubevirt)
        hco = {"name": names.HCO_NAME, "namespace": builders.NAMESPACE}
        server.put({"apiVersion": f"hco.kubevirt.io/{version}", "kind": "HyperConverged", "metadata": hco})
        if version == "v1beta1":
            served = server._answer
            server._answer = lambda request: (
                {"resources": []} if request.path == "/apis/hco.kubevirt.io/v1" else served(request)
            )
        found = live.take_snapshot(server.client()).hyperconverged
        assert (found["apiVersion"], found["kind"]) == (f"hco.kubevirt.io/{version}", "HyperConverged")

    def test_without_hco_or_migrations_served(self):
        server = fleet()
        server.unserved |= {"HyperConverged", "VirtualMachineInstanceMigration"}
        found = live.take_snapshot(server.client())
        assert (found.hyperconverged, found.migrations) == (None, ())

    def test_reads_vmis_only_of_running_migrations(self):
        server = fleet()
        for name, phase in (("m1", "Running"), ("m2", "Succeeded")):
            server.put(
                {
                    "apiVersion": "kubevirt.io/v1",
                    "kind": "VirtualMachineInstanceMigration",
                    "metadata": {"namespace": "vms", "name": name},
                    "spec": {"vmiName": f"vm-{name}"},
                    "status": {"phase": phase},
                }
            )
        server.put(
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "metadata": {"namespace": "vms", "name": "vm-m1"},
                "status": {"nodeName": "n1"},
            }
        )
        (found,) = live.migrations(server.client())
        assert (found.name, found.nodes) == ("m1", {"n1"})
        assert not [path for path in paths(server) if "vm-m2" in path]

    def test_of_some_nodes_asks_for_no_migrations(self):
        server = fleet()
        live.take_snapshot(server.client(), nodes=["n1"])
        assert not [path for path in paths(server) if "migrations" in path]


class TestVmisOnNodes:
    def test_are_those_that_virt_controller_put_there(self):
        server = fleet()
        for name, node in (("here", "n1"), ("there", "n2"), ("nowhere", None)):
            labels = {names.NODE_NAME_LABEL: node} if node else {}
            metadata = {"namespace": "vms", "name": name, "labels": labels}
            server.put({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata})
        found = live.vmis_on(server.client(), ["n1", "n" * 64])
        assert [vmi["metadata"]["name"] for vmi in found] == ["here"]

    def test_are_asked_for_in_requests_that_proxies_take(self):
        server = fleet()
        list(live.vmis_on(server.client(), [f"{number:063}" for number in range(120)]))
        selectors = [urlencode(request.query) for request in server.requests]
        assert len(selectors) == 3
        assert max(map(len, selectors)) < 4096


class TestKubeVirt:
    def test_that_is_not_installed(self):
        with pytest.raises(InputErrors, match=r"The cluster at https://api.example:6443 has no KubeVirt"):
            live.find_kubevirt(ApiServer(unserved=["KubeVirt"]).client(), None, None)

    def test_that_was_not_made(self):
        with pytest.raises(InputErrors, match="No KubeVirt object was found"):
            live.find_kubevirt(ApiServer().client(), None, None)

    def test_elsewhere(self):
        server = ApiServer(builders.kubevirt())
        with pytest.raises(InputErrors, match=r"No KubeVirt object named kv/\* was found"):
            live.find_kubevirt(server.client(), "kv", None)


def test_native_fields_without_the_crd():
    assert live.native_pool_fields(ApiServer().client()) == []
