# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate that looks for phrases which have a plainer one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "ci/check_words.py"


@pytest.fixture(scope="module")
def gate():
    spec = importlib.util.spec_from_file_location("check_words", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Such nodes do not count.", "do not count"),
        ("KubeVirt says no.", "KubeVirt says"),
        ("The list fails and says so.", "says so"),
        ("The controller makes none again.", "makes none"),
        ("Somebody changed it.", "Somebody"),
        ("Wait until it is gone.", "is gone"),
        ("All pools that are there.", "that are there"),
        ("Wait for so long.", "for so long"),
        ("As far as known.", "As far as"),
        ("This is no name.", "is no name"),
        ("Whoever runs it.", "Whoever"),
        ("The handler gets Ready.", "gets Ready"),
        ("It fails all the same.", "all the same"),
        ("Its handler is taken away.", "taken away"),
        ('f"{n} node(s) failed"', "node(s)"),
    ],
)
def test_a_phrase_is_found_with_its_line(gate, text, phrase):
    assert [(hit.line, hit.phrase) for hit in gate.hits(f"Plain words.\n{text}\n")] == [(2, phrase)]


@pytest.mark.parametrize(
    "text",
    [
        "There is no pool, and it is no longer needed.",
        "counts: {nobody} of 3",
        "The pods are counted.",
        "A well known name. The port is well known.",
        "variables.pool.exists(s)",
        "Somebody changed it.  # check-words: ok",
    ],
)
def test_plain_words_and_quotations_pass(gate, text):
    assert list(gate.hits(text)) == []


def test_the_report_names_the_file_and_the_better_phrase(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("Nodes\nmeanwhile wait.\n", "utf-8")
    (tmp_path / "other.md").write_text("Meanwhile.\n", "utf-8")
    for command in (("init", "-q"), ("add", ".")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    run = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 1
    assert [line.partition(" -> ")[0] for line in run.stdout.splitlines()] == ["docs/page.md:2: meanwhile"]


def test_a_repository_without_files_to_check_fails(tmp_path):
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    run = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, f"{tmp_path} has no files to check\n")
