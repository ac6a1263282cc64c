# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""Clusters at rest in which KubeVirt is installed: new clusters start from a copy, in seconds instead of a minute."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import time
import urllib.request
import uuid
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from . import instance as instances
from . import kubevirt, paths
from .programs import AGENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .cluster import LocalCluster
    from .go import Log
    from .instance import Options
    from .programs import Programs

# KubeVirt's certificates are valid for a day.
LIFE_SECONDS = 12 * 3600
_UID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find(options: Options, programs: Programs, start: Callable[[str, Options], LocalCluster], log: Log) -> Path:
    """Return the seed of such clusters, made now unless there is one; start makes a cluster without a seed."""
    # The agent makes another build of a stock KubeVirt when it starts.
    kept = replace(options, fleet="", agent="", build="")
    made_of = [programs.kubernetes.name, programs.kubevirt and programs.kubevirt.name, kubevirt.SPEC, kubevirt.SEED]
    parts = [*asdict(kept).items(), *made_of]
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    folder = paths.cache() / f"seed-{key}"
    with paths.locked(paths.cache() / f".seed-{key}.lock"):
        if not _fresh(folder):
            log(f"Installing KubeVirt {options.kubevirt}, once for all clusters of the next hours: about a minute ...")
            _make(f"seed-{key}", kept, folder, start)
    return folder


def _fresh(folder: Path) -> bool:
    try:
        return time.time() - folder.stat().st_mtime < LIFE_SECONDS
    except FileNotFoundError:
        return False


def _make(name: str, options: Options, folder: Path, start: Callable[[str, Options], LocalCluster]) -> None:
    with start(name, options) as cluster:
        replicas = kubevirt.SEED_API_REPLICAS_OF_HCO if options.hco else kubevirt.SEED_API_REPLICAS
        cluster.wait(lambda: _api_replicas(cluster) == replicas, 60, "virt-operator to scale virt-api")
        # First virt-operator: with less nodes it would change virt-api's replicas.
        cluster.stop_component(AGENT)
        for node in kubevirt.SEED_NODES:
            _forget(cluster, node)
        for component in reversed(cluster.components()):
            cluster.stop_component(component)
        temporary = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(mode=0o700, parents=True)
        instances.copy_state(cluster.dir, temporary)
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)


def renamed(etcd: str) -> bool:
    """Give the cluster an identity of its own, as all but copies have: its namespace kube-system gets another UID.

    Done in etcd at this address, before the API server starts. Returns False while etcd does not answer.
    """
    key = base64.b64encode(b"/registry/namespaces/kube-system").decode()
    try:
        found = _ask(f"{etcd}/v3/kv/range", {"key": key}).get("kvs")
        if found:
            value = _UID.sub(str(uuid.uuid4()).encode(), base64.b64decode(found[0]["value"]))
            _ask(f"{etcd}/v3/kv/put", {"key": key, "value": base64.b64encode(value).decode()})
    except OSError:
        return False
    return True


def _ask(url: str, body: dict[str, str]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode())
    # Without the proxy that the environment may name.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as answer:
        return dict(json.load(answer))


def _api_replicas(cluster: LocalCluster) -> int:
    return int(cluster.get("deployment", "virt-api", namespace=cluster.options.namespace)["spec"]["replicas"])


def _forget(cluster: LocalCluster, node: str) -> None:
    pods = f"--field-selector=spec.nodeName={node}"
    cluster.kubectl("delete", "node", node)
    cluster.kubectl("delete", "pods", "-A", pods, "--force", "--grace-period=0")
