# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a move between the modes brings and takes down. Whole moves are in runs/test_moving.py."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes import moving
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.modes.collection import CollectionMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.builds import BUILDS
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.operator_mode.mode import OperatorMode
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.request import PlanRequest
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import dialects
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

TO = OperatorMode(BUILDS["virtHandlerPools"])


def cluster(*, described=True):
    snapshot = builders.snapshot_of([builders.node("n1", owner="gpu")], [builders.pool()])
    if not described:
        del snapshot.pools["gpu"]["metadata"]["annotations"][names.POOL_ANNOTATION]
    return snapshot


def find(snapshot, *pools, prune=False):
    departure = CollectionMode().takedown(snapshot, PlanRequest())
    return moving.find_move(TO, departure, snapshot, PlanRequest(pools=pools, options=Options(prune=prune)))


def test_a_run_that_stays_in_its_mode_is_no_move():
    assert moving.find_move(CollectionMode(), None, cluster(), PlanRequest(pools=(builders.pool(),))) is None


def test_the_pools_of_a_move_are_in_our_own_form():
    """Those of the cluster always are, and the others have been read by now."""
    departure = CollectionMode().takedown(cluster(), PlanRequest())
    found = moving.find_move(TO, departure, cluster(), PlanRequest((builders.pool(),), dialect="virtHandlerPools"))
    assert (found.request.dialect, found.begun) == (dialects.OWN, "")


@pytest.mark.parametrize("build", ["", "virtHandlerPools"])
def test_what_is_left_is_recorded_with_its_build(build):
    departure = replace(CollectionMode().takedown(cluster(), PlanRequest()), proposal=SimpleNamespace(build=build))
    found = moving.find_move(TO, departure, cluster(), PlanRequest(pools=(builders.pool(),)))
    assert found.former.build == (build or None)


def test_pools_that_are_not_listed_come_after_those_that_are():
    other = builders.pool("other")
    assert find(cluster(), other).request.pools == (other, builders.pool())
    assert find(cluster(), other, prune=True).request.pools == (other,)


def test_a_pool_that_its_daemonset_does_not_describe_cannot_move():
    (found,) = find(cluster(described=False), builders.pool("other")).findings
    assert (found.severity, found.code) == ("error", "moved_pool_unreadable")
    assert "The DaemonSet of pool gpu does not describe the pool" in found.message
    assert find(cluster(described=False), builders.pool("other"), prune=True).findings == ()
    assert find(cluster(described=False), builders.pool()).findings == ()


@pytest.mark.parametrize("described", [True, False])
def test_the_record_can_be_stored(described):
    found = find(cluster(described=described), builders.pool("other")).to_record(TO, "a-b-c")
    stored = moving.history.read_move(json.loads(json.dumps(found.to_object())))
    assert stored == found
    assert (stored.to.build, stored.digest) == ("virtHandlerPools", "a-b-c")
    assert (stored.former is not None) is described
