# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import Behaviour


def vmi(name, phase, node):
    made = vms.vmi(name, node, phase=phase, namespace="tenant")
    made["metadata"]["labels"] = {names.NODE_NAME_LABEL: node}
    return made


def starting(name, node, **fields):
    """The launcher pod of a VM on its way."""
    made = vms.launcher(name, node, phase="Pending", **fields)
    made["metadata"]["namespace"] = "tenant"
    return made


def not_schedulable(world, node):
    world.put(builders.node(node, labels={"hw": "gpu"}, schedulable=False))


def silent(world, node):
    world.put(builders.node(node, labels={"hw": "gpu"}, heartbeat=None))


def hanging(world, node):
    world.put(builders.node(node, labels={"hw": "gpu"}, heartbeat=builders.heartbeat(world.now - 181)))


def unreadable(world, node):
    world.put(builders.node(node, labels={"hw": "gpu"}, heartbeat="soon"))


def dead(world, node):
    world.put(builders.node(node, labels={"hw": "gpu"}, ready=False))


def failed_vmi(world, node):
    world.put(vmi("vm", "Failed", node))


def stuck_vmi(world, node):
    world.put(starting("vm", node))


def scheduled_vmi(world, node):
    world.put(vmi("vm", "Scheduled", node))


def degraded(world, _node):
    world.put(builders.kubevirt(conditions={"Degraded": "True"}))


def kept_off(world, _node):
    """The node would do but for the pool it belongs to."""
    world.put(vms.node("roomy"))
    world.put(starting("vm", None, device=False, status=vms.unschedulable()))


def orphan(world, _node):
    """On a node that somebody gave the label of a pool which is none."""
    world.put(builders.node("lost", "pool-of-somebody"))
    world.put(vmi("vm", "Running", "lost"))


TROUBLES = {
    not_schedulable: "Node n1 has no label kubevirt.io/schedulable=true, so no VM starts there.",
    silent: "Node n1 has a handler that has never reported",
    hanging: "Node n1 has a handler that has sent no heartbeat for more than 180 seconds (the last: 1970-01-01T00:13:39Z).",
    unreadable: "Node n1 has an invalid heartbeat (annotation kubevirt.io/heartbeat: 'soon').",
    dead: "Node n1 has the status NotReady.",
    failed_vmi: "VM instance tenant/vm on node n1 has failed.",
    stuck_vmi: "VM instance tenant/vm on node n1 stays Scheduling.",
    scheduled_vmi: "VM instance tenant/vm on node n1 stays Scheduled.",
    degraded: "KubeVirt kubevirt/kubevirt",
    kept_off: "VM instance tenant/vm finds no node because it must go to one with virtpools.io/pool=gpu, while roomy "
    "would take it; the scheduler reports: 0/3 nodes are available: 3 Insufficient nvidia.com/x.",
    orphan: "VM instance tenant/vm runs on node lost, which has no Ready handler.",
}


def test_a_cluster_in_order_passes(run, world):
    world.put(vmi("runs", "Running", "n1"))
    before = run("wave_gate", nodes=["n1"])
    assert (before["baseline"], before["text"]) == ([], ["No problems."])
    after = run("wave_gate", nodes=["n1"], baseline=before["baseline"])
    assert (after["changed"], after["problems"], after["text"]) == (False, [], [])
    assert after["events"] == ["The gate has passed: no new problem on 1 node of the wave, or with VMs."]
    assert world.writes == []


@pytest.mark.parametrize("disturb", TROUBLES, ids=lambda disturb: disturb.__name__)
def test_what_is_new_closes_it(run, world, disturb):
    before = run("wave_gate", nodes=["n1"])["baseline"]
    disturb(world, "n1")
    text = run.failure("wave_gate", nodes=["n1"], baseline=before, timeout=0)
    assert "1 problem that did not exist before the wave" in text
    assert TROUBLES[disturb] in text


@pytest.mark.parametrize("disturb", TROUBLES, ids=lambda disturb: disturb.__name__)
def test_only_what_the_wave_can_cause_means_that_it_failed(run, world, disturb):
    disturb(world, "n1")
    found = run("wave_gate", nodes=["n1"], baseline=[], timeout=0)
    assert found["wave_failed"] is (disturb not in {stuck_vmi, kept_off, orphan})


@pytest.mark.parametrize("with_failed_node", [False, True])
def test_a_vm_nobody_can_schedule_does_not_hide_a_failed_node(run, world, with_failed_node):
    kept_off(world, "n1")
    if with_failed_node:
        not_schedulable(world, "n1")
    found = run("wave_gate", nodes=["n1"], baseline=[], timeout=0)
    assert found["failed"]
    assert found["wave_failed"] is with_failed_node


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"targetKubeVirtVersion": "v1.9.1"}, "is being upgraded"),
        ({"targetDeploymentID": "d2"}, "by another deployment of the same version"),
    ],
    ids=["upgrade", "rollout"],
)
def test_what_began_in_the_wave_and_is_not_its_own_only_stops(run, world, target, says):
    world.put(builders.kubevirt(**target))
    found = run("wave_gate", nodes=["n1"], baseline=[], timeout=0)
    assert says in found["msg"]
    assert found["wave_failed"] is False


@pytest.mark.parametrize(("disturb", "seconds"), [(stuck_vmi, 60), (degraded, 60), (failed_vmi, 0)])
def test_all_but_a_failed_vm_has_its_time_to_go_away(run, world, disturb, seconds):
    disturb(world, "n1")
    begin = world.now
    run.failure("wave_gate", nodes=["n1"], baseline=[], timeout=60)
    assert seconds <= world.now - begin <= seconds + 5


@pytest.mark.parametrize("disturb", TROUBLES, ids=lambda disturb: disturb.__name__)
def test_what_was_before_does_not(run, world, disturb):
    disturb(world, "n1")
    before = run("wave_gate", nodes=["n1"])["baseline"]
    assert len(before) == 1
    assert not run("wave_gate", nodes=["n1"], baseline=before).get("failed")


@pytest.mark.parametrize(
    "disturb",
    [not_schedulable, silent, hanging, unreadable, failed_vmi, stuck_vmi],
    ids=lambda disturb: disturb.__name__,
)
def test_other_nodes_do_not_count(run, world, disturb):
    disturb(world, "stays")
    assert run("wave_gate", nodes=["n1"], baseline=[])["problems"] == []


def test_another_vm_that_fails_is_new(run, world):
    world.put(vmi("old", "Failed", "n1"))
    before = run("wave_gate", nodes=["n1"])["baseline"]
    world.put(vmi("new", "Failed", "n1"))
    text = run.failure("wave_gate", nodes=["n1"], baseline=before)
    assert "tenant/new" in text
    assert "tenant/old" not in text


def test_what_goes_away_in_time_is_waited_for(run, world):
    stuck_vmi(world, "n1")
    looks, begin = [], world.now

    def starts(request):
        if request.path == "/api/v1/pods":
            looks.append(world.now)
            if world.now > begin + 10:
                world.put(starting("vm", "n1") | {"status": {"phase": "Running"}})
                world.put(vmi("vm", "Running" if world.now > begin + 20 else "Scheduled", "n1"))
            if len(looks) > 1:  # others come, and are none of its business
                world.put(starting(f"later-{len(looks)}", "n1"))

    world.after = starts
    assert run("wave_gate", nodes=["n1"], baseline=[], timeout=60)["problems"] == []
    assert 20 < world.now - begin < 60
    assert len(looks) > 3


def test_a_recent_heartbeat_is_fine(run, world):
    world.put(builders.node("n1", labels={"hw": "gpu"}, heartbeat=builders.heartbeat(world.now - 180)))
    assert run("wave_gate", nodes=["n1"], baseline=[], timeout=0)["problems"] == []


@pytest.mark.parametrize("before", [silent, hanging], ids=lambda before: before.__name__)
def test_a_new_handler_has_time_for_its_first_heartbeat(run, world, before):
    before(world, "n1")
    world.behave["virt-handler", "n1"] = Behaviour(start=0, heartbeat=10)
    begin = world.now
    assert run("wave_gate", nodes=["n1"], baseline=[], timeout=60)["problems"] == []
    assert 10 <= world.now - begin < 20


@pytest.mark.parametrize(
    "pod",
    [
        starting("asks-for-more", None, status=vms.unschedulable(), node_selector={"zone": "none"}),
        starting("of-no-policy", None, pool=None, status=vms.unschedulable()),
        starting("not-looked-at-yet", None),
    ],
    ids=lambda pod: pod["metadata"]["name"],
)
def test_a_vm_that_finds_no_node_for_another_reason_is_not_ours(run, world, pod):
    world.put(pod)
    assert run("wave_gate", nodes=["n1"], baseline=[], timeout=0)["problems"] == []


def test_the_target_of_a_migration_is_no_vm_that_starts(run, world):
    pod = starting("vm", "n1")
    pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = "uid"
    world.put(pod)
    assert run("wave_gate", nodes=["n1"], baseline=[], timeout=0)["problems"] == []


def test_a_handler_that_is_gone_or_not_ready(run, world):
    for pod in world.pods("n1"):
        world.drop(kinds.POD, pod["metadata"]["name"], builders.NAMESPACE)
    assert run("wave_gate", nodes=["n1"])["text"] == ["Node n1 has no handler pod."]


def test_a_node_that_was_deleted_and_its_vms_do_not_close_it(run, world):
    """An autoscaler deletes nodes, and the VMs there fail."""
    world.drop(kinds.NODE, "n1")
    world.put(vmi("vm", "Failed", "n1"))
    stuck_vmi(world, "n1")
    held = run("run_lease")["run_id"]
    assert run("wave_gate", nodes=["n1", "stays"], baseline=[], timeout=0, run_id=held)["problems"] == []


@pytest.mark.parametrize("baseline", [None, []])
def test_outside_a_run_a_node_must_exist(run, baseline):
    said = run.failure("wave_gate", nodes=["nl", "stays"], baseline=baseline)
    assert said == "nodes has nl, which the cluster does not have: correct or omit the name."


def test_a_name_that_ansible_has_hidden_is_refused(run):
    assert "where Ansible has hidden" in run.failure("wave_gate", nodes=["********"], run_id="run-1")


def test_a_soak_comes_first_and_keeps_the_lease(run, world):
    held = run("run_lease")["run_id"]
    world.writes.clear()
    begin = world.now
    run("wave_gate", nodes=["n1"], baseline=[], soak=100, run_id=held)
    assert 100 <= world.now - begin < 110
    assert len([path for verb, path in world.writes if path.endswith("/leases/virtpools")]) >= 1
    assert run("run_lease", state="absent", run_id=held)["changed"] is True


@pytest.mark.parametrize("baseline", [None, []])
def test_a_run_that_lost_its_lease_stops(run, baseline):
    """It keeps the Lease for its first look as well, which may take longer than the Lease lasts."""
    assert "lost its Lease" in run.failure("wave_gate", nodes=["n1"], baseline=baseline, run_id="run-0")


@pytest.mark.parametrize("field", ["soak", "timeout"])
def test_times_are_not_negative(run, field):
    assert run.failure("wave_gate", nodes=["n1"], **{field: -1}) == f"{field} is -1; give a number from 0."
