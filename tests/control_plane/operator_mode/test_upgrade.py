# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""An upgrade of KubeVirt on the build that forgets its pools in upgrades: who notices, what ends it, and what repairs the rest.

virt-operator is upgraded for real, and waits for real for pods of the former version. What the build makes of its pools
meanwhile is played by the agent. The tests run in order.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from full_dump import ours
from local_cluster import Fleet, Nodes, kubevirt, programs
from operator_mode_scenario import B, OperatorModeScenario
from scenario import NAMESPACE, Object
from watcher import Watcher

# make test upgrades collection pools, with KubeVirt's own programs alone.
pytestmark = pytest.mark.thorough

FROM, TO = programs.EARLIER, programs.KUBEVIRT
FLEET = Fleet.from_groups(Nodes(name="gpu-00", labels={"accelerator": "gpu"}), Nodes(name="plain-00"))
OPERATED = "app.kubernetes.io/managed-by"
ALONE = {"gpu-00": ["virt-handler-gpu"], "plain-00": ["virt-handler"]}


class UpgradeScenario(OperatorModeScenario):
    """A cluster whose KubeVirt is upgraded."""

    def pools(self) -> list[Object]:
        """Return the list with images of the earlier version, which stay: nothing but the touch is to repair the cluster."""
        return [{**self.pool("gpu", version=FROM), "allowSkew": True}]

    def versions(self) -> tuple[str, str]:
        """Return the version that is deployed and the one that is to be."""
        status = self.kubevirt()["status"]
        return status["observedKubeVirtVersion"], status["targetKubeVirtVersion"]

    def upgrade(self) -> None:
        """Begin the upgrade as a user does, and wait until nothing of it is left to do but what concerns the pool."""
        manifest = programs.manifest(self.cluster.add_kubevirt(TO), NAMESPACE, kubevirt.IMAGES)
        # The agent has added the field to the definition; the manifest of the build itself would have it.
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
        self.cluster.wait(self._renewed, 180, "everything to be new but the pool", interval=0.5)

    def _renewed(self) -> bool:
        """Return whether each node has a Ready primary of the new version, and all of KubeVirt's Deployments are rolled out."""
        new = {"kubevirt.io/install-strategy-version": TO}
        sets = [
            self.get("daemonset", "virt-handler"),
            *self.get("deployments", "-l", f"{OPERATED}=virt-operator")["items"],
        ]
        return all(new.items() <= each["metadata"]["annotations"].items() and _rolled_out(each) for each in sets)

    def two_handlers(self) -> bool:
        """Return whether the node of the pool has a Ready handler of the pool, and one of the primary."""
        sets = [self.get("daemonset", name) for name in self.names()]
        return len(self.handlers()["gpu-00"]) == 2 == len(sets) and all(map(_rolled_out, sets))

    def affinity(self) -> Object | None:
        """Return where the primary may run, beyond its nodeSelector."""
        affinity: Object | None = self.get("daemonset", "virt-handler")["spec"]["template"]["spec"].get("affinity")
        return affinity


def _rolled_out(owner: Object) -> bool:
    """Return whether all pods of a DaemonSet or Deployment are new and Ready."""
    status, generation = owner["status"], owner["metadata"]["generation"]
    wanted, updated, ready = (
        (status.get("desiredNumberScheduled"), status.get("updatedNumberScheduled"), status.get("numberReady"))
        if owner["kind"] == "DaemonSet"
        else (owner["spec"]["replicas"], status.get("updatedReplicas"), status.get("readyReplicas"))
    )
    return bool(status.get("observedGeneration") == generation and wanted and wanted == updated == ready)


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> UpgradeScenario:
    scenario = UpgradeScenario(B, start_cluster(FLEET, build=B.name, kubevirt=FROM))
    scenario.wait_until_settled()
    return scenario


@pytest.fixture(scope="module", autouse=True)
def before(scenario: UpgradeScenario) -> Object:
    """Return KubeVirt's spec before there were pools."""
    spec: Object = scenario.kubevirt()["spec"]
    return spec


def test_the_check_before_the_upgrade_warns_of_it(scenario: UpgradeScenario) -> None:
    scenario.play("site", scenario.pools()).succeeded()
    assert "accelerator" in str(scenario.affinity())
    found = scenario.module("upgrade_info", version=TO)
    (warning,) = [each["message"] for each in found["findings"] if each["code"] == "operator_upgrade"]
    assert "an upgrade does not end while there are pools" in warning
    assert "every pool node gets a second handler, until a run of site" in warning
    assert found["verdict"] == "prepare"


def test_it_does_not_end_and_runs_are_refused_with_the_remedy(scenario: UpgradeScenario) -> None:
    with Watcher(scenario.cluster) as watcher:
        scenario.upgrade()
        with scenario.no_writes():
            for playbook in ("plan", "site"):
                said = scenario.play(playbook, scenario.pools()).refused()
                assert f"is being upgraded from {FROM} to {TO}; wait until that is done, then run again." in said
                assert (
                    f"virt-operator waits for the handlers of pool gpu to be of {TO}, and renews them only after it"
                    in said
                )
        assert watcher.handlers["gpu-00"] == ["virt-handler", "virt-handler-gpu"]
        assert scenario.versions() == (FROM, TO), "it would have ended long ago"
        command = re.search(r"kubectl (delete daemonset [^.]*\.io/handler-pool)\.", said)
        assert command is not None, said
        scenario.cluster.kubectl(*command[1].split())
        scenario.cluster.wait(lambda: scenario.versions() == (TO, TO), 60, "the upgrade to end")
        scenario.cluster.wait(scenario.two_handlers, 60, "virt-operator to make the pool again")
        scenario.wait_until_settled()
        watcher.stop()
    # The pool's node had a handler all the time.
    assert "gpu-00" not in watcher.gaps()
    assert watcher.without_ready_handler == []


def test_after_it_nodes_of_the_new_pool_have_a_second_handler(scenario: UpgradeScenario) -> None:
    """What the warning says is true of the build, as far as the agent plays it well, and nothing heals by itself."""
    made = scenario.get("daemonset", "virt-handler-gpu")
    assert made["metadata"]["annotations"]["kubevirt.io/install-strategy-version"] == TO
    assert "accelerator" not in str(scenario.affinity())
    stock, own = f"{kubevirt.IMAGES}/virt-handler:{TO}", scenario.pools()[0]["virtHandlerImage"]
    assert sorted(scenario.handlers()["gpu-00"]) == sorted([stock, own])
    assert scenario.handlers()["plain-00"] == [stock]


def test_verify_and_plan_name_the_nodes(scenario: UpgradeScenario) -> None:
    with scenario.no_writes():
        verified = scenario.play("verify")
        assert "operator_nodes_wrong" in verified.refused()
        (task,) = verified.results_of("virtpools.kubevirt.verification_info")
        report = "\n".join(task.result["text"])
        assert "virt-operator's DaemonSets select other nodes than the pools ask for: gpu-00; run site" in report
        run = scenario.play("plan", scenario.pools()).succeeded()
    text = "\n".join(run.plan["text"])
    assert "Node gpu-00: gpu and primary -> gpu" in text
    assert "VirtpoolsTouch, which has no effect, on and off again" in text
    assert "operator_window" not in [each["code"] for each in run.plan["findings"]]
    assert scenario.findings().keys() >= {"operator_nodes_wrong", "two_handlers"}


def test_site_repairs_it_by_the_touch(scenario: UpgradeScenario) -> None:
    spec = scenario.kubevirt()["spec"]
    with Watcher(scenario.cluster) as watcher:
        scenario.play("site", scenario.pools()).succeeded()
        watcher.stop()
    assert (watcher.handlers, watcher.without_ready_handler) == (ALONE, [])
    # The pool's own handler was there all the time, and the primary's restart is not the pool node's.
    assert {start.node for start in watcher.starts} == {"plain-00"}
    assert scenario.kubevirt()["spec"] == spec
    scenario.play("verify").succeeded()
    scenario.again(scenario.pools())


def test_after_remove_kubevirt_is_as_it_was(scenario: UpgradeScenario, before: Object) -> None:
    scenario.play("remove", virtpools_remove="all").succeeded()
    scenario.wait_until_settled()
    assert (scenario.names(), scenario.affinity()) == (["virt-handler"], None)
    assert scenario.kubevirt()["spec"] == before
    assert sorted(scenario.handler_pods()) == ["gpu-00", "plain-00"]
    assert ours(scenario.cluster) == []
