# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import canonical_json
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.exclusion import (
    PATCH,
    exclusion_requested,
    has_exclusion,
    is_asked_for,
    is_overwritten,
    primary_after,
    unchanged,
    with_exclusion,
    without_exclusion,
    without_exclusion_terms,
)

OURS = {"key": names.OWNER_LABEL, "operator": "DoesNotExist"}
ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
GPU = {"key": "gpu", "operator": "Exists"}
THEIR_PATCH = {"patch": '{"a":1}', "resourceName": "virt-api", "resourceType": "Deployment", "type": "merge"}

PLACE = "spec.deployment.nodePlacements.workload of HyperConverged kv/kubevirt-hyperconverged"
PATCHES = "/spec/customizeComponents/patches"
THEIR_LIST = {"op": "add", "path": PATCHES, "value": [THEIR_PATCH]}
UNRELATED = {"op": "replace", "path": "/spec/configuration/evictionStrategy", "value": "None"}


def affinity(*terms, **others):
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}, **others}
    }


def term(*expressions, **others):
    return {"matchExpressions": list(expressions), **others}


def kubevirt(*patches, placement=None, **spec):
    if patches:
        spec["customizeComponents"] = {"patches": list(patches)}
    if placement is not None:
        spec["workloads"] = {"nodePlacement": placement}
    return {"kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": "kv"}, "spec": spec}


def daemonset(pod_affinity=None):
    pod_spec = {"containers": []} if pod_affinity is None else {"containers": [], "affinity": pod_affinity}
    return {"spec": {"template": {"spec": pod_spec}}}


def hyperconverged(operations=(), placement=None, beta=False):
    metadata = {"name": names.HCO_NAME, "namespace": "kv"}
    if operations:
        metadata["annotations"] = {names.HCO_PATCH_ANNOTATION: canonical_json(list(operations))}
    spec = {}
    if placement is not None and beta:
        spec = {"workloads": {"nodePlacement": placement}}
    elif placement is not None:
        spec = {"deployment": {"nodePlacements": {"workload": placement}}}
    version = "v1beta1" if beta else "v1"
    return {"apiVersion": f"hco.kubevirt.io/{version}", "kind": "HyperConverged", "metadata": metadata, "spec": spec}


def operations_of(item):
    return json.loads(item["metadata"].get("annotations", {}).get(names.HCO_PATCH_ANNOTATION, "[]"))


def terms_of(item):
    required = item["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"]


def excluded(operations=(), placement=None):
    """The operations after ``with_exclusion``, on a HyperConverged that has these operations before."""
    return operations_of(with_exclusion(kubevirt(), hyperconverged(operations, placement)).after)


def included(operations=(), placement=None):
    return operations_of(without_exclusion(kubevirt(), hyperconverged(operations, placement)).after)


def placement_operation(placement):
    return {"op": "add", "path": "/spec/workloads", "value": {"nodePlacement": placement}}


def our_operation(*terms, **placement):
    """Our operation with these terms, and whatever else it has to repeat. It has all fields of the terms."""
    fields = ("matchExpressions", "matchFields")
    whole = [{field: [{"values": [], **each} for each in term.get(field, [])] for field in fields} for term in terms]
    return placement_operation({**placement, "affinity": affinity(*whole)})


class TestPatch:
    def test_is_one_strategic_merge_patch(self):
        assert {**PATCH, "patch": ""} == {
            "patch": "",
            "resourceName": "virt-handler",
            "resourceType": "DaemonSet",
            "type": "strategic",
        }
        assert json.loads(PATCH["patch"]) == {"spec": {"template": {"spec": {"affinity": affinity(term(OURS))}}}}

    def test_is_appended_to_the_others(self):
        edit = with_exclusion(kubevirt(THEIR_PATCH), None)
        assert edit.changed
        assert edit.kind == "KubeVirt"
        assert edit.after["spec"]["customizeComponents"]["patches"] == [THEIR_PATCH, PATCH]
        assert "spec.customizeComponents.patches" in str(edit)

    @pytest.mark.parametrize("spec", [{}, {"customizeComponents": {}}, {"customizeComponents": {"flags": {"api": {}}}}])
    def test_leaves_no_list_behind(self, spec):
        before = kubevirt(**spec)
        after = without_exclusion(with_exclusion(before, None).after, None).after
        assert after["spec"].get("customizeComponents", {}) == spec.get("customizeComponents", {})

    def test_is_recognised_whatever_its_spaces(self):
        spaced = {**PATCH, "patch": json.dumps(json.loads(PATCH["patch"]), indent=1)}
        assert not with_exclusion(kubevirt(spaced), None).changed
        assert exclusion_requested(kubevirt(spaced))
        assert without_exclusion(kubevirt(spaced), None).after["spec"] == {"customizeComponents": {}}

    def test_twice_becomes_once(self):
        after = with_exclusion(kubevirt(PATCH, THEIR_PATCH, PATCH), None).after
        assert after["spec"]["customizeComponents"]["patches"] == [THEIR_PATCH, PATCH]

    @pytest.mark.parametrize("other", [{"type": "merge"}, {"resourceName": "*"}, {"patch": "{"}, {"patch": None}])
    def test_of_others_is_not_taken_for_ours(self, other):
        assert not without_exclusion(kubevirt({**PATCH, **other}), None).changed

    def test_nothing_to_drop_changes_nothing(self):
        item = kubevirt(customizeComponents={"patches": []})
        assert without_exclusion(item, None).after is item


class TestTerms:
    def test_get_the_requirement_each_and_replace_the_patch(self):
        placement = {"nodeSelector": {"a": "1"}, "affinity": affinity(term(ZONE), term(GPU, matchFields=[ZONE]))}
        after = with_exclusion(kubevirt(PATCH, THEIR_PATCH, placement=placement), None).after["spec"]
        assert after["customizeComponents"]["patches"] == [THEIR_PATCH]
        assert terms_of(after["workloads"]["nodePlacement"]) == [term(ZONE, OURS), term(GPU, OURS, matchFields=[ZONE])]
        assert after["workloads"]["nodePlacement"]["nodeSelector"] == {"a": "1"}

    def test_with_fields_only_get_it_too(self):
        placement = {"affinity": affinity({"matchFields": [ZONE]})}
        edit = with_exclusion(kubevirt(placement=placement), None)
        assert terms_of(edit.after["spec"]["workloads"]["nodePlacement"]) == [term(OURS, matchFields=[ZONE])]
        assert without_exclusion(edit.after, None).after == kubevirt(placement=placement)

    def test_come_and_go_without_anything_beside_them(self):
        placement = {"affinity": affinity(term(ZONE, matchFields=[ZONE]))}
        before = kubevirt(workloads={"nodePlacement": placement, "replicas": 2})
        after = with_exclusion(before, None).after
        assert after["spec"]["workloads"]["replicas"] == 2
        assert without_exclusion(after, None).after == before

    def test_added_later_get_it_on_the_next_run(self):
        item = kubevirt(placement={"affinity": affinity(term(ZONE, OURS), term(GPU))})
        assert not exclusion_requested(item)
        after = with_exclusion(item, None).after
        assert terms_of(after["spec"]["workloads"]["nodePlacement"]) == [term(ZONE, OURS), term(GPU, OURS)]
        assert exclusion_requested(after)

    def test_that_went_away_bring_the_patch_back(self):
        item = kubevirt(placement={"nodeSelector": {"a": "1"}})
        assert with_exclusion(item, None).after["spec"]["customizeComponents"]["patches"] == [PATCH]

    def test_an_empty_term_matches_no_node_and_stays_empty(self):
        after = with_exclusion(kubevirt(placement={"affinity": affinity({}, term(ZONE))}), None).after
        assert terms_of(after["spec"]["workloads"]["nodePlacement"]) == [{}, term(ZONE, OURS)]

    def test_preferences_alone_are_no_terms(self):
        preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
        edit = with_exclusion(kubevirt(placement={"affinity": preferred}), None)
        assert edit.after["spec"]["customizeComponents"]["patches"] == [PATCH]


class TestLiveDaemonSet:
    @pytest.mark.parametrize(
        ("pod_affinity", "expected"),
        [
            (None, False),
            ({}, False),
            (affinity(), False),
            (affinity(term(ZONE)), False),
            (affinity(term(OURS)), True),
            (affinity(term(ZONE, {**OURS, "values": []})), True),
            (affinity(term(OURS), term(ZONE)), False),
            (affinity(term(OURS), term(ZONE, OURS)), True),
            (affinity({}, term(OURS)), True),
            (affinity(term({**OURS, "operator": "Exists"})), False),
            (affinity(term({**OURS, "operator": "NotIn", "values": ["x"]})), False),
        ],
    )
    def test_excludes_only_if_every_term_does(self, pod_affinity, expected):
        assert has_exclusion(daemonset(pod_affinity)) is expected


class TestDerivedPodSpec:
    def test_loses_what_came_from_our_patch(self):
        assert without_exclusion_terms({"hostPID": True, "affinity": affinity(term(OURS))}) == {"hostPID": True}

    def test_keeps_the_users_terms(self):
        derived = without_exclusion_terms({"affinity": affinity(term(OURS), term(ZONE, OURS), term(GPU))})
        assert terms_of(derived) == [term(ZONE), term(GPU)]

    def test_keeps_other_affinity(self):
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
        derived = without_exclusion_terms({"affinity": {**affinity(term(OURS), **preferred), "podAffinity": {}}})
        assert derived == {"affinity": {"nodeAffinity": preferred, "podAffinity": {}}}

    def test_is_a_copy(self):
        pod_spec = {"containers": [{"name": "x"}], "affinity": affinity(term(ZONE, OURS))}
        before = copy.deepcopy(pod_spec)
        without_exclusion_terms(pod_spec)["containers"][0]["name"] = "y"
        assert pod_spec == before


class TestUnderHco:
    def test_one_operation_has_the_requirement_and_nothing_else(self):
        assert excluded() == [our_operation(term(OURS))]
        assert excluded([UNRELATED, THEIR_LIST]) == [UNRELATED, THEIR_LIST, our_operation(term(OURS))]

    def test_no_annotation_is_left_behind(self):
        before = hyperconverged()
        after = without_exclusion(kubevirt(), with_exclusion(kubevirt(), before).after).after
        assert after == before

    def test_reordered_keys_change_nothing(self):
        item = hyperconverged([dict(reversed(our_operation(term(OURS)).items()))])
        assert with_exclusion(kubevirt(), item).after is item

    def test_operations_that_others_add_behind_ours_change_nothing(self):
        item = hyperconverged([our_operation(term(OURS)), UNRELATED])
        assert with_exclusion(kubevirt(), item).after is item
        theirs = placement_operation({"nodeSelector": {"a": "1"}})
        assert excluded([our_operation(term(OURS)), theirs]) == [
            theirs,
            our_operation(term(OURS), nodeSelector={"a": "1"}),
        ]
        ours = our_operation(term(OURS), nodeSelector={"a": "1"})
        assert excluded([ours, theirs])[-2:] == [theirs, ours]

    @pytest.mark.parametrize(
        ("operations", "placement", "asked"),
        [
            ([], None, False),
            ([UNRELATED], None, False),
            ([our_operation(term(OURS))], None, True),
            ([our_operation(term(OURS))], {"affinity": affinity(term(ZONE))}, True),
            ([our_operation(term(ZONE, OURS))], {"affinity": affinity(term(ZONE))}, True),
            ([], {"affinity": affinity({})}, True),
        ],
        ids=["nothing", "others", "ours", "ours of former terms", "ours with terms", "terms that match no node"],
    )
    def test_the_annotation_says_whether_it_is_asked_for(self, operations, placement, asked):
        item = hyperconverged(operations, placement)
        assert is_asked_for(kubevirt(), item) is asked
        assert is_asked_for(kubevirt(PATCH), item) is asked, "HCO has not acted on it yet"
        assert is_overwritten(item) is not asked

    def test_an_annotation_that_cannot_be_read_is_not_overwritten(self):
        item = hyperconverged([{"op": "add", "path": "x"}])
        assert not is_overwritten(item)
        assert [is_asked_for(of, item) for of in (kubevirt(), kubevirt(PATCH))] == [False, True]

    @pytest.mark.parametrize(("item", "kind"), [(None, "KubeVirt"), (hyperconverged(), "HyperConverged")])
    def test_no_edit_is_one_of_the_same_object(self, item, kind):
        found = unchanged(kubevirt(), item)
        assert (found.kind, found.changed) == (kind, False)

    def test_kubevirt_itself_is_left_alone(self):
        edit = with_exclusion(kubevirt(PATCH), hyperconverged())
        assert edit.kind == "HyperConverged"
        assert edit.changed
        assert f"{names.HCO_PATCH_ANNOTATION}, spec.workloads.nodePlacement" in str(edit)

    @pytest.mark.parametrize("beta", [False, True])
    def test_terms_come_from_the_users_placement(self, beta):
        placement = {"tolerations": [{"key": "x"}], "affinity": affinity(term(ZONE), term(GPU))}
        item = hyperconverged([UNRELATED], placement, beta=beta)
        edit = with_exclusion(kubevirt(), item)
        assert operations_of(edit.after) == [UNRELATED, our_operation(term(ZONE, OURS), term(GPU, OURS))]
        assert without_exclusion(kubevirt(), edit.after).after == item

    def test_terms_that_match_no_node_need_nothing(self):
        assert excluded([our_operation(term(OURS))], {"affinity": affinity({})}) == []

    def test_others_operation_on_workloads_stays_before_ours(self):
        theirs = placement_operation({"affinity": affinity(term(ZONE))})
        deeper = {"op": "add", "path": "/spec/workloads/nodePlacement/nodeSelector", "value": {"a": "1"}}
        ours = our_operation(term(ZONE, OURS), nodeSelector={"a": "1"})
        assert excluded([theirs, deeper]) == [theirs, deeper, ours]
        assert excluded([theirs, deeper, ours]) == [theirs, deeper, ours]
        assert included([theirs, deeper, ours]) == [theirs, deeper]

    @pytest.mark.parametrize(
        "settings",
        [
            {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"affinity": {"podAffinity": {"x": 1}}},
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        ],
    )
    def test_an_administrators_own_operation_keeps_its_settings(self, settings):
        required, others = affinity(term(OURS))["nodeAffinity"], settings.get("affinity", {})
        both = {**others, "nodeAffinity": {**others.get("nodeAffinity", {}), **required}}
        theirs = placement_operation({**settings, "affinity": both})
        assert excluded([UNRELATED, theirs]) == [UNRELATED, theirs]
        assert included([UNRELATED, theirs]) == [UNRELATED, placement_operation(settings)]

    def test_an_administrators_settings_beside_the_placement_stay(self):
        ours = our_operation(term(OURS))
        theirs = {**ours, "value": {**ours["value"], "replicas": 2}}
        assert excluded([theirs]) == [theirs]
        assert included([theirs]) == [{**ours, "value": {"nodePlacement": {}, "replicas": 2}}]

    def test_the_requirement_in_another_field_is_not_the_exclusion(self):
        infra = {**our_operation(term(OURS)), "path": "/spec/infra"}
        assert excluded([infra]) == [infra, our_operation(term(OURS))]
        assert included([infra, our_operation(term(OURS))]) == [infra]

    def test_settings_that_an_administrator_adds_to_ours_stay(self):
        settings = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
        assert excluded([our_operation(term(OURS), **settings)]) == [our_operation(term(OURS), **settings)]
        assert included([our_operation(term(OURS), **settings)]) == [placement_operation(settings)]

    def test_an_administrators_own_terms_stay_as_they_are(self):
        theirs = placement_operation(
            {"nodeSelector": {"a": "1"}, "affinity": affinity(term(ZONE, OURS), term(GPU, OURS))}
        )
        assert excluded([theirs]) == [theirs]
        rest = placement_operation({"nodeSelector": {"a": "1"}, "affinity": affinity(term(ZONE), term(GPU))})
        assert included([theirs]) == [rest]
        assert excluded([rest]) == [rest, our_operation(term(ZONE, OURS), term(GPU, OURS), nodeSelector={"a": "1"})]

    def test_others_removal_of_the_placement_has_no_effect_in_hco(self):
        remove = {"op": "remove", "path": "/spec/workloads"}
        assert excluded([remove], {"affinity": affinity(term(ZONE))}) == [remove, our_operation(term(ZONE, OURS))]

    @pytest.mark.parametrize("edit", [with_exclusion, without_exclusion])
    @pytest.mark.parametrize(
        ("path", "advice"),
        [
            (
                "/spec/workloads/nodePlacement/tolerations",
                f"set tolerations in {PLACE} instead, and take operation 2 out of the annotation.",
            ),
            (
                "/spec/workloads/nodePlacement/affinity/podAffinity",
                f"set affinity in {PLACE} instead, and take operation 2 out of the annotation.",
            ),
            ("/spec/workloads/replicas", "put it before operation 1, as an 'add' of /spec/workloads."),
        ],
    )
    def test_an_operation_that_builds_on_ours_is_told_its_place(self, edit, path, advice):
        """HCO applies it (seen on the real one), and without ours its parent is missing."""
        theirs = {"op": "add", "path": path, "value": []}
        item = hyperconverged([UNRELATED, our_operation(term(OURS)), theirs])
        as_hco_renders(item)
        with pytest.raises(InputErrors) as raised:
            edit(kubevirt(), item)
        (message,) = raised.value.messages
        assert message.startswith(
            f"Operation 2 in the annotation {names.HCO_PATCH_ANNOTATION} of HyperConverged kv/kubevirt-hyperconverged "
            f"(add {path}) builds on operation 1, which is this collection's own and comes and goes with the pools; "
        )
        assert message.endswith(advice)

    def test_the_placement_that_the_refusal_advises_works(self):
        tolerations = [{"key": "gpu", "operator": "Exists"}]
        item = hyperconverged([UNRELATED, our_operation(term(OURS))], {"tolerations": tolerations})
        assert with_exclusion(kubevirt(), item).after is item
        assert as_hco_renders(item)["spec"]["workloads"]["nodePlacement"]["tolerations"] == tolerations
        assert operations_of(without_exclusion(kubevirt(), item).after) == [UNRELATED]

    def test_an_operation_is_counted_as_its_user_does(self):
        theirs = {"op": "remove", "path": "/spec/workloads/nodePlacement/nothing"}
        with pytest.raises(InputErrors, match=r"Operation 1 .* cannot be applied; correct or remove it first"):
            included([our_operation(term(OURS)), theirs])

    @pytest.mark.parametrize("operation", ["x", {"op": "add", "path": "/status/x", "value": 1}])
    @pytest.mark.parametrize("edit", [with_exclusion, without_exclusion])
    def test_an_annotation_that_cannot_be_read_is_never_overwritten(self, operation, edit):
        with pytest.raises(InputErrors, match="correct or remove it first"):
            edit(kubevirt(), hyperconverged([operation]))

    def test_our_requirement_in_others_settings_cannot_be_dropped(self):
        with pytest.raises(InputErrors, match="remove it there"):
            included([{"op": "add", "path": PATCHES, "value": [PATCH]}])
        with pytest.raises(InputErrors, match=r"spec\.deployment\.nodePlacements\.workload"):
            included(placement={"affinity": affinity(term(OURS, ZONE))})

    def test_our_patch_inside_others_list_defeats_terms(self):
        theirs = {"op": "add", "path": PATCHES, "value": [PATCH]}
        assert excluded([theirs]) == [theirs, our_operation(term(OURS))]
        with pytest.raises(InputErrors, match="a larger value in the annotation"):
            excluded([theirs], {"affinity": affinity(term(ZONE))})


class TestUnderHcoLater:
    """The user's placement changes after our operation was written: HCO renders both at once."""

    @staticmethod
    def later(placement, before=None):
        written = with_exclusion(kubevirt(), hyperconverged(placement=before)).after
        return {**written, "spec": hyperconverged(placement=placement)["spec"]}

    @pytest.mark.parametrize("before", [None, {"affinity": affinity(term(ZONE))}])
    @pytest.mark.parametrize(
        "placement",
        [
            {"affinity": affinity(term(ZONE, GPU))},
            {"affinity": affinity(term(GPU, {**ZONE, "key": "disk"}, matchFields=[ZONE]), term(GPU))},
            {"affinity": affinity({})},
            {"affinity": {"podAffinity": {}}},
            {},
            None,
        ],
    )
    def test_the_terms_stay_as_they_were_and_the_next_run_follows(self, placement, before):
        changed = self.later(placement, before)
        terms = terms_of(as_hco_renders(changed)["spec"]["workloads"]["nodePlacement"])
        assert [plain(each) for each in terms] == [term(ZONE, OURS) if before else term(OURS)]
        edit = with_exclusion(kubevirt(), changed)
        has_terms = "nodeAffinity" in (placement or {}).get("affinity", {})
        assert edit.changed is (has_terms or before is not None)
        assert (
            edit.after["metadata"] == with_exclusion(kubevirt(), hyperconverged(placement=placement)).after["metadata"]
        )

    def test_all_else_is_followed_at_once(self):
        before = {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "x", "operator": "Exists"}]}
        after = {"tolerations": [{"key": "y"}], "affinity": {"podAffinity": {}}}
        changed = self.later(after, before)
        rendered = as_hco_renders(changed)["spec"]["workloads"]["nodePlacement"]
        affinity_of = rendered.pop("affinity")
        assert rendered == {"tolerations": [{"key": "y"}]}
        assert affinity_of["podAffinity"] == {}
        assert not with_exclusion(kubevirt(), changed).changed


class TestPrimaryAfter:
    def test_has_the_terms_that_hco_renders_with_the_operation(self):
        live = daemonset({**affinity(term(OURS)), "podAffinity": {}})
        edit = with_exclusion(kubevirt(), hyperconverged(placement={"affinity": affinity(term(ZONE), {})}))
        assert primary_after(live, edit) == daemonset({**affinity(term(ZONE, OURS), {}), "podAffinity": {}})
        assert live == daemonset({**affinity(term(OURS)), "podAffinity": {}})

    def test_is_the_live_one_where_kubevirt_follows_by_itself(self):
        live = daemonset(affinity(term(OURS)))
        assert primary_after(live, with_exclusion(kubevirt(placement={"affinity": affinity(term(ZONE))}), None)) is live
        assert primary_after(live, with_exclusion(kubevirt(), hyperconverged())) is live


def plain(value):
    """A term without its empty fields."""
    kept = {field: value[field] for field in value if value[field]}
    return {field: [{key: part for key, part in each.items() if part} for each in kept[field]] for field in kept}


# Properties -------------------------------------------------------------------------------------------------------

expressions = st.sampled_from([ZONE, GPU, {"key": names.OWNER_LABEL, "operator": "NotIn", "values": ["x"]}])
terms = st.one_of(
    st.builds(lambda found: term(*found), st.lists(expressions, min_size=1, max_size=2)),
    st.just({"matchFields": [ZONE]}),
    st.just({}),
)
affinities = st.one_of(
    st.builds(lambda found: affinity(*found), st.lists(terms, min_size=1, max_size=3)),
    st.just({"podAffinity": {}}),
    st.builds(lambda found: {**affinity(*found), "podAffinity": {}}, st.lists(terms, min_size=1, max_size=2)),
)
placements = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"affinity": affinities, "nodeSelector": st.just({"a": "1"})}),
)
others_patches = st.lists(
    st.sampled_from(
        [THEIR_PATCH, {**PATCH, "patch": '{"metadata":{"labels":{"x":"y"}}}'}, {**PATCH, "patch": "[]", "type": "json"}]
    ),
    max_size=3,
)
others_operations = st.one_of(
    st.lists(
        st.one_of(
            st.sampled_from([UNRELATED, {"op": "test", "path": "/spec/infra", "value": None}]),
            st.builds(placement_operation, placements.filter(bool)),
            st.builds(lambda found: {"op": "add", "path": PATCHES, "value": found}, others_patches.filter(bool)),
        ),
        max_size=4,
    ),
    st.just([{**THEIR_LIST, "value": []}, {**THEIR_LIST, "path": f"{PATCHES}/-", "value": THEIR_PATCH}]),
)


@given(others_patches, placements)
def test_kubevirt_comes_back_as_it_was(patches, placement):
    before = kubevirt(*patches, placement=placement)
    kept = copy.deepcopy(before)
    edit = with_exclusion(before, None)
    assert exclusion_requested(edit.after)
    assert not with_exclusion(edit.after, None).changed
    undone = without_exclusion(edit.after, None).after
    undone["spec"] = {key: value for key, value in undone["spec"].items() if value != {} or key in before["spec"]}
    assert undone == before == kept
    assert not without_exclusion(undone, None).changed


@given(others_operations, placements, st.booleans())
def test_hyperconverged_comes_back_as_it_was(operations, placement, beta):
    before = hyperconverged(operations, placement, beta=beta)
    kept = copy.deepcopy(before)
    edit = with_exclusion(kubevirt(), before)
    assert not with_exclusion(kubevirt(), edit.after).changed
    written = operations_of(edit.after)
    assert written[: len(operations)] == operations
    assert exclusion_requested(as_hco_renders(edit.after))
    undone = without_exclusion(kubevirt(), edit.after).after
    assert operations_of(undone) == operations
    assert {**undone, "metadata": 0} == {**before, "metadata": 0}
    assert before == kept
    assert not without_exclusion(kubevirt(), undone).changed


def as_hco_renders(item):
    """The KubeVirt object as another implementation of RFC 6902 makes it from HyperConverged, decoded as Go does."""
    jsonpatch = pytest.importorskip("jsonpatch")
    rendered = {
        "spec": {"customizeComponents": {}, "infra": None, "configuration": {"evictionStrategy": "LiveMigrate"}}
    }
    placement = item["spec"].get("workloads", item["spec"].get("deployment", {}).get("nodePlacements", {}))
    placement = placement.get("nodePlacement", placement.get("workload"))
    if placement is not None:
        rendered["spec"]["workloads"] = {"nodePlacement": placement}

    def decoded(old, new):
        if isinstance(old, dict) and isinstance(new, dict):
            return {**old, **{key: decoded(old.get(key), value) for key, value in new.items()}}
        if isinstance(old, list) and isinstance(new, list):
            return [decoded(*pair) for pair in itertools.zip_longest(old[: len(new)], new)]
        return new

    return decoded(rendered, jsonpatch.apply_patch(rendered, operations_of(item)))
