# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

yaml = pytest.importorskip("yaml")

RAW = builders.RAW_POOL


def test_shows_what_a_run_would_do(run, world):
    found = run("plan_info", pools=[RAW])
    assert (found["changed"], found["pending"], found["errors"]) == (False, True, [])
    assert [line.split(":")[0] for line in found["changes"]] == [
        "KubeVirt kubevirt/kubevirt",
        "DaemonSet kubevirt/virt-handler-gpu",
        "Node n1",
    ]
    assert found["batches"] == [[{"node": "n1", "from": "primary", "to": "gpu", "action": "move"}]]
    assert found["owners"] == {"primary": {"now": 2, "after": 1}, "gpu": {"now": 0, "after": 1}}
    assert (
        found["text"][0] == "Cluster https://api.example:6443, UID unknown: the user may not read namespace kube-system"
    )
    assert found["text"][-1] == f"Plan digest: {found['digest']}"
    assert found["retire"] == found["leftovers"] == []
    assert world.writes == []


def test_needs_no_more_than_a_reader(run, world):
    world.denied = {(verb, kind) for verb in ("create", "update", "patch", "delete") for kind in ("nodes", "pods")}
    assert run("plan_info", pools=[RAW])["pending"]


def test_has_the_state_when_a_run_has_nothing_to_do(run, world):
    found = run("plan_info", remove_pools="all")
    assert (found["pending"], found["state"]) == (False, run("pool_info")["text"])
    assert found["state"][0].startswith("OWNER")
    assert run("plan_info", pools=[RAW])["state"] == []


def test_errors_are_part_of_the_result(run, world):
    found = run("plan_info", pools=[{**RAW, "nodeSelector": {"kubernetes.io/os": "linux"}}])
    assert not found.get("failed")
    assert "leave the primary virt-handler without a node" in found["errors"][0]


class TestApproval:
    def test_of_this_plan(self, run):
        digest = run("plan_info", pools=[RAW])["digest"]
        assert run("plan_info", pools=[RAW], expected_plan=digest)["digest"] == digest

    def test_of_another_plan(self, run):
        digest = run("plan_info", pools=[RAW])["digest"]
        text = run.failure("plan_info", pools=[RAW], expected_plan=digest, max_unavailable=2)
        assert text.startswith(
            "The plan is not the approved one: the options (overlap, prune, max_unavailable, prepull, assign_new_nodes, guard, "
            "alerts, waves, remove_pools, drain, on_non_migratable, remove_vms, feature_gates_present, feature_gates_absent)"
        )

    def test_of_a_plan_that_an_earlier_job_published(self, run, world):
        published = run("plan_info", pools=[RAW], cluster_name="west")["published"]
        west = {"cluster_name": "west", "published_plan": published}
        assert run("plan_info", pools=[RAW], **west)["pending"]
        assert "is not the approved one" in run.failure("plan_info", pools=[RAW], max_unavailable=2, **west)
        text = run.failure("plan_info", pools=[RAW], cluster_name="east", published_plan=published)
        assert "has a plan of site for west, but not for east" in text
        assert world.writes == []

    def test_of_another_cluster_under_the_same_name(self, run, world):
        world.put(kinds.NAMESPACE.object("kube-system"))
        found = run("plan_info", pools=[RAW])
        world.drop(kinds.NAMESPACE, "kube-system")
        world.put(kinds.NAMESPACE.object("kube-system"))
        text = run.failure("plan_info", pools=[RAW], published_plan=found["published"])
        assert "virtpools_plan has a plan of site that was made for https://" in text
        assert f"(UID {found['published']['localhost']['site']['uid']}), but localhost is https://" in text
        kubevirt = world.find(kinds.KUBEVIRT, "kubevirt", builders.NAMESPACE)
        kubevirt["metadata"]["uid"] = "another"
        world.put(kubevirt)
        assert run.failure("plan_info", pools=[RAW], expected_plan=found["digest"]).startswith(
            "The plan is not the approved one: the cluster (it is another one, or KubeVirt was installed again) changed since."
        )

    def test_that_the_user_gives_counts_more_than_the_published_one(self, run):
        digest = run("plan_info", pools=[RAW])["digest"]
        stale = {"localhost": {"site": {"digest": "0-0-0", "server": "https://west", "uid": ""}}}
        assert run("plan_info", pools=[RAW], published_plan=stale, expected_plan=digest)["pending"]

    def test_is_needed_for_a_run_where_it_is_required(self, run, world):
        text = run.failure("plan_info", pools=[RAW], for_run=True, require_approval=True)
        assert "virtpools_require_approval is true, and no plan of site was approved for localhost" in text
        found = run("plan_info", pools=[RAW], require_approval=True)
        given = {"require_approval": True, "for_run": True}
        assert run("plan_info", pools=[RAW], expected_plan=found["digest"], **given)["pending"]
        assert run("plan_info", pools=[RAW], published_plan=found["published"], **given)["pending"]
        assert "no plan of remove" in run.failure(
            "plan_info", remove_pools="all", published_plan=found["published"], **given
        )

    def test_is_used_up_by_the_run_that_completes_it(self, run):
        """Else the job of an old approval, launched again, would bring its old list back."""
        other = {**RAW, "name": "other"}
        digest = run("plan_info", pools=[RAW])["digest"]
        for pools in ([RAW], [other]):
            run("pool_history", record="begun", pools=pools)
            assert run("plan_info", pools=[RAW], expected_plan=digest)["pending"], "an unfinished run uses nothing up"
            run("pool_history", record="completed", pools=pools)
            text = run.failure("plan_info", pools=[RAW], expected_plan=digest)
            assert text.startswith(
                "The plan is not the approved one: the list that the cluster has (a run has completed;"
            )
            digest = run("plan_info", pools=[RAW])["digest"]

    def test_of_no_plan(self, run):
        assert "is not a plan digest" in run.failure("plan_info", pools=[RAW], expected_plan="yes")


class TestForRun:
    def test_names_all_missing_rights_together(self, run, world):
        world.denied = {("patch", "nodes"), ("create", "daemonsets")}
        text = run.failure("plan_info", pools=[RAW], for_run=True)
        assert "The user tester lacks 2 permissions" in text
        assert "patch nodes" in text
        assert "create daemonsets.apps" in text

    def test_waits_for_what_passes_by_itself(self, run, world):
        world.put(builders.kubevirt(conditions={"Available": "False"}))
        world.at[world.now + 20] = lambda: world.put(builders.kubevirt())
        assert run("plan_info", pools=[RAW], for_run=True)["errors"] == []

    def test_does_not_wait_without_a_run(self, run, world):
        world.put(builders.kubevirt(conditions={"Available": "False"}))
        assert "is not available" in run("plan_info", pools=[RAW])["errors"][0]
        assert world.now == 1000


def test_missing_rights_to_read_are_named_together(run, world):
    world.denied = {("list", "nodes"), ("list", "pods")}
    text = run.failure("plan_info", pools=[RAW])
    assert "lacks 2 permissions" in text
    assert "list nodes, list pods" in text


class TestInput:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ({}, "No pool list is given"),
            ({"pools": []}, "empty list"),
            ({"pools": "gpu"}, "pools"),
            ({"pools": [RAW, RAW]}, "gpu"),
            ({"pools": [RAW], "max_unavailable": "0"}, "virtpools_max_unavailable is '0'; give a number"),
            ({"pools": [RAW], "max_unavailable": "200%"}, "virtpools_max_unavailable is '200%'"),
            ({"pools": [RAW], "pools_manifest": "x"}, "more than once"),
            ({"pools_manifest": "/none/pools.yaml"}, "cannot be read"),
            ({"pools": [RAW], "overlap": "maybe"}, "value of overlap must be one of"),
            ({"pools": [RAW], "nonsense": 1}, "Unsupported parameters"),
            ({"pools": [RAW], "dump": "/none"}, "The dump directory /none cannot be read"),
        ],
        ids=str,
    )
    def test_that_is_bad_is_refused_before_the_cluster_is_looked_for(self, run, arguments, sentence):
        assert sentence in run.failure("plan_info", **arguments)
        assert not run.connected

    def test_problems_come_all_at_once(self, run):
        found = run("plan_info", pools=[{"name": "A"}, {"name": "b", "nodeSelector": {}}])
        assert len(found["msg"].splitlines()) > 2


def test_from_files_no_cluster_is_needed(run, tmp_path):
    objects = [builders.kubevirt(), builders.primary(excluded=False), builders.node("n1", labels={"hw": "gpu"})]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*objects, builders.node("n2")]))
    found = run("plan_info", pools=[RAW], dump=str(tmp_path), for_run=True)
    assert "Node n1: primary -> gpu" in found["changes"]
    assert not run.connected


def test_a_cluster_without_kubevirt(run, world):
    world.unserved = {"KubeVirt"}
    assert "has no KubeVirt" in run.failure("plan_info", pools=[RAW])


def test_what_nobody_expects_is_one_sentence_too(run, world):
    def fail(request):
        raise ValueError("surprise")

    world.before = fail
    found = run("plan_info", pools=[RAW])
    assert found["msg"] == "An error that this collection does not expect: ValueError: surprise. Please report it."


class TestWaves:
    WAVES = ({"name": "canary", "nodes": ["n1"]}, {"match": {"hw": "gpu"}})

    @pytest.fixture(autouse=True)
    def more(self, world):
        world.put(builders.node("n2", labels={"hw": "gpu"}))
        world.put(builders.handler_pod("n2"))

    def test_are_part_of_the_plan(self, run):
        found = run("plan_info", pools=[RAW], waves=self.WAVES)
        assert [(wave["name"], wave["nodes"], wave["batches"], wave["due"]) for wave in found["waves"]] == [
            ("canary", ["n1"], [0], True),
            ("hw=gpu", ["n2"], [1], True),
        ]
        assert (found["stop"], len(found["progress"])) == ("", 2)

    def test_a_stop_changes_no_digest(self, run):
        whole = run("plan_info", pools=[RAW], waves=self.WAVES)
        part = run("plan_info", pools=[RAW], waves=self.WAVES, stop_after_wave="canary", expected_plan=whole["digest"])
        assert [wave["due"] for wave in part["waves"]] == [True, False]
        assert "stops after wave 1 of 2 (canary)" in part["stop"]
        assert part["stop"] in part["text"]

    def test_no_such_wave(self, run):
        assert "not a wave of this rollout" in run.failure(
            "plan_info", pools=[RAW], waves=self.WAVES, stop_after_wave="x"
        )

    def test_bad_waves(self, run):
        assert "Wave 1: count is 0" in run.failure("plan_info", pools=[RAW], waves=[{"count": 0}])
