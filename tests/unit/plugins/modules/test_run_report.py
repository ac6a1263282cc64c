# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.virtpools.kubevirt.tests.unit.support import builders


@pytest.fixture
def asked(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return {"path": str(tmp_path / "run.html"), "cluster_name": "west"}


def lines(record):
    with open(record, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_a_record_begins_with_the_run(run, asked):
    record = run("run_report", state="begun", run_by="me", **asked)["run_record"]
    (opening,) = lines(record)
    assert (opening["by"], opening["host"], opening["check"]) == ("me", "west", False)
    assert not run.connected
    assert run("run_report", state="begun", run_record=record, **asked)["run_record"] == record


@pytest.mark.parametrize("given", [{"check": True}, {"only_plan": True}])
def test_a_record_knows_that_nothing_is_changed(run, asked, given):
    assert lines(run("run_report", state="begun", **asked, **given)["run_record"])[0]["check"] is True


def test_modules_append_what_they_did_and_how_they_failed(run, asked, excluded):
    record = run("run_report", state="begun", **asked)["run_record"]
    run("pool_nodes", pools=[builders.RAW_POOL], run_record=record)
    run.failure("wave_gate", nodes=["n1"], soak=-1, run_record=record)
    _opening, handed_over, gate = lines(record)
    assert (handed_over["module"], handed_over["nodes"][0][:4]) == ("pool_nodes", ["n1", "primary", "gpu", "done"])
    assert (gate["module"], gate["error"]) == ("wave_gate", "soak is -1; give a number from 0.")


def test_without_a_record_none_is_written(run, asked, tmp_path):
    run("pool_info")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_page_is_written_and_the_record_deleted(run, asked, tmp_path):
    record = run("run_report", state="begun", **asked)["run_record"]
    found = run("run_report", state="written", run_record=record, completed=True, **asked)
    assert (found["verdict"], found["events"]) == ("Finished", [f"The page of this run: {asked['path']}"])
    assert (tmp_path / "run.html").read_text().startswith("<!DOCTYPE html>")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_cannot_be_read_is_refused(run, asked, tmp_path):
    assert "run_record is missing" in run.failure("run_report", state="written", **asked)
    gone = str(tmp_path / "gone")
    assert "cannot be read" in run.failure("run_report", state="written", run_record=gone, **asked)
    (tmp_path / "other").write_text("[]\n")
    said = run.failure("run_report", state="written", run_record=str(tmp_path / "other"), **asked)
    assert said == f"The record of the run, {tmp_path}/other, cannot be read: its first line is missing."


def test_a_temporary_folder_that_is_missing_is_named(run, asked, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    said = run.failure("run_report", state="begun", **asked)
    assert said.startswith(f"The record of the run cannot be written to {tmp_path}/none/")


@pytest.mark.parametrize("state", ["begun", "written"])
def test_a_page_that_cannot_be_written_is_refused(run, asked, tmp_path, state):
    missing = tmp_path / "missing"
    said = run.failure("run_report", **{**asked, "state": state, "path": f"{missing}/run.html"})
    assert said == (
        f"virtpools_report_html is {missing}/run.html, but there is no folder {missing}; create it, or name another file."
    )
