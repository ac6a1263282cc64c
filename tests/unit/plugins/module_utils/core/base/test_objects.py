# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import (
    ABSENT,
    Difference,
    canonical_json,
    contains,
    diff,
    differences,
    digest,
    metadata_patch,
    short_digest,
)


def daemon_set(**containers):
    """A DaemonSet whose containers have these images."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "virt-handler", "namespace": "kubevirt"},
        "spec": {
            "template": {"spec": {"containers": [{"name": n, "image": i} for n, i in containers.items()]}},
            "updateStrategy": {"type": "OnDelete"},
        },
    }


class TestDigest:
    def test_equal_values_have_equal_text(self):
        assert canonical_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'
        assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})

    def test_different_values_have_different_digests(self):
        assert digest({"a": [1, 2]}) != digest({"a": [2, 1]})
        assert len(digest(None)) == 64

    def test_the_short_digest_is_how_the_digest_begins(self):
        assert len(short_digest(None)) == 12
        assert digest(None).startswith(short_digest(None))

    def test_not_a_number_is_no_json(self):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical_json(float("nan"))


def shown(obj):
    """What a diff shows of a new object."""
    created = diff(None, obj)
    assert created["before"] == {}
    return created["after"]


class TestDiffOfANewObject:
    def test_drops_what_the_server_sets_and_keeps_the_rest(self):
        live = daemon_set(virt="a")
        live["status"] = {"numberReady": 3}
        live["metadata"] |= {
            "uid": "u",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        }
        before = copy.deepcopy(live)
        assert shown(live) == daemon_set(virt="a")
        assert live == before

    def test_keeps_other_annotations(self):
        live = {
            "metadata": {
                "annotations": {"deprecated.daemonset.template.generation": "1", "kubevirt.io/generation": "4"}
            }
        }
        assert shown(live) == {"metadata": {"annotations": {"kubevirt.io/generation": "4"}}}

    def test_hides_the_values_of_secrets(self):
        secret = {"kind": "Secret", "type": "Opaque", "data": {"token": "c2VjcmV0"}, "stringData": {"a": "secret"}}
        assert shown(secret) == {
            "kind": "Secret",
            "type": "Opaque",
            "data": {"token": "*** (after)"},
            "stringData": {"a": "*** (after)"},
        }

    def test_shows_a_config_map(self):
        assert shown({"kind": "ConfigMap", "data": {"a": "b"}}) == {"kind": "ConfigMap", "data": {"a": "b"}}


class TestDiff:
    def test_only_the_changed_container_is_shown_with_its_path(self):
        shown = diff(daemon_set(virt="v1", console="c"), daemon_set(virt="v2", console="c"))
        identity = {"kind": "DaemonSet", "metadata": {"name": "virt-handler", "namespace": "kubevirt"}}
        assert shown == {
            "before": identity | {"spec": {"template": {"spec": {"containers": [{"name": "virt", "image": "v1"}]}}}},
            "after": identity | {"spec": {"template": {"spec": {"containers": [{"name": "virt", "image": "v2"}]}}}},
        }

    def test_nothing_to_show_when_only_the_server_changed_something(self):
        after = daemon_set(virt="v1")
        after["metadata"]["resourceVersion"] = "8"
        after["status"] = {}
        assert diff(daemon_set(virt="v1"), after) == {"before": {}, "after": {}}

    def test_a_new_object_is_shown_whole(self):
        assert diff(None, daemon_set(virt="v1")) == {"before": {}, "after": daemon_set(virt="v1")}
        assert diff(daemon_set(virt="v1"), None) == {"before": daemon_set(virt="v1"), "after": {}}

    def test_changed_metadata_stands_beside_the_name(self):
        before, after = daemon_set(virt="v1"), daemon_set(virt="v1")
        after["metadata"]["labels"] = {"a": "b"}
        assert diff(before, after)["after"]["metadata"] == {
            "name": "virt-handler",
            "namespace": "kubevirt",
            "labels": {"a": "b"},
        }

    @pytest.mark.parametrize(
        ("old", "new", "left", "right"),
        [
            pytest.param(
                [{"key": "a"}, {"key": "b"}], [{"key": "b"}, {"key": "c"}], [{"key": "a"}], [{"key": "c"}], id="unnamed"
            ),
            pytest.param([{"key": "a"}], [{"key": "a"}, {"key": "a"}], [], [{"key": "a"}], id="one more of the same"),
            pytest.param(["a", "b"], ["a", "c"], ["a", "b"], ["a", "c"], id="scalars whole"),
            pytest.param(
                [{"key": "a"}, {"key": "b"}],
                [{"key": "b"}, {"key": "a"}],
                [{"key": "a"}, {"key": "b"}],
                [{"key": "b"}, {"key": "a"}],
                id="unnamed in another order",
            ),
            pytest.param(
                [{"name": "a", "v": 1}, {"name": "b"}],
                [{"name": "b"}, {"name": "a", "v": 1}],
                [{"name": "a"}, {"name": "b"}],
                [{"name": "b"}, {"name": "a"}],
                id="named in another order",
            ),
            pytest.param([{"name": "a"}], [{"name": "b"}], [{"name": "a"}], [{"name": "b"}], id="one gone, one new"),
            pytest.param(
                [{"name": "v", "at": "/a"}, {"name": "v", "at": "/b"}],
                [{"name": "v", "at": "/a"}, {"name": "v", "at": "/c"}],
                [{"name": "v", "at": "/b"}],
                [{"name": "v", "at": "/c"}],
                id="names twice, as in volumeMounts",
            ),
        ],
    )
    def test_lists(self, old, new, left, right):
        assert diff({"spec": old}, {"spec": new}) == {"before": {"spec": left}, "after": {"spec": right}}

    def test_secrets_show_that_a_value_changed_but_not_which(self):
        before = {"kind": "Secret", "data": {"same": "eA==", "token": "b2xk"}}
        after = {"kind": "Secret", "data": {"same": "eA==", "token": "bmV3"}}
        assert diff(before, after) == {
            "before": {"kind": "Secret", "data": {"token": "*** (before)"}},
            "after": {"kind": "Secret", "data": {"token": "*** (after)"}},
        }


class TestDifferences:
    def test_equal(self):
        assert differences(daemon_set(virt="v1"), daemon_set(virt="v1")) == ()

    def test_path_names_the_container(self):
        found = differences(daemon_set(virt="v1"), daemon_set(virt="v2"))
        assert found == (Difference("spec.template.spec.containers[virt].image", "v1", "v2"),)
        assert str(found[0]) == 'spec.template.spec.containers[virt].image is "v2", it should be "v1"'

    def test_of_long_texts_it_shows_the_part_that_differs(self):
        (found,) = differences({"a": "x" * 200 + "new"}, {"a": "x" * 200 + "old"})
        assert found.change == f'a: …{"x" * 20}old" -> …{"x" * 20}new"'
        assert str(found) == f'a is …{"x" * 20}old", it should be …{"x" * 20}new"'

    def test_as_a_change_it_shows_what_is_absent(self):
        assert [each.change for each in differences({"a": 1}, {"b": 2})] == ["a: nothing -> 1", "b: 2 -> nothing"]

    def test_absent_is_not_null(self):
        found = differences({"a": None}, {})
        assert found == (Difference("a", None, ABSENT),)
        assert str(found[0]) == "a is missing, it should be null"

    def test_more_than_desired_is_a_difference(self):
        found = differences({}, {"labels": {"virtpools.io/pool": "gpu"}}, "metadata")
        assert found == (Difference("metadata.labels", ABSENT, {"virtpools.io/pool": "gpu"}),)
        assert str(found[0]) == 'metadata.labels should not exist, it is {"virtpools.io/pool":"gpu"}'

    def test_keys_with_dots_are_bracketed(self):
        assert differences({"a.b/c": 1}, {"a.b/c": 2}, "labels")[0].path == "labels[a.b/c]"

    def test_lists_without_names_go_by_index(self):
        found = differences(["a", "b"], ["a", "c", "d"], "args")
        assert [d.path for d in found] == ["args[1]", "args[2]"]

    def test_order_of_named_items(self):
        found = differences([{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}], "env")
        assert found == (Difference("env", ["a", "b"], ["b", "a"]),)

    def test_true_is_not_one(self):
        assert differences({"a": True}, {"a": 1}) == (Difference("a", True, 1),)

    def test_long_values_are_cut_in_the_sentence(self):
        assert len(str(Difference("a", "x" * 500, "y" * 500))) < 300


class TestContains:
    @pytest.mark.parametrize(
        ("live", "desired", "expected"),
        [
            ({"a": 1, "b": 2}, {"a": 1}, True),
            ({"a": 1}, {"a": 1, "b": 2}, False),
            ({"l": [{"name": "x", "default": 1}, {"name": "injected"}]}, {"l": [{"name": "x"}]}, True),
            ({"l": []}, {"l": [{"name": "x"}]}, False),
            ({"a": "1"}, {"a": 1}, False),
            ("text", {"a": 1}, False),
        ],
    )
    def test_contains(self, live, desired, expected):
        assert contains(live, desired) is expected


class TestMetadataPatch:
    POINTER = "/metadata/labels/virtpools.io~1pool"

    def test_adds_an_absent_label_only_while_it_is_absent(self):
        node = {"metadata": {"labels": {"a": "b"}}}
        assert metadata_patch(node, labels={"virtpools.io/pool": "gpu"}) == [
            {"op": "test", "path": self.POINTER, "value": None},
            {"op": "add", "path": self.POINTER, "value": "gpu"},
        ]

    def test_changes_and_removes_after_all_tests(self):
        node = {"metadata": {"labels": {"virtpools.io/pool": "gpu"}, "annotations": {"x~y": "1"}}}
        assert metadata_patch(node, labels={"virtpools.io/pool": "fpga"}, annotations={"x~y": None}) == [
            {"op": "test", "path": self.POINTER, "value": "gpu"},
            {"op": "test", "path": "/metadata/annotations/x~0y", "value": "1"},
            {"op": "add", "path": self.POINTER, "value": "fpga"},
            {"op": "remove", "path": "/metadata/annotations/x~0y"},
        ]

    def test_makes_a_mapping_that_is_not_there(self):
        assert metadata_patch({"metadata": {}}, annotations={"a": "1", "b": None}) == [
            {"op": "test", "path": "/metadata/annotations", "value": None},
            {"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}},
        ]

    def test_what_is_so_already_is_only_tested(self):
        node = {"metadata": {"labels": {"a": "b"}}}
        assert metadata_patch(node, labels={"a": "b", "c": None}) == [
            {"op": "test", "path": "/metadata/labels/a", "value": "b"},
            {"op": "test", "path": "/metadata/labels/c", "value": None},
        ]

    def test_nothing_asked_nothing_done(self):
        assert metadata_patch({"metadata": {}}) == []
