# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


class TestTake:
    def test_a_new_run(self, run, world):
        found = run("run_lease")
        assert found["changed"]
        assert found["namespace"] == builders.NAMESPACE
        (lease,) = world.all(kinds.LEASE)
        assert lease["spec"]["holderIdentity"] == found["run_id"]

    def test_again_for_the_same_run_changes_nothing(self, run):
        run_id = run("run_lease")["run_id"]
        assert run("run_lease", run_id=run_id) | {"changed": False} == run("run_lease", run_id=run_id)

    def test_while_another_run_holds_it(self, run):
        run("run_lease")
        assert "Only one run may change the cluster at a time" in run.failure("run_lease", timeout=0)

    def test_check_mode_takes_nothing(self, run, world):
        found = run("run_lease", check=True)
        assert found["changed"]
        assert world.writes == []
        assert "has lost its Lease" in run.failure("pool_daemonsets", pools=[builders.RAW_POOL], run_id=found["run_id"])


class TestRenew:
    @pytest.mark.parametrize(("asked", "lasts"), [(600, 600), (5, 30)])
    def test_for_as_long_as_something_else_takes(self, run, world, asked, lasts):
        run_id = run("run_lease")["run_id"]
        assert run("run_lease", state="renewed", run_id=run_id, duration=asked)["changed"] is False
        (lease,) = world.all(kinds.LEASE)
        assert lease["spec"]["leaseDurationSeconds"] == lasts

    @pytest.mark.parametrize("check", [False, True])
    def test_of_another_run_is_refused(self, run, world, check):
        run("run_lease")
        before = world.all(kinds.LEASE)
        assert "has lost its Lease" in run.failure("run_lease", state="renewed", run_id="run-other", check=check)
        assert world.all(kinds.LEASE) == before

    def test_check_mode_renews_nothing(self, run, world):
        run_id = run("run_lease")["run_id"]
        before = world.all(kinds.LEASE)
        assert run("run_lease", state="renewed", run_id=run_id, duration=600, check=True)["changed"] is False
        assert world.all(kinds.LEASE) == before

    def test_needs_to_know_which(self, run):
        assert run.failure("run_lease", state="renewed").startswith("run_id is missing: to renew the Lease")


class TestRelease:
    def test_of_our_run(self, run, world):
        run_id = run("run_lease")["run_id"]
        assert run("run_lease", state="absent", run_id=run_id, check=True)["changed"]
        assert run("run_lease", state="absent", run_id=run_id)["changed"]
        assert world.all(kinds.LEASE) == []
        assert run("run_lease", state="absent", run_id=run_id)["changed"] is False

    def test_of_another_run_is_left_alone(self, run, world):
        run("run_lease")
        assert run("run_lease", state="absent", run_id="run-other")["changed"] is False
        assert len(world.all(kinds.LEASE)) == 1

    def test_needs_to_know_which(self, run):
        assert run.failure("run_lease", state="absent").startswith("run_id is missing")
        assert not run.connected
