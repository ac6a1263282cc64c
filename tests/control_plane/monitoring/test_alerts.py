# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The alerts in the life of a cluster: without the Prometheus operator's API, written, edited, moved, given up, removed.

One cluster; the tests run in order.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import playbooks
import prometheus_operator
from local_cluster import Fleet, Nodes
from playbooks import Account, Run
from promtool import Promtool
from scenario import Object, Scenario, pool

NAME = "virtpools-alerts"
LINE = f"PrometheusRule kubevirt/{NAME}"
LAUNCHER = {
    "virtLauncherImage": "registry.example/virt-launcher:v1.9.0-gpu",
    "selector": {"vmLabels": {"matchLabels": {"class": "gpu"}}},
}
POOLS = [pool("gpu", "gpu", **LAUNCHER), pool("rt", "rt")]
WATCHED = {"virtpools_alerts": True}
ELSEWHERE = {
    **WATCHED,
    "virtpools_alerts_namespace": "monitoring",
    "virtpools_alerts_labels": {"release": "prometheus"},
    "virtpools_runbook_url": "https://docs.example/alerts",
}


@pytest.fixture(scope="module")
def scenario(start_cluster: Any) -> Scenario:
    fleet = Fleet.from_groups(
        Nodes(name="gpu-0", labels={"accelerator": "gpu"}),
        Nodes(name="rt-0", labels={"accelerator": "rt"}),
        Nodes(prefix="plain-", count=2),
    )
    scenario = Scenario(start_cluster(fleet, agent="--start-seconds 0.1 --stop-seconds 0.1"))
    scenario.exclude_primary()
    return scenario


def alert_lines(run: Run) -> list[str]:
    return [line for line in run.changes if line.startswith("PrometheusRule")]


def pending(scenario: Scenario) -> bool:
    """Say whether a run would change anything."""
    return bool(scenario.module("plan_info", pools=POOLS, alerts=True)["pending"])


def foreign(namespace: str) -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"groups": [{"name": "theirs", "rules": [{"record": "theirs", "expr": 1}]}]},
    }


def test_without_the_operator_the_plan_warns_and_pools_work(scenario: Scenario) -> None:
    run = scenario.site(POOLS, **WATCHED).succeeded()
    told = [finding for finding in run.plan["findings"] if finding["code"] == "alerts_not_served"]
    assert [finding["severity"] for finding in told] == ["warning"]
    assert alert_lines(run) == []
    assert scenario.owners() == {"gpu-0": "gpu", "rt-0": "rt"}
    assert pending(scenario) is False
    assert not {"alerts_missing", "alerts_edited"} & scenario.findings().keys()


def test_with_it_they_are_written_once(scenario: Scenario) -> None:
    prometheus_operator.install(scenario.cluster)
    assert "the pools have no alerts" in scenario.findings()["alerts_missing"]
    run = scenario.site(POOLS, **WATCHED).succeeded()
    assert run.changes == run.plan["changes"] == [f"{LINE}: create"]
    (rule,) = prometheus_operator.rules(scenario.cluster)
    assert rule["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "virtpools"
    scenario.settled(POOLS, **WATCHED)
    assert not {"alerts_missing", "alerts_edited"} & scenario.findings().keys()


@pytest.mark.thorough  # compiling promtool takes minutes
def test_promtool_accepts_them_as_the_api_server_stores_them(scenario: Scenario) -> None:
    (rule,) = prometheus_operator.rules(scenario.cluster)
    assert Promtool(rule["spec"]["groups"]).problems() == ""


def test_a_reader_may_plan_them(scenario: Scenario) -> None:
    reader = Account.make(scenario.cluster, "reader")
    plan = scenario.module("plan_info", kubeconfig=str(reader.kubeconfig), pools=POOLS, alerts=True)
    assert plan["errors"] == []


def test_what_was_changed_by_hand_is_reported_and_repaired(scenario: Scenario) -> None:
    what = f"prometheusrule/{NAME}"
    theirs = {"name": "theirs", "rules": [{"record": "theirs", "expr": "vector(1)"}]}
    before = prometheus_operator.rules(scenario.cluster)[0]
    for disturb in (
        lambda: scenario.patch(what, {"op": "replace", "path": "/spec/groups/0/rules/9/for", "value": "9d"}),
        lambda: scenario.patch(what, {"op": "add", "path": "/spec/groups/-", "value": theirs}),
        lambda: scenario.patch(what, merge={"metadata": {"labels": {"prometheus.kubevirt.io": None}}}),
    ):
        # The finding sees each of them; the part of a run that writes alerts mends all.
        disturb()
        assert f"kubevirt/{NAME} was changed by hand" in scenario.findings()["alerts_edited"]
    mend = {"part": "alerts", "pools": POOLS, "alerts": True}
    planned = scenario.module("plan_info", pools=POOLS, alerts=True)["changes"]
    assert scenario.module("run_part", **mend)["changes"] == planned == [f"{LINE}: update"]
    after = prometheus_operator.rules(scenario.cluster)[0]
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    scenario.cluster.kubectl("delete", "-n", "kubevirt", *what.split("/"))
    assert "alerts_missing" in scenario.findings()
    assert scenario.module("run_part", **mend)["changes"] == [f"{LINE}: create"]
    assert pending(scenario) is False


@pytest.mark.thorough  # unit tests refuse both
def test_what_is_not_ours_is_left_and_refused(scenario: Scenario) -> None:
    assert "Namespace monitoring of virtpools_alerts_namespace does not exist" in scenario.refused(POOLS, **ELSEWHERE)
    scenario.cluster.kubectl("create", "namespace", "monitoring")
    scenario.apply(foreign("monitoring"))
    error = scenario.refused(POOLS, **ELSEWHERE)
    assert f"PrometheusRule monitoring/{NAME} exists but is not ours" in error
    scenario.settled(POOLS, **WATCHED)
    scenario.cluster.kubectl("delete", "prometheusrule", NAME, "-n", "monitoring")


@pytest.mark.thorough  # a unit test moves them
def test_they_move_to_another_namespace(scenario: Scenario) -> None:
    run = scenario.site(POOLS, **ELSEWHERE).succeeded()
    moved = f"PrometheusRule monitoring/{NAME}"
    assert run.changes == run.plan["changes"] == [f"{moved}: create", f"{LINE}: delete"]
    (rule,) = prometheus_operator.rules(scenario.cluster)
    assert rule["metadata"]["namespace"] == "monitoring"
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"]["groups"][0]["rules"][-1]["annotations"]["runbook_url"].startswith(
        "https://docs.example/alerts#"
    )
    scenario.settled(POOLS, **ELSEWHERE)


@pytest.mark.thorough  # test_idempotence predicts a run that prunes
def test_check_mode_predicts_the_run_that_takes_a_pool_away(scenario: Scenario) -> None:
    pruned = {**ELSEWHERE, "virtpools_prune": True}
    with scenario.no_writes():
        predicted = scenario.site(POOLS[:1], "--check", "--diff", **pruned).succeeded()
    run = scenario.site(POOLS[:1], **pruned).succeeded()
    assert predicted.changes == run.changes == run.plan["changes"]
    assert run.changes[-2:] == [
        "DaemonSet kubevirt/virt-handler-rt: delete",
        f"PrometheusRule monitoring/{NAME}: update",
    ]
    (rule,) = prometheus_operator.rules(scenario.cluster)
    assert '"rt"' not in json.dumps(rule["spec"]).replace('\\"', '"')
    scenario.settled(POOLS[:1], **pruned)
    scenario.site(POOLS, **ELSEWHERE).succeeded()


@pytest.mark.thorough  # a unit test brings them back
def test_a_rollback_restores_what_was_chosen(scenario: Scenario) -> None:
    """The last list but one was that without the pool rt; the alerts that it had are in the history."""
    off = scenario.site(POOLS).succeeded()
    assert off.changes == [f"PrometheusRule monitoring/{NAME}: delete"]
    assert prometheus_operator.rules(scenario.cluster) == []
    quick = {"virtpools_node_timeout": 30}
    back = playbooks.run("rollback", scenario.writer.kubeconfig, None, **quick).succeeded()
    assert alert_lines(back) == [f"PrometheusRule monitoring/{NAME}: create"]
    assert prometheus_operator.rules(scenario.cluster)[0]["metadata"]["labels"]["release"] == "prometheus"


def remove(scenario: Scenario, pools: str) -> Run:
    variables = {"virtpools_remove": pools, "virtpools_node_timeout": 30, "virtpools_max_unavailable": "100%"}
    return playbooks.run("remove", scenario.writer.kubeconfig, None, **variables).succeeded()


@pytest.mark.thorough  # test_remove_everything removes them with all pools, a unit test with some
def test_a_removal_takes_them_with_the_last_pool(scenario: Scenario) -> None:
    run = remove(scenario, "rt")
    assert run.changes == run.plan["changes"]
    assert run.changes[-1] == f"PrometheusRule monitoring/{NAME}: update"
    (rule,) = prometheus_operator.rules(scenario.cluster)
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    run = remove(scenario, "all")
    assert run.changes == run.plan["changes"]
    assert f"PrometheusRule monitoring/{NAME}: delete" in run.changes
    assert prometheus_operator.rules(scenario.cluster) == []
    assert scenario.owners() == {}
