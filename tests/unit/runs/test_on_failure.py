# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole rollouts that fail in their second wave, and go back as far as they are told to."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import LOST, Behaviour, Refused
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import (
    ALL,
    FIRST,
    GPU,
    NEXT_GPU,
    RT,
    Stage,
    handlers,
    outcome,
    stock,
    told,
)

GO_ON = "To go on, correct the cause and run the same command again."
WAVES = [{"nodes": ["n1"]}, {"nodes": ["n2", "n3"]}]


class Rollout:
    def __init__(self, stage):
        self._stage = stage
        self.begin(stock())

    def begin(self, objects):
        self.cuts = []
        self.world, self.disturbance = self._stage.on(copy.deepcopy(list(objects)), cuts=self.cuts)

    def run(self, pools, on_failure="stop", **variables):
        given = {"virtpools_pools": pools, "virtpools_waves": WAVES, "virtpools_on_failure": on_failure, **variables}
        self._stage.run("rollout", given)

    def remove(self, pools):
        self._stage.run("remove", {"virtpools_remove": pools})

    def fails(self, pools, on_failure, **variables):
        """Run it, with a new handler that does not start on a node of the second wave; what it says."""
        usual = self.world.behaviour
        known = {pod["metadata"].get("annotations", {}).get(names.TEMPLATE_ANNOTATION) for pod in self.world.pods("n2")}

        def behaviour(pod):
            template = pod["metadata"].get("annotations", {}).get(names.TEMPLATE_ANNOTATION)
            new = pod["spec"]["nodeName"] == "n2" and template not in {None, *known}
            return Behaviour(broken="ImagePullBackOff") if new else usual(pod)

        self.world.behaviour = behaviour
        with pytest.raises(TaskFailed) as caught:
            self.run(pools, on_failure, **variables)
        assert self.world.doubled == []
        self.world.behaviour = usual
        return str(caught.value)

    def delete_daemonset(self):
        """Another client deletes the DaemonSet of pool gpu, and with it its pods."""
        name = "virt-handler-gpu"
        self.world.drop(kinds.DAEMON_SET, name, builders.NAMESPACE)
        for pod in self.world.handler_pods():
            if pod["metadata"]["ownerReferences"][0]["name"] == name:
                pod["metadata"]["deletionTimestamp"] = "now"

    def outcome(self):
        """What a user could see, but for the history: the first run leaves it empty."""
        return {key: value for key, value in outcome(self.world).items() if names.HISTORY not in key}


@pytest.fixture
def rollout(run, monkeypatch):
    return Rollout(Stage(run, monkeypatch))


@pytest.fixture
def running(rollout, run, monkeypatch):
    """The pools are there."""
    stage = Stage(run, monkeypatch)
    world, _none = stage.on(stock())
    stage.run(FIRST.role, FIRST.variables)
    rollout.begin(world.objects.values())
    return rollout


def test_all_of_a_first_list_goes_back(rollout):
    before = rollout.outcome()
    told = rollout.fails([GPU, RT], "rollback_all")
    assert told.startswith("1 of 2 nodes failed")
    assert "\nWave 2 (n2, n3) failed, and all nodes went back to: no pools. " in told
    assert {key: value for key, value in rollout.outcome().items() if "leases" not in key} == before


def test_a_wave_of_a_first_list_goes_back(rollout):
    told = rollout.fails([GPU, RT], "rollback_wave")
    assert "\nWave 2 (n2, n3) failed, and its nodes went back to: no pools. " in told
    primary = ["virt-handler"]
    assert handlers(rollout.world) == {"n1": ["virt-handler-gpu"], "n2": primary, "n3": primary, "n4": primary}


def test_all_goes_back_to_the_list_before(running):
    before = running.outcome()
    assert "all nodes went back to: " in running.fails([NEXT_GPU, RT], "rollback_all")
    assert running.outcome() == before


def test_a_wave_goes_back_to_the_list_before_and_others_stay_new(running):
    (before,) = running.world.pods("n1")
    running.fails([NEXT_GPU, RT], "rollback_wave")
    template = names.TEMPLATE_ANNOTATION
    (first,), (second,) = running.world.pods("n1"), running.world.pods("n2")
    assert second["metadata"]["annotations"][template] == before["metadata"]["annotations"][template]
    assert first["metadata"]["annotations"][template] != before["metadata"]["annotations"][template]


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
@pytest.mark.parametrize("removed", [["rt"], "all"], ids=["one", "all"])
def test_a_pool_that_was_removed_does_not_come_back(running, on_failure, removed):
    """Of all pools gpu cannot go, since the primary does not tolerate a taint of its nodes."""
    nodes = [running.world.find(kinds.NODE, name) for name in ("n1", "n2")]
    for node in nodes:
        node["spec"]["taints"] = [{"key": "special", "value": "yes", "effect": "NoSchedule"}]
    running.remove(removed)
    for node in nodes:
        node["spec"]["taints"] = []
    running.fails([NEXT_GPU], on_failure)
    assert running.world.find(kinds.DAEMON_SET, "virt-handler-rt", builders.NAMESPACE) is None
    assert handlers(running.world)["n3"] == ["virt-handler"]


def test_a_node_keeps_its_former_handler_when_the_run_stops(running):
    """Also a pod that is created later has an image that works."""
    (before,) = running.world.pods("n2")
    message = running.fails([NEXT_GPU, RT], "stop")
    first, *ending = message.splitlines()
    assert "it has the former handler of gpu again" in first
    assert ending == [
        "Done: 1 of 2 nodes (n1).",
        "As before: 1 node (n2).",
        f"{GO_ON} To go back: ansible-playbook virtpools.kubevirt.rollback",
    ]
    template = names.TEMPLATE_ANNOTATION
    (now,) = running.world.pods("n2")
    assert now["metadata"]["annotations"][template] == before["metadata"]["annotations"][template]
    assert handlers(running.world)["n2"] == ["virt-handler-gpu"]
    running.world.drop(kinds.POD, now["metadata"]["name"], builders.NAMESPACE)
    running.world.sleep(10)
    (later,) = running.world.pods("n2")
    assert later["metadata"]["annotations"][template] == before["metadata"]["annotations"][template]


@pytest.mark.parametrize("on_failure", ["stop", "rollback_wave", "rollback_all"])
def test_the_same_command_succeeds_once_the_reason_is_gone(running, on_failure):
    running.fails([NEXT_GPU, RT], on_failure)
    running.run([NEXT_GPU, RT], on_failure)
    wanted = running.outcome()
    running.begin(stock())
    running.run([NEXT_GPU, RT])
    assert wanted == running.outcome()
    running.world.writes.clear()
    running.run([NEXT_GPU, RT], on_failure)
    assert running.world.writes == []


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
def test_cut_off_anywhere_the_same_command_still_succeeds(running, on_failure):
    start = list(running.world.objects.values())
    running.fails([NEXT_GPU, RT], on_failure)
    steps = list(zip(running.disturbance.writes, running.cuts, strict=True))
    running.begin(start)
    running.run([NEXT_GPU, RT])
    wanted = running.outcome()
    assert len(steps) > 20
    for write, cut in steps if ALL else steps[::3]:
        running.begin(cut)
        with told(f"The power fails after {write}"):
            running.run([NEXT_GPU, RT], on_failure)
            assert running.outcome() == wanted
            assert running.world.doubled == []


# Other people at work at the same time


CLOSED = "- ansible.builtin.fail: {msg: Too many errors.}\n"
BROKEN_FILES = {
    "server not reached": "- virtpools.kubevirt.run_lease: {timeout: 0}\n",
    "bad arguments": "- virtpools.kubevirt.wave_gate: {nodes: [n1], soak: -1}\n",
}


def steal(world):
    """Another run has taken the Lease."""
    world.find(kinds.LEASE, names.LEASE_NAME, builders.NAMESPACE)["spec"]["holderIdentity"] = "run-other"


def no_answer(_world):
    raise LOST


def unauthorized(_world):
    raise Refused(401, "Unauthorized")


def in_wave_2(world, disturb):
    """Call it at each request from the first write to a node of the second wave on."""
    begun = []

    def before(request):
        if begun or (request.method == "PATCH" and request.path.endswith("/nodes/n2")):
            begun.append(request)
            disturb(world)

    world.before = before


def refused(rollout, pools=(GPU, RT), on_failure="rollback_all", **variables):
    """What a run fails with that nothing else is done to."""
    with pytest.raises(TaskFailed) as caught:
        rollout.run(list(pools), on_failure, **variables)
    assert rollout.world.doubled == []
    return str(caught.value)


def apply_elsewhere(run, world, pools):
    """What another run leaves that completes now: its list is the newest of the history."""
    lease = world.drop(kinds.LEASE, names.LEASE_NAME, builders.NAMESPACE)
    found = run("pool_history", pools=pools, record="completed", run_by="another run")
    assert found["changed"]
    if lease is not None:
        world.put(lease)
    return found["entries"][-1]["digest"]


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
@pytest.mark.parametrize("disturb", [steal, no_answer, unauthorized], ids=lambda disturb: disturb.__name__)
def test_a_run_that_is_disturbed_in_a_wave_does_not_go_back(rollout, run, monkeypatch, disturb, on_failure):
    call = type(run).__call__

    def module(runner, name, **arguments):
        result = call(runner, name, **arguments)
        if name == "pool_nodes" and result.get("failed"):  # all is well again by the time it would go back
            rollout.world.before = lambda request: None
            if disturb is steal:
                rollout.world.drop(kinds.LEASE, names.LEASE_NAME, builders.NAMESPACE)
        return result

    monkeypatch.setattr(type(run), "__call__", module)
    in_wave_2(rollout.world, disturb)
    error = refused(rollout, on_failure=on_failure)
    assert "neither a node nor a gate failed" in error
    assert handlers(rollout.world)["n1"] == ["virt-handler-gpu"]


def test_a_run_that_lost_its_lease_says_that_it_stops(rollout):
    in_wave_2(rollout.world, steal)
    error = refused(rollout)
    assert "has lost its Lease" in error
    assert "The run does not go back, because neither a node nor a gate failed: see the error above." in error


def test_a_lease_that_another_run_holds_is_no_failed_wave(running, run):
    run("run_lease", run_id="run-other")
    run("run_lease", run_id="run-other", state="renewed", duration=3600)
    before = handlers(running.world)
    assert "Only one run may change the cluster" in refused(running, [NEXT_GPU, RT], virtpools_lease_timeout=5)
    assert handlers(running.world) == before


@pytest.mark.parametrize("error", BROKEN_FILES)
def test_an_error_in_the_users_gate_file_is_no_failed_wave(rollout, tmp_path, error):
    gate = tmp_path / "gate.yml"
    gate.write_text(BROKEN_FILES[error], "utf-8")
    assert "neither a node nor a gate failed" in refused(rollout, virtpools_gates=[str(gate)])
    assert handlers(rollout.world)["n1"] == ["virt-handler-gpu"]


def test_a_closed_gate_of_the_user_is_a_failed_wave(rollout, tmp_path):
    gate = tmp_path / "gate.yml"
    gate.write_text(CLOSED, "utf-8")
    error = refused(rollout, virtpools_gates=[str(gate)])
    why, first, *ending = error.splitlines()
    assert why == "Too many errors."
    assert first == "Wave 1 (n1) failed, and all nodes went back to: no pools. Why it failed stands above."
    assert ending[:2] == ["Done: none of 3 nodes.", "As before: 3 nodes (n1, n2, n3)."]
    (last,) = ending[2:]
    assert last.endswith("To go back: ansible-playbook virtpools.kubevirt.remove -e virtpools_remove=all")
    assert handlers(rollout.world)["n1"] == ["virt-handler"]


def test_a_vm_that_nobody_can_schedule_stops_without_going_back(rollout):
    def appears():
        rollout.world.put(vms.node("roomy"))
        rollout.world.put(vms.launcher("vm", None, device=False, phase="Pending", status=vms.unschedulable()))

    in_wave_2(rollout.world, lambda _world: appears())
    error = refused(rollout, virtpools_gate_timeout=5)
    assert "finds no node because it must go to one with virtpools.io/pool=gpu" in error
    assert "neither a node nor a gate failed" in error
    assert handlers(rollout.world)["n1"] == ["virt-handler-gpu"]


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
def test_the_newest_list_has_none_to_go_back_to(running, on_failure):
    """A node that joined since fails."""
    world, usual = running.world, running.world.behaviour
    world.put(builders.node("n5", labels={"kubernetes.io/arch": "amd64", "hw": "gpu"}))
    world.sleep(10)

    def behaviour(pod):
        of_pool = names.TEMPLATE_ANNOTATION in pod["metadata"].get("annotations", {})
        return Behaviour(broken="ImagePullBackOff") if of_pool and pod["spec"]["nodeName"] == "n5" else usual(pod)

    world.behaviour = behaviour
    error = refused(running, [GPU, RT], on_failure)
    assert (
        "the run would stop, since it has no list to go back to: the run applies the list that was applied last."
        in error
    )
    assert handlers(world) == {"n1": ["virt-handler-gpu"], "n2": ["virt-handler-gpu"], "n3": ["virt-handler-rt"]} | {
        node: ["virt-handler"] for node in ("n4", "n5")
    }


@pytest.mark.parametrize("on_failure", ["stop", "rollback_all"])
def test_a_node_that_an_autoscaler_deletes_fails_no_wave(rollout, on_failure):
    in_wave_2(rollout.world, lambda world: world.drop(kinds.NODE, "n3"))
    rollout.run([GPU, RT], on_failure)
    rollout.world.before = lambda request: None
    found = handlers(rollout.world)
    assert (found["n1"], found["n2"]) == (["virt-handler-gpu"], ["virt-handler-gpu"])
    assert "n3" not in found


def test_the_list_to_go_back_to_is_read_under_the_lease(rollout, run):
    """The first list ever: the run would remove everything that another run applied while this one waited."""
    others = [{**RT, "virtHandlerImage": f"{builders.HANDLER_IMAGE}-rt2"}]
    digests = []

    def before(request):
        if request.method == "POST" and request.path.endswith("/leases") and not digests:
            digests.append("")
            digests[0] = apply_elsewhere(run, rollout.world, others)

    rollout.world.before = before
    error = rollout.fails([GPU, RT], "rollback_all")
    assert f"all nodes went back to: {digests[0]}" in error


@pytest.mark.parametrize("on_failure", ["rollback_wave", "rollback_all"])
@pytest.mark.parametrize("first", [True, False], ids=["first list", "later list"])
def test_a_run_does_not_go_back_over_another_runs_list(rollout, running, run, on_failure, first):
    if first:
        rollout.begin(stock())
    releases = []

    def after(request):
        if request.method == "DELETE" and request.path.endswith(f"/leases/{names.LEASE_NAME}") and not releases:
            releases.append(request)
            apply_elsewhere(run, rollout.world, [RT])

    rollout.world.after = after
    error = rollout.fails([NEXT_GPU, RT], on_failure)
    assert "another run has applied its pool list" in error
    assert "This run does not go back, because that would undo the other run" in error
    assert handlers(rollout.world)["n1"] == ["virt-handler-gpu"]


def test_a_wave_that_another_run_began_again_stays_open(running, run, monkeypatch):
    """The same command again, which waited for the Lease, begins as soon as the nodes are back, and fails like the first."""
    call, releases = type(run).__call__, []

    def module(runner, name, **arguments):
        result = call(runner, name, **arguments)
        if name == "run_lease" and arguments.get("state") == "absent":
            releases.append(name)
            if len(releases) == 2:
                refused(running, [NEXT_GPU, RT], "stop")
        return result

    monkeypatch.setattr(type(run), "__call__", module)
    running.fails([NEXT_GPU, RT], "rollback_wave")
    assert len(releases) == 3
    assert [wave["nodes"] for wave in run("pool_history")["open_waves"]] == [["n2", "n3"]]


def test_a_wave_stays_open_of_which_a_node_cannot_go_back(rollout, run, monkeypatch):
    """It keeps a handler that no gate has proven: it fails after its handover, and comes back later."""
    call = type(run).__call__

    def module(runner, name, **arguments):
        if name == "plan_info" and arguments.get("restore_nodes"):
            node = rollout.world.find(kinds.NODE, "n3")
            rollout.world.put({**node, "status": builders.node("n3", ready=False)["status"]})
        return call(runner, name, **arguments)

    monkeypatch.setattr(type(run), "__call__", module)
    told = rollout.fails([GPU, RT], "rollback_wave")
    assert "Done: 2 of 3 nodes (n1, n3)." in told
    assert "its nodes went back to: no pools, except 1 that cannot change now (see the warnings above)." in told
    assert handlers(rollout.world)["n3"] == ["virt-handler-rt"]
    assert [wave["nodes"] for wave in run("pool_history")["open_waves"]] == [["n2", "n3"]]


def test_a_deleted_daemonset_comes_back_with_proven_handlers(running):
    wanted = running.outcome()
    running.delete_daemonset()
    running.world.sleep(10)
    assert "the handler of gpu does not start: container virt-handler: ImagePullBackOff" in running.fails(
        [GPU, RT], "stop"
    )
    running.run([GPU, RT])
    assert running.outcome() == wanted
    running.world.writes.clear()
    running.run([GPU, RT])
    assert running.world.writes == []


def test_a_wave_whose_daemonset_is_deleted_goes_back_with_it(running):
    send, name = running.world.send, f"/{names.FORMER_OWNER_ANNOTATION.replace('/', '~1')}"

    def deleting(request):
        answer = send(request)
        if request.method == "PATCH" and [*request.body][-1] == {
            "op": "remove",
            "path": f"/metadata/annotations{name}",
        }:
            running.world.send = send
            running.delete_daemonset()
        return answer

    running.world.send = deleting
    with pytest.raises(TaskFailed, match=r"Wave 1 \(n1\) failed, and its nodes went back to"):
        running.run([NEXT_GPU, RT], "rollback_wave")
    assert running.world.send == send
    assert handlers(running.world)["n1"] == ["virt-handler-gpu"]
