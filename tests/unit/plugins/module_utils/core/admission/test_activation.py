# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import activation
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission.activation import HandoverState
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.batching import Move
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table, Upcoming
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

NEW = "registry.example/launcher:new"
OLD = "registry.example/launcher:old"


def pool(name="gpu", when="first_node"):
    selector = {"deviceNames": [f"example.com/{name}"]}
    return builders.pool(name, virtLauncherImage=NEW, selector=selector, activation=when)


def to(target, *nodes, source="primary"):
    return tuple(Move(node, source, target, "replace" if source == target else "move") for node in nodes)


def live(recorded, before=None, upcoming=None):
    """The live table of active pools with these images."""
    pools = [pool(name) for name in dict(recorded)]
    return Table.for_pools(pools, dict(recorded), before, upcoming)


def images(pools, batches, *, retired=(), recorded=(), done=(), wanted=4):
    progress = HandoverState({name: set(nodes) for name, nodes in dict(done).items()}, {p.name: wanted for p in pools})
    stages = activation.stages(pools, retired, live(recorded), progress, batches)
    assert len(stages) == len(batches) + 1
    return [table.images for table in stages]


@pytest.mark.parametrize(
    ("when", "active_after"),
    [("first_node", 1), ("1%", 1), ("25%", 1), ("26%", 2), ("75%", 3), ("76%", 4), ("all_moved", 4)],
)
def test_a_pool_takes_vms_once_enough_nodes_are_handed_over(when, active_after):
    batches = [to("gpu", f"n{number}") for number in range(4)]
    assert images([pool(when=when)], batches) == [{"gpu": NEW} if number >= active_after else {} for number in range(5)]


def test_nodes_that_were_handed_over_before_count():
    assert images([pool(when="50%")], [to("gpu", "n2")], done={"gpu": ["n1"]}) == [{}, {"gpu": NEW}]


def test_an_active_pool_stays_active_whatever_its_nodes_do():
    assert images([pool(when="all_moved")], [], recorded={"gpu": NEW}) == [{"gpu": NEW}]


def test_a_pool_that_can_have_no_node_now_is_not_active():
    assert images([pool(when="all_moved")], [], wanted=0) == [{}]


def test_a_new_image_takes_effect_after_the_last_new_handler():
    batches = [to("gpu", "n1", source="gpu"), to("gpu", "n2", source="gpu"), to("other", "n9")]
    found = images([pool()], batches, recorded={"gpu": OLD}, done={"gpu": ["n1", "n2"]})
    assert found == [{"gpu": OLD}, {"gpu": OLD}, {"gpu": NEW}, {"gpu": NEW}]


def test_a_new_image_waits_for_the_nodes_that_join_its_pool_too():
    batches = [to("gpu", "n2"), to("gpu", "n1", source="gpu"), to("gpu", "n3")]
    progress = HandoverState({"gpu": {"n1"}, "primary": {"n2", "n3"}}, {"gpu": 3})
    stages = activation.stages([pool()], [], live({"gpu": OLD}), progress, batches)
    assert [table.images["gpu"] for table in stages] == [OLD, OLD, OLD, NEW]
    assert [dict(table.canaries) for table in stages] == [{}, {"gpu": NEW}, {"gpu": NEW}, {}]


def test_a_new_image_takes_effect_at_once_where_vms_cannot_start():
    batches = [to("gpu", "n1", source="gpu"), to("gpu", "n2", source="gpu")]
    progress = HandoverState({"gpu": {"n1", "n2"}, "rt": {"n3"}}, {"gpu": 2, "rt": 1})
    pools, before = [pool(), pool("rt")], live({"gpu": OLD})
    stages = activation.stages(pools, [], before, progress, batches, at_once=["gpu", "rt"])
    assert len(stages) == 3
    for table in stages:
        assert (table.images, dict(table.canaries)) == ({"gpu": NEW, "rt": NEW}, {})


def test_a_removed_pool_keeps_vms_off_until_its_last_node_left():
    batches = [to("primary", "n1", source="gpu"), to("primary", "n2", source="gpu")]
    stages = activation.stages([], [pool()], live({"gpu": NEW}), HandoverState({"gpu": {"n1", "n2"}}, {}), batches)
    assert [(table.images, table.keep_off) for table in stages] == [({}, ("gpu",)), ({}, ("gpu",)), ({}, ())]


def test_a_node_that_goes_from_pool_to_pool_counts_where_it_is():
    pools = [pool("a"), pool("b", "all_moved")]
    found = images(pools, [to("b", "n1", source="a")], done={"a": ["n1"]}, wanted=1)
    assert found == [{"a": NEW}, {"a": NEW, "b": NEW}]


def canaries(batches, *, recorded, before=None, done=("n1", "n2")):
    progress = HandoverState({"gpu": set(done)}, {"gpu": 2})
    stages = activation.stages([pool()], [], live(recorded, before), progress, batches)
    return [dict(table.canaries) for table in stages]


class TestCanaries:
    REPLACED = (to("gpu", "n1", source="gpu"), to("gpu", "n2", source="gpu"))

    def test_get_a_new_image_from_the_first_new_handler_to_the_last(self):
        assert canaries(self.REPLACED, recorded={"gpu": OLD}) == [{}, {"gpu": NEW}, {}]

    def test_get_it_from_a_plan_made_after_the_first_batch(self):
        assert canaries(self.REPLACED[1:], recorded={"gpu": OLD}) == [{"gpu": NEW}, {}]

    def test_keep_it_when_an_interrupted_run_goes_on(self):
        batches = (to("other", "n9"), *self.REPLACED[1:])
        assert canaries(batches, recorded={"gpu": OLD}, before={"gpu": NEW}) == [{"gpu": NEW}, {"gpu": NEW}, {}]

    def test_lose_one_that_is_not_wanted_any_more(self):
        assert canaries(self.REPLACED, recorded={"gpu": OLD}, before={"gpu": "other"})[0] == {}
        assert canaries((), recorded={"gpu": NEW}, before={"gpu": "other"}) == [{}]

    def test_get_the_first_image_of_a_pool_that_had_none(self):
        assert canaries(self.REPLACED, recorded={"gpu": None}) == [{}, {"gpu": NEW}, {}]

    def test_have_no_image_of_their_own_in_a_pool_not_yet_active(self):
        assert canaries(self.REPLACED, recorded={}, done=()) == [{}, {}, {}]


class TestUpgrade:
    UPCOMING = Upcoming("stock:v1", "v2.0.0", {"gpu": "new:v2", "rt": "new:v2"})

    def test_what_is_prepared_stays_for_the_pools_that_stay(self):
        before = live({"gpu": OLD, "rt": OLD}, upcoming=self.UPCOMING)
        progress = HandoverState({"gpu": {"n1"}}, {"gpu": 1})
        stages = activation.stages([pool()], [pool("rt")], before, progress, [to("gpu", "n1", source="gpu")])
        assert [table.upcoming for table in stages] == [Upcoming("stock:v1", "v2.0.0", {"gpu": "new:v2"})] * 2

    def test_a_pool_that_comes_has_no_part_in_it(self):
        before = live({"gpu": NEW}, upcoming=self.UPCOMING)
        progress = HandoverState({"gpu": {"n1"}, "other": {"n2"}}, {"gpu": 1, "other": 1})
        (table,) = activation.stages([pool(), pool("other")], [], before, progress, [])
        assert (table.images, dict(table.upcoming.images)) == ({"gpu": NEW, "other": NEW}, {"gpu": "new:v2"})
