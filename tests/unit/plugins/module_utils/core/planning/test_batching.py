# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import batching, history, plan, waves
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.batching import Move, Wave
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Drain, Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

GPU = builders.pool("gpu")
FIRST, SECOND = Move("n1", "primary", "gpu", "move"), Move("n2", "primary", "gpu", "move")


def gpu_nodes(count, owner=None):
    return [builders.node(f"n{number}", owner, labels={"hw": "gpu"}) for number in range(1, count + 1)]


def made(nodes, **options):
    return plan.make_plan(builders.snapshot_of([*nodes, builders.node("stays")], [GPU]), [GPU], Options(**options))


class TestMove:
    @pytest.mark.parametrize(
        ("move", "text"),
        [
            (FIRST, "Node n1: primary -> gpu"),
            (Move("n1", "primary", "gpu", "finish"), "Node n1: finish the handover to gpu"),
            (Move("n1", "gpu", "gpu", "finish"), "Node n1: finish the replacement of the handler of gpu"),
            (Move("n1", "primary", "primary", "finish"), "Node n1: finish the handover to primary"),
            (Move("n1", "gpu", "gpu", "replace"), "Node n1: replace the handler of gpu"),
        ],
    )
    def test_is_one_line(self, move, text):
        assert str(move) == text

    def test_is_published_as_a_dict(self):
        assert FIRST.to_dict() == {"node": "n1", "from": "primary", "to": "gpu", "action": "move"}


class TestWave:
    def test_counts_its_nodes(self):
        wave = Wave("w", 1, ("n1", "n2", "n3", "n4"), ((FIRST,), (SECOND,)), held_back=1)
        assert (wave.remaining, wave.done, wave.due) == (2, 1, True)

    def test_without_work_is_due_only_for_its_gate(self):
        assert not Wave("w", 1, ("n1",), ()).due
        assert Wave("w", 1, ("n1",), (), open="id").due

    def test_touches_the_nodes_that_it_changes(self):
        wave = Wave("w", 1, ("n1", "n2"), ((FIRST,),))
        assert wave.touches(["n1"])
        assert not wave.touches(["n2"])


class TestBatches:
    @pytest.mark.parametrize(("unavailable", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), ("100%", [3])])
    def test_have_as_many_nodes_of_a_pool_as_may_be_unavailable(self, unavailable, sizes):
        found = made(gpu_nodes(3), max_unavailable=unavailable)
        assert [len(batch) for batch in batching.batches_of(found.waves)] == sizes

    def test_count_a_node_for_the_pool_that_loses_it_as_well(self):
        pools = [builders.pool(name, nodeSelector={"hw": name}) for name in ("old", "gpu", "rt")]
        kinds = {"n1": "gpu", "n2": "rt", "n3": "old"}
        nodes = [builders.node(name, "old", labels={"hw": kind}) for name, kind in kinds.items()]
        snapshot = builders.snapshot_of(nodes, [builders.pool("old", virtHandlerImage="of-before:1"), *pools[1:]])
        found = plan.make_plan(snapshot, pools, Options(max_nodes_lost="100%"))
        assert [len(batch) for batch in batching.batches_of(found.waves)] == [1, 1, 1]

    def test_have_one_node_each_where_vms_are_migrated_away(self):
        found = made(gpu_nodes(3), max_unavailable="100%", drain=Drain("migrate"))
        assert [len(batch) for batch in batching.batches_of(found.waves)] == [1, 1, 1]

    @pytest.mark.parametrize(("owner", "sizes"), [(None, [3]), ("gone", [1, 1, 1])])
    def test_have_one_node_each_where_vms_of_pools_are(self, owner, sizes):
        found = made(gpu_nodes(3, owner), max_unavailable="100%", remove_vms="migrate")
        assert [len(batch) for batch in batching.batches_of(found.waves)] == sizes

    def test_have_one_node_each_beside_one_that_loses_its_vms(self):
        found = made([*gpu_nodes(1), *gpu_nodes(2, "gone")[1:]], max_unavailable="100%", remove_vms="migrate")
        assert [len(batch) for batch in batching.batches_of(found.waves)] == [1, 1]


class TestMembers:
    @pytest.mark.parametrize("left", [False, True])
    def test_stay_in_their_wave_when_they_have_left_their_pool(self, left):
        both = [builders.pool(name, nodeSelector={"hw": name}) for name in ("gpu", "rt")]
        listed = history.History((history.entry_of(both, (), Options(), "", ""),))
        racks = {"a1": None if left else "gpu", "b1": "gpu"}
        nodes = [builders.node(name, owner, labels={"hw": "gpu", "rack": name}) for name, owner in racks.items()]
        nodes += [builders.node("r1", "rt", labels={"hw": "rt", "rack": "r1"}), builders.node("stays")]
        admission = vms.admission(listed.to_config_map(builders.NAMESPACE))
        snapshot = builders.snapshot_of(nodes, both, admission=admission)
        found = plan.make_plan(snapshot, both[1:], Options(prune=True, waves=waves.parse([{"per": "rack"}])))
        assert [(wave.name, wave.nodes, wave.remaining) for wave in found.waves] == [
            ("rack=a1", ("a1",), 0 if left else 1),
            ("rack=b1", ("b1",), 1),
            ("rack=r1", ("r1",), 0),
        ]


class TestBegunWaves:
    @staticmethod
    def waves(owners, *begun, dead=()):
        """The waves of a rollout with the canary c1, after one that stopped in the given waves.

        :param dead: the nodes that are not Ready.
        """
        known = history.History(waves=tuple(history.OpenWave("rest", nodes) for nodes in begun))
        admission = vms.admission(known.to_config_map(builders.NAMESPACE))
        nodes = [
            builders.node(name, owner, labels={"hw": "gpu"}, ready=name not in dead) for name, owner in owners.items()
        ]
        snapshot = builders.snapshot_of(nodes, [GPU], admission=admission)
        options = Options(waves=waves.parse([{"nodes": ["c1"]}]))
        return plan.make_plan(snapshot, [GPU], options).waves

    def order(self, owners, *begun):
        return [(wave.name, wave.nodes) for wave in self.waves(owners, *begun)]

    def test_whose_nodes_change_come_after_the_canaries(self):
        """A newer list changes the canaries again, and a node has joined."""
        owners = dict.fromkeys(["c1", "n1", "n2", "n3"])
        expected = [("c1", ("c1",)), ("rest, begun before", ("n1", "n2")), ("rest", ("n3",))]
        assert self.order(owners, ("n1", "n2")) == expected

    def test_that_are_nothing_but_a_gate_come_first(self):
        owners = {"c1": None, "n1": "gpu", "n2": "gpu", "n3": None}
        expected = [("rest, begun before", ("n1", "n2")), ("c1", ("c1",)), ("rest", ("n3",))]
        assert self.order(owners, ("n1", "n2")) == expected

    def test_that_are_gates_come_in_the_order_of_their_begin(self):
        owners = {"c1": None, "n1": "gpu", "n2": "gpu", "n3": None}
        assert [nodes for _name, nodes in self.order(owners, ("n2",), ("n1",))][:2] == [("n2",), ("n1",)]

    def test_whose_nodes_cannot_change_now_count_as_held_back(self):
        owners = {"c1": None, "n1": "gpu", "n2": None, "n3": None}
        begun = self.waves(owners, ("n1", "n2"), dead=["n2"])[0]
        assert (begun.nodes, begun.remaining, begun.held_back, begun.done) == (("n1", "n2"), 0, 1, 1)

    def test_inside_another_begun_wave_come_before_it(self):
        owners = dict.fromkeys(["c1", "n1", "n2", "n3"])
        found = self.order(owners, ("n1", "n2"), ("n1",))
        assert [nodes for _name, nodes in found] == [("c1",), ("n1",), ("n2",), ("n1", "n2"), ("n3",)]


class TestMoves:
    def test_follow_the_natural_order_of_node_names(self):
        assert [move.node for move in made(gpu_nodes(10)).moves] == [f"n{number}" for number in range(1, 11)]

    def test_of_an_owned_node_with_an_old_handler_replace_it(self):
        nodes = gpu_nodes(1, owner="gpu")
        old = builders.handler_pod("n1", "virt-handler-gpu", template="old")
        found = plan.make_plan(builders.snapshot_of(nodes, [GPU], pods=[old]), [GPU], Options())
        assert [str(move) for move in found.moves] == ["Node n1: replace the handler of gpu"]
