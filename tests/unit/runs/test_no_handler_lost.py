# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No run deletes a handler where the next one would not start, whenever a node came to be like that."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.nodes import batch_run
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.reading import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import daemonsets
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

OPTIONS = batch_run.BatchOptions(handler_timeout=60, pull_timeout=60, migration_timeout=60, prepull=False)
TAINT = {"key": "special", "value": "yes", "effect": "NoSchedule"}
GPU, FPGA = builders.pool("gpu"), builders.pool("fpga")
TOLERANT = builders.pool("gpu", tolerations=[{"key": "special", "operator": "Exists"}])


def hw(name, kind, owner=None, **fields):
    return builders.node(name, owner, labels={"hw": kind}, **fields)


def make_world(nodes, pools, behind=()):
    """A cluster with these pools; the handlers on the nodes ``behind`` are from an older template."""
    sets = [builders.primary(), *map(builders.pool_daemonset, pools)]
    pods = builders.handlers_of(nodes, sets)
    for pod in pods:
        if pod["spec"]["nodeName"] in behind:
            pod["metadata"].setdefault("annotations", {})[names.TEMPLATE_ANNOTATION] = "old"
    return World(builders.excluding_kubevirt(), *sets, *nodes, *pods)


def spoil(world, name, how):
    node = world.find(kinds.NODE, name)
    if how == "taint":
        node["spec"]["taints"] = [TAINT]
    elif how == "pressure":
        node["status"]["conditions"].append({"type": "DiskPressure", "status": "True"})
    elif how == "size":
        node["status"]["allocatable"] = {"memory": "1Mi"}
    else:
        node["status"]["conditions"][0]["status"] = "Unknown"


def planned(world, pools, options=None):
    return plan.make_plan(live.take_snapshot(world.client()), pools, options or Options())


def run(world, made):
    return list(batch_run.carry_out(world.client(), made, made.moves, OPTIONS, world.clock()))


class TestBeforeThePlan:
    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            ("taint", "taint special=yes:NoSchedule is not tolerated"),
            ("pressure", "the node has DiskPressure, and its kubelet starts no handler until that has passed"),
            ("size", "a handler requests more memory than the node can give to pods (1Mi)"),
        ],
    )
    def test_an_outdated_handler_stays(self, how, reason):
        world = make_world([hw("n1", "gpu", "gpu"), builders.node("stays")], [GPU], behind={"n1"})
        spoil(world, "n1", how)
        made = planned(world, [GPU])
        assert made.moves == ()
        text = builders.message(made.findings, "replacement_held_back")
        assert text == f"1 node runs a handler created from an old template, which stays because {reason}: n1."

    def test_a_pools_handler_stays_where_the_primary_would_not_run(self):
        world = make_world([hw("n1", "other", "gpu", taints=[TAINT]), builders.node("stays")], [TOLERANT])
        made = planned(world, [TOLERANT])
        assert made.moves == ()
        assert "1 node should go from gpu to primary but cannot now, because taint special=yes:NoSchedule" in (
            builders.message(made.findings, "node_held_back")
        )

    def test_a_removed_pools_handler_goes_where_only_the_pool_ran(self):
        world = make_world([hw("n1", "gpu", "gpu", taints=[TAINT]), builders.node("stays")], [TOLERANT])
        made = planned(world, [], Options(remove_pools="all"))
        assert [(move.node, move.target) for move in made.moves] == [("n1", "primary")]
        assert "1 node will have no virt-handler after the return to the primary" in (
            builders.message(made.findings, "node_without_primary")
        )

    def test_a_removed_pools_handler_stays_where_none_would_start(self):
        world = make_world([hw("n1", "gpu", "gpu", taints=[TAINT]), builders.node("stays")], [GPU])
        made = planned(world, [], Options(remove_pools="all"))
        assert (made.moves, made.retired, made.exclusion.changed) == ((), (), False)

    def test_the_exclusion_is_refused(self):
        nodes = [hw("n1", "gpu", taints=[TAINT]), builders.node("stays")]
        made = plan.make_plan(builders.fresh_snapshot(nodes), [TOLERANT], Options())
        text = builders.message(made.errors, "exclusion_would_end_handlers")
        assert (
            "1 node would not get its handler back, because taint special=yes:NoSchedule is not tolerated: n1." in text
        )

    def test_the_exclusion_is_allowed_for_a_node_without_a_handler(self):
        nodes = [hw("n1", "gpu", taints=[TAINT]), builders.node("stays")]
        fresh = builders.fresh_snapshot(nodes, pods=builders.handlers_of(nodes[1:], [builders.primary(excluded=False)]))
        assert "exclusion_would_end_handlers" not in builders.codes(
            plan.make_plan(fresh, [TOLERANT], Options()).findings
        )


class TestAfterThePlan:
    @pytest.mark.parametrize("behind", [(), ("n1",)], ids=["handover", "replacement"])
    def test_the_node_is_left_as_it_is(self, behind):
        world = make_world([hw("n1", "gpu", "gpu" if behind else None), builders.node("stays")], [GPU], behind=behind)
        made = planned(world, [GPU])
        spoil(world, "n1", "taint")
        before = world.pods("n1")
        (outcome,) = run(world, made)
        assert (outcome.result, outcome.gap) == ("untouched", None)
        assert outcome.message == (
            "gpu would start no handler there, because taint special=yes:NoSchedule is not tolerated"
        )
        assert world.pods("n1") == before
        assert world.writes == []

    def test_kubevirt_is_checked_again_after_long_preparations(self):
        world = make_world([hw("n1", "gpu"), builders.node("stays")], [GPU])
        made = planned(world, [GPU])
        looked = []

        def again():
            looked.append(world.now)
            return planned(world, [GPU])

        instance = kinds.VIRTUAL_MACHINE_INSTANCE.object("vm", "vms", status={"phase": "Running", "nodeName": "n1"})
        world.put(instance)
        migration = world.put(
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstanceMigration",
                "metadata": {"namespace": "vms", "name": "m1", "uid": "m1"},
                "spec": {"vmiName": "vm"},
                "status": {"phase": "Running", "migrationState": {"sourceNode": "n1"}},
            }
        )
        kubevirt = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)

        def upgrade():
            migration["status"]["phase"] = "Succeeded"
            kubevirt["status"]["targetKubeVirtVersion"] = "v9.9.9"

        world.at[world.now + 20] = upgrade
        with pytest.raises(
            batch_run.ClusterError, match=r"No node of this batch was touched, because .* is being upgraded"
        ):
            list(batch_run.carry_out(world.client(), made, made.moves, OPTIONS, world.clock(), again))
        assert looked
        assert world.node("n1").owner == names.PRIMARY


class TestUnprovenHandover:
    """A run was killed before the proof, and the next one brings another image."""

    def test_the_handler_is_replaced_and_proven(self):
        world = make_world([hw("n1", "gpu", "gpu", former="primary"), builders.node("stays")], [GPU], behind={"n1"})
        made = planned(world, [GPU])
        assert [move.action for move in made.moves] == ["finish"]
        began = world.now
        (outcome,) = run(world, made)
        assert (outcome.result, world.node("n1").former_owner) == ("done", None)
        assert world.now - began < OPTIONS.handler_timeout
        (pod,) = world.pods("n1")
        assert pod["metadata"]["annotations"][names.TEMPLATE_ANNOTATION] == daemonsets.template_of(made.desired["gpu"])

    def test_the_handler_is_proven_as_it_is_where_none_would_start(self):
        world = make_world([hw("n1", "gpu", "gpu", former="primary"), builders.node("stays")], [GPU], behind={"n1"})
        spoil(world, "n1", "taint")
        before = world.pods("n1")
        (outcome,) = run(world, planned(world, [GPU]))
        assert (outcome.result, world.node("n1").former_owner, world.pods("n1")) == ("done", None, before)


OWNERS = (None, "gpu", "fpga")
WAYS = st.sampled_from(["taint", "pressure", "size", "dead"])
NODES = st.tuples(
    st.sampled_from(["gpu", "fpga", "other"]),
    st.sampled_from(OWNERS),
    st.sampled_from([None, None, "primary", "same"]),
    st.booleans(),
    st.sampled_from([None, "before", "after"]),
    WAYS,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(NODES, min_size=1, max_size=5),
    st.booleans(),
    st.sampled_from(["apply", "apply and prune", "remove gpu", "remove all"]),
)
def test_a_node_that_can_keep_its_handler_never_loses_it(fleet, tolerant, task):
    gpu = TOLERANT if tolerant else GPU
    nodes, behind, spoiled = [], set(), {}
    for index, (kind, owner, former, outdated, moment, how) in enumerate(fleet):
        name = f"n{index}"
        former_owner = None if owner is None or former is None else owner if former == "same" else former
        nodes.append(hw(name, kind, owner, former=former_owner))
        if outdated and owner is not None:
            behind.add(name)
        if moment:
            spoiled[name] = (moment, how)
    world = make_world([*nodes, builders.node("stays")], [gpu, FPGA], behind)
    for name, (moment, how) in spoiled.items():
        if moment == "before":
            spoil(world, name, how)
    before = {node["metadata"]["name"] for node in nodes if world.pods(node["metadata"]["name"])}
    listed, options = {
        "apply": ([gpu, FPGA], Options()),
        "apply and prune": ([FPGA], Options(prune=True)),
        "remove gpu": ([], Options(remove_pools=("gpu",))),
        "remove all": ([], Options(remove_pools="all")),
    }[task]
    made = planned(world, listed, options)
    for name, (moment, how) in spoiled.items():
        if moment == "after":
            spoil(world, name, how)
    if not made.moves:
        return
    run(world, made)
    given_up = {
        name
        for name in before
        if task != "apply" and tolerant and world.node(name).owner == names.PRIMARY and world.node(name).taints
    }
    lost = {name for name in before - given_up if not world.pods(name)}
    assert lost == set(), made.changes()
