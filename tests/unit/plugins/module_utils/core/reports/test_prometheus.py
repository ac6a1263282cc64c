# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import printable
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.reports import prometheus
from ansible_collections.virtpools.kubevirt.tests.unit.support import reports

SERIES = re.compile(
    r'(?P<name>virtpools_[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (?P<value>\S+)'
)
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def read(text):
    """The series as {name and sorted labels: value}, as the exposition format has them. Each may be there once."""
    assert text.endswith("\n")
    found, typed = {}, []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.append(line.split()[2])
            assert line.split()[3] == "gauge"
        elif not line.startswith("# HELP "):
            match = SERIES.fullmatch(line)
            assert match, line
            assert match["name"] == typed[-1]
            labels = [(name, re.sub(r"\\(.)", r"\1", value)) for name, value in LABEL.findall(match["labels"] or "")]
            key = (match["name"], *sorted(labels))
            assert key not in found
            found[key] = float(match["value"])
    assert len(set(typed)) == len(typed)
    return found


def test_every_count_is_a_series():
    nodes = [
        reports.node("n1"),
        reports.node("n2", "gpu", "two_handlers", handlers=2),
        reports.node("n3", "gpu", "two_handlers", handlers=3),
    ]
    report = reports.report(
        [reports.vm("a"), reports.vm("b"), reports.vm("c", verdict="outdated")],
        nodes,
        findings=[{"severity": "error", "code": "two_handlers", "message": "Two."}],
    )
    report["daemonsets"][0].update(ready=1, problems=["It drifted."])
    report["policy"]["state"] = "edited"
    report["counts"]["unjudged"] = 4
    report["pools"][1].update(starts_fail=True, failed_launchers=7)
    found = read(prometheus.render(report, timestamp=1763750000.5))
    assert found["virtpools_healthy",] == 0
    assert found["virtpools_verification_timestamp_seconds",] == 1763750000.5
    assert found["virtpools_problems",] == 2
    assert found["virtpools_vms", ("pool", "gpu"), ("verdict", "wrong_image")] == 2
    assert found["virtpools_vms", ("pool", "gpu"), ("verdict", "outdated")] == 1
    assert found["virtpools_vms", ("pool", "gpu"), ("verdict", "pending")] == 0
    assert found["virtpools_vms", ("pool", "primary"), ("verdict", "correct")] == 7
    assert found["virtpools_unjudged_vms",] == 4
    assert found["virtpools_pool_nodes", ("pool", "gpu")] == 2
    assert found["virtpools_pool_active", ("pool", "gpu")] == 1
    assert found["virtpools_pool_starts_fail", ("pool", "gpu")] == 1
    assert found["virtpools_pool_starts_fail", ("pool", "primary")] == 0
    assert found["virtpools_failed_launchers", ("pool", "gpu")] == 7
    assert found["virtpools_nodes",] == 3
    assert found["virtpools_node_problems", ("code", "two_handlers")] == 2
    assert found["virtpools_handlers_desired", ("pool", "gpu")] == 2
    assert found["virtpools_handlers_ready", ("pool", "gpu")] == 1
    assert found["virtpools_daemonset_problems", ("pool", "gpu")] == 1
    assert found["virtpools_findings", ("code", "two_handlers"), ("severity", "error")] == 1
    states = {key[2][1]: value for key, value in found.items() if key[0] == "virtpools_policy_state"}
    assert states.pop("edited") == 1
    assert set(states.values()) == {0}


def test_a_healthy_cluster_says_so():
    assert read(prometheus.render(reports.report(), timestamp=1))["virtpools_healthy",] == 1


def test_the_number_of_series_does_not_grow_with_the_cluster():
    def series(size):
        nodes = [reports.node(f"n{number}", problem="no_handler", handlers=0) for number in range(size)]
        vms = [reports.vm(f"v{number}") for number in range(size)]
        return set(read(prometheus.render(reports.report(vms, nodes), timestamp=1)))

    assert series(1) == series(500)


@given(st.text(max_size=30))
def test_labels_hold_any_text(text):
    found = read(prometheus.render(reports.report(pools=(text,)), timestamp=1, labels={"cluster": text}))
    shown = printable(text)
    assert found["virtpools_healthy", ("cluster", shown)] == 1
    assert ("virtpools_pool_nodes", ("cluster", shown), ("pool", shown)) in found
