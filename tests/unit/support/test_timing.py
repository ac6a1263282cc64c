# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.virtpools.kubevirt.tests.unit.support import timing

HANGING = """
import time, hypothesis

@hypothesis.given(hypothesis.strategies.integers())
def test_hangs(number):
    time.sleep(60)

def test_comes_after():
    pass
"""


def test_a_test_that_hangs_fails_alone(tmp_path):
    """Not even Hypothesis tries it again."""
    pytest.importorskip("pytest_timeout")
    (tmp_path / "test_it.py").write_text(HANGING, "utf-8")
    # ansible-test's own plugins and its way to the collection are not for this process.
    plugin = Path(timing.__file__)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(plugin.parent)}
    command = [sys.executable, "-m", "pytest", "-p", plugin.stem, "--timeout", "1", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert "time.sleep(60)" in ended.stdout, ended
    assert "Timeout (>1.0s)" in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout


def report(nodeid, when, duration, worker, stop):
    return SimpleNamespace(nodeid=nodeid, when=when, duration=duration, worker_id=worker, stop=stop)


def test_the_table_adds_up_files_and_workers():
    times = iter((1000.0, 1100.0))
    spent = timing.TimeSpent(now=lambda: next(times))
    spent.pytest_runtest_logreport(report("a.py::one", "setup", 2.0, "gw0", 1002.0))
    spent.pytest_runtest_logreport(report("a.py::one", "call", 3.0, "gw0", 1005.0))
    spent.pytest_runtest_logreport(report("b.py::one", "call", 40.0, "gw1", 1090.0))
    spent.pytest_runtest_logreport(report("a.py::two[x::y]", "teardown", 1.0, "gw0", 1006.0))
    assert list(spent.lines()) == [
        "    total     setup      call  seconds in each file",
        "     40.0       0.0      40.0  b.py",
        "      6.0       2.0       3.0  a.py",
        "     46.0       2.0      43.0  all",
        "gw0 was busy for 6 of 100 s, and had nothing left to do for the last 94 s",
        "gw1 was busy for 40 of 100 s, and had nothing left to do for the last 10 s",
    ]
