# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import kinds, names
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

NAMED = {"configmap": "monitoring/report"}


def stored(world, namespace="monitoring", name="report"):
    return world.find(kinds.CONFIG_MAP, name, namespace)


@pytest.fixture
def folder(world, tmp_path):
    """The folder of a report."""
    world.put(kinds.NAMESPACE.object("monitoring"))
    (tmp_path / "report.txt").write_text("All is well.\n")
    (tmp_path / "report.json").write_text(json.dumps({"healthy": True}))
    return str(tmp_path)


def test_a_report_is_stored_and_replaced(run, world, folder, tmp_path):
    found = run("verification_report", folder=folder, run_by="me", **NAMED)
    assert (found["changed"], found["configmap"], found["keys"]) == (
        True,
        "monitoring/report",
        ["report.json", "report.txt"],
    )
    assert found["diff"][0]["after"] == "All is well.\n"
    assert stored(world)["metadata"]["annotations"][names.REPORTED_BY_ANNOTATION] == "me"
    assert json.loads(stored(world)["data"]["report.json"]) == {"healthy": True}
    assert not run("verification_report", folder=folder, run_by="me", **NAMED)["changed"]
    (tmp_path / "report.txt").write_text("Something is wrong.\n")
    found = run("verification_report", folder=folder, run_by="me", **NAMED)
    (diff,) = found["diff"]
    assert (diff["before"], diff["after"]) == ("All is well.\n", "Something is wrong.\n")
    assert stored(world)["data"]["report.txt"] == "Something is wrong.\n"


def test_in_check_mode_nothing_is_stored(run, world, folder):
    assert run("verification_report", check=True, folder=folder, **NAMED)["changed"]
    assert stored(world) is None
    assert world.writes == []


def test_without_a_namespace_it_is_kubevirts(run, world, folder):
    assert run("verification_report", folder=folder, configmap="report")["configmap"] == "kubevirt/report"
    assert stored(world, builders.NAMESPACE)


def test_the_history_is_not_overwritten(run, world, folder):
    history = kinds.CONFIG_MAP.object(names.HISTORY, builders.NAMESPACE, data={"history": "[]"})
    history["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    world.put(history)
    said = run.failure("verification_report", folder=folder, configmap=names.HISTORY)
    assert "give another name in virtpools_report_configmap" in said
    assert stored(world, builders.NAMESPACE, names.HISTORY)["data"] == {"history": "[]"}


def test_a_folder_without_a_report(run, world, tmp_path):
    assert "has no report" in run.failure("verification_report", folder=str(tmp_path), **NAMED)
    assert world.writes == []
