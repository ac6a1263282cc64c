# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate that looks for headers, and in module_utils for the note that these files are private."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "ci/check_headers.py"
HEADER = "".join(f"{line}\n" for line in SCRIPT.read_text("utf-8").splitlines()[:3])
NOTE = "# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.\n"
CODE = '"""What it is for."""\n'


@pytest.fixture(scope="module")
def gate():
    spec = importlib.util.spec_from_file_location("check_headers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "lacks"),
    [("", False), (HEADER + CODE, False), (CODE, True), (HEADER.splitlines()[0] + "\n" + CODE, True)],
)
def test_every_file_that_is_not_empty_needs_a_header(gate, tmp_path, text, lacks):
    (tmp_path / "file.py").write_text(text, "utf-8")
    assert gate.lacks_header(tmp_path / "file.py") is lacks


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("", False),
        (HEADER + NOTE + CODE, False),
        (HEADER + "\n" + NOTE + CODE, False),
        (HEADER, True),
        (HEADER + CODE, True),
        (HEADER + CODE + NOTE, True),
        (NOTE + CODE, True),
        (HEADER + NOTE.replace("PRIVATE", "private") + CODE, True),
    ],
)
def test_the_note_comes_right_after_the_header(gate, tmp_path, text, lacks):
    (tmp_path / "file.py").write_text(text, "utf-8")
    assert gate.lacks_private_note(tmp_path / "file.py") is lacks


@pytest.mark.parametrize(
    ("file", "private"),
    [
        ("plugins/module_utils/core/pools/forms.py", False),
        ("plugins/module_utils/core/__init__.py", False),
        ("plugins/module_utils/_module.py", True),
        ("plugins/module_utils/_client/transport.py", True),
    ],
)
def test_no_module_util_has_a_private_name(gate, file, private):
    assert gate.has_private_name(file) is private
