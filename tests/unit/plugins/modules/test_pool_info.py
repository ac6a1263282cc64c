# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


def test_of_stock_kubevirt(run, world):
    found = run("pool_info")
    assert (found["changed"], found["healthy"], found["excluded"]) == (False, True, False)
    assert [owner["name"] for owner in found["owners"]] == ["primary"]
    assert found["kubevirt_version"] == builders.VERSION
    assert world.writes == []


def test_of_pools(run, excluded):
    excluded.put(builders.node("n1", "gpu", labels={"hw": "gpu"}))
    excluded.drop(kinds.POD, "virt-handler-n1", builders.NAMESPACE)
    found = run("pool_info")
    assert [(owner["name"], owner["nodes"]) for owner in found["owners"]] == [("primary", 1), ("gpu", 1)]
    assert not found["healthy"]
    assert [finding["code"] for finding in found["findings"]] == ["no_handler"]


def test_of_a_node_in_transit(run, excluded):
    excluded.put(builders.node("n9", names.IN_TRANSIT, "primary"))
    found = run("pool_info", check=True)
    assert found["in_transit"] == ["n9"]
    assert "In transit: n9" in found["text"]


def test_without_rights(run, world):
    world.denied = {("list", "kubevirts")}
    assert "list kubevirts.kubevirt.io" in run.failure("pool_info")
