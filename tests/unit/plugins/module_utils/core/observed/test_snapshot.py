# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


class TestBuild:
    def test_tells_the_primary_from_pools_and_from_everything_else(self):
        foreign = builders.pool_daemonset(builders.pool("b"))
        del foreign["metadata"]["labels"][names.MANAGED_BY_LABEL]
        unrelated = builders.pool_daemonset(builders.pool("c"))
        unrelated["metadata"].update(name="node-exporter", labels={})
        elsewhere = builders.pool_daemonset(builders.pool("d"))
        elsewhere["metadata"]["namespace"] = "other"
        ours = builders.pool_daemonset(builders.pool("a"))
        copied = builders.pool_daemonset(builders.pool("a"))
        copied["metadata"]["name"] = "a-copy"
        found = builders.build_snapshot(daemonsets=[unrelated, foreign, builders.primary(), elsewhere, ours, copied])
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
        pod = builders.pull_pod("n1")
        found = builders.build_snapshot(pods=[pod])
        assert [str(pod) for pod in found.leftover_pulls] == [f"kubevirt/{builders.PULL_POD}"]
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
