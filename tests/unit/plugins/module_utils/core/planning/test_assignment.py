# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Admission
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import assignment, plan, plan_text
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fleets

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def assigned(nodes, pools=(), kept=(), overlap="error", *, primary=None, complete=True):
    stock = primary or builders.primary()
    templates = {p.name: builders.pool_daemonset(p, stock)["spec"]["template"] for p in pools}
    for name in kept:
        templates[name] = builders.pool_daemonset(builders.pool(name), stock)["spec"]["template"]
    templates[names.PRIMARY] = {"spec": exclusion.without_exclusion_terms(stock["spec"]["template"]["spec"])}
    by_name = {node["metadata"]["name"]: Node.from_object(node) for node in nodes}
    return assignment.assign(by_name, pools, kept, templates, overlap, complete=complete)


def hw(kind, name="n1", **fields):
    return builders.node(name, labels={"hw": kind}, **fields)


GPU, FPGA = builders.pool("gpu"), builders.pool("fpga")
EVERYTHING = builders.pool("everything", nodeSelector={"kubernetes.io/os": "linux"})
TOLERANT = builders.pool("gpu", tolerations=[{"key": "gpu", "operator": "Exists"}])


@fleets.SETTINGS
@given(fleets.fleets())
def test_every_node_has_exactly_one_wanted_owner(fleet):
    found = assigned(fleet.nodes, fleet.pools, fleet.kept, "first_wins")
    assert dict(found.wanted) == {
        node["metadata"]["name"]: fleets.expected_owner(node, fleet.pools, fleet.kept) for node in fleet.nodes
    }
    owners = [*(pool.name for pool in fleet.pools), *fleet.kept, names.PRIMARY]
    together = [node for owner in dict.fromkeys(owners) for node in found.nodes_of(owner)]
    assert sorted(together) == sorted(found.wanted)


@fleets.SETTINGS
@given(fleets.fleets())
def test_only_nodes_that_should_go_elsewhere_are_held_back(fleet):
    found = assigned(fleet.nodes, fleet.pools, fleet.kept, "first_wins")
    there = {*(pool.name for pool in fleet.pools), *fleet.kept}
    for node in map(Node.from_object, fleet.nodes):
        away = found.wanted[node.name] != node.owner
        tainted = bool(node.taints) and (found.wanted[node.name] != names.PRIMARY or node.owner in there)
        assert (node.name in found.blocked) == (away and (not node.ready or tainted))


class TestOwner:
    def test_is_the_first_pool_that_matches(self):
        node = hw("gpu")
        assert assigned([node], [GPU, EVERYTHING], overlap="first_wins").wanted == {"n1": "gpu"}
        assert assigned([node], [EVERYTHING, GPU], overlap="first_wins").wanted == {"n1": "everything"}

    def test_is_the_primary_where_no_pool_matches(self):
        assert assigned([builders.node(owner="gpu"), hw("gpu", "n2")], [GPU]).wanted["n1"] == names.PRIMARY

    def test_of_a_kept_pools_node_stays(self):
        assert assigned([builders.node(owner="old")], kept=["old"]).wanted == {"n1": "old"}

    def test_of_a_kept_pools_node_is_the_listed_pool_that_selects_it(self):
        assert assigned([hw("gpu", owner="old")], [GPU], ["old"]).wanted == {"n1": "gpu"}

    @pytest.mark.parametrize(("former", "expected"), [("old", "old"), ("gone", names.PRIMARY), (None, names.PRIMARY)])
    def test_of_a_node_in_transit_is_the_kept_pool_it_came_from(self, former, expected):
        node = builders.node(owner=names.IN_TRANSIT, former=former)
        assert assigned([node], kept=["old"]).wanted == {"n1": expected}

    def test_a_proven_nodes_former_owner_does_not_matter(self):
        assert assigned([builders.node(former="old")], kept=["old"]).wanted == {"n1": names.PRIMARY}

    def test_of_a_node_with_an_unknown_owner_is_the_primary(self):
        assert assigned([builders.node(owner="ghost")]).wanted == {"n1": names.PRIMARY}


class TestBlocked:
    def test_by_a_node_that_is_not_ready(self):
        found = assigned([hw("gpu", ready=False), builders.node("n2")], [GPU])
        assert found.blocked == {"n1": "the node is not Ready"}
        assert "from primary to gpu but cannot now, because the node is not Ready: n1" in builders.message(
            found.findings, "node_held_back"
        )

    def test_by_a_taint(self):
        found = assigned([hw("gpu", taints=[TAINT]), builders.node("n2")], [GPU])
        assert found.blocked == {"n1": "taint gpu=yes:NoSchedule is not tolerated"}

    def test_not_by_a_taint_that_the_pool_tolerates(self):
        assert assigned([hw("gpu", taints=[TAINT]), builders.node("n2")], [TOLERANT]).blocked == {}

    @pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
    @pytest.mark.parametrize(
        "condition",
        ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"],
    )
    def test_not_by_what_every_daemon_pod_tolerates(self, condition, effect):
        taint = {"key": f"node.kubernetes.io/{condition}", "effect": effect}
        assert assigned([hw("gpu", taints=[taint]), builders.node("n2")], [GPU]).blocked == {}

    def test_not_by_a_taint_that_only_discourages(self):
        taint = {**TAINT, "effect": "PreferNoSchedule"}
        assert assigned([hw("gpu", taints=[taint]), builders.node("n2")], [GPU]).blocked == {}

    def test_by_the_users_placement(self):
        zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        found = assigned([hw("gpu")], [GPU], primary=builders.primary(terms=(zone,)))
        assert "spec.workloads.nodePlacement" in found.blocked["n1"]
        node = builders.node(labels={"hw": "gpu", "zone": "a"})
        assert assigned([node], [GPU], primary=builders.primary(terms=(zone,))).blocked == {}

    def test_by_the_primarys_node_selector(self):
        node = hw("gpu")
        node["metadata"]["labels"]["kubernetes.io/os"] = "windows"
        assert assigned([node], [GPU]).blocked == {"n1": "its DaemonSet selects kubernetes.io/os=linux"}

    def test_a_node_may_go_back_to_where_the_primary_does_not_run(self):
        assert assigned([builders.node(owner="gpu", taints=[TAINT]), builders.node("n2")], []).blocked == {}

    def test_by_a_taint_that_only_its_pool_of_the_list_tolerates(self):
        nodes = [builders.node(owner="gpu", taints=[TAINT]), builders.node("n2")]
        assert assigned(nodes, [TOLERANT]).blocked == {"n1": "taint gpu=yes:NoSchedule is not tolerated"}

    def test_a_node_that_stays_is_never_blocked(self):
        node = hw("gpu", owner="gpu", ready=False, taints=[TAINT])
        assert assigned([node, builders.node("n2")], [GPU]).blocked == {}


class TestGiveBack:
    @staticmethod
    def given_back(node, *staying):
        """When the pool old is removed."""
        stock = builders.primary()
        templates = {pool.name: builders.pool_daemonset(pool, stock)["spec"]["template"] for pool in staying}
        templates["old"] = builders.pool_daemonset(builders.pool("old"), stock)["spec"]["template"]
        templates[names.PRIMARY] = {"spec": exclusion.without_exclusion_terms(stock["spec"]["template"]["spec"])}
        return assignment.give_back({"n1": Node.from_object(node)}, staying, ["old"], templates)

    def test_leaves_a_node_to_a_pool_that_no_longer_selects_it(self):
        assert self.given_back(builders.node(owner="gpu"), GPU).wanted == {"n1": "gpu"}

    def test_leaves_a_node_to_the_primary_though_a_pool_selects_it(self):
        assert self.given_back(hw("gpu"), GPU).wanted == {"n1": names.PRIMARY}

    def test_passes_over_a_pool_that_would_not_run_there(self):
        node = hw("gpu", owner="old", taints=[TAINT])
        tolerant = builders.pool(
            "tolerant", nodeSelector={"hw": "gpu"}, tolerations=[{"key": "gpu", "operator": "Exists"}]
        )
        found = self.given_back(node, GPU, tolerant)
        assert (found.wanted, found.blocked) == ({"n1": "tolerant"}, {})


class TestCounts:
    CONTROL_PLANE = builders.node(
        "master", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    )

    def counted(self, nodes, after=None, **others):
        found = builders.snapshot_of(nodes, [GPU], **others)
        return dict(assignment.counts(found, {**found.nodes, **(after or {})}))

    def test_leave_out_nodes_where_the_primary_runs_no_handler(self):
        nodes = [builders.node(), hw("gpu", "n2", owner="gpu"), self.CONTROL_PLANE]
        assert self.counted(nodes, pods=builders.handlers_of(nodes[:2], [builders.primary()])) == {
            "primary": 1,
            "gpu": 1,
        }

    def test_have_nodes_whose_handler_is_missing(self):
        assert self.counted([builders.node(), hw("gpu", "n2", owner="gpu")], pods=[]) == {"primary": 1, "gpu": 1}

    def test_have_nodes_that_were_tainted_while_their_handler_ran(self):
        assert self.counted([self.CONTROL_PLANE], pods=[builders.handler_pod("master")]) == {"primary": 1}

    def test_follow_a_node_that_leaves_its_pool_for_no_handler(self):
        tainted = hw("gpu", owner="gpu", taints=[TAINT])
        after = {"n1": Node.from_object(tainted).owned_by(names.PRIMARY)}
        pods = [builders.handler_pod("n1", "virt-handler-gpu")]
        assert self.counted([tainted], pods=pods) == {"gpu": 1}
        assert self.counted([tainted], after, pods=pods) == {}

    def test_have_every_node_before_kubevirt_is_deployed(self):
        found = builders.build_snapshot(nodes=[builders.node(), self.CONTROL_PLANE])
        assert assignment.counts(found, found.nodes) == {"primary": 2}


class TestFindings:
    def test_two_pools_on_one_node_are_an_error(self):
        found = assigned([hw("gpu"), builders.node("n2", labels={"kubernetes.io/os": "bsd"})], [GPU, EVERYTHING])
        text = builders.message(found.findings, "overlap")
        assert "Pools gpu, everything select the same nodes (n1)" in text
        assert "virtpools_overlap: first_wins" in text

    def test_two_pools_on_one_node_are_a_note_when_the_order_decides(self):
        found = assigned([hw("gpu")], [GPU, EVERYTHING], overlap="first_wins")
        assert "gpu comes first and gets them" in builders.message(found.findings, "overlap_first_wins")
        assert "overlap" not in builders.codes(found.findings)

    def test_pools_that_could_overlap_are_a_note_with_an_example(self):
        ssd = builders.pool("ssd", nodeSelector={"disk": "ssd"})
        found = assigned([hw("gpu"), builders.node("n2")], [GPU, ssd])
        assert "disk=ssd, hw=gpu" in builders.message(found.findings, "overlap_possible")

    def test_pools_that_cannot_overlap_give_no_finding(self):
        found = assigned([hw("gpu"), hw("fpga", "n2"), builders.node("n3")], [GPU, FPGA])
        assert found.findings == ()

    def test_many_pairs_that_could_overlap_are_counted(self):
        pools = [builders.pool(f"p{index}", nodeSelector={f"k{index}": "x"}) for index in range(5)]
        found = assigned([builders.node()], pools)
        (text,) = [f.message for f in found.findings if f.code == "overlap_possible"]
        assert text.count(" and p") == 5
        assert text.endswith("; and 5 more pairs of pools.")

    def test_a_pool_without_nodes(self):
        assert "pool_without_nodes" in builders.codes(assigned([builders.node()], [GPU]).findings, "warning")

    def test_the_primary_must_keep_a_node(self):
        found = assigned([hw("gpu")], [GPU])
        assert "upgrades hang" in builders.message(found.findings, "primary_without_nodes")

    def test_a_node_where_the_primary_does_not_run_does_not_count(self):
        found = assigned([hw("gpu"), builders.node("n2", taints=[TAINT])], [GPU])
        assert "primary_without_nodes" in builders.codes(found.findings, "error")

    def test_an_incomplete_snapshot_gives_no_finding_on_pools(self):
        assert assigned([hw("gpu")], [GPU, FPGA], complete=False).findings == ()


class TestCapacities:
    A100, L40S = "nvidia.com/A100", "nvidia.com/L40S"
    SELECTING = builders.pool("gpu", selector={"deviceNames": [A100, L40S]})

    def node(self, name, owner=None, former=None, **devices):
        made = builders.node(name, owner, former, {"hw": "gpu"})
        offered = {f"nvidia.com/{key}": str(count) for key, count in devices.items()}
        made["status"]["allocatable"] = {"cpu": "8", **offered}
        return made

    def lines(self, *nodes, pools=(SELECTING,)):
        served = Admission(policy_kind=kinds.MUTATING_ADMISSION_POLICIES[0])
        found = builders.snapshot_of([*nodes, builders.node("stays")], [self.SELECTING], admission=served)
        return [
            line for line in plan_text.plan_lines(plan.make_plan(found, pools, Options())) if "partly moved" in line
        ]

    def test_devices_on_moved_and_unmoved_nodes_are_counted(self):
        nodes = [self.node("n1", "gpu", A100=4), self.node("n2", "gpu", A100=2, L40S=1), self.node("n3", A100=8)]
        assert self.lines(*nodes) == [
            f"Pool gpu is partly moved: 6 of {self.A100} on its 2 nodes, 8 on 1 node still to move.",
            f"Pool gpu is partly moved: 1 of {self.L40S} on its 2 nodes, 0 on 1 node still to move.",
        ]

    def test_a_node_whose_handover_is_not_finished_is_still_to_move(self):
        found = self.lines(self.node("n1", "gpu", A100=4), self.node("n2", "gpu", "primary", A100=2))
        assert found[0] == f"Pool gpu is partly moved: 4 of {self.A100} on its 1 node, 2 on 1 node still to move."

    @pytest.mark.parametrize("owner", [None, "gpu"], ids=["none is moved", "all are moved"])
    def test_nothing_is_said_of_a_pool_that_is_not_partly_moved(self, owner):
        assert self.lines(self.node("n1", owner, A100=4), self.node("n2", owner, A100=4)) == []

    def test_nothing_is_said_of_a_pool_that_selects_by_no_device(self):
        nodes = [self.node("n1", "gpu", A100=4), self.node("n2", A100=4)]
        assert self.lines(*nodes, pools=[builders.pool("gpu")]) == []


class TestNodeGroups:
    KARPENTER = "karpenter.sh/nodepool"

    def findings(self, *nodes, **options):
        made = plan.make_plan(builders.snapshot_of([*nodes, builders.node("stays")], [GPU]), [GPU], Options(**options))
        return [finding for finding in made.findings if finding.code == "nodes_of_group"]

    def test_are_told_with_what_to_do(self):
        made = [builders.node(name, "gpu", labels={"hw": "gpu", self.KARPENTER: "a"}) for name in ("n1", "n2")]
        (found,) = self.findings(*made, hw("gpu", "n3", owner="gpu"))
        assert found.severity == "note"
        assert found.message.startswith(
            "2 nodes of pool gpu come from a node group (label karpenter.sh/nodepool), which may replace them and add others at "
            "any time: n1, n2."
        )

    @pytest.mark.parametrize(
        ("policy", "guard", "advice"),
        [
            (
                True,
                None,
                "Set virtpools_assign_new_nodes: true; without it the guard refuses a node that comes with the label {}.",
            ),
            (True, False, "Set virtpools_assign_new_nodes: true, or let the group label its nodes {}."),
            (False, None, "Run site when one has joined; the guard refuses a node that comes with the label {}."),
            (False, False, "Let the group label its nodes {}."),
        ],
    )
    def test_are_told_what_works_on_this_cluster(self, policy, guard, advice):
        node = builders.node("n1", "gpu", labels={"hw": "gpu", self.KARPENTER: "a"})
        admission = Admission(kinds.MUTATING_ADMISSION_POLICIES[0] if policy else None, validating=True)
        snapshot = replace(builders.snapshot_of([node], [GPU]), admission=admission)
        made = plan.make_plan(snapshot, [GPU], Options(guard=guard))
        told = f"belongs to the primary until the next run. {advice.format('virtpools.io/pool=gpu')}"
        assert builders.message(made.findings, "nodes_of_group").endswith(told)

    def test_are_ignored_without_a_pool_or_if_new_nodes_are_assigned(self):
        assert not self.findings(builders.node("n1", labels={self.KARPENTER: "a"}))
        pooled = builders.node("n1", "gpu", labels={"hw": "gpu", self.KARPENTER: "a"})
        assert not self.findings(pooled, assign_new_nodes=True)
