# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import node_loss, plan
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

LABEL = {"accelerator": "nvidia-a100"}
GPU = builders.pool("gpu", nodeSelector=LABEL)
MISSPELT = builders.pool("gpu", nodeSelector={"acelerator": "nvidia-a100"})


def found(pools, *, labels=(LABEL,) * 4, existing=(GPU,), **options):
    nodes = [builders.node(f"n{number}", "gpu", labels=each) for number, each in enumerate(labels, 1)]
    snapshot = builders.snapshot_of([*nodes, builders.node("stays")], existing)
    errors = plan.make_plan(snapshot, pools, Options(**options)).errors
    return [error.message for error in errors if error.code == "pool_loses_nodes"]


def test_a_misspelt_label_is_an_error_that_names_the_right_one():
    (message,) = found([MISSPELT])
    assert message == (
        "Pool gpu would lose all of its 4 nodes (n1, n2, n3, n4). Its selector changes from accelerator=nvidia-a100 to "
        "acelerator=nvidia-a100. None of the nodes has the label acelerator. Perhaps you mean accelerator (4 nodes, all of "
        "this pool)? Correct the selector or the labels or, if the pool is to lose these nodes, set "
        "virtpools_max_nodes_lost: 100% for this run."
    )


def test_a_pool_that_never_had_nodes_gets_the_same_hint():
    snapshot = builders.fresh_snapshot([builders.node("n1", labels=LABEL), builders.node("stays")])
    message = builders.message(plan.make_plan(snapshot, [MISSPELT], Options()).findings, "pool_without_nodes")
    assert message.endswith("None of the nodes has the label acelerator. Perhaps you mean accelerator (1 node)?")


def test_a_wrong_value_is_shown_beside_that_of_the_nodes():
    (message,) = found([builders.pool("gpu", nodeSelector={"accelerator": "nvidia-a10"})])
    assert "The pool selects accelerator=nvidia-a10, and the nodes have accelerator=nvidia-a100." in message


def test_labels_that_vanish_are_an_error_too():
    (message,) = found([GPU], labels=[LABEL, {}, {}, {}])
    assert message.startswith(
        "Pool gpu would lose 3 of its 4 nodes (n2, n3, n4). Its selector (accelerator=nvidia-a100) is the same "
        "as before, so labels of "
        "these nodes have changed, or another client has given them to the pool (label virtpools.io/pool)."
    )
    assert "None of the nodes has the label accelerator. Correct" in message


def test_a_node_in_transit_from_the_pool_is_lost_too():
    nodes = [builders.node("n1", "gpu", labels=LABEL), builders.node("n2", names.IN_TRANSIT, "gpu")]
    snapshot = builders.snapshot_of([*nodes, builders.node("stays")], [GPU])
    message = builders.message(plan.make_plan(snapshot, [GPU], Options(max_nodes_lost=0)).errors, "pool_loses_nodes")
    assert message.startswith("Pool gpu would lose 1 of its 2 nodes (n2).")


@pytest.mark.parametrize("limit", ["50%", 2, "75%"])
def test_a_loss_within_the_limit_is_none(limit):
    assert found([GPU], labels=[LABEL, LABEL, {}, {}], max_nodes_lost=limit) == []


def test_a_loss_is_confirmed_by_all():
    assert found([MISSPELT], max_nodes_lost="100%") == []
    assert found([MISSPELT], max_nodes_lost="99%") != []
    assert found([MISSPELT], max_nodes_lost=4) != []


def test_a_pool_that_is_pruned_or_removed_was_asked_for():
    other = builders.pool("other", nodeSelector={"hw": "other"})
    assert found([other], prune=True) == []
    assert found([], remove_pools="all") == []


def test_a_rollback_means_another_selector_but_no_vanished_label():
    assert found([MISSPELT], back_to="0123") == []
    assert found([GPU], labels=[{}] * 4, back_to="0123") != []


@pytest.mark.parametrize(
    ("limit", "held", "number"),
    [("50%", 4, 2), ("50%", 3, 1), ("10%", 3, 1), ("50%", 1, 0), ("100%", 1, 1), (3, 9, 3), (3, 3, 2), ("50%", 0, 0)],
)
def test_how_many_nodes_a_pool_may_lose(limit, held, number):
    assert node_loss.allowed(limit, held) == number
