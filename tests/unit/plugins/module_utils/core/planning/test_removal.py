# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import dataclasses

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard, node_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import history as histories
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan, removal
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.mapping import Table
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fleets, vms

GPU, RT = builders.pool("gpu"), builders.pool("rt")
POLICY = kinds.MUTATING_ADMISSION_POLICIES[0].name
HISTORY = {
    **kinds.CONFIG_MAP.object(names.HISTORY, builders.NAMESPACE),
    "metadata": {
        "name": names.HISTORY,
        "namespace": builders.NAMESPACE,
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
    },
}


def removing(nodes, pools=(GPU, RT), removed="all", **fields):
    found = builders.snapshot_of([*nodes, builders.node("stays")], pools, **fields)
    return plan.make_plan(found, (), Options(remove_pools=removed))


def lines(found):
    return [str(move) for move in found.moves]


class TestParse:
    @pytest.mark.parametrize(
        ("given_", "meant"),
        [
            (None, None),
            ("all", "all"),
            ("gpu", ("gpu",)),
            ("gpu, rt", ("gpu", "rt")),
            (["gpu", "gpu", "rt"], ("gpu", "rt")),
            (["all"], ("all",)),  # a pool of that name
        ],
    )
    def test_takes(self, given_, meant):
        assert removal.parse(given_) == meant

    @pytest.mark.parametrize("given_", [[], "", "gpu,", {"gpu": 1}, [1], True])
    def test_refuses(self, given_):
        with pytest.raises(InputErrors, match="give the names of pools as a list, or all"):
            removal.parse(given_)


class TestAll:
    def test_nodes_come_before_daemonsets_exclusion_and_history(self):
        found = removing(
            [builders.node("n1", "gpu"), builders.node("n2", "rt")],
            admission=vms.admission(HISTORY),
        )
        assert found.changes() == (
            "Node n1: gpu -> primary",
            "Node n2: rt -> primary",
            "DaemonSet kubevirt/virt-handler-gpu: delete",
            "DaemonSet kubevirt/virt-handler-rt: delete",
            str(found.exclusion),
            "ConfigMap kubevirt/virtpools-history: delete",
        )
        assert "let the primary virt-handler run on every node again" in str(found.exclusion)
        assert found.errors == ()
        assert exclusion.exclusion_requested(found.exclusion.after) is False

    def test_a_history_that_is_not_ours_stays(self):
        foreign = copy.deepcopy(HISTORY)
        del foreign["metadata"]["labels"]
        assert removing([], admission=vms.admission(foreign)).cleared == ()

    def test_changes_nothing_where_nothing_is_left(self):
        found = plan.make_plan(builders.fresh_snapshot([builders.node()]), (), Options(remove_pools="all"))
        assert (found.pending, found.findings) == (False, ())

    def test_goes_on_where_only_the_exclusion_is_left(self):
        found = plan.make_plan(builders.snapshot_of([builders.node()]), (), Options(remove_pools="all"))
        assert (found.pending, found.exclusion.changed, found.moves) == (True, True, ())

    def test_labels_that_no_pool_explains_go_too(self):
        found = removing([builders.node("n1", "ghost"), builders.node("n2", names.IN_TRANSIT), builders.node("n3", "")])
        assert lines(found) == ["Node n1: ghost -> primary", "Node n2: primary -> primary", "Node n3: '' -> primary"]

    def test_a_node_on_its_way_back_to_the_primary_is_finished(self):
        assert lines(removing([builders.node("n1", None, "primary")])) == ["Node n1: finish the handover to primary"]

    def test_a_dead_node_keeps_its_daemonset_and_the_exclusion(self):
        dead = builders.node("n1", "gpu", ready=False)
        found = removing([dead, builders.node("n2", "rt")], admission=vms.admission(HISTORY))
        assert lines(found) == ["Node n2: rt -> primary"]
        assert [change.pool for change in found.retired] == ["rt"]
        assert (found.exclusion.changed, found.cleared) == (False, ())
        assert {"node_held_back", "pool_not_removed"} <= set(builders.codes(found.findings, "warning"))

    @pytest.mark.parametrize(
        "node",
        [
            builders.node("n1", names.IN_TRANSIT, "gpu", ready=False),
            builders.node("n1", None, "gpu", ready=False),
        ],
        ids=["in transit", "not proven"],
    )
    def test_a_handover_that_cannot_be_finished_keeps_the_exclusion(self, node):
        """Nothing but the node tells of it when an earlier run has deleted its pool."""
        found = removing([node], (), admission=vms.admission(HISTORY))
        assert (found.exclusion.changed, found.cleared) == (False, ())

    def test_a_pool_that_cannot_go_stays_guarded_without_vms(self):
        pool = vms.gpu()
        guards = [obj for _kind, obj in guard.derive(builders.NAMESPACE, [])]
        served = vms.admission(*vms.policy(pool), *guards)
        dead = builders.node("n1", "gpu", ready=False)
        found = removing([dead], [pool], admission=served)
        assert found.part("guard") is None
        assert found.part("launcher_policy").steps == (0,)

    def test_pool_vms_lose_their_mapping_first_others_stay_off(self):
        pool = vms.gpu()
        found = removing(vms.nodes(), [pool], admission=vms.admission(*vms.policy(pool)))
        assert found.part("launcher_policy").changes(0) == (
            f"{POLICY} virtpools-launcher: update",
            "New VMs no longer go to pool gpu",
        )
        assert found.launcher_rollout.stages[0].keep_off == ("gpu",)
        assert found.part("launcher_policy").steps == (0, 2)
        assert found.part("launcher_policy").changes(2) == (
            f"{POLICY}Binding virtpools-launcher: delete",
            f"{POLICY} virtpools-launcher: delete",
        )

    def test_stays_approved_when_the_policies_are_gone(self):
        pool, served = vms.gpu(), kinds.MUTATING_ADMISSION_POLICIES[0]
        of_nodes = [obj for _kind, obj in node_policy.derive([pool], served)]
        guards = [obj for _kind, obj in guard.derive(builders.NAMESPACE, [pool])]
        first = removing(vms.nodes(), [pool], admission=vms.admission(*vms.policy(pool), *of_nodes, *guards, HISTORY))
        assert first.part("node_policy").changes(0)
        assert first.part("guard").changes("last")
        half = removing(
            [vms.node("gpu-0", "gpu"), vms.node("gpu-1"), vms.node("rest")], [pool], admission=vms.admission()
        )
        assert half.digest.mismatch(str(first.digest)) is None

    def test_makes_no_policy_where_there_is_none(self):
        found = removing(vms.nodes(), [vms.gpu()], admission=vms.admission())
        assert not any(found.part("launcher_policy").changes(step) for step in found.part("launcher_policy").steps)


class TestSome:
    def test_only_the_named_pool_goes(self):
        found = removing([builders.node("n1", "gpu"), builders.node("n2", "rt")], removed=("gpu",))
        assert found.changes() == ("Node n1: gpu -> primary", "DaemonSet kubevirt/virt-handler-gpu: delete")
        assert found.pools == ("rt",)

    def test_nodes_go_to_a_pool_that_stays_and_selects_them(self):
        found = removing([builders.node("n1", "gpu", labels={"hw": "rt"})], removed=("gpu",))
        assert lines(found) == ["Node n1: gpu -> rt"]

    def test_drift_of_others_is_left_alone(self):
        drifted = [
            builders.node("n1", labels={"hw": "rt"}),
            builders.node("n2", "rt", labels={"hw": "other"}),
            builders.node("n3", names.IN_TRANSIT, "rt"),
            builders.node("n4", "rt", "primary"),
        ]
        assert removing(drifted, removed=("gpu",)).moves == ()

    def test_unfinished_handovers_of_the_pool_are_undone(self):
        half = [builders.node("n1", names.IN_TRANSIT, "gpu"), builders.node("n2", None, "gpu")]
        found = removing(half, removed=("gpu",))
        assert lines(found) == ["Node n2: finish the handover to primary", "Node n1: gpu -> primary"]

    @pytest.mark.parametrize("former", ["primary", "ghost", None])
    def test_a_node_in_transit_to_the_pool_goes_back(self, former):
        found = removing([builders.node("n1", names.IN_TRANSIT, former)], removed=("gpu",))
        assert lines(found) == [f"Node n1: {former or 'primary'} -> primary"]
        assert "in_transit" not in builders.codes(found.findings)

    def test_a_node_in_transit_goes_to_a_pool_that_selects_it(self):
        found = removing([builders.node("n1", names.IN_TRANSIT, "primary", {"hw": "rt"})], removed=("gpu",))
        assert lines(found) == ["Node n1: primary -> rt"]

    def test_a_node_in_transit_of_an_unreadable_pool_stays(self):
        unreadable = builders.pool_daemonset(RT)
        del unreadable["metadata"]["annotations"][names.POOL_ANNOTATION]
        nodes = [builders.node("n1", names.IN_TRANSIT, "rt")]
        found = removing(nodes, [GPU], removed=("gpu",), more=[unreadable])
        assert (found.moves, found.wanted["n1"]) == ((), names.IN_TRANSIT)

    def test_a_node_left_in_transit_is_named_with_the_remedy(self):
        found = removing([builders.node("n1", names.IN_TRANSIT, "rt")], removed=("gpu",))
        assert builders.codes(found.findings, "warning") == ["in_transit"]
        assert builders.message(found.findings, "in_transit") == (
            "1 node has no virt-handler, because a run stopped in the middle of a handover from a pool that stays: n1. This run does "
            "not finish it; run site with the list of the pools that stay."
        )

    def test_a_node_on_its_way_back_to_the_primary_is_finished(self):
        assert lines(removing([builders.node("n1", None, "primary")], removed=("gpu",))) == [
            "Node n1: finish the handover to primary"
        ]

    def test_the_last_pool_takes_the_exclusion_with_it(self):
        assert removing([], [GPU], removed=("gpu",)).exclusion.changed

    def test_an_unknown_pool_is_an_error_that_lists_the_known_ones(self):
        found = removing([], removed=("gpu", "ghost"))
        assert builders.message(found.errors, "removed_pool_unknown") == (
            "The cluster has no pool ghost and its history names none; its pools are: gpu, rt. Correct virtpools_remove, then run "
            "again."
        )

    def test_a_pool_of_the_history_was_removed_before(self):
        entry = histories.entry_of((builders.pool("ghost"),), (), Options(), "then", "me")
        past = histories.History((entry,)).to_config_map(builders.NAMESPACE)
        found = removing(
            [], removed=("gpu", "ghost"), admission=Admission(objects={("ConfigMap", names.HISTORY): past})
        )
        assert found.errors == ()
        assert "no longer has pool ghost" in builders.message(found.findings, "removed_pool_gone")
        assert [change.pool for change in found.retired] == ["gpu"]

    def test_after_the_last_pool_any_name_was_removed_before(self):
        found = removing([], [], removed=("gpu",))
        assert (found.errors, found.moves, found.retired) == ((), (), ())

    @pytest.mark.parametrize("known_by", ["history", "policy"])
    @pytest.mark.parametrize("others", [[], [builders.pool("fpga")]], ids=["last one known", "one of two"])
    def test_a_pool_that_stays_must_have_its_daemonset(self, known_by, others):
        """It may lack it for a moment, as when another client replaces it: then this is not the removal of the last pool."""
        stays = vms.gpu("rt", nodeSelector={"hw": "rt"})
        entry = histories.entry_of((GPU, stays), (), Options(), "then", "me")
        past = histories.History((entry,)).to_config_map(builders.NAMESPACE)
        admission = vms.admission(past if known_by == "history" else vms.policy(stays)[0])
        nodes = [builders.node("n1", "gpu"), builders.node("n2", "rt")]
        found = removing(nodes, [GPU, *others], removed=("gpu",), admission=admission)
        assert builders.message(found.errors, "kept_pool_missing").startswith(
            "Nodes belong to pool rt, which is to stay, but its DaemonSet does not exist, or has lost labels by which this collection knows"
        )
        for removed in ("all", ("gpu", "rt")):
            found = removing(nodes, [GPU, *others], removed=removed, admission=admission)
            assert "kept_pool_missing" not in builders.codes(found.findings)

    def test_launcher_images_of_others_stay_as_they_are_in_effect(self):
        stays = vms.gpu("rt", nodeSelector={"hw": "rt"})
        newer = dataclasses.replace(stays, virt_launcher_image="registry.example/virt-launcher:v1.9.0-newer")
        nodes = [builders.node("n1", "gpu"), builders.node("n2", "rt", labels={"hw": "rt"})]
        found = removing(nodes, [GPU, newer], removed=("gpu",), admission=vms.admission(*vms.policy(stays)))
        assert {table.images["rt"] for table in found.launcher_rollout.stages} == {vms.IMAGE}

    @pytest.mark.parametrize(
        "stays",
        [vms.gpu("rt", nodeSelector={"hw": "rt"}), builders.pool("rt", unmatched="keep_off")],
        ids=["takes VMs", "keeps VMs off"],
    )
    @pytest.mark.parametrize("by", ["removal", "list"])
    def test_an_unreadable_pool_that_stays_keeps_its_vms(self, stays, by):
        """As when a later release of this collection has written its DaemonSet."""
        unreadable = builders.pool_daemonset(stays)
        unreadable["metadata"]["annotations"][names.POOL_ANNOTATION] = '{"later": "form"}'
        nodes = [builders.node("n1", "gpu", labels={"hw": "gpu"}), builders.node("n2", "rt", labels={"hw": "rt"})]
        found = builders.snapshot_of(nodes, [GPU], more=[unreadable], admission=vms.admission(*vms.policy(stays)))
        pools, options = ((), Options(remove_pools=("gpu",))) if by == "removal" else ([GPU], Options())
        stages = plan.make_plan(found, pools, options).launcher_rollout.stages
        wanted = Table.for_pools([stays])
        assert {(table.rules, table.keep_off) for table in stages} == {(wanted.rules, wanted.keep_off)}


class TestUnhealthyKubeVirt:
    @pytest.mark.parametrize("conditions", [{"Degraded": "True"}, {"Available": "False"}])
    def test_does_not_keep_nodes_from_going_back(self, conditions):
        of_kubevirt = builders.excluding_kubevirt(conditions=conditions)
        found = removing([builders.node("n1", "gpu")], of_kubevirt=of_kubevirt)
        assert (found.errors, lines(found)) == ((), ["Node n1: gpu -> primary"])
        assert "the exclusion is removed only once that is repaired" in builders.message(
            found.findings, "kubevirt_unhealthy"
        )

    def test_an_upgrade_keeps_nodes_from_going_back(self):
        of_kubevirt = builders.excluding_kubevirt(targetKubeVirtVersion="v1.9.1")
        found = removing([builders.node("n1", "gpu")], of_kubevirt=of_kubevirt)
        assert builders.codes(found.errors) == ["kubevirt_upgrading"]

    def test_a_missing_primary_keeps_nodes_from_going_back(self):
        found = builders.snapshot_of([builders.node("n1", "gpu")], [GPU])
        found = dataclasses.replace(found, primary=None)
        assert builders.codes(plan.make_plan(found, (), Options(remove_pools="all")).errors) == [
            "kubevirt_not_deployed"
        ]


class TestVms:
    def findings(self, *pods, mode="refuse", owners=("gpu",), of_nodes=None):
        found = builders.snapshot_of(vms.nodes() if of_nodes is None else of_nodes)
        wanted = {name: names.PRIMARY if node.owner in owners else node.owner for name, node in found.nodes.items()}
        loss = removal.loss_of(found.nodes, wanted, owners, [vms.gpu(), RT], removing=True)
        losing = removal.LosingVms(loss)
        assert len(list(losing.noting(map(LauncherPod.from_object, pods)))) == len(pods)
        return list(losing.findings(mode))

    @pytest.mark.parametrize(
        "pod",
        [
            vms.launcher(),
            vms.launcher(pool=names.PRIMARY),  # on a node of the pool, with KubeVirt's own image
            vms.launcher(on="rest"),  # elsewhere, as after an interrupted removal
            vms.launcher(on="rest", pool=None, image=vms.IMAGE),
        ],
    )
    def test_with_its_image_or_on_its_nodes_count(self, pod):
        (found,) = self.findings(pod)
        assert (found.severity, found.code) == ("error", "vms_of_pool")
        assert found.message.startswith("1 VM runs with the launcher image of pool gpu or on its nodes (plain/vm)")

    @pytest.mark.parametrize(
        "pod",
        [
            vms.launcher(phase="Succeeded"),
            vms.launcher(deletionTimestamp=vms.LATER),
            vms.launcher(on="rest", pool=names.PRIMARY),
        ],
    )
    def test_others_do_not(self, pod):
        assert self.findings(pod) == []

    def test_with_kubevirts_image_count_only_on_its_nodes(self):
        def stock(**fields):
            pod = vms.launcher(image=vms.STOCK, **fields)
            pod["spec"]["containers"][0]["env"].append({"name": names.STOCK_IMAGE_ENV, "value": vms.STOCK})
            return pod

        assert self.findings(stock(on="rest")) == []
        assert self.findings(stock(on="rest", device=False)) == []
        assert builders.codes(self.findings(stock())) == ["vms_of_pool"]

    def test_of_pools_that_stay_do_not(self):
        assert self.findings(vms.launcher(), owners=("rt",)) == []
        assert self.findings(vms.launcher(on="rest", pool=None, image=vms.IMAGE), owners=("rt",)) == []

    def test_of_another_pool_with_the_same_image_do_not(self):
        assert self.findings(vms.launcher(on="rest", pool="other", image=vms.IMAGE)) == []

    @pytest.mark.parametrize("owner", [None, names.IN_TRANSIT])
    def test_on_a_node_that_no_pool_has_do_not(self, owner):
        nodes = builders.snapshot_of([builders.node("n1", owner)]).nodes
        assert not removal.loss_of(nodes, {"n1": "gpu"}, (), [vms.gpu()], removing=False)

    @pytest.mark.parametrize(("mode", "code"), [("leave", "vms_left"), ("migrate", "vms_migrated")])
    def test_are_a_note_when_the_user_says_what_happens_to_them(self, mode, code):
        (found,) = self.findings(vms.launcher(), mode=mode)
        assert (found.severity, found.code) == ("note", code)


class TestAnyFleet:
    def plan_of(self, fleet, removed, nodes=None, without=()):
        pools = [*fleet.pools, *(builders.pool(name) for name in fleet.kept)]
        existing = [pool for pool in pools if pool.name not in without]
        found = builders.snapshot_of(fleet.nodes if nodes is None else nodes, existing)
        return plan.make_plan(found, (), Options(remove_pools=removed))

    @fleets.SETTINGS
    @given(fleets.fleets(), st.data())
    def test_others_keep_theirs_and_a_second_removal_changes_nothing(self, fleet, data):
        present = [*(pool.name for pool in fleet.pools), *fleet.kept]
        some = st.lists(st.sampled_from(present), min_size=1, unique=True).map(tuple)
        removed = data.draw(st.one_of(st.just("all"), some))
        first = self.plan_of(fleet, removed)
        gone = set(present) if removed == "all" else set(removed)
        for move in first.moves:
            node = first.snapshot.nodes[move.node]
            last = gone == set(present)
            halfway = node.unfinished and node.owner in (names.PRIMARY, names.IN_TRANSIT)
            assert last or {node.owner, node.former_owner} & gone or (halfway and node.former_owner not in present)
            assert move.target not in gone
        done = data.draw(st.integers(0, len(first.moves)))
        half = self.plan_of(fleet, removed, builders.after_moves(fleet.nodes, first.moves[:done]))
        assert half.digest.mismatch(str(first.digest)) is None
        assert {move.node for move in half.moves} == {move.node for move in first.moves[done:]}
        deleted = {change.pool for change in first.retired}
        end = self.plan_of(fleet, removed, builders.after_moves(fleet.nodes, first.moves), deleted)
        assert (end.moves, end.retired) == ((), ())
        silent = [node.name for node in first.nodes_after().values() if node.owner == names.IN_TRANSIT]
        assert all(any(node in finding.message for finding in first.findings) for node in silent)
        stuck = [node for node in end.snapshot.nodes.values() if node.owner in gone or node.former_owner in gone]
        assert not any(node.ready and not node.taints for node in stuck)
