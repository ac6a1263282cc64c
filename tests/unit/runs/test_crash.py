# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs, disturbed at each single write they send: the next run ends where an undisturbed one does."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import asdict, replace

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning import history
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.planning.options import Options
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools.dialects import OWN, read_dialect
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders
from ansible_collections.virtpools.kubevirt.tests.unit.support.disturbance import FAULTS
from ansible_collections.virtpools.kubevirt.tests.unit.support.fake_migrations import vm
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import (
    ALL,
    FIRST,
    FOLLOWED,
    GPU,
    NEXT_GPU,
    PREPARED,
    RT,
    STOCK,
    TAKEN_BACK,
    Run,
    Stage,
    at_version,
    outcome,
    stock,
    told,
)

SMALL_GPU = {"name": "gpu", "nodeSelector": {"hw": "gpu", "disk": "big"}, "virtHandlerImage": builders.GPU_IMAGE}
SMALL = {"key": "disk", "operator": "DoesNotExist"}
BIG = {**GPU, "name": "big", "nodeSelector": {"disk": "big"}, "selector": {"vmLabels": {"matchLabels": {"class": "b"}}}}
WAVES = [{"nodes": ["n2"]}, {"pools": ["gpu"]}]


pytestmark = [
    pytest.mark.timeout(12 * 3600 if ALL else 600),  # on a busy machine one takes two minutes
    pytest.mark.skipif("ANSIBLE_TEST_ANSIBLE_LIB_ROOT" in os.environ, reason="make test-unit runs them"),
]


FIRST_DIGEST = history.entry_of(read_dialect(OWN, [GPU, RT]), (), Options(guard=False), "", "").digest
NEWER = FIRST.then("pools", virtpools_pools=[NEXT_GPU, RT])
ASSIGNING = FIRST.then("pools", virtpools_pools=[GPU, RT], virtpools_assign_new_nodes=True)
STOPPED = FIRST.then("rollout", virtpools_pools=[NEXT_GPU, RT], virtpools_waves=WAVES, virtpools_stop_after_wave=1)
# With as few writes as show it: runs with all of them are above.
GUARDED = Run("pools", {"virtpools_pools": [RT], "virtpools_guard": True, "virtpools_alerts": True})
WATCHED = Run("pools", {"virtpools_pools": [SMALL_GPU, RT], "virtpools_alerts": True})
CORRECTED = Run("pools", {"virtpools_pools": [GPU], "virtpools_outdated": "correct"}, cluster="updating")
UNDER_HCO = Run("pools", {"virtpools_pools": [RT]}, cluster="HCO")
RUNS = {
    "first site": FIRST,
    "new images": NEWER,
    "pools changed": FIRST.then("pools", virtpools_pools=[BIG, {**GPU, "nodeExpressions": [SMALL]}, RT]),
    "prune": FIRST.then("pools", virtpools_pools=[GPU], virtpools_prune=True),
    "waves": FIRST.then("rollout", virtpools_pools=[NEXT_GPU, RT], virtpools_waves=WAVES, virtpools_soak_seconds=5),
    "waves, stopped": STOPPED,
    "waves, continued": STOPPED.then("rollout", virtpools_pools=[NEXT_GPU, RT], virtpools_waves=WAVES),
    "waves, canary VMs": FIRST.then(
        "rollout", virtpools_pools=[NEXT_GPU, RT], virtpools_waves=WAVES, virtpools_canary_vm=True
    ),
    "guard and alerts": GUARDED,
    "guard and alerts given up": GUARDED.then("pools", virtpools_pools=[RT]),
    "guard and alerts removed": GUARDED.then("remove", virtpools_remove="all"),
    "alerts follow a pool that goes": WATCHED.then(
        "pools", virtpools_pools=[RT], virtpools_prune=True, virtpools_alerts=True
    ),
    "outdated policy": CORRECTED,
    "outdated policy, new images": CORRECTED.then("pools", virtpools_pools=[NEXT_GPU], virtpools_outdated="correct"),
    "outdated policy removed": CORRECTED.then("remove", virtpools_remove="all"),
    "upgrade prepared": PREPARED,
    "upgrade prepared and taken back": TAKEN_BACK,
    "upgrade followed": FOLLOWED,
    "upgrade followed without preparation": replace(FOLLOWED, after=FIRST),
    "HCO": UNDER_HCO,
    "HCO, removed": UNDER_HCO.then("remove", virtpools_remove="all"),
    "rollback": NEWER.then("rollback", virtpools_rollback_to=FIRST_DIGEST),
    "new nodes assigned": ASSIGNING,
    "new nodes no longer assigned": ASSIGNING.then("pools", virtpools_pools=[GPU, RT]),
    "VMs drained": FIRST.then("pools", virtpools_pools=[NEXT_GPU, RT], virtpools_drain="migrate"),
    "VMs updated": FIRST.then("workload_update"),
    "feature gate": FIRST.then("pools", virtpools_pools=[GPU, RT], virtpools_feature_gates_present=["Root"]),
    "one pool removed": FIRST.then("remove", virtpools_remove=["rt"]),
    "removed": FIRST.then("remove", virtpools_remove="all", virtpools_remove_vms="migrate"),
}
VMS = {
    "VMs drained": (vm("guest", "n1", STOCK), {"image": STOCK, "to": "n4"}),
    "VMs updated": (vm("guest", "n2", STOCK, labels={"class": "gpu"}), {"image": GPU["virtLauncherImage"], "to": "n1"}),
    "removed": (vm("guest", "n1", GPU["virtLauncherImage"], labels={"class": "gpu"}), {"image": STOCK, "to": "n4"}),
}
"""What VM there is, and what migrations make of it."""


LEFT = {f"coordination.k8s.io/v1/leases/{builders.NAMESPACE}/{names.LEASE_NAME}"}
"""What a run leaves for good that is cut off after its last change (the next has nothing to do, so it writes nothing), or whose
look at its Lease at the end was out of date. It expires."""


@pytest.fixture
def stage(run, monkeypatch):
    return Stage(run, monkeypatch)


_left = {}


def left_by(stage, run):
    """The objects of a cluster after this run and those before it."""
    key = json.dumps(asdict(run), sort_keys=True)
    if key not in _left:
        world, _none = stage.on(begin(stage, run))
        stage.run(run.role, run.variables)
        _left[key] = list(world.objects.values())
    return copy.deepcopy(_left[key])


def begin(stage, run):
    """The objects of a cluster before this run."""
    return at_version(left_by(stage, run.after) if run.after else stock(run.cluster), run.kubevirt)


def scenario(stage, kind, number=0, fault="", cuts=None):
    """A cluster before a run of that kind, and what disturbs it."""
    guest, migrated = VMS.get(kind, ((), None))
    return stage.on([*begin(stage, RUNS[kind]), *copy.deepcopy(guest)], number, fault, migrated, cuts)


def carry_out(stage, kind):
    stage.run(RUNS[kind].role, RUNS[kind].variables)


def undisturbed(stage, kind):
    """The writes of a run of that kind, each with what a power cut after it would leave, and what the run leaves."""
    cuts = []
    world, disturbance = scenario(stage, kind, cuts=cuts)
    carry_out(stage, kind)
    steps, left = list(zip(disturbance.writes, cuts, strict=True)), outcome(world)
    assert steps
    cuts.clear()
    world.writes.clear()
    carry_out(stage, kind)
    assert world.writes == [], "nothing was left to do"
    assert world.doubled == []
    return steps, left


def different(world, wanted):
    """What is not as it should be, by object."""
    found = outcome(world)
    return {key: (found.get(key), wanted.get(key)) for key in {*found, *wanted} if found.get(key) != wanted.get(key)}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_cut_off_after_any_write_is_finished_by_the_next(stage, kind):
    steps, wanted = undisturbed(stage, kind)
    for write, cut in steps:
        world, _disturbance = stage.on(cut, migrated=VMS.get(kind, (None, None))[1])
        with told(f"The power fails after {write}"):
            carry_out(stage, kind)
            assert different(world, wanted).keys() <= (set() if world.writes else LEFT)
            assert world.doubled == []


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_disturbed_at_any_write_ends_as_an_undisturbed_one(stage, kind):
    steps, wanted = undisturbed(stage, kind)
    for number, (write, _cut) in enumerate(steps, 1):
        for fault in FAULTS if ALL else [FAULTS[number % len(FAULTS)]]:
            with told(f"{fault} at write {number} of {len(steps)}, {write}"):
                survives(stage, kind, number, fault, wanted)


def survives(stage, kind, number, fault, wanted):
    world, disturbance = scenario(stage, kind, number, fault)
    try:
        carry_out(stage, kind)
    except TaskFailed:
        assert fault in ("409", "stale"), "what passes by itself is to be waited for"
        carry_out(stage, kind)
    assert len(disturbance.writes) >= number
    assert different(world, wanted).keys() <= (LEFT if fault == "stale" else set())
    assert world.doubled == []
