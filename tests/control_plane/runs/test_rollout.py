# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A rollout in waves: it follows the plan's order, can be stopped and resumed, and stops when its first wave breaks.

In make test, test_on_failure.py has waves that break, at a node and at a user's gate.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

import playbooks
from local_cluster import Fleet, LocalCluster, Nodes
from playbooks import Run
from scenario import FORMER_OWNER, HANDLER_KNOB, HANDS_OFF, Scenario, pool
from watcher import Watcher

QUICK = {"agent.virtpools.io/start-seconds": "0.3", "agent.virtpools.io/stop-seconds": "0.3"}
WAVES = [{"name": "canary", "match": {"role": "canary"}, "per": "platform"}, {"per": "platform"}]
POOL = pool("gpu", "gpu")
# The last node of each platform is its canary, and the fleet lists platform b first.
ORDER = ["a2", "b2", "a0", "a1", "b0", "b1"]
NAMES = ["canary, platform=a", "canary, platform=b", "platform=a", "platform=b"]

# A tasks file of a user: notes the wave, and closes the gate after the second.
GATE = """
- name: Note the wave
  ansible.builtin.lineinfile:
    path: {seen}
    line: "{{{{ virtpools_wave.number }}}} {{{{ virtpools_wave.name }}}}: {{{{ virtpools_wave.nodes | join(' ') }}}}"
    create: true
    mode: "0600"

- name: Ask somebody
  ansible.builtin.assert:
    that: virtpools_wave.number < 2
    fail_msg: "Error rate too high in wave {{{{ virtpools_wave.name }}}}."
"""


@pytest.fixture(scope="module")
def scenario(start_cluster: Callable[..., LocalCluster]) -> Scenario:
    """Return a cluster of two platforms with three nodes each for a pool, and some for the primary."""
    nodes = [
        Nodes(
            name=f"{platform}{number}",
            labels={"accelerator": "gpu", "platform": platform, **({"role": "canary"} if number == 2 else {})},
            annotations=QUICK,
        )
        for platform in ("b", "a")
        for number in range(3)
    ]
    return Scenario(start_cluster(Fleet((*nodes, Nodes(prefix="plain-", count=2, annotations=QUICK)))))


def rollout(scenario: Scenario, playbook: str = "rollout", *, of: Any = POOL, **variables: Any) -> Run:
    """Run a playbook with the waves."""
    if playbook == "plan":  # a run waits by itself; a plan is refused while KubeVirt acts on the run before
        scenario.wait_until_settled()
    quick = {"virtpools_node_timeout": 10, "virtpools_pull_timeout": 30, "virtpools_gate_timeout": 20}
    given = {"virtpools_waves": WAVES, **quick, **variables}
    return playbooks.run(playbook, scenario.writer.kubeconfig, [of], timeout=300, **given)


def started(watcher: Watcher) -> list[str]:
    """Return the nodes on which a handler of the pool was started, in order."""
    return [start.node for start in watcher.starts if start.daemonset == "virt-handler-gpu"]


def followed(scenario: Scenario, since: int) -> Counter[int]:
    """Return how often handler pods were followed through a watch, by the server's answer."""
    asked = scenario.cluster.requests(since, scenario.writer.user)
    return Counter(each["responseStatus"]["code"] for each in asked if each["verb"] == "watch")


def headline(page: Path) -> str:
    """Return how a run ended, as its page tells."""
    return page.read_text("utf-8").partition("<title>")[2].partition("</title>")[0]


def told(page: Path) -> list[str]:
    """Return the nodes that the page of a run tells of, in order."""
    return re.findall(r"</time><span>(\w+)</span>", page.read_text("utf-8"))


@pytest.mark.thorough  # test_workflow has it in memory
def test_without_waves_nothing_is_done(scenario: Scenario) -> None:
    """The playbook rollout says what it needs."""
    with scenario.no_writes():
        assert "virtpools_waves is missing" in rollout(scenario, virtpools_waves=[]).refused()


@pytest.mark.thorough  # test_on_failure has a broken canary, test_report its page
def test_a_broken_canary_stops_the_rollout_in_its_first_wave(scenario: Scenario, tmp_path: Path) -> None:
    """Its handler never gets Ready: the canary returns to its former owner, and all other nodes stay as they were."""
    scenario.knob(ORDER[0], "never-ready/virt-handler-gpu")
    with Watcher(scenario.cluster) as watcher:
        run = rollout(scenario, virtpools_report_html=str(tmp_path / "run.html"))
        watcher.stop()
    scenario.knob(ORDER[0], None)
    assert headline(tmp_path / "run.html") == f"Failed at batch 1 of wave 1 of 4 ({NAMES[0]}): 0 of 6 nodes changed"
    assert told(tmp_path / "run.html") == ORDER[:1]
    assert f"Node {ORDER[0]}: primary -> gpu: returned" in run.refused()
    assert set(started(watcher)) == {ORDER[0]}
    assert scenario.owners() == {}
    assert watcher.crowded == []


def test_handlers_restart_in_the_plans_order_despite_a_stop(scenario: Scenario, tmp_path: Path) -> None:
    """The approved plan shows the waves; after a stop, a run with the same approval goes on."""
    scenario.wait_until_settled()
    plan = scenario.module("plan_info", pools=[POOL], waves=WAVES, guard=False)
    assert [wave["name"] for wave in plan["waves"]] == NAMES
    assert [move["node"] for batch in plan["batches"] for move in batch] == ORDER
    marker = scenario.cluster.audit_marker()
    page = tmp_path / "run.html"
    given = {"virtpools_expected_plan": plan["digest"], "virtpools_report_html": str(page)}
    with Watcher(scenario.cluster) as watcher:
        first = rollout(scenario, virtpools_stop_after_wave=NAMES[0], **given).succeeded()
        assert (headline(page), told(page)) == ("Paused as asked: 1 of 6 nodes changed", ORDER[:1])
        assert scenario.owners() == {ORDER[0]: "gpu"}
        assert "stops after wave 1 of 4" in first.stdout
        assert followed(scenario, marker) == {200: 1}, "once in each batch"
        whole = rollout(scenario, **given).succeeded()
        watcher.stop()
    assert [wave["name"] for wave in whole.plan["waves"]] == NAMES
    assert started(watcher) == ORDER
    assert (watcher.crowded, watcher.without_ready_handler) == ([], [])
    assert scenario.owners() == dict.fromkeys(ORDER, "gpu")
    assert (headline(page), told(page)) == ("Finished: 5 nodes changed", ORDER[1:])
    progress = [
        line for task in whole.results_of("virtpools.kubevirt.pool_nodes") for line in task.result["events"][-1:]
    ]
    assert [line.split(",")[0] for line in progress] == [f"Progress: {done} of 5 nodes done" for done in range(1, 6)]


@pytest.mark.thorough  # test_on_failure has a gate that closes; test_open_waves asks it again in memory
def test_a_gate_stops_a_new_image_and_later_waves_keep_the_old(scenario: Scenario, tmp_path: Path) -> None:
    """Handlers are replaced in waves as well; the user's gate is asked after each wave and its soak."""
    seen, gate = tmp_path / "seen", tmp_path / "gate.yml"
    gate.write_text(GATE.format(seen=json.dumps(str(seen))), "utf-8")
    newer = {**POOL, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-newer"}
    scenario.site([POOL]).succeeded()
    with Watcher(scenario.cluster) as watcher:
        page = {"virtpools_report_html": str(tmp_path / "run.html")}
        run = rollout(scenario, of=newer, virtpools_gates=[str(gate)], virtpools_soak_seconds=1, **page)
        watcher.stop()
    closed = f"Failed at your own gates after wave 2 of 4 ({NAMES[1]}): 2 of 6 nodes changed"
    assert headline(tmp_path / "run.html") == closed
    assert f"Error rate too high in wave {NAMES[1]}." in run.refused()
    assert started(watcher) == ORDER[:2]
    assert seen.read_text("utf-8").splitlines() == [f"1 {NAMES[0]}: a2", f"2 {NAMES[1]}: b2"]
    assert len([task for task in run.tasks if task.name.endswith("Note the wave")]) == 3, "twice after the first wave"
    # The next run asks the gate first, and it is still closed.
    with Watcher(scenario.cluster) as watcher:
        run = rollout(scenario, of=newer, virtpools_gates=[str(gate)])
        watcher.stop()
    assert f"Error rate too high in wave {NAMES[1]}." in run.refused()
    assert started(watcher) == []
    assert seen.read_text("utf-8").splitlines()[2:] == [], "one line for each wave: it was the second again"
    with Watcher(scenario.cluster) as watcher:
        plan = rollout(scenario, "plan", of=newer).succeeded().plan
        rollout(scenario, of=newer, virtpools_expected_plan=plan["digest"]).succeeded()
        watcher.stop()
    assert [wave["name"] for wave in plan["waves"] if wave["open"]] == [NAMES[1]]
    assert started(watcher) == ORDER[2:]
    assert {image for node in ORDER for image in watcher.images[node]} == {newer["virtHandlerImage"]}
    scenario.settled([newer], virtpools_waves=WAVES)


@pytest.mark.thorough
def test_our_own_gate_stays_closed_until_somebody_skips_it(scenario: Scenario, tmp_path: Path) -> None:
    """A handler breaks while the first wave soaks: neither this run nor the next one touches another node."""
    breaks = tmp_path / "breaks.yml"
    kubectl = [str(scenario.cluster.kubectl_program), f"--kubeconfig={scenario.cluster.kubeconfig}"]
    steps = [
        ["annotate", "node", ORDER[0], f"{HANDLER_KNOB}=never-ready", "--overwrite"],
        ["delete", "pod", "-n=kubevirt", "-lkubevirt.io=virt-handler", f"--field-selector=spec.nodeName={ORDER[0]}"],
    ]
    tasks = [{"name": "Break it", "ansible.builtin.command": {"argv": [*kubectl, *step]}} for step in steps]
    breaks.write_text(json.dumps(tasks), "utf-8")
    oldest = {**POOL, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-oldest"}
    told = f"Node {ORDER[0]} has a handler that is not Ready"
    soaking = {"virtpools_gates": [str(breaks)], "virtpools_soak_seconds": 1, "virtpools_gate_timeout": 3}
    with Watcher(scenario.cluster) as watcher:
        assert told in rollout(scenario, of=oldest, **soaking).refused()
        assert told in rollout(scenario, of=oldest, virtpools_gate_timeout=3).refused()
        watcher.stop()
    assert set(started(watcher)) == {ORDER[0]}
    with Watcher(scenario.cluster) as watcher:
        rollout(scenario, of=oldest, virtpools_gate_timeout=3, virtpools_skip_pending_gates=True).succeeded()
        watcher.stop()
    assert started(watcher) == ORDER[1:]
    scenario.knob(ORDER[0], None)
    scenario.settled([oldest], virtpools_waves=WAVES)


# Their namespace and names are as long as Kubernetes allows: the problems of so many do not fit into a history as they are.
TENANT, FAILED = "tenant-".ljust(63, "x"), [f"vm-{number:03}-".ljust(63, "x") for number in range(580)]


def fail_vms(scenario: Scenario, node: str, *names: str) -> None:
    """Make VMs that have failed on a node. A quota keeps virt-controller from making their pods."""
    vmis = ("kubevirt.io", "v1", TENANT, "virtualmachineinstances")
    kubevirt = config.new_client_from_config(str(scenario.cluster.kubeconfig))
    kubevirt.set_default_header("Impersonate-User", "system:serviceaccount:kubevirt:kubevirt-controller")
    user, controller = (client.CustomObjectsApi(each) for each in (scenario.cluster.api_client, kubevirt))
    spec = {"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}}
    failed = {"metadata": {"labels": {"kubevirt.io/nodeName": node}}, "status": {"phase": "Failed", "nodeName": node}}

    def fail(name: str) -> None:
        metadata = {"name": name, "annotations": {HANDS_OFF: ""}}
        vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec}
        user.create_namespaced_custom_object(*vmis, vmi)
        controller.patch_namespaced_custom_object(*vmis, name, failed)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fail, names))


@pytest.mark.thorough  # a unit test kills at every write
def test_the_gate_of_a_killed_wave_is_asked_again(scenario: Scenario) -> None:
    again = {**POOL, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-again"}
    scenario.cluster.kubectl("create", "namespace", TENANT)
    scenario.cluster.kubectl("create", "quota", "no-pods", "--hard=pods=0", "-n", TENANT)
    fail_vms(scenario, ORDER[0], *FAILED)
    quick = {"virtpools_waves": WAVES, "virtpools_soak_seconds": 600}
    running = playbooks.start("rollout", scenario.writer.kubeconfig, [again], **quick)

    def soaks() -> bool:
        assert not running.ended(), running.wait()
        replaced = scenario.handlers()[ORDER[0]] == [again["virtHandlerImage"]]
        return replaced and FORMER_OWNER not in scenario.node(ORDER[0])["annotations"]

    scenario.cluster.wait(soaks, 120, "the first wave to soak")
    running.kill_all()
    written = scenario.get("configmap", "virtpools-history")["data"]["openWaves"]
    (wave,) = json.loads(written)
    assert (wave["name"], wave["nodes"], len(wave["baseline"])) == (NAMES[0], ORDER[:1], 1)
    assert len(written) < 10_000
    plan = rollout(scenario, "plan", of=again).succeeded().plan
    assert [each["name"] for each in plan["waves"] if each["open"]] == NAMES[:1]
    fail_vms(scenario, ORDER[0], "new")
    error = rollout(scenario, of=again).refused()
    told = f"1 problem that did not exist before the wave. VM instance {TENANT}/new on node {ORDER[0]} has failed."
    assert told in error
    scenario.cluster.kubectl("delete", "vmi", "new", "-n", TENANT)
    rollout(scenario, of=again, virtpools_stop_after_wave=NAMES[0]).succeeded()
    assert "openWaves" not in scenario.get("configmap", "virtpools-history")["data"]


@pytest.mark.thorough  # unit tests hand over without a watch
def test_an_account_that_may_not_watch_pods_hands_over_nodes(scenario: Scenario) -> None:
    """It has the ClusterRole of an older release."""
    role = scenario.get("clusterrole", "virtpools-writer")
    pods = next(rule for rule in role["rules"] if rule["resources"] == ["pods"])
    pods["verbs"].remove("watch")
    scenario.apply(role)
    last = {**POOL, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-last"}
    marker = scenario.cluster.audit_marker()
    rollout(scenario, of=last, virtpools_stop_after_wave=NAMES[0]).succeeded()
    assert scenario.handlers()[ORDER[0]] == [last["virtHandlerImage"]]
    assert set(followed(scenario, marker)) == {403}
