# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Reads the state of a cluster from a directory of YAML or JSON files, as ``kubectl get -o yaml`` writes them."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pathlib
import typing as t

from ...core.base import kinds
from ...core.base.findings import InputErrors, printable
from ...core.base.objects import flat, named
from ...core.base.selectors import integer
from ...core.kubevirt import health
from ...core.observed import snapshot
from ...core.vms.launcher_pods import LauncherPod, is_launcher
from . import webhook_config

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

_ENDINGS = (".yaml", ".yml", ".json")


def snapshot_of(
    objects: t.Sequence[t.Any], namespace: str | None = None, name: str | None = None, *, handlers: bool = False
) -> snapshot.Snapshot:
    """The snapshot of the objects of a dump.

    :param handlers: whether the pods of KubeVirt's namespace are needed. Without them, every node seems to lack its handler.
    :raises InputErrors: when objects are missing.
    """
    found = snapshot.from_objects(objects, namespace, name, webhook_config.read)
    if health.version_of(found.kubevirt) is not None:
        present = {obj.get("kind") for obj in objects if obj["metadata"].get("namespace") == found.namespace}
        missing = [kind for kind in (kinds.DAEMON_SET, *((kinds.POD,) if handlers else ())) if kind.name not in present]
        if missing:
            lacking, plurals = " and no ".join(kind.name for kind in missing), ",".join(kind.plural for kind in missing)
            message = (
                f"The dump holds no {lacking} of namespace {found.namespace}, where KubeVirt is deployed; add the output of "
                f"`kubectl get {plurals} -n {found.namespace} -o yaml`."
            )
            raise InputErrors([message])
    return found


def launcher_pods(objects: t.Iterable[t.Any]) -> list[LauncherPod]:
    """The launcher pods among the objects of a dump."""
    by_kind: dict[str, list[t.Any]] = {"Namespace": [], "Pod": []}
    for obj in named(objects):
        by_kind.setdefault(obj.get("kind", ""), []).append(obj)
    labels = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in by_kind["Namespace"]}
    return [
        LauncherPod.from_object(pod, labels.get(pod["metadata"].get("namespace", "")))
        for pod in by_kind["Pod"]
        if is_launcher(pod)
    ]


def read_objects(directory: str) -> list[t.Any]:
    """The objects in the files of a directory and of its folders, each once: support bundles have some in several files.

    :raises InputErrors: when the directory or a file cannot be read.
    """
    _need_yaml()
    try:
        files = sorted(_files(directory))
    except OSError as error:
        raise InputErrors([f"The dump directory {error.filename} cannot be read: {error.strerror}."]) from error
    if not files:
        raise InputErrors([f"The dump directory {directory} holds no .yaml, .yml or .json file."])
    with _no_collections():
        return list(_newest(named(obj for path in files for obj in _objects(path))))


@contextlib.contextmanager
def _no_collections() -> t.Iterator[None]:
    """Keep Python from looking for unreachable cycles among what is read, now and later. Files have millions of objects, none
    of them in a cycle, and looking through them takes as long as parsing them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def _files(directory: str) -> t.Iterator[pathlib.Path]:
    def fail(error: OSError) -> None:
        raise error

    for folder, _folders, names in os.walk(directory, onerror=fail):
        paths = (pathlib.Path(folder, name) for name in names)
        yield from (path for path in paths if path.suffix in _ENDINGS)


def _newest(objects: t.Iterable[t.Any]) -> t.Iterable[t.Any]:
    """Each object once, in its newest state: a bundle is collected over some time."""
    newest: dict[tuple[str, ...], t.Any] = {}
    for obj in objects:
        metadata = obj["metadata"]
        group = str(obj.get("apiVersion")).rpartition("/")[0]
        key = (group, str(obj.get("kind")), str(metadata.get("namespace")), metadata["name"])
        if key not in newest or _version(obj) > _version(newest[key]):
            newest[key] = obj
    return newest.values()


def _version(obj: t.Any) -> int:
    return integer(str(obj["metadata"].get("resourceVersion"))) or 0


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
    try:
        documents = [document for document in _documents(path) if isinstance(document, dict)]
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise InputErrors([f"{path} cannot be read as YAML or JSON: {' '.join(str(error).split())[:200]}."]) from error
    for obj in flat(documents):
        problem = _problem(obj)
        if problem is not None:
            raise InputErrors([f"{path}: {problem}, so it is not a Kubernetes object."])
    return documents


def _documents(path: pathlib.Path) -> t.Iterable[t.Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        # YAML contains JSON, and takes ten times as long to read it.
        with contextlib.suppress(ValueError):
            return [json.loads(text)]
    # The C loader is about ten times as fast; PyYAML may have been built without it.
    return t.cast("t.Iterable[t.Any]", yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _problem(obj: t.Any) -> str | None:
    """What is wrong with the fields that every object has; None when nothing is."""
    if not isinstance(obj, dict):
        return f"an item is {_shown(obj)}"
    for field, kind in (("apiVersion", str), ("kind", str), ("metadata", dict), ("spec", dict), ("status", dict)):
        if not isinstance(obj.get(field), (kind, type(None))):
            return f"{field} of an object is {_shown(obj[field])}"
    metadata = obj.get("metadata") or {}
    for field in ("name", "namespace", "uid"):
        if not isinstance(metadata.get(field), (str, type(None))):
            return f"metadata.{field} of an object is {_shown(metadata[field])}"
    for field in ("labels", "annotations"):
        given = metadata.get(field) or {}
        if not isinstance(given, dict) or not all(isinstance(each, str) for pair in given.items() for each in pair):
            return f"metadata.{field} of {obj.get('kind')} {metadata.get('name')} is {_shown(given)}"
    return None


def _shown(value: object) -> str:
    return printable(repr(value))[:80]
