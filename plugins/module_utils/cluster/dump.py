# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a cluster's state from files instead: a directory of YAML or JSON objects, as ``kubectl get -o yaml`` writes them."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import snapshot
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

_ENDINGS = (".yaml", ".yml", ".json")


def read(directory: str, namespace: str | None = None, name: str | None = None) -> snapshot.Snapshot:
    """The snapshot that the files of a directory make together.

    :raises InputErrors: when the directory or a file cannot be read, or the objects in it are not enough.
    """
    if yaml is None:
        raise InputErrors(["The Python package PyYAML is missing where the module runs; install it."])
    try:
        files = sorted(path for path in pathlib.Path(directory).iterdir() if path.suffix in _ENDINGS)
    except OSError as error:
        raise InputErrors([f"The dump directory {directory} cannot be read: {error.strerror}."]) from error
    if not files:
        raise InputErrors([f"The dump directory {directory} holds no .yaml, .yml or .json file."])
    objects = [obj for path in files for obj in _objects(path)]
    return snapshot.from_objects(objects, namespace, name)


def _objects(path: pathlib.Path) -> list[t.Any]:
    # The C loader is about ten times as fast, where PyYAML was built with it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = path.read_text(encoding="utf-8")
        return [document for document in yaml.load_all(text, Loader=loader) if isinstance(document, dict)]
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise InputErrors([f"{path} cannot be read as YAML or JSON: {' '.join(str(error).split())[:200]}."]) from error
