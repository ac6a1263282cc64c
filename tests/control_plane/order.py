# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A pytest plugin: files that take long come first, so that workers, which take whole files, end at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

# Those of two minutes and more, by the table at the end of make test-control-plane. All others follow by name.
LONGEST_FIRST = (
    "test_interruption.py",
    "test_crash.py",
    "test_native.py",
    "test_no_harm.py",
    "test_main_story.py",
    "test_remove.py",
    "test_remove_everything.py",
    "test_nasty_nodes.py",
    "test_nasty_kubevirt.py",
    "test_workload_update.py",
    "test_on_failure.py",
    "test_alerts.py",
    "test_inventory.py",
    "test_awx.py",
    "test_guard.py",
    "test_idempotence.py",
    "test_fleet.py",
    "test_upgrade_check.py",
    "test_nasty_pools.py",
    "test_rollout.py",
    "test_input.py",
    "test_nasty_hco.py",
    "test_awx_jobs.py",
    "test_private_images.py",
)
_PLACES = {name: place for place, name in enumerate(LONGEST_FIRST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gone = sorted(name for name in LONGEST_FIRST if not Path(__file__).with_name(name).exists())
    if gone:
        raise pytest.UsageError(f"{__file__} names files that are not there: {', '.join(gone)}")
    items.sort(key=lambda item: _PLACES.get(item.path.name, len(_PLACES)))
