# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.affinity import with_required_terms
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.exclusion import PATCH
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.patch_conflicts import conflicts

OURS = {"key": names.OWNER_LABEL, "operator": "DoesNotExist"}
ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
THEIR_PATCH = {"patch": '{"a":1}', "resourceName": "virt-api", "resourceType": "Deployment", "type": "merge"}


def affinity(*terms):
    return with_required_terms(None, terms)


def term(*expressions):
    return {"matchExpressions": list(expressions)}


def kubevirt(*patches, placement=None):
    spec = {"customizeComponents": {"patches": list(patches)}, "workloads": {"nodePlacement": placement}}
    return {"kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": "kv"}, "spec": spec}


def hyperconverged(placement=None):
    return {
        "apiVersion": "hco.kubevirt.io/v1",
        "kind": "HyperConverged",
        "metadata": {"name": names.HCO_NAME, "namespace": "kv"},
        "spec": {"deployment": {"nodePlacements": {"workload": placement}}},
    }


def patch(body, kind="strategic", name="virt-handler", resource="DaemonSet"):
    text = body if isinstance(body, str) else json.dumps(body)
    return {"patch": text, "resourceName": name, "resourceType": resource, "type": kind}


def in_template(**pod_spec):
    return {"spec": {"template": {"spec": pod_spec}}}


def operation(op, path, value=None, **others):
    return {"op": op, "path": f"/spec/template/spec{path}", "value": value, **others}


AFFINITY = [("error", "patch_on_primary_affinity")]
SELECTOR = [("error", "patch_on_primary_node_selector")]
NOTE = [("note", "primary_node_selector_patched")]
UNREADABLE = [("error", "patch_unreadable")]


class TestConflicts:
    def codes(self, *patches, **kwargs):
        return [(finding.severity, finding.code) for finding in conflicts(kubevirt(*patches, **kwargs))]

    @pytest.mark.parametrize("kind", ["strategic", "merge"])
    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            (in_template(affinity=affinity(term(ZONE))), AFFINITY),
            (in_template(affinity=None), AFFINITY),
            (in_template(affinity={"$patch": "delete"}), AFFINITY),
            (in_template(affinity={"nodeAffinity": {"$retainKeys": ["x"]}}), AFFINITY),
            (in_template(affinity={"podAffinity": {}}), []),
            (in_template(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}), []),
            (in_template(nodeSelector={"a": "1"}), NOTE),
            (in_template(nodeSelector={}), []),
            (in_template(nodeSelector={names.OWNER_LABEL: "x"}), SELECTOR),
            (in_template(nodeSelector=None), SELECTOR),
            (in_template(nodeSelector={"$patch": "replace", "a": "1"}), SELECTOR),
            (in_template(**{"$patch": "replace"}), AFFINITY + SELECTOR),
            ({"spec": {"template": None}}, AFFINITY + SELECTOR),
            ({"spec": {"template": {"metadata": {"annotations": {"a": "1"}}}}}, []),
            (in_template(tolerations=[]), []),
        ],
    )
    def test_merge_patches(self, kind, body, expected):
        assert self.codes(patch(body, kind)) == expected

    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            (operation("add", "/affinity", {}), AFFINITY),
            (operation("add", "/affinity/nodeAffinity", {}), AFFINITY),
            (operation("remove", "/affinity"), AFFINITY),
            (operation("test", "/affinity/nodeAffinity", {}), AFFINITY),
            (operation("move", "/x", **{"from": "/spec/template/spec/affinity"}), AFFINITY),
            (operation("copy", "/x", **{"from": "/spec/template/spec/affinity"}), []),
            (operation("replace", "", {}), AFFINITY + SELECTOR),
            ({"op": "replace", "path": "/spec", "value": {}}, AFFINITY + SELECTOR),
            ({"op": "replace", "path": "", "value": {}}, AFFINITY + SELECTOR),
            (operation("add", "/nodeSelector", {"a": "1"}), NOTE),
            (operation("add", "/nodeSelector", {names.OWNER_LABEL: "x"}), SELECTOR),
            (operation("replace", "/nodeSelector", {"a": "1"}), SELECTOR),
            (operation("remove", "/nodeSelector"), SELECTOR),
            (operation("add", "/nodeSelector/a", "1"), NOTE),
            (operation("add", "/nodeSelector/virtpools.io~1pool", "1"), SELECTOR),
            (operation("test", "/nodeSelector", {}), []),
            (operation("add", "/affinityX", {}), []),
            (operation("add", "/tolerations/-", {}), []),
        ],
    )
    def test_json_patches(self, op, expected):
        assert self.codes(patch([op], "json")) == expected

    @pytest.mark.parametrize(
        ("name", "resource", "counts"),
        [
            ("*", "*", True),
            ("VIRT-handler", "daemonset", True),
            ("virt-handler", "DaemonSets", False),
            ("virt-api", "DaemonSet", False),
            ("virt-handler", "Deployment", False),
        ],
    )
    def test_match_as_kubevirt_matches(self, name, resource, counts):
        found = self.codes(patch(in_template(affinity=None), "merge", name, resource))
        assert found == (AFFINITY if counts else [])

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            ("{", "strategic"),
            ("", "merge"),
            ("[]", "strategic"),
            ("{}", "json"),
            ("[1]", "json"),
            ('[{"op":"add"}]', "json"),
            ("{}", "yaml"),
            ("{}", None),
        ],
    )
    def test_unreadable(self, body, kind):
        assert self.codes(patch(body, kind)) == UNREADABLE

    def test_ours_is_none(self):
        assert self.codes(PATCH, THEIR_PATCH) == []

    def test_the_message_names_the_place_and_the_remedy(self):
        item = kubevirt(THEIR_PATCH, patch(in_template(affinity=None)))
        (direct,), (under_hco,) = conflicts(item), conflicts(item, hyperconverged())
        assert "KubeVirt kv/kubevirt: spec.customizeComponents.patches[1]" in direct.message
        assert "to spec.workloads.nodePlacement of the KubeVirt object and" in direct.message
        assert "to spec.deployment.nodePlacements.workload of HyperConverged kv/kubevirt-hyper" in under_hco.message
        assert f"patches[1], which comes from the annotation {names.HCO_PATCH_ANNOTATION} of Hyper" in under_hco.message

    @pytest.mark.parametrize(
        ("placement", "found"),
        [
            ({"nodeSelector": {names.OWNER_LABEL: "gpu"}}, True),
            ({"nodeSelector": {"a": "1"}}, False),
            ({"affinity": affinity(term(OURS, ZONE))}, False),
            ({"affinity": affinity(term({**OURS, "operator": "Exists"}))}, True),
            ({"affinity": affinity(term({**OURS, "operator": "NotIn", "values": ["x"]}))}, True),
            (
                {
                    "affinity": {
                        "nodeAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [
                                {"weight": 1, "preference": term({**OURS, "operator": "Exists"})}
                            ]
                        }
                    }
                },
                True,
            ),
        ],
    )
    def test_the_owner_label_in_the_users_placement(self, placement, found):
        expected = [("error", "placement_uses_owner_label")] if found else []
        assert self.codes(placement=placement) == expected

    def test_under_hco_the_requirement_is_refused_in_its_placement(self):
        placement = {"affinity": affinity(term(OURS, ZONE))}
        (found,) = conflicts(kubevirt(placement=placement), hyperconverged(placement=placement))
        assert "HyperConverged kv/kubevirt-hyperconverged: spec.deployment.nodePlacements.workload" in found.message
