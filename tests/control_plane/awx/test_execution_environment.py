# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""The execution environment: ansible-builder takes its definition, and it has the versions that are tested."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import ansible_collections.kubernetes.core as kubernetes_core
import pytest
import yaml

ROOT = Path(__file__).parents[3]
BUILDER = Path(sys.executable).with_name("ansible-builder")
KUBERNETES_CORE = Path(kubernetes_core.__path__[0])


def _pins(*files: str) -> set[str]:
    """The lines of requirements files, without comments."""
    lines = (line.partition("#")[0].strip() for file in files for line in (ROOT / file).read_text("utf-8").splitlines())
    return {line for line in lines if line and not line.startswith("-")}


def _names(requirements: set[str]) -> set[str]:
    return {re.split(r"[=<>]", line)[0].lower() for line in requirements}


def _builder(*arguments: str | Path) -> str:
    ended = subprocess.run([BUILDER, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what an image would be built from."""
    folder = tmp_path_factory.mktemp("ee") / "context"
    _builder("create", "--context", folder, "--output-filename", "Containerfile")
    return folder


def test_the_base_image_is_the_users_choice(context: Path) -> None:
    containerfile = (context / "Containerfile").read_text("utf-8")
    assert 'ARG EE_BASE_IMAGE="registry.example/your-base-image:latest"' in containerfile
    assert "FROM $EE_BASE_IMAGE AS base" in containerfile


def test_the_image_has_the_tested_versions(context: Path) -> None:
    containerfile = (context / "Containerfile").read_text("utf-8")
    (installed,) = re.findall(r'^ARG ANSIBLE_INSTALL_REFS="(.*)"$', containerfile, re.MULTILINE)
    core, runner = installed.split()
    assert core in _pins("requirements/run.txt")
    assert re.fullmatch(r"ansible-runner==[0-9.]+", runner)
    tested = json.loads((KUBERNETES_CORE / "MANIFEST.json").read_text("utf-8"))["collection_info"]["version"]
    collections = yaml.safe_load((context / "_build/requirements.yml").read_text("utf-8"))["collections"]
    assert collections == [{"name": "kubernetes.core", "version": tested}]


def test_the_image_has_what_the_collection_imports(context: Path) -> None:
    here = _pins("requirements/ee.txt")
    assert (context / "_build/requirements.txt").read_text("utf-8") == (ROOT / "requirements/ee.txt").read_text("utf-8")
    assert _names(here) == _names(_pins("requirements.txt"))
    assert here <= _pins("requirements/run.txt", "requirements/constraints.txt")


def _introspected(folder: Path, *arguments: str | Path) -> dict[str, set[str]]:
    """What ansible-builder finds that the collection and kubernetes.core need, of Python and of the system."""
    for name, collection in (("virtpools/kubevirt", ROOT), ("kubernetes/core", KUBERNETES_CORE)):
        link = folder / "ansible_collections" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(collection)
    return yaml.safe_load(_builder("introspect", folder, *arguments))


def test_a_builder_finds_what_the_collection_imports(tmp_path: Path) -> None:
    """In any execution environment that has the collection, not only in ours."""
    ours = {line.partition(" ")[0] for line in _introspected(tmp_path)["python"] if "virtpools.kubevirt" in line}
    # ansible-builder leaves out what ansible-core brings.
    assert ours == {line for line in _pins("requirements.txt") if not line.startswith("PyYAML")}


def test_the_image_needs_no_package_of_the_system(context: Path, tmp_path: Path) -> None:
    excluded = context / "_build/exclude-bindep.txt"
    assert _introspected(tmp_path, "--exclude-bindep-reqs", excluded)["system"] == []
