# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import hco

KNOWN = ("/spec/list", "/spec/map")


def kubevirt(**metadata):
    return {"kind": "KubeVirt", "metadata": {"name": "kubevirt-kubevirt-hyperconverged", "namespace": "kv", **metadata}}


def hyperconverged(operations=None, **metadata):
    """A HyperConverged object; ``operations`` is the annotation's text, or a list for it."""
    metadata = {"name": names.HCO_NAME, "namespace": "kv", **metadata}
    if operations is not None:
        text = operations if isinstance(operations, str) else json.dumps(operations)
        metadata["annotations"] = {names.HCO_PATCH_ANNOTATION: text}
    return {"apiVersion": "hco.kubevirt.io/v1", "kind": "HyperConverged", "metadata": metadata}


def add(path, value):
    return {"op": "add", "path": path, "value": value}


def render(base, *operations):
    return hco.rendered(hyperconverged(), {"spec": base}, KNOWN, hco.numbered(operations))["spec"]


class TestPlacement:
    def test_is_in_another_field_per_version(self):
        v1 = {
            **hyperconverged(),
            "spec": {"deployment": {"nodePlacements": {"workload": {"nodeSelector": {"a": "1"}}}}},
        }
        beta = {"apiVersion": "hco.kubevirt.io/v1beta1", "spec": {"workloads": {"nodePlacement": {"nodeSelector": {}}}}}
        assert hco.workload_placement(v1) == {"nodeSelector": {"a": "1"}}
        assert hco.placement_path(v1) == "spec.deployment.nodePlacements.workload"
        assert hco.workload_placement(beta) == {"nodeSelector": {}}
        assert hco.placement_path(beta) == "spec.workloads.nodePlacement"

    def test_is_none_when_not_set(self):
        assert hco.workload_placement(hyperconverged()) is None


class TestAnnotation:
    def test_absent_means_no_operations(self):
        assert hco.operations(hyperconverged()) == []

    def test_operations_keep_their_order(self):
        operations = [add("/spec/b", 1), {"op": "remove", "path": "/spec/a"}]
        assert hco.operations(hyperconverged(operations)) == operations

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            ("", "is not valid JSON"),
            ("[", "is not valid JSON"),
            ("{}", "must be an array of operations, not an object"),
            ("3", "not a number"),
            ("true", "not a boolean"),
            ('["x"]', "Operation 0 .* is a string, not an object"),
            ('[{"op":"merge","path":"/spec/a"}]', "op 'merge', which is not one of add, copy"),
            ('[{"op":"add","path":"/metadata/a","value":1}]', "only paths under /spec/"),
            ('[{"op":"add","path":"/spec","value":{}}]', "only paths under /spec/"),
            ('[{"op":"add","path":null,"value":{}}]', "only paths under /spec/"),
            ('[{"op":"add","path":"/spec/a"}]', "'add' without 'value'"),
            ('[{"op":"copy","path":"/spec/a"}]', "copy without 'from'"),
        ],
    )
    def test_what_hco_would_refuse_is_refused(self, content, complaint):
        with pytest.raises(InputErrors, match=complaint) as raised:
            hco.operations(hyperconverged(content))
        assert "HyperConverged kv/kubevirt-hyperconverged" in raised.value.messages[0]

    def test_every_bad_operation_is_named(self):
        with pytest.raises(InputErrors) as raised:
            hco.operations(hyperconverged([1, add("/spec/a", 1), 2]))
        assert [message.split(" in ")[0] for message in raised.value.messages] == ["Operation 0", "Operation 2"]

    def test_the_same_operations_leave_the_object_as_it_is(self):
        item = hyperconverged('[ {"value": 1, "path": "/spec/a", "op": "add"} ]')
        assert hco.with_operations(item, [add("/spec/a", 1)]) is item

    def test_others_annotations_stay(self):
        item = hyperconverged(annotations={"deployOVS": "false"})
        after = hco.with_operations(item, [add("/spec/a", 1)])
        text = '[{"op":"add","path":"/spec/a","value":1}]'
        assert after["metadata"]["annotations"] == {"deployOVS": "false", names.HCO_PATCH_ANNOTATION: text}
        assert item["metadata"]["annotations"] == {"deployOVS": "false"}

    def test_no_operations_leave_no_annotation(self):
        assert "annotations" not in hco.with_operations(hyperconverged([add("/spec/a", 1)]), [])["metadata"]


class TestText:
    """GitOps tools compare the annotation's text, so what stays in it stays as its owner wrote it."""

    THEIRS = add("/spec/a", [1, {"b": "ü ,]"}])
    OURS = add("/spec/workloads", {"x": 1})
    OTHER = add("/spec/configuration/developerConfiguration/featureGates/-", "Sidecar")

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            "[ \n ]",
            json.dumps([THEIRS]),
            json.dumps([THEIRS, {"path": "/spec/c", "op": "remove"}], indent=2),
            '\n[\n  {"op":"add", "path":"/spec/a", "value":[1,{"b":"ü ,]"}]} ,\n  {"op":"remove","path":"/spec/c"}\n]\n',
            None,
        ],
    )
    @pytest.mark.parametrize("ours", [[OURS], [OURS, OTHER]])
    def test_comes_back_as_it_was(self, text, ours):
        before = hyperconverged(text)
        theirs = hco.operations(before)
        written = hco.with_operations(before, [*theirs, *ours])
        assert hco.operations(written) == [*theirs, *ours]
        assert hco.with_operations(written, theirs) == before
        one_by_one = hco.with_operations(written, [*theirs, *ours[1:]])
        assert hco.with_operations(one_by_one, theirs) == before

    def test_what_others_append_behind_ours_stays_as_they_wrote_it(self):
        text = (
            '[\n  {"op": "remove", "path": "/spec/c"},'
            + json.dumps(self.OURS)
            + ',\n  {"op": "remove", "path": "/spec/d"}\n]'
        )
        (first, _ours, last) = hco.operations(hyperconverged(text))
        after = hco.with_operations(hyperconverged(text), [first, last])
        assert after == hyperconverged(
            '[\n  {"op": "remove", "path": "/spec/c"},\n  {"op": "remove", "path": "/spec/d"}\n]'
        )

    def test_an_operation_that_changes_keeps_its_place(self):
        item = hyperconverged(json.dumps([self.OURS, self.THEIRS], indent=1))
        after = hco.with_operations(item, [self.OTHER, self.THEIRS])
        assert hco.operations(after) == [self.OTHER, self.THEIRS]
        assert after["metadata"]["annotations"][names.HCO_PATCH_ANNOTATION].startswith('[\n {"op":"add"')


class TestRender:
    """Our small JSON patch: what HCO makes of its render with operations."""

    @pytest.mark.parametrize(
        ("operation", "expected"),
        [
            (add("/spec/list/-", 3), {"list": [1, 2, 3], "map": {"a": 1}}),
            (add("/spec/list/0", 3), {"list": [3, 1, 2], "map": {"a": 1}}),
            (add("/spec/list", []), {"list": [], "map": {"a": 1}}),
            (add("/spec/map/b~1c~0", 2), {"list": [1, 2], "map": {"a": 1, "b/c~": 2}}),
            ({"op": "replace", "path": "/spec/map/a", "value": 2}, {"list": [1, 2], "map": {"a": 2}}),
            ({"op": "replace", "path": "/spec/list/1", "value": 3}, {"list": [1, 3], "map": {"a": 1}}),
            ({"op": "remove", "path": "/spec/list/0"}, {"list": [2], "map": {"a": 1}}),
            ({"op": "test", "path": "/spec/list", "value": "whatever"}, {"list": [1, 2], "map": {"a": 1}}),
            (add("/spec/elsewhere/-", 3), {"list": [1, 2], "map": {"a": 1}}),
            ({"op": "copy", "from": "/spec/list", "path": "/spec/elsewhere"}, {"list": [1, 2], "map": {"a": 1}}),
        ],
    )
    def test_applies_operations(self, operation, expected):
        assert render({"list": [1, 2], "map": {"a": 1}}, operation) == expected

    def test_a_removed_field_keeps_what_hco_rendered(self):
        assert render({"map": {"a": 1}}, {"op": "remove", "path": "/spec/map"}) == {"map": {"a": 1}}
        assert render({"map": {"a": 1, "b": 2}}, add("/spec/map", {"a": 3})) == {"map": {"a": 3, "b": 2}}

    def test_a_list_item_keeps_the_fields_of_the_one_at_its_position(self):
        base = {"list": [{"a": 1, "b": {"x": 1}}, {"a": 2}]}
        assert render(base, add("/spec/list", [{"b": {}}])) == {"list": [{"a": 1, "b": {"x": 1}}]}
        assert render(base, add("/spec/list", [3, {"a": 4}, {"c": 5}])) == {"list": [3, {"a": 4}, {"c": 5}]}

    def test_does_not_touch_what_it_was_given(self):
        base, value = {"spec": {"list": [1]}}, {"x": []}
        operations = [add("/spec/map", value), add("/spec/map/x/-", 1), add("/spec/list/-", 2)]
        before = copy.deepcopy((base, operations))
        hco.rendered(hyperconverged(), base, KNOWN, hco.numbered(operations))
        assert (base, operations) == before

    @pytest.mark.parametrize(
        "operation",
        [
            add("/spec/map/x/y", 1),
            add("/spec/list/5", 1),
            add("/spec/list/x", 1),
            {"op": "remove", "path": "/spec/map/x"},
            {"op": "replace", "path": "/spec/map/x", "value": 1},
            {"op": "replace", "path": "/spec/list/-", "value": 1},
        ],
    )
    def test_what_cannot_be_applied_is_refused(self, operation):
        with pytest.raises(InputErrors, match=r"Operation 0 .*cannot be applied; correct or remove it"):
            render({"list": [1], "map": {}}, operation)

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "copy", "from": "/spec/elsewhere", "path": "/spec/map/x"},
            {"op": "move", "from": "/spec/map", "path": "/spec/elsewhere"},
        ],
    )
    def test_what_needs_the_whole_render_is_refused(self, operation):
        with pytest.raises(InputErrors, match="write its value out in an 'add' instead"):
            render({"map": {}}, operation)


def test_positions_after_ours_are_refused():
    with pytest.raises(InputErrors, match="/spec/list/1/x after this collection's own"):
        hco.refuse_positions(hyperconverged(), "/spec/list", [add("/spec/list/-", 1), add("/spec/list/1/x", 1)])
    hco.refuse_positions(hyperconverged(), "/spec/list", [add("/spec/list/-", 1), add("/spec/lists/1", 1)])


def test_an_edit_says_what_it_wants_and_where():
    item = kubevirt()
    edit = hco.Edit("KubeVirt", item, item, "do this", "spec.that")
    assert not edit.changed
    assert str(edit) == "KubeVirt kv/kubevirt-kubevirt-hyperconverged: do this (spec.that)"
