# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

RAW = builders.RAW_POOL
OTHER = {**RAW, "name": "other", "nodeSelector": {"hw": "other"}}
CREATE = "ConfigMap kubevirt/virtpools-history: create"


def stored(world):
    return world.find(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE)


@pytest.fixture(autouse=True)
def pulled(world):
    world.after = lambda request: world.end_pulls()


@pytest.fixture
def record(run):
    """Record a list as the end of a run does, once the cluster has it."""

    def recorded(*pools, **options):
        run("pool_daemonsets", pools=list(pools))
        run("pool_daemonsets", pools=list(pools), state="absent", prune=True)
        return run("pool_history", record="completed", pools=list(pools), **options)

    return recorded


class TestRecorded:
    def test_appends_what_is_new(self, record, world):
        found = record(RAW)
        assert (found["changed"], found["changes"]) == (True, [CREATE])
        assert record(RAW, OTHER)["changes"] == ["ConfigMap kubevirt/virtpools-history: update"]
        world.writes.clear()
        again = record(RAW, OTHER)
        assert (again["changed"], world.writes) == (False, [])
        assert [[pool["name"] for pool in entry["pools"]] for entry in again["entries"]] == [["gpu"], ["gpu", "other"]]
        assert stored(world)["metadata"]["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY}

    def test_the_list_has_the_pools_that_the_cluster_kept(self, run, record):
        record(RAW, OTHER)
        (entry, with_kept) = run("pool_history", record="completed", pools=[OTHER])["entries"]
        assert [pool["name"] for pool in with_kept["pools"]] == ["other", "gpu"]
        assert entry["digest"] != with_kept["digest"]

    def test_check_mode_predicts_and_writes_nothing(self, run, world):
        predicted = run("pool_history", record="completed", pools=[RAW], check=True)
        assert (predicted["changes"], world.writes, stored(world)) == ([CREATE], [], None)

    def test_somebody_elses_config_map(self, run, world):
        world.put(kinds.CONFIG_MAP.object(names.HISTORY, builders.NAMESPACE, data={}))
        assert "exists but is not ours" in run.failure("pool_history", record="completed", pools=[RAW])


class TestGoingBack:
    def test_an_earlier_list_is_planned_with_the_options_it_had(self, run, record):
        (first,) = record(RAW, overlap="first_wins")["entries"]
        record(RAW, OTHER)
        assert run("pool_history")["target"] == first["digest"]
        made = run("plan_info", pools_from_history=first["digest"])
        asked = run("plan_info", pools=[RAW], overlap="first_wins", prune=True)
        assert made["retire"] == ["other"]
        assert (made["digest"], made["changes"]) == (asked["digest"], asked["changes"])

    def test_keeps_its_target_until_it_is_there(self, run, record):
        (first,) = record(RAW)["entries"]
        record(OTHER)
        digest = first["digest"]
        assert run("pool_history", record="begun", pools_from_history=digest)["changed"]
        assert not run("pool_history", record="begun", pools_from_history=digest)["changed"]
        run("pool_daemonsets", pools_from_history=digest)
        assert run("pool_history")["target"] == digest
        run("pool_daemonsets", pools_from_history=digest, state="absent")
        found = run("pool_history", record="completed", pools_from_history=digest)
        assert [entry["digest"] for entry in found["entries"]][::2] == [digest, digest]
        assert run("pool_history")["target"] == found["entries"][1]["digest"]

    def test_no_earlier_list(self, run, record):
        assert "There is no earlier pool list" in run("pool_history")["no_target"]
        record(RAW)
        found = run("pool_history")
        assert (found["target"], len(found["entries"])) == ("", 1)
        assert "has 1 list" in found["no_target"]

    def test_a_digest_that_is_not_there(self, run):
        assert "has no pool list 'nope'" in run.failure("plan_info", pools_from_history="nope")

    def test_a_first_run_notes_that_there_were_no_pools(self, run, world):
        assert run("pool_history", pools=[RAW])["before"] == "no pools"
        assert run("pool_history", record="begun", pools=[RAW])["changes"] == [CREATE]
        run("pool_daemonsets", pools=[RAW])
        assert not run("pool_history", record="begun", pools=[RAW])["changed"]
        found = run("pool_history", pools=[RAW])
        assert (found["before"], found["no_before"]) == ("no pools", "")

    def test_a_run_of_the_newest_list_notes_no_other(self, run, record):
        record(RAW, OTHER)
        (_first, newest) = run("pool_history", record="completed", pools=[OTHER])["entries"]
        assert not run("pool_history", record="begun", pools=[OTHER])["changed"]
        assert run("pool_history", record="begun", pools=[OTHER], prune=True)["changed"]
        assert run("pool_history")["target"] == newest["digest"]

    def test_a_removal_notes_that_it_begins_where_there_is_a_list(self, run, record):
        assert not run("pool_history", record="begun", remove_pools="all")["changed"]
        record(RAW)
        assert run("pool_history", record="begun", remove_pools="all")["changed"]
        assert not run("pool_history", record="begun", remove_pools=["gpu"])["changed"]

    def test_the_list_before_the_one_given(self, run, record):
        (first,) = record(RAW)["entries"]
        assert run("pool_history", pools=[RAW, OTHER])["before"] == first["digest"]
        again = run("pool_history", pools=[RAW])
        assert again["before"] == ""
        assert "the list that was applied last" in again["no_before"]
        record(RAW, OTHER)
        assert run("pool_history", pools=[RAW], prune=True)["before"] != first["digest"]
        assert "before" not in run("pool_history")

    def test_beside_another_list(self, run, record):
        (entry,) = record(RAW)["entries"]
        told = run.failure("plan_info", pools=[RAW], pools_from_history=entry["digest"])
        assert "more than once (pools, pools_from_history)" in told


WAVE = {"name": "canary", "nodes": ["n1"], "baseline": ["no_heartbeat n1"]}


class TestOpenWaves:
    def begun(self, run, **wave):
        return run("pool_history", record="wave_begun", wave={**WAVE, **wave})["open_wave"]

    def test_from_its_begin_until_it_is_done(self, run):
        noted = self.begun(run)
        assert noted["baseline"] == ["no_heartbeat n1"]
        found = run("pool_history")
        assert found["open_waves"] == [{"open": noted["open"], "name": "canary", "nodes": ["n1"]}]
        assert found["text"] == ["Wave canary (1 node) was started, and its gate has not passed: n1"]
        assert run("pool_history", record="wave_done", wave={"open": noted["open"]})["changed"]
        assert run("pool_history")["open_waves"] == []

    def test_by_its_name_in_the_history(self, run, world):
        noted = self.begun(run)
        world.writes.clear()
        assert run("pool_history", record="wave_begun", wave={"open": noted["open"]})["open_wave"] == noted
        assert self.begun(run, baseline=["later"]) == noted
        assert world.writes == []

    def test_of_a_rollback_is_another(self, run, record):
        (first,) = record(RAW)["entries"]
        ours = self.begun(run)
        back = {"record": "wave_begun", "wave": WAVE, "pools_from_history": first["digest"]}
        assert run("pool_history", **back)["open_wave"]["open"] != ours["open"]

    def test_in_check_mode(self, run, world):
        assert run("pool_history", record="wave_begun", wave=WAVE, check=True)["open_wave"]["baseline"]
        assert world.find(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE) is None

    def test_incomplete_or_unknown(self, run):
        told = "record is wave_begun, but wave lacks name, nodes or baseline; give all three."
        assert run.failure("pool_history", record="wave_begun", wave={"name": "canary"}) == told
        told = "record is wave_done, but wave.open does not name one; give what wave_begun returned."
        assert run.failure("pool_history", record="wave_done") == told
        assert "has no open wave 'nope'" in run.failure("pool_history", record="wave_begun", wave={"open": "nope"})
