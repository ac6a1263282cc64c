# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks import node_checks
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.checks.verdicts import FINDINGS, VERDICTS
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

CHECKS = list(dict.fromkeys((*node_checks.GATE, node_checks.HANDOVER_UNFINISHED, *node_checks.VERIFICATION)))


@pytest.mark.parametrize("checks", [node_checks.STATE, node_checks.GATE, node_checks.VERIFICATION])
def test_a_code_stands_for_one_check(checks):
    codes = [check.code for check in checks]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_every_check_has_a_sentence_for_one_node_and_for_several(check):
    problem = node_checks.NodeProblem(check, "n1", "detail")
    assert problem.sentence == f"Node n1 has {check.problem} (detail)."
    finding = check.finding([problem, node_checks.NodeProblem(check, "n2", "")])
    assert (finding.code, finding.severity) == (check.code, check.severity)
    assert finding.message.startswith(f"2 nodes have {check.problem}: n1 (detail), n2")


def test_every_verdict_but_correct_has_its_finding():
    assert tuple(FINDINGS) == VERDICTS[:-1]


def problem(node, pods, now=0.0):
    snapshot = builders.snapshot_of([node], [builders.pool("gpu")], pods=pods)
    found = node_checks.first_problem(node_checks.GATE, node_checks.Facts(snapshot, now), snapshot.nodes["n1"])
    return found and found.check.code


@pytest.mark.parametrize(
    ("heartbeat", "code"),
    [
        ("2026-11-22T16:15:28Z", None),  # as virt-handler 1.9.0 wrote it
        ("2026-11-22T18:15:28+02:00", None),
        ('"2026-11-22T16:15:28Z"', None),
        ("2026-11-22T16:12:27Z", "heartbeat_old"),
        ('"2026-11-22T16:12:27Z"', "heartbeat_old"),
        ("2026-11-22T16:15:28", "heartbeat_unreadable"),  # in which time zone?
        ("1795364128", "heartbeat_unreadable"),
        ("", "heartbeat_unreadable"),
        (None, "no_heartbeat"),
    ],
)
def test_an_unreadable_heartbeat_is_not_taken_for_a_fresh_one(heartbeat, code):
    now = datetime(2026, 11, 22, 16, 15, 28, tzinfo=timezone.utc).timestamp()
    node = builders.node("n1", heartbeat=heartbeat)
    assert problem(node, [builders.handler_pod("n1")], now=now) == code
    assert problem(node, [], now=now) == "no_handler"


def test_of_several_problems_the_first_one_counts():
    lost = builders.node("n1", names.IN_TRANSIT, ready=False)
    assert problem(lost, []) == "in_transit"
    assert problem(lost, [builders.handler_pod("n1"), builders.handler_pod("n1", "virt-handler-gpu")]) == "two_handlers"
    assert problem(builders.node("n1", "ghost"), []) == "owner_unknown"
    assert problem(builders.node("n1", "gpu", ready=False), [builders.handler_pod("n1")]) == "wrong_handler"
