# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring import alert_rules
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.monitoring.alert_rules import Scope

SCOPE = Scope("kubevirt", ("gpu", "fpga"))
PAGE = "https://example.com/alerts"


def rules():
    return [rule for group in alert_rules.groups(SCOPE, PAGE) for rule in group["rules"]]


def test_every_alert_is_in_the_groups_once():
    names = [rule["alert"] for rule in rules() if "alert" in rule]
    assert sorted(names) == sorted(alert_rules.ALERTS)


def test_every_alert_has_a_summary_and_the_link_to_its_section():
    for rule in rules():
        if "alert" in rule:
            assert rule["annotations"]["summary"]
            assert rule["annotations"]["runbook_url"].startswith(f"{PAGE}#")


def test_what_alerts_build_on_is_recorded():
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = set(re.findall(r"\b(?:pool|node):virtpools\w*:\w+", " ".join(rule["expr"] for rule in rules())))
    assert used
    assert used <= recorded


def test_a_handler_that_cannot_be_scheduled_is_missing():
    (missing,) = (alert for alert in alert_rules.alerts(SCOPE) if alert.name == "VirtPoolsHandlersMissing")
    assert alert_rules.HANDLERS in missing.expr, "those that have a node"
    assert "current_number_scheduled" not in missing.expr, "which counts pods that wait for a node"


@pytest.mark.parametrize("pool", SCOPE.pools)
def test_every_pool_of_the_scope_is_in_an_expression(pool):
    assert any(pool in rule["expr"] for rule in rules())
