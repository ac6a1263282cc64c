# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a cluster's state from files instead: a directory of YAML or JSON objects, as ``kubectl get -o yaml`` writes them."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import names, snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.launcher_pods import LauncherPod

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

_ENDINGS = (".yaml", ".yml", ".json")


def read(directory: str, namespace: str | None = None, name: str | None = None) -> snapshot.Snapshot:
    """The snapshot that the files of a directory make together.

    :raises InputErrors: when the directory or a file cannot be read, or the objects in it are not enough.
    """
    return snapshot.from_objects(read_objects(directory), namespace, name)


def launcher_pods(objects: t.Iterable[t.Any]) -> list[LauncherPod]:
    """The launcher pods among the objects of a dump."""
    by_kind: dict[str, list[t.Any]] = {"Namespace": [], "Pod": []}
    for obj in snapshot.flat(objects):
        by_kind.setdefault(obj.get("kind", ""), []).append(obj)
    labels = {found["metadata"]["name"]: found["metadata"].get("labels") or {} for found in by_kind["Namespace"]}
    return [
        LauncherPod.of(pod, labels.get(pod["metadata"].get("namespace", "")))
        for pod in by_kind["Pod"]
        if (pod["metadata"].get("labels") or {}).get(names.KUBEVIRT_LABEL) == names.LAUNCHER
    ]


def read_objects(directory: str) -> list[t.Any]:
    """The objects in the files of a directory; ``List`` objects as they are.

    :raises InputErrors: when the directory or a file cannot be read.
    """
    _need_yaml()
    try:
        files = sorted(path for path in pathlib.Path(directory).iterdir() if path.suffix in _ENDINGS)
    except OSError as error:
        raise InputErrors([f"The dump directory {directory} cannot be read: {error.strerror}."]) from error
    if not files:
        raise InputErrors([f"The dump directory {directory} holds no .yaml, .yml or .json file."])
    return [obj for path in files for obj in _objects(path)]


def read_file(path: str) -> list[t.Any]:
    """The objects in one file.

    :raises InputErrors: when it cannot be read.
    """
    _need_yaml()
    return _objects(pathlib.Path(path))


def _need_yaml() -> None:
    if yaml is None:
        raise InputErrors(["The Python package PyYAML is missing where the module runs; install it."])


def _objects(path: pathlib.Path) -> list[t.Any]:
    # The C loader is about ten times as fast, where PyYAML was built with it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = path.read_text(encoding="utf-8")
        return [document for document in yaml.load_all(text, Loader=loader) if isinstance(document, dict)]
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise InputErrors([f"{path} cannot be read as YAML or JSON: {' '.join(str(error).split())[:200]}."]) from error
