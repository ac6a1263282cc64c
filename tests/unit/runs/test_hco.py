# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs under HCO, whose annotation other users write, too. What HCO does here was seen on the real one (fake_operator)."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.disturbance import is_write
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import GPU, RT, Stage, outcome, stock

POOLS = {"virtpools_pools": [GPU, RT]}
PLANNED = {"pools": [GPU, RT], "max_unavailable": 2}
THEIRS = {"op": "add", "path": "/spec/workloadUpdateStrategy", "value": {"workloadUpdateMethods": []}}
BUILDS_ON_OURS = {"op": "add", "path": "/spec/workloads/nodePlacement/tolerations", "value": [{"operator": "Exists"}]}
GATES = {"featureGates": ["CPUManager", "Snapshot"], "disabledFeatureGates": ["GPUsWithDRA", "ImageVolume"]}
HCO = f"HyperConverged {builders.NAMESPACE}/{names.HCO_NAME}"


class Scenario:
    """A cluster whose KubeVirt is HCO's, with an annotation as its administrator wrote it."""

    def __init__(self, run, stage, annotation=None):
        run.guarded = True
        self.module = run
        self._stage = stage
        self.world, self.disturbance = stage.on(stock("HCO"))
        self.world.rendered = {
            **self.world.rendered,
            "configuration": {"developerConfiguration": GATES},
            "infra": {"replicas": 1},
        }
        if annotation is not None:
            self.annotate(annotation)
        self.world.sleep(30)
        self.before = copy.deepcopy(outcome(self.world))

    def run(self, role, **variables):
        self._stage.run(role, variables)

    def site(self, **more):
        self.run("pools", **POOLS, **more)

    def remove(self, **more):
        self.run("remove", virtpools_remove="all", **more)

    @property
    def hyperconverged(self):
        return self.world.find(kinds.HYPER_CONVERGED, names.HCO_NAME, builders.NAMESPACE)

    @property
    def kubevirt(self):
        return self.world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)

    @property
    def annotation(self):
        return (self.hyperconverged["metadata"].get("annotations") or {}).get(names.HCO_PATCH_ANNOTATION)

    @property
    def operations(self):
        return json.loads(self.annotation or "[]")

    def annotate(self, text):
        """As ``kubectl annotate --overwrite`` does, which replaces the whole text."""
        self.hyperconverged["metadata"].setdefault("annotations", {})[names.HCO_PATCH_ANNOTATION] = text
        self.world.touch(self.hyperconverged)

    def replaced(self):
        """Pools, and then somebody sets another patch as HCO's documentation says."""
        self.site()
        self.annotate(json.dumps([THEIRS]))
        self.world.sleep(120)

    def verified(self):
        report = self.module("verification_info", **PLANNED)
        assert not report.get("failed"), report
        return report

    @property
    def doubled(self):
        return self.world.doubled


@pytest.fixture
def under_hco(run, monkeypatch):
    return lambda annotation=None: Scenario(run, Stage(run, monkeypatch), annotation)


class TestPatchThatReplacesOurs:
    def test_the_guard_is_on_unless_it_is_switched_off(self, under_hco):
        scenario = under_hco()
        scenario.replaced()
        assert not scenario.doubled
        degraded = next(each for each in scenario.kubevirt["status"]["conditions"] if each["type"] == "Degraded")
        assert names.EXCLUSION_GUARD in degraded["message"]
        scenario = under_hco()
        scenario.site(virtpools_guard=False)
        scenario.annotate(json.dumps([THEIRS]))
        scenario.world.sleep(120)
        assert scenario.doubled, "without a guard"

    def test_plan_and_verify_name_it_first(self, under_hco):
        scenario = under_hco()
        scenario.replaced()
        plan, report = scenario.module("plan_info", **PLANNED), scenario.verified()
        for found, severity, remedy in ((plan, "warning", "the run restores it"), (report, "error", "run site")):
            first = found["findings"][0]
            assert (first["code"], first["severity"]) == ("exclusion_overwritten", severity)
            assert f"of {HCO} no longer has this collection's operation: it was replaced as a whole" in first["message"]
            assert f"KubeVirt and HCO are Degraded; {remedy}. Append to that annotation" in first["message"]
        assert "replaced as a whole" in plan["text"][1], "after the line that names the cluster"
        assert plan["errors"] == []
        assert plan["changes"][0].startswith(f"{HCO}: keep the primary virt-handler off nodes")
        assert "own_change_settling" not in [each["code"] for each in plan["findings"]]

    def test_site_restores_ours_beside_it(self, under_hco):
        scenario = under_hco()
        scenario.replaced()
        scenario.site()
        scenario.world.sleep(60)
        assert scenario.operations == [THEIRS, builders.hco_exclusion()]
        assert scenario.doubled == []
        assert scenario.module("plan_info", **PLANNED)["pending"] is False
        assert scenario.verified()["problems"] == {}

    def test_remove_takes_the_pools_away_as_the_guard_says(self, under_hco):
        scenario = under_hco()
        scenario.replaced()
        plan = scenario.module("plan_info", remove_pools="all")
        assert plan["findings"][0]["code"] == "exclusion_overwritten"
        assert "the run gives the nodes back first" in plan["findings"][0]["message"]
        assert (
            plan["text"][-3].strip()
            == "KubeVirt lets its virt-handler run on every node again, once the guard is deleted"
        )
        scenario.remove()
        scenario.world.sleep(60)
        assert scenario.doubled == []
        assert scenario.operations == [THEIRS]
        assert "spec.workloads" not in scenario.kubevirt["spec"]
        edited = [f"hco.kubevirt.io/v1/hyperconvergeds/{builders.NAMESPACE}/{names.HCO_NAME}"]
        edited.append(f"kubevirt.io/v1/kubevirts/{builders.NAMESPACE}/kubevirt")
        after = outcome(scenario.world)
        assert {key: value for key, value in after.items() if key not in edited} == {
            key: value for key, value in scenario.before.items() if key not in edited
        }

    def test_a_removal_keeps_the_guard_until_the_nodes_are_back(self, under_hco):
        scenario = under_hco()
        scenario.site()
        changes = scenario.module("plan_info", remove_pools="all")["changes"]
        nodes = [number for number, line in enumerate(changes) if line.startswith("Node ")]
        guards = [number for number, line in enumerate(changes) if names.EXCLUSION_GUARD in line]
        assert max(nodes) < min(guards)
        exclusion = next(number for number, line in enumerate(changes) if line.startswith(f"{HCO}: let the primary"))
        assert max(guards) < exclusion


class TestOperationThatBuildsOnOurs:
    @pytest.fixture
    def scenario(self, under_hco):
        scenario = under_hco()
        scenario.site()
        scenario.annotate(json.dumps([*scenario.operations, BUILDS_ON_OURS]))
        scenario.world.sleep(30)
        assert "tolerations" in str(scenario.kubevirt["spec"]), "HCO applies it"
        return scenario

    MESSAGE = (
        f"Operation 1 in the annotation {names.HCO_PATCH_ANNOTATION} of {HCO} (add /spec/workloads/nodePlacement/tolerations) "
        "builds on operation 0, which is this collection's own and comes and goes with the pools; set tolerations in "
        f"spec.deployment.nodePlacements.workload of {HCO} instead, and take operation 1 out of the annotation."
    )

    def test_verify_finishes_and_reports_it(self, scenario):
        report = scenario.verified()
        assert [each for each in report["findings"] if each["code"] == "exclusion_edit_impossible"] == [
            {"severity": "error", "code": "exclusion_edit_impossible", "message": self.MESSAGE}
        ]
        assert report["problems"] == {"exclusion_edit_impossible": 1}

    def test_the_others_say_where_it_belongs(self, scenario):
        assert scenario.module("plan_info", **PLANNED)["errors"] == [self.MESSAGE]
        writes = len(scenario.disturbance.writes)
        for run in (scenario.site, scenario.remove):
            with pytest.raises(TaskFailed, match="builds on operation 0"):
                run()
        assert len(scenario.disturbance.writes) == writes

    def test_it_is_not_in_the_way_of_removing_one_pool(self, scenario):
        scenario.run("remove", virtpools_remove=["rt"])
        assert [pool["name"] for pool in scenario.verified()["pools"]]

    def test_what_the_message_advises_works(self, scenario):
        scenario.annotate(json.dumps(scenario.operations[:1]))
        scenario.hyperconverged["spec"] = {
            "deployment": {"nodePlacements": {"workload": {"tolerations": BUILDS_ON_OURS["value"]}}}
        }
        scenario.site()
        scenario.remove()
        assert scenario.annotation is None

    @pytest.mark.parametrize("text", ["[{", '[{"op":"add","path":"/status/x","value":1}]'])
    def test_verify_finishes_beside_an_unreadable_annotation(self, scenario, text):
        scenario.annotate(text)
        (problem,) = (each for each in scenario.verified()["findings"] if each["code"] == "exclusion_edit_impossible")
        assert "correct or remove it first" in problem["message"]


@pytest.mark.parametrize(
    "annotation",
    [None, "[]", json.dumps([THEIRS]), json.dumps([THEIRS], indent=2), f"[\n  {json.dumps(THEIRS)} \n]\n"],
    ids=["none", "empty", "one line", "many lines", "by hand"],
)
def test_a_removal_leaves_every_object_as_it_was(under_hco, annotation):
    scenario = under_hco(annotation)
    scenario.site(virtpools_feature_gates_present=["Sidecar"])
    assert len(scenario.operations) == 2 + len(json.loads(annotation or "[]"))
    scenario.remove(virtpools_feature_gates_absent=["Sidecar"])
    scenario.world.sleep(60)
    assert scenario.annotation == annotation
    assert outcome(scenario.world) == scenario.before
    assert scenario.doubled == []


def test_a_run_does_not_wait_silently_for_an_hco_that_is_down(under_hco):
    scenario = under_hco()
    scenario.world.hco_works = False
    began = scenario.world.now
    with pytest.raises(
        TaskFailed, match=r"HCO has not brought the exclusion to KubeVirt .* \(Deployment hco-operator in namespace"
    ):
        scenario.site()
    assert scenario.world.now - began < 150
    assert scenario.world.handlers("n1") == ["virt-handler"]
    with pytest.raises(TaskFailed, match="HCO has not brought"):
        scenario.site()  # the annotation is written already
    scenario.world.hco_works = True
    scenario.site()
    assert scenario.doubled == []
    assert scenario.world.handlers("n1") == ["virt-handler-gpu"]


def test_hco_may_render_anew_during_a_run(under_hco):
    """A second control-plane node takes ``infra.replicas`` away: another generation in the middle of the run (seen)."""
    scenario = under_hco()
    generations = []
    send = scenario.world.send

    def joined(request):
        if is_write(request) and "/nodes/" in request.path and scenario.world.rendered.pop("infra", None):
            generations.append(scenario.kubevirt["metadata"]["generation"])
        return send(request)

    scenario.world.send = joined
    scenario.site()
    scenario.world.sleep(60)
    assert scenario.kubevirt["metadata"]["generation"] == generations[0] + 1
    assert "infra" not in scenario.kubevirt["spec"]
    assert scenario.doubled == []
    assert scenario.module("plan_info", **PLANNED)["pending"] is False
    assert scenario.verified()["problems"] == {}
