# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names, permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import ApiServer

GPU = builders.pool_daemonset(builders.pool("gpu"))


def fleet(count=3, of_kubevirt=None, **fields):
    nodes = [builders.node(f"n{index}", **fields) for index in range(count)]
    sets = [builders.primary(), GPU]
    return ApiServer(of_kubevirt or builders.excluding_kubevirt(), *sets, *nodes, *builders.handlers_of(nodes, sets))


def paths(server):
    return [request.path for request in server.requests]


class TestSnapshot:
    def test_of_everything(self):
        pull = builders.pull_pod("n1")
        server = fleet()
        server.put(pull)
        found = live.take_snapshot(server.client())
        assert (found.namespace, found.complete) == (builders.NAMESPACE, True)
        assert list(found.nodes) == list(found.handlers) == ["n0", "n1", "n2"]
        assert list(found.pools) == ["gpu"]
        assert [str(pod) for pod in found.leftover_pulls] == [f"kubevirt/{builders.PULL_POD}"]
        assert server.writes == []

    def test_has_the_deployment_of_virt_controller(self):
        server = fleet()
        assert live.take_snapshot(server.client()).controller is None
        server.put(builders.controller("--launcher-image", "a:1"))
        for nodes in (None, ["n1"]):
            found = live.take_snapshot(server.client(), nodes=nodes).controller
            assert found["metadata"]["name"] == names.CONTROLLER

    def test_of_some_nodes_reads_no_others(self):
        server = fleet(60)
        found = live.take_snapshot(server.client(), nodes=["n7", "n9", "gone"])
        assert list(found.nodes) == list(found.handlers) == ["n7", "n9"]
        assert not found.complete
        asked = [dict(request.query).get("labelSelector") for request in server.requests if "/nodes" in request.path]
        assert asked == ["kubernetes.io/hostname in (gone,n7,n9)", None], "the second is the one that does not exist"

    def test_of_nodes_whose_hostnames_are_others(self):
        server = fleet(3)
        for name, hostname in (("n0", "n1"), ("n1", "elsewhere"), ("n2", None)):
            labels = server.find(kinds.NODE, name)["metadata"]["labels"]
            labels.pop("kubernetes.io/hostname")
            if hostname:
                labels["kubernetes.io/hostname"] = hostname
        found = live.take_snapshot(server.client(), nodes=["n1", "n2"])
        assert sorted(found.nodes) == ["n1", "n2"]

    def test_of_many_nodes_reads_all_at_once(self):
        server = fleet(160)
        found = live.take_snapshot(server.client(), nodes=[f"n{index}" for index in range(150)])
        assert len(found.nodes) == len(found.handlers) == 150
        assert len(server.requests) < 20

    def test_of_no_node(self):
        found = live.take_snapshot(fleet().client(), nodes=[])
        assert (dict(found.nodes), dict(found.handlers), found.complete) == ({}, {}, False)

    def test_of_some_nodes_has_dead_ones_that_kubevirt_waits_for(self):
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
        uid = server.find(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION, "m1", "vms")["metadata"]["uid"]
        for name, migration in (("target", uid), ("other", "of-another")):
            target = builders.handler_pod("n2", name=name)
            target["metadata"].update(namespace="vms", labels={names.MIGRATION_LABEL: migration})
            server.put(target)
        (found,) = live.migrations(server.client())
        assert (found.name, found.nodes) == ("m1", {"n1", "n2"})
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


def test_operator_fields_without_the_crd():
    assert live.operator_pool_fields(ApiServer().client()) == []


def test_nodes_without_a_handler_are_counted_for_any_pool_names():
    pools = [builders.pool(f"{number:03}-{'x' * 40}") for number in range(200)]
    server = ApiServer(
        *(builders.pool_daemonset(pool, desired=0) for pool in pools),
        *(builders.node(f"n{number}", pool.name) for number, pool in enumerate(pools)),
        builders.node("lost", "ghost"),
        builders.node("rest"),
    )
    assert live.count_without_handler(server.client(), builders.NAMESPACE) == 1
    assert max(len(urlencode(request.query)) for request in server.requests) < 4000


class TestAdmission:
    POLICIES = kinds.MUTATING_ADMISSION_POLICIES[0]
    FOREIGN = POLICIES.object("somebody-elses")

    def read(self, server):
        return live.admission(server.client(), "kubevirt").objects

    def ours(self):
        guard = kinds.VALIDATING_ADMISSION_POLICY.object(names.OWNER_GUARD)
        history = kinds.CONFIG_MAP.object(names.HISTORY, "kubevirt")
        return [self.POLICIES.object(names.POLICY), guard, history]

    def asked(self, server):
        return [path for path in paths(server) if "admissionpolic" in path]

    def test_finds_ours_by_one_list_of_each_kind(self):
        server = ApiServer(*self.ours(), self.FOREIGN)
        found = self.read(server)
        assert set(found) == {
            ("MutatingAdmissionPolicy", names.POLICY),
            ("ValidatingAdmissionPolicy", names.OWNER_GUARD),
            ("ConfigMap", names.HISTORY),
        }
        assert len(self.asked(server)) == 4

    def test_finds_the_same_by_names_without_the_right_to_list(self):
        plurals = {right.resource for right in permissions.LIST_POLICIES}
        allowed = ApiServer(*self.ours(), self.FOREIGN)
        server = ApiServer(*self.ours(), self.FOREIGN, denied=[("list", plural) for plural in plurals])
        assert self.read(server) == self.read(allowed)
        assert len(self.asked(server)) == 2 * len(names.POLICIES) + 2 * len(names.GUARDS), "a refusal takes a second"


class TestMonitoring:
    def rule(self, namespace, **metadata):
        obj = kinds.PROMETHEUS_RULE.object(names.ALERTS, namespace, spec={})
        obj["metadata"].update(metadata)
        return obj

    def test_reads_rules_of_our_name_in_all_namespaces(self):
        ours, theirs = self.rule("monitoring", labels={names.MANAGED_BY_LABEL: names.MANAGED_BY}), self.rule("other")
        server = ApiServer(ours, theirs, kinds.PROMETHEUS_RULE.object("another", "monitoring", spec={}))
        found = live.monitoring(server.client())
        assert found.served
        assert {rule["metadata"]["namespace"] for rule in found.rules} == {"monitoring", "other"}
        assert all(rule["kind"] == "PrometheusRule" for rule in found.rules)

    def test_asks_for_no_rules_where_there_can_be_none(self):
        server = ApiServer(unserved=["PrometheusRule"])
        assert live.monitoring(server.client(), "monitoring") == snapshot.Monitoring()
        assert len(server.requests) == 1

    def test_tells_whether_a_namespace_exists(self):
        client = ApiServer(kinds.NAMESPACE.object("monitoring")).client()
        assert live.monitoring(client, "monitoring").missing_namespaces == frozenset()
        assert live.monitoring(client, "nowhere").missing_namespaces == {"nowhere"}

    def test_is_read_with_the_whole_cluster_only(self):
        assert live.take_snapshot(fleet().client()).monitoring is not None
        assert live.take_snapshot(fleet().client(), nodes=["n1"]).monitoring is None
