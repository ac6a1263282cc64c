# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_vms import Kubevirt

NODES = ["gpu-0", "gpu-1", "rest"]
MACHINES = "/virtualmachines"


@pytest.fixture
def world():
    """A pool with two nodes, whose policy is live."""
    nodes = vms.nodes()
    sets = [builders.primary(desired=1), builders.pool_daemonset(vms.gpu(), desired=2)]
    namespaces = [kinds.NAMESPACE.object(name) for name in ("default", "team-a")]
    pods = builders.handlers_of(nodes, sets)
    return World(builders.excluding_kubevirt(), *sets, *nodes, *pods, *vms.policy(), *namespaces)


@pytest.fixture
def tried(run):
    """The result of the module."""

    def tried(**arguments):
        return run("canary_vm", **{"pools": [vms.gpu().to_object()], "nodes": NODES, "timeout": 20, **arguments})

    return tried


def machines(world):
    """The writes of VirtualMachines."""
    return [verb for verb, path in world.writes if MACHINES in path]


def test_it_starts_passes_and_goes(world, tried):
    kubevirt = Kubevirt(world)
    found = tried()
    (passed,) = found["vms"]
    assert passed == {**passed, "pool": "gpu", "vm": "default/virt-canary-gpu", "node": "gpu-0", "image": vms.IMAGE}
    assert found["changed"] is False
    assert machines(world) == ["create", "delete"]
    assert world.all(kinds.VIRTUAL_MACHINE) == world.all(kinds.VIRTUAL_MACHINE_INSTANCE) == []
    (made,) = kubevirt.seen
    (term,) = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["gpu-0", "gpu-1"]


FAILURES = {
    "never runs": ({"phase": "Scheduling"}, "it stays Scheduling", 20),
    "fails": ({"phase": "Failed"}, "its guest has ended (phase Failed)", 0),
    "has a wrong image": ({"image": vms.STOCK}, f"it has {vms.STOCK} in container compute", 0),
    "runs elsewhere": ({"on": "rest"}, "it runs on node rest of primary", 0),
}


@pytest.mark.parametrize(("how", "said", "seconds"), FAILURES.values(), ids=FAILURES)
def test_one_that_does_not_pass_closes_the_gate_and_goes(world, run, tried, how, said, seconds):
    Kubevirt(world, **how)
    begin = world.now
    text = tried()["msg"]
    assert "The gate has not passed" in text
    assert "Canary VM default/virt-canary-gpu of pool gpu has not passed after" in text
    assert said in text
    assert seconds <= world.now - begin <= seconds + 5
    assert world.all(kinds.VIRTUAL_MACHINE) == world.all(kinds.VIRTUAL_MACHINE_INSTANCE) == []


def test_the_end_of_its_launcher_is_told_without_its_pod(world, tried):
    """KubeVirt deletes the pod of a guest that has failed."""
    Kubevirt(world, phase="Scheduled")
    terminated = {"exitCode": 3, "reason": "Error", "message": "no licence\n"}

    def dies():
        (pod,) = (pod for pod in world.all(kinds.POD) if "virt-canary-gpu" in pod["metadata"]["name"])
        pod["status"]["containerStatuses"] = [{"name": "compute", "state": {"terminated": terminated}}]

    def fails():
        (pod,) = (pod for pod in world.all(kinds.POD) if "virt-canary-gpu" in pod["metadata"]["name"])
        world.drop(kinds.POD, pod["metadata"]["name"], pod["metadata"]["namespace"])
        world.find(kinds.VIRTUAL_MACHINE_INSTANCE, "virt-canary-gpu", "default")["status"]["phase"] = "Failed"

    world.at[world.now + 3] = dies
    world.at[world.now + 8] = fails
    said = "its guest has ended (phase Failed): container compute ended with exit code 3 and said 'no licence'"
    assert said in tried()["msg"]


def test_one_that_does_not_go_has_not_passed(world, tried):
    Kubevirt(world).lingering = True
    assert "VirtualMachineInstance default/virt-canary-gpu still exists 20 s after its deletion" in tried()["msg"]


def test_one_that_somebody_deletes_has_not_passed(world, tried):
    Kubevirt(world, phase="Scheduling")
    world.at[world.now + 3] = lambda: world.drop(kinds.VIRTUAL_MACHINE, "virt-canary-gpu", "default")
    assert "it was deleted by another client" in tried()["msg"]


def test_starts_only_for_the_given_pools_with_nodes_in_the_wave(world, tried):
    assert tried(nodes=["rest"])["text"] == []
    assert tried(of_pools=["rt"])["text"] == []
    assert machines(world) == []


@pytest.mark.parametrize("check", [False, True])
def test_a_node_that_does_not_exist_is_refused(world, tried, check):
    said = tried(nodes=["gpu-0", "gpu-00"], check=check)["msg"]
    assert said == "nodes has gpu-00, which the cluster does not have: correct or omit the name."
    assert machines(world) == []


def test_in_a_run_such_a_node_was_deleted(run, world, tried):
    Kubevirt(world)
    held = run("run_lease")["run_id"]
    assert [vm["node"] for vm in tried(nodes=["gpu-0", "deleted"], run_id=held)["vms"]] == ["gpu-0"]


def test_a_name_that_ansible_has_hidden_is_refused(tried):
    assert "where Ansible has hidden" in tried(nodes=["********"], run_id="run-1")["msg"]


def test_where_none_is_wanted_nothing_is_done(world, tried):
    assert tried(canary_vm=False)["vms"] == []
    assert world.writes == []


def test_check_mode_has_the_server_look_at_it(world, tried):
    found = tried(check=True)
    assert found["text"] == ["Canary VM default/virt-canary-gpu of pool gpu would start."]
    assert world.writes == []
    (asked,) = [request for request in world.requests if request.method == "POST" and MACHINES in request.path]
    assert ("dryRun", "All") in asked.query


def test_what_an_earlier_run_left_goes_first(world, tried):
    Kubevirt(world)
    world.put(vms.canary_vm())
    world.put(vms.canary_vm("of-another-client", **{names.MANAGED_BY_LABEL: "another"}))
    assert tried()["vms"]
    assert machines(world) == ["delete", "create", "delete"]
    assert [vm["metadata"]["name"] for vm in world.all(kinds.VIRTUAL_MACHINE)] == ["of-another-client"]


def test_a_users_copy_of_a_canary_vm_is_never_deleted(world, run, tried):
    """Tools that clone or restore a VM copy its labels."""
    Kubevirt(world)
    world.put(vms.canary_vm("ml-training"))
    assert "canary_vms_left" not in [finding["code"] for finding in run("pool_info")["findings"]]
    assert plan(run)["leftovers"] == []
    to_do(world)
    assert run("pool_nodes", pools=[vms.gpu().to_object()], prepull=False)["nodes"]
    assert tried()["vms"]
    assert [vm["metadata"]["name"] for vm in world.all(kinds.VIRTUAL_MACHINE)] == ["ml-training"]


def test_one_that_a_user_creates_in_its_place_is_not_deleted(world, tried):
    Kubevirt(world, phase="Scheduling")
    theirs = []

    def replaced():
        world.drop(kinds.VIRTUAL_MACHINE, "virt-canary-gpu", "default")
        theirs.append(world.put(vms.canary_vm(namespace="default")))

    world.at[world.now + 3] = replaced
    assert "it was deleted by another client" in tried()["msg"]
    assert world.all(kinds.VIRTUAL_MACHINE) == theirs != []


def test_one_left_behind_that_a_user_replaced_is_not_deleted(world, run):
    """The plan saw the canary VM, the batch would delete what has its name now."""
    world.put(vms.canary_vm())
    theirs = []

    def before(request):
        if request.method == "DELETE" and MACHINES in request.path:
            world.drop(kinds.VIRTUAL_MACHINE, "virt-canary-gpu", "team-a")
            theirs.append(world.put(vms.canary_vm()))

    world.before = before
    run("pool_nodes", pools=[vms.gpu().to_object()], nodes=[])
    assert world.all(kinds.VIRTUAL_MACHINE) == theirs != []


def test_a_vm_of_somebody_else_is_not_touched(world, tried):
    world.put(vms.canary_vm(namespace="default", **{names.MANAGED_BY_LABEL: "another"}))
    assert "one with that name already exists" in tried()["msg"]
    assert machines(world) == []


def test_a_namespace_that_is_not_there(tried):
    assert "namespace gone does not exist" in tried(canary_vm={"metadata": {"namespace": "gone"}})["msg"]


def test_an_instancetype_counts(world, tried):
    kubevirt = Kubevirt(world)
    world.put(kinds.CLUSTER_INSTANCETYPE.object("gpu", spec={"gpus": [{"name": "g", "deviceName": vms.DEVICE}]}))
    spec = {"instancetype": {"name": "gpu"}, "template": {"spec": {"domain": {}}}}
    assert tried(canary_vm={"kind": "VirtualMachine", "spec": spec})["vms"]
    (made,) = kubevirt.seen
    assert made["spec"]["instancetype"] == {"name": "gpu"}
    assert made["spec"]["template"]["spec"]["domain"] == {}


def test_an_instancetype_that_is_not_there(tried):
    spec = {"instancetype": {"name": "gone"}, "template": {"spec": {"domain": {}}}}
    assert "gone" in tried(canary_vm={"kind": "VirtualMachine", "spec": spec})["msg"]


def test_patience_is_not_negative(tried):
    assert "from 0" in tried(timeout=-1)["msg"]


# Plans, and what is left behind


def plan(run, **arguments):
    return run("plan_info", pools=[vms.gpu().to_object()], **arguments)


def to_do(world):
    """A third node for the pool."""
    world.put(vms.node("gpu-2"))
    world.put(builders.handler_pod("gpu-2"))


def codes(found):
    return [finding["code"] for finding in found["findings"] if "canary" in finding["code"]]


def test_a_plan_tells_of_them(world, run):
    to_do(world)
    found = plan(run, canary_vm=True)
    assert codes(found) == ["canary_vms"]
    assert [wave["pools"] for wave in found["waves"]] == [["gpu"]]
    assert codes(plan(run)) == []
    assert not [request for request in world.requests if request.method == "POST" and MACHINES in request.path]


def test_one_that_the_server_refuses_is_refused_before_the_run(world, run):
    to_do(world)
    world.denied.add(("create", "virtualmachines"))
    assert "create virtualmachines.kubevirt.io" in plan(run, canary_vm=True, for_run=True)["msg"]
    world.denied.clear()
    world.put(vms.canary_vm(namespace="default", **{names.MANAGED_BY_LABEL: "another"}))
    assert "one with that name already exists" in plan(run, canary_vm=True, for_run=True)["msg"]
    assert world.writes == []


def test_only_canary_vms_need_the_right_to_start_vms(world, run):
    to_do(world)
    world.denied.add(("create", "virtualmachines"))
    assert not plan(run, for_run=True).get("failed")


def test_one_left_behind_is_deleted_by_the_next_run(world, run):
    world.put(vms.canary_vm())
    found = plan(run)
    assert (found["pending"], found["leftovers"]) == (True, ["VirtualMachine team-a/virt-canary-gpu: delete"])
    assert found["changes"] == found["leftovers"]
    done = run("pool_nodes", pools=[vms.gpu().to_object()], nodes=[])
    assert done["changes"] == found["changes"]
    assert machines(world) == ["delete"]
    assert plan(run)["pending"] is False


def test_one_left_behind_is_in_the_state(world, run):
    world.put(vms.canary_vm())
    assert "canary_vms_left" in [finding["code"] for finding in run("pool_info")["findings"]]


def test_one_left_behind_does_not_keep_a_pool_from_going(world, run):
    world.put(vms.canary_vm())
    Kubevirt(world).tick()
    found = run("plan_info", remove_pools="all", vms=True)
    assert found["errors"] == []
    assert found["leftovers"] == ["VirtualMachine team-a/virt-canary-gpu: delete"]
