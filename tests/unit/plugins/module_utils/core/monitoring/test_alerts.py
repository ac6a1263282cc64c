# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import state
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verification import Verifier
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring import alert_rules, alerts
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alert_rules import Scope
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alerts import Settings
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.observed.snapshot import Monitoring
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import goals, plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders, vms

GPU, RT = builders.pool("gpu"), builders.pool("rt")
WATCHED = Options(alerts=Settings())
ROOT = Path(__file__).parents[6]
NO_DRIFT = {
    "no_handler": "VirtPoolsNoReadyHandler",
    "handler_lost": "VirtPoolsNodeLostHandler",
    "two_handlers": "VirtPoolsTwoHandlers",
    "handler_not_ready": "VirtPoolsHandlerNotReady",
    "in_transit": "VirtPoolsNodeInTransit",
    "no_ready_handler": "VirtPoolsNoReadyHandler",
    "handler_outdated": "VirtPoolsHandlersOutdated",
    "handler_image": "VirtPoolsHandlersOutdated",
    "daemonset_missing": "VirtPoolsDaemonSetMissing",
    "daemonset_not_ready": "VirtPoolsHandlersMissing",
    "policy_missing": "VirtPoolsLauncherPolicyAbsent",
    "launcher_refuses_arguments": "VirtPoolsVMStartsFail",
    "wrong_image": "VirtPoolsVMsWrong",
    "wrong_node": "VirtPoolsVMsWrong",
    "at_risk": "VirtPoolsVMsWrong",
    "node_drift": "a verification has wrong_owner instead",
    "pool_unreadable": "a verification has kept_pool_unreadable instead",
    "exclusion_edit_impossible": "where the exclusion is lost, exclusion_missing",
    "guard_refuses": "KubeVirt is Degraded, and has an alert for it",
    "operator_nodes_wrong": "operator mode writes no alerts",
    "operator_gate_off": "operator mode writes no alerts",
    "history_unreadable": "about the record of runs, which no run repairs",
    "approved_list_missing": "the workflow fails",
    "list_not_applied": "about the list that was given, not about the cluster",
    "not_schedulable": "the state of a node, which no run repairs",
    "heartbeat_old": "the state of a node, which no run repairs",
    "node_not_ready": "the state of a node, which no run repairs",
    "node_cordoned": "the state of a node, which no run repairs",
    "pool_without_nodes": "as the list asks for",
    "pending": "as VM owners or the cluster's capacity ask for",
    "unknown_image": "may be right",
    "image_unchecked": "may be right",
    "outdated": "until the VM's next start",
    "pull_pods_left": "harmless; the next run deletes them",
    "canary_vms_left": "harmless; the next run deletes them",
    "policy_candidate_left": "harmless; the next run deletes it",
}
"""The other findings of a verification: their own alert, or why they have none."""
LINE = f"{kinds.PROMETHEUS_RULE} kubevirt/{names.ALERTS}"


def rule(*pools, settings=None, **metadata):
    """The live PrometheusRule for these pools."""
    obj = copy.deepcopy(alerts.derive(Scope(builders.NAMESPACE, tuple(sorted(pools))), settings or Settings()))
    obj["metadata"].update(uid="uid-alerts", resourceVersion="7", **metadata)
    return obj


def cluster(*rules, pools=(GPU,), served=True, missing=(), **fields):
    monitoring = Monitoring(served=served, rules=rules, missing_namespaces=frozenset(missing))
    fields = {"admission": vms.admission(), **fields}
    return builders.snapshot_of([builders.node()], pools, monitoring=monitoring, **fields)


def made(*rules, pools=(GPU,), options=WATCHED, has=None, **fields):
    return plan.make_plan(cluster(*rules, pools=pools if has is None else has, **fields), pools, options)


def watched(obj):
    """The pools that a PrometheusRule names."""
    expr = obj["spec"]["groups"][0]["rules"][0]["expr"]
    return [name for name in re.findall(r'"pool", "([-a-z0-9]+)"', expr) if name != names.PRIMARY]


class TestSettings:
    def test_of_options(self):
        assert alerts.parse(False, None, {"no": "matter"}, "nor this") is None
        assert alerts.parse(True, None, None, None) == Settings()
        given = alerts.parse(True, "monitoring", {"release": "prom"}, "https://docs.example/alerts")
        assert given == Settings("monitoring", {"release": "prom"}, "https://docs.example/alerts")
        assert Settings.from_object(json.loads(json.dumps(given.to_object()))) == given

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ((None, "release", None), 'virtpools_alerts_labels is "release"; give a mapping.'),
            ((None, {"a b": "c"}, None), 'virtpools_alerts_labels has the label "a b", which'),
            ((None, {"k8s-app": "x"}, None), "has the label k8s-app, which the PrometheusRule has already"),
            ((None, {names.MANAGED_BY_LABEL: "x"}, None), "which the PrometheusRule has already"),
            (("Monitoring", None, None), 'virtpools_alerts_namespace is "Monitoring", which is not made of'),
            ((None, None, "docs/alerts.md"), 'virtpools_runbook_url is "docs/alerts.md"; give the address of a page'),
            ((None, None, "https://docs.example/a#b"), "without an anchor"),
            ((None, None, "https://docs.example/{{ x }}"), "give the address of a page"),
        ],
    )
    def test_that_are_wrong(self, options, told):
        with pytest.raises(InputErrors) as caught:
            alerts.parse(True, *options)
        (message,) = caught.value.messages
        assert told in message

    def test_all_problems_are_told_together(self):
        with pytest.raises(InputErrors) as caught:
            alerts.parse(True, "A", "b", "c")
        assert len(caught.value.messages) == 3

    def test_the_default_page_is_in_the_documentation_of_galaxy_yml(self):
        galaxy = (ROOT / "galaxy.yml").read_text("utf-8")
        (documentation,) = re.findall(r"^documentation: (\S+)/README\.md$", galaxy, re.MULTILINE)
        assert f"{documentation}/docs/alerts.md" == alerts.RUNBOOK_URL


class TestObject:
    def test_carries_labels_by_which_prometheus_selects_it(self):
        obj = rule("gpu", settings=Settings("monitoring", {"release": "prom"}))
        assert obj["metadata"]["namespace"] == "monitoring"
        assert obj["metadata"]["labels"] == {
            "k8s-app": "kubevirt",
            "prometheus.kubevirt.io": "true",
            "release": "prom",
            names.MANAGED_BY_LABEL: names.MANAGED_BY,
        }

    def test_every_alert_links_to_its_section_of_the_page(self):
        sections = re.findall(r"^### (.+)$", (ROOT / "docs/alerts.md").read_text("utf-8"), re.MULTILINE)
        rules = [each for each in rule("gpu")["spec"]["groups"][0]["rules"] if "alert" in each]
        links = [each["annotations"]["runbook_url"] for each in rules]
        assert links == [f"{alerts.RUNBOOK_URL}#{section.lower()}" for section in sections]
        assert [each["alert"] for each in rules] == sections == list(alert_rules.ALERTS)

    def test_alerts_are_labelled_as_kubevirts_own(self):
        for each in rule("gpu")["spec"]["groups"][0]["rules"]:
            if "alert" in each:
                labels = dict(each["labels"])
                assert labels.pop("severity") in ("critical", "warning")
                assert labels.pop("operator_health_impact") in ("critical", "warning", "none")
                parts = {"kubernetes_operator_part_of": "kubevirt", "kubernetes_operator_component": "virtpools"}
                assert labels == parts
                assert each["annotations"].keys() == {"summary", "description", "runbook_url"}

    def test_findings_of_a_verification_are_drift_or_told_apart(self):
        page = (ROOT / "docs/findings.md").read_text("utf-8")
        sections = [part for part in page.split("\n## ") if part.startswith(("In the state of", "In a verification"))]
        codes = set(re.findall(r"^\| `(\w+)` \|", "\n".join(sections), re.MULTILINE))
        assert len(sections) == 2
        of_plan = {"history_unreadable", "kept_pool_unreadable", "outdated_policy_stale", "owner_unknown"}
        assert codes | of_plan == {*alert_rules.DRIFT, *NO_DRIFT}
        named = {reason for reason in NO_DRIFT.values() if reason.startswith("VirtPools")}
        assert named <= set(alert_rules.ALERTS)
        assert not set(alert_rules.DRIFT) & set(NO_DRIFT)

    def test_a_pool_that_does_not_follow_kubevirt_is_drift(self):
        live = builders.pool_daemonset(RT)
        live["metadata"]["annotations"] = {}
        found = builders.snapshot_of([builders.node()], [GPU], more=[live])
        report = Verifier(plan.make_plan(found, [GPU], Options())).report()
        assert set(builders.codes(report.findings)) & set(alert_rules.DRIFT) == {"kept_pool_unreadable"}


class TestPlan:
    def test_creates_updates_and_deletes(self):
        assert made().part("alerts").changes(0) == (f"{LINE}: create",)
        assert made(rule("gpu", "gone")).part("alerts").changes(0) == (f"{LINE}: update",)
        gone = made(rule("gpu"), options=Options())
        assert gone.part("alerts").changes(0) == (f"{LINE}: delete",)
        assert set(gone.part("alerts").changes(0)) <= set(gone.changes())
        assert gone.changed

    def test_has_nothing_to_do_where_it_is_as_asked_for(self):
        assert not made(rule("gpu")).changed
        assert made(options=Options()).part("alerts").changes(0) == ()

    @pytest.mark.parametrize(
        "disturb",
        [
            lambda obj: obj["metadata"]["labels"].pop("k8s-app"),
            lambda obj: obj["metadata"]["annotations"].clear(),
            lambda obj: obj["spec"]["groups"][0]["rules"].pop(),
            lambda obj: obj["spec"]["groups"].append({"name": "theirs"}),
        ],
    )
    def test_repairs_what_others_changed(self, disturb):
        live = rule("gpu")
        disturb(live)
        assert made(live).part("alerts").changes(0) == (f"{LINE}: update",)

    def test_leaves_labels_of_others(self):
        live = rule("gpu")
        live["metadata"]["labels"]["team"] = "a"
        assert made(live).part("alerts").changes(0) == ()

    def test_moves_to_another_namespace(self):
        settings = Settings("monitoring")
        moved = made(rule("gpu"), options=Options(alerts=settings))
        assert moved.part("alerts").changes(0) == (
            f"{kinds.PROMETHEUS_RULE} monitoring/{names.ALERTS}: create",
            f"{LINE}: delete",
        )
        assert made(rule("gpu", settings=settings), options=Options(alerts=settings)).part("alerts").changes(0) == ()

    def test_the_order_of_the_list_does_not_matter(self):
        assert made(rule("gpu", "rt"), pools=(RT, GPU)).part("alerts").changes(0) == ()

    def test_watches_pools_that_are_kept_without_being_listed(self):
        found = made(rule("gpu", "rt"), has=(GPU, RT))
        assert found.part("alerts").changes(0) == ()
        assert watched(found.part("alerts").desired()) == ["gpu", "rt"]

    def test_watches_a_pool_until_its_daemonset_is_deleted(self):
        found = made(rule("gpu", "rt"), has=(GPU, RT), options=replace(WATCHED, prune=True))
        assert found.part("alerts").changes(0) == ()
        assert found.part("alerts").changes("last") == (f"{LINE}: update",)
        assert found.last_changes() == ("DaemonSet kubevirt/virt-handler-rt: delete", f"{LINE}: update")
        assert watched(found.part("alerts").desired(after_removal=True)) == ["gpu"]

    def test_first_alerts_of_a_run_that_deletes_a_pool_come_twice(self):
        found = made(has=(GPU, RT), options=replace(WATCHED, prune=True))
        assert (found.part("alerts").changes(0), found.part("alerts").changes("last")) == (
            (f"{LINE}: create",),
            (f"{LINE}: update",),
        )
        assert found.part("alerts").written(after_removal=True) == (f"{LINE}: create",), (
            "when the first was never written"
        )

    def test_watches_a_pool_that_cannot_go_now(self):
        stuck = builders.node("n2", "rt", ready=False)
        nodes = [builders.node(), stuck]
        monitoring = Monitoring(served=True, rules=(rule("gpu", "rt"),))
        found = builders.snapshot_of(nodes, [GPU, RT], admission=vms.admission(), monitoring=monitoring)
        made_plan = plan.make_plan(found, [GPU], replace(WATCHED, prune=True))
        assert "pool_not_removed" in builders.codes(made_plan.findings)
        assert (made_plan.part("alerts").changes(0), made_plan.part("alerts").changes("last")) == ((), ())

    @pytest.mark.parametrize(
        ("backend", "served", "expected"),
        [("auto", {}, True), ("none", {}, False), ("kyverno", {"kyverno": True}, False)],
    )
    def test_counts_the_launcher_policy_only_where_api_servers_do(self, backend, served, expected):
        options = replace(WATCHED, launcher_backend=backend)
        found = made(pools=(vms.gpu(),), options=options, admission=vms.admission(**served))
        assert found.part("alerts").admission_policy is expected
        assert not made(admission=vms.admission(**served)).part("alerts").admission_policy, "no pool needs one"

    def test_is_approved_with_its_settings(self):
        digests = [
            made(options=Options(alerts=settings)).digest
            for settings in (
                None,
                Settings(),
                Settings("monitoring"),
                Settings(labels=Settings().labels, runbook_url="https://x.y"),
            )
        ]
        assert len({digest.objects for digest in digests}) == len({digest.options for digest in digests}) == 4
        assert len({digest.owners for digest in digests}) == 1
        assert made(rule("gpu")).digest == made().digest, "not what is left to do"

    def test_says_when_prometheusrules_are_not_served(self):
        found = made(served=False)
        assert "alerts_not_served" in builders.codes(found.findings, "warning")
        assert "install the Prometheus operator" in builders.message(found.findings, "alerts_not_served")
        assert found.errors == ()
        assert not found.changed
        assert "alerts_not_served" not in builders.codes(made(served=False, options=Options()).findings)

    def test_needs_its_namespace(self):
        found = made(missing=["monitoring"], options=Options(alerts=Settings("monitoring")))
        assert builders.codes(found.errors) == ["alerts_namespace_missing"]

    def test_never_takes_over_a_foreign_object(self):
        foreign = rule("gpu", labels={})
        found = made(foreign)
        assert builders.codes(found.errors) == ["alerts_foreign"]
        assert "PrometheusRule kubevirt/virtpools-alerts exists but is not ours" in found.errors[0].message
        assert made(foreign, options=Options()).part("alerts").changes(0) == ()
        elsewhere = rule("gpu", labels={}, namespace="other")
        assert made(elsewhere).part("alerts").changes(0) == (f"{LINE}: create",), "the name is free in our namespace"

    def test_is_left_alone_where_only_nodes_go_back(self):
        found = plan.make_plan(cluster(rule("gpu")), [GPU], replace(WATCHED, restore_nodes=frozenset(["n1"])))
        assert found.part("alerts") is None

    def test_is_left_alone_where_it_was_not_read(self):
        assert plan.make_plan(replace(cluster(), monitoring=None), [GPU], WATCHED).part("alerts") is None


class TestRemoval:
    def removed(self, pools, *rules, **fields):
        return plan.make_plan(cluster(*rules, pools=(GPU, RT), **fields), (), Options(remove_pools=pools))

    def test_of_one_pool_keeps_settings_and_follows_the_daemonset(self):
        settings = Settings("monitoring", {"release": "prom"}, "https://docs.example")
        found = self.removed(("rt",), rule("gpu", "rt", settings=settings))
        line = f"{kinds.PROMETHEUS_RULE} monitoring/{names.ALERTS}: update"
        assert found.last_changes() == ("DaemonSet kubevirt/virt-handler-rt: delete", line)
        assert found.part("alerts").changes(0) == ()
        desired = found.part("alerts").desired(after_removal=True)
        assert watched(desired) == ["gpu"]
        assert desired["metadata"]["labels"].items() >= {"release": "prom"}.items()
        assert desired["spec"]["groups"][0]["rules"][-1]["annotations"]["runbook_url"].startswith(
            "https://docs.example#"
        )

    def test_of_the_last_pool_deletes_it(self):
        found = self.removed("all", rule("gpu", "rt"))
        *daemonsets, alert, exclusion = found.last_changes()
        assert [line.rpartition(": ")[2] for line in daemonsets] == ["delete", "delete"]
        assert alert == f"{LINE}: delete"
        assert exclusion.startswith("KubeVirt ")
        assert found.changes().count(alert) == 1

    def test_that_was_cut_off_before_it_is_finished(self):
        stock = {"of_kubevirt": builders.kubevirt(), "of_primary": builders.primary(excluded=False)}
        found = plan.make_plan(cluster(rule("gpu"), pools=(), **stock), (), Options(remove_pools="all"))
        assert found.changes() == found.part("alerts").changes("last") == (f"{LINE}: delete",)
        assert found.changed
        assert not plan.make_plan(cluster(pools=(), **stock), (), Options(remove_pools="all")).changed

    def test_without_alerts_has_nothing_to_do(self):
        assert self.removed("all").part("alerts").changes("last") == ()
        assert self.removed(("rt",)).part("alerts").changes("last") == ()

    def test_an_approved_one_holds_when_the_alerts_are_gone(self):
        assert self.removed("all", rule("gpu")).digest == self.removed("all").digest


class TestRecorded:
    def test_in_the_object_itself(self):
        settings = Settings("monitoring", {"release": "prom"}, "https://docs.example")
        assert alerts.recorded(Monitoring(served=True, rules=(rule("gpu", settings=settings),))) == settings
        assert alerts.recorded(Monitoring(served=True)) is None
        assert alerts.recorded(None) is None

    def test_where_it_cannot_be_read_the_defaults_count(self):
        for annotation in ("{", "{}", "7", '{"digest": "x", "settings": {"labels": 7}}'):
            live = rule("gpu", annotations={names.ALERTS_ANNOTATION: annotation})
            assert alerts.recorded(Monitoring(served=True, rules=(live,))) == Settings("kubevirt")

    def test_counts_for_pools_that_the_cluster_records(self):
        settings = Settings("monitoring")
        found = goals.recorded_options(cluster(rule("gpu", settings=settings)), Options())
        assert found.alerts == settings


class TestExamine:
    def noted(self, *, alerts_wanted):
        return vms.admission(builders.history_of([GPU], WATCHED if alerts_wanted else Options()))

    def found(self, *rules, alerts_wanted=True, **fields):
        admission = self.noted(alerts_wanted=alerts_wanted)
        return builders.codes(state.examine(cluster(*rules, admission=admission, **fields)).findings)

    def test_as_it_was_written(self):
        assert self.found(rule("gpu")) == []
        assert self.found(rule("gpu", settings=Settings("monitoring", {"a": "b"}))) == []
        assert self.found(alerts_wanted=False) == []

    @pytest.mark.parametrize(
        "disturb",
        [
            lambda obj: obj["spec"]["groups"][0]["rules"].pop(),
            lambda obj: obj["metadata"]["labels"].pop("prometheus.kubevirt.io"),
            lambda obj: obj["metadata"]["labels"].pop("release"),
            lambda obj: obj["metadata"]["annotations"].clear(),
            lambda obj: obj.pop("spec"),
        ],
    )
    def test_changed_by_hand(self, disturb):
        live = rule("gpu", settings=Settings(labels={"release": "prom"}))
        disturb(live)
        assert self.found(live) == ["alerts_edited"]

    def test_deleted_by_hand(self):
        assert self.found() == ["alerts_missing"]
        assert self.found(rule("gpu", labels={})) == ["alerts_missing"], "that is not ours"
        assert self.found(served=False) == [], "the plan says so"

    def test_a_dump_may_leave_it_out(self):
        monitoring = Monitoring.from_dump([])
        admission = self.noted(alerts_wanted=True)
        found = builders.snapshot_of([builders.node()], [GPU], admission=admission, monitoring=monitoring)
        assert builders.codes(state.examine(found).findings) == []
