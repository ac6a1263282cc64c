# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.feature_gates import (
    gate_problems,
    set_gates,
    unknown_gates,
)

LISTS = "/spec/configuration/developerConfiguration"


def kubevirt(on=None, off=None, version="v1.9.0", **developer):
    developer |= {
        key: value for key, value in (("featureGates", on), ("disabledFeatureGates", off)) if value is not None
    }
    return {
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kv"},
        "spec": {"configuration": {"developerConfiguration": developer}},
        "status": {"observedKubeVirtVersion": version},
    }


def lists_of(item):
    developer = item["spec"]["configuration"]["developerConfiguration"]
    return developer.get("featureGates"), developer.get("disabledFeatureGates")


def hyperconverged(*operations):
    metadata = {"name": names.HCO_NAME, "namespace": "kv"}
    if operations:
        metadata["annotations"] = {names.HCO_PATCH_ANNOTATION: json.dumps(operations)}
    return {"apiVersion": "hco.kubevirt.io/v1", "kind": "HyperConverged", "metadata": metadata, "spec": {}}


def operations_of(item):
    return json.loads(item["metadata"].get("annotations", {}).get(names.HCO_PATCH_ANNOTATION, "[]"))


def enable(gate):
    return {"op": "add", "path": f"{LISTS}/featureGates/-", "value": gate}


def disable(gate):
    return {"op": "add", "path": f"{LISTS}/disabledFeatureGates/-", "value": gate}


class TestNames:
    def test_good(self):
        assert gate_problems(["Sidecar", "NUMA", "x1"]) == []

    @pytest.mark.parametrize("gate", ["", "1a", "a-b", "a b", "Sidecar\n", "Ä", 1, None])
    def test_bad(self, gate):
        (problem,) = gate_problems([gate])
        assert repr(gate) in problem

    def test_known(self):
        assert unknown_gates(["Sidecar", "ImageVolume", "Macvtap"], "v1.6.0") == []
        assert unknown_gates(["Plugins"], "v1.9.0") == []
        assert unknown_gates(["Plugins"], None) == []

    @pytest.mark.parametrize(
        ("gate", "without", "has"),
        [
            ("UtilityVolumes", "v1.7.0", "v1.8.0"),
            ("PCINUMAAwareTopology", "v1.7.0", "v1.8.0"),
            ("VGPULiveMigration", "v1.8.2", "v1.9.0"),
        ],
    )
    def test_the_first_release_is_that_whose_source_has_it(self, gate, without, has):
        assert len(unknown_gates([gate], without)) == 1
        assert unknown_gates([gate], has) == []

    def test_a_gate_that_no_source_has(self):
        assert len(unknown_gates(["MigrationDowntimeTuning"], "v1.9.0")) == 1

    def test_unknown_with_the_nearest_known(self):
        (found,) = unknown_gates(["ImageVolumes", "ImageVolumes"], "v1.9.0")
        assert (found.severity, found.code) == ("warning", "feature_gate_unknown")
        assert "(nearest known: ImageVolume)" in found.message

    def test_unknown_without_any_near(self):
        (found,) = unknown_gates(["Xyzzy"], "v1.9.0")
        assert "nearest" not in found.message

    def test_of_a_later_release(self):
        (found,) = unknown_gates(["Plugins"], "v1.8.4")
        assert "exists since KubeVirt 1.9, and this is KubeVirt 1.8" in found.message

    @pytest.mark.parametrize(
        ("gate", "field"),
        [
            ("VirtHandlerPools", "spec.virtHandlerPools"),
            ("AdditionalVirtHandlers", "spec.additionalVirtHandlers"),
            ("WorkerPools", "spec.workerPools"),
        ],
    )
    def test_of_forks(self, gate, field):
        (found,) = unknown_gates([gate], "v1.9.0")
        assert found.code == "feature_gate_of_fork"
        assert field in found.message


class TestKubeVirt:
    def test_appended_and_kept_in_order(self):
        before = kubevirt(["B", "A"])
        edit = set_gates(before, None, ["D", "C", "A"], [])
        assert lists_of(edit.after) == (["B", "A", "C", "D"], None)
        assert str(edit) == (
            "KubeVirt kv/kubevirt: feature gates: enable A, C, D (spec.configuration.developerConfiguration)"
        )
        assert lists_of(before) == (["B", "A"], None)

    def test_nothing_to_do(self):
        item = kubevirt(["A"], ["B"])
        edit = set_gates(item, None, ["A"], ["B"])
        assert edit.after is item
        assert not edit.changed

    def test_a_gate_goes_from_one_list_to_the_other(self):
        assert lists_of(set_gates(kubevirt(["A", "B"], ["C"]), None, ["C"], ["A"]).after) == (["B", "C"], ["A"])

    def test_an_emptied_list_is_dropped_and_others_settings_stay(self):
        after = set_gates(kubevirt(["A"], [], version="v1.7.2", logVerbosity={}), None, [], ["A"]).after
        assert after["spec"]["configuration"]["developerConfiguration"] == {
            "logVerbosity": {},
            "disabledFeatureGates": [],
        }

    @pytest.mark.parametrize("version", ["v1.6.5", "v1.7.0"])
    def test_before_the_list_of_disabled_gates_off_means_not_on(self, version):
        assert lists_of(set_gates(kubevirt(["A", "B"], version=version), None, [], ["A", "C"]).after) == (["B"], None)

    @pytest.mark.parametrize(("off", "expected"), [(None, None), (["X"], ["X", "A"])])
    def test_of_a_development_build_uses_only_an_existing_list(self, off, expected):
        item = kubevirt(["B", "A"], off, version="devel")
        assert lists_of(set_gates(item, None, [], ["A"]).after) == (["B"], expected)

    @pytest.mark.parametrize("spec", [{}, {"configuration": None}, {"configuration": {"developerConfiguration": None}}])
    def test_the_lists_are_made_where_there_are_none(self, spec):
        item = {**kubevirt(), "spec": spec}
        assert lists_of(set_gates(item, None, ["A"], []).after) == (["A"], None)

    def test_bad_input_is_refused_all_at_once(self):
        with pytest.raises(InputErrors) as raised:
            set_gates(kubevirt(), None, ["a-b", "A"], ["A", "1"])
        assert len(raised.value.messages) == 3
        assert "Feature gate A is to be both present and absent" in raised.value.messages[2]


def test_a_gate_that_is_off_by_default_is_only_taken_out():
    after = set_gates(kubevirt(["HostDisk", "Snapshot"]), None, [], ["HostDisk", "Snapshot"]).after
    assert lists_of(after) == (None, ["Snapshot"])


class TestUnderHco:
    """``kubevirt`` is what HCO renders with the operations in the annotation."""

    def after(self, item, *operations, on=(), off=()):
        return operations_of(set_gates(item, hyperconverged(*operations), on, off).after)

    def test_appends_to_what_hco_renders(self):
        other = {"op": "add", "path": "/spec/configuration/evictionStrategy", "value": "None"}
        item = kubevirt(["CPUManager"], ["ImageVolume"])
        assert self.after(item, other, on=["Sidecar"], off=["RebootPolicy"]) == [
            other,
            enable("Sidecar"),
            disable("RebootPolicy"),
        ]

    def test_what_hco_renders_so_itself_needs_nothing(self):
        item, owner = kubevirt(["CPUManager"], ["ImageVolume"]), hyperconverged()
        assert set_gates(item, owner, ["CPUManager"], ["ImageVolume"]).after is owner

    def test_repeated_it_changes_nothing(self):
        owner = hyperconverged(enable("Sidecar"), disable("RebootPolicy"))
        for item in (kubevirt(["CPUManager"], ["X"]), kubevirt(["CPUManager", "Sidecar"], ["X", "RebootPolicy"])):
            assert set_gates(item, owner, ["Sidecar"], ["RebootPolicy"]).after is owner

    def test_our_own_are_taken_back(self):
        item = kubevirt(["CPUManager", "Snapshot"], ["X", "RebootPolicy"])
        operations = [enable("Snapshot"), disable("RebootPolicy")]
        assert self.after(item, *operations, on=["RebootPolicy"], off=["Snapshot"]) == [
            enable("RebootPolicy"),
            disable("Snapshot"),
        ]

    def test_without_a_list_of_disabled_gates_off_means_not_on(self):
        assert self.after(kubevirt(["CPUManager", "Sidecar"]), enable("Sidecar"), off=["Sidecar"]) == []

    def test_our_append_of_a_gate_off_by_default_is_only_taken_back(self):
        item = kubevirt(["CPUManager", "Sidecar"], ["ImageVolume"])
        assert self.after(item, enable("Sidecar"), off=["Sidecar"]) == []
        assert set_gates(kubevirt(["CPUManager"], ["ImageVolume"]), hyperconverged(), [], ["Sidecar"]).changed is False
        newer = {**item, "status": {"observedKubeVirtVersion": "v1.10.0"}}
        assert self.after(newer, enable("Sidecar"), off=["Sidecar"]) == [disable("Sidecar")], (
            "its default may be another"
        )

    def test_what_hco_decides_is_refused(self):
        with pytest.raises(InputErrors) as raised:
            self.after(
                kubevirt(["Snapshot", "ObjectGraph", "Template"], ["ImageVolume"]),
                on=["ImageVolume"],
                off=["Snapshot", "ObjectGraph", "Template"],
            )
        disables, graph, enables, template = raised.value.messages
        assert "HCO disables the feature gate ImageVolume" in disables
        assert "HCO has no switch for it in spec.featureGates" in disables
        assert "HCO enables the feature gate Snapshot" in enables
        assert graph.endswith("set objectGraph to Disabled in its own spec.featureGates.")
        assert template.endswith("set template to Disabled in its own spec.featureGates.")

    def test_the_replacement_that_the_refusal_advises_works(self):
        advised = {"op": "replace", "path": f"{LISTS}/disabledFeatureGates", "value": ["GPUsWithDRA"]}
        item = kubevirt(["CPUManager"], ["GPUsWithDRA"])
        assert self.after(item, advised, on=["ImageVolume"]) == [advised, enable("ImageVolume")]

    def test_an_operation_of_others_that_decides_is_named(self):
        theirs = {"op": "add", "path": f"{LISTS}/featureGates", "value": ["CPUManager", "Sidecar"]}
        with pytest.raises(
            InputErrors, match=r"operation 0 in its annotation enables .* take Sidecar out of that operation"
        ):
            self.after(kubevirt(["CPUManager", "Sidecar"]), theirs, off=["Sidecar"])

    def test_appends_again_what_another_operation_replaced(self):
        theirs = {"op": "add", "path": f"{LISTS}/featureGates", "value": ["CPUManager"]}
        assert self.after(kubevirt(["CPUManager"]), enable("Sidecar"), theirs, on=["Sidecar"]) == [
            theirs,
            enable("Sidecar"),
        ]

    def test_a_position_behind_ours_is_refused(self):
        by_position = {"op": "replace", "path": f"{LISTS}/featureGates/1", "value": "Y"}
        with pytest.raises(InputErrors, match="without changing the meaning of that position"):
            self.after(kubevirt(["A", "Sidecar"]), enable("Sidecar"), by_position, off=["Sidecar"])


gates = st.lists(st.sampled_from(["A", "B", "C", "D", "E"]), unique=True, max_size=4)


@given(gates, gates, gates, gates, st.sampled_from(["v1.7.0", "v1.9.0"]))
def test_gates_are_as_wanted_and_stay_so(on, off, present, absent, version):
    off, absent = [gate for gate in off if gate not in on], [gate for gate in absent if gate not in present]
    before = kubevirt(on, off, version)
    kept = copy.deepcopy(before)
    after = set_gates(before, None, present, absent).after
    enabled, disabled = (found or [] for found in lists_of(after))
    assert not set_gates(after, None, present, absent).changed
    assert set(present) <= set(enabled)
    assert not set(absent) & set(enabled)
    assert not set(enabled) & set(disabled)
    assert version == "v1.7.0" or set(absent) <= set(disabled)
    untouched = [gate for gate in on if gate not in absent]
    assert enabled[: len(untouched)] == untouched
    assert before == kept
