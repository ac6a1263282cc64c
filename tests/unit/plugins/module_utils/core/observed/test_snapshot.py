# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import migrations, snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.handlers import HandlerPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


class TestNode:
    def test_without_the_label_belongs_to_the_primary(self):
        assert Node.from_object(builders.node()).owner == names.PRIMARY

    @pytest.mark.parametrize("owner", ["gpu", names.IN_TRANSIT])
    def test_belongs_to_whom_its_label_names(self, owner):
        assert Node.from_object(builders.node(owner=owner)).owner == owner

    @pytest.mark.parametrize("value", ["", "primary"])
    def test_with_a_label_of_no_pool_does_not_belong_to_the_primary(self, value):
        """The exclusion keeps the primary off every node with the label, whatever its value."""
        assert Node.from_object(builders.node(owner=value)).owner == f"'{value}'"

    def test_tells_what_a_handover_needs(self):
        found = Node.from_object(
            builders.node(
                former="gpu", heartbeat="t7", schedulable=False, taints=[{"key": "a", "effect": "NoSchedule"}]
            )
        )
        assert (found.former_owner, found.heartbeat, found.schedulable) == ("gpu", "t7", False)
        assert found.taints == ({"key": "a", "effect": "NoSchedule"},)

    def test_ready_is_a_condition_that_is_true(self):
        assert Node.from_object(builders.node()).ready
        assert not Node.from_object(builders.node(ready=False)).ready
        assert not Node.from_object({"metadata": {"name": "n"}}).ready

    def test_as_bare_as_the_api_allows(self):
        found = Node.from_object(
            {"metadata": {"name": "n", "labels": None, "annotations": None}, "spec": {}, "status": {}}
        )
        assert (found.owner, found.former_owner, found.heartbeat) == (names.PRIMARY, None, None)
        assert (found.images, found.taints, found.schedulable) == (frozenset(), (), False)

    def test_knows_images_by_all_their_names(self):
        obj = builders.node()
        obj["status"]["images"] = [{"names": ["a:1", "a@sha256:0"]}, {"sizeBytes": 1}, {"names": None}]
        assert Node.from_object(obj).images == {"a:1", "a@sha256:0"}


class TestHandlerPod:
    def test_belongs_to_the_daemonset_that_controls_it(self):
        obj = builders.handler_pod("n1", "virt-handler-gpu", template="abc")
        obj["metadata"]["ownerReferences"].insert(0, {"kind": "DaemonSet", "name": "another"})
        found = HandlerPod.from_object(obj)
        assert (found.node, found.daemonset, found.template) == ("n1", "virt-handler-gpu", "abc")

    def test_of_nobody(self):
        obj = builders.handler_pod("n1")
        del obj["metadata"]["ownerReferences"]
        assert HandlerPod.from_object(obj).daemonset is None

    def test_is_ready_when_it_runs_and_says_so(self):
        assert HandlerPod.from_object(builders.handler_pod("n1")).ready
        assert not HandlerPod.from_object(builders.handler_pod("n1", ready=False)).ready
        ended = builders.handler_pod("n1")
        ended["status"]["phase"] = "Succeeded"
        assert not HandlerPod.from_object(ended).ready

    def test_is_terminating_from_when_it_is_deleted(self):
        assert HandlerPod.from_object(builders.handler_pod("n1", terminating=True)).terminating

    @pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
    def test_that_just_starts_has_no_problem(self, reason):
        assert HandlerPod.from_object(builders.handler_pod("n1", ready=False, waiting=reason)).problem is None

    @pytest.mark.parametrize("statuses", ["containerStatuses", "initContainerStatuses"])
    def test_says_what_its_kubelet_says(self, statuses):
        obj = builders.handler_pod("n1", ready=False)
        waiting = {"reason": "ImagePullBackOff", "message": "no such tag"}
        obj["status"] = {statuses: [{"name": "c", "state": {"waiting": waiting}}]}
        assert HandlerPod.from_object(obj).problem == "container c: ImagePullBackOff (no such tag)"

    @pytest.mark.parametrize(
        ("heartbeat", "reported"),
        [
            (builders.heartbeat(builders.STARTED - 1), False),
            (builders.heartbeat(builders.STARTED), True),
            (f'"{builders.heartbeat(builders.STARTED + 1)}"', True),
            ("1970-01-01T03:00:00", False),  # in which time zone?
            (None, False),
        ],
    )
    def test_has_reported_unless_the_heartbeat_is_older_than_it(self, heartbeat, reported):
        node = Node.from_object(builders.node(heartbeat=heartbeat))
        assert HandlerPod.from_object(builders.handler_pod("n1")).has_reported(node) == reported

    @pytest.mark.parametrize("state", [{"waiting": {"reason": "CrashLoopBackOff"}}, {"running": {}}, {}, None])
    def test_whose_container_does_not_run_has_not_reported(self, state):
        obj = builders.handler_pod("n1")
        obj["status"]["containerStatuses"][0]["state"] = state
        assert not HandlerPod.from_object(obj).has_reported(Node.from_object(builders.node()))

    def test_that_failed_says_why(self):
        obj = builders.handler_pod("n1")
        obj["status"] = {"phase": "Failed", "reason": "Evicted"}
        assert HandlerPod.from_object(obj).problem == "pod failed: Evicted"


class TestBuild:
    def test_tells_the_primary_from_pools_and_from_everything_else(self):
        foreign = builders.pool_daemonset(builders.pool("b"))
        del foreign["metadata"]["labels"][names.MANAGED_BY_LABEL]
        unrelated = builders.pool_daemonset(builders.pool("c"))
        unrelated["metadata"].update(name="node-exporter", labels={})
        elsewhere = builders.pool_daemonset(builders.pool("d"))
        elsewhere["metadata"]["namespace"] = "other"
        ours = builders.pool_daemonset(builders.pool("a"))
        found = builders.build_snapshot(daemonsets=[unrelated, foreign, builders.primary(), elsewhere, ours])
        assert found.primary == builders.primary()
        assert list(found.daemonsets) == ["virt-handler-a", "virt-handler-b"]
        assert list(found.pools) == ["a"]

    def test_handler_pods_have_a_node_and_kubevirts_namespace(self):
        unbound = builders.handler_pod("")
        elsewhere = builders.handler_pod("n1", name="elsewhere")
        elsewhere["metadata"]["namespace"] = "other"
        other = builders.handler_pod("n1", name="other")
        other["metadata"]["labels"] = {}
        pods = [unbound, elsewhere, other, builders.handler_pod("n1", terminating=True, name="b")]
        found = builders.build_snapshot(pods=[*pods, builders.handler_pod("n1", "virt-handler-gpu", name="a")])
        assert [pod.name for pod in found.handlers["n1"]] == ["a", "b"]
        assert list(found.handlers) == ["n1"]

    def test_finds_pull_pods_that_were_left(self):
        pod = builders.handler_pod("n1", name="virtpools-pull-1")
        pod["metadata"]["labels"] = {names.PULL_LABEL: "true"}
        found = builders.build_snapshot(pods=[pod])
        assert found.leftover_pulls == ("virtpools-pull-1",)
        assert found.handlers == {}

    def test_does_not_depend_on_the_order_of_anything(self):
        nodes = [builders.node(f"n{index}", owner="a" if index % 2 else None) for index in range(9)]
        sets = [builders.primary(), builders.pool_daemonset(builders.pool("a"))]
        pods = builders.handlers_of(nodes, sets)
        expected = builders.build_snapshot(daemonsets=sets, nodes=nodes, pods=pods)
        for seed in range(5):
            for items in (nodes, sets, pods):
                random.Random(seed).shuffle(items)
            found = builders.build_snapshot(daemonsets=sets, nodes=nodes, pods=pods)
            assert found == expected
            assert list(found.nodes) == list(expected.nodes)

    def test_restricted_to_some_nodes(self):
        nodes = [builders.node("n1"), builders.node("n2"), builders.node("dead", ready=False)]
        whole = builders.snapshot_of(nodes)
        found = whole.limited_to(["n2", "gone"])
        assert list(found.nodes) == list(found.handlers) == ["n2"]
        assert whole.complete
        assert not found.complete

    def test_restricted_still_knows_which_handlers_nobody_waits_for(self):
        found = builders.snapshot_of([builders.node("n1"), builders.node("dead", ready=False)]).limited_to(["n1"])
        assert found.dead_primary_handlers == 1
        assert found.primary_not_ready == {"virt-handler-dead": "dead"}

    def test_a_handler_that_is_not_ready_on_a_ready_node_is_not_dead(self):
        nodes = [builders.node("n1"), builders.node("dead", ready=False)]
        pods = [builders.handler_pod("n1", ready=False), builders.handler_pod("dead", ready=False)]
        pods.append(builders.handler_pod("dead", "virt-handler-gpu", ready=False))
        assert builders.snapshot_of(nodes, pods=pods).dead_primary_handlers == 1


class TestChoice:
    def choose(self, *wanted, found=(("kv", "a"), ("kv2", "a"))):
        objects = [{"metadata": {"namespace": namespace, "name": name}} for namespace, name in found]
        chosen = snapshot.choose_kubevirt(objects, *wanted)
        return chosen["metadata"]["namespace"], chosen["metadata"]["name"]

    def test_of_the_only_one(self):
        assert self.choose(None, None, found=[("kv", "a")]) == ("kv", "a")

    def test_by_namespace(self):
        assert self.choose("kv2", None) == ("kv2", "a")

    def test_of_several_is_for_the_user(self):
        with pytest.raises(InputErrors, match=r"2 KubeVirt objects \(kv/a, kv2/a\).*kubevirt_namespace"):
            self.choose(None, "a")

    def test_of_none(self):
        with pytest.raises(InputErrors, match=r"No KubeVirt object named kv3/\* was found"):
            self.choose("kv3", None)
        with pytest.raises(InputErrors, match="No KubeVirt object was found; install"):
            self.choose(None, None, found=[])


MIGRATION = {"metadata": {"namespace": "vms", "name": "m"}, "spec": {"vmiName": "vm"}}


class TestMigrations:
    def test_end_where_their_vmi_says(self):
        vmi = {
            "metadata": {"namespace": "vms", "name": "vm"},
            "status": {"nodeName": "n1", "migrationState": {"sourceNode": "n1", "targetNode": "n2"}},
        }
        (found,) = migrations.active_migrations([MIGRATION], [vmi])
        assert (found.namespace, found.name, found.vmi) == ("vms", "m", "vm")
        assert found.nodes == {"n1", "n2"}

    def test_of_a_vmi_in_another_namespace_end_nowhere_yet(self):
        vmi = {"metadata": {"namespace": "other", "name": "vm"}, "status": {"nodeName": "n1"}}
        (found,) = migrations.active_migrations([MIGRATION], [vmi])
        assert found.nodes == frozenset()

    def test_end_at_their_target_pod_before_the_vmi_reports_it(self):
        migration = {"metadata": {**MIGRATION["metadata"], "uid": "m-uid"}, "spec": MIGRATION["spec"]}
        pods = [
            {"metadata": {"labels": {names.MIGRATION_LABEL: uid}}, "spec": {"nodeName": node}}
            for uid, node in (("m-uid", "n2"), ("other", "n3"))
        ]
        (found,) = migrations.active_migrations([migration], [], pods)
        assert found.nodes == {"n2"}

    def test_end_where_they_say_themselves(self):
        migration = {**MIGRATION, "status": {"phase": "Running", "migrationState": {"targetNode": "n3"}}}
        (found,) = migrations.active_migrations([migration], [])
        assert found.nodes == {"n3"}

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_that_have_ended_do_not_count(self, phase):
        assert migrations.active_migrations([{**MIGRATION, "status": {"phase": phase}}], []) == ()


class TestObjects:
    def test_of_a_dump_in_any_order_and_nesting(self):
        nodes = {"kind": "List", "items": [builders.node("n2"), {"kind": "NodeList", "items": [builders.node("n1")]}]}
        secret = {"kind": "Secret", "metadata": {"name": "x"}}
        found = snapshot.from_objects(
            [builders.handler_pod("n1"), nodes, secret, builders.primary(), builders.kubevirt()]
        )
        assert list(found.nodes) == ["n1", "n2"]
        assert found.primary is not None
        assert found.complete

    def test_without_nodes_are_not_enough(self):
        with pytest.raises(InputErrors, match="no Node object; add the output of `kubectl get nodes -o yaml`"):
            snapshot.from_objects([builders.kubevirt()])

    @pytest.mark.parametrize("junk", [{"kind": "Node"}, {"kind": "Node", "metadata": None}, "text", None, {"items": 3}])
    def test_that_are_none_are_ignored(self, junk):
        found = snapshot.from_objects([junk, builders.node(), builders.kubevirt()])
        assert list(found.nodes) == ["n1"]
