# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What modules do with pools that are removed: the role remove_pools in steps."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

RAW = builders.RAW_POOL
IMAGES = (f"{builders.HANDLER_IMAGE}-gpu", builders.HANDLER_IMAGE, builders.LAUNCHER_IMAGE)
DEGRADED = {"Degraded": "True"}


@pytest.fixture
def owned(excluded):
    """The pool has its node, and a handler there."""
    excluded.put(builders.node("n1", "gpu", labels={"hw": "gpu"}, images=IMAGES))
    excluded.drop(kinds.POD, "virt-handler-n1", builders.NAMESPACE)
    excluded.sleep(30)
    assert excluded.handlers("n1") == ["virt-handler-gpu"]
    excluded.writes.clear()
    return excluded


class TestPlan:
    def test_needs_no_list_of_pools(self, run, owned):
        found = run("plan_info", remove_pools="all")
        assert [line.split(":")[0] for line in found["changes"]] == [
            "Node n1",
            "DaemonSet kubevirt/virt-handler-gpu",
            "KubeVirt kubevirt/kubevirt",
        ]
        assert (found["exclusion"], found["settling"], found["cleared"]) == (True, False, [])
        assert found["text"][-5:-2] == [
            "At the end:",
            "  - DaemonSet kubevirt/virt-handler-gpu",
            f"  ~ {found['changes'][2]}",
        ]
        assert owned.writes == []

    def test_refuses_one(self, run):
        assert "drop it" in run.failure("plan_info", remove_pools="all", pools=[RAW])

    def test_refuses_an_empty_one(self, run):
        assert "give the names of pools as a list, or all" in run.failure("plan_info", remove_pools=[])

    @pytest.mark.parametrize(("mode", "errors"), [("refuse", 1), ("leave", 0), ("migrate", 0), ("wait", 0)])
    def test_tells_of_vms(self, run, owned, mode, errors):
        owned.put(vms.launcher(on="n1", pool=None))
        found = run("plan_info", remove_pools="all", vms=True, remove_vms=mode)
        assert len(found["errors"]) == errors
        assert any("1 VM runs with the launcher image of pool gpu" in line for line in found["text"])

    def test_asks_for_the_rights_of_what_it_deletes_last(self, run, owned):
        history = kinds.CONFIG_MAP.object("virtpools-history", builders.NAMESPACE)
        history["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "virtpools"}
        owned.put(history)
        owned.denied.add(("delete", "configmaps"))
        assert "delete configmaps" in run.failure("plan_info", remove_pools="all", for_run=True)


class TestNodes:
    def test_go_back(self, run, owned):
        found = run("pool_nodes", remove_pools="all", nodes=["n1"])
        assert found["changes"] == ["Node n1: gpu -> primary"]
        assert owned.handlers("n1") == ["virt-handler"]
        assert owned.doubled == []

    def test_go_back_beside_a_kubevirt_that_is_degraded(self, run, owned):
        owned.put(builders.excluding_kubevirt(conditions=DEGRADED))
        assert run("pool_nodes", remove_pools="all", nodes=["n1"])["nodes"][0]["result"] == "done"

    def test_stay_while_it_is_upgraded(self, run, owned):
        owned.put(builders.excluding_kubevirt(targetKubeVirtVersion="v1.9.1"))
        assert "is being upgraded" in run.failure("pool_nodes", remove_pools="all", nodes=["n1"])
        assert owned.writes == []

    def test_only_those_of_pools_that_go(self, run, owned):
        owned.put(builders.pool_daemonset(builders.pool("other")))
        assert run("pool_nodes", remove_pools=["other"], nodes=["n1"])["changed"] is False


class TestDaemonSets:
    def test_go_once_no_node_is_theirs(self, run, owned):
        assert run("pool_daemonsets", remove_pools="all", state="absent", check=True)["changed"]
        assert "Pool gpu still owns n1" in run.failure("pool_daemonsets", remove_pools="all", state="absent")
        run("pool_nodes", remove_pools="all")
        assert run("pool_daemonsets", remove_pools="all", state="absent")["changes"] == [
            "DaemonSet kubevirt/virt-handler-gpu: delete"
        ]

    def test_none_is_made_or_repaired(self, run, owned):
        owned.put(builders.pool_daemonset(builders.pool("other"), desired=0))
        owned.find(kinds.DAEMON_SET, "virt-handler-gpu", builders.NAMESPACE)["spec"]["template"]["spec"]["x"] = 1
        assert run("pool_daemonsets", remove_pools=["other"])["changed"] is False

    @pytest.mark.parametrize("run_id", ["run-1", None])
    def test_one_that_the_run_has_deleted_is_no_wrong_name(self, run, owned, run_id):
        """The history may not tell of it: another client may delete it, and a later release may write it."""
        asked = {"part": "alerts", "step": "last", "remove_pools": ["deleted-before"]}
        found = run("run_part", run_id=run_id, **asked)
        assert ("The cluster has no pool deleted-before" in found.get("msg", "")) is (run_id is None)
        assert found.get("failed", False) is (run_id is None)


class TestExclusion:
    def test_in_check_mode_nodes_count_as_given_back(self, run, owned):
        assert "still belongs to a pool" in run.failure("primary_exclusion", state="absent", check=True)
        assert run("primary_exclusion", state="absent", after_nodes=True, check=True)["changed"]
        assert "still belongs to a pool" in run.failure("primary_exclusion", state="absent", after_nodes=True)
        assert owned.writes == []

    def test_waits_for_a_kubevirt_that_takes_in_its_nodes(self, run, excluded):
        excluded.put(builders.excluding_kubevirt(conditions={"Available": "False"}))
        excluded.at[excluded.now + 20] = lambda: excluded.put(builders.excluding_kubevirt())

        def reconcile(request):
            if request.method == "PUT" and request.path.endswith("/kubevirts/kubevirt"):
                excluded.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)["metadata"]["generation"] = 2
                excluded.put(builders.primary(excluded=False, desired=2))

        excluded.after = reconcile
        started = excluded.now
        assert run("primary_exclusion", state="absent")["changed"]
        assert excluded.now >= started + 20

    def test_stays_while_kubevirt_is_degraded(self, run, excluded):
        excluded.put(builders.excluding_kubevirt(conditions=DEGRADED))
        assert "is degraded" in run.failure("primary_exclusion", state="absent")
        assert excluded.writes == []
