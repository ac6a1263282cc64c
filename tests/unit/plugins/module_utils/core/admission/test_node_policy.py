# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import node_policy, probes
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import state
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed import snapshot as snapshots
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

KIND = kinds.MUTATING_ADMISSION_POLICIES[0]
BINDING = kinds.MUTATING_ADMISSION_POLICY_BINDINGS[0].name
GPU = builders.pool("gpu")
BIG = builders.pool("big", nodeExpressions=[{"key": "cores", "operator": "Gt", "values": ["64"]}])
ASSIGNING = Options(assign_new_nodes=True)


def live(*pools, name=names.NODE_POLICY):
    """The policy of these pools and its binding, as objects of a cluster."""
    pairs = node_policy.derive(pools, KIND, name)
    return {(kind.name, obj["metadata"]["name"]): copy.deepcopy(obj) for kind, obj in pairs}


def admission(objects=None, **fields):
    return snapshots.Admission(**{"policy_kind": KIND, "objects": objects or {}, **fields})


def cluster(objects=None, pools=(GPU,), **fields):
    return builders.snapshot_of([builders.node()], pools, admission=admission(objects, **fields))


def made(objects=None, pools=(GPU,), options=ASSIGNING, **fields):
    return plan.make_plan(cluster(objects, **fields), pools, options)


class TestPlan:
    def test_creates_updates_and_deletes(self):
        lines = [
            f"{kind} {names.NODE_POLICY}" for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
        ]
        assert made().part("node_policy").changes(0) == tuple(f"{line}: create" for line in lines)
        assert made(live(BIG)).part("node_policy").changes(0) == (f"{lines[0]}: update",)
        gone = made(live(GPU), options=Options())
        assert gone.part("node_policy").changes(0) == tuple(f"{line}: delete" for line in reversed(lines))
        assert set(gone.part("node_policy").changes(0)) <= set(gone.changes())
        assert gone.changed

    def test_has_nothing_to_do_where_it_is_as_asked_for(self):
        assert made(live(GPU)).part("node_policy").changes(0) == ()
        assert not made(live(GPU)).changed
        assert made(options=Options()).part("node_policy").changes(0) == ()

    def test_takes_a_candidate_away_that_a_killed_run_left(self):
        left = live(GPU, name=names.CANDIDATE_NODE_POLICY)
        assert len(made({**live(GPU), **left}).part("node_policy").to_delete) == 2
        assert len(made({**live(GPU), **left}, options=Options()).part("node_policy").to_delete) == 4

    def test_is_approved_with_the_option(self):
        with_it, without = made().digest, made(options=Options()).digest
        assert with_it.objects != without.objects
        assert with_it.options != without.options
        assert with_it.owners == without.owners

    def test_order_of_pools_counts(self):
        assert node_policy.digest_of([GPU, BIG]) != node_policy.digest_of([BIG, GPU])
        assert node_policy.digest_of([GPU]) == node_policy.digest_of([builders.pool("gpu", virtHandlerImage="x/y:v1")])

    def test_needs_policies(self):
        found = made(policy_kind=None)
        assert "node_policy_not_served" in builders.codes(found.findings, "error")
        assert found.part("node_policy").changes(0) == ()

    def test_never_takes_over_a_foreign_policy(self):
        foreign = live(GPU)
        for obj in foreign.values():
            del obj["metadata"]["labels"]
        assert "launcher_policy_foreign" in builders.codes(made(foreign).findings, "error")
        assert made(foreign, options=Options()).part("node_policy").to_delete == ()

    def test_of_a_removal_keeps_the_pools_that_stay(self):
        found = cluster(live(GPU, BIG), [GPU, BIG])
        part = plan.make_plan(found, (), Options(remove_pools=("gpu",)))
        assert [pool.name for pool in part.part("node_policy").pools] == ["big"]
        assert len(part.part("node_policy").to_write) == 1
        everything = plan.make_plan(found, (), Options(remove_pools="all"))
        assert len(everything.part("node_policy").to_delete) == 2
        assert plan.make_plan(cluster(), (), Options(remove_pools="all")).part("node_policy").changes(0) == ()


class TestExamine:
    def test_a_policy_of_ours(self):
        assert builders.codes(state.examine(cluster(live(GPU))).findings) == []

    def test_one_changed_by_hand(self):
        objects = live(GPU)
        objects[KIND.name, names.NODE_POLICY]["spec"]["variables"][1]["expression"] = "[].indexOf(true)"
        assert builders.codes(state.examine(cluster(objects)).findings) == ["node_policy_edited"]

    @pytest.mark.parametrize(
        "edit",
        [
            lambda objects: objects[BINDING, names.NODE_POLICY]["spec"].update(paramRef={"name": "other"}),
            lambda objects: objects.pop((BINDING, names.NODE_POLICY)),
            lambda objects: objects.pop((KIND.name, names.NODE_POLICY)),
            lambda objects: objects[KIND.name, names.NODE_POLICY]["metadata"].pop("annotations"),
        ],
        ids=["binding edited", "no binding", "no policy", "no digest"],
    )
    def test_one_that_does_nothing_or_is_incomplete(self, edit):
        objects = live(GPU)
        edit(objects)
        assert builders.codes(state.examine(cluster(objects)).findings) == ["node_policy_edited"]
        assert made(objects).part("node_policy").changes(0)

    @pytest.mark.parametrize(
        ("options", "fields", "expected"),
        [
            (ASSIGNING, {}, ["node_policy_edited"]),
            (ASSIGNING, {"pools": ()}, []),
            (ASSIGNING, {"policy_kind": None}, []),
            (ASSIGNING, {"assumed": True}, []),
            (Options(), {}, []),
        ],
        ids=["asked for", "without pools", "not served", "in a dump", "not asked for"],
    )
    def test_all_of_it_deleted_by_hand(self, options, fields, expected):
        noted = builders.history_of([GPU], options)
        objects = {(noted["kind"], noted["metadata"]["name"]): noted}
        assert builders.codes(state.examine(cluster(objects, **fields)).findings) == expected

    def test_a_candidate_alone_is_not_one(self):
        left = live(GPU, name=names.CANDIDATE_NODE_POLICY)
        assert builders.codes(state.examine(cluster(left)).findings) == []


class TestProbes:
    def test_one_for_each_outcome(self):
        found = node_policy.probes([GPU, BIG], "any")
        assert [probe.name for probe in found] == ["for no pool", "for pool gpu", "for pool big", "that has an owner"]
        owners = [probe.expected["metadata"]["labels"].get(names.OWNER_LABEL) for probe in found]
        assert owners == [None, "gpu", "big", names.IN_TRANSIT]
        assert {probe.pod["metadata"]["labels"][names.PROBE_LABEL] for probe in found} == {"any"}
        shown = [probes.digest_in(probe.expected) for probe in found]
        assert shown == [node_policy.digest_of([GPU, BIG])] * 3 + [None]

    def test_an_earlier_pool_may_take_it(self):
        everywhere = builders.pool("all", nodeSelector={"cores": "65", "hw": "big"})
        owners = [
            probe.expected["metadata"]["labels"].get(names.OWNER_LABEL)
            for probe in node_policy.probes([everywhere, BIG])
        ]
        assert owners[1:3] == ["all", "all"]

    def test_a_wrong_owner_is_a_problem(self):
        probe = node_policy.probes([GPU])[1]
        assert probe.problem(probe.expected, probe.expected) is None
        assert "its owner is primary, not gpu" in probe.problem(probe.pod, probe.expected)


def test_a_thousand_pools_go_into_short_expressions():
    pools = [builders.pool(f"p{number}") for number in range(1000)]
    spec = node_policy.derive(pools, KIND)[0][1]["spec"]
    assert all(len(variable["expression"]) < 8_000 for variable in spec["variables"])
    assert sum(variable["expression"].count('"p999"') for variable in spec["variables"]) == 2
