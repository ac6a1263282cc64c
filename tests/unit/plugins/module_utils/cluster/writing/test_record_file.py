# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster.writing import record_file


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_record_grows_and_is_taken_once(folder):
    path = record_file.begin("first")
    record_file.append(path, "second ä")
    record_file.append(path, "third")
    assert record_file.take(path) == ["first", "second ä", "third"]
    assert list(folder.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        record_file.take(path)


def test_a_record_that_is_gone_is_not_begun_again(folder):
    record_file.append(str(folder / "gone"), "line")
    assert list(folder.iterdir()) == []
