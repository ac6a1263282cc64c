# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import edits
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.edits import TOUCH, WantedParts
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode

B, C = BUILDS["virtHandlerPools"], BUILDS["WorkerPool"]
ENTRY = {"name": "gpu", "nodeSelector": {"hw": "gpu"}, "virtHandlerImage": "registry.example/h:v1"}
GATES = "/spec/configuration/developerConfiguration/featureGates"
APPEND = {"op": "add", "path": f"{GATES}/-", "value": "VirtHandlerPools"}
LIST = {"op": "add", "path": "/spec/virtHandlerPools", "value": [ENTRY]}
OTHER = {"op": "add", "path": f"{GATES}/-", "value": "Sidecar"}


def with_spec(**spec):
    found = builders.kubevirt()
    found["spec"] = spec
    return found


DEVELOPER = "developerConfiguration"
SPECS = [
    {},
    {"configuration": {}},
    {"configuration": {DEVELOPER: {}}},
    {"configuration": {DEVELOPER: {"featureGates": []}}},
    {"configuration": {DEVELOPER: {"featureGates": ["Sidecar"]}}},
    {"configuration": {DEVELOPER: {"logVerbosity": {}}}, "infra": {}},
]


class TestKubeVirt:
    @pytest.mark.parametrize("spec", SPECS)
    def test_list_and_gate_come_in_one_edit_and_leave_nothing(self, spec):
        before = with_spec(**spec)
        depth = edits.gate_depth(before, B.gate)
        came = edits.edit(B, before, None, WantedParts([ENTRY], gate=True))
        assert came.after["spec"]["virtHandlerPools"] == [ENTRY]
        gates = came.after["spec"]["configuration"][DEVELOPER]["featureGates"]
        assert gates[-1] == "VirtHandlerPools"
        gone = edits.edit(B, came.after, None, WantedParts([], gate=False, depth=depth))
        assert gone.after == before

    def test_a_gate_that_is_on_is_not_ours(self):
        assert edits.gate_depth(fake_operator_mode.kubevirt(gates=["VirtHandlerPools"]), B.gate) is None

    def test_the_touch_leaves_nothing(self):
        before = fake_operator_mode.kubevirt(gates=["WorkerPools"])
        touched = edits.edit(C, before, None, WantedParts(touch=True)).after
        assert edits.is_touched(touched)
        assert not edits.is_touched(before)
        assert edits.edit(C, touched, None, WantedParts(touch=False)).after == before

    def test_what_is_there_already_is_no_change(self):
        found = fake_operator_mode.kubevirt(entries=[ENTRY], field="virtHandlerPools", gates=["VirtHandlerPools"])
        assert not edits.edit(B, found, None, WantedParts([ENTRY], gate=True)).changed

    def test_a_disabled_gate_is_refused(self):
        spec = {"configuration": {DEVELOPER: {"disabledFeatureGates": ["VirtHandlerPools"]}}}
        with pytest.raises(InputErrors, match="has VirtHandlerPools in disabledFeatureGates"):
            edits.edit(B, with_spec(**spec), None, WantedParts([ENTRY], gate=True))


class TestHyperConverged:
    @staticmethod
    def operations(wanted, *present, of=None):
        found, hyperconverged = builders.under_hco(of or builders.kubevirt(), operations=present)
        made = edits.edit(B, found, hyperconverged, wanted)
        assert made.kind == "HyperConverged"
        return json.loads(made.after["metadata"].get("annotations", {}).get(names.HCO_PATCH_ANNOTATION, "[]"))

    def test_list_and_gate_are_operations(self):
        assert self.operations(WantedParts([ENTRY], gate=True), OTHER) == [OTHER, LIST, APPEND]
        assert self.operations(WantedParts([ENTRY], gate=True), OTHER, LIST, APPEND) == [OTHER, LIST, APPEND]

    def test_only_ours_are_taken_away(self):
        on = fake_operator_mode.kubevirt(entries=[ENTRY], field="virtHandlerPools", gates=["VirtHandlerPools"])
        assert self.operations(WantedParts([], gate=False), LIST, OTHER, APPEND, of=on) == [OTHER]

    def test_a_gate_that_hco_renders_itself_needs_no_operation(self):
        on = fake_operator_mode.kubevirt(gates=["VirtHandlerPools"])
        assert self.operations(WantedParts([ENTRY], gate=True), of=on) == [LIST]

    @pytest.mark.parametrize("operations", [(), (OTHER,)])
    def test_a_disabled_gate_is_refused(self, operations):
        rendered = with_spec(configuration={DEVELOPER: {"disabledFeatureGates": ["VirtHandlerPools"]}})
        with pytest.raises(InputErrors, match="remove it in .*HyperConverged.* first"):
            self.operations(WantedParts([ENTRY], gate=True), *operations, of=rendered)

    def test_a_gate_that_is_disabled_may_go(self):
        rendered = with_spec(configuration={DEVELOPER: {"disabledFeatureGates": ["VirtHandlerPools"]}})
        assert self.operations(WantedParts([], gate=False), APPEND, of=rendered) == []

    def test_the_touch(self):
        appended = {**APPEND, "value": TOUCH}
        assert self.operations(WantedParts(touch=True)) == [appended]
        assert self.operations(WantedParts(touch=False), appended) == []

    def test_an_operation_inside_the_list_is_refused(self):
        inside = {"op": "replace", "path": "/spec/virtHandlerPools/0/name", "value": "x"}
        with pytest.raises(InputErrors, match="inside the list that this run writes as a whole"):
            self.operations(WantedParts([ENTRY], gate=True), inside)

    def test_a_position_after_our_gate_is_refused(self):
        later = {"op": "remove", "path": f"{GATES}/1"}
        with pytest.raises(InputErrors, match="rewrite that operation without a position first"):
            self.operations(WantedParts([], gate=False), APPEND, later)
