# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An approved upgrade of KubeVirt with pools, as AWX's workflow runs it: the role upgrade in check mode, then twice for real."""

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds
from ansible_collections.virtpools.kubevirt.tests.unit.support.roles import TaskFailed
from ansible_collections.virtpools.kubevirt.tests.unit.support.staged_runs import (
    FIRST,
    FOR_NEXT_VERSION,
    GPU,
    NEXT_VERSION,
    RT,
    Stage,
    at_version,
    handlers,
    stock,
)


class Scenario:
    """A cluster with pools, and the jobs of a workflow."""

    def __init__(self, stage):
        self._stage = stage
        self.world, self._disturbance = stage.on(stock())
        stage.run(FIRST.role, FIRST.variables)

    @property
    def writes(self):
        return self._disturbance.writes

    def job(self, check=False, artifacts=None, **variables):
        """Run the role upgrade as AWX's job template does, and return the artifacts."""
        asked = {"virtpools_pools": FOR_NEXT_VERSION, **variables}
        required = {"virtpools_require_approval": True, "virtpools_upgrade_to": NEXT_VERSION}
        return self._stage.job("upgrade", {**required, **(artifacts or {}), **asked}, check=check)

    def upgrade_kubevirt(self):
        """What virt-operator leaves."""
        objects = at_version(list(self.world.objects.values()), NEXT_VERSION)
        self.world, self._disturbance = self._stage.on(objects)

    def handler_images(self):
        owned = (each for each in self.world.all(kinds.DAEMON_SET) if each["metadata"]["name"] != "virt-handler")
        return {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in owned}


@pytest.fixture
def scenario(run, monkeypatch):
    return Scenario(Stage(run, monkeypatch))


def test_one_approval_leads_pools_over_an_upgrade(scenario):
    before = len(scenario.writes)
    checked = scenario.job(check=True)
    assert len(scenario.writes) == before
    entry = checked["virtpools_plan"]["localhost"]["upgrade"]
    assert (entry["pending"], entry["nodes"], entry["errors"]) == (True, 3, 0)
    scenario.job(artifacts=checked)
    assert scenario.handler_images() == {GPU["virtHandlerImage"], RT["virtHandlerImage"]}
    scenario.upgrade_kubevirt()
    done = scenario.job(artifacts=checked)
    assert scenario.handler_images() == {pool["virtHandlerImage"] for pool in FOR_NEXT_VERSION}
    assert all(len(found) == 1 for found in handlers(scenario.world).values())
    assert done["virtpools_result"]["localhost"]["changed"] is True


def test_what_was_not_approved_is_not_carried_out(scenario):
    checked, before = scenario.job(check=True), len(scenario.writes)
    of_site = {"virtpools_plan": {"localhost": {"site": checked["virtpools_plan"]["localhost"]["upgrade"]}}}
    for artifacts in ({}, of_site):
        with pytest.raises(TaskFailed, match="no plan of upgrade was approved for localhost"):
            scenario.job(artifacts=artifacts)
    other = [
        {**FOR_NEXT_VERSION[0], "virtLauncherImage": f"other.example/virt-launcher:{NEXT_VERSION}"},
        FOR_NEXT_VERSION[1],
    ]
    with pytest.raises(TaskFailed, match="The plan is not the approved one: the version, the pools"):
        scenario.job(artifacts=checked, virtpools_pools=other)
    assert len(scenario.writes) == before


def test_after_the_upgrade_another_list_needs_another_approval(scenario):
    checked = scenario.job(check=True)
    scenario.job(artifacts=checked)
    scenario.upgrade_kubevirt()
    before = len(scenario.writes)
    with pytest.raises(TaskFailed, match="The plan is not the approved one"):
        scenario.job(artifacts=checked, virtpools_pools=FOR_NEXT_VERSION[:1], virtpools_prune=True)
    assert len(scenario.writes) == before
    scenario.job(artifacts=scenario.job(check=True))
    assert scenario.handler_images() == {pool["virtHandlerImage"] for pool in FOR_NEXT_VERSION}
