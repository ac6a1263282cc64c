# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import report_files
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing.report_files import ReportFile
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base.findings import InputErrors

OPTION = "virtpools_report_html"


def refusals(*paths):
    with pytest.raises(InputErrors) as caught:
        report_files.require_writable([ReportFile("html", OPTION, str(path)) for path in paths])
    return list(caught.value.messages)


def test_a_file_in_a_folder_can_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report_files.require_writable([ReportFile("html", OPTION, path) for path in ("x", "./x", str(tmp_path / "x"))])


def test_all_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    missing, closed = tmp_path / "missing", tmp_path / "closed"
    closed.mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(closed) and access(path, mode))
    assert refusals(missing / "x", closed / "x", tmp_path) == [
        f"{OPTION} is {missing}/x, but there is no folder {missing}; create it, or name another file.",
        f"{OPTION} is {closed}/x, but you may not write to the folder {closed}; name another file.",
        f"{OPTION} is {tmp_path}, which is a folder; name a file in it.",
    ]


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "x"
    path.write_text("former")
    moved = []

    def move(written, where):
        moved.append(path.read_text())
        shutil.move(written, where)

    report_files.write(ReportFile("html", OPTION, str(path)), "new ä", move)
    assert (moved, path.read_text("utf-8")) == (["former"], "new ä")
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "missing" / "x"
    with pytest.raises(InputErrors, match="cannot be written to .*/missing/x: No such file or directory"):
        report_files.write(ReportFile("html", OPTION, str(path)), "x", shutil.move)
