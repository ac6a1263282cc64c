# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A pytest plugin: files that take long come first, so that workers, which take whole files, end at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

# Those of 50 s and more, by the table at the end of make test-control-plane, then those that only make test-thorough runs. All others
# follow by name.
LONGEST_FIRST = (
    "disturbances/test_interruption.py",
    "disturbances/test_hco.py",
    "operator_mode/test_builds.py",
    "runs/test_on_failure.py",
    "runs/test_user_journey.py",
    "awx/test_awx.py",
    "runs/test_upgrade.py",
    "nodes/test_no_harm.py",
    "disturbances/test_pools.py",
    "runs/test_inventory.py",
    "awx/test_awx_jobs.py",
    "runs/test_remove_everything.py",
    "disturbances/test_nodes.py",
    "runs/test_idempotence.py",
    "verify/test_workload_update.py",
    "disturbances/test_kubevirt.py",
    "nodes/test_kubelet_restarts.py",
    "nodes/test_node_policies.py",
    "policies/test_launcher_policy.py",
    "policies/test_guard.py",
    "runs/test_remove.py",
    "verify/test_verify.py",
    "runs/test_input.py",
    "runs/test_rollout.py",
    "nodes/test_drain.py",
    "verify/test_prediction.py",
    "monitoring/test_alerts.py",
    "policies/test_policies.py",
    "runs/test_in_worker.py",
    "runs/test_client.py",
    "nodes/test_fleet.py",
    "monitoring/test_alert_rules.py",
    "policies/test_hypervisors.py",
    "policies/test_aie_webhook.py",
    "runs/test_canary_vm.py",
    "runs/test_rollback.py",
    "policies/test_images_of_others.py",
    "policies/test_private_images.py",
    "verify/test_explain.py",
    "runs/test_heartbeat_gate.py",
    "testbed/test_watcher.py",
    "policies/test_openshift.py",
    "disturbances/test_crash.py",
    "runs/test_upgrade_moments.py",
    "testbed/test_local_cluster.py",
)
_TESTS = Path(__file__).parents[1]
_PLACES = {_TESTS / name: place for place, name in enumerate(LONGEST_FIRST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = sorted(str(path) for path in _PLACES if not path.exists())
    if missing:
        raise pytest.UsageError(f"{__file__} names files that do not exist: {', '.join(missing)}")
    items.sort(key=lambda item: _PLACES.get(item.path, len(_PLACES)))
