# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Programs are built from modules that are derived from other go.mod files; nothing here starts Go or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from local_cluster import ClusterError, modules, paths, programs, progress
from local_cluster.modules import Module

KUBEVIRT = """module kubevirt.io/kubevirt

go 1.26.0

require (
	k8s.io/api v0.34.3
	kubevirt.io/api v1.8.0
	kubevirt.io/virt-template-api v0.2.0
)

replace (
	k8s.io/api => k8s.io/api v0.34.2

	kubevirt.io/api => ./staging/src/kubevirt.io/api
)
"""
DERIVED = """module virtpools.io/programs

require kubevirt.io/kubevirt v1.9.0

go 1.26.0

require (
	k8s.io/api v0.34.3
	kubevirt.io/api v1.8.0
	kubevirt.io/virt-template-api v0.2.0
)

replace (
	k8s.io/api => k8s.io/api v0.34.2

	kubevirt.io/api => kubevirt.io/api v1.9.0
)

replace kubevirt.io/virt-template-api => ./virt-template-api
"""
ALL = [(title, version) for title, versions in programs.VERSIONS.items() for version in versions]
# Our own go.mod and go.sum have all that the default version of Kubernetes needs.
DERIVED_ONES = [each for each in ALL if each != ("Kubernetes", programs.KUBERNETES)]


def test_derived_module_has_its_libraries_and_local_modules() -> None:
    module = Module("KubeVirt", "kubevirt.io/kubevirt", "v1.9.0", (), staging="v1.9.0")
    local = ["kubevirt.io/virt-template", "kubevirt.io/virt-template-api", "kubevirt.io/virt-template-engine"]
    assert modules.derive(KUBEVIRT, module, local) == DERIVED


def test_derived_module_can_have_other_versions_of_libraries() -> None:
    go_mod = "".join(f"replace k8s.io/{name} => ./staging/src/k8s.io/{name}\n" for name in ("kms", "api"))
    module = Module("Kubernetes", "k8s.io/kubernetes", "v1.35.2", (), "v0.35.2", {"k8s.io/kms": "v0.35.1"})
    derived = modules.derive(go_mod, module, [])
    assert "k8s.io/kms => k8s.io/kms v0.35.1\n" in derived
    assert "k8s.io/api => k8s.io/api v0.35.2\n" in derived


def test_every_file_of_checksums_is_of_a_version() -> None:
    known = {programs._module(title, version).sums for title, version in DERIVED_ONES}
    assert known == set(paths.MODULES.glob("*.sum"))


@pytest.mark.parametrize(("title", "version"), DERIVED_ONES)
def test_every_version_has_its_own_checksums(title: str, version: str) -> None:
    module = programs._module(title, version)
    path, of, kind = module.sums.read_text("utf-8").splitlines()[0].split(" ")
    # Our own go.sum has those of the module itself, where that is built by our own go.mod.
    assert module.ours or (path, of, kind[:3]) == (module.path, version, "h1:")


def test_a_module_built_by_ours_has_our_libraries_and_checksums(tmp_path: Path) -> None:
    module = programs._module("Node", programs.KUBERNETES)
    assert modules.prepare("no Go is needed", module, tmp_path / "module") == paths.TESTBED
    ours, theirs = ((folder / "go.mod").read_bytes() for folder in (paths.TESTBED, tmp_path / "module"))
    assert ours == theirs
    sums = (tmp_path / "module" / "go.sum").read_text("utf-8")
    assert sums == (paths.TESTBED / "go.sum").read_text("utf-8") + module.sums.read_text("utf-8")


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Path, Path]:
    """Return the folder of a module, which Go keeps from being written, and the folder that it is built in."""
    source, folder = tmp_path / "source", tmp_path / "module"
    (source / "pkg").mkdir(parents=True)
    (source / "pkg" / "c.go").write_text('import "C"\n', "utf-8")
    folder.mkdir()
    (folder / "go.mod").write_text("module x\n", "utf-8")
    (source / "pkg").chmod(0o555)
    return source, folder


def test_a_file_is_replaced_in_a_copy_of_its_module(copied: tuple[Path, Path]) -> None:
    source, folder = copied
    modules._replace(Module("X", "example.org/x", "v1", (), replaced={"pkg/c.go": "package x\n"}), source, folder)
    assert (folder / "source" / "pkg" / "c.go").read_text("utf-8") == "package x\n"
    assert (source / "pkg" / "c.go").read_text("utf-8") == 'import "C"\n'
    assert (folder / "go.mod").read_text("utf-8").endswith("replace example.org/x => ./source\n")


def test_a_passage_is_edited_in_a_copy_of_its_module(copied: tuple[Path, Path]) -> None:
    source, folder = copied
    edited = Module("X", "example.org/x", "v1", (), edited={"pkg/c.go": (('"C"', '"fmt"'),)})
    modules._replace(edited, source, folder)
    assert (folder / "source" / "pkg" / "c.go").read_text("utf-8") == 'import "fmt"\n'
    assert (source / "pkg" / "c.go").read_text("utf-8") == 'import "C"\n'


def test_a_version_that_lacks_an_edited_passage_is_not_built(copied: tuple[Path, Path]) -> None:
    edited = Module("X", "example.org/x", "v1", (), edited={"pkg/c.go": (("gone", "new"),)})
    with pytest.raises(ClusterError, match=r"pkg/c\.go of X v1 has no longer what we edit in it: gone"):
        modules._replace(edited, *copied)


def test_versions_are_in_their_order() -> None:
    assert programs.KUBERNETES_VERSIONS == ("v1.35.2", "v1.36.3", "v1.37.0")
    assert programs.KUBEVIRT_VERSIONS == ("v1.7.0", "v1.8.2", "v1.8.4", "v1.9.0")


def test_defaults_are_known() -> None:
    assert programs.KUBEVIRT in programs.KUBEVIRT_VERSIONS
    assert programs.KUBERNETES in programs.KUBERNETES_VERSIONS


@pytest.mark.parametrize("unknown", [{"kubernetes": "v1.30.0"}, {"kubevirt": "v1.6.0"}])
def test_an_unknown_version_is_refused_before_anything_is_built(unknown: dict[str, str]) -> None:
    (version,) = unknown.values()
    known = programs.KUBERNETES_VERSIONS if "kubernetes" in unknown else programs.KUBEVIRT_VERSIONS
    with pytest.raises(ClusterError, match=rf"{version} is not .*: {', '.join(known)}\.$"):
        programs.build(pytest.fail, **unknown)


def test_each_version_is_in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = {programs.product(title, version).folder.name for title, version in ALL}
    assert len(folders) == len(ALL)
    assert all(any(name.startswith(f"{title.lower()}-{version}-") for name in folders) for title, version in ALL)


def test_manifest_gets_namespace_and_images(tmp_path: Path) -> None:
    (tmp_path / programs.MANIFEST).write_text(f"{programs.NAMESPACE} {programs.IMAGES}/virt-operator:v1.9.0\n", "utf-8")
    assert programs.manifest(tmp_path, "virt") == "virt stock.example/kubevirt/virt-operator:v1.9.0\n"
    assert programs.manifest(tmp_path, images="other.example") == "kubevirt other.example/virt-operator:v1.9.0\n"


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [(1, 2, 3, "5 s"), (10, 40, 20, "60 s"), (100, 250, 60, "2 min"), (412, 1905, 40, "2 min"), (5, 5, 60, "5 s")],
)
def test_time_to_go(done: int, total: int, seconds: float, text: str) -> None:
    assert progress.spoken(progress.time_to_go(done, total, seconds)) == text


@pytest.fixture
def go(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that makes a program that answers like Go: two packages and a program are to be compiled."""
    (tmp_path / "abi.go").write_text("package abi\n" * 1000, "utf-8")
    (tmp_path / "types.go").write_text("package api\n" * 2000, "utf-8")
    listed = [
        ("unsafe", "false", "", "0", ""),
        ("internal/abi", "true", "build ID mismatch", "1", "abi.go"),
        ("k8s.io/api", "true", "stale dependency: internal/abi", "150", "abi.go/types.go"),
        ("k8s.io/cmd", "true", "stale dependency: k8s.io/api", "151", ""),
        ("k8s.io/done", "true", "not installed but available in build cache", "150", "types.go"),
    ]
    lines = ["\t".join([*line[:3], str(tmp_path), *line[3:]]) + "/\n" for line in listed]
    (tmp_path / "list").write_text("".join(lines), "utf-8")

    def make(build: str) -> str:
        program = tmp_path / "go"
        program.write_text(f"#!/bin/sh\ncase $1 in list) cat {tmp_path}/list ;; build) {build} ;; esac\n", "utf-8")
        program.chmod(0o755)
        return str(program)

    return make


def test_progress_counts_what_the_cache_lacks_and_nothing_else(
    go: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0)
    named = "internal/abi\\ngo: downloading k8s.io/api v0.34.2\\nk8s.io/api\\nk8s.io/cmd\\n"
    said: list[str] = []
    progress.build(go(f"printf '{named}' >&2"), [], ["k8s.io/cmd"], tmp_path, said.append)
    first, second = 80_000 + 12_000 + 400, 80_000 + 36_000 + 60_000
    total = first + second + 80_000 + 60_400
    assert [line.split(",")[0].strip() for line in said] == [
        f"{first / total:.0%} compiled",
        f"{(first + second) / total:.0%} compiled",
    ]


def test_a_failed_build_says_what_go_said(go: Callable[[str], str], tmp_path: Path) -> None:
    program = go("printf 'internal/abi\\n# k8s.io/api\\ntypes.go:1:2: undefined: x\\n' >&2; exit 1")
    with pytest.raises(ClusterError, match=r"(?s)go build -v k8s\.io/api\n# k8s.io/api\ntypes.go:1:2: undefined: x$"):
        progress.build(program, [], ["k8s.io/api"], tmp_path, pytest.fail)
