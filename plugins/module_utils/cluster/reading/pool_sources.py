# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""Reads the pool list from the options, from a manifest file, or from objects in the cluster."""

from __future__ import annotations

import typing as t

from ...core.base import kinds
from ...core.base.findings import InputErrors
from ...core.planning.history import History
from ...core.pools import dialects
from ...core.pools.model import Pool
from ..api.client import Cluster
from . import live

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

_LARGEST_MANIFEST_BYTES = 4 * 1024 * 1024
"""A manifest of 1,000 pools has far less than 1 MiB."""


def read(
    params: t.Mapping[str, t.Any], cluster: t.Callable[[], Cluster], history: t.Callable[[], History]
) -> tuple[str, tuple[Pool, ...]]:
    """The dialect and the pools that a module's options name; no pools with ``pools_from_history``: the caller reads the
    history.

    A move between the modes takes down a list that it read from the cluster. Until it has completed, its list is the one that
    the history has.

    :raises InputErrors: when there is no list, or several, or when a list is wrong.
    """
    given = [name for name in ("pools", "pools_manifest") if params[name] is not None]
    given += [name for name in ("pools_from_cluster", "pools_from_history") if params.get(name)]
    if not given:
        raise InputErrors(
            [
                "No pool list is given; set virtpools_pools (or virtpools_pools_manifest, or virtpools_pools_from_cluster)."
            ]
        )
    if len(given) > 1:
        raise InputErrors([f"The pool list is given more than once ({', '.join(given)}); keep one of them."])
    if params.get("pools_from_history"):
        return dialects.OWN, ()
    if params["pools"] is not None:
        return params["pools_dialect"], dialects.read_dialect(params["pools_dialect"], params["pools"])
    if params["pools_manifest"] is not None:
        file = params["pools_manifest"]
        return dialects.read_manifest(_documents(file), load_yaml=_load, file=file)
    moving = history().moving
    if moving is not None and moving.read_from == params["pools_dialect"]:
        return dialects.OWN, moving.to.pools
    return _from_cluster(params, cluster(), history())


def _documents(path: str) -> list[object]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LARGEST_MANIFEST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputErrors(
            [f"The pool manifest {path} cannot be read: {reason}; correct its path, or the file."]
        ) from error
    if len(text) > _LARGEST_MANIFEST_BYTES:
        raise InputErrors(
            [f"The pool manifest {path} is larger than {_LARGEST_MANIFEST_BYTES // 2**20} MiB; is it the right file?"]
        )
    documents = _parsed(f"The pool manifest {path} is not valid YAML", lambda: list(yaml.safe_load_all(text)))
    return [document for document in documents if document is not None]


def _load(text: str) -> object:
    return _parsed("The YAML inside the ConfigMap is not valid", lambda: yaml.safe_load(text))


def _parsed(problem: str, parse: t.Callable[[], t.Any]) -> t.Any:
    if yaml is None:
        raise InputErrors(["The Python package PyYAML is missing where the module runs; install it."])
    try:
        return parse()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputErrors([f"{problem}: {' '.join(str(error).split())[:200]}."]) from error


def _from_cluster(params: t.Mapping[str, t.Any], cluster: Cluster, history: History) -> tuple[str, tuple[Pool, ...]]:
    dialect = params["pools_dialect"]
    source = dialects.DIALECTS[dialect].source
    if isinstance(source, dialects.Variable):
        raise InputErrors(
            [
                f"virtpools_pools_from_cluster needs virtpools_pools_dialect to specify what to read from the cluster; {dialect} is not an object."
            ]
        )
    kubevirt = live.find_kubevirt(cluster, params["kubevirt_namespace"], params["kubevirt_name"])
    objects: list[object] = []
    if isinstance(source, dialects.CustomResources):
        objects = list(cluster.list(source.kind, missing_ok=True))
    elif isinstance(source, dialects.ConfigMapKey):
        config_map = cluster.get(kinds.CONFIG_MAP, source.config_map, kubevirt["metadata"]["namespace"])
        objects = [config_map] if config_map else []
    elif (kubevirt.get("spec") or {}).get(source.name):
        objects = [kubevirt]
    if not objects:
        nothing = f"The cluster at {cluster.server} has no {dialect} to read pools from"
        recorded = "; the module pool_history shows the lists that runs applied: write one into virtpools_pools"
        raise InputErrors([f"{nothing}{recorded if history.entries else ''}."])
    return dialects.read_manifest(objects, load_yaml=_load)
