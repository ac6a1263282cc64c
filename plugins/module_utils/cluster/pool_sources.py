# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the pool list comes from: the options themselves, a manifest file, or objects in the cluster."""

from __future__ import annotations

import typing as t

from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster import live
from ansible_collections.virtpools.kubevirt.plugins.module_utils.cluster._client import Cluster
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core import dialects, kinds
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.findings import InputErrors
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.pools import Pool

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

_LARGEST_MANIFEST_BYTES = 4 * 1024 * 1024
"""1,000 pools are well below 1 MiB."""


def read(params: t.Mapping[str, t.Any], cluster: t.Callable[[], Cluster]) -> tuple[Pool, ...]:
    """The pools that a module's options name; none for those of the history, which the caller has.

    :raises InputErrors: for no list, more than one, or a bad one.
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
        return ()
    if params["pools"] is not None:
        return dialects.read_dialect(params["pools_dialect"], params["pools"])
    if params["pools_manifest"] is not None:
        return dialects.read_manifest(_documents(params["pools_manifest"]), load_yaml=_load)[1]
    return _from_cluster(params, cluster())


def _documents(path: str) -> list[object]:
    _need_yaml()
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LARGEST_MANIFEST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InputErrors([f"The pool manifest {path} cannot be read: {error}."]) from error
    if len(text) > _LARGEST_MANIFEST_BYTES:
        raise InputErrors(
            [f"The pool manifest {path} is larger than {_LARGEST_MANIFEST_BYTES // 2**20} MiB; is it the right file?"]
        )
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputErrors([f"The pool manifest {path} is not valid YAML: {_short(error)}."]) from error


def _load(text: str) -> object:
    _need_yaml()
    try:
        return t.cast(object, yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputErrors([f"The YAML inside the ConfigMap is not valid: {_short(error)}."]) from error


def _need_yaml() -> None:
    if yaml is None:
        raise InputErrors(["The Python package PyYAML is missing where the module runs; install it."])


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _from_cluster(params: t.Mapping[str, t.Any], cluster: Cluster) -> tuple[Pool, ...]:
    dialect = params["pools_dialect"]
    if dialect == "virtpools":
        raise InputErrors(
            [
                "pools_from_cluster needs pools_dialect to say what to read from the cluster; virtpools is our own form, not an object."
            ]
        )
    kubevirt = live.find_kubevirt(cluster, params["kubevirt_namespace"], params["kubevirt_name"])
    if dialect == "WorkerPool":
        found: list[object] = list(cluster.list(kinds.WORKER_POOL, missing_ok=True))
    elif dialect == "kubevirt-aie-launcher-config":
        config_map = cluster.get(kinds.CONFIG_MAP, dialect, kubevirt["metadata"]["namespace"])
        found = [config_map] if config_map else []
    else:
        found = [kubevirt] if (kubevirt.get("spec") or {}).get(dialect) else []
    if not found:
        raise InputErrors([f"The cluster at {cluster.server} has no {dialect} to read pools from."])
    read_as, pools = dialects.read_manifest(found, load_yaml=_load)
    if read_as != dialect:
        raise InputErrors([f"The cluster has pools as {read_as}, not as {dialect}; set pools_dialect to {read_as}."])
    return pools
