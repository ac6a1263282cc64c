# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import collections
import copy
import json
import random
import typing as t
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import short_digest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import daemonsets, hco
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import (
    Drain,
    Options,
    read_share,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.waves import parse
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fleets, vms

GPU, FPGA = builders.pool("gpu"), builders.pool("fpga")
DEVICE = {"deviceNames": ["example.com/gpu"]}
TAINT = {"key": "special", "effect": "NoSchedule"}


def hw(kind, name="n1", owner=None, former=None, **fields):
    return builders.node(name, owner, former, {"hw": kind}, **fields)


def made(nodes, pools=(GPU,), existing=None, *, more=(), snapshot=None, pods=None, **options):
    """A plan for a settled cluster with the exclusion, and a node that always stays with the primary.

    ``existing``: pools that have a DaemonSet already; all that are asked for, unless said.
    """
    nodes = [*nodes, builders.node("stays")]
    existing = pools if existing is None else existing
    found = snapshot or builders.snapshot_of(nodes, existing, more=more, pods=pods)
    return plan.make_plan(found, pools, Options(**options))


def lines(found):
    return [str(move) for move in found.moves]


class TestAnyFleet:
    def plan_of(self, fleet, nodes=None, **options):
        nodes = fleet.nodes if nodes is None else nodes
        existing = [*fleet.pools, *(builders.pool(name) for name in fleet.kept)]
        return plan.make_plan(
            builders.snapshot_of(nodes, existing), fleet.pools, Options(overlap="first_wins", **options)
        )

    @fleets.SETTINGS
    @given(fleets.fleets())
    def test_nodes_after_the_run_have_new_owners_and_labels(self, fleet):
        found = self.plan_of(fleet)
        expected = [Node.from_object(node) for node in builders.after_moves(fleet.nodes, found.moves)]
        coming = found.nodes_after()
        assert {name: (node.owner, node.labels) for name, node in coming.items()} == {
            node.name: (node.owner, node.labels) for node in expected
        }

    @fleets.SETTINGS
    @given(fleets.fleets())
    def test_nodes_whose_owner_differs_are_moved_or_blocked(self, fleet):
        found = self.plan_of(fleet)
        differing = {name for name, node in found.snapshot.nodes.items() if node.owner != found.wanted[name]}
        moved = {move.node for move in found.moves if move.action == "move"}
        assert moved <= differing
        for name in differing - moved:
            node = found.snapshot.nodes[name]
            assert not node.ready or node.taints, f"{name} should move, and nothing keeps it"
        for move in found.moves:
            assert move.target == found.wanted[move.node]
            assert found.snapshot.nodes[move.node].ready

    @fleets.SETTINGS
    @given(fleets.fleets())
    def test_every_unfinished_handover_is_finished_or_reported(self, fleet):
        found = self.plan_of(fleet)
        named = {move.node for move in found.moves}
        text = " ".join(finding.message for finding in found.findings)
        for name, node in found.snapshot.nodes.items():
            if node.former_owner is not None or node.owner == names.IN_TRANSIT:
                assert name in named or name in text

    @fleets.SETTINGS
    @given(fleets.fleets())
    def test_nothing_is_left_after_everything_is_carried_out(self, fleet):
        first = self.plan_of(fleet)
        second = self.plan_of(fleet, builders.after_moves(fleet.nodes, first.moves))
        assert second.moves == ()
        assert str(second.digest) == str(first.digest)
        assert second.wanted == first.wanted

    @fleets.SETTINGS
    @given(fleets.fleets(), st.data())
    def test_an_approved_plan_holds_after_an_interruption(self, fleet, data):
        first = self.plan_of(fleet)
        moves = [move for batch in first.batches for move in batch]
        done = moves[: data.draw(st.integers(0, len(moves)))]
        nodes = builders.after_moves(fleet.nodes, done)
        half = moves[len(done)] if len(done) < len(moves) else None
        if half is not None and half.action == "move" and data.draw(st.booleans()):
            # Interrupted in the middle of a handover, too: one node is in transit.
            metadata = next(n["metadata"] for n in nodes if n["metadata"]["name"] == half.node)
            metadata["labels"][names.OWNER_LABEL] = names.IN_TRANSIT
            metadata["annotations"][names.FORMER_OWNER_ANNOTATION] = half.source
        second = self.plan_of(fleet, nodes)
        assert second.digest.mismatch(str(first.digest)) is None
        assert {m.node for m in second.moves} == {m.node for m in moves} - {m.node for m in done}

    @fleets.SETTINGS
    @given(fleets.fleets(), st.randoms(use_true_random=False))
    def test_the_digest_knows_nothing_that_changes_by_itself(self, fleet, rng):
        nodes = copy.deepcopy(fleet.nodes)
        rng.shuffle(nodes)
        for node in nodes:
            node["metadata"]["resourceVersion"] = str(rng.random())
            node["metadata"]["annotations"][names.HEARTBEAT_ANNOTATION] = str(rng.random())
            node["metadata"]["labels"][names.SCHEDULABLE_LABEL] = "false"
            node["status"]["images"] = [{"names": ["another"]}]
            node["status"]["conditions"][0]["status"] = rng.choice(["True", "False"])
        existing = [*fleet.pools, *(builders.pool(name) for name in fleet.kept)]
        migration = {"metadata": {"namespace": "vms", "name": "m"}, "spec": {"vmiName": "vm"}}
        found = plan.make_plan(
            builders.snapshot_of(nodes, existing, of_primary=builders.primary(generation=9), migrations=[migration]),
            fleet.pools,
            Options(overlap="first_wins"),
        )
        assert found.digest == self.plan_of(fleet).digest

    @fleets.SETTINGS
    @given(fleets.fleets(), st.one_of(st.integers(1, 3), st.sampled_from(["1%", "40%", "100%"])))
    def test_batches_have_every_move_once_and_not_too_many_of_a_pool(self, fleet, max_unavailable):
        found = self.plan_of(fleet, max_unavailable=max_unavailable)
        batched = [move for batch in found.batches for move in batch]
        assert sorted(map(str, batched)) == sorted(map(str, found.moves))
        assert all(found.batches), "no batch is empty"
        for batch in found.batches:
            counts = collections.Counter(pool for move in batch for pool in self.pools_of(move))
            for pool, count in counts.items():
                size = max(
                    sum(owner == pool for owner in found.wanted.values()),
                    sum(node.owner == pool for node in found.snapshot.nodes.values()),
                )
                most = max_unavailable
                if isinstance(most, str):
                    most = max(1, size * int(most[:-1]) // 100)
                assert count <= most

    @staticmethod
    def pools_of(move):
        """The pools of which the node is unavailable during the move."""
        lost = {move.source} if move.action != "finish" or move.target == names.PRIMARY else set()
        return {*lost, move.target} - {names.PRIMARY}


class TestFirstRun:
    def found(self, **options):
        nodes = [hw("gpu"), builders.node("stays")]
        return plan.make_plan(builders.fresh_snapshot(nodes), [GPU], Options(**options))

    def test_lists_every_change_in_order(self):
        found = self.found()
        assert found.errors == ()
        assert [line.split(":")[0] for line in found.changes()] == [
            "KubeVirt kubevirt/kubevirt",
            "DaemonSet kubevirt/virt-handler-gpu",
            "Node n1",
        ]
        assert lines(found) == ["Node n1: primary -> gpu"]
        assert found.pending
        assert found.pools == ("gpu",)

    def test_warns_that_every_primary_handler_restarts(self):
        text = builders.message(self.found().findings, "primary_restarts")
        assert "restarts its 2 handlers once" in text

    def test_has_the_digest_of_the_runs_that_follow(self):
        """The exclusion in the live primary changes nothing of what was approved."""
        later = made([hw("gpu")])
        assert str(self.found().digest) == str(later.digest)

    def test_is_refused_while_a_dead_node_holds_up_the_exclusion(self):
        nodes = [hw("gpu"), builders.node("stays"), builders.node("dead", ready=False)]
        dead = builders.kubevirt(conditions={"Available": "False"})
        snapshot = builders.snapshot_of(nodes, of_kubevirt=dead, of_primary=builders.primary(excluded=False, ready=2))
        found = plan.make_plan(snapshot, [GPU], Options())
        assert "wait forever for 1 node" in builders.message(found.errors, "exclusion_blocked_by_unready_nodes")

    def test_before_virt_handler_exists_is_refused(self):
        nodes = [builders.node()]
        snapshot = plan.make_plan(builders.build_snapshot(nodes=nodes), [GPU], Options())
        assert builders.codes(snapshot.errors) == ["kubevirt_not_deployed"]
        assert (snapshot.moves, snapshot.batches, snapshot.daemonsets) == ((), (), ())


class TestNothingToDo:
    def test_when_everything_is_as_asked(self):
        found = made([hw("gpu", owner="gpu")])
        assert (found.changes(), found.changed, found.pending, found.errors) == ((), False, False, ())

    def test_an_interrupted_runs_exclusion_is_waited_for(self):
        nodes = [builders.node("stays")]
        rolling = builders.primary(desired=3, ready=1)
        rolling["status"]["updatedNumberScheduled"] = 1
        snapshot = builders.snapshot_of(nodes, [GPU], of_primary=rolling)
        found = made([], snapshot=snapshot)
        assert (found.changed, found.settling, found.pending) == (False, True, True)

    def test_leftover_pull_pods_are_deleted(self):
        pod = builders.pull_pod("n1")
        found = made([], pods=[pod])
        assert found.pending
        assert found.changes() == (f"Pod kubevirt/{builders.PULL_POD}: delete",)


class TestMigrations:
    VMI = kinds.VIRTUAL_MACHINE_INSTANCE.object("vm", "vms", status={"nodeName": "n1"})
    SENDER: t.ClassVar = {"sendTo": {"migrationID": "x"}}

    def planned(self, phase, **spec):
        migration = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATION.object("m", "vms", spec={"vmiName": "vm", **spec})
        migration["status"] = {"phase": phase}
        nodes = [hw("gpu"), builders.node("stays")]
        snapshot = builders.snapshot_of(nodes, [GPU], migrations=[migration], vmis=[self.VMI])
        return {finding.code: finding.message for finding in made(nodes, snapshot=snapshot).findings}

    def test_that_the_run_waits_for_are_named(self):
        said = self.planned("Running")["migrations_running"]
        assert said.endswith("a handler would break: VM vms/vm (migration m, Running).")

    def test_that_wait_for_their_other_half_are_not(self):
        assert "migrations_running" not in self.planned("Synchronizing", **self.SENDER)


class TestTermsThatChangedUnderHco:
    """HCO renders them only with our operation: the primary and the pools that derive from it follow in the same run."""

    ZONE = builders.affinity({"matchExpressions": [{"key": "zone", "operator": "Exists"}]})

    def made(self, of_primary, operations):
        nodes = [builders.node("n1", "gpu", None, {"hw": "gpu", "zone": "a"}), builders.node("n2")]
        (zone,) = self.ZONE["nodeAffinity"][names.REQUIRED_AFFINITY]["nodeSelectorTerms"]
        kubevirt, hyperconverged = builders.under_hco(builders.excluding_kubevirt(), zone, operations=operations)
        found = builders.snapshot_of(
            nodes, [GPU], of_kubevirt=kubevirt, of_primary=of_primary, hyperconvergeds=[hyperconverged]
        )
        return plan.make_plan(found, [GPU], Options())

    def test_one_run_reaches_what_a_second_one_leaves_alone(self):
        first = self.made(builders.primary(), [])
        assert first.exclusion.changed
        assert [str(change) for change in first.daemonsets] == ["DaemonSet kubevirt/virt-handler-gpu: update"]
        assert first.desired["gpu"]["spec"]["template"]["spec"]["affinity"] == self.ZONE
        written = hco.operations(first.exclusion.after)
        zoned = builders.primary(terms=self.ZONE["nodeAffinity"][names.REQUIRED_AFFINITY]["nodeSelectorTerms"])
        second = self.made(zoned, written)
        assert not second.exclusion.changed
        assert (second.daemonsets, second.moves, second.digest) == ((), (), first.digest)


class TestUnfinished:
    def test_a_node_in_transit_goes_on_to_its_pool(self):
        found = made([hw("gpu", owner=names.IN_TRANSIT, former=names.PRIMARY)])
        assert lines(found) == ["Node n1: primary -> gpu"]

    def test_a_node_in_transit_without_former_owner_was_the_primarys(self):
        found = made([hw("gpu", owner=names.IN_TRANSIT)])
        assert (found.moves[0].source, found.moves[0].target) == (names.PRIMARY, "gpu")

    def test_a_node_in_transit_whose_pool_left_the_list_goes_back(self):
        found = made([builders.node("n1", names.IN_TRANSIT, names.PRIMARY)])
        assert lines(found) == ["Node n1: primary -> primary"]

    def test_a_new_owner_is_proven_before_anything_else(self):
        found = made([hw("gpu", "n2"), hw("gpu", "n9", owner="gpu", former=names.PRIMARY)])
        assert lines(found) == ["Node n9: finish the handover to gpu", "Node n2: primary -> gpu"]
        assert found.batches[0][0].action == "finish"

    def test_a_new_owner_on_a_dead_node_cannot_be_proven(self):
        found = made([hw("gpu", owner="gpu", former=names.PRIMARY, ready=False)])
        assert found.moves == ()
        assert "n1" in builders.message(found.findings, "handover_held_back")

    def test_a_dead_node_in_transit_is_reported(self):
        found = made([hw("gpu", owner=names.IN_TRANSIT, former=names.PRIMARY, ready=False)])
        assert found.moves == ()
        assert "from in_transit to gpu" in builders.message(found.findings, "node_held_back")

    @pytest.mark.parametrize("owner", ["", "primary", "ghost"])
    def test_a_node_with_a_label_that_names_no_pool_gets_an_owner(self, owner):
        (move,) = made([builders.node("n1", owner)]).moves
        assert (move.target, move.action) == (names.PRIMARY, "move")


class TestReplace:
    def found(self, template, **fields):
        node = hw("gpu", owner="gpu", **fields)
        pod = builders.handler_pod("n1", "virt-handler-gpu", template=template, terminating=fields.pop("ending", False))
        return made([node], pods=[pod])

    def test_a_handler_from_an_old_template(self):
        assert lines(self.found("old")) == ["Node n1: replace the handler of gpu"]

    def test_not_one_from_the_present_template(self):
        assert lines(self.found(daemonsets.template_of(builders.pool_daemonset(GPU)))) == []

    def test_not_one_that_ends_anyway(self):
        pod = builders.handler_pod("n1", "virt-handler-gpu", template="old", terminating=True)
        assert lines(made([hw("gpu", owner="gpu")], pods=[pod])) == []

    def test_not_where_none_would_start_again(self):
        found = self.found("old", taints=[TAINT])
        assert found.moves == ()
        assert "n1" in builders.message(found.findings, "replacement_held_back")

    def test_an_unproven_one_is_proven_where_none_would_start(self):
        found = self.found("old", former="gpu", taints=[TAINT])
        assert lines(found) == ["Node n1: finish the replacement of the handler of gpu"]

    def test_an_unproven_one_on_a_dead_node_waits(self):
        found = self.found("old", former="gpu", ready=False)
        assert found.moves == ()
        assert "n1" in builders.message(found.findings, "replacement_held_back")

    def test_not_on_a_dead_node(self):
        found = self.found("old", ready=False)
        assert found.moves == ()
        assert "n1" in builders.message(found.findings, "replacement_held_back")

    def test_not_the_primarys(self):
        assert lines(made([], pods=[builders.handler_pod("stays")])) == []

    def test_a_new_image_replaces_all_handlers_after_the_moves(self):
        changed = builders.pool("gpu", virtHandlerImage=f"{builders.GPU_IMAGE}2")
        found = made([hw("gpu", "n1", owner="gpu"), hw("gpu", "n2")], [changed], existing=[GPU])
        assert [change.action for change in found.daemonsets] == ["update"]
        assert lines(found) == ["Node n2: primary -> gpu", "Node n1: replace the handler of gpu"]
        assert any("image" in str(difference) for difference in found.daemonsets[0].differences)


class TestKeptPool:
    def test_keeps_its_nodes_and_says_so(self):
        found = made([hw("fpga", owner="fpga")], [GPU], existing=[GPU, FPGA])
        assert found.moves == found.daemonsets == found.retired == ()
        assert "virtpools_prune: true" in builders.message(found.findings, "pool_not_listed")

    def test_follows_the_primary(self):
        old = builders.primary()
        old["spec"]["template"]["spec"]["priorityClassName"] = "another"
        found = made([hw("fpga", owner="fpga")], [GPU], [GPU], more=[builders.pool_daemonset(FPGA, old)])
        assert [(change.pool, change.action) for change in found.daemonsets] == [("fpga", "update")]
        assert [str(move) for move in found.moves] == ["Node n1: replace the handler of fpga"]

    def test_an_unreadable_one_stays_as_it_is(self):
        unreadable = builders.pool_daemonset(FPGA)
        del unreadable["metadata"]["annotations"]
        unreadable["spec"]["template"]["spec"]["priorityClassName"] = "another"
        found = made([hw("fpga", owner="fpga")], [GPU], [GPU], more=[unreadable])
        assert found.daemonsets == found.moves == ()
        assert "kept_pool_unreadable" in builders.codes(found.findings, "warning")
        assert found.desired["fpga"] == unreadable

    def after_upgrade(self, image, **fields):
        """A plan for KubeVirt 1.10 and a list without the pool fpga, whose DaemonSet is of KubeVirt 1.9."""
        kept = builders.pool("fpga", virtHandlerImage=image, **fields)
        new = json.loads(json.dumps(builders.primary()).replace(builders.VERSION, "v1.10.0"))
        listed = builders.pool("gpu", virtHandlerImage="registry.example/virt-handler:v1.10.0-gpu")
        sets = [new, builders.pool_daemonset(listed, new), builders.pool_daemonset(kept)]
        nodes = [hw("fpga", owner="fpga"), builders.node("stays")]
        found = builders.build_snapshot(
            builders.excluding_kubevirt(observedKubeVirtVersion="v1.10.0", targetKubeVirtVersion="v1.10.0"),
            daemonsets=sets,
            nodes=nodes,
            pods=builders.handlers_of(nodes, sets),
        )
        return made([], [listed], snapshot=found)

    def test_with_an_image_of_another_version_stays_as_it_is(self):
        found = self.after_upgrade(builders.GPU_IMAGE)
        assert found.daemonsets == found.moves == found.errors == ()
        assert found.desired["fpga"] == found.snapshot.pools["fpga"]
        assert builders.message(found.findings, "kept_pool_skew") == (
            f"Pool fpga: virtHandlerImage {builders.GPU_IMAGE} is of another version than KubeVirt v1.10.0; use an image built for "
            "v1.10.0, or set allowSkew: true in the pool if you know that the two work together. The pool is not in the list, so its "
            "DaemonSet virt-handler-fpga stays as it is and does not follow KubeVirt's upgrade; put the pool into the list with fit "
            "images, or set virtpools_prune: true."
        )

    @pytest.mark.parametrize(
        ("image", "fields", "code"),
        [
            (builders.GPU_IMAGE, {"allowSkew": True}, "version_skew"),
            ("registry.example/virt-handler:mine", {}, "version_skew_unknown"),
        ],
    )
    def test_with_an_image_that_a_list_may_have_follows(self, image, fields, code):
        found = self.after_upgrade(image, **fields)
        assert [str(move) for move in found.moves] == ["Node n1: replace the handler of fpga"]
        assert code in builders.codes(found.findings, "warning")

    def test_loses_the_nodes_that_a_listed_pool_selects(self):
        found = made([hw("gpu", owner="fpga")], [GPU], existing=[GPU, FPGA])
        assert lines(found) == ["Node n1: fpga -> gpu"]


class TestPrune:
    def test_gives_the_nodes_back_and_deletes_the_daemonset_last(self):
        found = made([hw("fpga", owner="fpga")], [GPU], existing=[GPU, FPGA], prune=True)
        assert found.changes() == ("Node n1: fpga -> primary", "DaemonSet kubevirt/virt-handler-fpga: delete")
        assert found.still_owning == {"fpga": ("n1",)}

    def test_a_pool_without_nodes_can_go_at_once(self):
        found = made([], [GPU], existing=[GPU, FPGA], prune=True)
        assert [change.pool for change in found.retired] == ["fpga"]
        assert found.still_owning == {}

    @pytest.mark.parametrize(
        ("owner", "former"), [("fpga", None), (names.IN_TRANSIT, "fpga"), (None, "fpga"), ("gpu", "fpga")]
    )
    def test_a_pool_that_a_dead_node_cannot_leave_stays(self, owner, former):
        """Else the run would plan its deletion for ever and never do it."""
        found = made([builders.node("n1", owner, former, ready=False)], [GPU], existing=[GPU, FPGA], prune=True)
        assert (found.retired, found.still_owning) == ((), {})
        assert "n1 cannot leave it now" in builders.message(found.findings, "pool_not_removed")
        assert not found.pending

    def test_a_node_that_is_proven_first_does_not_keep_the_pool(self):
        found = made([builders.node("n1", None, "fpga")], [GPU], existing=[GPU, FPGA], prune=True)
        assert lines(found) == ["Node n1: finish the handover to primary"]
        assert [change.pool for change in found.retired] == ["fpga"]
        assert found.still_owning == {"fpga": ("n1",)}

    def test_foreign_daemonsets_are_not_touched(self):
        foreign = builders.pool_daemonset(FPGA)
        del foreign["metadata"]["labels"][names.MANAGED_BY_LABEL]
        assert made([], [GPU], [GPU], more=[foreign], prune=True).retired == ()


class TestBatches:
    def nodes(self, count, kind="gpu", owner=None, start=0):
        return [hw(kind, f"{kind}-{index}", owner=owner) for index in range(start, start + count)]

    def sizes(self, nodes, pools=(GPU,), existing=None, **options):
        return [len(batch) for batch in made(nodes, pools, existing, **options).batches]

    def test_one_node_of_a_pool_at_a_time(self):
        assert self.sizes(self.nodes(3)) == [1, 1, 1]

    def test_as_many_as_allowed(self):
        assert self.sizes(self.nodes(5), max_unavailable=2) == [2, 2, 1]

    def test_a_percentage_of_the_pool_rounded_down_but_at_least_one(self):
        assert self.sizes(self.nodes(7), max_unavailable="30%") == [2, 2, 2, 1]
        assert self.sizes(self.nodes(3), max_unavailable="10%") == [1, 1, 1]

    def test_pools_side_by_side(self):
        nodes = [*self.nodes(2), *self.nodes(1, "fpga")]
        assert self.sizes(nodes, [GPU, FPGA]) == [2, 1]

    def test_nodes_that_leave_count_for_their_pool(self):
        nodes = [builders.node(f"n{index}", "fpga") for index in range(3)]
        assert self.sizes(nodes, [GPU], [GPU, FPGA], prune=True) == [1, 1, 1]

    def test_nodes_are_in_natural_order(self):
        nodes = [hw("gpu", f"node-{index}") for index in (10, 9, 100, 1)]
        random.Random(1).shuffle(nodes)
        assert [move.node for move in made(nodes).moves] == ["node-1", "node-9", "node-10", "node-100"]


OBJECTS, OWNERS, OPTIONS = "the desired objects", "the owners of nodes", "the options"


class TestDigest:
    NODES = (hw("gpu"), hw("fpga", "n2"))

    def changed(self, nodes=NODES, pools=(GPU, FPGA), primary=None, **options):
        """The parts that the message names as changed since the approved plan."""
        approved = made(self.NODES, (GPU, FPGA)).digest
        snapshot = builders.snapshot_of([*nodes, builders.node("stays")], [GPU, FPGA], of_primary=primary)
        text = plan.make_plan(snapshot, pools, Options(**options)).digest.mismatch(f" {approved}\n")
        return [part for part in (OBJECTS, OWNERS, OPTIONS) if part in (text or "")]

    def test_of_the_same_plan(self):
        assert self.changed() == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"virtHandlerImage": f"{builders.GPU_IMAGE}2"},
            {"virtLauncherImage": builders.GPU_LAUNCHER_IMAGE, "selector": DEVICE},
            {"selector": DEVICE},
            {"selector": DEVICE, "activation": "50%"},
            {"tolerations": [{"operator": "Exists"}]},
            {"nodeExpressions": [{"key": "hw", "operator": "Exists"}]},
        ],
        ids="+".join,
    )
    def test_of_a_changed_pool(self, fields):
        assert self.changed(pools=(builders.pool("gpu", **fields), FPGA)) == [OBJECTS]

    def test_of_an_upgraded_primary(self):
        upgraded = builders.primary()
        upgraded["spec"]["template"]["spec"]["containers"][0]["args"].append("--new")
        assert self.changed(primary=upgraded) == [OBJECTS]

    def test_of_a_selector_that_takes_another_node(self):
        pools = (builders.pool("gpu", nodeSelector={"kubernetes.io/hostname": "stays"}), FPGA)
        assert self.changed(pools=pools) == [OBJECTS, OWNERS]

    def test_of_a_relabelled_node(self):
        assert self.changed([hw("gpu"), hw("gpu", "n2")]) == [OWNERS]

    def test_of_a_node_that_came_or_went(self):
        assert self.changed([*self.NODES, builders.node("new")]) == [OWNERS]
        assert self.changed(self.NODES[:1]) == [OWNERS]

    def test_of_labels_that_no_pool_asks_for(self):
        labelled = copy.deepcopy(self.NODES[0])
        labelled["metadata"]["labels"]["team"] = "a"
        assert self.changed([labelled, self.NODES[1]]) == []

    @pytest.mark.parametrize(
        "option", [{"overlap": "first_wins"}, {"prune": True}, {"max_unavailable": 2}, {"prepull": False}], ids=str
    )
    def test_of_options_that_change_writes(self, option):
        assert self.changed(**option) == [OPTIONS]

    @pytest.mark.parametrize(
        "option",
        [
            {"guard": False},
            {"drain": Drain("migrate")},
            {"drain": Drain("migrate", "fail")},
            {"remove_vms": "migrate"},
            {"remove_vms": "wait"},
        ],
        ids=str,
    )
    def test_of_options_that_decide_about_guard_and_vms(self, option):
        assert OPTIONS in self.changed(**option)

    def test_of_new_nodes_that_get_their_owner(self):
        assert OPTIONS in self.changed(assign_new_nodes=True)

    def test_of_an_option_that_changes_none(self):
        assert self.changed(max_unavailable=read_share("1", "max_unavailable")) == []

    def test_of_several_changes_names_them_all(self):
        assert self.changed([], (builders.pool("gpu", selector=DEVICE),), prune=True) == [OBJECTS, OWNERS, OPTIONS]

    @pytest.mark.parametrize(
        ("approved", "now", "pending", "used_up"),
        [
            ("a", "a", True, False),
            ("a", "b", True, True),
            ("a", "b", False, False),
            (None, "b", True, False),
            ("a", None, True, False),
        ],
    )
    def test_of_the_list_that_the_cluster_has(self, approved, now, pending, used_up):
        """The same run again, which changes nothing, needs no new approval. Plans from files know no history."""
        digest = made([]).digest
        of = [digest if newest is None else replace(digest, history=short_digest(newest)) for newest in (approved, now)]
        assert bool(of[1].mismatch(str(of[0]), pending=pending)) is used_up

    def test_of_the_list_holds_for_a_move_that_has_begun(self):
        before, now = (replace(made([]).digest, history=short_digest(newest)) for newest in ("a", "b"))
        assert before.mismatch(str(now))
        assert now.mismatch(str(before), begun=str(before)) is None

    @pytest.mark.parametrize("text", ["", "yes", "a-b-c", "0" * 38, "4be2a0fcd1c1-77d0ff0ae914", "x" * 500])
    def test_a_text_that_is_no_digest_is_refused(self, text):
        with pytest.raises(InputErrors, match="virtpools_expected_plan is .*which is not a plan digest; copy it"):
            made([]).digest.mismatch(text)


def test_a_held_back_node_does_not_keep_the_exclusion_out():
    nodes = [hw("gpu", "n1", ready=False), hw("gpu", "n2")]
    pods = [builders.handler_pod("n2")]
    stock = {"of_kubevirt": builders.kubevirt(), "of_primary": builders.primary(excluded=False)}
    found = made([], snapshot=builders.snapshot_of(nodes, [GPU], pods=pods, **stock))
    assert "n1" in found.held_back
    assert found.exclusion.changed


def test_an_unproven_replacement_with_a_new_template_is_finished():
    nodes = [hw("gpu", "n1", "gpu", "gpu"), hw("gpu", "n2", "gpu", "gpu")]
    pods = builders.handlers_of(nodes, [builders.pool_daemonset(GPU)])
    pods[1]["metadata"]["annotations"][names.TEMPLATE_ANNOTATION] = "old"
    found = made(nodes, pods=pods)
    assert lines(found) == [
        "Node n1: finish the replacement of the handler of gpu",
        "Node n2: replace the handler of gpu",
    ]


def test_a_handler_that_was_replaced_before_its_wave_is_reported():
    nodes = [hw("gpu", name, "gpu") for name in ("n1", "n2", "n3")]
    pods = builders.handlers_of(nodes, [builders.pool_daemonset(GPU)])
    waves = parse([{"nodes": ["n1"]}, {"nodes": ["n2", "n3"]}])
    assert "handler_replaced_early" not in builders.codes(made(nodes, pods=pods, waves=waves).findings)
    pods[0]["metadata"]["annotations"][names.TEMPLATE_ANNOTATION] = "old"
    pods[2]["metadata"]["annotations"][names.TEMPLATE_ANNOTATION] = "old"
    found = made(nodes, pods=pods, waves=waves)
    assert "Wave 2 (n2, n3) has 1 node that already runs a handler from the new template" in builders.message(
        found.findings, "handler_replaced_early"
    )
    assert lines(found) == ["Node n1: replace the handler of gpu", "Node n3: replace the handler of gpu"]
    assert "handler_replaced_early" not in builders.codes(made(nodes, pods=pods).findings), "one wave has no order"


class TestRestoredNodes:
    """A rollout restores some nodes to what an earlier list makes of them."""

    NEXT = builders.pool("gpu", virtHandlerImage=f"{builders.HANDLER_IMAGE}-next")

    def back(self, nodes, only, former=(), pools=(GPU,), **fields):
        found = builders.snapshot_of([*nodes, builders.node("stays")], pools, **fields)
        return plan.make_plan(found, former, Options(restore_nodes=frozenset(only)))

    def test_to_the_primary_where_there_were_no_pools(self):
        found = self.back([hw("gpu", "n1", "gpu"), hw("gpu", "n2", "gpu"), hw("gpu", "n3")], ["n2", "n3"])
        assert lines(found) == ["Node n2: gpu -> primary"]
        assert (found.daemonsets, found.retired, found.exclusion.changed, found.errors) == ((), (), False, ())

    def test_to_the_pool_that_they_were_taken_from(self):
        former = [GPU, builders.pool("fpga", nodeSelector={"hw": "gpu", "disk": "big"})]
        node = builders.node("n1", labels={"hw": "gpu"})
        assert lines(self.back([node], ["n1"], [GPU], pools=former)) == ["Node n1: primary -> gpu"]

    def test_to_the_handler_that_they_had(self):
        nodes = [hw("gpu", name, "gpu") for name in ("n1", "n2")]
        found = self.back(nodes, ["n2"], [GPU], pools=[self.NEXT])
        assert list(map(str, found.daemonsets)) == ["DaemonSet kubevirt/virt-handler-gpu: update"]
        there = self.back(nodes, ["n2"], [GPU], pods=self.pods_of(nodes, self.NEXT))
        assert lines(there) == ["Node n2: replace the handler of gpu"]

    def test_the_daemonset_stays_new_without_restored_nodes(self):
        nodes = [hw("gpu", "n1", "gpu"), hw("fpga", "n2", "fpga")]
        found = self.back(nodes, ["n2"], [GPU], pools=[self.NEXT, FPGA])
        assert (lines(found), found.daemonsets) == (["Node n2: fpga -> primary"], ())

    @pytest.mark.parametrize("lost", ["Degraded", "Available"])
    def test_beside_a_kubevirt_that_is_not_well(self, lost):
        conditions = {"Available": "True", "Progressing": "False", "Degraded": "False"}
        conditions[lost] = "True" if lost == "Degraded" else "False"
        of_kubevirt = builders.excluding_kubevirt(conditions=conditions)
        found = self.back([hw("gpu", "n1", "gpu")], ["n1"], of_kubevirt=of_kubevirt)
        assert (found.errors, lines(found)) == ((), ["Node n1: gpu -> primary"])

    def test_a_pool_that_loses_its_last_node_gets_no_vm_any_more(self):
        pool = vms.gpu()
        given_ = {"pools": [pool], "admission": vms.admission(*vms.policy(pool))}
        nodes = [vms.node("gpu-0", "gpu"), vms.node("gpu-1", "gpu")]
        assert self.back(nodes, ["gpu-1"], **given_).part("launcher_policy") is None
        emptied = self.back(nodes, ["gpu-0", "gpu-1"], **given_)
        assert emptied.part("launcher_policy").steps == (0,)
        assert "New VMs no longer go to pool gpu" in emptied.changes()
        assert emptied.launcher_rollout.stages[-1].keep_off == ("gpu",), "its DaemonSet is still there"

    def pods_of(self, nodes, pool):
        return builders.handlers_of(nodes, [builders.pool_daemonset(pool)])
