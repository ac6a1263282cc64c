# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import kinds
from ansible_collections.virtpools.kubevirt.tests.unit import builders


def vmi(name, phase, *, node=None, pod_on=None):
    status = {"phase": phase}
    if node:
        status["nodeName"] = node
    if pod_on:
        status["activePods"] = {"uid-pod": pod_on}
    obj = kinds.VIRTUAL_MACHINE_INSTANCE.object(name, "tenant")
    labels = {"kubevirt.io/nodeName": node} if node else {}  # as virt-controller does it
    return {**obj, "metadata": {**obj["metadata"], "uid": f"uid-{name}", "labels": labels}, "status": status}


def not_schedulable(world, node):
    world.put(builders.node(node, labels={"hw": "gpu"}, schedulable=False))


def silent(world, node):
    world.put(builders.node(node, labels={"hw": "gpu"}, heartbeat=None))


def dead(world, node):
    world.put(builders.node(node, labels={"hw": "gpu"}, ready=False))


def failed_vmi(world, node):
    world.put(vmi("vm", "Failed", node=node))


def stuck_vmi(world, node):
    world.put(vmi("vm", "Scheduling", pod_on=node))


def scheduled_vmi(world, node):
    world.put(vmi("vm", "Scheduled", node=node, pod_on=node))


def degraded(world, _node):
    world.put(builders.kubevirt(conditions={"Degraded": "True"}))


TROUBLES = {
    not_schedulable: "Node n1 takes no VMs (its label kubevirt.io/schedulable is not true).",
    silent: "The handler on node n1 has never reported",
    dead: "Node n1 is not Ready.",
    failed_vmi: "VM instance tenant/vm on node n1 has failed.",
    stuck_vmi: "VM instance tenant/vm on node n1 stays Scheduling.",
    scheduled_vmi: "VM instance tenant/vm on node n1 stays Scheduled.",
    degraded: "KubeVirt kubevirt/kubevirt",
}


def test_a_cluster_in_order_passes(run, world):
    world.put(vmi("runs", "Running", node="n1"))
    before = run("wave_gate", nodes=["n1"])
    assert (before["baseline"], before["text"]) == ([], ["Nothing is wrong."])
    after = run("wave_gate", nodes=["n1"], baseline=before["baseline"])
    assert (after["changed"], after["troubles"]) == (False, [])
    assert world.writes == []


@pytest.mark.parametrize("disturb", TROUBLES, ids=lambda disturb: disturb.__name__)
def test_what_is_new_closes_it(run, world, disturb):
    before = run("wave_gate", nodes=["n1"])["baseline"]
    disturb(world, "n1")
    text = run.failure("wave_gate", nodes=["n1"], baseline=before, patience=0)
    assert "1 thing(s) are wrong that were not before the wave" in text
    assert TROUBLES[disturb] in text


@pytest.mark.parametrize(("disturb", "seconds"), [(stuck_vmi, 60), (degraded, 60), (failed_vmi, 0)])
def test_all_but_a_failed_vm_has_its_time_to_go_away(run, world, disturb, seconds):
    disturb(world, "n1")
    begin = world.now
    run.failure("wave_gate", nodes=["n1"], baseline=[], patience=60)
    assert seconds <= world.now - begin <= seconds + 5


@pytest.mark.parametrize("disturb", TROUBLES, ids=lambda disturb: disturb.__name__)
def test_what_was_before_does_not(run, world, disturb):
    disturb(world, "n1")
    before = run("wave_gate", nodes=["n1"])["baseline"]
    assert len(before) == 1
    assert not run("wave_gate", nodes=["n1"], baseline=before).get("failed")


@pytest.mark.parametrize(
    "disturb", [not_schedulable, silent, failed_vmi, stuck_vmi], ids=lambda disturb: disturb.__name__
)
def test_other_nodes_do_not_count(run, world, disturb):
    disturb(world, "stays")
    assert run("wave_gate", nodes=["n1"], baseline=[])["troubles"] == []


def test_another_vm_that_fails_is_new(run, world):
    world.put(vmi("old", "Failed", node="n1"))
    before = run("wave_gate", nodes=["n1"])["baseline"]
    world.put(vmi("new", "Failed", node="n1"))
    text = run.failure("wave_gate", nodes=["n1"], baseline=before)
    assert "tenant/new" in text
    assert "tenant/old" not in text


def test_what_goes_away_in_time_is_waited_for(run, world):
    stuck_vmi(world, "n1")
    looks, begin = [], world.now

    def starts(request):
        if request.path.endswith("/virtualmachineinstances"):
            looks.append(world.now)
            world.put(vmi("vm", "Running" if world.now > begin + 20 else "Scheduled", node="n1"))
            # Others come, and are none of its business.
            world.put(vmi(f"later-{len(looks)}", "Scheduling", pod_on="n1"))

    world.after = starts
    assert run("wave_gate", nodes=["n1"], baseline=[], patience=60)["troubles"] == []
    assert 20 < world.now - begin < 60
    assert len(looks) > 3


def test_a_handler_that_is_gone_or_not_ready(run, world):
    for pod in world.pods("n1"):
        world.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE)
    assert run("wave_gate", nodes=["n1", "gone"])["text"] == ["Node n1 has no handler pod.", "Node gone is gone."]


def test_a_soak_comes_first_and_keeps_the_lease(run, world):
    held = run("run_lease")["run_id"]
    world.writes.clear()
    begin = world.now
    run("wave_gate", nodes=["n1"], baseline=[], soak=100, run_id=held)
    assert 100 <= world.now - begin < 110
    assert len([path for verb, path in world.writes if path.endswith("/leases/virtpools")]) >= 1
    assert run("run_lease", state="absent", run_id=held)["changed"] is True


def test_a_run_that_lost_its_lease_stops(run):
    assert "lost its Lease" in run.failure("wave_gate", nodes=["n1"], baseline=[], run_id="run-0")


@pytest.mark.parametrize("field", ["soak", "patience"])
def test_times_are_not_negative(run, field):
    assert "from 0" in run.failure("wave_gate", nodes=["n1"], **{field: -1})
