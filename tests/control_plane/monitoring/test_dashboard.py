# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The dashboard for Grafana: promtool evaluates each of its queries on a cluster that is well. No cluster is started."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring import alert_rules
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alerts import RUNBOOK_URL
from metrics import SCOPE, checked, well
from promtool import Evaluation, Promtool, metric, over_time, series

pytestmark = pytest.mark.thorough  # compiling promtool takes minutes, and the dashboard changes rarely

ROOT = Path(__file__).parents[3]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "playbooks/files/grafana-dashboard.json").read_text("utf-8"))
PANELS = DASHBOARD["panels"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24

MINUTE = 32
LABELS = 'namespace="kubevirt"'
OF_POOLS = {
    f'{{daemonset="virt-handler{suffix}", {LABELS}, pool="{pool}"}}': count
    for pool, suffix, count in (("primary", "", 1), ("gpu", "-gpu", 2), ("rt", "-rt", 1))
}
SHOWN: dict[str, list[dict[str, float]]] = {
    "Alerts": [{"{}": 0}],
    "Pools": [{"{}": 2}],
    "Handlers not Ready": [{"{}": 0}],
    "Nodes in transit": [{"{}": 0}],
    "Problems": [{"{}": 0}],
    "Last verification": [{"{}": 0}],
    "Alerts that fire": [{}],
    "Findings of the last verification": [{'{code="overlap", severity="warning"}': 3}],
    "Handlers by pool": [{f"pool:virtpools_handlers_desired:max{labels}": count for labels, count in OF_POOLS.items()}],
    "Handlers that are not Ready": [dict.fromkeys(OF_POOLS, 0)],
    "VMs by pool": [{f'{{pool="{pool}"}}': 7 for pool in ("primary", "gpu", "rt")}],
    "VMs that are not correct": [
        {
            f'{{verdict="{verdict}"}}': 0
            for verdict in (
                "wrong_image",
                "wrong_node",
                "no_ready_handler",
                "at_risk",
                "pending",
                "unknown_image",
                "outdated",
            )
        }
    ],
    "Requests that policies changed": [{'{policy="virtpools-launcher"}': 1 / 240}],
    "Requests for which a policy failed": [
        {'{policy="virtpools-launcher"}': 0},
        {},
    ],
}
"""What the queries of each panel give."""


@pytest.fixture(scope="module")
def promtool() -> Promtool:
    return Promtool(alert_rules.groups(SCOPE, "https://docs.example/alerts"))


def expression(target: dict[str, Any]) -> str:
    """Return a query as Grafana sends it when all pools are chosen."""
    return str(target["expr"]).replace("$pool", ".*")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_queries_show_what_the_panel_says(promtool: Promtool, panel: dict[str, Any]) -> None:
    """They find no metrics but those that the page names."""
    page = (ROOT / "docs/alerts.md").read_text("utf-8")
    given = {
        **well(),
        checked(error="out_of_budget"): over_time(then=1),
        series("virtpools_findings", severity="warning", code="overlap"): over_time(then=3),
    }
    named = {name: values for name, values in given.items() if f"`{metric(name)}`" in page}
    evaluations = [
        Evaluation(expression(target), MINUTE, samples)
        for target, samples in zip(panel["targets"], SHOWN[panel["title"]], strict=True)
    ]
    assert promtool.differences(named, evaluations) == ""


def test_panels_have_all_that_grafana_needs() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    assert len({panel["id"] for panel in PANELS}) == len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["type"] in ("stat", "table", "timeseries")
        assert panel["description"]
        assert panel["datasource"] == SOURCE
        assert [target["refId"] for target in panel["targets"]] == [*"ABC"[: len(panel["targets"])]]
        assert all(target["datasource"] == SOURCE for target in panel["targets"])
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "pool"]
    assert [link["url"] for link in DASHBOARD["links"]] == [RUNBOOK_URL]


def test_panels_do_not_overlap() -> None:
    taken = set()
    for place in (panel["gridPos"] for panel in PANELS):
        cells = set(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        )
        assert not cells & taken
        assert all(0 <= column < COLUMNS for column, _line in cells)
        taken |= cells
