# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "ci" / "python.sh"


@pytest.fixture
def chosen(tmp_path):
    """The Python that the script chooses where the first folders on PATH have a python3 that fits or does not."""

    def choose(*fit):
        folders = [tmp_path / str(number) for number in range(len(fit))]
        for folder, fits in zip(folders, fit, strict=True):
            folder.mkdir()
            (folder / "python3").write_text(f"#!/bin/sh\nexit {0 if fits else 1}\n")
            (folder / "python3").chmod(0o755)
        # Without the machine's own Pythons.
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "bash").symlink_to("/bin/bash")
        path = os.pathsep.join(map(str, [*folders, tmp_path / "tools"]))
        out = subprocess.run([SCRIPT], env={"PATH": path}, capture_output=True, text=True, check=True).stdout.strip()
        return out.removeprefix(f"{tmp_path}/")

    return choose


def test_the_first_python_that_fits_is_taken(chosen):
    assert chosen(False, True, True) == "1/python3"


def test_without_one_that_fits_python3_is_taken(chosen):
    assert chosen(False, False) == "python3"


@pytest.mark.parametrize(
    ("prefix", "arguments", "fits"),
    [("/elsewhere", "--enable-optimizations", True), ("/elsewhere", "--enable-shared", False), ("/usr", "", True)],
)
def test_only_a_python_with_optimizations_fits(tmp_path, prefix, arguments, fits):
    said = f"sys.base_prefix = {prefix!r}\nsysconfig.get_config_vars()['CONFIG_ARGS'] = {arguments!r}\n"
    (tmp_path / "sitecustomize.py").write_text(f"import sys, sysconfig\n{said}")
    python = tmp_path / "python3"
    python.symlink_to(sys.executable)
    environment = {"PATH": os.pathsep.join([str(tmp_path), "/bin"]), "PYTHONPATH": str(tmp_path)}
    chosen = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert (chosen == str(python)) is fits
