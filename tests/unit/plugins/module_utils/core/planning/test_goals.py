# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import goals, history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

GPU, FPGA = builders.pool("gpu"), builders.pool("fpga")


def snapshot(*pools):
    nodes = [builders.node(f"{name}-1", name, labels={"hw": name}) for name in ("gpu", "fpga")]
    return builders.snapshot_of([*nodes, builders.node("stays")], pools)


def gpu_node(name, **fields):
    return builders.node(name, labels={"hw": "gpu"}, **fields)


def goal(found, pools=(), **options):
    return goals.make_goal(found, found.primary, pools, Options(**options))


class TestList:
    def test_gives_each_pool_its_nodes(self):
        assert goal(snapshot(GPU, FPGA), [GPU, FPGA]).assigned.wanted == {
            "gpu-1": "gpu",
            "fpga-1": "fpga",
            "stays": names.PRIMARY,
        }

    def test_keeps_a_pool_that_it_does_not_name(self):
        found = goal(snapshot(GPU, FPGA), [GPU])
        assert (set(found.desired), found.deleted) == ({"gpu", "fpga"}, ())
        assert "pool_not_listed" in builders.codes(found.findings)

    def test_deletes_a_pool_that_it_does_not_name_with_prune(self):
        found = goal(snapshot(GPU, FPGA), [GPU], prune=True)
        assert (set(found.desired), found.deleted) == ({"gpu"}, ("fpga",))
        assert found.assigned.wanted["fpga-1"] == names.PRIMARY


class TestReleased:
    """Nodes that the primary gives up before their wave have no handler until then."""

    @staticmethod
    def released(*nodes, broken=("gpu-1",)):
        pods = [builders.handler_pod(node["metadata"]["name"]) for node in nodes]
        for pod in pods:
            if pod["spec"]["nodeName"] in broken:
                pod.update(builders.broken(builders.handler_pod(pod["spec"]["nodeName"], ready=False)))
        found = builders.snapshot_of([*nodes, builders.node("stays")], [GPU], pods=pods)
        return goal(found, [GPU]).released

    def test_is_no_node_whose_handler_works(self):
        assert self.released(gpu_node("gpu-1"), gpu_node("gpu-2")) == ("gpu-1",)
        assert self.released(gpu_node("gpu-1"), broken=()) == ()

    def test_is_no_node_that_stays_with_the_primary(self):
        assert self.released(builders.node("gpu-1")) == ()

    def test_is_no_node_that_its_pool_cannot_get_now(self):
        assert self.released(gpu_node("gpu-1", taints=[{"key": "a", "effect": "NoExecute"}])) == ()


class TestRemoval:
    def test_of_one_pool_keeps_the_exclusion_and_the_others(self):
        found = goal(snapshot(GPU, FPGA), remove_pools=("gpu",))
        assert (found.deleted, found.last, found.exclusion.changed) == (("gpu",), False, False)
        assert found.assigned.wanted["gpu-1"] == names.PRIMARY
        assert found.movable.nodes.keys() == {"gpu-1"}

    @pytest.mark.parametrize(
        ("options", "cleared"),
        [
            ({"remove_pools": "all"}, [names.HISTORY]),
            ({"remove_pools": "all", "keep_history": True}, []),
            ({"remove_pools": ("gpu",)}, []),
        ],
        ids=["all", "before pools of the other mode", "one"],
    )
    def test_deletes_the_history_only_with_the_last_pool(self, options, cleared):
        listed = history.History((history.entry_of([GPU, FPGA], (), Options(), "", ""),))
        nodes = [gpu_node("gpu-1"), builders.node("stays")]
        admission = vms.admission(listed.to_config_map(builders.NAMESPACE))
        found = goal(builders.snapshot_of(nodes, [GPU, FPGA], admission=admission), **options)
        assert [each["metadata"]["name"] for each in found.cleared] == cleared

    def test_of_all_pools_takes_the_exclusion_away(self):
        found = goal(snapshot(GPU, FPGA), remove_pools="all")
        assert (sorted(found.deleted), found.last, found.exclusion.changed) == (["fpga", "gpu"], True, True)


class TestRestore:
    def test_brings_only_the_given_nodes_back(self):
        found = goal(snapshot(GPU, FPGA), restore_nodes=frozenset({"gpu-1"}))
        assert found.assigned.wanted == {"gpu-1": names.PRIMARY, "fpga-1": "fpga", "stays": names.PRIMARY}
        assert not found.exclusion.changed
        assert found.pools == ("fpga", "gpu"), "it deletes no pool"

    def test_to_a_pool_whose_daemonset_was_deleted(self):
        found = goal(
            builders.snapshot_of([gpu_node("gpu-1"), gpu_node("gpu-2")]), [GPU], restore_nodes=frozenset({"gpu-1"})
        )
        assert found.assigned.wanted == {"gpu-1": "gpu", "gpu-2": names.PRIMARY}
        assert found.desired.keys() == {"gpu"}

    def test_leaves_a_node_alone_where_no_handler_would_start(self):
        tainted = gpu_node("gpu-1", owner="gpu", taints=[{"key": "a", "effect": "NoExecute"}])
        found = goal(builders.snapshot_of([tainted, builders.node("stays")], [GPU]), restore_nodes=frozenset({"gpu-1"}))
        assert found.assigned.blocked.keys() == {"gpu-1"}

    def test_does_not_judge_the_list_by_a_few_nodes(self):
        found = goal(snapshot(GPU, FPGA), [GPU, FPGA], restore_nodes=frozenset({"gpu-1"}))
        assert found.assigned.findings == ()

    def test_keeps_the_live_correction_of_outdated_vms(self):
        correction = kinds.MUTATING_ADMISSION_POLICIES[0].object(names.OUTDATED_POLICY)
        correction["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        for objects, outdated in (([], "refuse"), ([correction], "correct")):
            found = builders.snapshot_of([gpu_node("gpu-1", owner="gpu")], [GPU], admission=vms.admission(*objects))
            assert goal(found, restore_nodes=frozenset({"gpu-1"})).options.outdated == outdated


def test_recorded_pools_are_read_from_their_daemonsets():
    found = goals.recorded(snapshot(GPU, FPGA))
    assert [(pool.name, pool.virt_handler_image) for pool in found] == [
        (pool.name, pool.virt_handler_image) for pool in (FPGA, GPU)
    ]
