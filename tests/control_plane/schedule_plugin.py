# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A pytest plugin: files that take long come first, so that workers, which take whole files, end at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

# Those of 50 s and more, by the table at the end of make test-control-plane. All others follow by name.
LONGEST_FIRST = (
    "test_interruption.py",
    "test_operator.py",
    "test_no_harm.py",
    "test_remove.py",
    "test_crash.py",
    "test_awx_jobs.py",
    "test_nasty_hco.py",
    "test_nasty_nodes.py",
    "test_on_failure.py",
    "test_remove_everything.py",
    "test_alerts.py",
    "test_main_story.py",
    "test_awx.py",
    "test_workload_update.py",
    "test_guard.py",
    "test_rollout.py",
    "test_nasty_kubevirt.py",
    "test_nasty_pools.py",
    "test_images_of_others.py",
    "test_idempotence.py",
    "test_node_policies.py",
    "test_input.py",
    "test_upgrade_check.py",
    "test_verify.py",
    "test_rollback.py",
    "test_inventory.py",
    "test_alert_rules.py",
    "test_fleet.py",
    "test_private_images.py",
    "test_canary_vm.py",
    "test_explain.py",
    "test_policies.py",
    "test_drain.py",
    "test_heartbeat_gate.py",
    "test_watcher.py",
    "test_launcher_policy.py",
    "test_local_cluster.py",
)
_PLACES = {name: place for place, name in enumerate(LONGEST_FIRST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gone = sorted(name for name in LONGEST_FIRST if not Path(__file__).with_name(name).exists())
    if gone:
        raise pytest.UsageError(f"{__file__} names files that are not there: {', '.join(gone)}")
    items.sort(key=lambda item: _PLACES.get(item.path.name, len(_PLACES)))
