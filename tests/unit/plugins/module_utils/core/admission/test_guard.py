# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.admission import guard, node_policy
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names, permissions
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.parts import LAST
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import state
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import exclusion
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

POLICY, BINDING = kinds.VALIDATING_ADMISSION_POLICY, kinds.VALIDATING_ADMISSION_POLICY_BINDING
GPU = builders.pool("gpu")
BIG = builders.pool("big", nodeExpressions=[{"key": "cores", "operator": "Gt", "values": ["64"]}])
GUARDED, OFF = Options(guard=True), Options(guard=False)
LINES = [f"{kind} {name}" for name in names.GUARDS for kind in (POLICY, BINDING)]


def live(*assigned):
    """The guard's objects on a cluster."""
    return [copy.deepcopy(obj) for _kind, obj in guard.derive(builders.NAMESPACE, assigned)]


def cluster(objects=(), pools=(GPU,), **fields):
    admission = vms.admission(*objects, **{"validating": True, **fields.pop("served", {})})
    return builders.snapshot_of([builders.node()], pools, admission=admission, **fields)


def made(objects=(), options=GUARDED, pools=(GPU,), **fields):
    return plan.make_plan(cluster(objects, pools, **fields), pools, options)


class TestPlan:
    def test_creates_updates_and_deletes(self):
        assert made().part("guard").changes(0) == tuple(f"{line}: create" for line in LINES)
        assert made(live(BIG)).part("guard").changes(0) == (f"{LINES[0]}: update",)
        gone = made(live(), OFF)
        assert sorted(gone.part("guard").changes(0)) == sorted(f"{line}: delete" for line in LINES)
        assert gone.part("guard").changes(0)[0] == f"{BINDING} {names.OWNER_GUARD}: delete", (
            "a policy without one does nothing"
        )
        assert set(gone.part("guard").changes(0)) <= set(gone.changes())
        assert gone.changed

    def test_has_nothing_to_do_where_it_is_as_asked_for(self):
        assert not made(live()).changed
        assert made(options=OFF).part("guard").changes(0) == ()

    def test_lets_in_what_the_node_policy_gives(self):
        found = made(options=Options(guard=True, assign_new_nodes=True)).part("guard")
        assert found.assigned == (GPU,)
        assert guard.derive(builders.NAMESPACE, (GPU,))[0] != guard.derive(builders.NAMESPACE, ())[0]

    def test_is_approved_with_the_option(self):
        with_it, without = made().digest, made(options=OFF).digest
        assert made(options=Options()).digest == with_it
        assert with_it.objects != without.objects
        assert with_it.options != without.options
        assert with_it.owners == without.owners

    def test_needs_policies(self):
        found = made(served={"validating": False})
        assert "guard_not_served" in builders.codes(found.findings, "error")
        assert found.part("guard").changes(0) == ()

    def test_never_takes_over_a_foreign_policy(self):
        foreign = live()
        for obj in foreign:
            del obj["metadata"]["labels"]
        assert "launcher_policy_foreign" in builders.codes(made(foreign).findings, "error")
        assert made(foreign, OFF).part("guard").to_delete == ()

    def test_goes_with_the_last_pool(self):
        found = cluster(live(), [GPU, BIG])
        assert plan.make_plan(found, (), Options(remove_pools=("gpu",))).part("guard").changes(0) == ()
        last = plan.make_plan(found, (), Options(remove_pools="all")).part("guard")
        assert (last.steps, last.changes(0), len(last.changes(LAST))) == ((LAST,), (), len(LINES))

    @pytest.mark.parametrize("objects", [[], live()])
    def test_is_in_force_from_its_creation_to_its_deletion(self, objects):
        assert made(objects).part("guard").in_force
        assert made(objects, OFF).part("guard").in_force == bool(objects)


class TestNotAskedFor:
    """Users get the guard unless they switch it off."""

    def test_is_written_and_kept(self):
        assert made(options=Options()).part("guard").changes(0) == tuple(f"{line}: create" for line in LINES)
        kept = made(live(), Options())
        assert not kept.changed
        assert "guard_deleted" not in builders.codes(kept.findings)

    def test_its_end_is_told(self):
        assert "guard_deleted" in builders.codes(made(live(), OFF).findings, "warning")
        assert "guard_deleted" not in builders.codes(made(options=OFF).findings)

    def test_goes_with_the_last_pool_without_a_word(self):
        found = plan.make_plan(cluster(live()), (), Options(remove_pools="all"))
        assert len(found.part("guard").to_delete) == len(LINES)
        assert "guard_deleted" not in builders.codes(found.findings)

    def test_a_removal_of_one_pool_neither_brings_nor_deletes_it(self):
        for objects in ([], live()):
            found = plan.make_plan(cluster(objects, [GPU, BIG]), (), Options(remove_pools=("gpu",)))
            assert found.part("guard").changes(0) == ()

    @pytest.mark.parametrize("served", [{"validating": False}, {"may_guard": False}])
    def test_a_run_that_cannot_have_it_does_everything_else(self, served):
        found = made(options=Options(), served=served)
        assert "guard_unavailable" in builders.codes(found.findings, "note")
        assert (found.errors, found.part("guard").changes(0), found.part("guard").rights) == ((), (), ())
        assert found.digest == made().digest, "what is approved does not depend on who runs it"

    def test_a_live_one_is_not_given_up_for_want_of_rights(self):
        found = made(live(), Options(), served={"may_guard": False})
        assert "guard_unavailable" not in builders.codes(found.findings)
        assert found.part("guard").rights == permissions.GUARD


class TestExclusionDropped:
    """Somebody removed our patch from the KubeVirt object, and the guard refuses what virt-operator writes."""

    def cluster(self):
        said = (
            f"ValidatingAdmissionPolicy '{names.EXCLUSION_GUARD}' with binding '{names.EXCLUSION_GUARD}' denied request"
        )
        degraded = builders.kubevirt(conditions={"Degraded": "True"})
        for condition in degraded["status"]["conditions"]:
            condition["message"] = said
        return cluster(live(), of_kubevirt=degraded)

    def test_a_run_does_not_wait_for_kubevirt_to_drop_it(self):
        found = plan.make_plan(self.cluster(), [GPU], GUARDED)
        assert (found.exclusion.changed, found.settling) == (True, False)
        assert found.errors == ()

    def test_a_removal_does_not_wait_for_what_the_guard_refuses(self):
        found = plan.make_plan(self.cluster(), (), Options(remove_pools="all"))
        assert (found.held, found.settling, found.errors) == (True, True, ())
        assert "guard_refuses" in builders.codes(found.findings, "warning")
        assert "own_change_settling" not in builders.codes(found.findings)

    def test_is_told(self):
        assert "guard_refuses" in builders.codes(state.examine(self.cluster()).findings, "warning")


class TestExamine:
    def test_as_it_was_written(self):
        assert builders.codes(state.examine(cluster(live(BIG))).findings) == []
        assert builders.codes(state.examine(cluster()).findings) == []

    @pytest.mark.parametrize("number", range(len(LINES)))
    def test_changed_or_deleted_by_hand(self, number):
        objects = live()
        objects[number]["spec"]["extra"] = "x"
        assert builders.codes(state.examine(cluster(objects)).findings) == ["guard_edited"]
        del objects[number]
        assert builders.codes(state.examine(cluster(objects)).findings) == ["guard_edited"]

    @pytest.mark.parametrize(
        ("assigned", "expected"), [((GPU,), []), ((), ["guard_edited"]), ((BIG,), ["guard_edited"])]
    )
    def test_that_refuses_what_the_node_policy_gives(self, assigned, expected):
        nodes = [obj for _kind, obj in node_policy.derive([GPU], kinds.MUTATING_ADMISSION_POLICIES[0])]
        found = state.examine(cluster([*live(*assigned), *nodes])).findings
        assert builders.codes(found) == expected
        assert not expected or "cannot join" in builders.message(found, "guard_edited")

    @pytest.mark.parametrize(
        ("options", "fields", "expected"),
        [
            (GUARDED, {}, ["guard_edited"]),
            (GUARDED, {"pools": ()}, []),
            (GUARDED, {"served": {"validating": False}}, []),
            (GUARDED, {"served": {"assumed": True}}, []),
            (Options(), {}, []),
            (OFF, {}, []),
        ],
        ids=["asked for", "without pools", "not served", "in a dump", "not asked for", "switched off"],
    )
    def test_all_of_it_deleted_by_hand(self, options, fields, expected):
        objects = [builders.history_of([GPU], options)]
        assert builders.codes(state.examine(cluster(objects, **fields)).findings) == expected


class TestProbes:
    def test_one_of_each_kind_to_refuse_and_one_to_let_pass(self):
        found = made(options=Options(guard=True, assign_new_nodes=True)).part("guard").probes()
        judged = [(probe.kind, probe.refused_by) for probe in found]
        assert judged == [
            (kinds.NODE, None),
            (kinds.NODE, None),
            (kinds.NODE, names.OWNER_GUARD),
            (kinds.DAEMON_SET, None),
            (kinds.DAEMON_SET, names.EXCLUSION_GUARD),
        ]
        owners = [probe.obj["metadata"]["labels"].get(names.OWNER_LABEL) for probe in found[:3]]
        assert owners == [None, "gpu", names.IN_TRANSIT]
        assert GPU.nodes.matches(found[1].obj["metadata"]["labels"]), "else the guard refuses its owner"
        assert [exclusion.has_exclusion(probe.obj) for probe in found[3:]] == [True, False]

    def test_each_pool_has_a_new_node_of_its_own(self):
        found = made(options=Options(guard=True, assign_new_nodes=True), pools=[GPU, BIG]).part("guard").probes()
        assert [probe.obj["metadata"]["labels"].get(names.OWNER_LABEL) for probe in found[1:3]] == ["gpu", "big"]

    def test_an_earlier_pool_may_take_it(self):
        everywhere = builders.pool("all", nodeSelector={"cores": "65", "hw": "big"})
        found = made(options=Options(guard=True, assign_new_nodes=True, overlap="first_wins"), pools=[everywhere, BIG])
        owners = [probe.obj["metadata"]["labels"].get(names.OWNER_LABEL) for probe in found.part("guard").probes()]
        assert owners[1:3] == ["all", "all"]

    def test_where_virt_handler_is_missing_are_of_nodes_only(self):
        lacking = builders.build_snapshot(admission=vms.admission(validating=True), nodes=[builders.node()])
        found = guard.Guard(lacking, lacking.admission, wanted=True).probes()
        assert [probe.kind for probe in found] == [kinds.NODE, kinds.NODE]


@pytest.mark.parametrize(
    ("holds", "fields"),
    [
        (True, {}),
        (False, {"objects": ()}),
        (False, {"of_primary": builders.primary(excluded=False)}),
        (False, {"of_kubevirt": builders.excluding_kubevirt()}),
    ],
    ids=["alone", "no guard", "the primary has lost it", "KubeVirt asks for it"],
)
def test_only_the_guard_holds_the_exclusion(holds, fields):
    given = {"objects": live(), "of_kubevirt": builders.kubevirt(), **fields}
    assert guard.holds_exclusion(cluster(**given)) is holds


def test_the_guard_holds_nothing_where_virt_handler_is_missing():
    assert not guard.holds_exclusion(builders.build_snapshot(admission=vms.admission(*live(), validating=True)))


def test_heartbeats_are_recognized_before_asking_the_authorizer():
    conditions = [obj["spec"].get("matchConditions") for obj in live(GPU)]
    (concerned,) = conditions[0]
    assert concerned["expression"].index("oldObject") < concerned["expression"].index("authorizer")
    assert " && (" in concerned["expression"].split("authorizer")[0]
