# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import printable
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verdicts import FAILING, VERDICTS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import junit
from ansible_collections.virtpools.kubevirt.tests.unit.support import reports


def cases(report, **about):
    """Every test case by suite and name: failed, skipped, or passed; and the file, whose totals are checked."""
    root = ET.fromstring(junit.render(report, **about))
    results = {}
    for suite in (root, *root.iter("testsuite")):
        found = list(suite.iter("testcase"))
        assert int(suite.get("tests")) == len(found)
        assert int(suite.get("failures")) == len([case for case in found if case.find("failure") is not None])
        assert int(suite.get("skipped")) == len([case for case in found if case.find("skipped") is not None])
    for suite in root.iter("testsuite"):
        for case in suite.iter("testcase"):
            failed, skipped = case.find("failure") is not None, case.find("skipped") is not None
            assert not (failed and skipped)
            results[suite.get("name"), case.get("name")] = "failed" if failed else "skipped" if skipped else "passed"
    return results, root


class TestResults:
    def test_a_healthy_cluster_has_no_failure(self):
        results, _root = cases(reports.report(nodes=[reports.node("n1")]))
        assert set(results.values()) == {"passed"}
        assert ("nodes", "n1") in results
        assert ("daemonsets", "virt-handler-gpu") in results
        assert ("policy", "launcher policy") in results
        assert ("pools", "gpu") in results

    @pytest.mark.parametrize("verdict", [verdict for verdict in VERDICTS if verdict != "correct"])
    def test_a_vm_fails_or_is_skipped_by_its_verdict(self, verdict):
        results, root = cases(reports.report([reports.vm("web", "shop", verdict=verdict)]))
        expected = "failed" if verdict in FAILING else "skipped"
        assert results["VMs in namespace shop", "web"] == expected
        assert results["pools", "gpu"] == ("failed" if verdict in FAILING else "passed")
        assert results["verification", "Everything matches the pools"] == ("failed" if verdict in FAILING else "passed")
        assert reports.STOCK in "".join(root.itertext())

    def test_vms_that_are_not_in_the_report_fail_with_their_pool(self):
        report = reports.report([reports.vm(f"v{number}") for number in range(3)])
        report["vms"], report["vms_left_out"] = [], 3
        results, root = cases(report)
        assert results["pools", "gpu"] == "failed"
        assert "3 more VMs" in "".join(root.itertext())

    def test_a_node_fails_when_its_problem_is_an_error(self):
        nodes = [
            reports.node("fine"),
            reports.node("late", problem="node_held_back"),
            reports.node("bare", problem="no_handler", handlers=0),
        ]
        findings = [
            {"severity": "error", "code": "no_handler", "message": "One has none."},
            {"severity": "warning", "code": "node_held_back", "message": "One waits."},
        ]
        results, root = cases(reports.report(nodes=nodes, findings=findings, healthy=False))
        assert results["nodes", "bare"] == "failed"
        assert results["nodes", "late"] == "skipped"
        assert results["nodes", "fine"] == "passed"
        assert root.find("./testsuite[@name='nodes']//system-out") is None, "of a node there is nothing more to say"
        assert "warning node_held_back: One waits." in "".join(root.itertext())

    def test_the_policy_and_daemonsets_fail_with_their_problems(self):
        report = reports.report(healthy=False)
        report["policy"].update(state="missing", problem="there is none")
        report["daemonsets"][0]["problems"] = ["It drifted.", "It is not ready."]
        results, root = cases(report)
        assert results["policy", "launcher policy"] == "failed"
        assert results["daemonsets", "virt-handler-gpu"] == "failed"
        failures = {found.get("type"): found.get("message") for found in root.iter("failure")}
        assert failures["policy_missing"] == "there is none"
        assert failures["daemonset"] == "It drifted.; It is not ready."

    def test_problems_that_only_the_summary_names_fail_too(self):
        results, root = cases(reports.report(healthy=False, summary="Something is wrong."))
        assert list(results.values()).count("failed") == 1
        assert next(root.iter("failure")).get("message") == "Something is wrong."

    def test_the_time_is_on_every_suite(self):
        _results, root = cases(reports.report(), at="2026-11-21T18:00:00Z")
        assert {suite.get("timestamp") for suite in root.iter("testsuite")} == {"2026-11-21T18:00:00Z"}


class TestText:
    @given(st.text(max_size=30))
    def test_any_text_survives(self, text):
        vm = reports.vm(text, text, reason=text, remedy=text, images={text: text})
        _results, root = cases(reports.report([vm], summary=text))
        case = [found for found in root.iter("testcase") if found.get("classname").startswith("virtpools.VMs")]
        assert [found.get("name") for found in case] == [printable(text)]
        assert case[0].find("failure").get("message") == printable(text)

    def test_many_nodes_are_bounded_and_the_bad_ones_stay(self):
        nodes = [reports.node(f"n{number}") for number in range(6000)]
        nodes.append(reports.node("bad", problem="no_handler", handlers=0))
        results, _root = cases(reports.report(nodes=nodes))
        assert len([suite for suite, _name in results if suite == "nodes"]) == 5000
        assert ("nodes", "bad") in results
