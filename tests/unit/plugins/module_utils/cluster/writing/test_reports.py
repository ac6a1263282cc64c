# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import reports
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World


@pytest.fixture
def world():
    return World()


def put(world, *, dry_run=False, **content):
    files = {f"{name}.txt": text.encode() for name, text in content.items()}
    return reports.put(world.client(), builders.NAMESPACE, "reports", files, by="verify", dry_run=dry_run)


def stored(world):
    found = world.find(kinds.CONFIG_MAP, "reports", builders.NAMESPACE)
    return found and found.get("data")


def test_reports_are_created(world):
    before, after = put(world, a="one")
    assert before is None
    assert after["data"] == stored(world) == {"a.txt": "one"}


def test_other_reports_are_replaced(world):
    put(world, a="one")
    before, after = put(world, b="two")
    assert (before["data"], after["data"], stored(world)) == ({"a.txt": "one"}, {"b.txt": "two"}, {"b.txt": "two"})


def test_a_dry_run_stores_nothing(world):
    put(world, dry_run=True, a="one")
    assert stored(world) is None


def test_a_config_map_of_others_is_refused(world):
    world.put({**kinds.CONFIG_MAP.object("reports", builders.NAMESPACE), "data": {"theirs": "x"}})
    with pytest.raises(InputErrors):
        put(world, a="one")
    assert stored(world) == {"theirs": "x"}
