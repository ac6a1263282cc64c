# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.objects import short_digest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import history
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

GPU = builders.RAW_POOL
RT = {**GPU, "name": "rt", "nodeSelector": {"hw": "rt"}}
WANTED = {"pools": [GPU], "alerts": True}
LINE = f"PrometheusRule kubevirt/{names.ALERTS}"


def live(world, namespace=builders.NAMESPACE):
    return world.find(kinds.PROMETHEUS_RULE, names.ALERTS, namespace)


def pools(obj):
    expr = obj["spec"]["groups"][0]["rules"][0]["expr"]
    return [name for name in ("gpu", "rt") if f'"{name}"' in expr]


@pytest.fixture
def written(run, excluded):
    run("run_part", part="alerts", **WANTED)
    excluded.writes.clear()
    return excluded


def test_in_check_mode_says_what_it_would_write(run, excluded):
    found = run("run_part", part="alerts", check=True, **WANTED)
    assert (found["changed"], found["changes"], excluded.writes) == (True, [f"{LINE}: create"], [])
    (diff,) = found["diff"]
    assert diff["after_header"] == f"PrometheusRule/kubevirt/{names.ALERTS}"
    assert diff["before"] == {}
    assert diff["after"]["spec"]["groups"][0]["name"] == "virtpools"


def test_is_written_once(run, excluded):
    assert run("run_part", part="alerts", **WANTED)["changes"] == [f"{LINE}: create"]
    assert pools(live(excluded)) == ["gpu"]
    excluded.writes.clear()
    again = run("run_part", part="alerts", **WANTED)
    assert (again["changed"], again["changes"], again["diff"], excluded.writes) == (False, [], [], [])


def test_goes_where_it_is_asked_for(run, excluded):
    excluded.put(kinds.NAMESPACE.object("monitoring"))
    settings = {"alerts_namespace": "monitoring", "alerts_labels": {"release": "prom"}, "runbook_url": "https://x.y/z"}
    run("run_part", part="alerts", **WANTED)
    found = run("run_part", part="alerts", **WANTED, **settings)
    assert found["changes"] == [f"PrometheusRule monitoring/{names.ALERTS}: create", f"{LINE}: delete"]
    assert live(excluded) is None
    obj = live(excluded, "monitoring")
    assert obj["metadata"]["labels"]["release"] == "prom"
    assert obj["spec"]["groups"][0]["rules"][-1]["annotations"]["runbook_url"].startswith("https://x.y/z#")


@pytest.mark.parametrize("check", [True, False])
def test_what_others_changed_is_put_back(run, written, check):
    rule = live(written)
    rule["spec"]["groups"][0]["rules"][-1]["for"] = "99d"
    rule["spec"]["groups"].append({"name": "theirs"})
    found = run("run_part", part="alerts", check=check, **WANTED)
    assert found["changes"] == [f"{LINE}: update"]
    (diff,) = found["diff"]
    assert "99d" in str(diff["before"])
    assert "99d" not in str(diff["after"])
    assert len(live(written)["spec"]["groups"]) == (2 if check else 1)
    assert bool(written.writes) is not check


def test_is_put_back_although_the_prometheus_operator_notes_it(run, written):
    """Between the two writes it may write the status of the object, which the second must not be refused for."""
    live(written)["spec"]["theirs"] = {}  # which server-side apply keeps

    def note(request):
        if request.method == "PUT" and request.path.endswith(names.ALERTS):
            written.before = lambda _request: None
            written.touch(live(written))

    written.before = note
    run("run_part", part="alerts", **WANTED)
    assert live(written)["spec"].keys() == {"groups"}


def test_is_deleted_when_it_is_no_longer_asked_for(run, written):
    found = run("run_part", part="alerts", pools=[GPU])
    assert found["changes"] == [f"{LINE}: delete"]
    assert live(written) is None


def test_somebody_elses_object_is_refused_and_left(run, excluded):
    foreign = kinds.PROMETHEUS_RULE.object(names.ALERTS, builders.NAMESPACE, spec={"groups": []})
    excluded.put(foreign)
    message = run.failure("run_part", part="alerts", **WANTED)
    assert message == (
        f"{LINE} exists but is not ours (it lacks the label app.kubernetes.io/managed-by=virtpools); delete or rename it or, "
        "if another client has taken the label away, restore it, then run again."
    )
    assert not run("run_part", part="alerts", pools=[GPU])["changed"]
    assert excluded.writes == []


def test_a_namespace_that_does_not_exist_is_refused(run, excluded):
    message = run.failure("run_part", part="alerts", **WANTED, alerts_namespace="nowhere")
    assert "Namespace nowhere of virtpools_alerts_namespace does not exist" in message
    assert excluded.writes == []


def test_without_the_operator_there_is_nothing_to_write(run, excluded):
    excluded.unserved.add("PrometheusRule")
    found = run("run_part", part="alerts", **WANTED)
    assert (found["changed"], excluded.writes) == (False, [])


def test_bad_settings_are_refused_before_anything_is_read(run):
    assert 'virtpools_alerts_labels is "a=b"; give a mapping.' in run.failure(
        "run_part", part="alerts", **WANTED, alerts_labels="a=b"
    )
    assert not run.connected


class TestPoolThatGoes:
    @pytest.fixture
    def both(self, run, excluded):
        excluded.put(builders.pool_daemonset(builders.pool("rt", virtHandlerImage=GPU["virtHandlerImage"]), desired=0))
        run("run_part", part="alerts", pools=[GPU, RT], alerts=True)
        excluded.writes.clear()
        return excluded

    def test_is_watched_until_its_daemonset_is_deleted(self, run, both):
        assert not run("run_part", part="alerts", **WANTED, prune=True)["changed"]
        run("pool_daemonsets", **WANTED, prune=True, state="absent")
        found = run("run_part", part="alerts", **WANTED, prune=True, step="last")
        assert found["changes"] == [f"{LINE}: update"]
        assert pools(live(both)) == ["gpu"]
        assert not run("run_part", part="alerts", **WANTED, prune=True, step="last")["changed"]

    def test_check_mode_takes_it_that_the_daemonset_is_gone(self, run, both):
        found = run("run_part", part="alerts", **WANTED, prune=True, step="last", check=True)
        assert found["changes"] == [f"{LINE}: update"]
        assert both.writes == []

    def test_check_mode_takes_it_that_the_first_step_is_done(self, run, both):
        both.drop(kinds.PROMETHEUS_RULE, names.ALERTS, builders.NAMESPACE)
        plan = run("plan_info", **WANTED, prune=True)
        assert plan["steps"] == {"0": ["alerts"], "last": ["alerts"]}
        lines = [line for line in plan["changes"] if line.startswith(LINE)]
        assert lines == [f"{LINE}: create", f"{LINE}: update"]
        first = run("run_part", part="alerts", **WANTED, prune=True, check=True)["changes"]
        last = run("run_part", part="alerts", **WANTED, prune=True, step="last", check=True)["changes"]
        assert [*first, *last] == lines

    def test_is_left_out_by_a_removal(self, run, both):
        found = run("run_part", part="alerts", remove_pools=["rt"], step="last")
        assert found["changes"] == [f"{LINE}: update"]
        assert pools(live(both)) == ["gpu"]
        assert run("run_part", part="alerts", remove_pools="all", step="last")["changes"] == [f"{LINE}: delete"]
        assert live(both) is None


class TestRights:
    @pytest.mark.parametrize("verb", ["create", "patch", "update", "delete"])
    def test_of_a_run_that_writes_it(self, run, excluded, verb):
        excluded.denied.add((verb, "prometheusrules"))
        message = run.failure("plan_info", for_run=True, **WANTED)
        assert (
            f"lacks 1 permission on https://api.example:6443: {verb} prometheusrules.monitoring.coreos.com." in message
        )
        run("plan_info", for_run=True, pools=[GPU])

    def test_to_read_it(self, run, excluded):
        excluded.denied.add(("list", "prometheusrules"))
        assert "list prometheusrules.monitoring.coreos.com. Bind it to the ClusterRole" in run.failure("pool_info")
        excluded.unserved.add("PrometheusRule")
        run("pool_info")


class TestHistory:
    def test_a_rollback_brings_the_alerts_of_the_list_back(self, run, written):
        written.put(kinds.NAMESPACE.object("monitoring"))
        settings = {"alerts_namespace": "monitoring", "alerts_labels": {"release": "prom"}}
        (first,) = run("pool_history", record="completed", **WANTED, **settings)["entries"]
        run("pool_history", record="completed", pools=[GPU])
        found = run("run_part", part="alerts", pools_from_history=first["digest"])
        assert found["changes"] == [f"PrometheusRule monitoring/{names.ALERTS}: create", f"{LINE}: delete"]
        assert live(written, "monitoring")["metadata"]["labels"]["release"] == "prom"

    def test_a_list_without_alerts_has_the_digest_that_it_had(self, run):
        """Before alerts existed, the digest was of these options alone."""
        (entry,) = run("pool_history", record="completed", pools=[GPU])["entries"]
        options = {name: entry["options"][name] for name in history.OPTIONS}
        assert entry["digest"] == short_digest({"pools": entry["pools"], "options": options})
        with_alerts = run("pool_history", record="completed", **WANTED)["entries"][-1]
        assert with_alerts["digest"] != entry["digest"]

    def test_the_namespace_of_an_earlier_list_may_be_gone(self, run, written):
        (first,) = run("pool_history", record="completed", **WANTED, alerts_namespace="gone")["entries"]
        assert "Namespace gone" in run.failure("run_part", part="alerts", pools_from_history=first["digest"])
