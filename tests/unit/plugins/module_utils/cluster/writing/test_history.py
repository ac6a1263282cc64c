# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.history import entry_of
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_cluster import World

ENTRY = entry_of([builders.pool("gpu")], (), Options(), "2026-01-01T00:00:00Z", "me")


@pytest.fixture
def world():
    return World()


def add(entry):
    return lambda found: replace(found, entries=(*found.entries, entry))


def write(world, change=None, *, dry_run=False):
    return history.write(world.client(), builders.NAMESPACE, change or add(ENTRY), dry_run=dry_run)


def read(world):
    return history.read(world.client(), builders.NAMESPACE)


def test_without_a_config_map_the_history_is_empty(world):
    assert read(world).entries == ()


def test_the_first_entry_creates_the_config_map(world):
    before, after = write(world)
    assert (before, after["metadata"]["name"]) == (None, names.HISTORY)
    assert [entry.digest for entry in read(world).entries] == [ENTRY.digest]


def test_another_entry_keeps_the_first(world):
    write(world)
    before, after = write(world)
    assert before["data"] != after["data"]
    assert len(read(world).entries) == 2


def test_keys_that_are_not_ours_stay(world):
    _before, after = write(world)
    world.put({**after, "data": {**after["data"], "openWaves": "{", "later": "x"}})
    _before, after = write(world)
    assert (after["data"]["later"], "openWaves" in after["data"]) == ("x", False)


def test_no_change_writes_nothing(world):
    write(world)
    world.writes.clear()
    before, after = write(world, lambda found: found)
    assert before == after
    assert world.writes == []


def test_a_dry_run_stores_nothing(world):
    before, after = write(world, dry_run=True)
    assert (before, after["kind"]) == (None, "ConfigMap")
    assert world.find(kinds.CONFIG_MAP, names.HISTORY, builders.NAMESPACE) is None
