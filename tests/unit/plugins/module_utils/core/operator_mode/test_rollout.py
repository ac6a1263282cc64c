# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far an operator has come, judged from DaemonSets and pods, whatever KubeVirt claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.operator_api import OperatorApi
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode import rollout
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, fake_operator_mode
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_operator_mode import OperatorModeWorld

B = BUILDS["virtHandlerPools"]
RAW = {"nodeSelector": {"hw": "gpu"}, "virtHandlerImage": f"{builders.HANDLER_IMAGE}-gpu"}
POOLS = [builders.pool()]
SETTLED = {"updatedNumberScheduled": 1, "numberReady": 1, "desiredNumberScheduled": 1, "observedGeneration": 1}


def seen(*, status=None, pods=None, ready=True, pools=POOLS, primary_spec=None):
    """What is seen of a cluster with one node of the pool and one of the primary, as the operator of B made it."""
    nodes = [builders.node("n1", labels={"hw": "gpu"}, ready=ready), builders.node("n2")]
    of_kubevirt = builders.kubevirt()
    world = OperatorModeWorld("B", of_kubevirt, fake_operator_mode.primary(desired=1), *nodes)
    stock = fake_operator_mode.primary(desired=1)
    stock["spec"] = primary_spec or world._primary_spec(of_kubevirt, {"gpu": RAW})
    pool = {**world._daemonset("gpu", RAW, of_kubevirt), "status": {**SETTLED, **(status or {})}}
    if pods is None:
        pods = [pod("n1", "virt-handler-gpu", pool), pod("n2", "virt-handler", stock)]
    found = builders.build_snapshot(of_kubevirt, daemonsets=[stock, pool], nodes=nodes, pods=pods)
    return rollout.observe(B, found, stock, pools)


def pod(on, of, daemonset=None, **fields):
    made = builders.handler_pod(on, of, **fields)
    spec = (daemonset or fake_operator_mode.primary())["spec"]["template"]["spec"]
    made["spec"]["containers"] = [{"name": each["name"], "image": each["image"]} for each in spec["containers"]]
    return made


def test_all_is_done():
    found = seen()
    assert found.problem is None
    assert found.bare == found.doubled == ()


def test_a_handler_with_old_images_is_not_done_despite_status():
    found = seen(pods=[pod("n1", "virt-handler-gpu"), pod("n2", "virt-handler")])
    assert found.problem == "1 node does not have exactly one Ready handler yet: n1."


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"updatedNumberScheduled": 0}, "DaemonSet virt-handler-gpu: 0 of 1 handlers are updated, 1 are Ready"),
        ({"observedGeneration": 0}, "the DaemonSet controller has not seen DaemonSet virt-handler-gpu as it is now"),
        ({"desiredNumberScheduled": 0}, "DaemonSet virt-handler-gpu: 1 of 0"),
    ],
)
def test_a_daemonset_that_is_not_rolled_out(status, words):
    assert words in seen(status=status).problem


def test_two_handlers_or_none():
    two = seen(pods=[pod("n1", "virt-handler-gpu"), pod("n1", "virt-handler", name="old"), pod("n2", "virt-handler")])
    assert two.doubled == ("n1",)
    none = seen(pods=[pod("n2", "virt-handler")])
    assert none.bare == ("n1",)
    assert "n1" in none.problem


def test_a_handler_of_another_daemonset():
    assert "n1" in seen(pods=[pod("n1", "virt-handler"), pod("n2", "virt-handler")]).problem


def test_a_node_that_is_not_ready_is_excused():
    handlers = [pod("n1", "virt-handler-gpu", ready=False), pod("n2", "virt-handler")]
    assert seen(pods=handlers, ready=False, status={"numberReady": 0, "updatedNumberScheduled": 0}).problem is None


def test_an_exclusion_that_is_missing():
    found = seen(primary_spec=fake_operator_mode.primary()["spec"])
    assert found.nodes_stale == ("virt-operator's DaemonSets select other nodes than the pools ask for: n1",)


def test_daemonsets_that_are_missing_wrong_or_too_many():
    assert (
        "virt-operator has not created DaemonSet virt-handler-other"
        in seen(pools=[*POOLS, builders.pool("other")]).sets_stale
    )
    (gone,) = seen(pools=[]).sets_stale
    assert gone == "virt-operator has not deleted the DaemonSet of pool gpu"
    (wrong,) = seen(pools=[builders.pool(virtHandlerImage="registry.example/h:v2")]).sets_stale
    assert wrong.startswith("DaemonSet virt-handler-gpu does not have the pool's images yet (virt-handler ")


def written(obj, time, part="f:spec"):
    record = {"manager": "kubectl", "operation": "Update", "time": time, "fieldsV1": {part: {}}}
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [record]}}


class TestAnotherRegistry:
    """The same name and tag in another registry: a mirror's, or an edit that virt-operator has not followed."""

    WANTED = builders.pool(virtHandlerImage="mirror.example/virt-handler:v1.9.0-gpu")
    WRITTEN = "2026-11-26T10:00:00Z"

    def wrong(self, *, edited=None, part="f:spec", generation="1"):
        of_kubevirt = builders.kubevirt()
        of_kubevirt["metadata"]["generation"] = 1
        world = OperatorModeWorld("C", of_kubevirt, fake_operator_mode.primary(desired=1))
        raw = {**RAW, "virtHandlerImage": "registry.example/virt-handler:v1.9.0-gpu"}
        daemonset = written(world._daemonset("gpu", raw, of_kubevirt), self.WRITTEN)
        daemonset["metadata"]["annotations"] = {"kubevirt.io/generation": generation}
        found = builders.build_snapshot(
            of_kubevirt, daemonsets=[fake_operator_mode.primary(), daemonset], nodes=[], pods=[]
        )
        if edited is not None:
            own = written({"metadata": {"name": "gpu"}}, edited, part)
            found = replace(found, operator_api=OperatorApi((), True, (own,)))
        return rollout.wrong_images(BUILDS["WorkerPool"], found, fake_operator_mode.primary(), self.WANTED, daemonset)

    def test_is_a_mirrors_after_the_operators_write(self):
        assert self.wrong() == {}
        assert self.wrong(edited="2026-11-26T09:59:59Z") == {}
        assert self.wrong(edited=self.WRITTEN) == {}

    def test_is_the_old_one_after_an_edit_of_the_pools_object(self):
        assert self.wrong(edited="2026-11-26T10:00:01Z") == {"virt-handler": "registry.example/virt-handler:v1.9.0-gpu"}

    def test_is_a_mirrors_after_an_edit_of_labels_or_status_only(self):
        assert self.wrong(edited="2026-11-26T10:00:01Z", part="f:metadata") == {}

    def test_is_the_old_one_after_an_edit_of_the_kubevirt_object(self):
        assert self.wrong(generation="0")
