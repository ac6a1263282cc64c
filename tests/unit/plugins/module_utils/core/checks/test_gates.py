# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.gates import (
    Gate,
    GateProblem,
    baseline_of,
    nodes_without_handler,
    orphan_problem,
    pending_problems,
    vmi_problem,
)
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.nodes import Node
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import History, OpenWave
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.vms.launcher_pods import LauncherPod
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms


def problems(count):
    return [
        GateProblem("vmi_failed", f"tenant-{n % 50}/virtual-machine-{n} 00000000-0000-{n:012}", "It failed.")
        for n in range(count)
    ]


class TestPending:
    def codes(self, *nodes, **fields):
        """Of a VM of the pool for which the scheduler finds no node."""
        pod = LauncherPod.from_object(vms.launcher(on="", status=vms.unschedulable(), **fields))
        known = [Node.from_object(node) for node in (*vms.nodes(), *nodes)]
        return [problem.code for problem in pending_problems([pod], ["gpu-0"], lambda: known)]

    def test_a_vm_that_waits_for_a_free_device_is_no_problem(self):
        assert self.codes() == []

    def test_a_vm_that_another_node_with_the_device_would_take_is(self):
        assert self.codes(vms.node("gpu-2")) == ["vmi_kept_off"]

    def test_a_vm_without_a_device_that_another_node_would_take_is(self):
        assert self.codes(device=False) == ["vmi_kept_off"]

    @pytest.mark.parametrize("unusable", [{"ready": False}, {"schedulable": False}])
    def test_a_vm_that_only_an_unusable_node_takes_is_no_problem(self, unusable):
        assert self.codes(vms.node("gpu-2", **unusable)) == []

    def test_a_vm_that_is_being_deleted_is_no_problem(self):
        assert self.codes(vms.node("gpu-2"), deletionTimestamp=vms.LATER) == []


class TestOrphans:
    @pytest.mark.parametrize(
        ("phase", "code"), [("Running", "orphan"), ("Scheduled", None), ("Succeeded", None), ("Failed", None)]
    )
    def test_are_vms_that_run(self, phase, code):
        vmi = {"metadata": {"namespace": "plain", "name": "a"}, "status": {"phase": phase, "nodeName": "n1"}}
        problem = orphan_problem(vmi)
        assert (problem and problem.code) == code

    def test_are_on_nodes_where_no_handler_is_ready(self):
        nodes = [builders.node(name) for name in ("n1", "n2", "n3")]
        pods = [builders.handler_pod("n1"), builders.handler_pod("n2", ready=False)]
        assert nodes_without_handler(builders.snapshot_of(nodes, pods=pods)) == {"n2", "n3"}


class TestBaseline:
    @pytest.mark.parametrize("count", [0, 3, 20_000])
    def test_is_what_a_later_gate_does_not_mind(self, count):
        gate = Gate(baseline_of(problems(count)))
        new = GateProblem("vmi_failed", "tenant/new uid", "It failed.")
        assert gate.blocking([*problems(count), new]) == [new]

    def test_of_few_names_them(self):
        assert baseline_of([GateProblem("not_schedulable", "gpu-1", "")]) == ["not_schedulable gpu-1"]

    def test_of_a_hundred_thousand_vms_fits_into_the_history(self):
        nodes = tuple(f"worker-{n:04}.region.example.com" for n in range(3000))
        wave = OpenWave("all", nodes, tuple(baseline_of(problems(100_000))))
        data = History(waves=(OpenWave("before", nodes), wave)).to_data()
        assert sum(map(len, data.values())) < 1_000_000
        assert wave.name in data["openWaves"]

    def test_that_somebody_edited_is_no_traceback(self):
        (new,) = problems(1)
        assert Gate(["sha256:?", "sha256:AAA"]).blocking([new]) == [new]


@pytest.mark.parametrize(
    ("phase", "deleted", "failed", "code"),
    [
        ("Failed", None, 30, "vmi_failed"),
        ("Failed", 2, 31, None),
        ("Failed", 31, 30, "vmi_failed"),
        ("Failed", 30, 30, "vmi_failed"),
        ("Failed", 2, None, "vmi_failed"),
        ("Scheduled", None, None, "vmi_starting"),
        ("Scheduled", 2, None, None),
        ("Running", None, None, None),
    ],
)
def test_a_vm_that_was_deleted_before_it_failed_is_no_problem(phase, deleted, failed, code):
    """KubeVirt deletes a VM that has failed, to start it again: that comes after the failure."""

    def at(second):
        return f"2026-11-28T06:51:{second:02}Z"

    metadata = {"name": "vm", "namespace": "team", "uid": "1"}
    if deleted is not None:
        metadata["deletionTimestamp"] = at(deleted)
    phases = [{"phase": "Running", "phaseTransitionTimestamp": at(0)}]
    if failed is not None:
        phases.append({"phase": "Failed", "phaseTransitionTimestamp": at(failed)})
    status = {"phase": phase, "nodeName": "n1", "phaseTransitionTimestamps": phases}
    found = vmi_problem({"metadata": metadata, "status": status})
    assert (found and found.code) == code
